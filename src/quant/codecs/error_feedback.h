// SPDX-License-Identifier: Apache-2.0
// Error feedback around a codec (Seide 2014; Karimireddy, arXiv:1901.09847): what an encoding loses
// is added to the next vector of the same stream. One object per stream: one sender, one range of
// values, one direction; values of one unit. A change of codec keeps the residual.
//
//   p = x + decay * e;   bytes = Enc(p);   e = p - Dec(bytes)
//
// So the sum of what was sent plus e is the sum of x (decay 1), up to one rounding of p and one of
// e a step. Memory: one fp32 a value. One thread.
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
/// Dec(out). residual: as many values as the tile has; `begin`: the tile's place in its stream, for
/// messages. RETURNS: NotFinite when a value of p or of what it decodes to is not finite. The
/// residual is then as before; `out` holds Enc(p), so that a receiver meets the value too.
[[nodiscard]] Expected<void, NotFinite> encode_with_feedback(
    const Codec& codec, std::span<float> residual, float decay, std::size_t begin,
    std::span<float> tile, std::span<std::byte> out, const EncodeKey& key = {});

class ErrorFeedback {
 public:
  /// n values, residual zero. `decay` in (0, 1]: share of the residual that comes back; below 1 old
  /// mass fades (DeMo takes 0.999), and the sum no longer balances.
  explicit ErrorFeedback(std::size_t n, float decay = 1);

  /// encode_with_feedback of the tile that starts at value `begin` of the stream. REQUIRES: begin
  /// is a multiple of kTileValues; out.size() as Codec::encode has it.
  [[nodiscard]] Expected<void, NotFinite> encode_tile(const Codec& codec, std::size_t begin,
                                                      std::span<float> tile,
                                                      std::span<std::byte> out,
                                                      const EncodeKey& key = {});
  /// A whole vector. RETURNS: NotFinite of the first such tile; the residual of tiles before it has
  /// moved on, so the caller restores a copy if the vector is not sent.
  [[nodiscard]] Expected<Encoded, NotFinite> encode(const Codec& codec, std::span<const float> x,
                                                    const EncodeKey& key = {});

  /// The state: what a checkpoint stores and `restore` takes back.
  [[nodiscard]] std::span<const float> residual() const { return residual_.span(); }
  /// REQUIRES: as many values as the stream has, all finite.
  void restore(std::span<const float> residual);
  void reset();
  /// What was sent comes back, having reached nobody: residual += Dec(bytes of the whole stream),
  /// values that are not finite left out. RETURNS: DecodeError; the residual is then as before.
  [[nodiscard]] Expected<void, DecodeError> take_back(const Codec& codec,
                                                      std::span<const std::byte> bytes);

 private:
  StateArray residual_;
  float decay_;
};

}  // namespace isthmus
