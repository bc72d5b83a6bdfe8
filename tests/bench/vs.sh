#!/bin/sh
# Compares `depthscope bench` here with another revision: vs.sh REV [bench arguments].
# REV is built in a worktree below build/, which stays there for the next time.
set -eu
rev=${1:-}
[ -n "$rev" ] || { echo 'bench-vs: missing revision: make bench-vs REV=main' >&2; exit 2; }
shift
commit=$(git rev-parse --verify --quiet "$rev^{commit}") || { echo "bench-vs: no revision '$rev'" >&2; exit 2; }
tree=build/vs-$commit
git worktree prune
[ -d "$tree" ] || git worktree add --detach --force "$tree" "$commit" >/dev/null
${MAKE:-make} -C "$tree" depthscope >&2

# One result a line: name, median, unit.
rows() {
    tr -d '\n' | sed 's/},/}\n/g' | sed -n \
        's/.*"name": *"\([^"]*\)".*"unit": *"\([^"]*\)".*"median": *\([-+0-9.eE]*\).*/\1\t\3\t\2/p' | sort
}
tab=$(printf '\t')
# Both, then both again: the second pass has warm caches and the same clock.
for _ in 1 2; do
    "$tree/depthscope" bench --json "$@" >build/vs.json # not a pipe: its status would be lost
    rows <build/vs.json >build/vs-old.tsv
    ./depthscope bench --json "$@" >build/vs.json
    rows <build/vs.json >build/vs-new.tsv
done
join -t "$tab" build/vs-old.tsv build/vs-new.tsv | awk -F'\t' -v rev="$rev" '
    BEGIN { printf "%-44s %12s %12s %8s\n", "bench (median)", rev, "here", "here/" rev }
    { printf "%-44s %12.4g %12.4g %8.2f  %s\n", $1, $2, $4, $2 ? $4 / $2 : 0, $3 }'
