// SPDX-License-Identifier: Apache-2.0
// topk, dct-topk and randk. 4 bytes moved a value, and a few for each value sent; 12 with error
// feedback. The k largest are found by counting the digits of magnitudes, eight bits a pass: of
// those in registers first, then of the few that may still be the last one kept, one a thread.
#include "quant/cuda/sparse_tile.h"
#include "quant/math/block_code_math.h"
#include "quant/math/bucket_math.h"

namespace isthmus::cuda {
namespace {

constexpr unsigned kDigits = 256;
constexpr std::uint16_t kNotDrawn = 0xFFFF;
constexpr unsigned kGroups = kTileValues / kWarpValues;

// Magnitudes as bits; less than every other one where there is no value.
using Magnitudes = std::int32_t[kChunks][kChunkValues];
constexpr std::int32_t kNoValue = -1;

struct Selection {
  std::int32_t last = 0;  // magnitude that all larger ones than are kept
  unsigned equals = 0;    // how many of its equals are: the first ones
};

// Sum of the lanes' numbers up to this one.
__device__ unsigned sum_through(unsigned own) {
  const unsigned lane = threadIdx.x % kWarp;
  for (unsigned by = 1; by < kWarp; by *= 2) {
    const unsigned before = __shfl_up_sync(kAllLanes, own, by);
    if (lane >= by) own += before;
  }
  return own;
}

// The digit at which the count from the top reaches the needed count.
struct Digit {
  unsigned digit;
  unsigned need;   // the count that is still needed within this digit
  unsigned there;  // how many have it
};
// On warp 0; each of its lanes has 8 digits.
__device__ void find_digit(const unsigned* counts, unsigned need, Digit* found) {
  constexpr unsigned kOwn = kDigits / kWarp;
  const unsigned top = kDigits - 1 - kOwn * threadIdx.x;  // the lane's largest digit
  unsigned each[kOwn];
  unsigned own = 0;
#pragma unroll
  for (unsigned i = 0; i < kOwn; ++i) own += each[i] = counts[top - i];
  const unsigned through = sum_through(own);
  unsigned above = through - own;
  if (above >= need || through < need) return;
#pragma unroll
  for (unsigned i = 0; i < kOwn; ++i) {
    if (above < need && above + each[i] >= need) *found = {top - i, need - above, each[i]};
    above += each[i];
  }
}

__device__ bool is_candidate(std::int32_t magnitude, unsigned high, unsigned prefix) {
  return static_cast<std::uint32_t>(magnitude) >> high == prefix;
}

// This thread's of the candidates, which are no more than threads; kNoValue behind their end.
__device__ std::int32_t deal_out(const Magnitudes& magnitude, unsigned high, unsigned prefix) {
  ISTHMUS_SHARED(std::int32_t, dealt, [kTileThreads]);
  ISTHMUS_SHARED(unsigned, end);
  dealt[threadIdx.x] = kNoValue;
  if (threadIdx.x == 0) end = 0;
  unsigned own = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (unsigned e = 0; e < kChunkValues; ++e) {
      own += is_candidate(magnitude[c][e], high, prefix) ? 1u : 0u;
    }
  }
  const unsigned through = sum_through(own);
  __syncthreads();
  unsigned begin = 0;
  if (threadIdx.x % kWarp == kWarp - 1) begin = atomicAdd(&end, through);
  unsigned at = __shfl_sync(kAllLanes, begin, kWarp - 1) + through - own;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (unsigned e = 0; e < kChunkValues; ++e) {
      if (is_candidate(magnitude[c][e], high, prefix)) dealt[at++] = magnitude[c][e];
    }
  }
  __syncthreads();
  return dealt[threadIdx.x];
}

__device__ Selection select(const Magnitudes& magnitude, unsigned k) {
  ISTHMUS_SHARED(unsigned, counts, [kDigits]);
  ISTHMUS_SHARED(Digit, found);
  unsigned prefix = 0;
  unsigned need = k;
  unsigned high = 31;  // bits below it are still open
  bool dealt = false;
  std::int32_t mine = kNoValue;
  while (high > 0) {
    const unsigned low = high > 8 ? high - 8 : 0;
    const auto count = [&](std::int32_t each) {
      if (!is_candidate(each, high, prefix)) return;
      atomicAdd(&counts[static_cast<std::uint32_t>(each) >> low & ((1u << (high - low)) - 1)], 1u);
    };
    counts[threadIdx.x] = 0;
    __syncthreads();
    if (dealt) {
      count(mine);
    } else {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
#pragma unroll
        for (unsigned e = 0; e < kChunkValues; ++e) count(magnitude[c][e]);
      }
    }
    __syncthreads();
    if (threadIdx.x < kWarp) find_digit(counts, need, &found);
    __syncthreads();
    prefix = prefix << (high - low) | found.digit;
    need = found.need;
    high = low;
    const unsigned there = found.there;
    __syncthreads();
    if (need == there) return {static_cast<std::int32_t>(prefix << low) - 1, 0};  // all of them
    if (!dealt && there <= kTileThreads) {
      mine = deal_out(magnitude, high, prefix);
      dealt = true;
    }
  }
  return {static_cast<std::int32_t>(prefix), need};
}

// The selected values and their places, in order of place.
__device__ void keep(const ChunkValues& v, unsigned n, unsigned k, const SparseShared& shared) {
  ISTHMUS_SHARED(unsigned, groups, [kGroups]);
  static_assert(kGroups == kWarp);
  Magnitudes magnitude;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (unsigned e = 0; e < kChunkValues; ++e) {
      const bool inside = n == kTileValues || chunk_place(c) + e < n;
      magnitude[c][e] = inside ? static_cast<std::int32_t>(bits_of(v[c][e]) & kAbsMask) : kNoValue;
    }
  }
  const Selection selection = select(magnitude, k);
  // Larger ones are counted in the lower half of a word, equal ones in the upper one.
  constexpr unsigned kEqual = 1u << 16;
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  unsigned before[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    unsigned own = 0;
#pragma unroll
    for (unsigned e = 0; e < kChunkValues; ++e) {
      own += magnitude[c][e] > selection.last ? 1u : 0u;
      own += magnitude[c][e] == selection.last ? kEqual : 0u;
    }
    const unsigned through = sum_through(own);
    before[c] = through - own;
    if (lane == kWarp - 1) groups[warp * kChunks + static_cast<unsigned>(c)] = through;
  }
  __syncthreads();
  const unsigned before_group = sum_through(groups[lane]) - groups[lane];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int group = static_cast<int>(warp) * kChunks + c;
    before[c] += __shfl_sync(kAllLanes, before_group, group);
    unsigned larger = before[c] % kEqual;
    unsigned equal = before[c] / kEqual;
#pragma unroll
    for (unsigned e = 0; e < kChunkValues; ++e) {
      const bool is_larger = magnitude[c][e] > selection.last;
      const bool is_equal = magnitude[c][e] == selection.last;
      if (is_larger || (is_equal && equal < selection.equals)) {
        const unsigned at = larger + (equal < selection.equals ? equal : selection.equals);
        shared.kept[at] = v[c][e];
        shared.where[at] = static_cast<std::uint16_t>(chunk_place(c) + e);
      }
      larger += is_larger ? 1 : 0;
      equal += is_equal ? 1 : 0;
    }
  }
  __syncthreads();
}

// kept := the values that the bytes encode.
__device__ void write_scaled(const SparseShape& shape, unsigned count, float* kept,
                             unsigned char* out) {
  ISTHMUS_SHARED(float, scale);
  const SparseValues form = shape.values;
  const unsigned t = threadIdx.x;
  if (form == SparseValues::kInt8) {
    std::uint32_t mine = 0;
    for (unsigned j = t; j < count; j += kTileThreads) {
      const std::uint32_t bits = bits_of(kept[j]) & kAbsMask;
      mine = bits > mine ? bits : mine;
    }
    const std::uint32_t largest = largest_of(mine);
    if (t == 0) scale = scale_for(largest, kInt8Levels, shape.most_scale);
  } else if (t < kWarp) {
    constexpr unsigned kLanes = 16;  // as block_kernels.h adds
    double sum = 0;
    for (unsigned j = t; t < kLanes && j < count; j += kLanes) {
      sum += static_cast<double>(float_of(bits_of(kept[j]) & kAbsMask));
    }
    for (int half = kLanes / 2; half > 0; half /= 2) sum += __shfl_xor_sync(kAllLanes, sum, half);
    if (t == 0) scale = mean_scale(sum / static_cast<double>(count), float_of(kInfinityBits - 1));
  }
  __syncthreads();
  if (t == 0) store_field(out, scale);
  if (form == SparseValues::kInt8) {
    for (unsigned j = t; j < count; j += kTileThreads) {
      const unsigned code = code_of<Int8Grid>(kept[j], &scale);
      out[4 + j] = static_cast<unsigned char>(code);
      kept[j] = value_of<Int8Grid>(code, &scale);
    }
  } else {
    for (unsigned b = t; b < (count + 7) / 8; b += kTileThreads) {
      unsigned byte = 0;
      for (unsigned j = 8 * b; j < 8 * b + 8 && j < count; ++j) {
        const unsigned code = code_of<SignGrid>(kept[j], &scale);
        byte |= code << j % 8;
        kept[j] = value_of<SignGrid>(code, &scale);
      }
      out[4 + b] = static_cast<unsigned char>(byte);
    }
  }
  __syncthreads();
}

// Sums run in order of place, as the codec has it, each by one thread.
__device__ void write_bins(unsigned count, float* kept, unsigned char* out) {
  ISTHMUS_SHARED(double, mean);
  ISTHMUS_SHARED(double, width);
  ISTHMUS_SHARED(std::uint16_t, table, [kBins]);
  const unsigned t = threadIdx.x;
  bool bad = false;
  for (unsigned j = t; j < count; j += kTileThreads) bad = bad || !is_finite(kept[j]);
  if (any_thread(bad)) {
    if (t < kBins) {
      store_field(out + 2 * t, static_cast<std::uint16_t>(kQuietNanBits >> 16));
    }
    for (unsigned b = t; b < (count + 3) / 4; b += kTileThreads) out[kBinTableBytes + b] = 0;
    __syncthreads();
    return;
  }
  if (t == 0) {
    double sum = 0;
    for (unsigned j = 0; j < count; ++j) sum += static_cast<double>(kept[j]);
    mean = sum / static_cast<double>(count);
    double squares = 0;
    for (unsigned j = 0; j < count; ++j) {
      const double centred = static_cast<double>(kept[j]) - mean;
      squares += centred * centred;
    }
    width = bin_width(squares, count);
  }
  __syncthreads();
  if (t < kBins) {
    double sum = 0;
    std::size_t members = 0;
    for (unsigned j = 0; j < count; ++j) {
      if (bin_of(kept[j], mean, width) != t) continue;
      sum += static_cast<double>(kept[j]);
      ++members;
    }
    table[t] = members > 0 ? bin_entry(sum / static_cast<double>(members)) : std::uint16_t{0};
    store_field(out + 2 * t, table[t]);
  }
  __syncthreads();
  for (unsigned b = t; b < (count + 3) / 4; b += kTileThreads) {
    unsigned byte = 0;
    for (unsigned j = 4 * b; j < 4 * b + 4 && j < count; ++j) {
      const unsigned bin = bin_of(kept[j], mean, width);
      byte |= bin << 2 * (j % 4);
      kept[j] = float_of_bf16(table[bin]);
    }
    out[kBinTableBytes + b] = static_cast<unsigned char>(byte);
  }
  __syncthreads();
}

// Packed by one thread a byte; a Rice string by one thread, since no code knows its place before
// those in front of it.
__device__ void write_places(IndexCoding coding, unsigned rice, unsigned count,
                             const std::uint16_t* where, unsigned char* out, unsigned bytes) {
  if (coding == IndexCoding::kPacked12) {
    for (unsigned b = threadIdx.x; b < bytes; b += kTileThreads) {
      const unsigned j = 8 * b / 12;
      const std::uint32_t next = j + 1 < count ? where[j + 1] : 0u;
      out[b] = static_cast<unsigned char>((where[j] | next << 12) >> (8 * b - 12 * j));
    }
  } else {
    for (unsigned b = threadIdx.x; b < bytes; b += kTileThreads) out[b] = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned at = 0;  // bit
      const auto set = [&](unsigned bit) {
        out[bit / 8] = static_cast<unsigned char>(out[bit / 8] | 1u << bit % 8);
      };
      for (unsigned j = 0, next = 0; j < count; next = where[j] + 1u, ++j) {
        const unsigned gap = where[j] - next;
        for (unsigned one = 0; one < gap >> rice; ++one) set(at++);
        ++at;
        for (unsigned b = 0; b < rice; ++b, ++at) {
          if ((gap >> b & 1u) != 0) set(at);
        }
      }
    }
  }
  __syncthreads();
}

__device__ unsigned values_of(const EncodeWork& work, std::size_t tile) {
  const std::size_t rest = work.n - tile * kTileValues;
  return static_cast<unsigned>(rest < kTileValues ? rest : kTileValues);
}

__device__ void finish(const SparseShape& shape, const EncodeWork& work, std::size_t tile,
                       const ChunkValues& v, const SparseShared& shared, const unsigned char* out) {
  const unsigned n = values_of(work, tile);
  move_bytes(work.bytes + tile * work.tile_bytes, out,
             n == kTileValues ? work.tile_bytes : work.last_tile_bytes);
  if (work.feedback.residual == nullptr) return;
  spread_kept(shared, sparse_count_of(shape.k, n));
  if (shape.transformed) from_coefficients(shape.cosines, n, shared.sent, shared.half);
  ChunkValues sent;
  for (int c = 0; c < kChunks; ++c) {
    for (unsigned e = 0; e < kChunkValues; ++e) sent[c][e] = shared.sent[chunk_place(c) + e];
  }
  keep_residual(work.feedback, tile, n, v, sent);
}

template <bool kTransformed>
__global__ void __launch_bounds__(kTileThreads, kTransformed ? 3 : 4)
    topk_kernel(SparseShape shape, EncodeWork work) {
  ISTHMUS_DYNAMIC_SHARED(unsigned char, memory);
  const std::size_t tile = blockIdx.x;
  const SparseShared shared = sparse_shared(memory, shape.k, work.tile_bytes);
  ChunkValues v;
  const unsigned n = values_of(work, tile);
  load_tile(work, tile, n, v);
  const unsigned count = sparse_count_of(shape.k, n);
  if constexpr (kTransformed) {
    ChunkValues coefficients;
    to_coefficients(shape.cosines, n, v, coefficients, shared.sent, shared.half);
    keep(coefficients, n, count, shared);
  } else {
    keep(v, n, count, shared);
  }
  unsigned char* const out = staged(shared.bytes, work.bytes + tile * work.tile_bytes);
  if (shape.values == SparseValues::kFp32) {
    for (unsigned j = threadIdx.x; j < count; j += kTileThreads) {
      store_field(out + 4 * j, shared.kept[j]);
    }
  } else if (shape.values == SparseValues::k2Bit) {
    write_bins(count, shared.kept, out);
  } else {
    write_scaled(shape, count, shared.kept, out);
  }
  const bool whole = n == kTileValues;
  const unsigned split = sparse_value_bytes(shape.values, count);
  const auto bytes = static_cast<unsigned>(whole ? work.tile_bytes : work.last_tile_bytes);
  write_places(shape.indices, whole ? shape.rice : shape.last_rice, count, shared.where,
               out + split, bytes - split);
  finish(shape, work, tile, v, shared, out);
}

// A value that is not sent may not be finite either: it is marked by a NaN in place of the first.
__global__ void __launch_bounds__(kTileThreads, 4)
    randk_kernel(SparseShape shape, EncodeWork work) {
  ISTHMUS_DYNAMIC_SHARED(unsigned char, memory);
  const std::size_t tile = blockIdx.x;
  const SparseShared shared = sparse_shared(memory, shape.k, work.tile_bytes);
  ChunkValues v;
  const unsigned n = values_of(work, tile);
  load_tile(work, tile, n, v);
  const unsigned count = sparse_count_of(shape.k, n);
  std::uint32_t words[4];
  random_words(work.key.seed, isthmus::Stream::kRandomK, work.key.tile + tile, 0, words);
  draw_places(words[0], n, count, reinterpret_cast<std::uint32_t*>(shared.kept), shared.where);
  // Places to ranks through shared memory: a value asks whether it was drawn.
  ISTHMUS_SHARED(std::uint16_t, rank, [kTileValues]);
  for (unsigned i = threadIdx.x; i < kTileValues; i += kTileThreads) rank[i] = kNotDrawn;
  __syncthreads();
  for (unsigned j = threadIdx.x; j < count; j += kTileThreads) {
    rank[shared.where[j]] = static_cast<std::uint16_t>(j);
  }
  __syncthreads();
  bool bad = false;
  for (int c = 0; c < kChunks; ++c) {
    for (unsigned e = 0; e < kChunkValues; ++e) {
      const unsigned i = chunk_place(c) + e;
      if (i >= n) continue;
      bad = bad || !is_finite(v[c][e]);
      if (rank[i] != kNotDrawn) shared.kept[rank[i]] = v[c][e];
    }
  }
  unsigned char* const out = staged(shared.bytes, work.bytes + tile * work.tile_bytes);
  const bool marked = any_thread(bad);
  if (threadIdx.x == 0) store_field(out, words[0]);
  for (unsigned j = threadIdx.x; j < count; j += kTileThreads) {
    store_field(out + 4 + 4 * j, marked && j == 0 ? float_of(kQuietNanBits) : shared.kept[j]);
  }
  __syncthreads();
  finish(shape, work, tile, v, shared, out);
}

template <typename Kernel>
void queue(Stream& stream, Kernel kernel, const SparseCodecSpec& spec,
           const CosineMatrices& cosines, const EncodeWork& work) {
  const unsigned tiles = spec.dct ? 2 : work.feedback.residual != nullptr ? 1 : 0;
  launch(
      stream,
      {.blocks = dim3(static_cast<unsigned>((work.n + kTileValues - 1) / kTileValues)),
       .threads = dim3(kTileThreads),
       .shared_bytes = sparse_shared_bytes(static_cast<unsigned>(spec.k), work.tile_bytes, tiles)},
      kernel, sparse_shape(spec, cosines, work.n), work);
}

}  // namespace

void encode_topk(Stream& stream, const SparseCodecSpec& spec, const CosineMatrices& cosines,
                 const EncodeWork& work) {
  if (spec.dct) {
    queue(stream, topk_kernel<true>, spec, cosines, work);
  } else {
    queue(stream, topk_kernel<false>, spec, cosines, work);
  }
}
void encode_randk(Stream& stream, const SparseCodecSpec& spec, const EncodeWork& work) {
  queue(stream, randk_kernel, spec, {}, work);
}

}  // namespace isthmus::cuda
