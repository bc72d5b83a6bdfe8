#!/bin/sh
# README.md: its tables are the program's own and its links exist; test_readme_commands.py runs its commands.
set -u
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL $1"; }

if sh tests/docs.sh "$DEPTHSCOPE" README.md --check; then ok; else bad "the tables are out of date: make docs"; fi
for link in $(sed -n 's/.*](\([^)h][^)]*\)).*/\1/p' README.md); do
    if [ -e "$link" ]; then ok; else bad "README.md links to $link, which is not there"; fi
done
echo "test_readme: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
