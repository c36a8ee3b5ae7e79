// SPDX-License-Identifier: Apache-2.0
// Texts compressed with gzip or zstd, inflated piece by piece. Blocking; an Inflater belongs to one
// thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "data/file_format.h"

namespace isthmus {

/// All members or frames of a compressed text, one after another, given in pieces of any size.
class Inflater {
 public:
  virtual ~Inflater() = default;
  /// Inflates from the front of `in`, which is shortened by what was taken, into `out`.
  /// RETURNS: how many bytes are in `out` now; 0 once `in` is empty and nothing is held back.
  /// THROWS: SystemError naming the text, and what is damaged or cannot be undone.
  [[nodiscard]] virtual std::size_t inflate(std::span<const std::byte>& in,
                                            std::span<std::byte> out) = 0;
  /// After the last piece. THROWS: SystemError where the text ends in the middle.
  virtual void finish() const = 0;
};
/// `compression` is not kNone. `label` names the text.
[[nodiscard]] std::unique_ptr<Inflater> make_inflater(Compression compression,
                                                      const std::string& label);

}  // namespace isthmus
