#!/bin/sh
# Fuzzes each target for a while: tests/fuzz/run.sh BUILD SECONDS tests/fuzz/fuzz_NAME.c...
# New inputs are kept in BUILD/corpus/NAME, crashing ones in BUILD/crash-NAME-*.
set -u
build=$1
seconds=$2
shift 2
passed=0
failed=0
for source in "$@"; do
    name=$(basename "$source" .c)
    name=${name#fuzz_}
    mkdir -p "$build/corpus/$name"
    seeds=
    if [ -d "tests/fuzz/corpus/$name" ]; then
        seeds=tests/fuzz/corpus/$name
    fi
    # shellcheck disable=SC2086  # empty or one word
    if "$build/${source%.c}" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -close_fd_mask=3 \
        -artifact_prefix="$build/crash-$name-" "$build/corpus/$name" $seeds >"$build/$name.log" 2>&1; then
        passed=$((passed + 1))
        echo "fuzz_$name: $(sed -n 's/^Done \([0-9]*\) runs.*/\1 runs/p' "$build/$name.log"), $(ls "$build/corpus/$name" | wc -l) inputs, ok"
    else
        failed=$((failed + 1))
        echo "fuzz_$name: FAILED"
        tail -n 30 "$build/$name.log" | sed 's/^/    /'
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
