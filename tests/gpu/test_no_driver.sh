#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where the driver of CUDA is not there or does not start, the reducer says so and the next one of the list is taken.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
reducers='reducers = { gpu = { plugin = "cuda"; }; sum = { plugin = "cpu"; }; };'
echo "$reducers worker = { use = [\"gpu\", \"sum\"]; };" >"$work/list.conf"
echo "$reducers worker = { use = \"gpu\"; };" >"$work/alone.conf"

# expect REASON [VARIABLE=VALUE]...
expect()
{
    reason=$1
    shift
    if ! env "$@" byteps run -n 1 -s 1 --conf "$work/list.conf" -- "${top_builddir:?}/examples/push_pull" \
            >"$work/log" 2>&1 || ! grep -q "'gpu' is not usable: .*$reason" "$work/log" ||
            ! grep -q "using 'sum'" "$work/log"; then
        echo "the list of preferences does not fall through with '$reason':"
        cat "$work/log"
        exit 1
    fi
    if env "$@" byteps run -n 1 -s 1 --conf "$work/alone.conf" -- "$top_builddir/examples/push_pull" \
            >"$work/log" 2>&1 || ! grep -q "$reason" "$work/log"; then
        echo "a job that wants the GPU alone does not say '$reason':"
        cat "$work/log"
        exit 1
    fi
}

standin=$top_builddir/tests/gpu/standin/.libs
expect 'it finds no device' LD_LIBRARY_PATH="$standin" STANDIN_INIT=100
if ! /sbin/ldconfig -p | grep -q -F libcuda.so.1; then
    expect 'libcuda.so.1 was not found; install' LD_LIBRARY_PATH=
fi
