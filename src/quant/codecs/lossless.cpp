// SPDX-License-Identifier: Apache-2.0
#include "quant/codecs/lossless.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/base/check.h"

namespace isthmus {
namespace {

constexpr std::uint32_t kMagic = 0x315A'5349;  // "ISZ1"
constexpr std::size_t kHeader = sizeof(std::uint32_t) + sizeof(std::uint64_t);
constexpr std::size_t kPlanes = sizeof(float);
constexpr std::size_t kChunk = std::size_t{1} << 18;  // values; bounds memory on both sides

Unexpected<DecodeError> damaged(const std::string& what) {
  return Unexpected<DecodeError>(DecodeError{"compressed values: " + what});
}

void append_bytes(std::vector<std::byte>& out, const void* data, std::size_t size) {
  const std::size_t at = out.size();
  out.resize(at + size);
  if (size > 0) std::memcpy(out.data() + at, data, size);
}
template <typename T>
void append(std::vector<std::byte>& out, T value) {
  append_bytes(out, &value, sizeof value);
}
template <typename T>
T load(std::span<const std::byte> bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// A plane as zstd made it, or as it is where that is no shorter: then its size is that of the
// plane.
void append_plane(std::span<const std::byte> plane, int level, std::vector<std::byte>& scratch,
                  std::vector<std::byte>& out) {
  scratch.resize(ZSTD_compressBound(plane.size()));
  const std::size_t size =
      ZSTD_compress(scratch.data(), scratch.size(), plane.data(), plane.size(), level);
  ISTHMUS_CHECK(ZSTD_isError(size) == 0, std::string(ZSTD_getErrorName(size)));
  const std::span<const std::byte> kept =
      size < plane.size() ? std::span<const std::byte>(scratch).first(size) : plane;
  append(out, static_cast<std::uint32_t>(kept.size()));
  append_bytes(out, kept.data(), kept.size());
}

// Takes one plane from the front of `rest`.
Expected<void, DecodeError> take_plane(std::span<const std::byte>& rest,
                                       std::span<std::byte> plane) {
  if (rest.size() < sizeof(std::uint32_t)) return damaged("they end early");
  const auto size = load<std::uint32_t>(rest);
  rest = rest.subspan(sizeof(std::uint32_t));
  if (size > plane.size() || size > rest.size()) return damaged("a plane is too long");
  if (size == plane.size()) {
    std::ranges::copy(rest.first(size), plane.begin());
  } else {
    const std::size_t made = ZSTD_decompress(plane.data(), plane.size(), rest.data(), size);
    if (ZSTD_isError(made) != 0 || made != plane.size()) {
      return damaged(ZSTD_isError(made) != 0 ? ZSTD_getErrorName(made) : "a plane is too short");
    }
  }
  rest = rest.subspan(size);
  return {};
}

}  // namespace

std::vector<std::byte> compress_floats(std::span<const float> values, int level) {
  std::vector<std::byte> out;
  append(out, kMagic);
  append(out, static_cast<std::uint64_t>(values.size()));
  std::vector<std::byte> plane;
  std::vector<std::byte> scratch;
  for (std::size_t begin = 0; begin < values.size(); begin += kChunk) {
    const auto bytes =
        std::as_bytes(values.subspan(begin, std::min(kChunk, values.size() - begin)));
    plane.resize(bytes.size() / kPlanes);
    for (std::size_t p = 0; p < kPlanes; ++p) {
      for (std::size_t i = 0; i < plane.size(); ++i) plane[i] = bytes[i * kPlanes + p];
      append_plane(plane, level, scratch, out);
    }
  }
  return out;
}

Expected<std::size_t, DecodeError> compressed_values(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeader || load<std::uint32_t>(bytes) != kMagic) {
    return damaged("they do not start with ISZ1");
  }
  const auto n = load<std::uint64_t>(bytes.subspan(sizeof kMagic));
  return static_cast<std::size_t>(n);
}

Expected<void, DecodeError> decompress_floats(std::span<const std::byte> bytes,
                                              std::span<float> out) {
  const auto n = compressed_values(bytes);
  if (!n) return Unexpected<DecodeError>(n.error());
  if (*n != out.size()) {
    return damaged(fmt::format("they hold {} values, {} are wanted", *n, out.size()));
  }
  std::span<const std::byte> rest = bytes.subspan(kHeader);
  std::vector<std::byte> plane;
  for (std::size_t begin = 0; begin < out.size(); begin += kChunk) {
    const auto values =
        std::as_writable_bytes(out.subspan(begin, std::min(kChunk, out.size() - begin)));
    plane.resize(values.size() / kPlanes);
    for (std::size_t p = 0; p < kPlanes; ++p) {
      if (auto ok = take_plane(rest, plane); !ok) return ok;
      for (std::size_t i = 0; i < plane.size(); ++i) values[i * kPlanes + p] = plane[i];
    }
  }
  if (!rest.empty()) return damaged("bytes are left over");
  return {};
}

}  // namespace isthmus
