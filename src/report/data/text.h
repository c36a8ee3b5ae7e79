// SPDX-License-Identifier: Apache-2.0
// Text for people and for the page: escaping, and numbers with units in a suitable length.
// Non-finite numbers read kNoNumber or "∞". Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace isthmus::report {

inline constexpr std::string_view kNoNumber = "–";

/// The parts one after another. (g++ 12 warns falsely about `"text" + std::string` once inlined.)
template <typename... Parts>
[[nodiscard]] std::string concat(const Parts&... parts) {
  std::string text;
  (text.append(std::string_view{parts}), ...);
  return text;
}

/// Safe inside HTML text and quoted attributes; invalid UTF-8 and control bytes become U+FFFD.
[[nodiscard]] std::string escape_html(std::string_view text);
/// A quoted JSON string, safe inside <script> too ("<" is written as an escape).
[[nodiscard]] std::string json_string(std::string_view text);
/// One CSV field, quoted if necessary; a leading = + - @ of non-numbers is disarmed by a quote.
[[nodiscard]] std::string csv_field(std::string_view text);

[[nodiscard]] std::string format_loss(double loss);          // 1.6513
[[nodiscard]] std::string format_count(double count);        // 1,234,567
[[nodiscard]] std::string format_short_count(double count);  // 1.23M
[[nodiscard]] std::string format_rate(double bits_per_s);    // 100 Mbit/s
[[nodiscard]] std::string format_seconds(double seconds);  // 80 ms, 14.2 s, 7 min 34 s, 17 h 50 min
[[nodiscard]] std::string format_percent(double share);    // 9.5 %, −4.1 %
/// "+2.50 %", "−0.031 %"; a share that rounds to zero has no sign: "0.000 %".
[[nodiscard]] std::string format_signed_percent(double share);
[[nodiscard]] std::string format_ratio(double ratio);  // 19.9
/// Three significant digits, no exponent in the usual range.
[[nodiscard]] std::string format_number(double value);
/// Shortest text that reads back to the same double: for CSV and JSON; "null" when not finite.
[[nodiscard]] std::string exact(double value);

}  // namespace isthmus::report
