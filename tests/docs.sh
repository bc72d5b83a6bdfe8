#!/bin/sh
# Puts the tables that the program prints of itself between the marks of README.md.
#   tests/docs.sh PROGRAM [README]       writes the file again
#   tests/docs.sh PROGRAM README --check says whether it would change (exit status 1)
set -eu
program=$1 readme=${2:-README.md} check=${3:-}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$program" help keys | sed "/^## Keys$/d" >"$tmp/keys"
"$program" help views >"$tmp/views"
"$program" presets --markdown >"$tmp/presets"
for table in keys views presets; do
    grep -q '^| ' "$tmp/$table" || { echo "$program printed no table of $table"; exit 1; }
done
awk -v dir="$tmp" '
/^<!-- begin [a-z]* -->$/ { print; print ""; file = dir "/" $3; while ((getline line < file) > 0) print line; skip = 1; next }
/^<!-- end -->$/ { skip = 0 }
!skip { print }' "$readme" | cat -s >"$tmp/new"
if [ -n "$check" ]; then
    cmp -s "$tmp/new" "$readme" || { echo "README.md is not what the tables say: make docs"; exit 1; }
    exit 0
fi
cp "$tmp/new" "$readme"
