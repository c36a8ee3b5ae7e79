// SPDX-License-Identifier: Apache-2.0
#include "core/base/base64.h"

#include <cstddef>
#include <cstdint>

namespace isthmus {
namespace {

constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += i + k <= bytes.size() ? kBase64Digits[group >> (18 - 6 * k) & 63U] : '=';
    }
  }
  return out;
}

std::optional<std::string> base64_bytes(std::string_view text) {
  if (text.size() % 4 != 0) return {};
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  std::size_t bits = 0;
  int count = 0;
  for (const char c : text.substr(0, text.size() - padding)) {
    const std::size_t digit = kBase64Digits.find(c);
    if (digit == std::string_view::npos) return {};
    bits = (bits << 6 | digit) & 0xFFFFU;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 0xFFU));
  }
  if ((bits & ((std::size_t{1} << count) - 1)) != 0) return {};
  return bytes;
}

}  // namespace isthmus
