// SPDX-License-Identifier: Apache-2.0
// fp32, bf16 and fp16. Bytes moved a value, b = 4 or 2: encode 4 + b (with feedback 12 + b), decode
// b + 4, decode and add b + 8. Bound by memory.
#include "quant/cuda/tile.h"
#include "quant/math/scale_math.h"

namespace isthmus::cuda {
namespace {

constexpr std::size_t kMostBytes = 4 * kTileValues + kPiece;

__host__ __device__ constexpr unsigned bytes_of(FloatForm form) {
  return form == FloatForm::kFp32 ? 4 : 2;
}

template <FloatForm form>
__device__ void put(unsigned char* at, float x) {
  if constexpr (form == FloatForm::kFp32) {
    store_field(at, x);
  } else {
    store_field(at, form == FloatForm::kBf16 ? bf16_of(x) : fp16_of(x));
  }
}
template <FloatForm form>
__device__ float get(const unsigned char* at) {
  if constexpr (form == FloatForm::kFp32) {
    return load_field<float>(at);
  } else {
    const auto code = load_field<std::uint16_t>(at);
    return form == FloatForm::kBf16 ? float_of_bf16(code) : float_of_fp16(code);
  }
}

template <FloatForm form>
__global__ void __launch_bounds__(kTileThreads) encode_kernel(EncodeWork work) {
  ISTHMUS_DYNAMIC_SHARED(unsigned char, buffer);
  const std::size_t tile = blockIdx.x;
  const std::size_t begin = tile * kTileValues;
  const auto n = static_cast<unsigned>(work.n - begin < kTileValues ? work.n - begin : kTileValues);
  unsigned char* const to = work.bytes + tile * work.tile_bytes;
  unsigned char* const out = staged(buffer, to);
  ChunkValues v;
  load_tile(work, tile, n, v);
  const bool feedback = work.feedback.residual != nullptr;
  for (int c = 0; c < kChunks; ++c) {
    for (unsigned k = 0; k < kChunkValues; ++k) {
      const unsigned i = chunk_place(c) + k;
      if (i < n) put<form>(out + i * bytes_of(form), v[c][k]);
    }
  }
  __syncthreads();
  move_bytes(to, out, std::size_t{n} * bytes_of(form));
  if (!feedback) return;
  ChunkValues sent;
  for (int c = 0; c < kChunks; ++c) {
    for (unsigned k = 0; k < kChunkValues; ++k) {
      const unsigned i = chunk_place(c) + k;
      sent[c][k] = i < n ? get<form>(out + i * bytes_of(form)) : 0.0f;
    }
  }
  keep_residual(work.feedback, tile, n, v, sent);
}

template <FloatForm form>
__global__ void decode_kernel(DecodeWork work) {
  ISTHMUS_DYNAMIC_SHARED(unsigned char, buffer);
  const std::size_t tile = blockIdx.x;
  const std::size_t begin = tile * kTileValues;
  const auto n = static_cast<unsigned>(work.n - begin < kTileValues ? work.n - begin : kTileValues);
  const unsigned char* const from = work.bytes + tile * work.tile_bytes;
  unsigned char* const in = staged(buffer, from);
  move_bytes(in, from, std::size_t{n} * bytes_of(form));
  ChunkValues v = {};
  if (work.add) load_values(work.values + begin, n, v);
  __syncthreads();
  for (int c = 0; c < kChunks; ++c) {
    for (unsigned k = 0; k < kChunkValues; ++k) {
      const unsigned i = chunk_place(c) + k;
      if (i >= n) continue;
      const float decoded = get<form>(in + i * bytes_of(form));
      v[c][k] = work.add ? v[c][k] + decoded : decoded;
    }
  }
  store_values(work.values + begin, n, v);
}

LaunchShape shape_of(std::size_t n) {
  return {.blocks = dim3(static_cast<unsigned>((n + kTileValues - 1) / kTileValues)),
          .threads = dim3(kTileThreads),
          .shared_bytes = kMostBytes};
}

}  // namespace

void encode_floats(Stream& stream, FloatForm form, const EncodeWork& work) {
  const auto kernel = form == FloatForm::kFp32   ? encode_kernel<FloatForm::kFp32>
                      : form == FloatForm::kBf16 ? encode_kernel<FloatForm::kBf16>
                                                 : encode_kernel<FloatForm::kFp16>;
  launch(stream, shape_of(work.n), kernel, work);
}

void decode_floats(Stream& stream, FloatForm form, const DecodeWork& work) {
  const auto kernel = form == FloatForm::kFp32   ? decode_kernel<FloatForm::kFp32>
                      : form == FloatForm::kBf16 ? decode_kernel<FloatForm::kBf16>
                                                 : decode_kernel<FloatForm::kFp16>;
  launch(stream, shape_of(work.n), kernel, work);
}

}  // namespace isthmus::cuda
