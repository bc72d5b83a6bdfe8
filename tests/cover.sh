#!/bin/sh
# Coverage per source file, per directory and of everything, lowest first: tests/cover.sh BUILD (a tree
# made with COV=1, whose tests have run).  Lines, and outcomes of branches that were taken at least once.
set -eu
build=$1
find "$build/src" -name '*.gcno' | while read -r notes; do
    gcov -b -n -o "$(dirname "$notes")" "$notes" 2>/dev/null
done | awk -F"[':% ]+" '
    /^File / { file = $2; next }
    file !~ /^src\// { next }
    /^Lines executed/ { seen[file]; lines[file] = $NF; hit[file] = $3 * $NF / 100 }
    /^Taken at least once/ { ways[file] = $NF; taken[file] = $5 * $NF / 100 }
    function row(name, hit, lines, taken, ways) {
        printf "%6.1f %% of %6d lines, %6.1f %% of %6d branches  %s\n", lines ? 100 * hit / lines : 100, lines,
            ways ? 100 * taken / ways : 100, ways, name
    }
    END {
        for (f in seen) {
            row(f, hit[f], lines[f], taken[f], ways[f])
            split(f, p, "/"); d = p[1] "/" p[2] "/"
            dh[d] += hit[f]; dl[d] += lines[f]; dt[d] += taken[f]; dw[d] += ways[f]
            h += hit[f]; l += lines[f]; t += taken[f]; w += ways[f]
        }
        for (d in dl)
            row(d, dh[d], dl[d], dt[d], dw[d])
        row("everything", h, l, t, w)
    }' | sort -n
