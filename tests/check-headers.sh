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
