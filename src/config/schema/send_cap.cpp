// SPDX-License-Identifier: Apache-2.0
#include "config/schema/send_cap.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/base/units.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr int kDay = 24 * 60;

/// Minutes after midnight of "08:30"; nothing when it is no time of day.
std::optional<int> time_of_day(std::string_view text) {
  constexpr std::string_view kShape = "00:00";
  if (text.size() != kShape.size()) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kShape[i] == '0' ? !digit : text[i] != kShape[i]) return std::nullopt;
  }
  const auto two = [text](std::size_t at) { return (text[at] - '0') * 10 + (text[at + 1] - '0'); };
  const int minute = two(0) * 60 + two(3);
  if (two(3) > 59 || minute > kDay) return std::nullopt;
  return minute % kDay;
}

}  // namespace

bool QuietHours::contains(int minute_of_day) const {
  const bool begun = minute_of_day >= from;
  const bool over = minute_of_day >= until;
  return from < until ? begun && !over : begun || !over;
}

QuietHours parse_quiet_hours(std::string_view text) {
  const auto refuse = [text](std::string_view why) -> ConfigError {
    return ConfigError(fmt::format("\"{}\": {}", text, why));
  };
  const std::size_t dash = text.find('-');
  const std::size_t space = text.find(' ');
  if (dash == std::string_view::npos || space == std::string_view::npos || space < dash) {
    throw refuse("must be two times of day and a rate");
  }
  const auto from = time_of_day(text.substr(0, dash));
  const auto until = time_of_day(text.substr(dash + 1, space - dash - 1));
  if (!from || !until) {
    throw refuse("times of day are 00:00 to 24:00");
  }
  if (*from == *until) {
    throw refuse("begins when it ends; for all day there is net.cap");
  }
  const auto rate = parse_quantity(text.substr(space + 1), Dimension::kRate);
  if (!rate) {
    throw refuse(fmt::format("{}; {}", rate.error().text, rate.error().hint));
  }
  if (!(rate->value >= kSmallestCap)) {
    throw refuse(
        fmt::format("the rate must be at least {}: a link must not stop", rate_text(kSmallestCap)));
  }
  return {.from = *from, .until = *until, .bits_per_s = rate->value};
}

SendCap::SendCap(const Config& config, const SiteConfig& site)
    : always_(site.cap_bits_per_s.value_or(config.net.cap_bits_per_s.value_or(0))) {
  for (const std::string& hours : config.net.quiet) quiet_.push_back(parse_quiet_hours(hours));
}

double SendCap::at(int minute_of_day) const {
  double lowest = always_;
  for (const QuietHours& hours : quiet_) {
    if (!hours.contains(minute_of_day)) continue;
    lowest = lowest == 0 ? hours.bits_per_s : std::min(lowest, hours.bits_per_s);
  }
  return lowest;
}

}  // namespace isthmus
