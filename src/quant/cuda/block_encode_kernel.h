// SPDX-License-Identifier: Apache-2.0
// Block codecs: scales and codes of a tile in one pass over memory. With b bits a value, scales
// included: 4 + b / 8 bytes of traffic a value, 12 + b / 8 with error feedback. Values stay in
// shared memory until their scales are known, so that a short loop codes them and a multiprocessor
// holds many tiles; sums of doubles have the codec's order. Each block_encode_*.cu instantiates the
// kernels for some grids, to spread the compile time.
#pragma once

#include <cmath>
#include <type_traits>

#include "quant/cuda/block_encode.h"
#include "quant/cuda/block_tile.h"

namespace isthmus::cuda {
namespace {

constexpr unsigned kSumLanes = 16;  // as in block_kernels.h
constexpr unsigned kWarps = kTileThreads / kWarp;
constexpr unsigned kWarpLog2 = 9;  // log2 of the number of a warp's values
static_assert(1u << kWarpLog2 == kChunks * kWarpValues);

struct Range {
  float low, high;
  std::uint32_t largest;
};
__device__ Range from_lane(const Range& mine, int mask) {
  return {__shfl_xor_sync(kAllLanes, mine.low, mask), __shfl_xor_sync(kAllLanes, mine.high, mask),
          __shfl_xor_sync(kAllLanes, mine.largest, mask)};
}
__device__ std::uint32_t from_lane(std::uint32_t mine, int mask) {
  return __shfl_xor_sync(kAllLanes, mine, mask);
}
__device__ double from_lane(double mine, int mask) {
  return __shfl_xor_sync(kAllLanes, mine, mask);
}

// Position of value i of a tile in shared memory: odd blocks have their halves of 32 values
// swapped, so that the lanes that sum two blocks access different banks. Four consecutive values
// stay together.
__device__ unsigned place_of(unsigned i, unsigned block_log2) {
  return block_log2 >= 5 ? i ^ (i >> block_log2 & 1u) << 4 : i;
}

// part[c] := merge() over a warp's values of a block, for the first chunk c of each block; from
// each thread's 4 values of a chunk. REQUIRES: blocks of at least 4.
template <unsigned kStep, typename T, typename Merge>
__device__ void over_lanes(T (&part)[kChunks], unsigned lanes, const Merge& merge) {
  for (unsigned d = 1; d < lanes; d *= 2) {
#pragma unroll
    for (unsigned c = 0; c < kChunks; c += kStep) {
      part[c] = merge(part[c], from_lane(part[c], static_cast<int>(d)));
    }
  }
}
template <typename T, typename Merge>
__device__ void over_warp(T (&part)[kChunks], unsigned block_log2, const Merge& merge) {
  if (block_log2 <= 7) {
    over_lanes<1>(part, (1u << block_log2) / kChunkValues, merge);
    return;
  }
  part[0] = merge(part[0], part[1]);
  part[2] = merge(part[2], part[3]);
  if (block_log2 == 8) {
    over_lanes<2>(part, kWarp, merge);
  } else {
    part[0] = merge(part[0], part[2]);
    over_lanes<4>(part, kWarp, merge);
  }
}

// The warps' results for blocks: of a block, or of a warp's part of a larger one. Stored in the
// place of the blocks' scales, or in `shares` for the larger ones.
struct Found {
  float* at;
  unsigned log2;    // log2 of the number of values of each result
  unsigned shares;  // number of results of a block
};
__device__ Found found_of(const BlockShape& shape, float* scales, float* shares) {
  if (shape.block_log2 <= kWarpLog2) return {scales, shape.block_log2, 1};
  return {shares, kWarpLog2, 1u << (shape.block_log2 - kWarpLog2)};
}

// True on the thread that represents the block of 2^log2 values that contains its chunk.
__device__ bool begins_block(unsigned i, unsigned log2) { return (i & ((1u << log2) - 1)) == 0; }

__device__ float largest_scale_of(const BlockShape& shape, std::uint32_t largest) {
  return shape.statistic == Statistic::kPowerOfTwo
             ? power_of_two_scale(largest, shape.top)
             : scale_for(largest, shape.top, shape.most_scale);
}

// The largest magnitude of each block. Values after the end are zeros.
__device__ void find_largest(const ChunkValues& v, const Found& found) {
  const auto larger = [](std::uint32_t a, std::uint32_t b) { return a > b ? a : b; };
  std::uint32_t part[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    std::uint32_t most = 0;
#pragma unroll
    for (unsigned k = 0; k < kChunkValues; ++k) {
      most = larger(most, bits_of(v[c][k]) & kAbsMask);
      if (found.log2 < 2) {  // blocks of 1 or 2
        const unsigned i = chunk_place(c) + k;
        if (begins_block(i + 1, found.log2)) {
          found.at[i >> found.log2] = float_of(most);
          most = 0;
        }
      }
    }
    part[c] = most;
  }
  if (found.log2 < 2) return;
  over_warp(part, found.log2, larger);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const unsigned i = chunk_place(c);
    if (begins_block(i, found.log2)) found.at[i >> found.log2] = float_of(part[c]);
  }
}
// Thread b % kTileThreads reads and writes scale b.
__device__ void scale_by_largest(const BlockShape& shape, unsigned blocks, const Found& found,
                                 float* scales) {
  for (unsigned b = threadIdx.x; b < blocks; b += kTileThreads) {
    std::uint32_t most = 0;
    for (unsigned s = b * found.shares; s < (b + 1) * found.shares; ++s) {
      const std::uint32_t bits = bits_of(found.at[s]);
      most = bits > most ? bits : most;
    }
    scales[b] = largest_scale_of(shape, most);
  }
}

// Pairs (lowest, highest) of blocks, the lowest NaN if a value is not finite. fminf and fmaxf
// ignore a NaN; their choice between two zeros does not matter, since -0 counts as 0.
__device__ void find_range(unsigned n, const ChunkValues& v, const Found& found) {
  Range part[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    part[c] = {float_of(kInfinityBits), -float_of(kInfinityBits), 0};
#pragma unroll
    for (unsigned k = 0; k < kChunkValues; ++k) {
      if (n < kTileValues && chunk_place(c) + k >= n) continue;
      const float x = v[c][k];
      const std::uint32_t bits = bits_of(x) & kAbsMask;
      part[c].low = fminf(part[c].low, x);
      part[c].high = fmaxf(part[c].high, x);
      part[c].largest = bits > part[c].largest ? bits : part[c].largest;
    }
  }
  over_warp(part, found.log2, [](const Range& a, const Range& b) {
    return Range{fminf(a.low, b.low), fmaxf(a.high, b.high),
                 b.largest > a.largest ? b.largest : a.largest};
  });
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const unsigned i = chunk_place(c);
    if (!begins_block(i, found.log2)) continue;
    float* const pair = found.at + 2 * (i >> found.log2);
    pair[0] = part[c].largest < kInfinityBits ? part[c].low : float_of(kQuietNanBits);
    pair[1] = part[c].high;
  }
}
__device__ void scale_by_range(unsigned blocks, const Found& found, float* pairs) {
  for (unsigned b = threadIdx.x; b < blocks; b += kTileThreads) {
    Range range{float_of(kInfinityBits), -float_of(kInfinityBits), 0};
    for (unsigned s = b * found.shares; s < (b + 1) * found.shares; ++s) {
      if (is_nan(found.at[2 * s])) range.largest = kInfinityBits;
      range.low = fminf(range.low, found.at[2 * s]);
      range.high = fmaxf(range.high, found.at[2 * s + 1]);
    }
    range_scale(range.low + 0.0f, range.high + 0.0f, range.largest, pairs + 2 * b);
  }
}

// done(block, sum of term(x)) on one thread per block: 16 lanes of values in order, then halves.
// The tile is in shared memory, with zeros after its end.
template <typename T, typename Term, typename Done>
__device__ void sum_blocks(const float* tile, unsigned n, unsigned block_log2, const Term& term,
                           const Done& done) {
  const unsigned chains = blocks_in(n, block_log2) * kSumLanes;
  const unsigned block = 1u << block_log2;
  for (unsigned first = threadIdx.x / kWarp * kWarp; first < chains; first += kTileThreads) {
    const unsigned chain = first + threadIdx.x % kWarp;
    const unsigned b = chain / kSumLanes;
    T sum{};
    if (chain < chains) {
      const unsigned swap = place_of(b * block, block_log2) ^ b * block;
#pragma unroll 4
      for (unsigned i = chain % kSumLanes; i < block; i += kSumLanes) {
        sum += term(tile[b * block + (i ^ swap)], b);
      }
    }
    for (int half = kSumLanes / 2; half > 0; half /= 2) sum += from_lane(sum, half);
    if (chain < chains && chain % kSumLanes == 0) done(b, sum);
  }
  __syncthreads();
}

__device__ double mean_of(double sum, unsigned b, unsigned n, unsigned block_log2) {
  const unsigned block = 1u << block_log2;
  const unsigned left = n - b * block;
  return sum / static_cast<double>(left < block ? left : block);
}
__device__ double square_of(float x) { return static_cast<double>(x) * static_cast<double>(x); }
__device__ double magnitude_of(float x) {
  return static_cast<double>(float_of(bits_of(x) & kAbsMask));
}

__device__ void find_means(const BlockShape& shape, unsigned n, const float* tile, float* scales) {
  const unsigned log2 = shape.block_log2;
  const bool rms = shape.statistic == Statistic::kRms;
  sum_blocks<double>(
      tile, n, log2, [rms](float x, unsigned) { return rms ? square_of(x) : magnitude_of(x); },
      [&](unsigned b, double sum) {
        const double mean = mean_of(sum, b, n, log2);
        scales[b] = mean_scale(rms ? sqrt(mean) : mean, shape.most_scale);
      });
}

struct Counted {
  double sum = 0;
  unsigned count = 0;
  __device__ Counted& operator+=(const Counted& other) {
    sum += other.sum;
    count += other.count;
    return *this;
  }
};
__device__ Counted from_lane(const Counted& mine, int mask) {
  return {from_lane(mine.sum, mask), from_lane(mine.count, mask)};
}

// Thresholds, and then as scales the means of the values above them.
__device__ void find_ternary(const BlockShape& shape, unsigned n, const float* tile,
                             float* thresholds, float* scales) {
  const unsigned log2 = shape.block_log2;
  sum_blocks<double>(
      tile, n, log2, [](float x, unsigned) { return square_of(x); },
      [&](unsigned b, double sum) {
        thresholds[b] = ternary_threshold(sqrt(mean_of(sum, b, n, log2)));
      });
  sum_blocks<Counted>(
      tile, n, log2,
      [thresholds](float x, unsigned b) {
        const bool above = float_of(bits_of(x) & kAbsMask) > thresholds[b];
        return Counted{above ? magnitude_of(x) : 0.0, above ? 1u : 0u};
      },
      [&](unsigned b, const Counted& above) {
        const double mean = above.count > 0 ? above.sum / static_cast<double>(above.count) : 0;
        scales[b] = is_nan(thresholds[b]) ? thresholds[b] : mean_scale(mean, shape.most_scale);
      });
}

// Stores the codes of a chunk, low bits first, among the tile's; two lanes share bytes if 4 codes
// are not whole bytes. `whole`: the tile is whole, and `codes` is aligned to a thread's part.
template <unsigned kBits>
__device__ void put_codes(unsigned char* codes, bool whole, unsigned n, unsigned i,
                          std::uint32_t word) {
  if constexpr (kBits == 8 || kBits == 4) {
    using Word = std::conditional_t<kBits == 8, std::uint32_t, std::uint16_t>;
    if (whole) return store_as<Word>(codes + i * kBits / 8, static_cast<Word>(word));
  }
  if (i + kChunkValues > n) {
    const unsigned inside = i < n ? n - i : 0;
    word &= (1u << inside * kBits) - 1;
  }
  unsigned bytes = kBits / 2;
  bool mine = true;
  if constexpr (kBits % 2 != 0) {
    const std::uint32_t next = __shfl_down_sync(kAllLanes, word, 1);
    word |= next << (kChunkValues * kBits);
    bytes = kBits;
    mine = threadIdx.x % 2 == 0;
  }
  const unsigned total = (n * kBits + 7) / 8;
  for (unsigned b = 0; mine && b < bytes; ++b) {
    const unsigned at = i * kBits / 8 + b;
    if (whole || at < total) codes[at] = static_cast<unsigned char>(word >> (8 * b));
  }
}

// Reciprocals of scales whose quotients need no division; zero for other scales.
template <typename G>
__device__ float inverse_of(const float* scale) {
  const float divisor = scale[kScaleFloats<G> - 1];
  bool plain = plain_scale(divisor);
  if constexpr (G::kInput == GridInput::kOffset) plain = plain && narrow_range(scale[0], divisor);
  return plain ? 1.0f / divisor : 0.0f;
}

// code_of() with a scale that has a reciprocal.
template <typename G>
__device__ unsigned plain_code(float x, const float* scale, float inverse) {
  if constexpr (G::kInput == GridInput::kThreshold) {
    return G::code(x, *scale);
  } else if constexpr (G::kInput == GridInput::kOffset) {
    return G::code((x - scale[0]) * inverse);
  } else if constexpr (G::kInput == GridInput::kQuotient) {
    return G::code(plain_quotient(x, *scale, inverse));
  } else if constexpr (G::kGrid == Grid::kNf4) {
    return nf4_code(x * inverse);
  } else {
    return G::code(x * inverse);
  }
}

template <typename G>
__device__ unsigned random_code(const StochasticLevels& levels, float x, const float* scale,
                                std::uint32_t word) {
  float q = 0;
  if constexpr (G::kInput == GridInput::kOffset) {
    q = stochastic_offset(x, scale[0], scale[1]);
  } else {
    q = stochastic_quotient(x, scale[0]);
  }
  return round_randomly(levels.levels, levels.count, q, uniform_of(word));
}

// Replaces a chunk's values by the codec's errors. RETURNS: true if a value or its decoding is not
// finite.
template <typename G>
__device__ bool leave_lost(const BlockShape& shape, unsigned n, unsigned first, std::uint32_t word,
                           const float* scales, float* x) {
  bool bad = false;
#pragma unroll
  for (unsigned k = 0; k < kChunkValues; ++k) {
    if (first + k >= n) continue;
    const unsigned code = word >> (k * G::kBits) & ((1u << G::kBits) - 1);
    const unsigned b = ((first + k) >> shape.block_log2) * kScaleFloats<G>;
    const float sent = value_of<G>(code, scales + b);
    bad = bad || !(is_finite(x[k]) && is_finite(sent));
    x[k] = x[k] - sent;
  }
  return bad;
}

// Computes the scales of a tile in their final place, and stores its values in shared memory.
template <typename G>
__device__ void find_scales(const BlockShape& shape, unsigned n, const ChunkValues& v,
                            float* scales, float* thresholds, float* values) {
  const unsigned blocks = blocks_in(n, shape.block_log2);
  const bool largest =
      shape.statistic == Statistic::kLargest || shape.statistic == Statistic::kPowerOfTwo;
  if (largest || shape.statistic == Statistic::kRange) {
    ISTHMUS_SHARED(float, shares, [2 * kWarps]);
    const Found found = found_of(shape, scales, shares);
    if constexpr (G::kInput == GridInput::kOffset) {
      find_range(n, v, found);
    } else {
      find_largest(v, found);
    }
    __syncthreads();
    if constexpr (G::kInput == GridInput::kOffset) {
      scale_by_range(blocks, found, scales);
    } else {
      scale_by_largest(shape, blocks, found, scales);
    }
    return;
  }
  __syncthreads();
  if (shape.statistic == Statistic::kTernary) {
    find_ternary(shape, n, values, thresholds, scales);
  } else {
    find_means(shape, n, values, scales);
  }
}

// Floats in each part of dynamic shared memory, each a multiple of 4; bytes follow.
struct SharedFloats {
  unsigned scales = 0, inverses = 0;
};

template <typename G, bool kRandom>
__global__ void __launch_bounds__(kTileThreads, kRandom ? 4 : 5)
    encode_kernel(BlockShape shape, StochasticLevels levels, SharedFloats floats, EncodeWork work) {
  ISTHMUS_DYNAMIC_SHARED(float, shared);
  float* const scales = shared;
  float* const inverses = scales + floats.scales;
  float* const values = inverses + floats.inverses;
  auto* const buffer = reinterpret_cast<unsigned char*>(values + kTileValues);
  const std::size_t tile = blockIdx.x;
  const std::size_t rest = work.n - tile * kTileValues;
  const auto n = static_cast<unsigned>(rest < kTileValues ? rest : kTileValues);
  const unsigned log2 = shape.block_log2;
  const unsigned blocks = blocks_in(n, log2);
  const bool feedback = work.feedback.residual != nullptr;
  // Codes of the ternary grid use thresholds, those of other grids use scales.
  const bool ternary = shape.statistic == Statistic::kTernary;
  float* const coded_by = ternary ? scales + blocks : scales;

  {
    ChunkValues v;
    load_tile(work, tile, n, v);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      *reinterpret_cast<float4*>(values + place_of(chunk_place(c), log2)) =
          make_float4(v[c][0], v[c][1], v[c][2], v[c][3]);
    }
    find_scales<G>(shape, n, v, scales, coded_by, values);
  }
  unsigned char* const to = work.bytes + tile * work.tile_bytes;
  unsigned char* const out = staged(buffer, to);
  write_plane(shape, scales, blocks, out);
  if constexpr (!kRandom && G::kInput != GridInput::kThreshold) {
    for (unsigned b = threadIdx.x; b < blocks; b += kTileThreads) {
      inverses[b] = inverse_of<G>(scales + b * kScaleFloats<G>);
    }
  }
  __syncthreads();

  unsigned char* const codes = out + scale_bytes(shape.form, blocks);
  const bool whole =
      n == kTileValues && reinterpret_cast<std::uintptr_t>(codes) % sizeof(std::uint32_t) == 0;
  bool bad = false;
#pragma unroll 1
  for (int c = 0; c < kChunks; ++c) {
    const unsigned first = chunk_place(c);
    float* const x = values + place_of(first, log2);
    const float4 four = *reinterpret_cast<const float4*>(x);
    const float v[kChunkValues] = {four.x, four.y, four.z, four.w};
    const unsigned block = first >> log2;
    bool plain = !kRandom && log2 >= 2;
    float inverse = 0;
    if constexpr (!kRandom && G::kInput != GridInput::kThreshold) {
      inverse = inverses[block];
      plain = plain && inverse > 0;
    }
    std::uint32_t word = 0;
    if (plain) {
      const float* const scale = coded_by + block * kScaleFloats<G>;
#pragma unroll
      for (unsigned k = 0; k < kChunkValues; ++k) {
        word |= plain_code<G>(v[k], scale, inverse) << (k * G::kBits);
      }
    } else {
      std::uint32_t drawn[4] = {};
      if constexpr (kRandom) {
        random_words(work.key.seed, isthmus::Stream::kRounding, work.key.tile + tile,
                     work.key.worker << kStochasticValueBits | first / kStochasticDraws, drawn);
      }
#pragma unroll(kRandom ? 4 : 1)
      for (unsigned k = 0; k < kChunkValues; ++k) {
        if (first + k >= n) break;
        const unsigned b = ((first + k) >> log2) * kScaleFloats<G>;
        const unsigned code = kRandom ? random_code<G>(levels, v[k], scales + b, drawn[k])
                                      : code_of<G>(x[k], coded_by + b);
        word |= code << (k * G::kBits);
      }
    }
    put_codes<G::kBits>(codes, whole, n, first, word);
    if (feedback) bad |= leave_lost<G>(shape, n, first, word, scales, x);
  }
  __syncthreads();
  move_bytes(to, out, n == kTileValues ? work.tile_bytes : work.last_tile_bytes);
  if (!feedback) return;
  ChunkValues lost;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const float* const x = values + place_of(chunk_place(c), log2);
#pragma unroll
    for (unsigned k = 0; k < kChunkValues; ++k) lost[c][k] = x[k];
  }
  keep_lost(work.feedback, tile, n, lost, bad);
}

template <typename G>
SharedFloats shared_floats(const BlockCodecSpec& spec) {
  const auto blocks = static_cast<unsigned>((kTileValues + spec.block - 1) / spec.block);
  const bool two = spec.form == ScaleForm::kRange || spec.statistic == Statistic::kTernary;
  const auto rounded = [](unsigned floats) { return (floats + 3) / 4 * 4; };
  return {rounded(two ? 2 * blocks : blocks),
          G::kInput == GridInput::kThreshold ? 0 : rounded(blocks)};
}

}  // namespace

template <typename G>
void launch_block_encode(Stream& stream, const BlockCodecSpec& spec, float most_scale,
                         const StochasticLevels& levels, const EncodeWork& work) {
  const SharedFloats floats = shared_floats<G>(spec);
  const LaunchShape shape{
      .blocks = dim3(static_cast<unsigned>((work.n + kTileValues - 1) / kTileValues)),
      .threads = dim3(kTileThreads),
      .shared_bytes = sizeof(float) * (floats.scales + floats.inverses + kTileValues) +
                      work.tile_bytes + kPiece};
  const auto kernel = levels.levels != nullptr ? encode_kernel<G, true> : encode_kernel<G, false>;
  launch(stream, shape, kernel, block_shape(spec, G::kTop, most_scale), levels, floats, work);
}

}  // namespace isthmus::cuda
