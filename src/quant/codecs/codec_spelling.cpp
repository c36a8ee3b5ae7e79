// SPDX-License-Identifier: Apache-2.0
#include "quant/codecs/codec_spelling.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr std::size_t kShown = 80;  // of a spelling in a message

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (;;) {
    const std::size_t end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

std::string allowed(std::string_view name, const NumberRule& number,
                    std::span<const OptionRule> options) {
  if (number.fallback == 0 && options.empty()) {
    return fmt::format("{0} takes no option; write \"{0}\"", name);
  }
  std::string text = fmt::format("{} takes", name);
  if (number.fallback != 0) {
    text += fmt::format(" a number{} from {} to {} ({}; default {})",
                        number.power_of_two ? ", a power of two" : "", number.least, number.most,
                        number.meaning, number.fallback);
  }
  for (const OptionRule& rule : options) {
    text += rule.values.empty() ? fmt::format(" :{}", rule.key)
                                : fmt::format(" :{}={}", rule.key, rule.values);
  }
  return text;
}

std::size_t number_of(std::string_view spelling, std::string_view name, std::string_view text,
                      const NumberRule& rule) {
  std::size_t value = 0;
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && stopped == text.data() + text.size();
  const bool shape = !rule.power_of_two || std::has_single_bit(value);
  if (!whole || !shape || value < rule.least || value > rule.most) {
    refuse_spelling(
        spelling, fmt::format("the number after \"{}:\" must be {} from {} to {} ({}); the default "
                              "is {}",
                              name, rule.power_of_two ? "a power of two" : "a whole number",
                              rule.least, rule.most, rule.meaning, rule.fallback));
  }
  return value;
}

bool is_number_like(std::string_view piece) {
  return piece.empty() || piece.find_first_not_of("+-. 0123456789xX") == std::string_view::npos ||
         (piece.front() >= '0' && piece.front() <= '9');
}

}  // namespace

void refuse_spelling(std::string_view spelling, std::string_view why) {
  throw ConfigError(fmt::format("codec = \"{}{}\": {}", spelling.substr(0, kShown),
                                spelling.size() > kShown ? "..." : "", why));
}

std::string_view ParsedSpelling::value(std::string_view key) const {
  for (const Choice& choice : choices_) {
    if (choice.key == key) return choice.value;
  }
  ISTHMUS_CHECK(false, std::string(key));
  return {};
}

ParsedSpelling parse_spelling(std::string_view spelling, const NumberRule& number,
                              std::span<const OptionRule> options) {
  const std::vector<std::string_view> pieces = split(spelling, ':');
  const std::string_view name = pieces.front();
  ParsedSpelling parsed;
  parsed.number_ = number.fallback;
  for (const OptionRule& rule : options) {
    parsed.choices_.push_back({rule.key, std::string(split(rule.values, '|').front())});
  }
  std::vector<bool> given(options.size());
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    const std::string_view piece = pieces[i];
    if (i == 1 && number.fallback != 0 && is_number_like(piece)) {
      parsed.number_ = number_of(spelling, name, piece, number);
      continue;
    }
    const std::string_view key = piece.substr(0, piece.find('='));
    const auto rule = std::ranges::find(options, key, &OptionRule::key);
    if (rule == options.end()) {
      refuse_spelling(spelling, fmt::format("no option \"{}\" here: {}", piece.substr(0, kShown),
                                            allowed(name, number, options)));
    }
    const auto k = static_cast<std::size_t>(rule - options.begin());
    if (given[k]) refuse_spelling(spelling, fmt::format("option \"{}\" is given twice", key));
    given[k] = true;
    const bool has_value = key.size() < piece.size();
    const std::string_view value = has_value ? piece.substr(key.size() + 1) : std::string_view();
    const std::vector<std::string_view> values = split(rule->values, '|');
    const bool flag = rule->values.empty();
    if (flag ? has_value : std::ranges::find(values, value) == values.end()) {
      refuse_spelling(spelling,
                      fmt::format("option \"{}\": allowed is {}{}", piece.substr(0, kShown),
                                  rule->key, flag ? "" : fmt::format("={}", rule->values)));
    }
    parsed.choices_[k].value = flag ? "on" : std::string(value);
  }
  parsed.name_ = name;
  if (number.fallback != 0) parsed.name_ += fmt::format(":{}", parsed.number_);
  for (std::size_t k = 0; k < options.size(); ++k) {
    const std::string& value = parsed.choices_[k].value;
    if (value == split(options[k].values, '|').front()) continue;
    parsed.name_ += options[k].values.empty() ? fmt::format(":{}", options[k].key)
                                              : fmt::format(":{}={}", options[k].key, value);
  }
  return parsed;
}

}  // namespace isthmus
