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

/// The frames by part and share; none where the fp32 result is as small itself.
class EncodedResult {
 public:
  EncodedResult() = default;
  /// Payloads begin with `prefix` bytes of something else.
  EncodedResult(std::size_t parts, std::size_t prefix) : frames_(parts), prefix_(prefix) {}
  void keep(std::size_t part, std::vector<FrameBytes> shares) { frames_[part] = std::move(shares); }
  [[nodiscard]] bool empty() const { return frames_.empty(); }
  /// Of a reduce the mean, of a gather what each contributor encoded, in member order: whole
  /// vectors. Copies.
  [[nodiscard]] std::vector<EncodedShare> shares() const;

 private:
  std::vector<std::vector<FrameBytes>> frames_;
  std::size_t prefix_ = 0;
};

}  // namespace isthmus
