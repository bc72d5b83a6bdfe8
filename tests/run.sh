#!/bin/sh
# Runs test programs and sums their counts.
#   tests/run.sh [-j N] PROGRAM...
# Each prints as its last line "name: N passed, N failed, N skipped".  One that crashes, hangs or
# prints no such line is one failure.  A skipped test prints "SKIP reason"; one that gives no reason
# is a failure, because nobody would notice that it did not run.  The reasons are listed before the
# sum, which is the last line, alone.
# Environment: BUILD_DIR (logs go to BUILD_DIR/log, with the seconds of each in `seconds`, the slowest
# first), BUILD_FAILED=1 (counts as a failure too), T_RUNNER=qemu-... (what runs the compiled ones), T_PATIENCE=3
# (waits are as many times longer; T_SLOW_FACTOR also leaves out what a sanitizer makes too slow).
set -u

export LC_ALL=C
count='[0-9][0-9]* passed, [0-9][0-9]* failed, [0-9][0-9]* skipped'

run_one() { # PROGRAM: writes LOG and RESULT files, prints one line (and what failed)
    program=$1
    name=$(basename "$program")
    base=$LOG_DIR/$(printf %s "$program" | tr / _)
    if [ ! -f "$program" ]; then
        echo '0 1 0' >"$base.result"
        printf '%s: not built\n' "$name"
        return
    fi
    limit=${T_PROGRAM_SECONDS:-900}
    runner=
    if command -v timeout >/dev/null 2>&1; then
        runner="timeout -k 10 $limit"
    fi
    case $program in
    *.py)
        if ! command -v python3 >/dev/null 2>&1; then
            echo "SKIP $name: python3 is not installed" >"$base.log"
            printf '%s: 0 passed, 0 failed, 1 skipped\n' "$name"
            echo '0 0 1' >"$base.result"
            return
        fi
        runner="$runner python3" ;;
    *.sh) runner="$runner sh" ;;
    *) runner="$runner ${T_RUNNER:-}" ;;
    esac
    status=0
    began=$(date +%s)
    $runner "$program" >"$base.log" 2>&1 </dev/null || status=$?
    echo "$(($(date +%s) - began)) $program" >"$base.seconds"
    line=$(grep "^[^ ]*: $count\$" "$base.log" | tail -n 1)
    set -- $(printf '%s\n' "${line##*: }" | tr -cd '0-9 \n')
    if [ $# -ne 3 ]; then
        set -- 0 1 0
        line="$name: no count, exit status $status"
    elif [ "$status" -ne 0 ] && [ "$2" -eq 0 ]; then
        set -- "$1" 1 "$3"
        line="$name: exit status $status after $line"
    elif [ "$3" -ne 0 ] && ! grep -q '^SKIP .' "$base.log"; then
        set -- "$1" 1 "$3"
        line="$name: no line \"SKIP reason\" for $line"
    fi
    echo "$1 $2 $3" >"$base.result"
    if [ "$2" -ne 0 ]; then
        printf '%s\n%s' "$line" "$(grep -v "^[^ ]*: $count\$" "$base.log" | tail -n "${T_TAIL:-40}" | sed 's/^/    /')" |
            awk 1
    else
        printf '%s\n' "$line"
    fi
}

if [ "${1:-}" = --one ]; then
    run_one "$2"
    exit 0
fi

jobs=1
if [ "${1:-}" = -j ]; then
    jobs=$2
    shift 2
fi
LOG_DIR=${BUILD_DIR:-build}/log
export LOG_DIR
rm -rf "$LOG_DIR"
mkdir -p "$LOG_DIR"
# Scripts mostly wait and programs mostly compute: taken in turns, two more than asked for keep the
# processors busy.  A test then waits longer for what it expects.
if [ $# -gt 0 ]; then
    [ "$jobs" -eq 1 ] || { jobs=$((jobs + 2)); export T_PATIENCE="${T_PATIENCE:-3}"; }
    printf '%s\n' "$@" | grep -E '\.(py|sh)$' >"$LOG_DIR/scripts"
    printf '%s\n' "$@" | grep -vE '\.(py|sh)$' | paste -d '\n' "$LOG_DIR/scripts" - | grep . |
        xargs -n 1 -P "$jobs" sh "$0" --one
    rm "$LOG_DIR/scripts"
fi
if [ -n "${BUILD_FAILED:-}" ]; then
    echo "build: incomplete"
    echo '0 1 0' >"$LOG_DIR/build.result"
fi
if [ -n "${COUNTS:-}" ]; then
    cat "$LOG_DIR"/*.result >"$COUNTS" 2>/dev/null
fi
cat "$LOG_DIR"/*.seconds 2>/dev/null | sort -rn >"$LOG_DIR/seconds"
# The same reason once, with how many tests it kept from running.
cat "$LOG_DIR"/*.log 2>/dev/null | sed -n 's/^SKIP //p' | sort | uniq -c | sort -rn |
    sed 's/^ *\([0-9]*\) /skipped (\1): /'
cat "$LOG_DIR"/*.result 2>/dev/null | awk '
    { passed += $1; failed += $2; skipped += $3 }
    END {
        printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
        exit failed > 0 || passed == 0
    }'
