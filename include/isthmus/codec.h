// SPDX-License-Identifier: Apache-2.0
// Codecs: encodings of a float vector as bytes for the wire.
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

/// Why bytes are not an encoding of the expected number of values.
struct DecodeError {
  std::string what;
};

/// Key of an encoding's random bits. It is data, not call order, so that a run repeats bit for bit.
/// Stochastic rounding and random indices use it; codecs that round to nearest ignore it.
struct EncodeKey {
  std::uint64_t seed = 0;    // the round (fragment, step): equal on all workers
  std::uint32_t worker = 0;  // < 2^22; the worker that encodes. Indices shared by all workers
                             // ignore it
  std::uint64_t tile = 0;    // index of the tile in its vector
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
  /// sum[i] += decoded[i], one rounded addition each. A NaN sum is NaN on every machine, but its
  /// bits depend on the machine: x86 keeps a payload, a GPU does not.
  [[nodiscard]] virtual Expected<void, DecodeError> decode_add(std::span<const std::byte> bytes,
                                                               std::span<float> sum) const = 0;
  /// True if each value survives bit for bit (fp32).
  [[nodiscard]] virtual bool lossless() const { return false; }
  /// True for codecs whose mean re-encodes badly (top-k): their exchange is `gather`.
  [[nodiscard]] virtual bool sparse() const { return false; }
  /// True if the spelling asks for error feedback (`:ef`): the sender then adds the residual of
  /// earlier encodings of the same stream. The codec itself keeps no state.
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

/// An encoded vector: the bytes of its tiles in order.
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
