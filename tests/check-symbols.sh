#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libbyteps exports exactly the functions of the public headers, and to the library of the scheduler what that calls. It
# needs no library of a vendor; a plugin exports one symbol. Nothing is linked to CUDA: it is opened where it is used.
failed=0

fail()
{
    echo "$*"
    failed=1
}

# Prints what the file $1 exports, or only what is of the version $2.
exported()
{
    $NM -D --defined-only "$1" | awk -v version="$2" '
        $2 != "A" { split($3, part, /@+/); if (version == "" || part[2] == version) print part[1] }' | sort
}

check_cuda()
{
    found=$($NM -D --undefined-only "$1" | awk '$2 ~ /^(cu|cuda|nccl)[A-Z]/ { print $2 }')
    [ -z "$found" ] || fail "$1 is linked to CUDA: $found"
}

library=${top_builddir:?}/.libs/libbyteps.so
declared=$(sed -n 's/^BPS_API [^;(]*[ *]\(bps_[a-z0-9_]*\)(.*/\1/p' "${top_srcdir:?}"/core/include/byteps/*.h | sort)
found=$(exported "$library" BYTEPS_0)
[ "$declared" = "$found" ] || fail "libbyteps.so does not export what the public headers declare. Declared:
$declared
Exported:
$found"

needed=$($NM -D --undefined-only "$top_builddir/core/scheduler/.libs/libbyteps_scheduler.so" |
    sed -n 's/.* \(bps_[a-z0-9_]*\)@BYTEPS_PRIVATE$/\1/p' | sort)
found=$(exported "$library" BYTEPS_PRIVATE)
[ "$needed" = "$found" ] || fail "libbyteps.so does not export what the scheduler needs. Needed:
$needed
Exported:
$found"

check_cuda "$library"

for needed in $(objdump -p "$library" | awk '$1 == "NEEDED" { print $2 }'); do
    case $needed in
    libc.so.*|libm.so.*|libdl.so.*|libpthread.so.*|libconfig.so.*|libcrypto.so.*|libhwloc.so.*|ld-linux*|libgcov*) ;;
    *) fail "libbyteps.so needs $needed" ;;
    esac
done

for dir in $(echo "$BYTEPS_PLUGIN_PATH" | tr : ' '); do
    for plugin in "$dir"/*.so; do
        case $plugin in
        */libbyteps_scheduler.so) expected=bps_scheduler_ops ;;
        */framework_python.so) expected=PyInit__bps ;;
        */framework_tensorflow.so) expected=byteps_tensorflow_attach ;;
        */framework_jax.so) expected=$(printf 'byteps_finish\nbyteps_jax_attach\nbyteps_start') ;;
        */framework_mxnet.so) expected=$(printf 'byteps_mxnet_attach\nbyteps_mxnet_pending\nbyteps_mxnet_push') ;;
        *) expected=bps_plugin_module ;;
        esac
        found=$(exported "$plugin")
        [ "$found" = "$expected" ] || fail "$plugin exports '$found', expected $expected alone"
        check_cuda "$plugin"
    done
done
exit $failed
