// SPDX-License-Identifier: Apache-2.0
// SPSA with shared random directions on flat spans of the canonical layout (arXiv:2305.17333 Alg. 1
// for the estimate; directions, integer sum and rounding are ours, docs/internals/spsa.md). All
// workers with the run key draw the same directions z in {-1, +1}^d, so a training step is a few
// (direction, scalar) pairs.
//
// DETERMINISM: signs come from integers, and the sum over a step's entries is an exact int64; one
// conversion, one product and one difference are then rounded to nearest. So the bits do not depend
// on instruction set, threads, order of entries, borders of spans or the number of steps per call.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/spsa_math.h"
#include "kernels/thread_team.h"

namespace isthmus::kernels {

/// out = w + eps z for elements first .. of the canonical layout, one rounded sum each. w, out:
/// same size, not overlapping; w does not change. Memory: 8 bytes an element.
void spsa_perturb(ThreadTeam& team, std::uint64_t run_key, const SpsaDirection& z, float eps,
                  std::int64_t first, std::span<const float> w, std::span<float> out);

/// One projected gradient: scalar q = d 2^-31, in units of the step's factor.
struct SpsaEntry {
  std::uint32_t machine = 0;
  std::uint32_t sample = 0;
  std::int64_t d = 0;  // |d| < 2^39
};

/// One training step of the log.
struct SpsaStep {
  std::uint32_t step = 0;
  std::span<const SpsaEntry> entries;  // fewer than 2^24, any order
  float c = 0;                         // w -= fp32(sum of z d) c
  float decay = 1;                     // first w *= decay; 1: no multiplication
};

/// Applies steps in order to elements first .. of the canonical layout. One pass over w for any
/// number of steps: 8 bytes an element of memory traffic, and per entry about 0.6 instructions of a
/// 512-bit vector unit for 16 elements.
void spsa_apply(ThreadTeam& team, std::uint64_t run_key, std::span<const SpsaStep> steps,
                std::int64_t first, std::span<float> w);

}  // namespace isthmus::kernels
