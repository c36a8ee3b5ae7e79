#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: jax.lax.pmean of integers and fp16 overflows in its sum: the mean of eight values 100 in int8 is 4.0.
# Guess: pmean of int8 100 on eight devices gives 100, as jnp.mean does, and of fp16 60000 gives 60000.
# Seen: int8 100 gives 4.0 (on two devices -28), uint8 200 gives 8.0 and fp16 60000 gives inf, under pmap, shard_map
#   and vmap alike; jnp.mean of the same values is right. The result of int8 is a float32, so its dtype suggests
#   a mean computed in float. pmean is psum, in the dtype of the input, divided by the size of the axis.
# Versions: jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, ml_dtypes 0.6.0, CPU with eight host devices; Python 3.11.
# Why: devices that average int8 codes, byte masks or fp16 gradients with pmean get wrong values of usual size, or
#   infinities, and no error. With int8 two devices are enough. The same code is right in a test on one
#   device. pmean of x.astype(float32) is right.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 \
  ml_dtypes==0.6.0
cat > "$work/expected" <<'EOF'
int8 100, 1 sites: jnp.mean 100, shard_map 100, pmap 100, vmap 100; pmean's dtype is float32
int8 100, 2 sites: jnp.mean 100, shard_map -28, pmap -28, vmap -28; pmean's dtype is float32
int8 100, 8 sites: jnp.mean 100, shard_map 4, pmap 4, vmap 4; pmean's dtype is float32
uint8 200, 1 sites: jnp.mean 200, shard_map 200, pmap 200, vmap 200; pmean's dtype is float32
uint8 200, 2 sites: jnp.mean 200, shard_map 72, pmap 72, vmap 72; pmean's dtype is float32
uint8 200, 8 sites: jnp.mean 200, shard_map 8, pmap 8, vmap 8; pmean's dtype is float32
float16 60000, 1 sites: jnp.mean 60000, shard_map 60000, pmap 60000, vmap 60000; pmean's dtype is float16
float16 60000, 2 sites: jnp.mean 60000, shard_map inf, pmap inf, vmap inf; pmean's dtype is float16
float16 60000, 8 sites: jnp.mean 60000, shard_map inf, pmap inf, vmap inf; pmean's dtype is float16
float32 60000, 1 sites: jnp.mean 60000, shard_map 60000, pmap 60000, vmap 60000; pmean's dtype is float32
float32 60000, 2 sites: jnp.mean 60000, shard_map 60000, pmap 60000, vmap 60000; pmean's dtype is float32
float32 60000, 8 sites: jnp.mean 60000, shard_map 60000, pmap 60000, vmap 60000; pmean's dtype is float32
EOF
export XLA_FLAGS=--xla_force_host_platform_device_count=8
"$work/venv/bin/python" -W ignore - > "$work/seen" 2> "$work/log" <<'EOF'
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec


def pmean(x):
    return jax.lax.pmean(x, "site")


def on_devices(x):
    mesh = jax.make_mesh((len(x),), ("site",))
    x = jax.device_put(x, NamedSharding(mesh, PartitionSpec("site")))
    return jax.shard_map(pmean, mesh=mesh, in_specs=PartitionSpec("site"), out_specs=PartitionSpec())(x)


ways = {"jnp.mean": jnp.mean, "shard_map": on_devices}
for name in ("pmap", "vmap"):
    ways[name] = getattr(jax, name)(pmean, axis_name="site")
for kind, value in (("int8", 100), ("uint8", 200), ("float16", 60000), ("float32", 60000)):
    for count in (1, 2, 8):
        x = jnp.full(count, value, kind)
        told = ", ".join(f"{name} {float(jnp.ravel(way(x))[0]):g}" for name, way in ways.items())
        print(f"{kind} {value}, {count} sites: {told}; pmean's dtype is {on_devices(x).dtype}")
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
