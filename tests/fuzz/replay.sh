#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs each fuzz target over the files of its corpus.
[ -n "$FUZZ_TARGETS" ] || { echo "skipped: no fuzz targets"; exit 77; }
status=0
for target in $FUZZ_TARGETS; do
    name=${target##*/fuzz_}
    "${top_builddir:?}/$target" -runs=0 "${top_srcdir:?}/tests/fuzz/corpus/$name" || status=1
done
exit $status
