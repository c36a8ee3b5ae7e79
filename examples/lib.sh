# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the examples beside this file share. Source it.

say() { printf '== %s\n' "$*"; }

# await WHAT COMMAND...: until it succeeds; gives up after two minutes.
await() {
  local what=$1 end=$((SECONDS + 120))
  shift
  until "$@"; do
    if ((SECONDS > end)); then
      say "not within two minutes: $what"
      exit 1
    fi
    sleep 0.1
  done
  say "$what"
}

# members FOLDER N: whether the newest round in that site's folder is the mean of N sites.
members() { grep '"k":"round"' "$1/metrics.jsonl" 2>/dev/null | tail -n 1 | grep -q "\"members\":$2[,}]"; }

# joined FOLDER SITE: whether SITE has joined since the start, by the lines in that folder.
joined() { grep '"what":"site joined"' "$1/metrics.jsonl" 2>/dev/null | grep -q "\"site\":\"$2\""; }
