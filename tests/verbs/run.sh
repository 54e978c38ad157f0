#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of the transport over RDMA, or another script of this folder, where there is a device: here,
# or by the command in VERBS_VM.
folder=$(cd "${top_srcdir:?}" && pwd)/tests/verbs
inside=$folder/${1:-inside.sh}
if [ ! -f "${top_builddir:?}/tests/verbs/test_verbs" ]; then
    echo "skipped: verbs or the unit tests were left out of this build; configure says why"
    exit 77
fi
if [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
    exec sh "$inside"
fi
size='--timeout 3600'
[ -z "$CHECK_VERBS_FULL" ] || size='--timeout 14400 --memory 6G'
# The words are meant to be split.
# shellcheck disable=SC2086
exec ${VERBS_VM:-bash "$folder/vm" $size --} sh -c "cd '$PWD' && exec ./byteps-env sh '$inside'"
