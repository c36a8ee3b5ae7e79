// SPDX-License-Identifier: Apache-2.0
// Vector form of block_grids.h: sixteen quotients to codes, and codes to values, for each grid.
// Included by the files named in block_loops.h, which explains V.
#pragma once

#include "quant/math/block_grids.h"

namespace isthmus {
namespace {  // NOLINT(google-build-namespaces)

template <typename V>
struct Quotient {
  using F = typename V::F;
  // x / s, correctly rounded, from its reciprocal: two Markstein corrections (IBM J. Res. Dev. 34,
  // 1990). The first leaves less than one unit of error, the second then rounds correctly; both
  // residuals are exact for scales of the plain range. Zero scales have inverse zero.
  static F exact(F x, F scale, F inverse) {
    const F q0 = V::mul(x, inverse);
    const F q1 = V::fmadd(V::fnmadd(q0, scale, x), inverse, q0);
    return V::fmadd(V::fnmadd(q1, scale, x), inverse, q1);
  }
};

// Rounds the bits of a magnitude to the mantissa bit `shift`, ties to even, and shifts the lower
// bits out.
template <typename V, int shift>
typename V::I round_bits(typename V::I a) {
  const auto half = V::add(a, V::set(static_cast<int>((1u << (shift - 1)) - 1)));
  return V::template srl<shift>(V::template add_odd<shift>(half, a));
}
// Small magnitudes: adding a power of two leaves the rounded multiple in the low bits.
template <typename V>
typename V::I small_index(typename V::I a, float magic) {
  const auto sum = V::add_float(V::as_float(a), V::set_float(magic));
  return V::sub(V::as_int(sum), V::set(static_cast<int>(bits_of(magic))));
}
template <typename V>
typename V::I magnitude_bits(typename V::F q) {
  return V::bit_and(V::as_int(q), V::set(static_cast<int>(kAbsMask)));
}
// The sign of q at bit `to`, and the index below it.
template <typename V, int to>
typename V::I with_sign(typename V::F q, typename V::I index) {
  return V::template add_sign<to>(q, index);
}

// The power of two by which quotients are multiplied; as a factor of the reciprocal it costs
// nothing and is exact. An instruction set defines where it uses one.
template <typename V, typename G>
constexpr float kPrescale = 1;

// Codes of 16 quotients, in the low bits; G is the grid.
template <typename V, typename G>
struct Coder;

template <typename V>
struct Coder<V, Int8Grid> {
  static typename V::I codes(typename V::F q) {
    return V::nearest(V::max_float(q, V::set_float(-Int8Grid::kTop)));  // packing clamps above
  }
};
template <typename V>
struct Coder<V, Int4Grid> {
  static typename V::I codes(typename V::F q) {
    return V::bit_and(V::nearest(V::clamp(q, -Int4Grid::kTop, Int4Grid::kTop)), V::set(15));
  }
};
template <typename V>
struct Coder<V, Uint8Grid> {
  static typename V::I codes(typename V::F q) {
    return V::nearest(V::clamp(q, 0, Uint8Grid::kTop));
  }
};
template <typename V>
struct Coder<V, Nf4Grid> {
  static typename V::I codes(typename V::F q) { return V::nf4(q); }
};
template <typename V>
struct Coder<V, E2M1Grid> {
  static typename V::I codes(typename V::F q) {
    const auto a = magnitude_bits<V>(q);
    const auto large = V::sub(round_bits<V, 22>(a), V::set(0xFC));
    const auto small = small_index<V>(a, 0x1p22f);
    const auto index = V::select(V::greater(a, V::set(0x3F7F'FFFF)), large, small);
    return with_sign<V, 3>(q, V::min(index, V::set(7)));
  }
};
template <typename V>
struct Coder<V, E3M0Grid> {
  static typename V::I codes(typename V::F q) {
    const auto a = magnitude_bits<V>(q);
    const auto index = V::sub(round_bits<V, 23>(a), V::set(124));
    const auto one = V::select(V::greater(a, V::set(0x3E00'0000)), V::set(1), V::set(0));
    return with_sign<V, 3>(q, V::min(V::max(index, one), V::set(7)));
  }
};
template <typename V>
struct Coder<V, E3M0LogGrid> {
  static typename V::I codes(typename V::F q) {
    const auto a = magnitude_bits<V>(q);
    const auto carried = V::add(a, V::set(static_cast<int>(E3M0LogGrid::kLogCarry)));
    const auto index = V::sub(V::template srl<23>(carried), V::set(124));
    return with_sign<V, 3>(q, V::min(V::max(index, V::set(0)), V::set(7)));
  }
};
template <typename V>
struct Coder<V, E4M3Grid> {
  static typename V::I codes(typename V::F q) {
    const auto a = magnitude_bits<V>(q);
    const auto large = V::min(V::sub(round_bits<V, 20>(a), V::set(960)), V::set(0x7E));
    const auto small = small_index<V>(a, 0x1p14f);
    return with_sign<V, 7>(q, V::select(V::greater(a, V::set(0x3C7F'FFFF)), large, small));
  }
};
template <typename V>
struct Coder<V, E5M2Grid> {
  static typename V::I codes(typename V::F q) {
    const auto a = magnitude_bits<V>(q);
    const auto large = V::min(V::sub(round_bits<V, 21>(a), V::set(448)), V::set(0x7B));
    const auto small = small_index<V>(a, 0x1p7f);
    return with_sign<V, 7>(q, V::select(V::greater(a, V::set(0x387F'FFFF)), large, small));
  }
};
template <typename V, std::size_t borders>
typename V::I count_above(typename V::F q, const std::array<float, borders>& border) {
  const auto a = magnitude_bits<V>(q);  // magnitudes compare as their bits do
  auto index = V::set(0);
  for (const float b : border) {
    index = V::add_one_where(V::greater(a, V::set(static_cast<int>(bits_of(b)))), index);
  }
  return index;
}
template <typename V>
struct Coder<V, Lm2Grid> {
  static typename V::I codes(typename V::F q) {
    return with_sign<V, 1>(q, count_above<V>(q, kLm2Borders));
  }
};
template <typename V>
struct Coder<V, Lm3Grid> {
  static typename V::I codes(typename V::F q) {
    return with_sign<V, 2>(q, count_above<V>(q, kLm3Borders));
  }
};
// Here q is x.
template <typename V>
struct Coder<V, SignGrid> {
  static typename V::I codes(typename V::F x) {
    return V::select(V::at_least_zero(x), V::set(1), V::set(0));
  }
};

// Values of 16 codes: by table for up to 16 of them.
template <typename G>
constexpr std::array<float, 16> value_table() {
  std::array<float, 16> table{};
  if constexpr (G::kBits <= 4) {
    constexpr std::size_t kCodes = std::size_t{1} << G::kBits;
    for (std::size_t c = 0; c < 16; ++c) {
      const std::size_t code = c % kCodes;
      if constexpr (G::kGrid == Grid::kInt4) {
        table[c] = static_cast<float>(code) - (code >= 8 ? 16.0f : 0.0f);
      } else if constexpr (G::kGrid == Grid::kNf4) {
        table[c] = kNf4Values[code];
      } else if constexpr (G::kGrid == Grid::kTernary) {
        table[c] = code == 0 ? 0.0f : code == 1 ? 1.0f : -1.0f;
      } else if constexpr (G::kGrid == Grid::kSign) {
        table[c] = code == 1 ? 1.0f : -1.0f;
      } else {
        const std::size_t half = kCodes / 2;
        const std::size_t i = code % half;
        float magnitude = 0;
        if constexpr (G::kGrid == Grid::kE2M1) magnitude = kE2M1Values[i];
        if constexpr (G::kGrid == Grid::kE3M0 || G::kGrid == Grid::kE3M0Log) {
          magnitude = kE3M0Values[i];
        }
        if constexpr (G::kGrid == Grid::kLm2) magnitude = kLm2Values[i];
        if constexpr (G::kGrid == Grid::kLm3) magnitude = kLm3Values[i];
        table[c] = code >= half ? -magnitude : magnitude;
      }
    }
  }
  return table;
}
template <typename G>
inline constexpr std::array<float, 16> kValueTable = value_table<G>();

template <typename V, typename G>
typename V::F values_of(typename V::I codes) {
  if constexpr (G::kGrid == Grid::kInt8) {
    return V::to_float(V::sign_extend_byte(codes));
  } else if constexpr (G::kGrid == Grid::kUint8) {
    return V::to_float(codes);
  } else if constexpr (G::kGrid == Grid::kE4M3) {
    // The fields of an fp16, 2^8 too small; exact.
    const auto half = V::bit_or(V::template sll<8>(V::bit_and(codes, V::set(0x80))),
                                V::template sll<7>(V::bit_and(codes, V::set(0x7F))));
    return V::mul(V::from_half(half), V::set_float(256));
  } else if constexpr (G::kGrid == Grid::kE5M2) {
    return V::from_half(V::template sll<8>(codes));
  } else {
    return V::lookup(kValueTable<G>.data(), codes);
  }
}
}  // namespace
}  // namespace isthmus
