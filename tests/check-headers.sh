#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, as C99 and as C++, with all warnings as errors.
set -e
dir=${top_srcdir:?}/core/include
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cxx=yes
command -v "${CXX:-c++}" >/dev/null || { echo "SKIP: c++: there is no C++ compiler"; cxx=no; }

for path in "$dir"/byteps/*.h; do
    header=${path##*/}
    printf '#include <byteps/%s>\n#include <byteps/%s>\nint main(void) { return 0; }\n' "$header" "$header" >"$work/alone.c"
    cp "$work/alone.c" "$work/alone.cc"
    echo "$header as C99"
    $CC -std=c99 -pedantic -Wall -Wextra -Wshadow -Werror -I"$dir" -fsyntax-only "$work/alone.c"
    if [ $cxx = yes ]; then
        echo "$header as C++"
        "${CXX:-c++}" -std=c++11 -Wall -Wextra -Werror -I"$dir" -fsyntax-only "$work/alone.cc"
    fi
done
