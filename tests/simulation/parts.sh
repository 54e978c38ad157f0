#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# parts.sh SIMULATE SEED JOBS: plays so many jobs from this seed on, a part of them on each processor.
seed=$2 end=$(($2 + $3)) processors=$(nproc)
part=$((($3 + processors - 1) / processors))
pids='' status=0
while [ "$seed" -lt "$end" ]; do
    "$1" "$seed" $((end - seed < part ? end - seed : part)) &
    pids="$pids $!" seed=$((seed + part))
done
for pid in $pids; do
    wait "$pid" || status=1
done
exit $status
