// SPDX-License-Identifier: Apache-2.0
// Error feedback around a codec (Seide 2014; Karimireddy, arXiv:1901.09847): the error of an
// encoding is added to the next vector of the same stream. One object per stream: one sender, one
// range of values, one direction; values of one unit. A change of codec keeps the residual.
//
//   p = x + decay * e;   bytes = Enc(p);   e = p - Dec(bytes)
//
// So with decay 1 the sum of all sent vectors plus e is the sum of all x, up to one rounding of p
// and one of e per step. Memory: one fp32 a value. One thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/state/state_memory.h"
#include "isthmus/codec.h"
#include "isthmus/expected.h"

namespace isthmus {

/// A value that must not enter the residual.
struct NotFinite {
  std::size_t index = 0;  // in the stream
  std::string what;
};

/// One tile: `tile` holds x on entry and p = x + decay * residual on return; residual := p -
/// Dec(out). residual: as many values as the tile; `begin`: index of the tile's first value in its
/// stream, for messages. RETURNS: NotFinite when a value of p or of its decoding is not finite. The
/// residual then does not change; `out` holds Enc(p), so that a receiver detects the value too.
[[nodiscard]] Expected<void, NotFinite> encode_with_feedback(
    const Codec& codec, std::span<float> residual, float decay, std::size_t begin,
    std::span<float> tile, std::span<std::byte> out, const EncodeKey& key = {});

class ErrorFeedback {
 public:
  /// n values, residual zero. `decay` in (0, 1]: factor of the residual each time; below 1 old
  /// errors fade (DeMo uses 0.999), and the sums above no longer agree.
  explicit ErrorFeedback(std::size_t n, float decay = 1);

  /// encode_with_feedback of the tile that starts at value `begin` of the stream. REQUIRES: begin
  /// is a multiple of kTileValues; out.size() as for Codec::encode.
  [[nodiscard]] Expected<void, NotFinite> encode_tile(const Codec& codec, std::size_t begin,
                                                      std::span<float> tile,
                                                      std::span<std::byte> out,
                                                      const EncodeKey& key = {});
  /// Encodes a whole vector, tile by tile, under the tiles of `key` in turn. REQUIRES: x has as
  /// many values as the stream. RETURNS: NotFinite for the first tile with a value that is not
  /// finite. The residuals of the tiles before it have changed then, although nothing is returned
  /// to send: the caller must `restore` a copy.
  [[nodiscard]] Expected<Encoded, NotFinite> encode(const Codec& codec, std::span<const float> x,
                                                    const EncodeKey& key = {});

  /// The residual, for checkpoints and `restore`.
  [[nodiscard]] std::span<const float> residual() const { return residual_.span(); }
  /// REQUIRES: as many values as the stream has, all finite.
  void restore(std::span<const float> residual);
  void reset();
  /// Returns a sent vector that no member received: residual += Dec(bytes of the whole stream),
  /// without values that are not finite. RETURNS: DecodeError; the residual is then unchanged.
  [[nodiscard]] Expected<void, DecodeError> take_back(const Codec& codec,
                                                      std::span<const std::byte> bytes);

 private:
  StateArray residual_;
  float decay_;
};

}  // namespace isthmus
