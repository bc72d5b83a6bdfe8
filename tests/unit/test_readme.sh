#!/bin/sh
# README.md and the reference: generated pages are up to date and links exist; test_readme_commands.py runs the commands.
set -u
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL $1"; }

if sh tests/docs.sh "$DEPTHSCOPE" --check; then ok; else bad "generated pages are out of date: make docs"; fi
for page in README.md data/reference/*.md tests/bench/*.md exports/README.md; do
    for link in $(grep -o '](\([^)h#][^)]*\))' "$page" | sed 's/^](//; s/)$//'); do
        if [ -e "$(dirname "$page")/$link" ]; then ok; else bad "$page links to $link, which does not exist"; fi
    done
done
echo "test_readme: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
