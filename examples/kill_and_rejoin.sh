#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Four sites train one model. One is killed: the others go on without it. It is started again by the
# same command, and takes part again. Then all are stopped after the same step, and compared.
#   examples/kill_and_rejoin.sh [ISTHMUS]
set -euo pipefail
cd "$(dirname "$0")"
. ./lib.sh
isthmus=${1:-isthmus}
out=$(mktemp -d)
launch=
end() {
  local code=$?
  set +e
  if [[ -n $launch ]]; then kill "$launch" 2>/dev/null && wait "$launch"; fi
  rm -rf "$out"
  exit "$code"
}
trap end EXIT

"$isthmus" launch four_sites.toml --out "$out" --force --restart 1 --progress none \
  --set train.steps=100000 >"$out/said" 2>&1 &
launch=$!
await "rounds of all four" members "$out/north" 4

for child in $(cat "/proc/$launch/task/$launch/children"); do
  if tr '\0' ' ' <"/proc/$child/cmdline" | grep -q -- '--site west'; then kill -KILL "$child"; fi
done
say "west is killed"
await "the other three go on" members "$out/north" 3
await "west is back" joined "$out/north" west
await "rounds of all four again" members "$out/north" 4

kill -INT "$launch"  # all agree on a step, lay down a checkpoint there, and end
code=0
wait "$launch" || code=$?
launch=
models=$(sha256sum "$out"/*/ckpt/last/model.safetensors | cut -d ' ' -f 1 | sort -u | wc -l)
say "all have stopped (exit code $code) with $models model between them"
[[ $code == 130 && $models == 1 ]]
