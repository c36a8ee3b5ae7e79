// SPDX-License-Identifier: Apache-2.0
// Codecs on the device, with the bytes and floats of the CPU's (isthmus/codec.h): encodes a vector
// in device memory to bytes in device memory and back, all tiles in parallel.
//
// Queuing functions return at once; pointers are device memory and must live until the stream has
// executed the work. An object holds tables on the device and is used by one thread at a time.
// DETERMINISM: encode gives the CPU's bytes for all finite values and for infinities. A NaN is
// marked as on the CPU; only if its own bits are sent (fp32, bf16, topk, dct-topk) after error
// feedback was added, its payload depends on the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "isthmus/codec.h"
#include "isthmus/expected.h"
#include "kernels/cuda/device.h"
#include "quant/codecs/error_feedback.h"
#include "quant/cuda/tile_kernels.h"

namespace isthmus::cuda {

/// Index of the first tile that the last call rejected, in device memory. Each call that takes a
/// FirstBadTile clears it first, so read it before the next call with the same object.
class FirstBadTile {
 public:
  FirstBadTile() : word_(1) {}
  /// Queues a reset to kNone.
  void clear(Stream& stream);
  [[nodiscard]] std::uint32_t* data() const { return word_.data(); }
  /// Blocks. RETURNS: kNone, or the index.
  [[nodiscard]] std::uint32_t read(Stream& stream) const;
  static constexpr std::uint32_t kNone = 0xFFFF'FFFF;

 private:
  DeviceArray<std::uint32_t> word_;  // ~index, so that zero is none and the largest word is the
                                     // first tile
};

class DeviceCodec {
 public:
  /// REQUIRES: `codec` is one of make_codec's.
  explicit DeviceCodec(std::unique_ptr<const Codec> codec);

  /// The same codec on the CPU, for name, sizes and messages.
  [[nodiscard]] const Codec& codec() const { return *codec_; }

  /// bytes[0, encoded_bytes(codec, n)) := the tiles of x, tile t under `key` with tile = key.tile +
  /// t. x: (n,), at most 2^31 - 1 tiles; bytes at any address; not overlapping.
  void encode(Stream& stream, const float* x, std::size_t n, std::byte* bytes,
              const EncodeKey& key = {}) const;
  /// As encode, with encode_with_feedback (quant/codecs/error_feedback.h) for each tile: encodes p
  /// = x + decay e, and e := p - Dec. x does not change. A tile with a value that is not finite
  /// keeps its residual; the first such tile of this call is recorded in `bad`, and other tiles
  /// continue.
  void encode_with_feedback(Stream& stream, float* residual, float decay, const float* x,
                            std::size_t n, std::byte* bytes, const EncodeKey& key,
                            FirstBadTile& bad) const;
  /// Blocks until that is done. x and residual: the queued arguments, unchanged since. RETURNS:
  /// NotFinite with the CPU's text.
  [[nodiscard]] Expected<void, NotFinite> check_feedback(Stream& stream, const float* residual,
                                                         float decay, const float* x, std::size_t n,
                                                         const FirstBadTile& bad) const;

  /// values := decoded values, or values += them, one rounded addition each. A tile with an invalid
  /// encoding keeps its values; the first such tile of this call is recorded in `bad`, and other
  /// tiles continue. values: (n,); bytes: encoded_bytes(codec, n) at any address.
  void decode(Stream& stream, const std::byte* bytes, std::size_t n, float* values,
              FirstBadTile& bad) const;
  void decode_add(Stream& stream, const std::byte* bytes, std::size_t n, float* values,
                  FirstBadTile& bad) const;
  /// Blocks until that is done. RETURNS: DecodeError with the CPU's text.
  [[nodiscard]] Expected<void, DecodeError> check_decoded(Stream& stream, const std::byte* bytes,
                                                          std::size_t n,
                                                          const FirstBadTile& bad) const;

 private:
  void encode(Stream& stream, const float* x, std::size_t n, std::byte* bytes, const EncodeKey& key,
              const ResidualPlace& feedback) const;
  void decode(Stream& stream, const std::byte* bytes, std::size_t n, float* values, bool add,
              FirstBadTile& bad) const;

  [[nodiscard]] CosineMatrices cosines() const;

  std::unique_ptr<const Codec> codec_;
  DeviceArray<float> cosines_;           // of dct-topk: both matrices
  DeviceArray<StochasticLevel> levels_;  // empty: round to nearest
  float most_scale_ = 0;
};

/// From a spelling as for `make_codec`. THROWS: ConfigError for a bad spelling; SystemError when no
/// device can be used.
[[nodiscard]] std::unique_ptr<const DeviceCodec> make_device_codec(std::string_view spelling);

}  // namespace isthmus::cuda
