// SPDX-License-Identifier: Apache-2.0
// topk, dct-topk and randk: bytes of a tile to values, checked before one is stored. decode writes
// 4 bytes a value and reads the bytes; decode and add touches the sent values alone, 32 bytes each.
#include "quant/cuda/sparse_tile.h"
#include "quant/math/block_code_math.h"
#include "quant/math/bucket_math.h"

namespace isthmus::cuda {
namespace {

// Values at the front of the bytes to `kept`. RETURNS: false on a thread that met bytes that no
// encoder makes.
__device__ bool read_sent(SparseValues form, const unsigned char* in, unsigned count, float* kept) {
  const unsigned t = threadIdx.x;
  bool good = true;
  if (form == SparseValues::kFp32) {
    for (unsigned j = t; j < count; j += kTileThreads) {
      kept[j] = load_field<float>(in + 4 * j);
      good = good && is_finite(kept[j]);
    }
    return good;
  }
  if (form == SparseValues::k2Bit) {
    float means[kBins];
    for (unsigned bin = 0; bin < kBins; ++bin) {
      means[bin] = float_of_bf16(load_field<std::uint16_t>(in + 2 * bin));
      good = good && is_finite(means[bin]);
    }
    for (unsigned j = t; j < count; j += kTileThreads) {
      const unsigned bin = static_cast<unsigned>(in[kBinTableBytes + j / 4]) >> 2 * (j % 4) & 3u;
      kept[j] = bin == 0 ? means[0] : bin == 1 ? means[1] : bin == 2 ? means[2] : means[3];
    }
    const unsigned used = 2 * ((count - 1) % 4 + 1);  // bits of the last byte
    return good && static_cast<unsigned>(in[kBinTableBytes + (count + 3) / 4 - 1]) >> used == 0;
  }
  const auto scale = load_field<float>(in);
  good = possible_scale(scale, form == SparseValues::kInt8 ? kInt8Levels : 1.0f);
  if (form == SparseValues::kInt8) {
    for (unsigned j = t; j < count; j += kTileThreads) {
      good = good && Int8Grid::valid(in[4 + j]);
      kept[j] = value_of<Int8Grid>(in[4 + j], &scale);
    }
    return good;
  }
  for (unsigned j = t; j < count; j += kTileThreads) {
    kept[j] = value_of<SignGrid>(in[4 + j / 8] >> j % 8 & 1u, &scale);
  }
  return good && (count % 8 == 0 || in[4 + count / 8] >> count % 8 == 0);
}

// One thread; where[0, count) ascending.
__device__ bool read_rice(unsigned rice, const unsigned char* in, unsigned bytes, unsigned n,
                          unsigned count, std::uint16_t* where) {
  unsigned at = 0;  // bit
  const unsigned end = 8 * bytes;
  const auto bit = [&](unsigned i) { return in[i / 8] >> i % 8 & 1u; };
  unsigned next = 0;
  for (unsigned j = 0; j < count; ++j) {
    unsigned gap = 0;
    while (at < end && bit(at) != 0) ++gap, ++at;
    if (at + 1 + rice > end) return false;
    ++at;
    unsigned low = 0;
    for (unsigned b = 0; b < rice; ++b, ++at) low |= static_cast<unsigned>(bit(at)) << b;
    const unsigned value = next + (gap << rice | low);
    if (value >= n) return false;
    where[j] = static_cast<std::uint16_t>(value);
    next = value + 1;
  }
  for (; at < end; ++at) {
    if (bit(at) != 0) return false;
  }
  return true;
}

__device__ bool read_places(IndexCoding coding, unsigned rice, const unsigned char* in,
                            unsigned bytes, unsigned n, unsigned count, std::uint16_t* where) {
  if (coding == IndexCoding::kRice) {
    return threadIdx.x != 0 || read_rice(rice, in, bytes, n, count, where);
  }
  const auto place = [in](unsigned j) {
    const unsigned at = 12 * j / 8;
    const unsigned word = in[at] | static_cast<unsigned>(in[at + 1]) << 8;
    return word >> 12 * j % 8 & 0xFFFu;
  };
  bool good = count % 2 == 0 || in[bytes - 1] >> 4 == 0;
  for (unsigned j = threadIdx.x; j < count; j += kTileThreads) {
    const unsigned here = place(j);
    good = good && here < n && (j == 0 || place(j - 1) < here);
    where[j] = static_cast<std::uint16_t>(here);
  }
  return good;
}

// Sent values replace the values of the tile, which are zero elsewhere; or they are added to the
// tile.
__device__ void scatter(const DecodeWork& work, std::size_t begin, unsigned n, unsigned count,
                        const SparseShared& shared) {
  float* const values = work.values + begin;
  if (!work.add) {
    const ChunkValues zero = {};
    store_values(values, n, zero);
    __syncthreads();
  }
  for (unsigned j = threadIdx.x; j < count; j += kTileThreads) {
    float* const to = values + shared.where[j];
    *to = work.add ? *to + shared.kept[j] : shared.kept[j];
  }
}

// The same for sent coefficients. RETURNS: false, on all threads, if they are too large to add up;
// then no value is stored.
__device__ bool transform_back(const SparseShape& shape, const DecodeWork& work, std::size_t begin,
                               unsigned n, const SparseShared& shared) {
  spread_kept(shared, sparse_count_of(shape.k, n));
  from_coefficients(shape.cosines, n, shared.sent, shared.half);
  bool bad = false;
  for (unsigned i = threadIdx.x; i < n; i += kTileThreads) {
    bad = bad || !is_finite(shared.sent[i]);
  }
  if (any_thread(bad)) return false;
  float* const values = work.values + begin;
  for (unsigned i = threadIdx.x; i < n; i += kTileThreads) {
    values[i] = work.add ? values[i] + shared.sent[i] : shared.sent[i];
  }
  return true;
}

template <bool kRandk>
__global__ void decode_kernel(SparseShape shape, DecodeWork work) {
  ISTHMUS_DYNAMIC_SHARED(unsigned char, memory);
  const std::size_t tile = blockIdx.x;
  const std::size_t begin = tile * kTileValues;
  const auto n = static_cast<unsigned>(work.n - begin < kTileValues ? work.n - begin : kTileValues);
  const bool whole = n == kTileValues;
  const auto bytes = static_cast<unsigned>(whole ? work.tile_bytes : work.last_tile_bytes);
  const unsigned count = sparse_count_of(shape.k, n);
  const SparseShared shared = sparse_shared(memory, shape.k, work.tile_bytes);
  const unsigned char* const from = work.bytes + tile * work.tile_bytes;
  unsigned char* const in = staged(shared.bytes, from);
  move_bytes(in, from, bytes);
  __syncthreads();
  bool good = true;
  if (kRandk) {
    draw_places(load_field<std::uint32_t>(in), n, count,
                reinterpret_cast<std::uint32_t*>(shared.kept), shared.where);
    good = read_sent(SparseValues::kFp32, in + 4, count, shared.kept);
  } else {
    const unsigned split = sparse_value_bytes(shape.values, count);
    good = read_sent(shape.values, in, count, shared.kept);
    good = read_places(shape.indices, whole ? shape.rice : shape.last_rice, in + split,
                       bytes - split, n, count, shared.where) &&
           good;
  }
  good = !any_thread(!good);
  if (good && shape.transformed) {
    good = transform_back(shape, work, begin, n, shared);
  } else if (good) {
    scatter(work, begin, n, count, shared);
  }
  if (!good && threadIdx.x == 0) note_bad(work.first_bad, tile);
}

template <typename Kernel>
void queue(Stream& stream, Kernel kernel, const SparseCodecSpec& spec,
           const CosineMatrices& cosines, const DecodeWork& work) {
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>((work.n + kTileValues - 1) / kTileValues)),
          .threads = dim3(kTileThreads),
          .shared_bytes = sparse_shared_bytes(static_cast<unsigned>(spec.k), work.tile_bytes,
                                              spec.dct ? 2 : 0)},
         kernel, sparse_shape(spec, cosines, work.n), work);
}

}  // namespace

void decode_topk(Stream& stream, const SparseCodecSpec& spec, const CosineMatrices& cosines,
                 const DecodeWork& work) {
  queue(stream, decode_kernel<false>, spec, cosines, work);
}
void decode_randk(Stream& stream, const SparseCodecSpec& spec, const DecodeWork& work) {
  queue(stream, decode_kernel<true>, spec, {}, work);
}

}  // namespace isthmus::cuda
