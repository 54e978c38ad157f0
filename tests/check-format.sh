#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The C code is as clang-format leaves it, comments and documents have lines of at most 120 characters, but for tables.
# Planted faults prove that both are seen. Versions of clang-format differ in details, so that only one counts.
source=${top_srcdir:-.}
version=19
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

fail()
{
    echo "$*"
    status=1
}

# Prints the files of the source tree with these endings: no builds in it, nothing that a tool has made.
files()
{
    find "$source" \( -name .git -o -name '.venv*' -o -name build -o -name 'build-*' -o -name 'byteps-[0-9]*' \
        -o -name autom4te.cache -o -name build_info.h -o -name builtin_table.h -o -name config.h \) -prune \
        -o -type f \( "$@" \) -print
}

# Prints where a line of the files is too long.
long_lines()
{
    awk '{ line = $0; gsub(/[\200-\277]/, "", line) } line !~ /^ *[|]/ && length(line) > 120 { print FILENAME ":" FNR }' "$@"
}

files -name '*.[ch]' >"$work/code"
files -name '*.[ch]' -o -name '*.md' >"$work/all"
[ -s "$work/code" ] || fail "no C files found in $source"
found=$(while read -r file; do long_lines "$file"; done <"$work/all")
[ -z "$found" ] || fail "more than 120 characters: $found"
printf '/* %0121d */\n' 0 >"$work/planted.c"
[ -n "$(long_lines "$work/planted.c")" ] || fail "a planted line that is too long was not seen"

case $(clang-format --version 2>/dev/null) in
*" $version."*) ;;
*)
    [ $status -eq 0 ] || exit $status
    echo "skipped: there is no clang-format $version"
    exit 77
    ;;
esac
xargs clang-format --style="file:$source/.clang-format" --dry-run -Werror <"$work/code" || fail "clang-format"
printf 'int  main( void );\n' >"$work/planted.c"
! clang-format --style="file:$source/.clang-format" --dry-run -Werror "$work/planted.c" 2>/dev/null ||
    fail "clang-format did not see the planted fault"
exit $status
