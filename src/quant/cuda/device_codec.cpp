// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "core/base/check.h"
#include "isthmus/errors.h"
#include "quant/codecs/cosine_transform.h"
#include "quant/codecs/scale_plane.h"
#include "quant/codecs/stochastic.h"
#include "quant/cuda/cuda_codec.h"

namespace isthmus::cuda {
namespace {

constexpr std::size_t kMostTiles = (std::size_t{1} << 31) - 1;  // blocks of a grid

std::optional<FloatForm> float_form(const Codec& codec) {
  const std::string name = codec.name();
  const std::string_view base = std::string_view(name).substr(0, name.find(':'));
  if (base == "fp32") return FloatForm::kFp32;
  if (base == "bf16") return FloatForm::kBf16;
  if (base == "fp16") return FloatForm::kFp16;
  return std::nullopt;
}

std::size_t last_tile_values(std::size_t n) { return (n - 1) % kTileValues + 1; }

template <typename T>
std::vector<T> on_host(Stream& stream, const T* data, std::size_t n) {
  std::vector<T> host(n);
  copy(stream, host.data(), data, n);
  stream.synchronize();
  return host;
}

template <typename T>
DeviceArray<T> on_device(std::span<const T> host) {
  DeviceArray<T> array(host.size());
  Stream stream;
  copy(stream, array.data(), host.data(), host.size());
  stream.synchronize();
  return array;
}

}  // namespace

void FirstBadTile::clear(Stream& stream) { fill_zero(stream, word_.data(), 1); }

std::uint32_t FirstBadTile::read(Stream& stream) const {
  return ~on_host(stream, word_.data(), 1).front();
}

DeviceCodec::DeviceCodec(std::unique_ptr<const Codec> codec) : codec_(std::move(codec)) {
  const SparseCodecSpec* const topk = topk_codec_spec(*codec_);
  if (topk != nullptr && topk->dct) {
    cosines_ = on_device(cosine_matrices());
    return;
  }
  const BlockCodecSpec* const block = block_codec_spec(*codec_);
  if (block == nullptr) {
    const bool known = topk != nullptr || randk_codec_spec(*codec_) != nullptr;
    ISTHMUS_CHECK(known || float_form(*codec_), codec_->name());
    return;
  }
  most_scale_ = largest_scale(visit_grid(block->grid, []<typename G>(G) { return G::kTop; }));
  if (!block->stochastic) return;
  const std::vector<StochasticLevel> levels = stochastic_levels(block->grid);
  levels_ = on_device<StochasticLevel>(levels);
}

CosineMatrices DeviceCodec::cosines() const {
  return {.forward = cosines_.data(), .backward = cosines_.data() + cosines_.size() / 2};
}

void DeviceCodec::encode(Stream& stream, const float* x, std::size_t n, std::byte* bytes,
                         const EncodeKey& key) const {
  encode(stream, x, n, bytes, key, ResidualPlace{});
}

void DeviceCodec::encode_with_feedback(Stream& stream, float* residual, float decay, const float* x,
                                       std::size_t n, std::byte* bytes, const EncodeKey& key,
                                       FirstBadTile& bad) const {
  bad.clear(stream);
  encode(stream, x, n, bytes, key, {.residual = residual, .decay = decay, .first_bad = bad.data()});
}

void DeviceCodec::encode(Stream& stream, const float* x, std::size_t n, std::byte* bytes,
                         const EncodeKey& key, const ResidualPlace& feedback) const {
  if (n == 0) return;
  ISTHMUS_CHECK(n <= kMostTiles * kTileValues, n);
  const EncodeWork work{.x = x,
                        .n = n,
                        .bytes = reinterpret_cast<unsigned char*>(bytes),
                        .tile_bytes = codec_->encoded_bytes(kTileValues),
                        .last_tile_bytes = codec_->encoded_bytes(last_tile_values(n)),
                        .key = key,
                        .feedback = feedback};
  if (const auto form = float_form(*codec_)) {
    encode_floats(stream, *form, work);
  } else if (const SparseCodecSpec* const topk = topk_codec_spec(*codec_)) {
    encode_topk(stream, *topk, cosines(), work);
  } else if (const SparseCodecSpec* const randk = randk_codec_spec(*codec_)) {
    encode_randk(stream, *randk, work);
  } else {
    encode_blocks(stream, *block_codec_spec(*codec_), most_scale_,
                  {.levels = levels_.data(), .count = levels_.size()}, work);
  }
}

void DeviceCodec::decode(Stream& stream, const std::byte* bytes, std::size_t n, float* values,
                         FirstBadTile& bad) const {
  decode(stream, bytes, n, values, false, bad);
}
void DeviceCodec::decode_add(Stream& stream, const std::byte* bytes, std::size_t n, float* values,
                             FirstBadTile& bad) const {
  decode(stream, bytes, n, values, true, bad);
}

void DeviceCodec::decode(Stream& stream, const std::byte* bytes, std::size_t n, float* values,
                         bool add, FirstBadTile& bad) const {
  bad.clear(stream);
  if (n == 0) return;
  ISTHMUS_CHECK(n <= kMostTiles * kTileValues, n);
  const DecodeWork work{.bytes = reinterpret_cast<const unsigned char*>(bytes),
                        .tile_bytes = codec_->encoded_bytes(kTileValues),
                        .last_tile_bytes = codec_->encoded_bytes(last_tile_values(n)),
                        .values = values,
                        .n = n,
                        .add = add,
                        .first_bad = bad.data()};
  if (const auto form = float_form(*codec_)) {
    decode_floats(stream, *form, work);
  } else if (const SparseCodecSpec* const topk = topk_codec_spec(*codec_)) {
    decode_topk(stream, *topk, cosines(), work);
  } else if (const SparseCodecSpec* const randk = randk_codec_spec(*codec_)) {
    decode_randk(stream, *randk, work);
  } else {
    decode_blocks(stream, *block_codec_spec(*codec_), work);
  }
}

// The CPU does the tile once more, since it knows why and says it.
Expected<void, NotFinite> DeviceCodec::check_feedback(Stream& stream, const float* residual,
                                                      float decay, const float* x, std::size_t n,
                                                      const FirstBadTile& bad) const {
  const std::uint32_t tile = bad.read(stream);
  if (tile == FirstBadTile::kNone) return {};
  const std::size_t begin = tile * kTileValues;
  const std::size_t values = std::min(kTileValues, n - begin);
  std::vector<float> p = on_host(stream, x + begin, values);
  std::vector<float> e = on_host(stream, residual + begin, values);
  std::vector<std::byte> bytes(codec_->encoded_bytes(values));
  auto refused = isthmus::encode_with_feedback(*codec_, e, decay, begin, p, bytes);
  ISTHMUS_CHECK(!refused.has_value(), codec_->name(), tile);
  return refused;
}

Expected<void, DecodeError> DeviceCodec::check_decoded(Stream& stream, const std::byte* bytes,
                                                       std::size_t n,
                                                       const FirstBadTile& bad) const {
  const std::uint32_t tile = bad.read(stream);
  if (tile == FirstBadTile::kNone) return {};
  const std::size_t values = std::min(kTileValues, n - tile * kTileValues);
  const std::vector<std::byte> damaged = on_host(
      stream, bytes + tile * codec_->encoded_bytes(kTileValues), codec_->encoded_bytes(values));
  std::vector<float> out(values);
  const auto refused = codec_->decode(damaged, out);
  ISTHMUS_CHECK(!refused.has_value(), codec_->name(), tile);
  return Unexpected<DecodeError>(
      DecodeError{fmt::format("tile {}: {}", tile, refused.error().what)});
}

std::unique_ptr<const DeviceCodec> make_device_codec(std::string_view spelling) {
  std::unique_ptr<const Codec> codec = make_codec(spelling);
  if (const std::string why = unavailable(); !why.empty()) {
    throw SystemError(fmt::format("codec = \"{}\" on a CUDA device: {}", spelling, why));
  }
  return std::make_unique<const DeviceCodec>(std::move(codec));
}

}  // namespace isthmus::cuda
