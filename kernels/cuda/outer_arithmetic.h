// SPDX-License-Identifier: Apache-2.0
// Operations of outer methods on flat vectors other than the outer optimizer, on the device with
// the bits of src/outer: each operation rounds once, norms are the CPU's fixed trees in double. All
// pointers are device memory, (n,) float32 unless stated otherwise, not overlapping.
//
// Digests of values are not computed here: XXH3-128 is a chain over all bytes in order. The host
// computes them from the encoded bytes, which are copied to it anyway.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/outer_step.h"

namespace isthmus::cuda {

/// delta = anchor - local, or (anchor - local) + more if `more` is not null. 12 or 16 bytes an
/// element.
void outer_gradient(Stream& stream, std::size_t n, const float* anchor, const float* local,
                    const float* more, float* delta);

/// local = alpha local + (1 - alpha) anchor; a copy for alpha = 0, no change for 1. 12 bytes (8).
void mix(Stream& stream, std::size_t n, float alpha, const float* anchor, float* local);

/// local += anchor - before: adds the anchor's change to local values with uncounted work. 16
/// bytes.
void rebase(Stream& stream, std::size_t n, const float* anchor, const float* before, float* local);

/// g -= stale / share (eager's own part of the previous mean). 12 bytes.
void subtract_share(Stream& stream, std::size_t n, float share, const float* stale, float* g);
/// g += (anchor - local) / share (eager's fresh part). 16 bytes.
void add_fresh_share(Stream& stream, std::size_t n, float share, const float* anchor,
                     const float* local, float* g);
/// sum /= by: the mean of the members' contributions. 8 bytes.
void divide(Stream& stream, std::size_t n, float by, float* sum);

/// kernels::delayed_nesterov_step; s: the sum of the rounds since the last change of the momentum.
/// 28 bytes.
void delayed_nesterov_step(Stream& stream, const kernels::OuterStep& step, bool closes,
                           std::size_t n, float* x, const float* d, float* b, float* s);

/// co2's step (src/outer/methods/co2.h): d /= penalty; m = mu m + d; x -= eta clamp(m, -bound,
/// bound); an infinite bound clamps nothing. m null: d is used in its place. `moved` := the change
/// of x, for its norm. 28 bytes with momentum.
void co2_step(Stream& stream, const kernels::OuterStep& step, float penalty, float bound,
              std::size_t n, float* x, float* d, float* m, float* moved);

/// Selected tiles of 4096 values of x, plus residual if not null, concatenated: out[4096 k + i] =
/// x[4096 tiles[k] + i] (+ residual[...]). tiles: (count,) on the device, ascending; the last tile
/// of x may be short, and is then short in `out`. 8 or 12 bytes per selected element.
void gather_tiles(Stream& stream, std::size_t n, const float* x, const float* residual,
                  const std::uint32_t* tiles, std::size_t count, float* out);

/// tile_sums[t] = sum of squares of tile t in the order of outer/parts/flat_view.h, (ceil(n /
/// 4096),) double. 4 bytes.
void tile_squares(Stream& stream, std::size_t n, const float* x, double* tile_sums);
/// The same, and *norm := the square root of their sum in order.
void l2_norm(Stream& stream, std::size_t n, const float* x, double* tile_sums, double* norm);

}  // namespace isthmus::cuda
