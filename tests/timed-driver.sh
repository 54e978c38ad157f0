#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a test by automake's driver, and adds to its result how many seconds that took:  timed-driver.sh DRIVER ARGUMENT...
begin=$(date +%s)
driver=$1
shift
sh "$driver" "$@"
status=$?
while [ $# -gt 1 ]; do
    case $1 in
    --trs-file) echo ":seconds: $(($(date +%s) - begin))" >>"$2" ;;
    --) break ;;
    esac
    shift
done
exit $status
