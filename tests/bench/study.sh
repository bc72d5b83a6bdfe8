#!/bin/sh
# The study of the README: dense, dense at equal FLOPs, edp and its controls, three seeds each, the same tokens.
#   tests/bench/study.sh FOLDER [RUNS]     FOLDER: text files of TinyStories; RUNS: where runs go (runs)
# Finished runs are kept, unfinished ones resumed; two runs at a time, one thread each.
set -eu
folder=$1
export DEPTHSCOPE_RUNS="${2:-runs}"
program=${DEPTHSCOPE:-./depthscope}
mkdir -p "$DEPTHSCOPE_RUNS"

one() { # NAME key=value...
    name=$1
    shift
    if [ -f "$DEPTHSCOPE_RUNS/$name/finished" ]; then
        return
    fi
    if [ -f "$DEPTHSCOPE_RUNS/$name/config.yaml" ]; then
        "$program" train --resume "$name" --quiet
    else
        "$program" train stories "data.path=$folder" threads=1 --run "$name" --quiet "$@"
    fi
    touch "$DEPTHSCOPE_RUNS/$name/finished"
}

column() { # conditions of one worker
    for seed in 1 2 3; do
        for condition in "$@"; do
            case $condition in
            dense) one "dense10-s$seed" model.method=dense "seed=$seed" ;;
            shallow) one "dense6-s$seed" model.method=dense model.layers=6 "seed=$seed" ;;
            *) one "$condition-s$seed" "model.method=$condition" "seed=$seed" ;;
            esac
        done
    done
}

column dense random &
column shallow static edp &
wait
"$program" compare "$DEPTHSCOPE_RUNS"/dense10-s? "$DEPTHSCOPE_RUNS"/dense6-s? "$DEPTHSCOPE_RUNS"/edp-s? \
    "$DEPTHSCOPE_RUNS"/random-s? "$DEPTHSCOPE_RUNS"/static-s?
