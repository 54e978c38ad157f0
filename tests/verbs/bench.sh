#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Frames of the transport beside the plain RDMA writes of perftest, on the devices of this machine: in each
# round first one, then the other, so that both find the same machine.
bench=${top_builddir:?}/tests/verbs/bench_verbs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v ib_write_bw >/dev/null || { echo "skipped: there is no perftest here (ib_write_bw)"; exit 77; }

# The first device receives, the last one sends; they may be the same. Of the rows of the table of GIDs
# perftest needs that with an IPv4 address.
set -- /sys/class/infiniband/*
receiver=$(basename "$1")
shift $(($# - 1))
sender=$(basename "$1")
row=$(grep -l '^0000:0000:0000:0000:0000:ffff' /sys/class/infiniband/"$receiver"/ports/1/gids/* | head -n 1)
[ -n "$row" ] || { echo "$receiver has no IPv4 address"; exit 1; }
row=$(basename "$row")

# TOOL BYTES COUNT COLUMN: what perftest says of writes of that size, in its column.
perftest()
{
    "$1" -d "$receiver" -x "$row" -s "$2" -n "$3" -F >"$work/server" 2>&1 &
    until "$1" -d "$sender" -x "$row" -s "$2" -n "$3" -F localhost >"$work/client" 2>&1; do
        kill -0 $! 2>/dev/null || { cat "$work/server" "$work/client" >&2; return 1; }
        sleep 0.1
    done
    wait $!
    awk -v bytes="$2" -v column="$4" '$1 == bytes { print $column }' "$work/client"
}

# WHAT PLAIN OURS COST: a line of the table, with the ratio of the two; perftest may have failed.
line()
{
    awk -v what="$1" -v plain="$2" -v ours="$3" -v cost="$4" 'BEGIN {
        ratio = plain > 0 ? sprintf("%.2f", ours / plain) : "-"
        printf "%-14s %9.2f %9.2f %6s  %s\n", what, plain, ours, ratio, cost
    }'
}

printf '%-14s %9s %9s %6s\n' "" perftest transport ratio
for _ in 1 2 3; do
    for bytes in 65536 262144 1048576 4194304; do
        count=$((33554432 / bytes)) # perftest wants at least 5
        plain=$(perftest ib_write_bw $bytes $count 4) # MiB/s
        "$bench" bandwidth $bytes $count >"$work/ours" || exit 1
        ours=$(awk '{ print $1 / 1.048576 }' "$work/ours")
        line "$((bytes / 1024)) KiB, MiB/s" "$plain" "$ours" "$(cut -d, -f2 "$work/ours")"
    done
    plain=$(perftest ib_write_lat 4096 200 5) # the median, us
    "$bench" latency 4096 200 >"$work/ours" || exit 1
    line "4 KiB, us" "$plain" "$(cut -d' ' -f1 "$work/ours")" "$(cut -d, -f2 "$work/ours")"
done

# FRAMES: the system calls of both processes, by name.
calls()
{
    strace -f -c -U name,calls -o "$work/calls" "$bench" bandwidth 262144 "$1" >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; return 1; }
    awk '$2 ~ /^[0-9]+$/ && $1 != "total"' "$work/calls"
}

# What 16 MiB more take, so that the beginning and the end do not count.
if command -v strace >/dev/null; then
    calls 64 >"$work/few" && calls 128 >"$work/more" || exit 1
    printf '256 KiB, system calls for 1 MiB:'
    awk 'NR == FNR { few[$1] = $2; next }
        $2 > few[$1] { printf " %s %.1f", $1, ($2 - few[$1]) / 16 }
        END { print "" }' "$work/few" "$work/more"
fi
