#!/bin/sh
# Measures the overhead of recording and of a watching workbench per training step: in one run, a workbench at 80x24
# is attached and detached, and steps with it are compared with steps without it.
#   tests/bench/recording.sh [PRESET] [key=value ...]
# "record" is the share of a step as the run's own account has it; "viewer" is the processor time of the workbench over
# the time that passed, which is the most it can take from a run that uses every processor.
set -eu
program=${DEPTHSCOPE:-./depthscope}
case $program in */*) program=$(cd "$(dirname "$program")" && pwd)/$(basename "$program") ;; esac
seconds=${SECONDS_EACH:-6} rounds=${ROUNDS:-4}
command -v script >/dev/null || { echo 'recording.sh: script (util-linux) gives the workbench its terminal' >&2; exit 2; }

room=$(mktemp -d)
run='' watch='' hold=''
cleanup() {
    for pid in $watch $hold $run; do kill "$pid" 2>/dev/null || :; done
    wait 2>/dev/null || :
    rm -rf "$room"
}
trap cleanup EXIT
export DEPTHSCOPE_RUNS="$room/runs" XDG_STATE_HOME="$room/state"

: >"$room/steps"
"$program" train --run measured --json "$@" train.steps=1000000 train.eval_every=1000000 \
    train.probe_every=1000000 train.checkpoint_every=1000000 >"$room/steps" 2>"$room/said" &
run=$!
trap 'exit 130' INT TERM # only now: a child must not inherit it
lines() { wc -l <"$room/steps"; }
while [ "$(lines)" -lt 20 ]; do # caches are warm, the tokenizer is made
    kill -0 "$run" 2>/dev/null || { cat "$room/said" >&2; exit 1; }
    sleep 0.2
done

mkfifo "$room/keys" # an input that stays open and says nothing
sleep 100000 >"$room/keys" &
hold=$!
ticks=$(getconf CLK_TCK) used=0
part() { # watched|alone: steps FROM TO of this part
    from=$(lines)
    sleep "$seconds"
    echo "$1 $from $(lines)" >>"$room/parts"
}
for _ in $(seq "$rounds"); do
    part alone
    script -qec "stty rows 24 cols 80; echo \$\$ >'$room/pid'; exec '$program' '$room/runs/measured'" /dev/null \
        <"$room/keys" >"$room/screen" 2>&1 &
    watch=$!
    sleep 1 # it reads what there is
    viewer=$(cat "$room/pid")
    before=$(awk '{ print $14 + $15 }' "/proc/$viewer/stat")
    part watched
    after=$(awk '{ print $14 + $15 }' "/proc/$viewer/stat")
    used=$((used + after - before))
    kill "$viewer"
    wait "$watch" || :
    watch=''
    sleep 0.5
done
kill "$run"
wait "$run" 2>/dev/null || :
run=''

number() { sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p" "$room/steps"; }
number step_ms >"$room/step_ms"
number record >"$room/record"
paste "$room/step_ms" "$room/record" >"$room/table"
at() { sort -g | awk -v share="$1" '{ x[NR] = $1 } END { print x[1 + int(share * (NR - 1))] }'; }
rows() { # of the parts called $1
    awk -v want="$1" 'NR == FNR { if ($1 == want) { n++; from[n] = $2; to[n] = $3 } next }
        { for (i = 1; i <= n; i++) if (FNR > from[i] && FNR <= to[i]) { print; break } }' "$room/parts" "$room/table"
}
for kind in alone watched; do
    rows "$kind" >"$room/$kind"
    decile=$(cut -f1 "$room/$kind" | at 0.1) median=$(cut -f1 "$room/$kind" | at 0.5)
    record=$(awk '{ sum += $2 } END { print 100 * sum / NR }' "$room/$kind")
    printf '%-8s %6d steps  %8.3f ms (best tenth below)  %8.3f ms (median)  record %.3f %%\n' \
        "$kind" "$(wc -l <"$room/$kind")" "$decile" "$median" "$record"
    echo "$decile $median $record" >"$room/$kind.row"
done
cat "$room/alone.row" "$room/watched.row" | awk -v used="$used" -v ticks="$ticks" -v wall="$((seconds * rounds))" '
    { decile[NR] = $1; median[NR] = $2; record = $3 }
    END {
        viewer = 100 * used / ticks / wall
        printf "watched / alone: %.4f (best tenth), %.4f (median)\n", decile[2] / decile[1], median[2] / median[1]
        printf "viewer %.3f %% of a processor; with recording %.3f %% of a step: %s\n", viewer, record + viewer,
            record + viewer < 1 ? "under 1 %" : "NOT under 1 %"
    }'
