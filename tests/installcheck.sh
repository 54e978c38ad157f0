#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What was installed works: the program answers, and the examples build against the installed headers.
set -e
source=$1
program=$DESTDIR${bindir:?}/byteps
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# With DESTDIR nothing lies where it will be, so the places are named.
if [ -n "$DESTDIR" ]; then
    PKG_CONFIG_SYSROOT_DIR=$DESTDIR
    BYTEPS_PLUGIN_PATH=$DESTDIR${libdir:?}/byteps
    BYTEPS_MODEL_PATH=$DESTDIR${modelsdir:?}
    LD_LIBRARY_PATH=$DESTDIR$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export PKG_CONFIG_SYSROOT_DIR BYTEPS_PLUGIN_PATH BYTEPS_MODEL_PATH LD_LIBRARY_PATH
fi
PKG_CONFIG_PATH=$DESTDIR${pkgconfigdir:?}${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
PYTHONDONTWRITEBYTECODE=1
export PKG_CONFIG_PATH PYTHONDONTWRITEBYTECODE

echo "byteps info"
"$program" info
echo "byteps plugin list"
"$program" plugin list
echo "byteps plan"
"$program" plan --workers 4 --servers 2 --model resnet50
echo "byteps run with the C example"
# shellcheck disable=SC2046,SC2086 # a compiler with a wrapper, and lists of flags
${CC:-cc} $CFLAGS -o "$work/push_pull" "$source/examples/push_pull.c" $($PKG_CONFIG --cflags --libs byteps)
"$program" run -n 2 -- "$work/push_pull"

echo "an example of each kind of plugin, built and checked out of the tree"
if [ -n "$DESTDIR" ]; then
    unset PKG_CONFIG_SYSROOT_DIR
    PKG_CONFIG="$PKG_CONFIG --define-variable=prefix=$DESTDIR${prefix:?}"
fi
for example in compressor_natural reducer_kahan stage_clip transport_unix; do
    cp -R "$DESTDIR${docdir:?}/examples/$example" "$work/$example"
    MAKEFLAGS="" make -C "$work/$example" check CC="${CC:-cc}" PKG_CONFIG="$PKG_CONFIG" BYTEPS="$program"
done
BYTEPS_PLUGIN_PATH=$work/stage_clip${BYTEPS_PLUGIN_PATH:+:$BYTEPS_PLUGIN_PATH} "$program" plugin info clip

if [ -d "${pkgpythondir:?}" ] && [ -z "$DESTDIR" ]; then
    for test in installed wheel; do
        echo "import byteps: test_$test.py"
        BINDIR=$bindir BUILDDIR=$PWD top_srcdir=$source "$PYTHON" "$source/tests/run-python.py" \
            "$source/tests/installed/test_$test.py" || [ $? -eq 77 ]
    done
fi
