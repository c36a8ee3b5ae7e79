// SPDX-License-Identifier: Apache-2.0
// The reference loops of the block codecs.
#include "quant/cpu/block_kernels.h"
#include "quant/math/block_code_math.h"

namespace isthmus {
namespace {

template <typename G>
unsigned load_code(const std::byte* codes, std::size_t i) {
  const std::size_t bit = i * G::kBits;
  unsigned word = std::to_integer<unsigned>(codes[bit / 8]) >> bit % 8;
  if (bit % 8 + G::kBits > 8)
    word |= std::to_integer<unsigned>(codes[bit / 8 + 1]) << (8 - bit % 8);
  return word & ((1u << G::kBits) - 1);
}

template <typename G>
void encode(const float* x, std::size_t n, std::size_t block, const float* scales,
            std::byte* codes) {
  std::memset(codes, 0, code_bytes(n, G::kBits));
  for (std::size_t i = 0; i < n; ++i) {
    const unsigned code = code_of<G>(x[i], scales + i / block * kScaleFloats<G>);
    const std::size_t bit = i * G::kBits;
    codes[bit / 8] |= static_cast<std::byte>(code << bit % 8);
    if (bit % 8 + G::kBits > 8) codes[bit / 8 + 1] |= static_cast<std::byte>(code >> (8 - bit % 8));
  }
}
template <typename G>
void decode(const std::byte* codes, std::size_t n, std::size_t block, const float* scales,
            float* out) {
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = value_of<G>(load_code<G>(codes, i), scales + i / block * kScaleFloats<G>);
  }
}
template <typename G>
void decode_add(const std::byte* codes, std::size_t n, std::size_t block, const float* scales,
                float* sum) {
  for (std::size_t i = 0; i < n; ++i) {
    sum[i] += value_of<G>(load_code<G>(codes, i), scales + i / block * kScaleFloats<G>);
  }
}
template <typename G>
bool valid(const std::byte* codes, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    if (!G::valid(load_code<G>(codes, i))) return false;
  }
  const std::size_t used = n * G::kBits % 8;
  return used == 0 || std::to_integer<unsigned>(codes[n * G::kBits / 8]) >> used == 0;
}

template <typename G>
constexpr GridLoops loops() {
  return {encode<G>, decode<G>, decode_add<G>, valid<G>};
}

// body(block number, values, how many) for each block in order.
template <typename Body>
void for_each_block(const float* x, std::size_t n, std::size_t block, const Body& body) {
  for (std::size_t begin = 0, b = 0; begin < n; begin += block, ++b) {
    body(b, x + begin, n - begin < block ? n - begin : block);
  }
}
float magnitude(float x) { return float_of(bits_of(x) & kAbsMask); }

// Sum of term(x[i]) in the lanes of the contract.
template <typename Term>
double lane_sum(const float* x, std::size_t n, const Term& term) {
  std::array<double, kSumLanes> lane{};
  for (std::size_t i = 0; i < n; ++i) lane[i % kSumLanes] += term(x[i]);
  for (std::size_t half = kSumLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}

void block_amax(const float* x, std::size_t n, std::size_t block, std::uint32_t* largest) {
  for_each_block(x, n, block, [&](std::size_t b, const float* v, std::size_t count) {
    largest[b] = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t bits = bits_of(v[i]) & kAbsMask;
      largest[b] = bits > largest[b] ? bits : largest[b];
    }
  });
}
void block_sum(const float* x, std::size_t n, std::size_t block, double* sums) {
  for_each_block(x, n, block, [&](std::size_t b, const float* v, std::size_t count) {
    sums[b] = lane_sum(v, count, [](float a) { return static_cast<double>(magnitude(a)); });
  });
}
void block_squares(const float* x, std::size_t n, std::size_t block, double* sums) {
  for_each_block(x, n, block, [&](std::size_t b, const float* v, std::size_t count) {
    sums[b] =
        lane_sum(v, count, [](float a) { return static_cast<double>(a) * static_cast<double>(a); });
  });
}
void encode_ternary(const float* x, std::size_t n, std::size_t block, const float* thresholds,
                    std::byte* codes, double* sums, std::uint32_t* counts) {
  encode<TernaryGrid>(x, n, block, thresholds, codes);
  for_each_block(x, n, block, [&](std::size_t b, const float* v, std::size_t count) {
    const float threshold = thresholds[b];
    sums[b] = lane_sum(v, count, [threshold](float a) {
      return magnitude(a) > threshold ? static_cast<double>(magnitude(a)) : 0.0;
    });
    counts[b] = 0;
    for (std::size_t i = 0; i < count; ++i) counts[b] += magnitude(v[i]) > threshold ? 1u : 0u;
  });
}
void block_range(const float* x, std::size_t n, std::size_t block, float* low, float* high,
                 std::uint32_t* largest) {
  block_amax(x, n, block, largest);
  for_each_block(x, n, block, [&](std::size_t b, const float* v, std::size_t count) {
    float least = float_of(kInfinityBits);
    float most = -least;
    for (std::size_t i = 0; i < count; ++i) {
      least = v[i] < least ? v[i] : least;
      most = v[i] > most ? v[i] : most;
    }
    low[b] = least + 0.0f;
    high[b] = most + 0.0f;
  });
}
void scales_for(const std::uint32_t* largest, std::size_t blocks, float top, float most,
                float* scales) {
  for (std::size_t b = 0; b < blocks; ++b) scales[b] = scale_for(largest[b], top, most);
}

}  // namespace

const BlockKernels kPortableBlockKernels = {
    .isa = "portable",
    .block_amax = block_amax,
    .block_sum = block_sum,
    .block_squares = block_squares,
    .encode_ternary = encode_ternary,
    .block_range = block_range,
    .scales_for = scales_for,
    .grids = {loops<Int8Grid>(), loops<Int4Grid>(), loops<Uint8Grid>(), loops<Nf4Grid>(),
              loops<E2M1Grid>(), loops<E3M0Grid>(), loops<E3M0LogGrid>(), loops<E4M3Grid>(),
              loops<E5M2Grid>(), loops<Lm2Grid>(), loops<Lm3Grid>(), loops<TernaryGrid>(),
              loops<SignGrid>()},
};

}  // namespace isthmus
