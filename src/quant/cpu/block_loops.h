// SPDX-License-Identifier: Apache-2.0
// The block loops over 16 lanes, one source for every instruction set: V defines F (16 floats), I
// (16 32-bit integers), M (16 conditions) and their operations. Included only by files with their
// own -m flags; everything is in an anonymous namespace for the reason given in codec_math.h.
//
// A tile is processed in steps of 64 values, the last one through a padded copy. The portable loops
// process the rare cases: scales outside the plain range, marked blocks and blocks below 16 values.
#pragma once

#include "isthmus/codec.h"
#include "quant/cpu/block_coders.h"
#include "quant/cpu/block_kernels.h"
#include "quant/cpu/block_statistics.h"
#include "quant/cpu/ternary_loops.h"

namespace isthmus {
namespace {  // NOLINT(google-build-namespaces)

template <typename G>
constexpr bool kPairs = G::kInput == GridInput::kOffset;

// Reciprocals of a tile's scales, with room for a padded step; false: use the portable loops.
struct Inverses {
  float of[kTileValues / kLanes + kStep];

  template <typename V>
  bool find(const float* scales, std::size_t nb, float prescale) {
    const float least = kPlainScaleMin * prescale;  // so that no inverse overflows
    auto bad = V::set(0);
    for (std::size_t b = 0; b < nb; b += kLanes) {
      const auto s = V::load_some(scales + b, nb - b);
      const auto bits = V::as_int(s);
      const auto large = V::greater(bits, V::set(static_cast<int>(bits_of(kPlainScaleMax))));
      const auto small = V::greater(V::set(static_cast<int>(bits_of(least))), bits);
      bad = V::bit_or(bad, V::select(large, V::set(1), V::set(0)));
      bad = V::bit_or(bad, V::select(small, bits, V::set(0)));  // zero is fine
      const auto inverse = V::as_int(V::div(V::set_float(prescale), s));
      V::store(of + b, V::as_float(V::select(small, V::set(0), inverse)));
    }
    return !V::any(bad);
  }
  // The same for steps in pairs (low, step); also false for ranges that fp32 does not decode.
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

  // The number from which a code is computed, for grids that need only one.
  F quotient(const float* x, std::size_t i) const {
    const std::size_t b = i >> shift;
    const F v = V::load(x);
    if constexpr (G::kInput == GridInput::kOffset) {
      const F above = V::sub_float(v, V::broadcast(scales + 2 * b));
      return V::mul(above, V::broadcast(inverses + b));
    } else if constexpr (G::kInput == GridInput::kQuotient) {
      const F inverse = V::mul(V::broadcast(inverses + b), V::set_float(1 / kPrescale<V, G>));
      return Quotient<V>::exact(v, V::broadcast(scales + b), inverse);
    } else {
      return V::mul(v, V::broadcast(inverses + b));
    }
  }
  I codes(const float* x, std::size_t i) const {
    if constexpr (G::kInput == GridInput::kThreshold) {
      return Coder<V, G>::codes(V::load(x));
    } else {
      return Coder<V, G>::codes(quotient(x, i));
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

// Codes of 64 values. An instruction set may define a faster form than four times 16.
template <typename V, typename G>
struct Step {
  static void encode(const Blocks<V, G>& blocks, const float* x, std::size_t i, std::byte* out) {
    V::template pack<G>(out, blocks.codes(x, i), blocks.codes(x + 16, i + 16),
                        blocks.codes(x + 32, i + 32), blocks.codes(x + 48, i + 48));
  }
};

// Called while 64 of n values are coded and the next part has been read: prefetches the part after
// it.
template <typename G>
[[gnu::always_inline]] inline void prefetch_ahead(const float* x, std::size_t i, std::size_t n) {
  if (n <= kPart) {
    prefetch(x + i, 3 * kPart, 4);
  } else if (kPairs<G>) {
    prefetch(x, n + kPart + n / 2 + i / 2, 2);
  } else {
    prefetch(x + i, n + kPart, 4);
  }
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
    prefetch_ahead<G>(x, i, n);
    Step<V, G>::encode(blocks, x + i, i, codes + i * G::kBits / 8);
  }
  if (i == n) return;
  // The last values followed by zeros; each group of 16 has its block's scale, or the last one.
  float rest[kStep] = {};
  float rest_scales[2 * kStep / kLanes];
  float rest_inverses[kStep / kLanes];
  std::memcpy(rest, x + i, (n - i) * sizeof(float));
  for (std::size_t k = 0; k < kStep / kLanes; ++k) {
    const std::size_t at = i + k * kLanes;
    const std::size_t b = (at < n ? at : n - 1) >> blocks.shift;
    if constexpr (G::kInput != GridInput::kThreshold) rest_inverses[k] = inverses.of[b];
    constexpr std::size_t kFloats = kPairs<G> ? 2 : 1;
    std::memcpy(rest_scales + kFloats * k, scales + kFloats * b, kFloats * sizeof(float));
  }
  std::byte packed[kStep];
  Step<V, G>::encode({rest_scales, rest_inverses, log2_of(kLanes)}, rest, 0, packed);
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
  constexpr std::size_t kSlack = G::kBits < 4 ? 4 - G::kBits : 0;  // bytes unpacked too many
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

// Invalid codes of a byte, as a loop that vectorises: first bytes of whole codes, then the last
// byte.
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
  GridLoops loops{nullptr, fast_decode<V, G>, fast_decode_add<V, G>, fast_valid<G>};
  if constexpr (G::kGrid == Grid::kTernary) {
    loops.encode = fast_ternary_codes<V>;
  } else {
    loops.encode = fast_encode<V, G>;
  }
  return loops;
}

template <typename V>
constexpr BlockKernels fast_kernels(const char* isa) {
  return {
      .isa = isa,
      .block_amax = fast_amax<V>,
      .block_sum = fast_sum<V>,
      .block_squares = fast_squares<V>,
      .encode_ternary = fast_encode_ternary<V>,
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
