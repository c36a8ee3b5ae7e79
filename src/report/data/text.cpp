// SPDX-License-Identifier: Apache-2.0
#include "report/data/text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>

#include "core/base/utf8_text.h"

namespace isthmus::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// Walks `text` as UTF-8; `plain` gets each well-formed sequence, anything else is replaced.
template <typename Plain>
std::string rewrite(std::string_view text, Plain plain) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0) {
      out += kReplacement;
      ++i;
      continue;
    }
    plain(text.substr(i, length), out);
    i += length;
  }
  return out;
}

bool is_control(std::string_view sequence) {
  const auto c = static_cast<unsigned char>(sequence.front());
  return sequence.size() == 1 && (c < 0x20 || c == 0x7F) && c != '\n' && c != '\t';
}

std::string scaled(double value, double base, std::string_view unit,
                   const std::array<std::string_view, 7>& prefixes) {
  std::size_t prefix = 0;
  double shown = std::abs(value);
  // 999.5 would print as 1000 of the smaller unit.
  while (shown >= 999.5 && prefix + 1 < prefixes.size()) {
    shown /= base;
    ++prefix;
  }
  const std::string digits = prefix == 0 && shown == std::floor(shown)
                                 ? fmt::format("{:.0f}", shown)
                                 : format_number(shown);
  return fmt::format("{}{} {}{}", value < 0 ? "−" : "", digits, prefixes[prefix], unit);
}

constexpr std::array<std::string_view, 7> kDecimal = {"", "k", "M", "G", "T", "P", "E"};

std::string nothing_or(double value, std::string text) {
  if (std::isnan(value)) {
    return std::string{kNoNumber};
  }
  if (std::isinf(value)) {
    return value > 0 ? "∞" : "−∞";
  }
  return text;
}

std::string duration_text(double s) {
  if (s == 0) {
    return "0 s";
  }
  if (s < 0.9995e-3) {
    return format_number(s * 1e6) + " µs";
  }
  if (s < 0.9995) {
    return format_number(s * 1e3) + " ms";
  }
  if (s < 99.95) {
    return format_number(s) + " s";
  }
  const auto whole = static_cast<std::int64_t>(std::llround(std::min(s, 9e15)));
  const std::int64_t minutes = whole / 60;
  if (minutes < 60) {
    return fmt::format("{} min {:02} s", minutes, whole % 60);
  }
  if (minutes < 48 * 60) {
    return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
  }
  return fmt::format("{} d {:02} h", minutes / 1440, minutes / 60 % 24);
}

}  // namespace

std::string escape_html(std::string_view text) {
  return rewrite(text, [](std::string_view sequence, std::string& out) {
    switch (sequence.front()) {
      case '&':
        out += "&amp;";
        return;
      case '<':
        out += "&lt;";
        return;
      case '>':
        out += "&gt;";
        return;
      case '"':
        out += "&quot;";
        return;
      case '\'':
        out += "&#39;";
        return;
      default:
        out += is_control(sequence) ? kReplacement : sequence;
    }
  });
}

std::string json_string(std::string_view text) {
  return rewrite(json_quote(text), [](std::string_view sequence, std::string& out) {
    const char c = sequence.front();
    if (c == '<' || c == '>' || c == '&') {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else if (sequence == "\xE2\x80\xA8" || sequence == "\xE2\x80\xA9") {
      out += ' ';  // U+2028 and U+2029 end a line in old JavaScript
    } else {
      out += sequence;
    }
  });
}

std::string csv_field(std::string_view text) {
  std::string field{text};
  if (!field.empty() &&
      std::string_view{"=+-@\t\r"}.find(field.front()) != std::string_view::npos) {
    char* end = nullptr;
    std::strtod(field.c_str(), &end);
    if (*end != '\0') {
      field.insert(field.begin(), '\'');
    }
  }
  if (field.find_first_of(",\"\r\n") == std::string::npos) {
    return field;
  }
  std::string quoted = "\"";
  for (const char c : field) {
    quoted += c;
    if (c == '"') {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string format_loss(double loss) { return nothing_or(loss, fmt::format("{:.4f}", loss)); }

std::string format_count(double count) {
  if (!std::isfinite(count) || std::abs(count) > 9e15) {
    return nothing_or(count, fmt::format("{:.3g}", count));
  }
  const std::string digits = fmt::format("{:.0f}", std::abs(count));
  std::string text = count < 0 ? "−" : "";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) {
      text += ',';
    }
    text += digits[i];
  }
  return text;
}

std::string format_short_count(double count) {
  if (!std::isfinite(count)) {
    return nothing_or(count, {});
  }
  // "1B", "824.8k": written together, so that a billion cannot be read as bytes.
  constexpr std::array<std::string_view, 7> kShort = {"", "k", "M", "B", "T", "P", "E"};
  std::size_t prefix = 0;
  double shown = std::abs(count);
  for (; shown >= 999.5 && prefix + 1 < kShort.size(); ++prefix) {
    shown /= 1000;
  }
  return fmt::format("{}{:.4g}{}", count < 0 ? "−" : "", shown, kShort[prefix]);
}

std::string format_rate(double bits_per_s) {
  return std::isfinite(bits_per_s) ? scaled(bits_per_s, 1000, "bit/s", kDecimal)
                                   : nothing_or(bits_per_s, {});
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) {
    return nothing_or(seconds, {});
  }
  return seconds < 0 ? concat("−", duration_text(-seconds)) : duration_text(seconds);
}

std::string format_percent(double share) {
  const std::string digits = fmt::format("{:.1f}", std::abs(share * 100));
  return nothing_or(share, fmt::format("{}{} %", share < 0 && digits != "0.0" ? "−" : "", digits));
}

std::string format_signed_percent(double share) {
  const double percent = share * 100;
  const int digits = std::abs(percent) < 0.095 && percent != 0 ? 3 : 2;
  const std::string text = fmt::format("{:.{}f}", std::abs(percent), digits);
  const bool zero = text.find_first_not_of("0.") == std::string::npos;
  return nothing_or(share, fmt::format("{}{} %", zero ? "" : percent < 0 ? "−" : "+", text));
}

std::string format_ratio(double ratio) {
  return nothing_or(ratio, ratio >= 999.5 ? format_count(std::round(ratio)) : format_number(ratio));
}

std::string format_number(double value) {
  if (!std::isfinite(value)) {
    return nothing_or(value, {});
  }
  const double size = std::abs(value);
  std::string text;
  if (size == 0) {
    text = "0";
  } else if (size >= 1e6 || size < 1e-4) {
    text = fmt::format("{:.2e}", size);
  } else if (size >= 99.95) {
    text = format_count(size);
  } else {
    const int digits = size >= 9.995       ? 1
                       : size >= 0.9995    ? 2
                       : size >= 0.09995   ? 3
                       : size >= 0.009995  ? 4
                       : size >= 0.0009995 ? 5
                                           : 6;
    text = fmt::format("{:.{}f}", size, digits);
  }
  return value < 0 ? concat("−", text) : text;
}

std::string exact(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

}  // namespace isthmus::report
