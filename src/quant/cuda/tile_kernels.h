// SPDX-License-Identifier: Apache-2.0
// Functions that queue the codecs' kernels: device pointers, whole vectors of n >= 1 values in
// tiles of kTileValues, one thread block per tile. Each codec is documented in its header on the
// CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isthmus/codec.h"
#include "kernels/cuda/device.h"
#include "quant/codecs/block_codec.h"
#include "quant/codecs/sparse_codec.h"
#include "quant/math/stochastic_math.h"

namespace isthmus::cuda {

/// Error feedback fused with encoding; disabled if residual is null.
struct ResidualPlace {
  float* residual = nullptr;  // (n,)
  float decay = 1;
  std::uint32_t* first_bad = nullptr;  // raised to ~index of a tile that is not finite
};

struct EncodeWork {
  const float* x = nullptr;  // (n,)
  std::size_t n = 0;
  unsigned char* bytes = nullptr;  // at any address
  std::size_t tile_bytes = 0;      // of a whole tile
  std::size_t last_tile_bytes = 0;
  EncodeKey key;  // of the first tile
  ResidualPlace feedback;
};

struct DecodeWork {
  const unsigned char* bytes = nullptr;  // at any address
  std::size_t tile_bytes = 0;
  std::size_t last_tile_bytes = 0;
  float* values = nullptr;  // (n,)
  std::size_t n = 0;
  bool add = false;                    // true: add to the existing values
  std::uint32_t* first_bad = nullptr;  // raised to ~index of a tile with an invalid encoding
};

struct StochasticLevels {
  const StochasticLevel* levels = nullptr;  // on the device; null: round to nearest
  std::size_t count = 0;
};

enum class FloatForm : std::uint8_t { kFp32, kBf16, kFp16 };
void encode_floats(Stream& stream, FloatForm form, const EncodeWork& work);
void decode_floats(Stream& stream, FloatForm form, const DecodeWork& work);

void encode_blocks(Stream& stream, const BlockCodecSpec& spec, float most_scale,
                   const StochasticLevels& levels, const EncodeWork& work);
void decode_blocks(Stream& stream, const BlockCodecSpec& spec, const DecodeWork& work);

/// cosine_matrices() (quant/codecs/cosine_transform.h) on the device.
struct CosineMatrices {
  const float* forward = nullptr;
  const float* backward = nullptr;  // its transpose
};

/// topk; with spec.dct dct-topk, which needs the matrices.
void encode_topk(Stream& stream, const SparseCodecSpec& spec, const CosineMatrices& cosines,
                 const EncodeWork& work);
void decode_topk(Stream& stream, const SparseCodecSpec& spec, const CosineMatrices& cosines,
                 const DecodeWork& work);
void encode_randk(Stream& stream, const SparseCodecSpec& spec, const EncodeWork& work);
void decode_randk(Stream& stream, const SparseCodecSpec& spec, const DecodeWork& work);

}  // namespace isthmus::cuda
