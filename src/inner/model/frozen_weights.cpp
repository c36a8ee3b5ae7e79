// SPDX-License-Identifier: Apache-2.0
#include "inner/model/frozen_weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr auto kTile = static_cast<std::int64_t>(kTileValues);
constexpr const char* kWide = "fp32";
constexpr const char* kHalf = "bf16";

/// How the layers' matrices are kept. THROWS: ConfigError.
const char* spelling_of(const std::string& storage) {
  if (storage == kWide) return kWide;
  if (storage == kHalf) return kHalf;
  if (storage == "nf4") return "nf4:64";
  throw ConfigError(fmt::format("lora.base = \"{}\": must be fp32, bf16 or nf4", storage));
}

std::int64_t largest_outside(const ModelLayout& layout) {
  std::int64_t most = 0;
  for (const TensorInfo& tensor : layout.tensors()) {
    if (tensor.layer < 0) most = std::max(most, tensor.elements.size());
  }
  return most;
}

}  // namespace

FrozenWeights::FrozenWeights(const ModelLayout& layout, kernels::ThreadTeam& team,
                             const std::string& storage)
    : layout_(layout), team_(team) {
  const std::string spelling = spelling_of(storage);
  if (spelling == kWide) {
    flat_.resize(static_cast<std::size_t>(layout.elements()));
    return;
  }
  matrices_ = make_codec(spelling);
  others_ = make_codec(kHalf);
  vectors_ = make_codec(kWide);
  kept_.resize(layout.tensors().size());
  layer_values_.resize(static_cast<std::size_t>(layout.layer_elements(0).size()));
}

const Codec& FrozenWeights::codec_of(const TensorInfo& tensor) const {
  if (tensor.shape.size() < 2) return *vectors_;
  return tensor.hidden_matrix() ? *matrices_ : *others_;
}

void FrozenWeights::store(std::size_t tensor, std::int64_t begin, std::span<const float> values) {
  const TensorInfo& info = layout_.tensors()[tensor];
  const std::int64_t end = begin + static_cast<std::int64_t>(values.size());
  ISTHMUS_CHECK(begin >= 0 && end <= info.elements.size(), tensor, begin, end);
  ISTHMUS_CHECK(begin % kTile == 0, tensor, begin);
  ISTHMUS_CHECK(end % kTile == 0 || end == info.elements.size(), tensor, end);
  if (!flat_.empty()) {
    std::ranges::copy(values, flat_.begin() + info.elements.begin + begin);
    return;
  }
  const Codec& codec = codec_of(info);
  Kept& kept = kept_[tensor];
  kept.codec = &codec;
  kept.bytes.resize(encoded_bytes(codec, static_cast<std::size_t>(info.elements.size())));
  const std::size_t tile_bytes = codec.encoded_bytes(kTileValues);
  const std::int64_t first_tile = begin / kTile;
  const std::int64_t end_tile = (end + kTile - 1) / kTile;
  team_.for_blocks(end_tile - first_tile, 1, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t tile = first_tile + from; tile < first_tile + to; ++tile) {
      const auto first = static_cast<std::size_t>(tile * kTile - begin);
      const std::span<const float> part =
          values.subspan(first, std::min(kTileValues, values.size() - first));
      codec.encode(part, std::span(kept.bytes)
                             .subspan(static_cast<std::size_t>(tile) * tile_bytes,
                                      codec.encoded_bytes(part.size())));
    }
  });
  in_buffer_ = -1;
}

void FrozenWeights::widen(std::size_t tensor, std::int64_t begin, std::int64_t end, float* out) {
  const Kept& kept = kept_[tensor];
  ISTHMUS_CHECK(kept.codec != nullptr, tensor);  // stored before it is read
  const std::int64_t size = layout_.tensors()[tensor].elements.size();
  const auto tile_bytes = static_cast<std::int64_t>(kept.codec->encoded_bytes(kTileValues));
  const std::int64_t first_tile = begin / kTile;
  team_.for_blocks(
      (end + kTile - 1) / kTile - first_tile, 1, [&](std::int64_t from, std::int64_t to) {
        std::vector<float> edge;
        for (std::int64_t tile = first_tile + from; tile < first_tile + to; ++tile) {
          const std::int64_t low = tile * kTile;
          const std::int64_t high = std::min(low + kTile, size);
          const auto values = static_cast<std::size_t>(high - low);
          const std::span<const std::byte> bytes =
              std::span(kept.bytes)
                  .subspan(static_cast<std::size_t>(tile * tile_bytes),
                           kept.codec->encoded_bytes(values));
          const bool whole = low >= begin && high <= end;
          if (!whole) edge.resize(values);
          float* const to_values = whole ? out + (low - begin) : edge.data();
          const bool good = kept.codec->decode(bytes, {to_values, values}).has_value();
          ISTHMUS_CHECK(good, tile);
          if (whole) continue;
          const std::int64_t cut_low = std::max(low, begin);
          const std::int64_t cut_high = std::min(high, end);
          std::copy_n(edge.data() + (cut_low - low), cut_high - cut_low, out + (cut_low - begin));
        }
      });
}

const float* FrozenWeights::tensor(std::size_t index) {
  const CanonicalRange elements = layout_.tensors()[index].elements;
  if (!flat_.empty()) return flat_.data() + elements.begin;
  return rows(index, 0, layout_.tensors()[index].shape[0]);
}

const float* FrozenWeights::rows(std::size_t index, std::int64_t first, std::int64_t count) {
  const TensorInfo& info = layout_.tensors()[index];
  const std::int64_t columns = info.elements.size() / info.shape[0];
  if (!flat_.empty()) return flat_.data() + info.elements.begin + first * columns;
  const auto values = static_cast<std::size_t>(count * columns);
  if (tensor_values_.size() < values) tensor_values_.resize(values);
  widen(index, first * columns, (first + count) * columns, tensor_values_.data());
  return tensor_values_.data();
}

const float* FrozenWeights::layer(std::int64_t layer) {
  const CanonicalRange all = layout_.layer_elements(layer);
  if (!flat_.empty()) return flat_.data() + all.begin;
  if (in_buffer_ == layer) return layer_values_.data();
  const std::size_t first = layout_.first_tensor(layer);
  for (std::size_t i = first; i < first + layout_.tensors_per_layer(); ++i) {
    const CanonicalRange elements = layout_.tensors()[i].elements;
    widen(i, 0, elements.size(), layer_values_.data() + (elements.begin - all.begin));
  }
  in_buffer_ = layer;
  return layer_values_.data();
}

std::size_t FrozenWeights::held_bytes() const {
  std::size_t bytes = (flat_.size() + layer_values_.size() + tensor_values_.size()) * sizeof(float);
  for (const Kept& kept : kept_) bytes += kept.bytes.size();
  return bytes;
}

std::int64_t FrozenWeights::bytes(const ModelLayout& layout, const std::string& storage) {
  constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
  const std::string spelling = spelling_of(storage);
  if (spelling == kWide) return kFloat * layout.elements();
  const auto matrices = make_codec(spelling);
  const auto others = make_codec(kHalf);
  std::int64_t bytes = kFloat * (layout.layer_elements(0).size() + largest_outside(layout));
  for (const TensorInfo& tensor : layout.tensors()) {
    const auto values = static_cast<std::size_t>(tensor.elements.size());
    if (tensor.shape.size() < 2) {
      bytes += kFloat * tensor.elements.size();
    } else {
      bytes += static_cast<std::int64_t>(
          encoded_bytes(tensor.hidden_matrix() ? *matrices : *others, values));
    }
  }
  return bytes;
}

}  // namespace isthmus
