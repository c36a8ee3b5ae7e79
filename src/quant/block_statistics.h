// SPDX-License-Identifier: Apache-2.0
// What the scales of blocks follow from: largest values, sums, ranges. For the files that
// block_loops.h speaks of; V is explained there.
#pragma once

#include "isthmus/codec.h"
#include "quant/block_coders.h"
#include "quant/block_kernels.h"

namespace isthmus {
namespace {  // NOLINT(google-build-namespaces)

constexpr std::size_t kLanes = 16;
constexpr std::size_t kStep = 64;  // values coded at once

// part(k, values) for each 16 values of a block; the last ones through a copy padded with `pad`.
template <typename V, typename Part>
void for_each_part(const float* x, std::size_t n, float pad, const Part& part) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) part(V::load(x + i));
  if (i == n) return;
  float rest[kLanes];
  for (std::size_t k = 0; k < kLanes; ++k) rest[k] = i + k < n ? x[i + k] : pad;
  part(V::load(rest));
}
// reduce(b, values, how many) for each block.
template <typename Reduce>
void for_blocks(const float* x, std::size_t n, std::size_t block, const Reduce& reduce) {
  for (std::size_t begin = 0, b = 0; begin < n; begin += block, ++b) {
    reduce(b, x + begin, n - begin < block ? n - begin : block);
  }
}

template <typename V>
void fast_amax(const float* x, std::size_t n, std::size_t block, std::uint32_t* largest) {
  if (block < kLanes) return kPortableBlockKernels.block_amax(x, n, block, largest);
  if (block <= kStep) {  // four blocks share the steps across lanes
    while (n >= 4 * block) {
      typename V::I most[4];
      for (std::size_t b = 0; b < 4; ++b) {
        most[b] = magnitude_bits<V>(V::load(x + b * block));
        for (std::size_t i = kLanes; i < block; i += kLanes) {
          most[b] = V::max(most[b], magnitude_bits<V>(V::load(x + b * block + i)));
        }
      }
      V::reduce_max_4(most, largest);
      x += 4 * block;
      n -= 4 * block;
      largest += 4;
    }
  }
  for_blocks(x, n, block, [largest](std::size_t b, const float* v, std::size_t count) {
    auto most = V::set(0);
    for_each_part<V>(v, count, 0, [&](typename V::F part) {
      most = V::max(most, magnitude_bits<V>(part));  // as signed: the sign is gone
    });
    largest[b] = V::reduce_max(most);
  });
}
template <typename V>
void fast_sum(const float* x, std::size_t n, std::size_t block, double* sums) {
  for_blocks(x, n, block, [sums](std::size_t b, const float* v, std::size_t count) {
    typename V::Sum sum;
    for_each_part<V>(v, count, 0,
                     [&](typename V::F p) { sum.add(V::as_float(magnitude_bits<V>(p))); });
    sums[b] = sum.total();
  });
}
template <typename V>
void fast_squares(const float* x, std::size_t n, std::size_t block, double* sums) {
  for_blocks(x, n, block, [sums](std::size_t b, const float* v, std::size_t count) {
    typename V::Sum sum;
    for_each_part<V>(v, count, 0, [&](typename V::F p) { sum.add_square(p); });
    sums[b] = sum.total();
  });
}
template <typename V>
void fast_sum_above(const float* x, std::size_t n, std::size_t block, const float* thresholds,
                    double* sums, std::uint32_t* counts) {
  for_blocks(x, n, block, [=](std::size_t b, const float* v, std::size_t count) {
    typename V::Sum sum;
    const auto threshold = V::broadcast(thresholds + b);
    auto found = V::set(0);
    // Padding is zero and no threshold is below zero.
    for_each_part<V>(v, count, 0, [&](typename V::F p) {
      const auto a = magnitude_bits<V>(p);
      const auto above = V::greater_float(V::as_float(a), threshold);
      sum.add(V::as_float(V::select(above, a, V::set(0))));
      found = V::add_one_where(above, found);
    });
    sums[b] = sum.total();
    counts[b] = V::reduce_add(found);
  });
}
template <typename V>
void fast_range(const float* x, std::size_t n, std::size_t block, float* low, float* high) {
  for_blocks(x, n, block, [=](std::size_t b, const float* v, std::size_t count) {
    auto least = V::set_float(float_of(kInfinityBits));
    auto most = V::set_float(-float_of(kInfinityBits));
    for_each_part<V>(v, count, v[0], [&](typename V::F p) {
      least = V::min_float(p, least);
      most = V::max_float(p, most);
    });
    low[b] = V::reduce_min_float(least) + 0.0f;
    high[b] = V::reduce_max_float(most) + 0.0f;
  });
}

template <typename V>
void fast_scales_for(const std::uint32_t* largest, std::size_t blocks, float top, float most,
                     float* scales) {
  // Between these the plain quotient is the scale.
  const float least_plain = 0x1p-125f * top;
  const float most_plain = most * top;
  std::size_t b = 0;
  for (; b + kLanes <= blocks; b += kLanes) {
    const auto magnitude = V::load(reinterpret_cast<const float*>(largest + b));
    const auto bits = V::as_int(magnitude);
    const auto large = V::greater(bits, V::set(static_cast<int>(bits_of(most_plain) - 1)));
    const auto small = V::greater(V::set(static_cast<int>(bits_of(least_plain))), bits);
    const auto odd =
        V::bit_or(V::select(large, V::set(1), V::set(0)), V::select(small, bits, V::set(0)));
    if (V::any(odd)) {
      kPortableBlockKernels.scales_for(largest + b, kLanes, top, most, scales + b);
    } else {
      V::store(scales + b, V::div(magnitude, V::set_float(top)));
    }
  }
  kPortableBlockKernels.scales_for(largest + b, blocks - b, top, most, scales + b);
}
}  // namespace
}  // namespace isthmus
