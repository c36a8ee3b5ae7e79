// SPDX-License-Identifier: Apache-2.0
// Ternary codes and the sums for their scales, in one pass. Included by the files named in
// block_loops.h, which explains V.
#pragma once

#include <cstring>

#include "quant/cpu/block_statistics.h"

namespace isthmus {
namespace {  // NOLINT(google-build-namespaces)

// The exact sum of the magnitudes above a threshold: each is split into halves of 12 bits, so that
// fp32 can add up to kRun values (16 in a lane) of a range of 2^7 before it rounds.
template <typename V>
struct AboveSum {
  static constexpr std::size_t kRun = 256;
  typename V::F high = V::set_float(0);
  typename V::F low = V::set_float(0);
  typename V::I found = V::set(0);

  void add(typename V::I magnitudes, typename V::M above) {
    const auto v = V::as_float(magnitudes);
    const auto upper = V::as_float(V::bit_and(magnitudes, V::set(static_cast<int>(0xFFFF'F000))));
    high = V::add_where(above, high, upper);
    low = V::add_where(above, low, V::sub_float(v, upper));
    found = V::add_one_where(above, found);
  }
  void move_to(double& sum, std::uint32_t& count) {
    typename V::Sum total;
    float lanes[kLanes];
    V::store(lanes, high);
    total.add(lanes);
    V::store(lanes, low);
    total.add(lanes);
    sum += total.total();
    count += V::reduce_add(found);
    *this = {};
  }
};

// For `blocks` blocks in 64 values, or one block of at least 64. Reads whole steps, and adds to the
// sums of blocks; values after the n-th must be zero.
template <typename V, std::size_t blocks>
void ternary_loop(const float* x, std::size_t n, std::size_t block, const float* thresholds,
                  std::byte* codes, double* sums, std::uint32_t* counts) {
  const std::size_t run = block < AboveSum<V>::kRun ? block : AboveSum<V>::kRun;
  AboveSum<V> sum[blocks];
  for (std::size_t i = 0; i < n; i += kStep) {
    const std::size_t first = i >> log2_of(block);
    const std::size_t used = n - i < kStep ? blocks_of(n - i, kStep / blocks) : blocks;
    prefetch(x + i, 2 * kPart, 4);
    typename V::Ternary code[4];
    for (std::size_t k = 0; k < 4; ++k) {
      const std::size_t b = k * blocks / 4;
      const auto threshold = V::broadcast(thresholds + first + (b < used ? b : 0));
      const auto v = V::load(x + i + kLanes * k);
      const auto magnitudes = magnitude_bits<V>(v);
      const auto above = V::greater_float(V::as_float(magnitudes), threshold);
      sum[b].add(magnitudes, above);
      code[k] = V::ternary(v, above);
    }
    V::pack_ternary(codes + i / 4, code);
    if (blocks > 1 || ((i + kStep) & (run - 1)) == 0 || i + kStep >= n) {
      for (std::size_t b = 0; b < used; ++b) sum[b].move_to(sums[first + b], counts[first + b]);
    }
  }
}
template <typename V>
void fast_encode_ternary(const float* x, std::size_t n, std::size_t block, const float* thresholds,
                         std::byte* codes, double* sums, std::uint32_t* counts) {
  bool plain = block >= kLanes;
  for (std::size_t b = 0; b < blocks_of(n, block); ++b) {
    sums[b] = counts[b] = 0;
    plain = plain && !(thresholds[b] > kPlainScaleMax);  // fp32 must hold the sums
  }
  if (!plain) {
    return kPortableBlockKernels.encode_ternary(x, n, block, thresholds, codes, sums, counts);
  }
  const auto loop = block == kLanes       ? ternary_loop<V, 4>
                    : block == 2 * kLanes ? ternary_loop<V, 2>
                                          : ternary_loop<V, 1>;
  const std::size_t whole = n / kStep * kStep;
  loop(x, whole, block, thresholds, codes, sums, counts);
  if (whole == n) return;
  float rest[kStep] = {};
  std::byte packed[kStep / 4];
  const std::size_t b = whole >> log2_of(block);
  std::memcpy(rest, x + whole, (n - whole) * sizeof(float));
  loop(rest, n - whole, block, thresholds + b, packed, sums + b, counts + b);
  std::memcpy(codes + whole / 4, packed, code_bytes(n - whole, 2));
}
// The same without the sums.
template <typename V>
void fast_ternary_codes(const float* x, std::size_t n, std::size_t block, const float* thresholds,
                        std::byte* codes) {
  double sums[kTileValues];
  std::uint32_t counts[kTileValues];
  fast_encode_ternary<V>(x, n, block, thresholds, codes, sums, counts);
}

}  // namespace
}  // namespace isthmus
