// SPDX-License-Identifier: Apache-2.0
// The block loops in terms of 16 lanes, written once for every instruction set: V gives F (16
// floats), I (16 32-bit integers), M (16 conditions) and their operations. Included only by files
// with their own -m flags; everything is in an anonymous namespace for the reason in codec_math.h.
//
// A tile goes in steps of 64 values, the last one through a padded copy. Scales outside the plain
// range, marked blocks and blocks below 16 values are rare: the portable loops take them.
#pragma once

#include "isthmus/codec.h"
#include "quant/block_kernels.h"

namespace isthmus {
namespace {  // NOLINT(google-build-namespaces)

constexpr std::size_t kLanes = 16;
constexpr std::size_t kStep = 64;  // values coded at once

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

// Rounds the bits of a magnitude to the mantissa bit `shift`, ties to even, and shifts the rest
// away.
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

// A quotient may come multiplied by a power of two, so that the grid's subnormal step is 1 and
// those values round as integers do; folded into the reciprocal, it costs nothing and is exact.
template <typename V, typename G>
constexpr float kPrescale = 1;
template <typename V>
constexpr float kPrescale<V, E2M1Grid> = V::kConvertsSmall ? 2.0f : 1.0f;
template <typename V>
constexpr float kPrescale<V, E4M3Grid> = V::kConvertsSmall ? 0x1p9f : 1.0f;
template <typename V>
constexpr float kPrescale<V, E5M2Grid> = V::kConvertsSmall ? 0x1p16f : 1.0f;

// Codes of 16 quotients, in the low bits; G says which grid.
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
    if constexpr (V::kConvertsSmall) return V::template minifloat<22, 3>(q, 12, 2, 2);
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
    if constexpr (V::kConvertsSmall) return V::template minifloat<20, 7>(q, 448 * 0x1p9f, 8, 8);
    const auto a = magnitude_bits<V>(q);
    const auto large = V::min(V::sub(round_bits<V, 20>(a), V::set(960)), V::set(0x7E));
    const auto small = small_index<V>(a, 0x1p14f);
    return with_sign<V, 7>(q, V::select(V::greater(a, V::set(0x3C7F'FFFF)), large, small));
  }
};
template <typename V>
struct Coder<V, E5M2Grid> {
  static typename V::I codes(typename V::F q) {
    if constexpr (V::kConvertsSmall) return V::template minifloat<21, 7>(q, 57344 * 0x1p16f, 4, 4);
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
// Here q is x and the scale a threshold.
template <typename V>
struct Coder<V, TernaryGrid> {
  static typename V::I codes(typename V::F x, typename V::F threshold) {
    const auto above = V::greater_float(V::as_float(magnitude_bits<V>(x)), threshold);
    const auto one = with_sign<V, 1>(x, V::set(1));
    return V::select(above, one, V::set(0));
  }
};
template <typename V>
struct Coder<V, SignGrid> {
  static typename V::I codes(typename V::F x, typename V::F) {
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

template <typename G>
constexpr bool kPairs = G::kInput == GridInput::kOffset;

// 16 floats from `at`, of which `count` are there; zeros follow.
template <typename V>
typename V::F load_some(const float* at, std::size_t count) {
  if (count >= kLanes) return V::load(at);
  float rest[kLanes] = {};
  for (std::size_t k = 0; k < count; ++k) rest[k] = at[k];
  return V::load(rest);
}

// Reciprocals of a tile's scales, with room for a padded step; false: the portable loops must.
struct Inverses {
  float of[kTileValues / kLanes + kStep];

  template <typename V>
  bool find(const float* scales, std::size_t nb, float prescale) {
    auto bad = V::set(0);
    for (std::size_t b = 0; b < nb; b += kLanes) {
      const auto s = load_some<V>(scales + b, nb - b);
      const auto bits = V::as_int(s);
      const auto large = V::greater(bits, V::set(static_cast<int>(bits_of(kPlainScaleMax))));
      const auto small = V::greater(V::set(static_cast<int>(bits_of(kPlainScaleMin))), bits);
      bad = V::bit_or(bad, V::select(large, V::set(1), V::set(0)));
      bad = V::bit_or(bad, V::select(small, bits, V::set(0)));  // zero is fine
      const auto inverse = V::as_int(V::div(V::set_float(prescale), s));
      V::store(of + b, V::as_float(V::select(small, V::set(0), inverse)));
    }
    return !V::any(bad);
  }
  // Of the steps in pairs (low, step); also false for ranges that fp32 does not decode.
  bool find_pairs(const float* pairs, std::size_t nb) {
    bool plain = true;
    for (std::size_t b = 0; b < nb; ++b) {
      const float step = pairs[2 * b + 1];
      const float low = float_of(bits_of(pairs[2 * b]) & kAbsMask);
      const bool zero = bits_of(step) == 0;
      plain = plain && (zero || plain_scale(step)) && low + Uint8Grid::kTop * step <= 0x1p126f;
      of[b] = zero ? 0.0f : 1.0f / step;
    }
    return plain;
  }
};

template <typename V, typename G>
struct Blocks {
  using F = typename V::F;
  using I = typename V::I;

  const float* scales;
  const float* inverses;
  unsigned shift;  // log2 of the block

  I codes(const float* x, std::size_t i) const {
    const std::size_t b = i >> shift;
    const F v = V::load(x);
    if constexpr (G::kInput == GridInput::kThreshold) {
      return Coder<V, G>::codes(v, V::broadcast(scales + b));
    } else if constexpr (G::kInput == GridInput::kOffset) {
      const F above = V::sub_float(v, V::broadcast(scales + 2 * b));
      return Coder<V, G>::codes(V::mul(above, V::broadcast(inverses + b)));
    } else if constexpr (G::kInput == GridInput::kQuotient) {
      return Coder<V, G>::codes(
          Quotient<V>::exact(v, V::broadcast(scales + b), V::broadcast(inverses + b)));
    } else {
      return Coder<V, G>::codes(V::mul(v, V::broadcast(inverses + b)));
    }
  }
  F values(I codes, std::size_t i) const {
    const std::size_t b = i >> shift;
    const F v = values_of<V, G>(codes);
    if constexpr (kPairs<G>) {
      return V::add_float(V::broadcast(scales + 2 * b),
                          V::mul(v, V::broadcast(scales + 2 * b + 1)));
    } else {
      return V::mul(v, V::broadcast(scales + b));
    }
  }
};

inline unsigned log2_of(std::size_t block) {
  return static_cast<unsigned>(__builtin_ctzll(static_cast<unsigned long long>(block)));
}

template <typename V, typename G>
void fast_encode(const float* x, std::size_t n, std::size_t block, const float* scales,
                 std::byte* codes) {
  Inverses inverses;
  bool plain = block >= kLanes;
  if constexpr (kPairs<G>) {
    plain = plain && inverses.find_pairs(scales, blocks_of(n, block));
  } else if constexpr (G::kInput != GridInput::kThreshold) {
    plain = plain && inverses.find<V>(scales, blocks_of(n, block), kPrescale<V, G>);
  }
  if (!plain) {
    kPortableBlockKernels.grid(G::kGrid).encode(x, n, block, scales, codes);
    return;
  }
  const Blocks<V, G> blocks{scales, inverses.of, log2_of(block)};
  std::size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    V::template pack<G>(codes + i * G::kBits / 8, blocks.codes(x + i, i),
                        blocks.codes(x + i + 16, i + 16), blocks.codes(x + i + 32, i + 32),
                        blocks.codes(x + i + 48, i + 48));
  }
  if (i == n) return;
  float rest[kStep] = {};
  std::byte packed[kStep];
  typename V::I part[4];
  std::memcpy(rest, x + i, (n - i) * sizeof(float));
  for (std::size_t k = 0; k < 4; ++k) {  // lanes behind the end belong to no block
    part[k] = i + 16 * k < n ? blocks.codes(rest + 16 * k, i + 16 * k) : V::set(0);
  }
  V::template pack<G>(packed, part[0], part[1], part[2], part[3]);
  const std::size_t size = code_bytes(n - i, G::kBits);
  const unsigned used = static_cast<unsigned>((n - i) * G::kBits % 8);
  if (used != 0) packed[size - 1] &= static_cast<std::byte>((1u << used) - 1);
  std::memcpy(codes + i * G::kBits / 8, packed, size);
}

template <typename V, typename G, bool add>
void fast_decode_any(const std::byte* codes, std::size_t n, std::size_t block, const float* scales,
                     float* out) {
  bool plain = block >= kLanes;
  if constexpr (kPairs<G>) {
    Inverses inverses;
    plain = plain && inverses.find_pairs(scales, blocks_of(n, block));
  }
  if (!plain) {
    const GridLoops& loops = kPortableBlockKernels.grid(G::kGrid);
    (add ? loops.decode_add : loops.decode)(codes, n, block, scales, out);
    return;
  }
  const Blocks<V, G> blocks{scales, nullptr, log2_of(block)};
  const auto put = [](float* at, typename V::F value) {
    V::store(at, add ? V::add_float(V::load(at), value) : value);
  };
  constexpr std::size_t kSlack = 4;  // bytes that unpacking may read too many
  const std::size_t bytes = code_bytes(n, G::kBits);
  std::size_t i = 0;
  for (; i + kStep <= n && (i + kStep) * G::kBits / 8 + kSlack <= bytes; i += kStep) {
    const std::byte* const from = codes + i * G::kBits / 8;
    for (std::size_t k = 0; k < kStep; k += kLanes) {
      const auto code = V::template unpack<G::kBits>(from + k * G::kBits / 8);
      put(out + i + k, blocks.values(code, i + k));
    }
  }
  for (; i < n; i += kLanes) {
    const std::size_t count = n - i < kLanes ? n - i : kLanes;
    std::byte padded[kLanes + kSlack] = {};
    float values[kLanes];
    std::memcpy(padded, codes + i * G::kBits / 8, code_bytes(count, G::kBits));
    V::store(values, blocks.values(V::template unpack<G::kBits>(padded), i));
    for (std::size_t k = 0; k < count; ++k) out[i + k] = add ? out[i + k] + values[k] : values[k];
  }
}
template <typename V, typename G>
void fast_decode(const std::byte* codes, std::size_t n, std::size_t block, const float* scales,
                 float* out) {
  fast_decode_any<V, G, false>(codes, n, block, scales, out);
}
template <typename V, typename G>
void fast_decode_add(const std::byte* codes, std::size_t n, std::size_t block, const float* scales,
                     float* sum) {
  fast_decode_any<V, G, true>(codes, n, block, scales, sum);
}

// Bad codes of a byte, as a loop that vectorises: bytes of whole codes first, then the last.
template <typename G>
unsigned bad_codes(unsigned byte) {
  if constexpr (G::kGrid == Grid::kInt8) return byte == 0x80 ? 1u : 0u;
  if constexpr (G::kGrid == Grid::kE4M3) return (byte & 0x7Fu) == 0x7Fu ? 1u : 0u;
  if constexpr (G::kGrid == Grid::kE5M2) return (byte & 0x7Fu) >= 0x7Cu ? 1u : 0u;
  if constexpr (G::kGrid == Grid::kInt4) {
    return ((byte & 0xF0u) == 0x80u ? 1u : 0u) | ((byte & 0x0Fu) == 0x08u ? 1u : 0u);
  }
  // 10 in any pair: upper bit set, lower clear.
  if constexpr (G::kGrid == Grid::kTernary) return (byte >> 1 & ~byte & 0x55u) != 0 ? 1u : 0u;
  return 0;
}
template <typename G>
bool fast_valid(const std::byte* codes, std::size_t n) {
  const std::size_t bytes = code_bytes(n, G::kBits);
  constexpr bool kChecked = G::kGrid == Grid::kInt8 || G::kGrid == Grid::kE4M3 ||
                            G::kGrid == Grid::kE5M2 || G::kGrid == Grid::kInt4 ||
                            G::kGrid == Grid::kTernary;
  std::uint8_t bad = 0;
  if constexpr (kChecked) {
    for (std::size_t i = 0; i < bytes; ++i) {
      bad = static_cast<std::uint8_t>(bad | bad_codes<G>(static_cast<std::uint8_t>(codes[i])));
    }
  }
  const unsigned used = static_cast<unsigned>(n * G::kBits % 8);
  return bad == 0 && (used == 0 || static_cast<unsigned>(codes[bytes - 1]) >> used == 0);
}

template <typename V, typename G>
constexpr GridLoops fast_loops() {
  return {fast_encode<V, G>, fast_decode<V, G>, fast_decode_add<V, G>, fast_valid<G>};
}

// ---- statistics

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

template <typename V>
constexpr BlockKernels fast_kernels(const char* isa) {
  return {
      .isa = isa,
      .block_amax = fast_amax<V>,
      .block_sum = fast_sum<V>,
      .block_squares = fast_squares<V>,
      .block_sum_above = fast_sum_above<V>,
      .block_range = fast_range<V>,
      .scales_for = fast_scales_for<V>,
      .grids = {fast_loops<V, Int8Grid>(), fast_loops<V, Int4Grid>(), fast_loops<V, Uint8Grid>(),
                fast_loops<V, Nf4Grid>(), fast_loops<V, E2M1Grid>(), fast_loops<V, E3M0Grid>(),
                fast_loops<V, E3M0LogGrid>(), fast_loops<V, E4M3Grid>(), fast_loops<V, E5M2Grid>(),
                fast_loops<V, Lm2Grid>(), fast_loops<V, Lm3Grid>(), fast_loops<V, TernaryGrid>(),
                fast_loops<V, SignGrid>()}};
}

}  // namespace
}  // namespace isthmus
