#!/bin/sh
# README.md: its tables are the program's own, its links exist, its commands are commands.
set -u
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL $1"; }

if sh tests/docs.sh "$DEPTHSCOPE" README.md --check; then ok; else bad "the tables are out of date: make docs"; fi
for link in $(sed -n 's/.*](\([^)h][^)]*\)).*/\1/p' README.md); do
    if [ -e "$link" ]; then ok; else bad "README.md links to $link, which is not there"; fi
done
for word in $(sed -n 's/^    .*\.\/depthscope \([a-z][a-z]*\) .*/\1/p' README.md | sort -u); do
    case $word in
    first) ok ;; # the run of the tour
    *) if "$DEPTHSCOPE" help | grep -q "depthscope $word "; then ok; else bad "README.md uses depthscope $word"; fi ;;
    esac
done
echo "test_readme: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
