#!/bin/sh
# Compiles terminfo.ti into terminfo.c: sh src/tui/terminfo.sh  (needs tic and base64; run by hand
# when terminfo.ti changes, the result is committed).
set -eu
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tic -x -o "$work" "$here/terminfo.ti"
{
    echo '/* Made by terminfo.sh from terminfo.ti: do not edit. */'
    echo '#include "tui/term.h"'
    for name in xterm_direct xterm_256 tmux_direct tmux_256; do
        entry=ds-$(echo "$name" | tr _ -)
        printf '\n/* clang-format off */\nconst char terminfo_%s[] = "b64:"\n' "$name"
        base64 -w 92 "$work/d/$entry" | sed 's/.*/    "&"/' | sed '$s/$/;/'
        echo '/* clang-format on */'
    done
} >"$here/terminfo.c"
