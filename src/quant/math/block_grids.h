// SPDX-License-Identifier: Apache-2.0
// The code tables of the block codecs, one value at a time: the definition of the formats and the
// oracle of every vector loop. A grid maps the quotient q = x / scale to a code of kBits bits and a
// code to its value; the decoded value is value * scale, rounded once.
//
// Functions are `static` for the reason given in codec_math.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "quant/math/codec_math.h"

namespace isthmus {

/// Order of the kernel tables; not on the wire.
enum class Grid : std::uint8_t {
  kInt8,
  kInt4,
  kUint8,
  kNf4,
  kE2M1,
  kE3M0,
  kE3M0Log,
  kE4M3,
  kE5M2,
  kLm2,
  kLm3,
  kTernary,
  kSign,
};
inline constexpr std::size_t kGrids = 13;

/// The operation that combines a value with its scale.
enum class GridInput {
  kQuotient,    // x / scale, correctly rounded
  kReciprocal,  // x * (1 / scale), two roundings; beyond the plain range x / scale
  kThreshold,   // |x| against the "scale", which is a threshold (ternary); the sign of x (1bit)
  kOffset,      // (x - low) / step: scales are pairs
};

/// Entry `index` of a table, and the number of its entries for which `is_below` is true. A device
/// cannot take the address of the host's std::array, but may use its values.
template <const auto& table>
struct TableOf {
  template <std::size_t... i>
  ISTHMUS_HOST_DEVICE static float entry(unsigned index, std::index_sequence<i...>) {
    static constexpr float kEntries[] = {table[i]...};
    return kEntries[index];
  }
  ISTHMUS_HOST_DEVICE static float entry(unsigned index) {
    return entry(index, std::make_index_sequence<table.size()>{});
  }
  template <std::size_t i>
  static constexpr float kEntry = table[i];
  template <typename IsBelow, std::size_t... i>
  ISTHMUS_HOST_DEVICE static constexpr unsigned count(const IsBelow& is_below,
                                                      std::index_sequence<i...>) {
    return (0u + ... + (is_below(kEntry<i>) ? 1u : 0u));
  }
  template <typename IsBelow>
  ISTHMUS_HOST_DEVICE static constexpr unsigned count(const IsBelow& is_below) {
    return count(is_below, std::make_index_sequence<table.size()>{});
  }
};

/// Sign and a 3-bit magnitude index: the shape of the 4-bit float codes.
ISTHMUS_HOST_DEVICE static constexpr unsigned sign_bit(float x, unsigned to) {
  return bits_of(x) >> 31 << to;
}

struct Int8Grid {
  static constexpr Grid kGrid = Grid::kInt8;
  static constexpr GridInput kInput = GridInput::kQuotient;
  static constexpr unsigned kBits = 8;
  static constexpr float kTop = kInt8Levels;
  ISTHMUS_HOST_DEVICE static unsigned code(float q) {
    return static_cast<std::uint8_t>(int8_of_quotient(q));
  }
  ISTHMUS_HOST_DEVICE static float value(unsigned code) {
    return static_cast<float>(static_cast<std::int8_t>(code));
  }
  ISTHMUS_HOST_DEVICE static bool valid(unsigned code) { return code != 0x80; }
};

/// Two's complement, -7 .. 7.
struct Int4Grid {
  static constexpr Grid kGrid = Grid::kInt4;
  static constexpr GridInput kInput = GridInput::kReciprocal;
  static constexpr unsigned kBits = 4;
  static constexpr float kTop = 7;
  ISTHMUS_HOST_DEVICE static unsigned code(float q) {
    const float low = q < -kTop ? -kTop : q;
    const float clamped = low > kTop ? kTop : low;
    return bits_of(clamped + 0x1.8p23f) & 15u;
  }
  ISTHMUS_HOST_DEVICE static float value(unsigned code) {
    return static_cast<float>(static_cast<int>(code) - (code >= 8 ? 16 : 0));
  }
  ISTHMUS_HOST_DEVICE static bool valid(unsigned code) { return code != 8; }
};

/// 0 .. 255 steps above the block's least value; scales are pairs (low, step).
struct Uint8Grid {
  static constexpr Grid kGrid = Grid::kUint8;
  static constexpr GridInput kInput = GridInput::kOffset;
  static constexpr unsigned kBits = 8;
  static constexpr float kTop = 255;
  ISTHMUS_HOST_DEVICE static unsigned code(float q) {
    const float clamped = q > kTop ? kTop : q;  // q >= 0
    return bits_of(clamped + 0x1p23f) & 255u;
  }
  ISTHMUS_HOST_DEVICE static float value(unsigned code) { return static_cast<float>(code); }
  ISTHMUS_HOST_DEVICE static bool valid(unsigned) { return true; }
};

/// QLoRA's table (arXiv:2305.14314, appendix E), quantiles of the normal distribution.
inline constexpr std::array<float, 16> kNf4Values = {-1.0f,
                                                     -0.6961928009986877f,
                                                     -0.5250730514526367f,
                                                     -0.39491748809814453f,
                                                     -0.28444138169288635f,
                                                     -0.18477343022823334f,
                                                     -0.09105003625154495f,
                                                     0.0f,
                                                     0.07958029955625534f,
                                                     0.16093020141124725f,
                                                     0.24611230194568634f,
                                                     0.33791524171829224f,
                                                     0.44070982933044434f,
                                                     0.5626170039176941f,
                                                     0.7229568362236023f,
                                                     1.0f};
/// Borders from code i to i + 1: (v[i] + v[i+1]) / 2 in fp32. A tie goes up.
inline constexpr std::array<float, 15> kNf4Borders = [] {
  std::array<float, 15> borders{};
  for (std::size_t i = 0; i < borders.size(); ++i) {
    borders[i] = (kNf4Values[i] + kNf4Values[i + 1]) / 2;
  }
  return borders;
}();

struct Nf4Grid {
  static constexpr Grid kGrid = Grid::kNf4;
  static constexpr GridInput kInput = GridInput::kReciprocal;
  static constexpr unsigned kBits = 4;
  static constexpr float kTop = 1;
  ISTHMUS_HOST_DEVICE static unsigned code(float q) {
    return TableOf<kNf4Borders>::count([q](float border) { return q >= border; });
  }
  ISTHMUS_HOST_DEVICE static float value(unsigned code) { return TableOf<kNf4Values>::entry(code); }
  ISTHMUS_HOST_DEVICE static bool valid(unsigned) { return true; }
};

inline constexpr std::array<float, 8> kE2M1Values = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
/// OCP E2M1: sign, then an index into kE2M1Values; ties to the even index, beyond 6 it saturates.
struct E2M1Grid {
  static constexpr Grid kGrid = Grid::kE2M1;
  static constexpr GridInput kInput = GridInput::kReciprocal;
  static constexpr unsigned kBits = 4;
  static constexpr float kTop = 6;
  ISTHMUS_HOST_DEVICE static constexpr unsigned code(float q) {
    const std::uint32_t a = bits_of(q) & kAbsMask;
    unsigned index = 0;
    if (a >= 0x3F80'0000u) {  // >= 1: one mantissa bit
      index = (a + 0x1F'FFFFu + (a >> 22 & 1u)) >> 22;
      index = index - 0xFCu > 7u ? 7u : index - 0xFCu;
    } else {  // steps of a half: adding 2^22 rounds to them
      index = bits_of(float_of(a) + 0x1p22f) & 7u;
    }
    return sign_bit(q, 3) | index;
  }
  ISTHMUS_HOST_DEVICE static float value(unsigned code) {
    return float_of(bits_of(TableOf<kE2M1Values>::entry(code & 7u)) | (code & 8u) << 28);
  }
  ISTHMUS_HOST_DEVICE static bool valid(unsigned) { return true; }
};

inline constexpr std::array<float, 8> kE3M0Values = {0, .25f, .5f, 1, 2, 4, 8, 16};
/// Sign, then 0 or a power of two; the border between powers is their arithmetic mean (ties to the
/// even index) or their geometric mean.
template <bool kLog>
struct E3M0GridOf {
  static constexpr Grid kGrid = kLog ? Grid::kE3M0Log : Grid::kE3M0;
  static constexpr GridInput kInput = GridInput::kReciprocal;
  static constexpr unsigned kBits = 4;
  static constexpr float kTop = 16;
  // 2^23 minus the mantissa of sqrt(2): larger mantissas carry into the exponent
  static constexpr std::uint32_t kLogCarry = 0x80'0000u - 0x35'04F3u;
  ISTHMUS_HOST_DEVICE static constexpr unsigned code(float q) {
    const std::uint32_t a = bits_of(q) & kAbsMask;
    const std::uint32_t carried = kLog ? a + kLogCarry : a + 0x3F'FFFFu + (a >> 23 & 1u);
    int index = static_cast<int>(carried >> 23) - 124;
    if (!kLog && index < 1) index = a > 0x3E00'0000u ? 1 : 0;  // above 1/8
    index = index < 0 ? 0 : index > 7 ? 7 : index;
    return sign_bit(q, 3) | static_cast<unsigned>(index);
  }
  ISTHMUS_HOST_DEVICE static float value(unsigned code) {
    return float_of(bits_of(TableOf<kE3M0Values>::entry(code & 7u)) | (code & 8u) << 28);
  }
  ISTHMUS_HOST_DEVICE static bool valid(unsigned) { return true; }
};
using E3M0Grid = E3M0GridOf<false>;
using E3M0LogGrid = E3M0GridOf<true>;

/// FP8 E4M3 (FN): no infinity, 0x7F is NaN, beyond 448 it saturates.
struct E4M3Grid {
  static constexpr Grid kGrid = Grid::kE4M3;
  static constexpr GridInput kInput = GridInput::kReciprocal;
  static constexpr unsigned kBits = 8;
  static constexpr float kTop = 448;
  ISTHMUS_HOST_DEVICE static unsigned code(float q) {
    const std::uint32_t a = bits_of(q) & kAbsMask;
    if (a > kInfinityBits) return sign_bit(q, 7) | 0x7Fu;
    unsigned magnitude = 0;
    if (a >= 0x3C80'0000u) {  // >= 2^-6: normal
      const std::uint32_t rounded = ((a + 0x7'FFFFu + (a >> 20 & 1u)) >> 20) - 960u;
      magnitude = rounded > 0x7Eu ? 0x7Eu : rounded;
    } else {  // steps of 2^-9
      magnitude = bits_of(float_of(a) + 0x1p14f) & 15u;
    }
    return sign_bit(q, 7) | magnitude;
  }
  ISTHMUS_HOST_DEVICE static float value(unsigned code) {
    const float magnitude = float_of((code & 0x7Fu) << 20) * 0x1p120f;
    return float_of(bits_of(magnitude) | (code & 0x80u) << 24);
  }
  ISTHMUS_HOST_DEVICE static bool valid(unsigned code) { return (code & 0x7Fu) != 0x7Fu; }
};

/// FP8 E5M2: the upper byte of an fp16; saturates beyond 57344, so no encoder makes infinity.
struct E5M2Grid {
  static constexpr Grid kGrid = Grid::kE5M2;
  static constexpr GridInput kInput = GridInput::kReciprocal;
  static constexpr unsigned kBits = 8;
  static constexpr float kTop = 57344;
  ISTHMUS_HOST_DEVICE static unsigned code(float q) {
    const std::uint32_t a = bits_of(q) & kAbsMask;
    if (a > kInfinityBits) return sign_bit(q, 7) | 0x7Fu;
    unsigned magnitude = 0;
    if (a >= 0x3880'0000u) {  // >= 2^-14: normal
      const std::uint32_t rounded = ((a + 0xF'FFFFu + (a >> 21 & 1u)) >> 21) - 448u;
      magnitude = rounded > 0x7Bu ? 0x7Bu : rounded;
    } else {  // steps of 2^-16
      magnitude = bits_of(float_of(a) + 0x1p7f) & 7u;
    }
    return sign_bit(q, 7) | magnitude;
  }
  ISTHMUS_HOST_DEVICE static float value(unsigned code) {
    return float_of_fp16(static_cast<std::uint16_t>(code << 8));
  }
  ISTHMUS_HOST_DEVICE static bool valid(unsigned code) { return (code & 0x7Fu) < 0x7Cu; }
};

/// Lloyd-Max points of the unit normal distribution; sign, then magnitude. Code borders are
/// midpoints; a tie goes to the smaller magnitude.
inline constexpr std::array<float, 2> kLm2Values = {.4528f, 1.5104f};
inline constexpr std::array<float, 1> kLm2Borders = {.9816f};
inline constexpr std::array<float, 4> kLm3Values = {.2451f, .7560f, 1.3439f, 2.1519f};
inline constexpr std::array<float, 3> kLm3Borders = {.50055f, 1.04995f, 1.7479f};

template <Grid grid, std::size_t points>
struct LloydMaxGrid {
  static constexpr Grid kGrid = grid;
  static constexpr GridInput kInput = GridInput::kReciprocal;
  static constexpr unsigned kBits = points == 2 ? 2 : 3;
  static constexpr float kTop = points == 2 ? kLm2Values[1] : kLm3Values[3];
  ISTHMUS_HOST_DEVICE static constexpr unsigned code(float q) {
    const float a = float_of(bits_of(q) & kAbsMask);
    const auto above = [a](float border) { return a > border; };
    return sign_bit(q, kBits - 1) |
           (points == 2 ? TableOf<kLm2Borders>::count(above) : TableOf<kLm3Borders>::count(above));
  }
  ISTHMUS_HOST_DEVICE static float value(unsigned code) {
    const unsigned index = code & (points - 1);
    const float magnitude =
        points == 2 ? TableOf<kLm2Values>::entry(index & 1u) : TableOf<kLm3Values>::entry(index);
    return float_of(bits_of(magnitude) | code >> (kBits - 1) << 31);
  }
  ISTHMUS_HOST_DEVICE static bool valid(unsigned) { return true; }
};
using Lm2Grid = LloydMaxGrid<Grid::kLm2, 2>;
using Lm3Grid = LloydMaxGrid<Grid::kLm3, 4>;

/// -1, 0, 1 in two's complement.
struct TernaryGrid {
  static constexpr Grid kGrid = Grid::kTernary;
  static constexpr GridInput kInput = GridInput::kThreshold;
  static constexpr unsigned kBits = 2;
  static constexpr float kTop = 1;
  ISTHMUS_HOST_DEVICE static unsigned code(float x, float threshold) {
    const float a = float_of(bits_of(x) & kAbsMask);
    return a > threshold ? 1u | sign_bit(x, 1) : 0u;
  }
  ISTHMUS_HOST_DEVICE static float value(unsigned code) {
    return code == 0 ? 0.0f : code == 1 ? 1.0f : -1.0f;
  }
  ISTHMUS_HOST_DEVICE static bool valid(unsigned code) { return code != 2; }
};

/// Bit 1 is +; zero counts as +.
struct SignGrid {
  static constexpr Grid kGrid = Grid::kSign;
  static constexpr GridInput kInput = GridInput::kThreshold;
  static constexpr unsigned kBits = 1;
  static constexpr float kTop = 1;
  ISTHMUS_HOST_DEVICE static unsigned code(float x, float) { return x >= 0 ? 1u : 0u; }
  ISTHMUS_HOST_DEVICE static float value(unsigned code) { return code == 1 ? 1.0f : -1.0f; }
  ISTHMUS_HOST_DEVICE static bool valid(unsigned) { return true; }
};

/// The scale that maps a magnitude to the grid's largest value `top`; NaN for a magnitude that is
/// not finite. Below the normal range the quotient is rounded up, so that the magnitude still fits;
/// `most` is the largest scale whose product with top is finite.
ISTHMUS_HOST_DEVICE static inline float scale_for(std::uint32_t magnitude, float top, float most) {
  if (magnitude >= kInfinityBits) return float_of(kQuietNanBits);
  const float scale = float_of(magnitude) / top;
  if (scale < 0x1p-126f && scale * top < float_of(magnitude)) return float_of(bits_of(scale) + 1);
  return scale < most ? scale : most;
}

/// In this range a scale's reciprocal is normal, and so are the quotients that matter.
ISTHMUS_HOST_DEVICE static inline bool plain_scale(float scale) {
  return scale >= kPlainScaleMin && scale <= kPlainScaleMax;
}

/// Calls `visit(GridType{})` with the type of the grid.
template <typename Visit>
decltype(auto) visit_grid(Grid grid, const Visit& visit) {
  switch (grid) {
    case Grid::kInt8:
      return visit(Int8Grid{});
    case Grid::kInt4:
      return visit(Int4Grid{});
    case Grid::kUint8:
      return visit(Uint8Grid{});
    case Grid::kNf4:
      return visit(Nf4Grid{});
    case Grid::kE2M1:
      return visit(E2M1Grid{});
    case Grid::kE3M0:
      return visit(E3M0Grid{});
    case Grid::kE3M0Log:
      return visit(E3M0LogGrid{});
    case Grid::kE4M3:
      return visit(E4M3Grid{});
    case Grid::kE5M2:
      return visit(E5M2Grid{});
    case Grid::kLm2:
      return visit(Lm2Grid{});
    case Grid::kLm3:
      return visit(Lm3Grid{});
    case Grid::kTernary:
      return visit(TernaryGrid{});
    case Grid::kSign:
      break;
  }
  return visit(SignGrid{});
}

}  // namespace isthmus
