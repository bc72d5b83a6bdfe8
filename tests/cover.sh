#!/bin/sh
# Line coverage per source file, lowest first: tests/cover.sh BUILD (a tree made with COV=1).
set -eu
build=$1
find "$build/src" -name '*.gcno' | while read -r notes; do
    gcov -n -o "$(dirname "$notes")" "$notes" 2>/dev/null
done | awk -F"[':% ]+" '
    /^File / { file = $2 }
    /^Lines executed/ && file ~ /^src\// { share[file] = $3; lines[file] = $NF; file = "" }
    END {
        for (f in share) {
            printf "%6.1f %% of %5d  %s\n", share[f], lines[f], f
            hit += share[f] * lines[f]; all += lines[f]
        }
        if (all)
            printf "%6.1f %% of %5d  everything\n", hit / all, all
    }' | sort -n
