#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The kernels of the reducer cuda need no local memory on any architecture, and few enough registers, of the 65536 that
# a processor has, for its 2048 threads; or for 1536 where elements have one byte. What the assembler said of each is in
# kernels.usage.
usage=${top_builddir:?}/reducers/cuda/kernels.usage
[ -f "$usage" ] || { echo "skipped: no kernels were built, since configure has found no nvcc"; exit 77; }

# Prints what is wrong in the file $1, and on the last line for how many architectures and kernels it was looked at.
check()
{
    awk '
    /Compiling entry function/ { split($0, part, "'\''"); kernel = part[2] " for " part[4]; name[part[2]]; arch[part[4]] }
    / bytes stack frame/ {
        seen++
        if ($1 + 0 || $5 + 0 || $9 + 0) { print kernel ": " $0 }
    }
    / Used [0-9]+ registers/ {
        sub(/.* Used /, ""); used++
        most = kernel ~ /_([a-z]8|e[0-9]m[0-9])_/ ? 40 : 32
        if ($1 > most) { print kernel ": " $1 " registers, expected " most " at most" }
    }
    END {
        if (seen != length(name) * length(arch) || used != seen) { print "some kernels are missing" }
        print length(arch), length(name)
    }' "$1"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
    echo "ptxas info    : Compiling entry function 'planted' for 'sm_1'"
    echo "    8 bytes stack frame, 0 bytes spill stores, 4 bytes spill loads"
    echo "ptxas info    : Used 33 registers, used 0 barriers"
} >"$work/planted"
[ "$(check "$work/planted" | wc -l)" = 3 ] || { echo "the check does not see planted faults"; exit 1; }

found=$(check "$usage")
kernels=${found##* }
[ "$kernels" -ge 48 ] && [ "$(echo "$found" | wc -l)" = 1 ] && exit 0
echo "$found"
exit 1
