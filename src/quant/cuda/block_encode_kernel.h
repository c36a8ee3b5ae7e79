// SPDX-License-Identifier: Apache-2.0
// Block codecs: scales and codes of a tile in one pass over memory. With b bits a value, scales
// included: 4 + b / 8 bytes moved a value, 12 + b / 8 with error feedback. Values stay in
// registers; sums of doubles take the tile through shared memory, because their order is the
// codec's. Each block_encode_*.cu instantiates the kernel for some grids, so that no compiler has
// all of them.
#pragma once

#include "quant/cuda/block_encode.h"
#include "quant/cuda/block_tile.h"

namespace isthmus::cuda {
namespace {

constexpr unsigned kSumLanes = 16;  // as block_kernels.h has it
constexpr unsigned kGroups = kTileValues / kWarpValues;

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

// merge() over each block of values, from each thread's 4 values of a chunk; on all threads that
// have values of it. REQUIRES: blocks of at least 4.
template <typename T, typename Merge>
__device__ void over_blocks(T (&part)[kChunks], unsigned block_log2, T* groups,
                            const Merge& merge) {
  const unsigned lanes = block_log2 >= 7 ? kWarp : (1u << block_log2) / kChunkValues;
  for (unsigned d = 1; d < lanes; d *= 2) {
    for (T& each : part) each = merge(each, from_lane(each, static_cast<int>(d)));
  }
  if (block_log2 <= 7) return;
  const unsigned first = threadIdx.x / kWarp * kChunks;
  if (threadIdx.x % kWarp == 0) {
#pragma unroll
    for (unsigned c = 0; c < kChunks; ++c) groups[first + c] = part[c];
  }
  __syncthreads();
  const unsigned many = 1u << (block_log2 - 7);
#pragma unroll
  for (unsigned c = 0; c < kChunks; ++c) {
    const unsigned begin = (first + c) / many * many;
    part[c] = groups[begin];
    for (unsigned g = begin + 1; g < begin + many; ++g) part[c] = merge(part[c], groups[g]);
  }
  __syncthreads();
}

// True on the thread that speaks for the block in which its chunk lies.
__device__ bool begins_block(unsigned i, unsigned block_log2) {
  return (i & ((1u << block_log2) - 1)) == 0;
}

__device__ float largest_scale_of(const BlockShape& shape, std::uint32_t largest) {
  return shape.statistic == Statistic::kPowerOfTwo
             ? power_of_two_scale(largest, shape.top)
             : scale_for(largest, shape.top, shape.most_scale);
}

__device__ void find_largest(const BlockShape& shape, unsigned n, const ChunkValues& v,
                             std::uint32_t* groups, float* scales) {
  std::uint32_t part[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    std::uint32_t most = 0;
#pragma unroll
    for (unsigned k = 0; k < kChunkValues; ++k) {
      const unsigned i = chunk_place(c) + k;
      const std::uint32_t bits = bits_of(v[c][k]) & kAbsMask;
      most = bits > most ? bits : most;
      if (shape.block_log2 < 2 && begins_block(i + 1, shape.block_log2)) {  // blocks of 1 or 2
        if (i >> shape.block_log2 << shape.block_log2 < n) {
          scales[i >> shape.block_log2] = largest_scale_of(shape, most);
        }
        most = 0;
      }
    }
    part[c] = most;
  }
  if (shape.block_log2 < 2) return;
  over_blocks(part, shape.block_log2, groups,
              [](std::uint32_t a, std::uint32_t b) { return a > b ? a : b; });
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const unsigned i = chunk_place(c);
    if (i < n && begins_block(i, shape.block_log2)) {
      scales[i >> shape.block_log2] = largest_scale_of(shape, part[c]);
    }
  }
}

__device__ void find_range(const BlockShape& shape, unsigned n, const ChunkValues& v, Range* groups,
                           float* pairs) {
  Range part[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    part[c] = {float_of(kInfinityBits), -float_of(kInfinityBits), 0};
#pragma unroll
    for (unsigned k = 0; k < kChunkValues; ++k) {
      if (chunk_place(c) + k >= n) continue;
      const float x = v[c][k];
      const std::uint32_t bits = bits_of(x) & kAbsMask;
      part[c].low = x < part[c].low ? x : part[c].low;
      part[c].high = x > part[c].high ? x : part[c].high;
      part[c].largest = bits > part[c].largest ? bits : part[c].largest;
    }
  }
  over_blocks(part, shape.block_log2, groups, [](const Range& a, const Range& b) {
    return Range{b.low < a.low ? b.low : a.low, b.high > a.high ? b.high : a.high,
                 b.largest > a.largest ? b.largest : a.largest};
  });
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const unsigned i = chunk_place(c);
    if (i < n && begins_block(i, shape.block_log2)) {
      // -0 counts as 0
      range_scale(part[c].low + 0.0f, part[c].high + 0.0f, part[c].largest,
                  pairs + 2 * (i >> shape.block_log2));
    }
  }
}

// done(block, sum of term(x)) on one thread a block: 16 lanes of values in order, then halves. The
// tile lies in shared memory, zeros behind its end.
template <typename Term, typename Done>
__device__ void sum_blocks(const float* tile, unsigned n, unsigned block_log2, const Term& term,
                           const Done& done) {
  const unsigned chains = blocks_in(n, block_log2) * kSumLanes;
  const unsigned block = 1u << block_log2;
  for (unsigned first = threadIdx.x / kWarp * kWarp; first < chains; first += kTileThreads) {
    const unsigned chain = first + threadIdx.x % kWarp;
    const unsigned b = chain / kSumLanes;
    double sum = 0;
    if (chain < chains) {
      for (unsigned i = chain % kSumLanes; i < block; i += kSumLanes) {
        sum += term(tile[b * block + i], b);
      }
    }
    for (int half = kSumLanes / 2; half > 0; half /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, half);
    }
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
  sum_blocks(
      tile, n, log2, [rms](float x, unsigned) { return rms ? square_of(x) : magnitude_of(x); },
      [&](unsigned b, double sum) {
        const double mean = mean_of(sum, b, n, log2);
        scales[b] = mean_scale(rms ? sqrt(mean) : mean, shape.most_scale);
      });
}

// Thresholds, and then the means of what is above them as scales.
__device__ void find_ternary(const BlockShape& shape, unsigned n, const float* tile,
                             float* thresholds, float* scales) {
  const unsigned log2 = shape.block_log2;
  sum_blocks(
      tile, n, log2, [](float x, unsigned) { return square_of(x); },
      [&](unsigned b, double sum) {
        thresholds[b] = ternary_threshold(sqrt(mean_of(sum, b, n, log2)));
      });
  sum_blocks(
      tile, n, log2,
      [thresholds](float x, unsigned b) {
        return magnitude_of(x) > static_cast<double>(thresholds[b]) ? 1.0 : 0.0;
      },
      [&](unsigned b, double count) { scales[b] = static_cast<float>(count); });
  sum_blocks(
      tile, n, log2,
      [thresholds](float x, unsigned b) {
        const double a = magnitude_of(x);
        return a > static_cast<double>(thresholds[b]) ? a : 0.0;
      },
      [&](unsigned b, double sum) {
        const auto count = static_cast<double>(scales[b]);
        scales[b] = is_nan(thresholds[b])
                        ? thresholds[b]
                        : mean_scale(count > 0 ? sum / count : 0, shape.most_scale);
      });
}

// Codes of a chunk, low bits first, to their place among the tile's; two lanes share bytes where 4
// codes are no whole number of them.
template <unsigned kBits>
__device__ void put_codes(unsigned char* codes, unsigned n, unsigned i, std::uint32_t word) {
  const unsigned total = (n * kBits + 7) / 8;
  unsigned bytes = kBits / 2;
  bool mine = true;
  if constexpr (kBits % 2 != 0) {
    const std::uint32_t next = __shfl_down_sync(kAllLanes, word, 1);
    word |= next << (kChunkValues * kBits);
    bytes = kBits;
    mine = threadIdx.x % 2 == 0;
  }
  for (unsigned b = 0; mine && b < bytes; ++b) {
    const unsigned at = i * kBits / 8 + b;
    if (at < total) codes[at] = static_cast<unsigned char>(word >> (8 * b));
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

template <typename G>
__global__ void encode_kernel(BlockShape shape, StochasticLevels levels, unsigned scale_floats,
                              EncodeWork work) {
  __shared__ Range groups[kGroups];
  ISTHMUS_DYNAMIC_SHARED(unsigned char, shared);
  auto* const scales = reinterpret_cast<float*>(shared);
  unsigned char* const buffer =
      shared + (scale_floats * sizeof(float) + kPiece - 1) / kPiece * kPiece;
  const std::size_t tile = blockIdx.x;
  const std::size_t begin = tile * kTileValues;
  const auto n = static_cast<unsigned>(work.n - begin < kTileValues ? work.n - begin : kTileValues);
  const std::size_t tile_bytes = n == kTileValues ? work.tile_bytes : work.last_tile_bytes;
  const unsigned blocks = blocks_in(n, shape.block_log2);

  ChunkValues v;
  load_values(work.x + begin, n, v);
  const bool feedback = work.feedback.residual != nullptr;
  if (feedback) add_residual(work.feedback, tile, n, v);

  float* thresholds = scales;
  if (shape.statistic == Statistic::kLargest || shape.statistic == Statistic::kPowerOfTwo) {
    find_largest(shape, n, v, reinterpret_cast<std::uint32_t*>(groups), scales);
  } else if (shape.statistic == Statistic::kRange) {
    find_range(shape, n, v, groups, scales);
  } else {
    auto* const values = reinterpret_cast<float*>(buffer);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (unsigned k = 0; k < kChunkValues; ++k) values[chunk_place(c) + k] = v[c][k];
    }
    __syncthreads();
    if (shape.statistic == Statistic::kTernary) {
      thresholds = scales + blocks;
      find_ternary(shape, n, values, thresholds, scales);
    } else {
      find_means(shape, n, values, scales);
    }
  }
  __syncthreads();

  unsigned char* const to = work.bytes + tile * work.tile_bytes;
  unsigned char* const out = staged(buffer, to);
  write_plane(shape, scales, blocks, out);
  unsigned char* const codes = out + scale_bytes(shape.form, blocks);
  // Codes of the ternary grid follow from thresholds, those of the others from their scales.
  const float* const coded_by = shape.statistic == Statistic::kTernary ? thresholds : scales;
  ChunkValues sent = {};
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const unsigned first = chunk_place(c);
    std::uint32_t word = 0;
    std::uint32_t drawn[4] = {};
    if (levels.levels != nullptr && first < n) {
      random_words(work.key.seed, isthmus::Stream::kRounding, work.key.tile + tile,
                   work.key.worker << kStochasticValueBits | first / kStochasticDraws, drawn);
    }
#pragma unroll
    for (unsigned k = 0; k < kChunkValues; ++k) {
      const unsigned i = first + k;
      if (i >= n) continue;
      const unsigned b = (i >> shape.block_log2) * kScaleFloats<G>;
      const unsigned code = levels.levels != nullptr
                                ? random_code<G>(levels, v[c][k], scales + b, drawn[k])
                                : code_of<G>(v[c][k], coded_by + b);
      word |= code << (k * G::kBits);
      if (feedback) sent[c][k] = value_of<G>(code, scales + b);
    }
    put_codes<G::kBits>(codes, n, first, word);
  }
  __syncthreads();
  move_bytes(to, out, tile_bytes);
  if (feedback) keep_residual(work.feedback, tile, n, v, sent);
}

}  // namespace

template <typename G>
void launch_block_encode(Stream& stream, const BlockCodecSpec& spec, float most_scale,
                         const StochasticLevels& levels, const EncodeWork& work) {
  const BlockShape shape = block_shape(spec, G::kTop, most_scale);
  const std::size_t blocks = (kTileValues + spec.block - 1) / spec.block;
  const bool two = spec.form == ScaleForm::kRange || spec.statistic == Statistic::kTernary;
  const auto scale_floats = static_cast<unsigned>(two ? 2 * blocks : blocks);
  const bool sums = spec.statistic == Statistic::kMean || spec.statistic == Statistic::kRms ||
                    spec.statistic == Statistic::kTernary;
  const std::size_t staging = work.tile_bytes + kPiece;
  const std::size_t values = sums ? sizeof(float) * kTileValues : 0;
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>((work.n + kTileValues - 1) / kTileValues)),
          .threads = dim3(kTileThreads),
          .shared_bytes =
              scale_floats * sizeof(float) + kPiece + (staging > values ? staging : values)},
         encode_kernel<G>, shape, levels, scale_floats, work);
}

}  // namespace isthmus::cuda
