#!/bin/sh
# The checks of `make lint`, from the repository's root.  Each prints what is wrong and where, then
# one line; the last line is the count.  A check whose program is missing is skipped with a printed reason.
# Environment: CC, CPPFLAGS; LINT_TIDY=1 runs clang-tidy; FORMAT=strict fails on formatting.
set -u
export LC_ALL=C

cc=${CC:-cc}
here=tests/lint
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
skipped=0

headers=$(find include src -name '*.h' | sort)
sources=$(find src -name '*.c' | sort)
if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -co --exclude-standard | while read -r f; do [ -f "$f" ] && echo "$f"; done
else
    find . -type f ! -path './build/*' | sed 's|^\./||'
fi | sort >"$work/files"

check() { # TITLE COMMAND...: the command prints findings; none is a pass
    title=$1
    shift
    "$@" >"$work/found" 2>&1
    if [ -s "$work/found" ]; then
        failed=$((failed + 1))
        head -n 60 "$work/found" | sed 's/^/    /'
        echo "lint: $title: $(wc -l <"$work/found" | tr -d ' ') lines, FAILED"
    else
        passed=$((passed + 1))
        echo "lint: $title: ok"
    fi
}

skip() {
    skipped=$((skipped + 1))
    echo "lint: $1: skipped, $2"
}

# FILE LINE HEADER of every include; quoted headers keep their quotes.
# shellcheck disable=SC2086  # lists of file names without blanks, here and below
includes() {
    grep -nE '^[[:space:]]*#[[:space:]]*include' $headers $sources /dev/null |
        sed -nE 's/^([^:]*):([0-9]*):[^<"]*([<"][^>"]*)[>"].*/\1 \2 \3/p'
}

layers() {
    awk '
        { sub(/#.*/, "") }
        FNR == NR { if (NF) { known[$1] = 1; for (i = 2; i <= NF; i++) may[$1, ++n[$1]] = $i }; next }
        substr($3, 1, 1) != "\"" { next }
        {
            split($1, at, "/"); layer = at[2]; header = substr($3, 2)
            if (!(layer in known)) { print $1 ": layer " layer " is not in layers.txt"; next }
            if (index(header, "/") == 0 || index(header, layer "/") == 1) next
            for (i = 1; i <= n[layer]; i++)
                if (index(header, may[layer, i]) == 1) next
            print $1 ":" $2 ": " layer " may not include " header
        }' "$here/layers.txt" "$work/includes"
}

foreign() {
    while read -r file line header; do
        case $header in '<'*) header=${header#<} ;; *) continue ;; esac
        tr -s ' ' '\n' <"$here/libc.txt" | grep -qxF "$header" && continue
        verdict='is not in a table of tests/lint'
        # shellcheck disable=SC2254  # the tables hold patterns
        while read -r pattern allowed; do
            case $pattern in '#'* | '') continue ;; esac
            case $header in $pattern) ;; *) continue ;; esac
            verdict="belongs in $allowed"
            case $file in $allowed) verdict= && break ;; esac
        done <"$here/foreign.txt"
        [ -z "$verdict" ] || echo "$file:$line: <$header> $verdict"
    done <"$work/includes"
}

# A header in src/LAYER is private: only that layer and the tests include it.
private() {
    while read -r file line header; do
        case $header in '"'*/*) header=${header#'"'} ;; *) continue ;; esac
        [ -f "src/$header" ] || continue
        case $file in src/"${header%%/*}"/* | tests/*) ;; *) echo "$file:$line: $header is private to src/${header%%/*}" ;; esac
    done <"$work/includes"
}

# Each header compiles by itself, and twice.
alone() {
    for h in $headers; do
        case $h in
        include/*) probe=${h#include/} ;;
        *) probe=../$h ;;
        esac
        # shellcheck disable=SC2086
        printf '#include "%s"\n#include "%s"\nextern int probe;\n' "$probe" "$probe" |
            "$cc" -std=c11 -fopenmp-simd $CPPFLAGS -I"$(dirname "$h")" -Werror -fsyntax-only -x c - >"$work/cc" 2>&1 ||
            { echo "$h does not compile on its own"; head -n 5 "$work/cc"; }
    done
}

cycles() {
    sed -n 's|^\(include\|src\)/\([^ ]*\.h\) [0-9]* "\(.*\)|\2 \3|p' "$work/includes" | tsort 2>&1 >/dev/null | sed 's/^tsort: //'
}

banned() {
    for f in $sources $headers; do
        awk -f "$here/strip.awk" "$f" | awk -v file="$f" '
            FNR == NR { sub(/#.*/, ""); if (NF) { word[$1] = 1; where[$1] = $0; sub(/^[^ ]+/, "", where[$1]) }; next }
            {
                rest = $0
                while (match(rest, /[A-Za-z_][A-Za-z0-9_]*[ ]*\(/)) {
                    name = substr(rest, RSTART, RLENGTH - 1); sub(/ +$/, "", name)
                    before = RSTART > 1 ? substr(rest, RSTART - 1, 1) : ""
                    if (name in word && before != "." && before != ">") {
                        n = split(where[name], prefix, " "); ok = 0
                        for (i = 1; i <= n; i++) if (index(file, prefix[i]) == 1) ok = 1
                        if (!ok) print file ":" FNR ": " name " is banned here"
                    }
                    rest = substr(rest, RSTART + RLENGTH)
                }
            }' "$here/banned.txt" -
    done
}

# Opens that may wait for a FIFO, outside of the files that opens.txt names with their reason; and rows of it for
# files that open nothing.
opens() {
    for f in $sources $headers; do
        awk -f "$here/strip.awk" "$f" | awk -v file="$f" '
            /(^|[^A-Za-z0-9_.>])(open|openat|fopen|freopen|creat|fs_open)[ ]*\(/ || /(fs_ops_get\(\)|ops)->open[ ]*\([^)]*O_/ ||
            /fs_ops_get\(\)->open[ ]*\(/ { print file ":" FNR }'
    done >"$work/opens"
    awk -F: '
        FNR == NR { sub(/#.*/, ""); n = split($0, w, " "); if (n == 1) print w[1] ": no reason in opens.txt"
                    if (n) row[w[1]] = 1; next }
        { opens[$1] = 1; if (!($1 in row)) print $0 ": opens a file without fs_open_read or fs_open_write (tests/lint/opens.txt)" }
        END { for (f in row) if (!(f in opens)) print f ": is in opens.txt and opens nothing" }' "$here/opens.txt" "$work/opens"
}

words() {
    # Whole words that mark unfinished work, and paths that exist on one machine only.
    grep -v -e '^tests/lint/' -e '^tests/fuzz/corpus/' -e '^tests/golden/data/' -e '\.screen$' "$work/files" |
        tr '\n' '\0' | xargs -0 grep -nIE \
        -e '(^|[^A-Za-z0-9_])(TODO|FIXME|XXX|HACK)([^A-Za-z0-9_]|$)' \
        -e '(^|[^A-Za-z0-9_.$}/])/(home|root|Users|work)/[A-Za-z0-9_.-]' /dev/null
}

# Phrases of dialect.txt in what users read: the pages, and string literals of the program.
dialect() {
    sed -e '/^#/d' -e 's/\t.*//' "$here/dialect.txt" >"$work/phrases"
    # shellcheck disable=SC2086
    awk '
        { line = $0; text = "" }
        line ~ /^[[:space:]]*(\/\*|\*|#)/ { next }
        {
            while (match(line, /"([^"\\]|\\.)*"/)) {
                text = text " " substr(line, RSTART + 1, RLENGTH - 2)
                line = substr(line, RSTART + RLENGTH)
            }
            if (text != "") print FILENAME ":" FNR ":" text
        }' $sources | grep -E -f "$work/phrases"
    grep -nE -f "$work/phrases" README.md data/reference/*.md tests/bench/*.md exports/README.md /dev/null
}

blanks() {
    grep -E '\.(c|h|sh|py|awk|yaml|theme|md|txt)$|^Makefile$|^\.ci/' "$work/files" |
        grep -v -e '^tests/fuzz/corpus/' -e '^tests/golden/' -e '^tests/screens/' -e '^data/' | tr '\n' '\0' |
        xargs -0 grep -nIE -e '[[:space:]]+$' -e "$(printf '\r')" /dev/null |
        sed -E 's/^([^:]*:[0-9]*):.*/\1: blanks end the line/'
}

long_files() { # a listing, not a verdict
    # shellcheck disable=SC2086
    wc -l $sources $headers /dev/null | awk '$2 != "total" && $1 > 600 { printf "%4d  %s\n", $1, $2 }' |
        sort -rn >"$work/long"
    [ ! -s "$work/long" ] && return 0
    echo "lint: $(wc -l <"$work/long" | tr -d ' ') files are longer than 600 lines:"
    head -n 15 "$work/long" | sed 's/^/    /'
}

long_functions() { # a listing too
    # shellcheck disable=SC2086
    awk '
        FNR == 1 { start = 0 }
        /^[A-Za-z_].*\(/ { name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name) }
        /^\{/ { start = FNR }
        /^\}/ && start { if (FNR - start - 1 > 60) printf "%4d  %s %s\n", FNR - start - 1, FILENAME, name; start = 0 }
    ' $sources /dev/null | sort -rn >"$work/long"
    [ ! -s "$work/long" ] && return 0
    echo "lint: $(wc -l <"$work/long" | tr -d ' ') functions are longer than 60 lines:"
    head -n 15 "$work/long" | sed 's/^/    /'
}

wide_lines() { # a listing too
    # shellcheck disable=SC2086
    awk 'length > 100 { n[FILENAME]++ } END { for (f in n) print n[f], f }' $sources $headers /dev/null |
        sort -rn >"$work/wide"
    [ ! -s "$work/wide" ] && return 0
    echo "lint: $(awk '{ s += $1 } END { print s }' "$work/wide") lines are wider than 100 columns, most in" \
        "$(head -n 3 "$work/wide" | cut -d' ' -f2 | tr '\n' ' ')"
}

clang_warnings() {
    # shellcheck disable=SC2086
    printf '%s\n' $sources | grep -v -x src/base/ranks_mpi.c | # needs mpi.h: make MPI=1 WERROR=1 CC=clang
        xargs -n 8 -P 2 clang -std=c11 -fopenmp-simd $CPPFLAGS -fsyntax-only 2>&1 |
        grep -E '(warning|error): ' | sort -u
}

format() { # prints the files that clang-format would change
    # shellcheck disable=SC2086
    for f in $sources $headers; do
        clang-format "$f" 2>/dev/null | cmp -s - "$f" || echo "$f"
    done
}

tidy() {
    # shellcheck disable=SC2086
    for f in $sources; do
        clang-tidy --quiet "$f" -- -std=c11 $CPPFLAGS 2>/dev/null | grep -E '(warning|error):'
    done
}

includes >"$work/includes"
check 'layers' layers
check 'private headers' private
check 'third-party headers' foreign
check 'headers compile alone' alone
check 'no include cycle' cycles
check 'banned functions' banned
check 'opens' opens
check 'words and paths' words
check 'plain words' dialect
check 'blanks' blanks
if command -v clang >/dev/null 2>&1; then
    check 'clang warnings' clang_warnings
else
    skip 'clang warnings' 'no clang'
fi
if ! command -v clang-format >/dev/null 2>&1; then
    skip 'format' 'no clang-format'
elif [ "${FORMAT:-}" = strict ]; then
    check 'format' format
else
    echo "lint: format: $(format | wc -l | tr -d ' ') of $(echo "$sources $headers" | wc -w | tr -d ' ') files differ (FORMAT=strict lists them)"
fi
if [ "${LINT_TIDY:-}" = 1 ]; then
    if command -v clang-tidy >/dev/null 2>&1; then
        check 'clang-tidy' tidy
    else
        skip 'clang-tidy' 'no clang-tidy'
    fi
fi
long_files
long_functions
wide_lines
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
