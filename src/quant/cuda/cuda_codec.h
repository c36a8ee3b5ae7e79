// SPDX-License-Identifier: Apache-2.0
// Codecs on the device, with the bytes and the floats of the CPU's (isthmus/codec.h): a vector in
// device memory to its bytes in device memory and back, all tiles at once.
//
// What is queued returns at once; pointers are the device's and must live until the stream has got
// there. An object holds tables on the device and is used by one thread at a time.
// DETERMINISM: encode gives the CPU's bytes for all finite values and for infinities; a NaN is
// marked as there, but where its own bits are sent (fp32, bf16, topk, dct-topk) and error feedback
// has been added, its payload is the machine's.
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

/// Number of the first tile that a kernel could not do, in device memory.
class FirstBadTile {
 public:
  FirstBadTile() : word_(1) {}
  /// Queues: none is bad.
  void clear(Stream& stream);
  [[nodiscard]] std::uint32_t* data() const { return word_.data(); }
  /// Blocks. RETURNS: kNone, or the tile.
  [[nodiscard]] std::uint32_t read(Stream& stream) const;
  static constexpr std::uint32_t kNone = 0xFFFF'FFFF;

 private:
  DeviceArray<std::uint32_t> word_;  // ~number, so that zero is none and the largest is the first
};

class DeviceCodec {
 public:
  /// REQUIRES: `codec` is one of make_codec's.
  explicit DeviceCodec(std::unique_ptr<const Codec> codec);

  /// The same codec on the CPU: name, sizes, messages.
  [[nodiscard]] const Codec& codec() const { return *codec_; }

  /// bytes[0, encoded_bytes(codec, n)) := the tiles of x, tile t under `key` with tile = key.tile +
  /// t. x: (n,), at most 2^31 - 1 tiles; bytes at any address; not overlapping.
  void encode(Stream& stream, const float* x, std::size_t n, std::byte* bytes,
              const EncodeKey& key = {}) const;
  /// The same with encode_with_feedback (quant/codecs/error_feedback.h) for each tile: p = x +
  /// decay e is encoded, and e := p - Dec. x stays as it is. A tile that holds a value that is not
  /// finite leaves its residual as it was and is noted in `bad`; other tiles go on.
  void encode_with_feedback(Stream& stream, float* residual, float decay, const float* x,
                            std::size_t n, std::byte* bytes, const EncodeKey& key,
                            FirstBadTile& bad) const;
  /// Blocks until that is done. x and residual: as they were queued, unchanged since. RETURNS:
  /// NotFinite as the CPU names it.
  [[nodiscard]] Expected<void, NotFinite> check_feedback(Stream& stream, const float* residual,
                                                         float decay, const float* x, std::size_t n,
                                                         const FirstBadTile& bad) const;

  /// values := what the bytes say, or values += it, one rounded addition each. A tile that is no
  /// encoding leaves its values as they were and is noted in `bad`; other tiles go on.
  /// values: (n,); bytes: encoded_bytes(codec, n) of them at any address.
  void decode(Stream& stream, const std::byte* bytes, std::size_t n, float* values,
              FirstBadTile& bad) const;
  void decode_add(Stream& stream, const std::byte* bytes, std::size_t n, float* values,
                  FirstBadTile& bad) const;
  /// Blocks until that is done. RETURNS: DecodeError as the CPU words it.
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
  DeviceArray<StochasticLevel> levels_;  // empty: rounds to nearest
  float most_scale_ = 0;
};

/// From a spelling as `make_codec` takes it. THROWS: ConfigError for a bad spelling; SystemError
/// where no device can be used.
[[nodiscard]] std::unique_ptr<const DeviceCodec> make_device_codec(std::string_view spelling);

}  // namespace isthmus::cuda
