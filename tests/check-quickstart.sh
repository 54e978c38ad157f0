#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The quickstart refuses what it does not understand, with status 2 and a word about it, before it does anything.
quickstart=${top_srcdir:-.}/quickstart
command -v bash >/dev/null || { echo "skipped: there is no bash"; exit 77; }
status=0

# refused TEXT ARGUMENT...
refused()
{
    text=$1
    shift
    output=$(bash "$quickstart" "$@" 2>&1 </dev/null)
    result=$?
    case $result:$output in
    2:*"$text"*) ;;
    *) echo "quickstart $*: status $result instead of 2 with \"$text\":"; echo "$output"; status=1 ;;
    esac
}

refused "say train or check"
refused "unknown command 'trian'" trian
refused "no option '--worker'" train --worker 2
refused "--workers takes a number from 1 to 999, not '0'" train --workers 0
refused "--workers takes a number from 1 to 999, not 'two'" train --workers=two
refused "-n takes a number from 1 to 999, not '1000'" train -n 1000
refused "--servers takes a number from 0 to 999, not '-1'" train --servers -1
refused "--epochs takes a number from 1 to 999, not ''" train --epochs=
refused "--epochs needs a value" train --epochs
refused "cannot read the file '/nowhere/byteps.conf'" train --conf /nowhere/byteps.conf
refused "cannot read the file '/'" train --conf /
refused "check has no option '--workers'" check --workers 2

bash "$quickstart" --help </dev/null | grep -q -- --workers || { echo "--help does not tell of --workers"; status=1; }
exit $status
