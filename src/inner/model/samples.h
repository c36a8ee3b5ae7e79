// SPDX-License-Identifier: Apache-2.0
// A range of consecutive samples of a batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isthmus/inner_loop.h"

namespace isthmus {

/// Samples [first, first + count) of a batch, which is borrowed.
[[nodiscard]] inline TokenBatch samples_of(const TokenBatch& batch, std::int64_t first,
                                           std::int64_t count) {
  const auto from = static_cast<std::size_t>(first * batch.length);
  const auto size = static_cast<std::size_t>(count * batch.length);
  TokenBatch part{batch.inputs.subspan(from, size), batch.targets.subspan(from, size), count,
                  batch.length};
  if (!batch.document_starts.empty()) {
    part.document_starts = batch.document_starts.subspan(from, size);
  }
  return part;
}

}  // namespace isthmus
