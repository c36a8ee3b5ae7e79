// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "c/c_errors.h"
#include "isthmus/codec.h"
#include "isthmus/errors.h"

struct isthmus_codec {
  std::unique_ptr<const isthmus::Codec> codec;
  std::string name;
};

namespace isthmus::c {
namespace {

/// The key that a caller built with this header, or with one of an earlier version, means.
EncodeKey key_of(const isthmus_encode_key* given) {
  if (given == nullptr) return {};
  const isthmus_encode_key key = taken(given, "isthmus_encode_key");
  constexpr std::uint32_t kWorkers = 1u << 22;
  if (key.worker >= kWorkers)
    throw ConfigError(
        fmt::format("isthmus_encode_key.worker = {}: must be < {}", key.worker, kWorkers));
  return {.seed = key.seed, .worker = key.worker, .tile = key.tile};
}

std::span<const std::byte> bytes_at(const uint8_t* bytes, size_t size) {
  return {reinterpret_cast<const std::byte*>(bytes), size};
}

void check(const Expected<void, DecodeError>& decoded, const isthmus_codec* codec) {
  if (!decoded) throw RunError(fmt::format("codec \"{}\": {}", codec->name, decoded.error().what));
}

}  // namespace
}  // namespace isthmus::c

using isthmus::c::bytes_at;
using isthmus::c::check;
using isthmus::c::guarded;
using isthmus::c::require;

isthmus_error* isthmus_codec_new(const char* spelling, isthmus_codec** codec) {
  return guarded([&] {
    require(spelling, "isthmus_codec_new", "spelling");
    require(codec, "isthmus_codec_new", "codec");
    auto made = std::make_unique<isthmus_codec>();
    made->codec = isthmus::make_codec(spelling);
    made->name = made->codec->name();
    *codec = made.release();
  });
}

void isthmus_codec_free(isthmus_codec* codec) { delete codec; }
const char* isthmus_codec_name(const isthmus_codec* codec) { return codec->name.c_str(); }
int32_t isthmus_codec_lossless(const isthmus_codec* codec) { return codec->codec->lossless(); }
int32_t isthmus_codec_sparse(const isthmus_codec* codec) { return codec->codec->sparse(); }
int32_t isthmus_codec_error_feedback(const isthmus_codec* codec) {
  return codec->codec->error_feedback();
}
size_t isthmus_codec_bytes(const isthmus_codec* codec, size_t values) {
  return isthmus::encoded_bytes(*codec->codec, values);
}

isthmus_error* isthmus_codec_encode(const isthmus_codec* codec, const float* values, size_t count,
                                    const isthmus_encode_key* key, uint8_t* out, size_t out_bytes) {
  return guarded([&] {
    require(codec, "isthmus_codec_encode", "codec");
    if (count > 0) require(values, "isthmus_codec_encode", "values");
    const isthmus::EncodeKey first = isthmus::c::key_of(key);
    const size_t needed = isthmus_codec_bytes(codec, count);
    if (out_bytes != needed)
      throw isthmus::ConfigError(
          fmt::format("isthmus_codec_encode: out_bytes = {}: {} values take {} bytes as \"{}\"",
                      out_bytes, count, needed, codec->name));
    if (needed > 0) require(out, "isthmus_codec_encode", "out");
    const std::span<std::byte> all(reinterpret_cast<std::byte*>(out), out_bytes);
    size_t at = 0;
    for (size_t begin = 0, tile = 0; begin < count; begin += isthmus::kTileValues, ++tile) {
      const size_t n = std::min(isthmus::kTileValues, count - begin);
      const size_t bytes = codec->codec->encoded_bytes(n);
      codec->codec->encode({values + begin, n}, all.subspan(at, bytes),
                           {.seed = first.seed, .worker = first.worker, .tile = first.tile + tile});
      at += bytes;
    }
  });
}

isthmus_error* isthmus_codec_decode(const isthmus_codec* codec, const uint8_t* bytes, size_t size,
                                    float* out, size_t count) {
  return guarded([&] {
    require(codec, "isthmus_codec_decode", "codec");
    if (size > 0) require(bytes, "isthmus_codec_decode", "bytes");
    if (count > 0) require(out, "isthmus_codec_decode", "out");
    check(isthmus::decode(*codec->codec, bytes_at(bytes, size), {out, count}), codec);
  });
}

isthmus_error* isthmus_codec_decode_add(const isthmus_codec* codec, const uint8_t* bytes,
                                        size_t size, float* sum, size_t count) {
  return guarded([&] {
    require(codec, "isthmus_codec_decode_add", "codec");
    if (size > 0) require(bytes, "isthmus_codec_decode_add", "bytes");
    if (count > 0) require(sum, "isthmus_codec_decode_add", "sum");
    check(isthmus::decode_add(*codec->codec, bytes_at(bytes, size), {sum, count}), codec);
  });
}
