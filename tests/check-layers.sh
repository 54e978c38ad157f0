#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes inside the core go only down the list of its folders and never into tools, nor into the scheduler, which is a
# library of its own and has one header for the rest, and a plugin includes nothing of
# the core but the public headers; transports share transports/util, compressors compressors/util, and launchers
# launchers/util. Planted violations prove that the check sees them.
layers="base trace conf plugin meeting coding sum wire node scheduler server graph names flow shards coded group
    device device_group worker"

# Prints each include of the files in the folder $1 that begins as none of the words in $2.
check_folder()
{
    for file in "$1"/*.[ch]; do
        [ -f "$file" ] || continue
        sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$file" |
        while read -r name; do
            found=no
            for prefix in $2; do
                case $name in "$prefix"*) found=yes ;; esac
            done
            [ $found = yes ] || echo "$file: \"$name\" is not below this folder"
        done
    done
}

# Prints each include under $1/core that goes up.
check_core()
{
    below="config.h"
    for layer in $layers; do
        below="$below $layer/"
        case $layer in
        device) check_folder "$1/core/$layer" "${below% group/*} $layer/" ;; # neither knows the other
        *) check_folder "$1/core/$layer" "$below" ;;
        esac
        [ "$layer" != scheduler ] || below="${below}ops.h"
    done
}

# Prints each quoted include of a plugin under $1 that is not its own file, nor one of what its kind shares.
check_plugins()
{
    for dir in "$1"/transports/* "$1"/reducers/* "$1"/compressors/* "$1"/launchers/* "$1"/frameworks/* \
        "$1"/examples/stage_*; do
        for file in "$dir"/*.[ch]; do
            [ -f "$file" ] || continue
            sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$file" |
            while read -r name; do
                case $dir:$name in
                *:*../*) found= ;;
                "$1"/transports/*:util/* | "$1"/compressors/*:util/* | "$1"/launchers/*:util/*) found=${dir%/*}/$name ;;
                *) found=$dir/$name ;;
                esac
                [ -f "$found" ] || echo "$file: \"$name\" is not a file of this plugin"
            done
        done
    done
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/core/base" "$work/core/device" "$work/core/worker" "$work/transports/bad" \
    "$work/transports/util" "$work/reducers/bad" "$work/launchers/bad"
echo '#include "conf/conf.h"' >"$work/core/base/bad.c"
printf '#include "%s"\n' tools/cmd.h scheduler/roster.h >"$work/core/worker/bad.c"
printf '#include "%s"\n' base/log.h util/no.h ../bad/bad.c util/util.h >"$work/transports/bad/bad.c"
echo '#include "util/util.h"' >"$work/reducers/bad/bad.c"
echo '#include "conf/value.h"' >"$work/launchers/bad/bad.c"
touch "$work/transports/util/util.h"
echo '#include "group/local.h"' >"$work/core/device/bad.c"
if [ "$(check_core "$work" | wc -l)" -ne 4 ] || [ "$(check_plugins "$work" | wc -l)" -ne 5 ]; then
    echo "the check does not see a planted violation"
    exit 1
fi

violations=$(check_core "${top_srcdir:?}"; check_plugins "$top_srcdir")
[ -z "$violations" ] && exit 0
echo "$violations"
exit 1
