#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Random jobs with any trouble, and with an allocation that fails in a worker, or elsewhere; others with SEED=n. What
# goes wrong is printed with the seed that repeats it. Errors that are planted into error feedback, views, devices,
# results of lost servers and survivors are found. With a sanitizer, which sees in each job what these do not, a part of
# them is enough.
set -e
simulate="${top_builddir:?}/tests/simulation/simulate"
many=300 few=75
[ -z "$SANITIZER" ] || many=120 few=30
"$simulate" "${SEED:-1}" $many
"$simulate" "${SEED:-1}" $few 5
"$simulate" "${SEED:-1}" $few 11
"$simulate" 100674 1 # saves what coding has left after a push of another type that has failed
"$simulate" 300407 1 10 # a stage behind the network fails, in a host of several workers: for all,
"$simulate" 405045 1 10 # and where another host has the result
"$simulate" "${SEED:-1}" $few 14 # a device fails
"$simulate" "${SEED:-1}" $few 15 # the scheduler is killed, and another one takes its place,
"$simulate" 359 1 15 # also while a server is left that the job needs no more
"$simulate" "${SEED:-1}" $few 16 # members are lost, and the workers that are left reform,
"$simulate" 59 1 16 # also one of those that are about to begin, while a server has yet to say where it is
"$simulate" "${SEED:-1}" $few 17 # rounds end without the slowest workers
"$simulate" "${SEED:-1}" $few 18 # a server comes, and it or others may be lost,
"$simulate" 1986 2 18 # also one of which not all workers had heard when the scheduler was lost
"$simulate" 14 1 # tensors that stay on a device change their sizes,
"$simulate" 207 1 # and one that the devices of a host have summed before
"$simulate" 3009 1 # tensors have moved just as a worker has given up
"$simulate" 693 1 # shards are taken away while a call without a name waits for its device
[ -z "$SANITIZER" ] || exit 0
if ! "$simulate" -p view 10 10 0 | grep -Eq "it does not go on|an operation failed for no reason"; then
    echo "test_simulation.sh: workers that disagree about a view were planted, and not found"
    exit 1
fi
if ! "$simulate" -p final 1 100 4 | grep -Eq "a result is wrong|workers have different results"; then
    echo "test_simulation.sh: results of a lost server that differ were planted, and not found"
    exit 1
fi
if ! "$simulate" -p hasty 1 20 16 | grep -q "workers do not agree about an operation"; then
    echo "test_simulation.sh: a round that fails before all have come was planted, and not found"
    exit 1
fi
for plant in "early 61" "order 101" "divisor 201"; do # behind the seeds that find nothing
    # shellcheck disable=SC2086
    if ! "$simulate" -p $plant 300 0 | grep -Eq "a result is wrong|have different results|were given different steps"; then
        echo "test_simulation.sh: the error '$plant' was planted, and not found"
        exit 1
    fi
done
for plant in "twice 61" "never 61" "failed 61" "untold 91" "infinite 61" "server 61" "ratio 61" "size 201"; do
    # shellcheck disable=SC2086
    if ! "$simulate" -p $plant 200 13 | grep -Eq "error feedback is lost|a result is wrong"; then
        echo "test_simulation.sh: the error '$plant' was planted, and not found"
        exit 1
    fi
done
