#!/bin/sh
# README.md and the reference: generated pages are up to date and links exist; test_readme_commands.py runs the commands.
set -u
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL $1"; }

if sh tests/docs.sh "$DEPTHSCOPE" --check; then ok; else bad "generated pages are out of date: make docs"; fi
for page in README.md data/reference/*.md tests/bench/*.md exports/README.md; do
    for link in $(grep -o '](\([^)h#][^)]*\))' "$page" | sed 's/^](//; s/)$//'); do
        target=$(dirname "$page")/${link%%#*}
        if [ ! -e "$target" ]; then
            bad "$page links to $link, which does not exist"
        elif [ "$link" != "${link#*#}" ] &&
            ! sed -n 's/^##* //p' "$target" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-' | grep -qx "${link#*#}"; then
            bad "$page links to $link, a heading that does not exist"
        else
            ok
        fi
    done
done
echo "test_readme: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
