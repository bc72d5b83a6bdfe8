#!/bin/sh
# hat and gateskip over a frozen base: the same base of each seed, the same steps, FFNs at the same share.
#   tests/bench/retrofits.sh FOLDER [RUNS]     FOLDER: text files of TinyStories; RUNS: where runs go (runs)
# BASE_STEPS (500) for the base, STEPS (200) over it, of 8 x 128 tokens each; one thread. Finished runs are kept.
set -eu
folder=$1
export DEPTHSCOPE_RUNS="${2:-runs}"
program=${DEPTHSCOPE:-./depthscope}
mkdir -p "$DEPTHSCOPE_RUNS"

one() { # NAME key=value...
    name=$1
    shift
    if [ ! -f "$DEPTHSCOPE_RUNS/$name/finished" ]; then
        rm -rf "${DEPTHSCOPE_RUNS:?}/$name"
        "$program" train "$@" train.batch=8 train.seq=128 "data.path=$folder" threads=1 --run "$name" --quiet
        touch "$DEPTHSCOPE_RUNS/$name/finished"
    fi
}

over() { # NAME key=value...: over the base of this seed
    name=$1-s$seed
    shift
    one "$name" "$@" "train.init=$DEPTHSCOPE_RUNS/retrofit-base-s$seed" train.freeze=base "train.steps=${STEPS:-200}" \
        train.eval_every=100 train.checkpoint_every="${STEPS:-200}" train.warmup=20 train.lr=1e-3 train.router_lr=10 \
        train.min_lr=0 train.weight_decay=0.01 "seed=$seed"
}

ffn="hat hat.exits=off hat.phase=routers hat.capacity=0.6"
slow="hat.capacity_start=1 hat.capacity_freeze=0 hat.noise=0.1 hat.layer_dropout=0"
gates="gateskip gateskip.skip=ffn gateskip.capacity=0.6"
adapters="model.lora_r=16 model.lora_targets=q,k,v,o,gate,up,down"
for seed in 1 2 3; do
    one "retrofit-base-s$seed" model.method=dense model.layers=8 model.dim=64 model.heads=4 model.vocab=1024 \
        "train.steps=${BASE_STEPS:-500}" train.lr=3e-3 train.warmup=50 train.eval_every=250 \
        train.checkpoint_every="${BASE_STEPS:-500}" "seed=$seed"
    # shellcheck disable=SC2086 # words, not one
    {
        over hat-preset hat
        over hat-ffn $ffn
        over hat-slow $ffn $slow
        over hat-slow-adapters $ffn $slow $adapters
        over gateskip-ffn $gates
        over gateskip-ffn-adapters $gates $adapters
    }
done
files=
for name in retrofit-base hat-preset hat-ffn hat-slow gateskip-ffn hat-slow-adapters gateskip-ffn-adapters; do
    for seed in 1 2 3; do
        file=$DEPTHSCOPE_RUNS/$name-s$seed/eval.mp
        rm -f "$file"
        "$program" eval "$name-s$seed" tokens=16384 threads=1 -o "$file" > /dev/null
        files="$files $file"
    done
done
# shellcheck disable=SC2086 # a list
"$program" compare $files
