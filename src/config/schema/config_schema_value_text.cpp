// SPDX-License-Identifier: Apache-2.0
// Values, types and ranges as text: TOML for files, words for messages.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/schema/config_schema_values.h"
#include "core/base/suggest.h"
#include "core/base/units.h"
#include "core/base/utf8_text.h"

namespace isthmus::config {
namespace {

std::string step_text(const StepCount& count) {
  return count.fraction ? toml_quote(percent_text(*count.fraction))
                        : fmt::format("{}", count.steps);
}

template <typename Element, typename Write>
std::string list_text(const std::vector<Element>& elements, const Write& write) {
  std::vector<std::string> parts;
  for (const Element& element : elements) {
    parts.push_back(write(element));
  }
  return "[" + join(parts) + "]";
}

template <typename Elements, typename Write>
std::string table_text(const Elements& elements, const Write& write) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : elements) {
    parts.push_back(fmt::format("{} = {}", name, write(value)));
  }
  return "{ " + join(parts) + " }";
}

/// Whole in the largest power of 1024 that divides it.
std::string bytes_text(std::int64_t bytes) {
  constexpr std::int64_t kKibi = 1024;
  if (bytes > 0 && bytes % (kKibi * kKibi) == 0) return fmt::format("{}MiB", bytes / kKibi / kKibi);
  if (bytes > 0 && bytes % kKibi == 0) return fmt::format("{}KiB", bytes / kKibi);
  return fmt::format("{}B", bytes);
}

std::string quoted_real(double value, Type type) {
  switch (type) {
    case Type::kRate:
      return toml_quote(rate_text(value));
    case Type::kFlops:
      return toml_quote(flops_text(value));
    case Type::kParameters:
      return toml_quote(parameters_text(value));
    default:
      return real_text(value);
  }
}

}  // namespace

bool Range::contains(double value) const {
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

std::string Range::text() const {
  const bool bounded_below = std::isfinite(low);
  const bool bounded_above = std::isfinite(high) && high < 1e9;  // larger ones only bar overflow
  if (bounded_below && bounded_above) {
    return low == high ? fmt::format("{}", low)
                       : fmt::format("in {}{}, {}{}", low_open ? "(" : "[", low, high,
                                     high_open ? ")" : "]");
  }
  if (bounded_below) {
    return fmt::format("{} {}", low_open ? ">" : ">=", low);
  }
  return bounded_above ? fmt::format("{} {}", high_open ? "<" : "<=", high) : "";
}

std::string toml_quote(std::string_view text) {
  std::string quoted_text = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted_text += '\\';
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      quoted_text += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      quoted_text += c;
    }
  }
  return quoted_text + "\"";
}

std::string toml_comment(std::string_view text) {
  std::string comment;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text.front());
    if (length == 0) {
      comment += '?';
    } else if (first < 0x20 || first == 0x7F) {
      comment += ' ';
    } else {
      comment += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return comment;
}

std::string toml_text(const Value& value, Type type) {
  return std::visit(
      [type](const auto& data) -> std::string {
        using Data = std::remove_cvref_t<decltype(data)>;
        if constexpr (std::is_same_v<Data, std::monostate>) {
          return "";
        } else if constexpr (std::is_same_v<Data, bool>) {
          return data ? "true" : "false";
        } else if constexpr (std::is_same_v<Data, std::int64_t>) {
          if (type == Type::kIntegerOrAuto && data == 0) return toml_quote("auto");
          if (type == Type::kEvery) return toml_quote(fmt::format("every:{}", data));
          if (type == Type::kBytes) return toml_quote(bytes_text(data));
          return type == Type::kTokensUnit ? toml_quote(fmt::format("{} tok", data))
                                           : fmt::format("{}", data);
        } else if constexpr (std::is_same_v<Data, double>) {
          return quoted_real(data, type);
        } else if constexpr (std::is_same_v<Data, std::string>) {
          return type == Type::kFalseOrChoice && data == "false" ? data : toml_quote(data);
        } else if constexpr (std::is_same_v<Data, Duration>) {
          return toml_quote(duration_text(data));
        } else if constexpr (std::is_same_v<Data, StepCount>) {
          return type == Type::kStepsOrTime ? toml_quote(fmt::format("{} steps", data.steps))
                                            : step_text(data);
        } else if constexpr (std::is_same_v<Data, std::vector<double>>) {
          return list_text(data, real_text);
        } else if constexpr (std::is_same_v<Data, std::vector<std::string>>) {
          return list_text(data, toml_quote);
        } else if constexpr (std::is_same_v<Data, std::vector<StepCount>>) {
          return list_text(data, step_text);
        } else if constexpr (std::is_same_v<Data, NamedTexts>) {
          return table_text(data, toml_quote);
        } else if constexpr (std::is_same_v<Data, NamedReals>) {
          return table_text(data, real_text);
        } else {
          return list_text(data, [](std::int64_t each) { return fmt::format("{}", each); });
        }
      },
      value);
}

std::string type_text(Type type, std::string_view choices) {
  switch (type) {
    case Type::kBool:
      return "true or false";
    case Type::kInteger:
      return "an integer";
    case Type::kIntegerOrAuto:
      return "an integer or \"auto\"";
    case Type::kReal:
      return "a number";
    case Type::kText:
      return "text";
    case Type::kChoice:
      return "one of " + join(split_choices(choices));
    case Type::kFalseOrChoice:
      return "false or one of " + join(split_choices(choices));
    case Type::kBoolOrChoice:
      return "true, false or one of " + join(split_choices(choices));
    case Type::kEvery:
      return "a period, such as \"every:16\"";
    case Type::kBytes:
      return "a size, such as \"256KiB\"";
    case Type::kTokens:
      return "a count of tokens, such as \"3M\"";
    case Type::kTokensUnit:
      return "a count of tokens with its unit, such as \"16k tok\"";
    case Type::kTokensOrAll:
      return "a count of tokens, such as \"64k\", or \"all\"";
    case Type::kSteps:
    case Type::kStepsNow:
      return "a count of steps, such as 100 or \"5%\"";
    case Type::kStepsOrTime:
      return "a time or steps, such as \"10min\", \"100 steps\" or \"5%\"";
    case Type::kStepList:
      return "an array of step counts, such as [100, \"50%\"]";
    case Type::kTime:
      return "a time, such as \"80ms\"";
    case Type::kTimeOrChoice:
      return "a time, such as \"80ms\", or one of " + join(split_choices(choices));
    case Type::kRate:
      return "a rate, such as \"100Mbit/s\", \"100Mbps\" or \"12.5MB/s\"";
    case Type::kFraction:
      return "a share, such as 0.1 or \"10%\"";
    case Type::kFlops:
      return "a speed, such as \"40TFLOPS\"";
    case Type::kParameters:
      return "a count of parameters, such as \"1B\"";
    case Type::kPairOfReals:
      return "an array of two numbers";
    case Type::kPairOfTexts:
      return "an array of two texts";
    case Type::kOffsets:
      return "\"spread\", \"zero\" or an array of step counts";
    case Type::kSeeds:
      return "a number of seeds, or an array of them";
    case Type::kTexts:
      return "an array of texts";
    case Type::kChoices:
      return "one of " + join(split_choices(choices)) + ", or an array of them";
    case Type::kSpace:
      return "a table of keys, each with an array of values";
    case Type::kNamedTexts:
      return "a table of names, each with a text";
    case Type::kNamedReals:
      return "a table of names, each with a number";
  }
  return "";
}

std::vector<std::string> split_choices(std::string_view text) {
  std::vector<std::string> choices;
  while (!text.empty()) {
    const std::size_t bar = text.find('|');
    choices.emplace_back(text.substr(0, bar));
    text = bar == std::string_view::npos ? std::string_view{} : text.substr(bar + 1);
  }
  return choices;
}

}  // namespace isthmus::config
