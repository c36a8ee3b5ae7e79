// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy files (format versions 1 to 3): the header gives type, byte order and shape. Tokens
// are integers of any width and byte order, in row order. Every field is checked.
#pragma once

#include <span>
#include <string>

#include "data/token_span.h"

namespace isthmus {

[[nodiscard]] bool is_npy(std::span<const std::byte> bytes);

/// REQUIRES: is_npy. Fuzzed. THROWS: SystemError naming the file and the inconsistency, or a type
/// that is not an integer.
[[nodiscard]] TokenSpan locate_npy_tokens(std::span<const std::byte> bytes,
                                          const std::string& label);

}  // namespace isthmus
