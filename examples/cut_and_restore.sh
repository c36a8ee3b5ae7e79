#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two sites, each in a network namespace of its own, and the wire between them: it is cut, the first
# site goes on alone, the other waits; it is restored, and both are one run again. Needs root.
#   sudo examples/cut_and_restore.sh [ISTHMUS]
set -euo pipefail
cd "$(dirname "$0")"
. ./lib.sh
isthmus=$(command -v "${1:-isthmus}")
if [[ $(id -u) != 0 ]] || ! command -v ip >/dev/null || ! ip netns add "isthmus-$$-try" 2>/dev/null; then
  say "skipped: needs root, iproute2 and network namespaces"
  exit 77
fi
ip netns del "isthmus-$$-try"
out=$(mktemp -d)
east="isthmus-$$-east" west="isthmus-$$-west"
pids=()
end() {
  local code=$?
  set +e
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null && wait "$pid"; done
  ip netns del "$east" 2>/dev/null
  ip netns del "$west" 2>/dev/null
  rm -rf "$out"
  exit "$code"
}
trap end EXIT

ip netns add "$east"
ip netns add "$west"
ip link add wire netns "$east" type veth peer name wire netns "$west"
number=0
for space in "$east" "$west"; do
  number=$((number + 1))
  ip -n "$space" addr add "10.78.0.$number/24" dev wire
  ip -n "$space" link set wire up
  ip -n "$space" link set lo up
done

for site in east west; do
  ip netns exec "isthmus-$$-$site" "$isthmus" train sites.toml --site "$site" --out "$out/$site" \
    --address east=10.78.0.1:48200 --address west=10.78.0.2:48200 --progress none \
    --set net.plaintext=true --set net.dead_after=3s --set train.steps=100000 >"$out/$site.log" 2>&1 &
  pids+=($!)
done
await "rounds of both" members "$out/east" 2

ip -n "$east" link set wire down
say "the wire is cut"
await "east goes on alone" members "$out/east" 1
await "west waits, and tries to come back" grep -q "trying to come back" "$out/west.log"

ip -n "$east" link set wire up
say "the wire is restored"
await "west is back" joined "$out/east" west
await "rounds of both again" members "$out/east" 2
