#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes inside the core go only down the list of its folders, and a plugin includes nothing of the core but the
# public headers; transports share transports/util. A planted violation proves that the check sees one.
layers="base conf plugin sum wire node server graph flow shards group device device_group worker"

# Prints each include under $1/core that goes up.
check_core()
{
    below="config.h"
    for layer in $layers; do
        below="$below $layer/"
        [ -d "$1/core/$layer" ] || continue
        for file in "$1"/core/"$layer"/*.[ch]; do
            [ -f "$file" ] || continue
            sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$file" |
            while read -r name; do
                found=no
                for prefix in $below; do
                    case $name in "$prefix"*) found=yes ;; esac
                done
                case $layer:$name in device:group/*) found=no ;; esac # neither knows the other
                [ $found = yes ] || echo "$file: \"$name\" is not below core/$layer"
            done
        done
    done
}

# Prints each quoted include of a plugin under $1 that is not its own file, nor, in a transport, one of transports/util.
check_plugins()
{
    for dir in "$1"/transports/* "$1"/reducers/* "$1"/compressors/* "$1"/frameworks/* "$1"/examples/stage_*; do
        for file in "$dir"/*.[ch]; do
            [ -f "$file" ] || continue
            sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$file" |
            while read -r name; do
                case $dir:$name in
                *:*../*) found= ;;
                "$1"/transports/*:util/*) found=$1/transports/$name ;;
                *) found=$dir/$name ;;
                esac
                [ -f "$found" ] || echo "$file: \"$name\" is not a file of this plugin"
            done
        done
    done
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/core/base" "$work/core/device" "$work/transports/bad" "$work/transports/util" "$work/reducers/bad"
echo '#include "conf/conf.h"' >"$work/core/base/bad.c"
printf '#include "%s"\n' base/log.h util/no.h ../bad/bad.c util/util.h >"$work/transports/bad/bad.c"
echo '#include "util/util.h"' >"$work/reducers/bad/bad.c"
touch "$work/transports/util/util.h"
echo '#include "group/local.h"' >"$work/core/device/bad.c"
if [ "$(check_core "$work" | wc -l)" -ne 2 ] || [ "$(check_plugins "$work" | wc -l)" -ne 4 ]; then
    echo "the check does not see a planted violation"
    exit 1
fi

violations=$(check_core "${top_srcdir:?}"; check_plugins "$top_srcdir")
[ -z "$violations" ] && exit 0
echo "$violations"
exit 1
