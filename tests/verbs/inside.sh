#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tests of the transport over RDMA, on the devices of this machine. VERBS_TESTS may name some of them;
# then only those are run.
failed=0
# With a sanitizer, which makes emulated devices slower still, these suffice.
[ -z "${SANITIZER:-}" ] || VERBS_TESTS=${VERBS_TESTS:-frames job_2_1 killed}
build=${top_builddir:?} scripts=${top_srcdir:?}/tests/jobs/scripts
limit=5min # that a job may take
[ -z "$CHECK_VERBS_FULL" ] || limit=40min
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# VERSION: "DEVICE ADDRESS" of each device that has an address of this version of the Internet Protocol. It is
# a row of its table of GIDs, in hexadecimal.
addresses()
{
    for device in /sys/class/infiniband/*; do
        rows=$(cat "$device"/ports/1/gids/? 2>/dev/null)
        case $1 in
        ipv4)
            hex=$(echo "$rows" |
                sed -n 's/^[0:]*:ffff:\(..\)\(..\):\(..\)\(..\)$/0x\1 0x\2 0x\3 0x\4/p' | head -n 1)
            # The four numbers are meant to be split.
            # shellcheck disable=SC2086
            [ -z "$hex" ] || printf '%s %d.%d.%d.%d\n' "${device##*/}" $hex
            ;;
        ipv6)
            row=$(echo "$rows" | grep -v -e '^fe80' -e '^0000' | head -n 1)
            [ -z "$row" ] || echo "${device##*/} $row"
            ;;
        esac
    done
}

addresses ipv4 >"$work/ipv4"
addresses ipv6 >"$work/ipv6"
[ -s "$work/ipv4" ] || { echo "no RDMA device has an IPv4 address"; exit 1; }
host=$(head -n 1 "$work/ipv4" | cut -d ' ' -f 2)

# NAME COMMAND...: runs it, and looks whether it has left anything in the kernel.
check()
{
    name=$1
    shift
    case " $VERBS_TESTS " in
    "  " | *" $name "*) ;;
    *) return ;;
    esac
    before=$(objects)
    "$@" >"$work/log" 2>&1
    status=$?
    if [ "$status" = 77 ]; then
        echo "SKIP: $name: $(tail -n 1 "$work/log")"
    elif [ "$status" = 0 ] && [ "$(objects)" = "$before" ]; then
        echo "PASS: $name"
    else
        echo "FAIL: $name"
        cat "$work/log"
        echo "objects before: $before; after: $(objects)"
        failed=1
    fi
}

objects()
{
    rdma resource show 2>/dev/null | tr '\n' ' '
}

# shellcheck disable=SC2317
count_objects()
{
    objects | awk '{ for (i = 1; i < NF; i++) if ($i ~ /^[a-z_]+$/) n += $(i + 1) } END { print n + 0 }'
}

# Stands in for ssh: the command runs here, on a host of that name. Host h<i> has the i-th device, and DEVICES - 1
# more; where these do not suffice, hosts share them.
cat >"$work/ssh" <<'EOF'
#!/bin/sh
name=$1 rows=$(dirname "$0")/${FAMILY:-ipv4}
shift
row=$((${name#h} * ${DEVICES:-1} % $(wc -l <"$rows") + 1))
own=$(sed -n "$row,$((row + ${DEVICES:-1} - 1))p" "$rows")
export BYTEPS_SET="transports.net.device=$(echo "$own" | cut -d ' ' -f 1 | xargs)
transports.net.host=$(echo "$own" | cut -d ' ' -f 2 | xargs)"
exec unshare --uts sh -c "hostname $name && $*"
EOF
chmod +x "$work/ssh"

# HOSTS SERVERS [SETTING]...: a job over hosts, as in h0:2,h1:2, whose workers check every bit. What is
# between the processes of a host travels through shared memory. It is an argument of check.
# shellcheck disable=SC2317
job()
{
    hosts=$1 servers=$2
    shift 2
    marks=$(mktemp -d "$work/marks.XXXXXX")
    byteps run -H "$hosts" -s "$servers" -a "$host:0" -t "$limit" --ssh "$work/ssh" \
        --set transports.net.plugin=verbs "$@" -- "$build/tests/jobs/shapes" "$marks"
}

# Messages that found no receive buffer; only Soft-RoCE is asked.
# shellcheck disable=SC2317
refused_messages()
{
    cat /sys/class/infiniband/rxe*/ports/1/hw_counters/rcvd_rnr_err 2>/dev/null | xargs
}

# COMMAND...: there is a buffer for every message of it, as credits promise.
# shellcheck disable=SC2317
with_buffers()
{
    refused=$(refused_messages)
    "$@" || return 1
    echo "messages without a buffer before: $refused; after: $(refused_messages)"
    [ "$(refused_messages)" = "$refused" ]
}

# COMMAND...: with addresses of IPv6.
# shellcheck disable=SC2317
over_ipv6()
{
    [ -s "$work/ipv6" ] || { echo "no device has such an address"; return 77; }
    host=[$(head -n 1 "$work/ipv6" | cut -d ' ' -f 2)]
    export FAMILY=ipv6
    "$@"
    result=$?
    unset FAMILY
    host=$(head -n 1 "$work/ipv4" | cut -d ' ' -f 2)
    return "$result"
}

# A worker is killed while both push: the job ends, and says who.
# shellcheck disable=SC2317
killed()
{
    # The variables are for the shell of the worker.
    # shellcheck disable=SC2016
    GATES=$work byteps run -n 2 -s 1 -a "$host:0" -t "$limit" --set transports.net.plugin=verbs \
        --set worker.hierarchy=off --set server.local=false -- \
        sh -c 'echo $$ >>"$0/pids"; exec "$1" init loop:x:300000:never' "$work" \
        "$build/tests/fault/worker" >"$work/out" 2>&1 &
    until [ "$(grep -c 'x runs' "$work/out")" = 2 ]; do
        kill -0 $! 2>/dev/null || { cat "$work/out"; return 1; }
        sleep 0.1
    done
    kill -9 "$(head -n 1 "$work/pids")"
    ! wait $! && cat "$work/out" && grep -q 'was killed by SIGKILL' "$work/out" &&
        grep -q 'error: ' "$work/out"
}

# GATE ELEMENTS [SETTING]...: two workers on hosts of their own sum until the gate is open, and compare every
# element. The memory is that of bps_alloc.
# shellcheck disable=SC2317
sums()
{
    gate=$1 elements=$2
    shift 2
    GATES=$work byteps run -H h0:1,h1:1 -s 1 -a "$host:0" -t "$limit" --ssh "$work/ssh" \
        --set transports.net.plugin=verbs --set server.local=false "$@" -- \
        "$build/tests/fault/worker" init "loop:x:$elements:$gate:alloc" leave
}

# MEBIBYTES [SETTING]...: one tensor.
# shellcheck disable=SC2317
tensor()
{
    mebibytes=$1
    shift
    touch "$work/once"
    sums once $((mebibytes * 1024 * 1024 / 4)) "$@"
}

# Results are read straight into the tensors of both workers.
# shellcheck disable=SC2317
placed()
{
    tensor 4 --set log.level=info >"$work/out" 2>&1
    result=$?
    cat "$work/out"
    [ "$result" = 0 ] && grep -q "^.worker 0. .*bytes through 'net': .*placed [1-9]" "$work/out" &&
        grep -q "^.worker 1. .*bytes through 'net': .*placed [1-9]" "$work/out"
}

# GATE [SETTING]...: starts them; returns when both run.
# shellcheck disable=SC2317
sums_are_under_way()
{
    gate=$1
    shift
    sums "$gate" 300000 "$@" >"$work/out" 2>&1 &
    until [ "$(grep -c 'x runs' "$work/out")" = 2 ]; do
        kill -0 $! 2>/dev/null || { cat "$work/out"; return 1; }
        sleep 0.1
    done
}

# SHARE DELAY: the cable of the second device loses packets, and is long.
# shellcheck disable=SC2317
lose_packets()
{
    tc qdisc add dev eth1 root netem delay "$2" loss "$1" && tc qdisc add dev cable1 root netem delay "$2" loss "$1"
}

# shellcheck disable=SC2317
lose_no_packets()
{
    tc qdisc del dev eth1 root
    tc qdisc del dev cable1 root
}

# The cable of a host is pulled for less than the time of the retries: nobody notices.
# shellcheck disable=SC2317
pulled_for_a_moment()
{
    [ -d /sys/class/net/cable1 ] || { echo "there is no cable1"; return 77; }
    sums_are_under_way moment || return 1
    ip link set cable1 down
    sleep 1
    ip link set cable1 up
    touch "$work/moment"
    wait $!
    result=$?
    cat "$work/out"
    return "$result"
}

# The same for good: the job ends, and says whom it has lost. (7 retries are endless with Soft-RoCE.)
# shellcheck disable=SC2317
pulled()
{
    [ -d /sys/class/net/cable1 ] || { echo "there is no cable1"; return 77; }
    sums_are_under_way never --set cluster.peer_timeout=5min --set transports.net.retry_count=3 || return 1
    ip link set cable1 down
    ! wait $!
    result=$?
    ip link set cable1 up
    cat "$work/out"
    [ "$result" = 0 ] && grep -q 'error: .* was lost: .*retry' "$work/out"
}

# REASON RETRIES COMMAND...: hosts of two devices each, one of which is lost by the command while two hosts push. The
# job goes on over the others, for that reason.
# shellcheck disable=SC2317
goes_on()
{
    reason=$1 retries=$2
    shift 2
    [ -d /sys/class/net/cable3 ] || { echo "there is no cable3"; return 77; }
    export DEVICES=2
    rm -f "$work/devices"
    sums_are_under_way devices --set "transports.net.retry_count=$retries" --set cluster.peer_timeout=5min \
        --set cluster.colocated=none
    result=$?
    unset DEVICES
    [ "$result" = 0 ] && "$@" || return 1
    until grep -q "$reason.*; going on over other ways" "$work/out"; do
        kill -0 $! 2>/dev/null || { cat "$work/out"; return 1; }
        sleep 0.1
    done
    touch "$work/devices"
    wait $!
    result=$?
    cat "$work/out"
    return "$result"
}

# The second device of the host with the server is silent, which only retries find out.
# shellcheck disable=SC2317
one_of_two_devices_silent()
{
    goes_on 'no answer' 2 lose_packets 100% 0ms
    result=$?
    lose_no_packets
    return "$result"
}

# The port of a device of the other host is down. Its own connections leave it at once; retries would never end.
# shellcheck disable=SC2317
one_of_two_devices_lost()
{
    goes_on 'port 1 is down' 7 ip link set cable3 down
    result=$?
    ip link set cable3 up
    return "$result"
}

# The cable of a host loses a packet of a hundred, and is long.
# shellcheck disable=SC2317
lossy()
{
    [ -d /sys/class/net/cable1 ] || { echo "there is no cable1"; return 77; }
    lose_packets 1% 5ms || { echo "the kernel has no netem"; return 77; }
    tensor 1
    result=$?
    tc -s qdisc show | grep -A 1 netem
    lose_no_packets
    return "$result"
}

# Each role is killed in each phase of a job: the test of that by itself, over the first device.
# shellcheck disable=SC2317
kills()
{
    CLUSTER_TRANSPORT=verbs CLUSTER_ADDRESS=$host "${PYTHON:-python3}" \
        "${top_srcdir:?}/tests/run-python.py" "$top_srcdir/tests/fault/test_kills.py"
}

# CYCLE: waits until both workers have ended it.
# shellcheck disable=SC2317
both_have_ended()
{
    until [ "$(grep -c "cycle $1: " "$work/out")" = 2 ]; do
        kill -0 $! 2>/dev/null || { cat "$work/out"; return 1; }
        sleep 0.1
    done
}

# Workers that join and leave a hundred times: then the kernel holds no more for the job than after the tenth.
# shellcheck disable=SC2317
cycles()
{
    mkdir "$work/gates"
    GATES=$work/gates byteps run -n 2 -s 1 -a "$host:0" -t 10min --set transports.net.plugin=verbs \
        --set worker.hierarchy=off --set server.local=false -- \
        "$build/tests/fault/worker" cycles:100:5000:g >"$work/out" 2>&1 &
    both_have_ended 10 || return 1
    early=$(count_objects)
    touch "$work/gates/g.10"
    both_have_ended 100 || return 1
    tries=0
    until [ "$(count_objects)" -le "$early" ] || [ $((tries += 1)) -gt 300 ]; do
        sleep 0.1 # the server may learn last that the workers have left
    done
    late=$(count_objects)
    touch "$work/gates/g.100"
    wait $!
    result=$?
    cat "$work/out"
    echo "objects after 10 cycles: $early, after 100: $late"
    [ "$result" = 0 ] && [ "$late" -le "$early" ]
}

# Training gives the same weights on all workers, and those of one process.
# shellcheck disable=SC2317
training()
{
    "${PYTHON:-python3}" -c 'import torch' 2>/dev/null ||
        { echo "PyTorch is not installed for ${PYTHON:-python3}"; return 77; }
    byteps run -H h0:1,h1:1 -s 1 -a "$host:0" -t "$limit" --ssh "$work/ssh" \
        --set transports.net.plugin=verbs --set server.local=false --set cluster.rendezvous_timeout=30min -- \
        "${PYTHON:-python3}" "$scripts/torch_train.py" check_passes
}

# shellcheck disable=SC2317
needs_cuda()
{
    [ -f "$build/reducers/cuda/.libs/reducer_cuda.so" ] || { echo "there is no reducer cuda"; return 1; }
}

# HOSTS CHECK [SETTING]...: a job whose tensors lie on GPUs, which are the stand-ins of tests/gpu, as NCCL is. An
# empty CHECK is all of them. LD_PRELOAD may let the RDMA devices register the memory.
# shellcheck disable=SC2317
gpu_tensors()
{
    hosts=$1 what=$2 standins=$build/tests/gpu/standin
    shift 2
    needs_cuda || return 77
    "${PYTHON:-python3}" -c 'import numpy' 2>/dev/null ||
        { echo "numpy is not installed for ${PYTHON:-python3}"; return 77; }
    LD_LIBRARY_PATH=$standins/.libs:$standins/nccl/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
        byteps run -H "$hosts" -s 1 -a "$host:0" -t "$limit" --ssh "$work/ssh" \
        --set transports.net.plugin=verbs --set server.local=false --set worker.use=cuda --set log.level=debug \
        --set cluster.rendezvous_timeout=30min "$@" -- \
        "${PYTHON:-python3}" "$scripts/cuda_ops.py" ${what:+"$what"} >"$work/out" 2>&1
    result=$?
    cat "$work/out"
    return "$result"
}

# The same with RDMA devices that can.
# shellcheck disable=SC2317
direct()
{
    preloaded=$LD_PRELOAD
    export LD_PRELOAD="$preloaded $build/tests/verbs/.libs/libdma-buf.so"
    gpu_tensors "$@"
    result=$?
    export LD_PRELOAD="$preloaded"
    return "$result"
}

# What the configuration leads to, in words.
# shellcheck disable=SC2317
explained()
{
    needs_cuda || return 77
    LD_LIBRARY_PATH=$build/tests/gpu/standin/.libs byteps graph --explain --set transports.net.plugin=verbs \
        --set worker.use=cuda >"$work/out" 2>&1
    result=$?
    cat "$work/out"
    [ "$result" = 0 ] && grep -q 'others through an arena of 8192 KiB' "$work/out" &&
        grep -q 'in place   transport net reads and writes slices of 4097 bytes' "$work/out"
}

# Nothing passes the copies.
# shellcheck disable=SC2317
gpu_memory_direct()
{
    direct h0:1,h1:1 check_next_round_at_once && grep -q "bytes through 'net': .*in_place [1-9].*placed [1-9]" "$work/out" &&
        ! grep 'stage copy_to_[a-z]*: [1-9]' "$work/out"
}

# Slices that are too small to be announced are copied.
# shellcheck disable=SC2317
gpu_memory_direct_but_for_the_ends()
{
    direct h0:1,h1:1 check_many_at_once && grep -q "bytes through 'net': .*in_place [1-9].*placed [1-9]" "$work/out" &&
        grep -q 'stage copy_to_host: [1-9]' "$work/out" && grep -q 'stage copy_to_device: [1-9]' "$work/out"
}

# All operations, on memory that comes and goes.
# shellcheck disable=SC2317
gpu_memory_direct_in_all_operations()
{
    direct h0:1,h1:1 ""
}

# The sum of the GPUs of a host leaves from the leader's one, and the result goes there.
# shellcheck disable=SC2317
gpu_memory_direct_of_groups()
{
    direct h0:2,h1:2 check_next_round_at_once && grep -q "sum among themselves through NCCL" "$work/out" &&
        ! grep 'stage copy_to_[a-z]*: [1-9]' "$work/out"
}

# A worker is killed while the others' RDMA devices read and write GPUs: all end, and say so.
# shellcheck disable=SC2317
gpu_memory_direct_of_a_lost_worker()
{
    direct h0:1,h1:1,h2:1 lose_a_worker
    result=$?
    [ "$result" != 77 ] || return 77
    [ "$result" != 0 ] && [ "$(grep -c 'worker [01].*lost' "$work/out")" -ge 2 ]
}

# A device that cannot, as Soft-RoCE is by itself.
# shellcheck disable=SC2317
gpu_memory_copied()
{
    gpu_tensors h0:1,h1:1 check_next_round_at_once && grep -q 'copied to the host.*cannot register a dma-buf' "$work/out" &&
        grep -q 'stage copy_to_host: [1-9]' "$work/out"
}

check frames "$build/tests/verbs/test_verbs"
check job_2_1 with_buffers job h0:1,h1:1 1 --set server.local=false
check job_2_2 job h0:1,h1:1 2 --set server.local=false
check job_3_1 job h0:1,h1:1,h2:1 1 --set server.local=false
check job_over_ipv6 over_ipv6 job h0:1,h1:1 1 --set server.local=false
check job_of_two_on_each_host job h0:2,h1:2 2
check job_without_groups job h0:2,h1:2 2 --set worker.hierarchy=off --set server.local=false
check job_with_small_slices job h0:1,h1:1 1 --set server.local=false --set worker.slice='16 KiB'
check job_with_large_slices job h0:1,h1:1 1 --set server.local=false --set worker.slice='1 MiB'
check placed placed
check explained explained
check gpu_memory_direct gpu_memory_direct
check gpu_memory_direct_but_for_the_ends gpu_memory_direct_but_for_the_ends
check gpu_memory_direct_in_all_operations gpu_memory_direct_in_all_operations
check gpu_memory_direct_of_groups gpu_memory_direct_of_groups
check gpu_memory_direct_of_a_lost_worker gpu_memory_direct_of_a_lost_worker
check gpu_memory_copied gpu_memory_copied
check slices_of_16_mib tensor 32 --set worker.partition='32 MiB' --set worker.slice='16 MiB'
check killed killed
check cycles cycles
check pulled_for_a_moment pulled_for_a_moment
check pulled pulled
check lossy lossy
check one_of_two_devices_silent one_of_two_devices_silent
check one_of_two_devices_lost one_of_two_devices_lost
check one_of_two_devices_lost_over_ipv6 over_ipv6 one_of_two_devices_lost
if [ -n "$CHECK_VERBS_FULL" ]; then
    check tensor_of_256_mib tensor 256
    check tensor_of_1_gib tensor 1024
    check training training
    check kills kills
fi
exit $failed
