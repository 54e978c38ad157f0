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
refused "--framework takes one of pytorch tensorflow jax mxnet, not 'caffe'" train --framework caffe
refused "cannot read the file '/nowhere/byteps.conf'" train --conf /nowhere/byteps.conf
refused "cannot read the file '/'" train --conf /
compressors=$(find "${quickstart%/*}/compressors" -mindepth 2 -name configure.m4 | sed 's|/[^/]*$||; s|.*/||' |
    LC_ALL=C sort | tr '\n' ' ')
case $compressors in
*"onebit randomk topk"*) ;;
*) fail "these are all compressors: $compressors" ;;
esac
for name in nosuch util one 'onebit randomk' ''; do
    refused "--compress takes one of ${compressors% }, not '$name'" train "--compress=$name"
done
refused "check has no option '--workers'" check --workers 2
python=$PYTHON
export PYTHON=/nowhere/python3
refused "PYTHON names no Python: '/nowhere/python3'" train
PYTHON=$python

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

# Tests of every kind: logs as automake leaves them, of which that of the Python file is made by the true run-python.py.
mkdir -p "$work/build/tests" "$work/tests"
cat >"$work/build/tests/unit.made" <<'END'
100%: Checks: 12, Failures: 0, Errors: 0
PASS tests/unit (exit status: 0)
END
cat >"$work/build/tests/half.made" <<'END'
50%: Checks: 4, Failures: 1, Errors: 1
FAIL tests/half (exit status: 1)
END
cat >"$work/build/tests/crashed.made" <<'END'
FAIL tests/crashed.sh (exit status: 139)
END
cat >"$work/build/tests/whole.made" <<'END'
words of all kinds
skipped: there is no moon
SKIP tests/whole.sh (exit status: 77)
END
cat >"$work/build/tests/part.made" <<'END'
SKIP: night: there is no moon
PASS tests/part.sh (exit status: 0)
END
cat >"$work/test_parts.py" <<'END'
import unittest


class Parts(unittest.TestCase):
    def test_one(self):
        pass

    @unittest.skip("why\nnot")
    def test_other(self):
        pass

    def test_some(self):
        for number in 1, 2:
            with self.subTest(number=number):
                if number == 2:
                    self.skipTest("odd ones only")


class Whole(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise unittest.SkipTest("not today")

    def test_one(self):
        pass
END
run_python=${top_srcdir:-.}/tests/run-python.py
[ -n "$PYTHON" ] || { echo "SKIP: counts: no Python was found by configure"; exit $status; }
"$PYTHON" "$run_python" "$work/test_parts.py" >"$work/build/tests/parts.made" || fail "run-python.py: status $?"
echo "PASS tests/parts.py (exit status: 0)" >>"$work/build/tests/parts.made"
stand_in bin/make <<'END'
case $* in
*" check-quick")
    for log in build/tests/*.made; do
        cp "$log" "${log%.made}.log"
    done
    touch build/test-suite.log
    ;;
esac
END
echo "PASS tests/gone (exit status: 0)" >"$work/build/tests/gone.log"

# checked STATUS TEXT: runs the tests as the continuous integration does; the status and a line of the output must be so
checked()
{
    CI=true PATH=$work/bin:$PATH PYTHON=$work/.venv/bin/python \
        bash "$work/quickstart" check --quick >"$work/output" 2>&1 </dev/null
    result=$?
    [ $result = "$1" ] || fail "a check with stand-ins: status $result instead of $1"
    shift
    for text; do
        grep -q -x -F -- "$text" "$work/output" || fail "a check with stand-ins does not say: $text"
    done
    [ $status = 0 ] || cat "$work/output"
}

echo "# none" >"$work/tests/expected-skips"
checked 1 "18 passed, 3 failed, 5 skipped, 5 of them unexpectedly" \
    "  build/tests/whole.sh: there is no moon (not in tests/expected-skips)" \
    "  build/tests/part.sh:night: there is no moon (not in tests/expected-skips)" \
    "  build/tests/parts.py:Parts.test_other: why not (not in tests/expected-skips)" \
    "  build/tests/parts.py:Parts.test_some: odd ones only (not in tests/expected-skips)" \
    "  build/tests/parts.py:Whole: not today (not in tests/expected-skips)"
rm "$work"/build/tests/half.* "$work"/build/tests/crashed.*
checked 1 "  build/tests/whole.sh: there is no moon (not in tests/expected-skips)"
printf '%s\n' "build/tests/whole.sh  no moon" "build/tests/pa*  why" >"$work/tests/expected-skips"
checked 0 "  build/tests/whole.sh: there is no moon"
exit $status
