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

/// Inflates all members or frames of a compressed text, concatenated; input in pieces of any size.
class Inflater {
 public:
  virtual ~Inflater() = default;
  /// Inflates from the front of `in`, which is shortened by the used bytes, into `out`. RETURNS:
  /// the number of bytes written to `out`; 0 once `in` is empty and all output was returned.
  /// THROWS: SystemError naming the text and the defect.
  [[nodiscard]] virtual std::size_t inflate(std::span<const std::byte>& in,
                                            std::span<std::byte> out) = 0;
  /// Called after the last piece. THROWS: SystemError when the text is truncated.
  virtual void finish() const = 0;
};
/// `compression` is not kNone. `label` names the text.
[[nodiscard]] std::unique_ptr<Inflater> make_inflater(Compression compression,
                                                      const std::string& label);

}  // namespace isthmus
