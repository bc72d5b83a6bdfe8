#!/bin/sh
# The study of the README: every method and control from random weights, and the methods over a frozen base, three seeds
# each, the same tokens in the same order.
#   tests/bench/study.sh FOLDER [RUNS]     FOLDER: text files of TinyStories; RUNS: where runs go (runs)
# STEPS (600) of 8 x 256 tokens each, BASE_STEPS (300) over the frozen base.  Finished runs are kept, unfinished ones resumed; two
# runs at a time, one thread each.
set -eu
folder=$1
export DEPTHSCOPE_RUNS="${2:-runs}"
program=${DEPTHSCOPE:-./depthscope}
steps=${STEPS:-600}
base_steps=${BASE_STEPS:-300}
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
        "$program" train "$@" "data.path=$folder" threads=1 --run "$name" --quiet
    fi
    touch "$DEPTHSCOPE_RUNS/$name/finished"
}

scratch() { # SEED condition...: from random weights
    seed=$1
    shift
    for condition in "$@"; do
        case $condition in
        dense6) set -- stories model.method=dense model.layers=6 ;;
        dlrscratch) set -- dlr-scratch ;;
        hatscratch) set -- hat-scratch ;;
        *) set -- stories "model.method=$condition" ;;
        esac
        one "$condition-s$seed" "$@" "train.steps=$steps" "seed=$seed"
    done
}

frozen() { # SEED: over the dense model of the same seed
    over="train.init=$DEPTHSCOPE_RUNS/dense-s$1 train.batch=8 train.seq=256 train.steps=$base_steps
        train.eval_every=100 train.checkpoint_every=300 train.lr=1e-3 seed=$1"
    # shellcheck disable=SC2086 # words, not one
    {
        one "hat-s$1" hat $over train.router_lr=10 train.warmup=20
        one "dlr-s$1" dlr $over train.router_lr=3 dlr.keep=2 dlr.threshold=target dlr.mu=8
        one "lora-s$1" stories model.method=dense model.lora_r=16 train.freeze=base $over train.warmup=0
    }
}

for seed in 1 2 3; do
    scratch "$seed" dense edp mod dlrscratch random &
    scratch "$seed" dense6 dtf hatscratch static stochastic
    wait
    frozen "$seed"
done
names="dense dense6 edp mod dtf dlrscratch hatscratch random static stochastic hat dlr lora"
files=
for name in $names; do
    for seed in 1 2 3; do
        file=$DEPTHSCOPE_RUNS/$name-s$seed/eval.mp
        rm -f "$file"
        "$program" eval "$name-s$seed" tokens=32768 threads=1 time_rounds=7 -o "$file" > /dev/null
        files="$files $file"
    done
done
# shellcheck disable=SC2086 # a list
"$program" compare $files
