// SPDX-License-Identifier: Apache-2.0
// Block codecs: bytes of a tile to values, checked before one is stored. With b bits a value,
// scales included: b / 8 + 4 bytes moved a value, b / 8 + 8 where they are added to a sum.
#include "quant/cuda/block_tile.h"

namespace isthmus::cuda {
namespace {

// Four codes from value i of the tile on, which is a multiple of 4; bits beyond the end are zero.
template <unsigned kBits>
__device__ std::uint32_t get_codes(const unsigned char* codes, unsigned n, unsigned i) {
  const unsigned total = (n * kBits + 7) / 8;
  const unsigned at = i * kBits / 8;
  std::uint32_t word = 0;
  for (unsigned b = 0; b < (kBits + 1) / 2; ++b) {
    if (at + b < total) word |= std::uint32_t{codes[at + b]} << (8 * b);
  }
  return word >> (i * kBits % 8);
}

template <typename G>
__global__ void decode_kernel(BlockShape shape, unsigned scale_floats, DecodeWork work) {
  ISTHMUS_DYNAMIC_SHARED(unsigned char, shared);
  auto* const scales = reinterpret_cast<float*>(shared);
  unsigned char* const buffer =
      shared + (scale_floats * sizeof(float) + kPiece - 1) / kPiece * kPiece;
  const std::size_t tile = blockIdx.x;
  const std::size_t begin = tile * kTileValues;
  const auto n = static_cast<unsigned>(work.n - begin < kTileValues ? work.n - begin : kTileValues);
  const unsigned char* const from = work.bytes + tile * work.tile_bytes;
  unsigned char* const in = staged(buffer, from);
  move_bytes(in, from, n == kTileValues ? work.tile_bytes : work.last_tile_bytes);
  ChunkValues v = {};
  if (work.add) load_values(work.values + begin, n, v);
  __syncthreads();

  const unsigned blocks = blocks_in(n, shape.block_log2);
  bool good = read_plane(shape, in, blocks, scales);
  const unsigned char* const codes = in + scale_bytes(shape.form, blocks);
  constexpr unsigned kMask = (1u << G::kBits) - 1;
  std::uint32_t words[kChunks];
  for (int c = 0; c < kChunks; ++c) {
    const unsigned first = chunk_place(c);
    words[c] = first < n ? get_codes<G::kBits>(codes, n, first) : 0;
    for (unsigned k = 0; k < kChunkValues && first + k < n; ++k) {
      good = good && G::valid(words[c] >> (k * G::kBits) & kMask);
    }
  }
  const unsigned used = n * G::kBits % 8;
  if (threadIdx.x == 0 && used != 0) good = good && codes[n * G::kBits / 8] >> used == 0;
  if (any_thread(!good)) {
    if (threadIdx.x == 0) note_bad(work.first_bad, tile);
    return;
  }
  for (int c = 0; c < kChunks; ++c) {
    for (unsigned k = 0; k < kChunkValues; ++k) {
      const unsigned i = chunk_place(c) + k;
      if (i >= n) continue;
      const float decoded = value_of<G>(words[c] >> (k * G::kBits) & kMask,
                                        scales + (i >> shape.block_log2) * kScaleFloats<G>);
      v[c][k] = work.add ? v[c][k] + decoded : decoded;
    }
  }
  store_values(work.values + begin, n, v);
}

}  // namespace

void decode_blocks(Stream& stream, const BlockCodecSpec& spec, const DecodeWork& work) {
  visit_grid(spec.grid, [&]<typename G>(G) {
    const std::size_t blocks = (kTileValues + spec.block - 1) / spec.block;
    const auto scale_floats = static_cast<unsigned>(kScaleFloats<G> * blocks);
    launch(stream,
           {.blocks = dim3(static_cast<unsigned>((work.n + kTileValues - 1) / kTileValues)),
            .threads = dim3(kTileThreads),
            .shared_bytes = scale_floats * sizeof(float) + work.tile_bytes + 2 * kPiece},
           decode_kernel<G>, block_shape(spec, G::kTop, 0), scale_floats, work);
  });
}

}  // namespace isthmus::cuda
