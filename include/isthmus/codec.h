// SPDX-License-Identifier: Apache-2.0
// Codecs: the bytes form of a float vector on the wire.
//
// A vector is encoded tile by tile. A tile is kTileValues consecutive values (the last one may be
// shorter) and its bytes decode alone: no scale spans a tile border. Chunk and owner borders of an
// exchange are tile borders, so measured link shares never change a bit.
// Decoding is exact on every machine (tables, powers of two, one rounded multiply); a codec is
// immutable and may be used from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/expected.h"

namespace isthmus {

inline constexpr std::size_t kTileValues = 4096;

/// Bytes that are no encoding of the values asked for.
struct DecodeError {
  std::string what;
};

/// What the random bits of an encoding are drawn from: data, never call order, so that a run
/// repeats bit for bit. Codecs that round to nearest ignore it; stochastic rounding and random
/// indices do not.
struct EncodeKey {
  std::uint64_t seed = 0;  // the round (fragment, step): equal on all workers
  std::uint32_t worker =
      0;                   // < 2^22; whose values these are. Indices that all must share ignore it
  std::uint64_t tile = 0;  // number of the tile in its vector
};

class Codec {
 public:
  virtual ~Codec() = default;
  /// Canonical spelling with options, as `make_codec` accepts it: "int8:256".
  [[nodiscard]] virtual std::string name() const = 0;
  /// Exact size of one encoded tile of n <= kTileValues values.
  [[nodiscard]] virtual std::size_t encoded_bytes(std::size_t n) const = 0;
  /// Encodes one tile. REQUIRES: tile.size() <= kTileValues, out.size() ==
  /// encoded_bytes(tile.size()). Rounds to nearest, ties to even, unless the spelling says
  /// otherwise. DETERMINISM: a function of (tile, key), bit-identical on every implementation, NaNs
  /// included.
  virtual void encode(std::span<const float> tile, std::span<std::byte> out,
                      const EncodeKey& key = {}) const = 0;
  /// Decodes one tile into `out`. RETURNS: DecodeError when the size or a field is impossible;
  /// `out` is then unspecified.
  [[nodiscard]] virtual Expected<void, DecodeError> decode(std::span<const std::byte> bytes,
                                                           std::span<float> out) const = 0;
  /// sum[i] += decoded[i], one rounded addition each. A sum that is no number is a NaN everywhere,
  /// but which one its machine chooses: x86 keeps a payload, a GPU does not.
  [[nodiscard]] virtual Expected<void, DecodeError> decode_add(std::span<const std::byte> bytes,
                                                               std::span<float> sum) const = 0;
  /// True where each value survives bit for bit (fp32).
  [[nodiscard]] virtual bool lossless() const { return false; }
  /// True for codes that sum badly once re-encoded (top-k): their exchange is `gather`.
  [[nodiscard]] virtual bool sparse() const { return false; }
  /// True where the spelling asks for error feedback (`:ef`): the sender then adds what earlier
  /// encodings of the same stream lost. The codec itself keeps no state.
  [[nodiscard]] virtual bool error_feedback() const { return false; }
};

/// Makes a codec from its spelling, `name[:number][:option...]`: "int8", "fp4-e2m1:32:scale=fp16",
/// "1bit:1024:norm=l2:ef". docs/internals/codecs.md lists names and options.
/// THROWS: ConfigError naming the spelling, what is wrong, and what is allowed.
[[nodiscard]] std::unique_ptr<const Codec> make_codec(std::string_view spelling);

struct CodecInfo {
  std::string name;
  std::string summary;        // one line
  double bits_per_value = 0;  // at the default block size, scales included
};
/// All codecs of this build, in table order.
[[nodiscard]] std::vector<CodecInfo> codecs();

/// A whole vector, encoded: the tiles' bytes one after another.
struct Encoded {
  std::size_t values = 0;
  std::vector<std::byte> bytes;
};
/// Size of a whole vector of n values: the sum over its tiles.
[[nodiscard]] std::size_t encoded_bytes(const Codec& codec, std::size_t n);
/// Tile t is encoded under `key` with tile = key.tile + t.
[[nodiscard]] Encoded encode(const Codec& codec, std::span<const float> values,
                             const EncodeKey& key = {});
[[nodiscard]] Expected<void, DecodeError> decode(const Codec& codec,
                                                 std::span<const std::byte> bytes,
                                                 std::span<float> out);
[[nodiscard]] Expected<void, DecodeError> decode_add(const Codec& codec,
                                                     std::span<const std::byte> bytes,
                                                     std::span<float> sum);

}  // namespace isthmus
