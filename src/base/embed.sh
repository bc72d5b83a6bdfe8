#!/bin/sh
# Prints the assembler source of the table that embedded.c reads: embed.sh [/NAME=]FILE ...  A file is
# called by its path, unless a name is given.
set -eu
export LC_ALL=C
for f; do
    case $f in
    /*=*) printf '%s %s\n' "${f%%=*}" "${f#*=}" ;;
    *) printf '/%s %s\n' "$f" "$f" ;;
    esac
done | sort | awk '
    BEGIN { print ".section .rodata" }
    { printf ".balign 16\n.Lp%d: .incbin \"%s\"\n.Le%d: .byte 0\n.Ln%d: .asciz \"%s\"\n", NR, $2, NR, NR, $1 }
    END {
        print ".section .data.rel.ro,\"aw\"\n.globl embedded_files\n.balign 8\nembedded_files:"
        for (i = 1; i <= NR; i++)
            printf ".quad .Ln%d, .Lp%d, .Le%d - .Lp%d\n", i, i, i, i
        print ".quad 0, 0, 0\n.section .note.GNU-stack,\"\",%progbits"
    }'
