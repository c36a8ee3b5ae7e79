// SPDX-License-Identifier: Apache-2.0
// SPSA by blocks of 2048 elements (16 Philox counters in parallel, 8 KiB of weights), which stay in
// the L1 cache while all steps of a call are applied to them. Include after one of simd_*.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/spsa.h"

namespace isthmus::kernels {
namespace {

constexpr int kSpsaCounters = 16;
constexpr int kSpsaWords = 4 * kSpsaCounters;
constexpr std::int64_t kSpsaBlock = kSpsaCounters * kSpsaCounterElements;
constexpr int kSpsaEntriesAtOnce = 8;

/// The block's signs as bits (1: -1), word k for its elements 32 k .. 32 k + 31. A 64-bit lane has
/// one counter's word in its low half; the high half is ignored.
inline void spsa_words(std::uint64_t run_key, const SpsaDirection& z, std::int64_t block,
                       std::uint32_t* words) {
  constexpr int kAtOnce = 2;  // independent chains of ten products
  // 2^39 is a multiple of the block, so only the first counter word differs among its counters.
  const std::array<std::uint32_t, 4> counter = spsa_counter(z, block * kSpsaBlock);
  const Longs::V m0 = Longs::set(kPhiloxM0);
  const Longs::V m1 = Longs::set(kPhiloxM1);
  for (int i = 0; i < kSpsaCounters; i += kAtOnce * Longs::kWidth) {
    Longs::V c0[kAtOnce], c1[kAtOnce], c2[kAtOnce], c3[kAtOnce];
    for (int j = 0; j < kAtOnce; ++j) {
      c0[j] = Longs::count(counter[0] + static_cast<std::uint64_t>(i + j * Longs::kWidth));
      c1[j] = Longs::set(counter[1]);
      c2[j] = Longs::set(counter[2]);
      c3[j] = Longs::set(counter[3]);
    }
    auto k0 = static_cast<std::uint32_t>(run_key);
    auto k1 = static_cast<std::uint32_t>(run_key >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const Longs::V key0 = Longs::set(k0);
      const Longs::V key1 = Longs::set(k1);
      for (int j = 0; j < kAtOnce; ++j) {
        const Longs::V low = Longs::mul_low(m0, c0[j]);
        const Longs::V high = Longs::mul_low(m1, c2[j]);
        c0[j] = Longs::bit_xor(Longs::high(high), c1[j], key0);
        c1[j] = high;
        c2[j] = Longs::bit_xor(Longs::high(low), c3[j], key1);
        c3[j] = low;
      }
      k0 += kPhiloxW0;
      k1 += kPhiloxW1;
    }
    for (int j = 0; j < kAtOnce; ++j) {
      // Elements follow the words of a counter, then the counters.
      Longs::store_by_turns(words + 4 * (i + j * Longs::kWidth), Longs::join(c0[j], c1[j]),
                            Longs::join(c2[j], c3[j]));
    }
  }
}

/// Calls whole(word, at) for the words of the block inside [first, first + n), at = offset of their
/// first element in the span; single(word, bit, at) for all other elements.
template <typename Whole, typename Single>
inline void for_words(std::int64_t block, std::int64_t first, std::int64_t n, const Whole& whole,
                      const Single& single) {
  const std::int64_t begin = block * kSpsaBlock - first;
  for (int k = 0; k < kSpsaWords; ++k) {
    const std::int64_t at = begin + k * kSpsaWordElements;
    if (at >= 0 && at + kSpsaWordElements <= n) {
      whole(k, at);
      continue;
    }
    for (int bit = 0; bit < kSpsaWordElements; ++bit) {
      if (at + bit >= 0 && at + bit < n) single(k, bit, at + bit);
    }
  }
}

/// to = from + (bit ? minus : plus), or from - (...).
template <bool kSubtract>
inline void spsa_add_signed(std::int64_t block, std::int64_t first, std::int64_t n,
                            const std::uint32_t* words, float plus, float minus, const float* from,
                            float* to) {
  const Simd::V up = Simd::set(plus);
  const Simd::V down = Simd::set(minus);
  for_words(
      block, first, n,
      [&](int k, std::int64_t at) {
        for (int i = 0; i < kSpsaWordElements; i += Simd::kWidth) {
          const Simd::V term = Simd::select(Simd::bits(words[k] >> i), down, up);
          const Simd::V x = Simd::load(from + at + i);
          Simd::store(to + at + i, kSubtract ? Simd::sub(x, term) : Simd::add(x, term));
        }
      },
      [&](int k, int bit, std::int64_t at) {
        const float term = (words[k] >> bit & 1U) != 0 ? minus : plus;
        to[at] = kSubtract ? from[at] - term : from[at] + term;
      });
}

inline void spsa_perturb_span(std::uint64_t run_key, const SpsaDirection& z, float eps,
                              std::int64_t first, std::int64_t n, const float* w, float* out) {
  alignas(64) std::uint32_t words[kSpsaWords];
  for (std::int64_t block = first / kSpsaBlock; block * kSpsaBlock < first + n; ++block) {
    spsa_words(run_key, z, block, words);
    spsa_add_signed<false>(block, first, n, words, eps, -eps, w, out);
  }
}

/// acc += sum over the entries of (bit ? d : 0), in integers modulo 2^64.
inline void spsa_accumulate(std::uint64_t run_key, const SpsaStep& step, std::int64_t block,
                            std::uint64_t* acc) {
  alignas(64) std::uint32_t words[kSpsaEntriesAtOnce][kSpsaWords];
  for (std::size_t begin = 0; begin < step.entries.size(); begin += kSpsaEntriesAtOnce) {
    const auto entries = step.entries.subspan(
        begin, std::min<std::size_t>(kSpsaEntriesAtOnce, step.entries.size() - begin));
    for (std::size_t e = 0; e < entries.size(); ++e) {
      spsa_words(run_key, {step.step, entries[e].machine, entries[e].sample}, block, words[e]);
    }
    for (int k = 0; k < kSpsaWords; ++k) {
      std::uint64_t* const to = acc + k * kSpsaWordElements;
      constexpr int kVectors = static_cast<int>(kSpsaWordElements) / Longs::kWidth;
      Longs::V sum[kVectors];
      for (int i = 0; i < kVectors; ++i) sum[i] = Longs::load(to + i * Longs::kWidth);
      for (std::size_t e = 0; e < entries.size(); ++e) {
        const Longs::V d = Longs::set(static_cast<std::uint64_t>(entries[e].d));
        for (int i = 0; i < kVectors; ++i) {
          sum[i] = Longs::add_where(words[e][k] >> (i * Longs::kWidth), sum[i], d);
        }
      }
      for (int i = 0; i < kVectors; ++i) Longs::store(to + i * Longs::kWidth, sum[i]);
    }
  }
}

/// w = w - fp32(A) c with A = sum z d = (sum of all d) - 2 (sum of those with the bit).
inline void spsa_apply_sum(std::int64_t block, std::int64_t first, std::int64_t n,
                           std::uint64_t total, const std::uint64_t* acc, float c, float* w) {
  const auto element = [&](std::uint64_t with_bit) {
    return static_cast<float>(static_cast<std::int64_t>(total - 2 * with_bit)) * c;
  };
  for_words(
      block, first, n,
      [&](int k, std::int64_t at) {
        for (int i = 0; i < kSpsaWordElements; ++i) {
          w[at + i] = w[at + i] - element(acc[k * kSpsaWordElements + i]);
        }
      },
      [&](int k, int bit, std::int64_t at) {
        w[at] = w[at] - element(acc[k * kSpsaWordElements + bit]);
      });
}

inline void spsa_apply_span(std::uint64_t run_key, const SpsaStep* steps, std::size_t count,
                            std::int64_t first, std::int64_t n, float* w) {
  alignas(64) std::uint32_t words[kSpsaWords];
  alignas(64) std::uint64_t acc[kSpsaBlock];
  for (std::int64_t block = first / kSpsaBlock; block * kSpsaBlock < first + n; ++block) {
    const std::int64_t begin = std::max<std::int64_t>(0, block * kSpsaBlock - first);
    const std::int64_t end = std::min(n, (block + 1) * kSpsaBlock - first);
    for (std::size_t s = 0; s < count; ++s) {
      const SpsaStep& step = steps[s];
      if (step.decay != 1.0f) {
        for (std::int64_t i = begin; i < end; ++i) w[i] = w[i] * step.decay;
      }
      if (step.entries.size() == 1) {
        // The same products as below, once for the block.
        const SpsaEntry& only = step.entries[0];
        spsa_words(run_key, {step.step, only.machine, only.sample}, block, words);
        spsa_add_signed<true>(block, first, n, words, static_cast<float>(only.d) * step.c,
                              static_cast<float>(-only.d) * step.c, w, w);
      } else if (!step.entries.empty()) {
        std::uint64_t total = 0;
        for (const SpsaEntry& entry : step.entries) total += static_cast<std::uint64_t>(entry.d);
        std::fill(acc, acc + kSpsaBlock, std::uint64_t{0});
        spsa_accumulate(run_key, step, block, acc);
        spsa_apply_sum(block, first, n, total, acc, step.c, w);
      }
    }
  }
}

}  // namespace
}  // namespace isthmus::kernels
