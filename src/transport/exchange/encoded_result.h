// SPDX-License-Identifier: Apache-2.0
// The frames that a round's result was decoded from, kept so that the result can be handed on in
// its encoded form. Pure.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "transport/exchange/reduction.h"
#include "transport/wire/transport.h"

namespace isthmus {

/// The frames by part and contributor; empty when the fp32 result takes no more bytes.
class EncodedResult {
 public:
  EncodedResult() = default;
  /// The first `prefix` bytes of each payload are not part of the encoded values.
  EncodedResult(std::size_t parts, std::size_t prefix) : frames_(parts), prefix_(prefix) {}
  void keep(std::size_t part, std::vector<FrameBytes> shares) { frames_[part] = std::move(shares); }
  [[nodiscard]] bool empty() const { return frames_.empty(); }
  /// For a reduce the encoded mean, for a gather each contributor's encoding in member order; whole
  /// vectors. Copies the bytes.
  [[nodiscard]] std::vector<EncodedShare> shares() const;

 private:
  std::vector<std::vector<FrameBytes>> frames_;
  std::size_t prefix_ = 0;
};

}  // namespace isthmus
