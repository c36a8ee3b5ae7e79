// SPDX-License-Identifier: Apache-2.0
// The scale plane of a tile in shared memory, for the kernels of the block codecs; tile.h describes
// the assignment of a tile to a thread block.
#pragma once

#include "quant/cuda/tile.h"
#include "quant/math/block_code_math.h"
#include "quant/math/scale_math.h"

namespace isthmus::cuda {

/// The part of a BlockCodecSpec that a kernel needs.
struct BlockShape {
  unsigned block_log2 = 0;
  ScaleForm form = ScaleForm::kFp32;
  Statistic statistic = Statistic::kLargest;
  float top = 0;         // the grid's largest value
  float most_scale = 0;  // largest_scale(top)
};
[[nodiscard]] inline BlockShape block_shape(const BlockCodecSpec& spec, float top,
                                            float most_scale) {
  unsigned log2 = 0;
  while (std::size_t{1} << log2 < spec.block) ++log2;
  return {log2, spec.form, spec.statistic, top, most_scale};
}

__host__ __device__ inline unsigned blocks_in(unsigned n, unsigned block_log2) {
  return (n + (1u << block_log2) - 1) >> block_log2;
}

/// Encodes `count` scales from the statistics, and replaces them by the decoded ones. Thread b %
/// kTileThreads reads and writes scale (or pair) b; no barrier at the end.
__device__ inline void write_plane(const BlockShape& shape, float* scales, unsigned count,
                                   unsigned char* out) {
  const unsigned t = threadIdx.x;
  switch (shape.form) {
    case ScaleForm::kFp32:
      for (unsigned b = t; b < count; b += kTileThreads) store_field(out + 4 * b, scales[b]);
      break;
    case ScaleForm::kRange:
      for (unsigned b = t; b < count; b += kTileThreads) {
        store_field(out + 8 * b, scales[2 * b]);
        store_field(out + 8 * b + 4, scales[2 * b + 1]);
      }
      break;
    case ScaleForm::kE8M0:
      for (unsigned b = t; b < count; b += kTileThreads) {
        out[b] = static_cast<unsigned char>(e8m0_of(scales[b]));
        scales[b] = float_of_e8m0(out[b]);
      }
      break;
    case ScaleForm::kFp16:
    case ScaleForm::kE4M3: {
      std::uint32_t mine = 0;  // largest of this thread's finite scales, which are not negative
      for (unsigned b = t; b < count; b += kTileThreads) {
        const std::uint32_t bits = is_nan(scales[b]) ? 0 : bits_of(scales[b]);
        mine = bits > mine ? bits : mine;
      }
      const float most = float_of(largest_of(mine));
      if (shape.form == ScaleForm::kFp16) {
        const unsigned byte = fp16_scale_byte(most);
        const double unit = fp16_scale_unit(byte);
        if (t == 0) out[0] = static_cast<unsigned char>(byte);
        for (unsigned b = t; b < count; b += kTileThreads) {
          const std::uint16_t code = fp16_scale_of(scales[b], unit, shape.top);
          scales[b] = float_of_fp16_scale(code, unit);
          store_field(out + 1 + 2 * b, code);
        }
      } else {
        const float unit = nvfp4_unit(most);
        if (t == 0) store_field(out, unit);
        for (unsigned b = t; b < count; b += kTileThreads) {
          const bool marked = is_nan(scales[b]);
          const unsigned code = marked ? 0x7Fu : code_of<E4M3Grid>(scales[b], &unit);
          out[4 + b] = static_cast<unsigned char>(code);
          scales[b] = marked ? float_of(kQuietNanBits) : value_of<E4M3Grid>(code, &unit);
        }
      }
      break;
    }
  }
}

/// Decodes bytes to `count` scales. RETURNS: false on a thread with a scale that no encoder makes.
/// No barrier.
__device__ inline bool read_plane(const BlockShape& shape, const unsigned char* in, unsigned count,
                                  float* scales) {
  const unsigned t = threadIdx.x;
  bool good = true;
  const float unit4 = shape.form == ScaleForm::kE4M3 ? load_field<float>(in) : 0.0f;
  const double unit16 = shape.form == ScaleForm::kFp16 ? fp16_scale_unit(in[0]) : 0.0;
  if (shape.form == ScaleForm::kE4M3) good = possible_scale(unit4, E4M3Grid::kTop);
  for (unsigned b = t; b < count; b += kTileThreads) {
    switch (shape.form) {
      case ScaleForm::kFp32:
        scales[b] = load_field<float>(in + 4 * b);
        break;
      case ScaleForm::kFp16:
        scales[b] = float_of_fp16_scale(load_field<std::uint16_t>(in + 1 + 2 * b), unit16);
        break;
      case ScaleForm::kE8M0:
        scales[b] = float_of_e8m0(in[b]);
        break;
      case ScaleForm::kE4M3:
        good = good && E4M3Grid::valid(in[4 + b]);
        scales[b] = value_of<E4M3Grid>(in[4 + b], &unit4);
        break;
      case ScaleForm::kRange:
        scales[2 * b] = load_field<float>(in + 8 * b);
        scales[2 * b + 1] = load_field<float>(in + 8 * b + 4);
        good = good && possible_range(scales[2 * b], scales[2 * b + 1]);
        break;
    }
    if (shape.form != ScaleForm::kRange) good = good && possible_scale(scales[b], shape.top);
  }
  return good;
}

}  // namespace isthmus::cuda
