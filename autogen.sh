#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes configure and the Makefile templates from their sources. Needs autoconf, automake, libtool and pkg-config.
set -e

cd "$(dirname "$0")"
for tool in autoreconf automake libtoolize pkg-config; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "autogen.sh: $tool not found; on Debian: apt install autoconf automake libtool pkg-config" >&2
        exit 1
    fi
done
exec autoreconf --install --warnings=all "$@"
