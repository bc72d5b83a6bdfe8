#!/bin/sh
# Compares the loss curves in bf16 and fp32: the same model, tokens and order, dense and routed.
#   tests/bench/bf16.sh FOLDER [RUNS] [STEPS]    FOLDER: text files of TinyStories; RUNS: where runs go (runs)
# Ends with the final validation losses and their ratio; fails when they differ by more than 0.5 % or a step had NaN.
set -eu
folder=$1
export DEPTHSCOPE_RUNS="${2:-runs}"
steps=${3:-2000}
program=${DEPTHSCOPE:-./depthscope}
mkdir -p "$DEPTHSCOPE_RUNS"

run() { # METHOD COMPUTE
    [ -f "$DEPTHSCOPE_RUNS/$1-$2/finished" ] ||
        "$program" train stories "data.path=$folder" threads=1 "train.steps=$steps" "model.method=$1" "compute=$2" \
            --run "$1-$2" --json | tail -n 1 >"$DEPTHSCOPE_RUNS/$1-$2.json"
    touch "$DEPTHSCOPE_RUNS/$1-$2/finished"
}

value() { # FILE KEY
    sed -n "s/.*\"$2\": *\([-+0-9.eE]*\).*/\1/p" "$1"
}

for method in dense edp; do
    run $method fp32 &
    run $method bf16 &
    wait
done
status=0
for method in dense edp; do
    a=$(value "$DEPTHSCOPE_RUNS/$method-fp32.json" val_loss)
    b=$(value "$DEPTHSCOPE_RUNS/$method-bf16.json" val_loss)
    bad=$("$program" inspect "$DEPTHSCOPE_RUNS/$method-bf16" | grep -c 'NaN or Inf' || true)
    awk -v m=$method -v n="$steps" -v a="$a" -v b="$b" -v bad="$bad" 'BEGIN {
        r = a > 0 ? b / a : 0
        printf "%-6s %d steps  val loss fp32 %.4f  bf16 %.4f  ratio %.4f  records of NaN %d\n", m, n, a, b, r, bad
        exit !(r > 0.995 && r < 1.005 && bad == 0) }' || status=1
done
exit $status
