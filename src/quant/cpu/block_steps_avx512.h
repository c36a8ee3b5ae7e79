// SPDX-License-Identifier: Apache-2.0
// The Step of block_loops.h for AVX-512: 64 values to codes in fewer operations than four times 16,
// by continuing in 16 and 8 bits as soon as nothing is lost. Comments count operations of 512 bits
// for 64 values; Zen 4 executes two per cycle.
#pragma once

#include "quant/cpu/block_lanes_avx512.h"
#include "quant/cpu/block_loops.h"

namespace isthmus {
namespace {  // NOLINT(google-build-namespaces)

using F = Avx512::F;
using I = Avx512::I;

template <typename G>
struct Quotients {
  F of[4];
  Quotients(const Blocks<Avx512, G>& blocks, const float* x, std::size_t i) {
    if constexpr (G::kInput == GridInput::kReciprocal) {
      F inverse = Avx512::broadcast(blocks.inverses + (i >> blocks.shift));
      for (std::size_t k = 0; k < 4; ++k) {
        if (k > 0 && blocks.shift < 6) {  // a block of 64 has but one
          inverse = Avx512::broadcast(blocks.inverses + ((i + 16 * k) >> blocks.shift));
        }
        of[k] = Avx512::mul(Avx512::load(x + 16 * k), inverse);
      }
    } else {
      for (std::size_t k = 0; k < 4; ++k) of[k] = blocks.quotient(x + 16 * k, i + 16 * k);
    }
  }
};

// The upper halves of 32 floats.
inline I upper_words(I a, I b) {
  alignas(64) static constexpr std::uint16_t kUpper[32] = {
      1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
      33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_permutex2var_epi16(a, _mm512_load_si512(kUpper), b);
}
// 64 words below 256 as bytes, in order.
inline I bytes_of_words(I a, I b) {
  const I order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  return _mm512_permutexvar_epi64(order, _mm512_packus_epi16(a, b));
}

// Integer grids: rounded, saturated as words, then as bytes. 18 operations for int4.
inline I whole_words(F a, F b) {  // groups of four mixed
  return _mm512_packs_epi32(Avx512::nearest(a), Avx512::nearest(b));
}
inline I clamped(I bytes, char top) {
  const I below = _mm512_min_epi8(bytes, _mm512_set1_epi8(top));
  return _mm512_max_epi8(below, _mm512_set1_epi8(static_cast<char>(-top)));
}
template <>
struct Step<Avx512, Int4Grid> {
  static void encode(const Blocks<Avx512, Int4Grid>& blocks, const float* x, std::size_t i,
                     std::byte* out) {
    const Quotients q(blocks, x, i);
    const I bytes = Avx512::in_order(
        _mm512_packs_epi16(whole_words(q.of[0], q.of[1]), whole_words(q.of[2], q.of[3])));
    Avx512::store_codes<4>(out, _mm512_and_si512(clamped(bytes, 7), _mm512_set1_epi8(15)));
  }
};
template <>
struct Step<Avx512, Uint8Grid> {
  static void encode(const Blocks<Avx512, Uint8Grid>& blocks, const float* x, std::size_t i,
                     std::byte* out) {
    const Quotients q(blocks, x, i);
    Avx512::store_codes<8>(out, Avx512::in_order(_mm512_packus_epi16(
                                    whole_words(q.of[0], q.of[1]), whole_words(q.of[2], q.of[3]))));
  }
};

// In units of 2^-16, x times the reciprocal is within 1.5 of a quotient below 128 (half a unit from
// the reciprocal and from each of two roundings), the correctly rounded quotient within a quarter.
// With 2^15 + 4 added, the upper half is the nearest whole number, unless the lower half is at most
// 8: a tie may be near then, and the 64 values are divided exactly. 18 operations; of normal values
// one step in 120 is repeated.
template <>
constexpr float kPrescale<Avx512, Int8Grid> = 0x1p16f;
template <>
struct Step<Avx512, Int8Grid> {
  static void encode(const Blocks<Avx512, Int8Grid>& blocks, const float* x, std::size_t i,
                     std::byte* out) {
    I fixed[4];
    for (std::size_t k = 0; k < 4; ++k) {
      const F inverse = Avx512::broadcast(blocks.inverses + ((i + 16 * k) >> blocks.shift));
      fixed[k] = Avx512::nearest(
          Avx512::fmadd(Avx512::load(x + 16 * k), inverse, Avx512::set_float(0x1p15f + 4)));
    }
    const I least = _mm512_min_epu16(_mm512_min_epu16(fixed[0], fixed[1]),
                                     _mm512_min_epu16(fixed[2], fixed[3]));
    I bytes;
    if (_mm512_mask_cmple_epu16_mask(0x5555'5555, least, _mm512_set1_epi16(8)) == 0) {
      const I mixed =
          _mm512_packs_epi16(upper_words(fixed[0], fixed[1]), upper_words(fixed[2], fixed[3]));
      bytes = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), mixed);
    } else {
      const Quotients q(blocks, x, i);
      bytes = Avx512::in_order(
          _mm512_packs_epi16(whole_words(q.of[0], q.of[1]), whole_words(q.of[2], q.of[3])));
    }
    Avx512::store_codes<8>(out, clamped(bytes, 127));
  }
};

// Grids whose magnitudes change their code at most once between a power of two, 1.5 times it and
// the next power, and not at all outside of eight powers. Each such half is a cell, identified by
// four bits of the quotient; the cell's entry, added to the quotient's bits, gives the code in the
// bits from 22 on and the sign. 32 operations for 4 bits.
template <typename G>
constexpr int kLeastPower = -3;
template <>
constexpr int kLeastPower<Lm2Grid> = -1;
template <>
constexpr int kLeastPower<Lm3Grid> = -1;

template <typename G>
struct Lifts {
  static constexpr std::uint32_t kLeast = static_cast<std::uint32_t>(127 + kLeastPower<G>) << 23;
  static constexpr std::uint32_t kCell = 1u << 22;
  alignas(64) std::uint32_t of[16];

  // The portable code is the definition; a magnitude's code is below the sign bit.
  static constexpr std::uint32_t code(std::uint32_t bits) { return G::code(float_of(bits)); }
  constexpr Lifts() : of() {
    for (std::uint32_t low = kLeast; low < kLeast + 16 * kCell; low += kCell) {
      std::uint32_t below = low;         // magnitudes with the code of `low`
      std::uint32_t from = low + kCell;  // from here on the next code
      if (code(from - 1) > code(low) + 1) throw "two borders in a cell";
      while (from - below > 1) {
        const std::uint32_t middle = below + (from - below) / 2;
        (code(middle) == code(low) ? below : from) = middle;
      }
      of[low / kCell % 16] = (code(low) + 1) * kCell - from;
    }
    if (code(kLeast) != 0) throw "the least power has a code";
  }
};

template <typename G>
struct LiftStep {
  static I words(F a, F b) {
    static constexpr Lifts<G> kLifts;
    const auto lifted = [](F q) {
      const F least = Avx512::set_float(float_of(Lifts<G>::kLeast));
      const I bits = Avx512::as_int(_mm512_range_ps(q, least, 3));  // the larger, sign of q
      const I lift =
          _mm512_permutexvar_epi32(_mm512_srli_epi32(bits, 22), _mm512_load_si512(kLifts.of));
      return _mm512_add_epi32(bits, lift);
    };
    const I upper = upper_words(lifted(a), lifted(b));
    return _mm512_ternarylogic_epi32(_mm512_srli_epi16(upper, 6),
                                     _mm512_srli_epi16(upper, 16 - G::kBits),
                                     _mm512_set1_epi16((1 << G::kBits) - 1), 0xA8);  // (a | b) & c
  }
  static void encode(const Blocks<Avx512, G>& blocks, const float* x, std::size_t i,
                     std::byte* out) {
    const Quotients q(blocks, x, i);
    Avx512::store_codes<G::kBits>(out,
                                  bytes_of_words(words(q.of[0], q.of[1]), words(q.of[2], q.of[3])));
  }
};
template <>
struct Step<Avx512, E2M1Grid> : LiftStep<E2M1Grid> {};
template <>
struct Step<Avx512, E3M0Grid> : LiftStep<E3M0Grid> {};
template <>
struct Step<Avx512, E3M0LogGrid> : LiftStep<E3M0LogGrid> {};
template <>
struct Step<Avx512, Lm2Grid> : LiftStep<Lm2Grid> {};
template <>
struct Step<Avx512, Lm3Grid> : LiftStep<Lm3Grid> {};

// 8-bit floats. Adding the power of two of a quotient (at least the least normal one), times
// 2^(23 - mantissa bits), rounds the quotient to its last code bit, ties to even: the sum's
// exponent and its low bits are the code's. Quotients come prescaled so that the exponent of the
// least normal sum, 160, leaves nothing in the bits of a code. 34 operations.
template <typename G>
struct FloatStep {
  static constexpr int kMantissa = G::kGrid == Grid::kE4M3 ? 3 : 2;
  static constexpr int kLargest = G::kGrid == Grid::kE4M3 ? 0x7E : 0x7B;
  static constexpr float kMagic = 1 << (23 - kMantissa);
  static constexpr int kLeastExponent = 160;
  static constexpr float kNormal =
      float_of(static_cast<std::uint32_t>(kLeastExponent) << 23) / kMagic;

  // 32 codes behind the exponent, 16 bits each, bit 15 being the sign. Groups of four are mixed.
  static I sums(F a, F b) {
    const auto sum = [](F q) {
      const F normal = _mm512_range_ps(q, Avx512::set_float(kNormal), 3);  // larger, sign of q
      const I power = _mm512_and_si512(Avx512::as_int(normal),
                                       _mm512_set1_epi32(static_cast<int>(0xFF80'0000)));
      const F rounded = Avx512::fmadd(Avx512::as_float(power), Avx512::set_float(kMagic), q);
      return _mm512_madd_epi16(Avx512::as_int(rounded),
                               _mm512_set1_epi32(1 << 16 | 128 >> kMantissa));
    };
    return _mm512_packs_epi32(sum(a), sum(b));
  }
  static I words(F a, F b) {
    const I both = sums(a, b);
    constexpr int kMost = 128 * kLeastExponent + (kLargest << (7 - kMantissa));
    const I magnitude = _mm512_min_epu16(_mm512_and_si512(both, _mm512_set1_epi16(0x7FFF)),
                                         _mm512_set1_epi16(static_cast<short>(kMost)));
    return _mm512_ternarylogic_epi32(_mm512_srli_epi16(magnitude, 7 - kMantissa),
                                     _mm512_srli_epi16(both, 8), _mm512_set1_epi16(0x7F),
                                     0xE4);  // c ? a : b
  }
  static void encode(const Blocks<Avx512, G>& blocks, const float* x, std::size_t i,
                     std::byte* out) {
    const Quotients q(blocks, x, i);
    Avx512::store_codes<8>(out, Avx512::in_order(_mm512_packus_epi16(words(q.of[0], q.of[1]),
                                                                     words(q.of[2], q.of[3]))));
  }
};
template <>
constexpr float kPrescale<Avx512, E4M3Grid> = FloatStep<E4M3Grid>::kNormal / 0x1p-6f;
template <>
constexpr float kPrescale<Avx512, E5M2Grid> = FloatStep<E5M2Grid>::kNormal / 0x1p-14f;
template <>
struct Step<Avx512, E4M3Grid> : FloatStep<E4M3Grid> {};
template <>
struct Step<Avx512, E5M2Grid> : FloatStep<E5M2Grid> {};

// nf4 in units of 2^-30, exact at the borders. A cell of 2^26 holds at most one border. The entry
// of a cell with a border raises values from the border on to the next multiple of 2^26; the entry
// of a cell without one raises values to its code. 33 operations.
template <>
constexpr float kPrescale<Avx512, Nf4Grid> = 0x1p30f;
struct Nf4Lifts {
  alignas(64) std::int32_t of[32];
  constexpr Nf4Lifts() : of() {
    for (std::int32_t cell = -16; cell < 16; ++cell) {
      const std::int64_t low = std::int64_t{cell} << 26;
      const std::int64_t high = low + (1 << 26);
      std::int64_t code = 0;  // at the cell's start
      std::int64_t border = high;
      for (const float b : kNf4Borders) {
        const auto at = static_cast<std::int64_t>(static_cast<double>(b) * 0x1p30);
        if (at <= low) ++code;
        if (at > low && at < high) border = at;
      }
      of[cell & 31] = static_cast<std::int32_t>(((code + 1) << 26) - border);
    }
  }
};
template <>
struct Step<Avx512, Nf4Grid> {
  static void encode(const Blocks<Avx512, Nf4Grid>& blocks, const float* x, std::size_t i,
                     std::byte* out) {
    static constexpr Nf4Lifts kLifts;
    const Quotients q(blocks, x, i);
    const auto lifted = [&](int k) {
      const F most = Avx512::set_float(0x1.fffffep29f);
      const I fixed = Avx512::nearest(_mm512_range_ps(q.of[k], most, 2));  // smaller, sign of q
      const I lift =
          _mm512_permutex2var_epi32(_mm512_load_si512(kLifts.of), _mm512_srli_epi32(fixed, 26),
                                    _mm512_load_si512(kLifts.of + 16));
      return _mm512_add_epi32(fixed, lift);
    };
    const auto words = [&](int k) {
      return _mm512_srli_epi16(upper_words(lifted(k), lifted(k + 1)), 10);
    };
    Avx512::store_codes<4>(out, bytes_of_words(words(0), words(2)));
  }
};

template <>
struct Step<Avx512, SignGrid> {
  static void encode(const Blocks<Avx512, SignGrid>&, const float* x, std::size_t, std::byte* out) {
    const auto plus = [x](int k) { return Avx512::at_least_zero(Avx512::load(x + 16 * k)); };
    const __mmask64 all = Avx512::join(plus(0), plus(1), plus(2), plus(3));
    std::memcpy(out, &all, sizeof all);
  }
};

}  // namespace
}  // namespace isthmus
