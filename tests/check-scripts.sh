#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Nothing to complain about in the shell scripts (shellcheck) and in the Python files (ruff). Planted faults prove
# that each of them looks. Skipped where neither is installed.
source=${top_srcdir:-.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
checked=no

fail()
{
    echo "$*"
    status=1
}

# Prints the shell scripts of the source tree, and what shells read that says so: no builds in it, no templates, nothing that a tool has made.
shell_scripts()
{
    find "$source" \( -name .git -o -name '.venv*' -o -name build -o -name 'build-*' -o -name 'byteps-[0-9]*' \
        -o -name autom4te.cache -o -name .libs -o -name byteps-env -o -name '*.in' \) -prune \
        -o -type f -size -200k -print |
    while read -r file; do
        case $(head -n 1 "$file" | tr -d '\0') in
        '# SPDX'*) ! head -n 6 "$file" | grep -q '^# shellcheck shell=' || echo "$file" ;;
        '#!'*[/\ ]sh | '#!'*[/\ ]bash) head -n 6 "$file" | grep -q 'Generated ' || echo "$file" ;;
        esac
    done
}

if ! command -v shellcheck >/dev/null; then
    echo "SKIP: shellcheck: it is not installed"
else
    checked=yes
    shell_scripts >"$work/scripts"
    [ -s "$work/scripts" ] || fail "no shell scripts found in $source"
    while read -r file; do
        shellcheck "$file" || fail "shellcheck: $file"
    done <"$work/scripts"
    # shellcheck disable=SC2016
    printf '#!/bin/sh\nrm $1\n' >"$work/planted.sh"
    ! shellcheck "$work/planted.sh" >/dev/null || fail "shellcheck did not see the planted fault"
fi

if ! command -v ruff >/dev/null; then
    echo "SKIP: ruff: it is not installed"
else
    checked=yes
    ruff check --no-cache --config "$source/ruff.toml" \
        "$source/examples" "$source/frameworks" "$source/tests" || fail "ruff"
    printf 'import os\n' >"$work/planted.py"
    ! ruff check --no-cache --config "$source/ruff.toml" -q "$work/planted.py" >/dev/null ||
        fail "ruff did not see the planted fault"
fi

[ $checked = yes ] || exit 77
exit $status
