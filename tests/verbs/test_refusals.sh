#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where there is no RDMA device, the transport says so, and the next one of the list is taken.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
    echo "skipped: this machine has an RDMA device"
    exit 77
fi
cat >"$work/list.conf" <<'EOF'
transports = { fast = { plugin = "verbs"; }; net = { plugin = "tcp"; }; local = { plugin = "ipc"; }; };
worker = { graph = ( { stage = "push_pull"; use = ["fast", "net"]; } ); };
EOF

byteps run -n 1 -s 1 --set transports.net.plugin=verbs -- true >"$work/log" 2>&1
if ! grep -q 'verbs: this host has no RDMA device' "$work/log"; then
    echo "a job without a device does not say so:"
    cat "$work/log"
    exit 1
fi
if ! byteps run -n 1 -s 1 --conf "$work/list.conf" -- true >"$work/log" 2>&1 ||
        ! grep -q "'fast' is not usable: .*no RDMA device" "$work/log" ||
        ! grep -q "using 'net'" "$work/log"; then
    echo "the list of preferences does not fall through visibly:"
    cat "$work/log"
    exit 1
fi
