#!/bin/sh
# Makes host_fallback.c from host_fallback.py: sh src/io/host_fallback.sh  (run by hand when the script
# changes, the result is committed; tests/unit/test_hosts.py compares them).
set -eu
here=$(dirname "$0")
{
    echo '/* Made by host_fallback.sh from host_fallback.py: do not edit. */'
    echo '#include "io/host_fallback.h"'
    printf '\n#include <stddef.h>\n\n/* clang-format off */\nconst char *const host_fallback[] = {\n'
    sed -e '/^ *#/d' -e '/^$/d' -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/    "&\\n",/' "$here/host_fallback.py"
    printf '    NULL};\n/* clang-format on */\n'
} >"${1:-$here/host_fallback.c}"
