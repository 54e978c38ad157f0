#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, as C99 and as C++, with all warnings as errors; so do the notes,
# the entry and the module of a plugin.
set -e
dir=${top_srcdir:?}/core/include
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cxx=yes
command -v "${CXX:-c++}" >/dev/null || { echo "SKIP: c++: there is no C++ compiler"; cxx=no; }

compile_cxx() {
    [ $cxx = no ] || "${CXX:-c++}" -std=c++11 -Wall -Wextra -Wshadow -Werror -I"$dir" -fsyntax-only "$1"
}

for path in "$dir"/byteps/*.h; do
    header=${path##*/}
    printf '#include <byteps/%s>\n#include <byteps/%s>\nint main(void) { return 0; }\n' "$header" "$header" >"$work/alone.c"
    cp "$work/alone.c" "$work/alone.cc"
    echo "$header as C99"
    $CC -std=c99 -pedantic -Wall -Wextra -Wshadow -Werror -I"$dir" -fsyntax-only "$work/alone.c"
    echo "$header as C++"
    compile_cxx "$work/alone.cc"
done

cat >"$work/notes.c" <<'END'
#include <byteps/framework.h>
#include <byteps/launcher.h>
#include <byteps/stage.h>
BPS_PLUGIN_NOTE(BPS_KIND_STAGE, "one", "1.0"); BPS_PLUGIN_NOTE(BPS_KIND_REDUCER, "other", "1.0");
BPS_FRAMEWORK_NOTE("torch", "2.0"); BPS_LAUNCHER_NOTE("WHERE");
const struct bps_module *BPS_PLUGIN_ENTRY(void) { return NULL; }
END
cp "$work/notes.c" "$work/notes.cc"
echo "notes and an entry"
$CC -std=c99 -Wall -Wextra -Wshadow -Werror -I"$dir" -fsyntax-only "$work/notes.c"
compile_cxx "$work/notes.cc"

cat >"$work/module.c" <<'END'
#include <byteps/stage.h>
static const struct bps_stage_ops ops = {.size = sizeof(ops)};
BPS_PLUGIN_MODULE(BPS_KIND_STAGE, "one", "1.0", "Apache-2.0", .summary = "nothing", .ops = &ops);
END
echo "a module as C99"
$CC -std=c99 -Wall -Wextra -Wshadow -Werror -I"$dir" -fsyntax-only "$work/module.c"

# Rows of options, for as many standards as the compilers have; a field of a wrong type does not compile.
options() {
    cat <<END
#include <byteps/stage.h>
struct options {
    bool b; int64_t i; uint64_t s, t; double d; const char *text; uint32_t c; struct bps_list l;
    int narrow; float f; char *own;
};
extern const struct bps_option rows[];
const struct bps_option rows[] = {
$1
    {NULL, 0, 0, 0, NULL, NULL, NULL},
};
END
}
row() {
    echo "BPS_OPTION(struct options, $1, $2, BPS_OPT_AGREE, \"\", NULL, \"\"),"
}
right="$(row b BOOL) $(row i INT) $(row s SIZE) $(row t TIME) $(row d DOUBLE) $(row text STRING) $(row c CHOICE)
$(row l LIST)"
options "$right" >"$work/options.c"
cp "$work/options.c" "$work/options.cc"
compile_options() {
    "$@" -Wpedantic -Wall -Wextra -Wshadow -Werror -I"$dir" -fsyntax-only
}
for standard in c99 c11 c17 c2x; do
    echo "options as $standard"
    # shellcheck disable=SC2086
    compile_options $CC -std=$standard "$work/options.c"
done
for standard in c++11 c++14 c++17 c++20; do
    [ $cxx = no ] || compile_options "${CXX:-c++}" -std=$standard "$work/options.cc"
done
for wrong in "i SIZE" "s INT" "narrow INT" "narrow CHOICE" "c BOOL" "f DOUBLE" "own STRING" "b LIST" "l INT"; do
    echo "wrong: $wrong"
    # shellcheck disable=SC2086
    options "$(row $wrong)" >"$work/options.c"
    cp "$work/options.c" "$work/options.cc"
    # shellcheck disable=SC2086
    ! $CC -std=c11 -I"$dir" -fsyntax-only "$work/options.c" 2>/dev/null || exit 1
    [ $cxx = no ] || ! "${CXX:-c++}" -std=c++11 -I"$dir" -fsyntax-only "$work/options.cc" 2>/dev/null || exit 1
done
