// SPDX-License-Identifier: Apache-2.0
// Shared-randomness SPSA on flat spans of the canonical layout (arXiv:2305.17333 Alg. 1 for the
// estimate; directions, integer sum and rounding are ours, docs/internals/spsa.md). Everybody who
// knows the run key draws the same directions z in {-1, +1}^d, so a step of training is a few
// (direction, scalar) pairs.
//
// DETERMINISM: signs come from integers, the sum over a step's entries is an exact int64, then one
// conversion, one product and one difference are rounded, each to nearest. So the bits do not
// depend on instruction set, threads, order of entries, how spans are cut or how many steps go at
// once.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/spsa_math.h"
#include "kernels/thread_team.h"

namespace isthmus::kernels {

/// Elements first .. of the canonical layout, as many as the span next to it has.
/// out = w + eps z, one rounded sum each. w, out: same size, not overlapping; w stays as it is.
/// Memory: 8 bytes an element.
void spsa_perturb(ThreadTeam& team, std::uint64_t run_key, const SpsaDirection& z, float eps,
                  std::int64_t first, std::span<const float> w, std::span<float> out);

/// One projected gradient: scalar q = d 2^-31, in units of the step's factor.
struct SpsaEntry {
  std::uint32_t machine = 0;
  std::uint32_t sample = 0;
  std::int64_t d = 0;  // |d| < 2^39
};

/// One step of training as the log has it.
struct SpsaStep {
  std::uint32_t step = 0;
  std::span<const SpsaEntry> entries;  // fewer than 2^24, any order
  float c = 0;                         // w -= fp32(sum of z d) c
  float decay = 1;                     // before that w *= decay; 1: not multiplied at all
};

/// Applies steps one after another to elements first .. of the canonical layout. One pass over w
/// whatever the number of steps: 8 bytes an element from memory, and per entry about 0.6
/// instructions of a 512-bit vector a 16 elements.
void spsa_apply(ThreadTeam& team, std::uint64_t run_key, std::span<const SpsaStep> steps,
                std::int64_t first, std::span<float> w);

}  // namespace isthmus::kernels
