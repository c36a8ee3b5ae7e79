#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: Grain's random_map after a slice by rank gives every rank the same random numbers.
# Guess: the generator handed to random_map differs from record to record, so ranks with other records of one seeded
#   dataset draw other masks, as they do with Grain's DataLoader.
# Seen: ds.seed(0)[rank::3].random_map(f) draws the same four numbers on each of three ranks, and so does its
#   IterDataset. random_map before the slice gives 12 distinct numbers, and so does the DataLoader with ShardOptions.
#   The generator is seeded by the seed and the index in the dataset at hand, and a slice starts again at 0.
# Versions: grain 0.2.18, numpy 2.4.6; Python 3.11.
# Why: the slice is the way of sharding that Grain's documentation names, and masks, crops and dropped tokens are drawn
#   in random_map. With n sites record i of each has one mask: a mean over sites averages such noise no
#   longer. random_map before the slice, or a seed that holds the rank, keeps it apart.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check grain==0.2.18 numpy==2.4.6
cat > "$work/expected" <<'EOF'
slice, random_map: 4 distinct of 12, ranks equal True
slice, random_map (IterDataset): 4 distinct of 12, ranks equal True
random_map, slice: 12 distinct of 12, ranks equal False
seed with rank, slice, random_map: 12 distinct of 12, ranks equal False
DataLoader: 12 distinct of 12, ranks equal False
EOF
"$work/venv/bin/python" -W ignore - > "$work/seen" 2> "$work/log" <<'EOF'
import grain

RANKS = 3


def noise(record, generator):
    return float(generator.standard_normal())


class Noise(grain.transforms.RandomMap):
    def random_map(self, element, rng):
        return noise(element, rng)


def dataset(seed=0):
    return grain.MapDataset.range(12).seed(seed)


def loader(rank):
    shard = grain.sharding.ShardOptions(shard_index=rank, shard_count=RANKS)
    sampler = grain.samplers.IndexSampler(12, shard_options=shard, shuffle=False, num_epochs=1, seed=0)
    return grain.DataLoader(data_source=range(12), sampler=sampler, operations=[Noise()], worker_count=0)


ways = {
    "slice, random_map": lambda rank: dataset()[rank::RANKS].random_map(noise),
    "slice, random_map (IterDataset)": lambda rank: dataset()[rank::RANKS].to_iter_dataset().random_map(noise),
    "random_map, slice": lambda rank: dataset().random_map(noise)[rank::RANKS],
    "seed with rank, slice, random_map": lambda rank: dataset(rank)[rank::RANKS].random_map(noise),
    "DataLoader": loader,
}
for name, way in ways.items():
    drawn = [list(way(rank)) for rank in range(RANKS)]
    distinct = len({v for one in drawn for v in one})
    print(f"{name}: {distinct} distinct of {sum(map(len, drawn))}, ranks equal {all(d == drawn[0] for d in drawn)}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
