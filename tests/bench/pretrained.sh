#!/bin/sh
# The study over a pretrained base (RESULTS.md): hat (routers, then exits) and dlr (adapters, distillation) over a frozen
# TinyStories-656K, compared with the untouched base, the base with adapters alone, and trained controls; three seeds, the same tokens in
# the same order.
#   tests/bench/pretrained.sh BASE TEXT [RUNS]     BASE: the directory of the model; TEXT: stories; RUNS: where runs go (runs)
# STEPS (300) of 8 x 256 tokens each.  Finished runs are kept, unfinished ones resumed.
set -eu
base=$1 text=$2
export DEPTHSCOPE_RUNS="${3:-runs}"
program=${DEPTHSCOPE:-./depthscope}
steps=${STEPS:-300}
capacities=${CAPACITIES:-1,0.8,0.6,0.4,0.2}
mkdir -p "$DEPTHSCOPE_RUNS"

one() { # NAME preset key=value...
    name=$1
    shift
    if [ -f "$DEPTHSCOPE_RUNS/$name/finished" ]; then
        return
    fi
    if [ -f "$DEPTHSCOPE_RUNS/$name/config.yaml" ]; then
        "$program" train --resume "$name" --quiet
    else
        "$program" train "$@" --run "$name" --quiet
    fi
    touch "$DEPTHSCOPE_RUNS/$name/finished"
}

for seed in 1 2 3; do
    over="train.init=$base data.path=$text train.freeze=base train.batch=8 train.seq=256 train.steps=$steps
        train.eval_every=100 train.checkpoint_every=300 train.lr=1e-3 seed=$seed threads=1"
    adapters="model.lora_r=16 model.lora_alpha=32 train.warmup=0 train.schedule=cosine train.min_lr=0"
    # The base has two layers: the first always runs, of the second 0.6 should.  hat routes the FFNs of both and may leave
    # before the second.
    routed="early=1 late=0 target_ratio=0.8"
    # shellcheck disable=SC2086 # words, not one
    {
        one "lora-s$seed" transfer model.method=dense $adapters $over
        one "dlr-s$seed" dlr $over train.router_lr=3 dlr.keep=1 dlr.threshold=target dlr.mu=8
        one "dlruntrained-s$seed" dlr $over dlr.keep=1 dlr.threshold=target dlr.estimator=none
        one "hat-s$seed" hat $over train.router_lr=10 train.warmup=20
        for control in random static; do
            one "$control-s$seed" transfer "model.method=$control" $adapters $over \
                $(for key in $routed; do echo "$control.$key"; done)
        done
    }
done
evaluate() { # MODEL OUT key=value...: on the validation documents of the runs
    model=$1 out=$2
    shift 2
    if [ ! -f "$out" ]; then
        "$program" eval "$model" tokens=32768 threads=1 time_rounds=7 "$@" -o "$out" > /dev/null
    fi
}
files=$DEPTHSCOPE_RUNS/base.mp
evaluate "$base" "$files" "data.path=$text" split=val data.val_fraction=0.05
for name in lora dlr dlruntrained hat random static; do
    for seed in 1 2 3; do
        evaluate "$name-s$seed" "$DEPTHSCOPE_RUNS/$name-s$seed/eval.mp"
        files="$files $DEPTHSCOPE_RUNS/$name-s$seed/eval.mp"
    done
done
# shellcheck disable=SC2086 # a list
"$program" compare $files
for seed in 1 2 3; do
    for name in dlr hat; do
        "$program" eval "$name-s$seed" --benchmark "capacities=$capacities" tokens=32768 threads=1 time_rounds=7
    done
done
