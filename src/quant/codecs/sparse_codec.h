// SPDX-License-Identifier: Apache-2.0
// Codecs that send a few values of each tile and their indices: topk, randk, dct-topk. k is the
// number per 4096 values; a tile of n values sends ceil(k n / 4096). Layout:
// docs/internals/codecs.md.
#pragma once

#include <memory>
#include <string>

#include "isthmus/codec.h"
#include "quant/codecs/index_coding.h"

namespace isthmus {

enum class SparseValues : std::uint8_t {
  kFp32,  // unchanged
  kInt8,  // 127 steps of the tile's largest magnitude
  kSign,  // signs times the mean magnitude
  k2Bit,  // four means: quant/codecs/bucket_means.h
};

struct SparseCodecSpec {
  std::string name;   // canonical spelling
  std::size_t k = 0;  // per 4096 values
  SparseValues values = SparseValues::kFp32;
  IndexCoding indices = IndexCoding::kPacked12;
  bool dct = false;  // of the tile's cosine transform
  bool error_feedback = false;
};

[[nodiscard]] std::unique_ptr<const Codec> make_topk_codec(SparseCodecSpec spec);
/// k of every 4096 values, drawn by the key, which all workers share; values are sent raw,
/// unscaled.
[[nodiscard]] std::unique_ptr<const Codec> make_randk_codec(SparseCodecSpec spec);

/// The spec from which a codec of `make_topk_codec` or `make_randk_codec` was made; null for other
/// codecs. Valid for the codec's lifetime.
[[nodiscard]] const SparseCodecSpec* topk_codec_spec(const Codec& codec);
[[nodiscard]] const SparseCodecSpec* randk_codec_spec(const Codec& codec);

/// ceil(k n / 4096), at most n.
[[nodiscard]] std::size_t sparse_count(std::size_t k, std::size_t n);

}  // namespace isthmus
