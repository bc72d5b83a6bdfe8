#!/bin/sh
# Checks what `make portable` made: portable.sh FILE.  It must be static and at most 20 MB.
set -eu
export LC_ALL=C
program=$1
most=20000000
bytes=$(wc -c <"$program")
kind=$(ldd "$program" 2>&1 | sed 's/^[[:space:]]*//') || :
if command -v file >/dev/null 2>&1; then
    file "$program" | sed 's/, BuildID[^,]*//'
fi
echo "$program: $bytes bytes, $kind"
if readelf -l "$program" | grep -q INTERP; then
    echo "$program: needs a loader, expected a static program" >&2
    exit 1
elif [ "$bytes" -gt "$most" ]; then
    echo "$program: must be at most $most bytes" >&2
    exit 1
fi
