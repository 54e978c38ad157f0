#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The quickstart refuses what it does not understand, with status 2 and a word about it, before it does anything. What
# it does otherwise is seen in a folder where all that it calls is a stand-in: nothing is installed, built or tested.
quickstart=${top_srcdir:-.}/quickstart
command -v bash >/dev/null || { echo "skipped: there is no bash"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

fail()
{
    echo "$*"
    status=1
}

# stand_in FILE: a program that does what is on standard input
stand_in()
{
    mkdir -p "$(dirname "$work/$1")"
    { echo '#!/bin/sh'; cat; } >"$work/$1"
    chmod +x "$work/$1"
}

# refused TEXT ARGUMENT...
refused()
{
    text=$1
    shift
    output=$(bash "$quickstart" "$@" 2>&1 </dev/null)
    result=$?
    case $result:$output in
    2:*"$text"*) ;;
    *) echo "quickstart $*: status $result instead of 2 with \"$text\":"; fail "$output" ;;
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

bash "$quickstart" --help </dev/null | grep -q -- --workers || fail "--help does not tell of --workers"

cp "$quickstart" "$work/quickstart"
touch "$work/Makefile.in" "$work/packages"
: | stand_in bin/make
: | stand_in .venv/bin/python
stand_in configure <<'END'
touch Makefile
echo "$PWD" >>../configured
printf '#!/bin/sh\n' >byteps-env
chmod +x byteps-env
END
# Asked for one package, it says that this one is installed; asked for all, what the test has put into a file.
stand_in bin/dpkg-query <<'END'
case $* in
*Package*) cat "${0%/*}/../packages" ;;
*) printf installed ;;
esac
END

# configured TIMES WHEN: trains, and looks how often build/ has been configured so far
configured()
{
    PATH=$work/bin:$PATH PYTHON=$work/.venv/bin/python bash "$work/quickstart" train >"$work/output" 2>&1 </dev/null ||
        fail "a training with stand-ins, $2: $(cat "$work/output")"
    times=$(grep -c '/build$' "$work/configured")
    [ "$times" = "$1" ] || fail "$2: configured $times times instead of $1"
}

configured 1 "in a fresh folder"
configured 1 "with nothing new"
echo "libibverbs-dev 44.0-2 installed" >"$work/packages"
configured 2 "with a new package"
configured 2 "with that package still there"
echo "libibverbs-dev 44.0-2 config-files" >"$work/packages"
configured 3 "with that package removed"
: | stand_in bin/nvcc
configured 4 "with a new nvcc"
exit $status
