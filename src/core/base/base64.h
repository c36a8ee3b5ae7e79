// SPDX-License-Identifier: Apache-2.0
// Base64 with padding (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace isthmus {

[[nodiscard]] std::string base64(std::string_view bytes);
/// RETURNS: the bytes; nothing for any other text, also where its unused last bits are not 0.
[[nodiscard]] std::optional<std::string> base64_bytes(std::string_view text);

}  // namespace isthmus
