// SPDX-License-Identifier: Apache-2.0
// Statistics from which the scales of blocks are computed: largest values, sums, ranges. Included
// by the files named in block_loops.h, which explains V.
#pragma once

#include "isthmus/codec.h"
#include "quant/cpu/block_coders.h"
#include "quant/cpu/block_kernels.h"

namespace isthmus {
namespace {  // NOLINT(google-build-namespaces)

constexpr std::size_t kLanes = 16;
constexpr std::size_t kStep = 64;  // values coded at once

inline unsigned log2_of(std::size_t block) {
  return static_cast<unsigned>(__builtin_ctzll(static_cast<unsigned long long>(block)));
}

// Coding finds its values in the L1 cache, and memory would idle: prefetch later values into the L2
// cache, whose queue is the longest. A wrong address is ignored. Always inline: g++ drops calls of
// a function that only prefetches.
[[gnu::always_inline]] inline void prefetch(const float* x, std::size_t ahead, std::size_t lines) {
  constexpr std::uintptr_t kLine = 64;
  constexpr int kIntoL2 = 2;
  const std::uintptr_t from = reinterpret_cast<std::uintptr_t>(x) + ahead * sizeof(float);
  for (std::uintptr_t line = 0; line < lines; ++line) {
    __builtin_prefetch(reinterpret_cast<const void*>(from + line * kLine), 0, kIntoL2);
  }
}

// part(values) for each 16 values of a block; the last ones in a copy padded with `pad`.
template <typename Part>
void for_each_part(const float* x, std::size_t n, float pad, const Part& part) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) part(x + i);
  if (i == n) return;
  float rest[kLanes];
  for (std::size_t k = 0; k < kLanes; ++k) rest[k] = i + k < n ? x[i + k] : pad;
  part(rest);
}
// reduce(b, values, how many) for each block.
template <typename Reduce>
void for_blocks(const float* x, std::size_t n, std::size_t block, const Reduce& reduce) {
  for (std::size_t begin = 0, b = 0; begin < n; begin += block, ++b) {
    reduce(b, x + begin, n - begin < block ? n - begin : block);
  }
}

// Per lane the largest magnitude of `vectors` times 16 values; magnitudes compare as their bits do.
template <typename V, std::size_t vectors>
typename V::I lane_amax(const float* v) {
  if constexpr (vectors == 1) {
    return magnitude_bits<V>(V::load(v));
  } else {
    return V::max(lane_amax<V, vectors / 2>(v), lane_amax<V, vectors / 2>(v + 8 * vectors));
  }
}
// `block` is a multiple of 16 * vectors. Returns the number of blocks done: all but the last few.
template <typename V, std::size_t vectors>
std::size_t amax_of_fours(const float* x, std::size_t n, std::size_t block,
                          std::uint32_t* largest) {
  std::size_t b = 0;
  for (; (b + 4) * block <= n; b += 4) {
    typename V::I most[4];
    for (std::size_t k = 0; k < 4; ++k) {
      const float* const v = x + (b + k) * block;
      most[k] = lane_amax<V, vectors>(v);
      for (std::size_t i = kLanes * vectors; i < block; i += kLanes * vectors) {
        most[k] = V::max(most[k], lane_amax<V, vectors>(v + i));
      }
    }
    V::reduce_max_4(most, largest + b);  // four blocks at once, since steps across lanes wait for
                                         // one another
  }
  return b;
}
template <typename V>
void fast_amax(const float* x, std::size_t n, std::size_t block, std::uint32_t* largest) {
  if (block < kLanes) return kPortableBlockKernels.block_amax(x, n, block, largest);
  const std::size_t done = block == kLanes       ? amax_of_fours<V, 1>(x, n, kLanes, largest)
                           : block == 2 * kLanes ? amax_of_fours<V, 2>(x, n, 2 * kLanes, largest)
                                                 : amax_of_fours<V, 4>(x, n, block, largest);
  largest += done;
  for_blocks(x + done * block, n - done * block, block,
             [largest](std::size_t b, const float* v, std::size_t count) {
               auto most = V::set(0);
               for_each_part(v, count, 0, [&](const float* part) {
                 most = V::max(most, lane_amax<V, 1>(part));
               });
               largest[b] = V::reduce_max(most);
             });
}

template <typename V>
void fast_sum(const float* x, std::size_t n, std::size_t block, double* sums) {
  for_blocks(x, n, block, [sums](std::size_t b, const float* v, std::size_t count) {
    typename V::Sum sum;
    for_each_part(v, count, 0, [&](const float* part) { sum.add(part); });
    sums[b] = sum.total();
  });
}
template <typename V>
void fast_squares(const float* x, std::size_t n, std::size_t block, double* sums) {
  for_blocks(x, n, block, [sums](std::size_t b, const float* v, std::size_t count) {
    typename V::Sum sum;
    for_each_part(v, count, 0, [&](const float* part) { sum.add_square(part); });
    sums[b] = sum.total();
  });
}
// If a block is a tile, this pass takes as long as coding, and each of the two prefetches half of
// the next tile.
template <typename V>
void fast_range(const float* x, std::size_t n, std::size_t block, float* low, float* high,
                std::uint32_t* largest) {
  for_blocks(x, n, block, [=](std::size_t b, const float* v, std::size_t count) {
    auto least = V::set_float(float_of(kInfinityBits));
    auto most = V::set_float(-float_of(kInfinityBits));
    auto magnitude = V::set(0);
    for_each_part(v, count, v[0], [&](const float* part) {
      const auto i = static_cast<std::size_t>(part - v);
      if (count > kPart && i % kStep == 0) prefetch(v, count + kPart + i / 2, 2);
      const auto p = V::load(part);
      least = V::min_float(p, least);
      most = V::max_float(p, most);
      magnitude = V::max(magnitude, magnitude_bits<V>(p));
    });
    low[b] = V::reduce_min_float(least) + 0.0f;
    high[b] = V::reduce_max_float(most) + 0.0f;
    largest[b] = V::reduce_max(magnitude);
  });
}

template <typename V>
void fast_scales_for(const std::uint32_t* largest, std::size_t blocks, float top, float most,
                     float* scales) {
  // Between these the plain quotient is the scale.
  const float least_plain = 0x1p-125f * top;
  const float most_plain = most * top;
  for (std::size_t b = 0; b < blocks; b += kLanes) {
    const std::size_t count = blocks - b < kLanes ? blocks - b : kLanes;
    const auto magnitude = V::load_some(reinterpret_cast<const float*>(largest + b), count);
    const auto bits = V::as_int(magnitude);
    const auto large = V::greater(bits, V::set(static_cast<int>(bits_of(most_plain) - 1)));
    const auto small = V::greater(V::set(static_cast<int>(bits_of(least_plain))), bits);
    const auto odd =
        V::bit_or(V::select(large, V::set(1), V::set(0)), V::select(small, bits, V::set(0)));
    if (V::any(odd)) {
      kPortableBlockKernels.scales_for(largest + b, count, top, most, scales + b);
    } else {
      V::store_some(scales + b, V::div(magnitude, V::set_float(top)), count);
    }
  }
}
}  // namespace
}  // namespace isthmus
