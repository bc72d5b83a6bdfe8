#!/bin/sh
# The full checks: the tests, fuzzing, valgrind over the built-in GEMM, and a soak test.
# Run by `make test-full`.  FUZZ_SECONDS and SOAK_STEPS shorten it.
set -u
make=${MAKE:-make}
total=$(mktemp)
trap 'rm -f "$total" "$total.log" "$total.rc"' EXIT

part() { # NAME COMMAND...: shows it, and keeps its closing count
    name=$1
    shift
    echo "== $name"
    { "$@"; echo $? >"$total.rc"; } 2>&1 | tee "$total.log"
    line=$(grep '^[0-9]* passed, [0-9]* failed, [0-9]* skipped$' "$total.log" | tail -n 1)
    if [ -n "$line" ]; then
        printf '%s\n' "$line" >>"$total"
    elif [ "$(cat "$total.rc")" != 0 ]; then
        echo '0 passed, 1 failed, 0 skipped' >>"$total"
    fi
}

memcheck() {
    if ! command -v valgrind >/dev/null 2>&1; then
        echo 'valgrind: not found'
        echo '0 passed, 0 failed, 1 skipped'
        return 0
    fi
    # Baseline instructions only: valgrind may not support those of this processor.
    $make -k BLAS=ref DEBUG=1 programs || return 1
    passed=0
    failed=0
    for program in build/debug-ref/tests/unit/test_*; do
        case $program in *.o | *.d) continue ;; esac
        if CK_FORK=no T_SLOW_FACTOR=50 valgrind -q --error-exitcode=99 --leak-check=no "$program" \
            >"$total.valgrind" 2>&1; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "valgrind: $program"
            tail -n 30 "$total.valgrind" | sed 's/^/    /'
        fi
    done
    rm -f "$total.valgrind"
    echo "$passed passed, $failed failed, 0 skipped"
}

soak() {
    steps=${SOAK_STEPS:-200}
    passed=0
    failed=0
    work=$(mktemp -d)
    program=$PWD/depthscope
    for method in ${METHODS:-dense edp mod dtf hat dlr}; do
        if (cd "$work" && "$program" train quick "model.method=$method" "train.steps=$steps" --run "soak-$method" \
            --quiet) >"$work/log" 2>&1 </dev/null; then
            passed=$((passed + 1))
            echo "soak: $method, $steps steps"
        else
            failed=$((failed + 1))
            echo "soak: $method failed"
            tail -n 10 "$work/log" | sed 's/^/    /'
        fi
    done
    rm -rf "$work"
    echo "$passed passed, $failed failed, 0 skipped"
}

part test env T_LONG=1 $make test
part fuzz $make fuzz FUZZ_SECONDS="${FUZZ_SECONDS:-60}"
part valgrind memcheck
part soak soak
awk '{ p += $1; f += $3; s += $5 }
    END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 }' "$total"
