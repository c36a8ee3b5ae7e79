// SPDX-License-Identifier: Apache-2.0
#include "sim/rate_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr double kLatestSecond = 9e9;  // near the end of 64-bit nanoseconds

/// The whole of `text` as a finite number within [0, limit]; false otherwise.
bool parse_number(std::string_view text, double limit, double& value) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 && value <= limit;
}

}  // namespace

RateProfile::RateProfile(std::vector<Step> steps) : steps_(std::move(steps)) {
  if (steps_.empty()) {
    throw ConfigError("rate profile: no steps; give at least one time and rate");
  }
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].bits_per_s < 0) {
      throw ConfigError(fmt::format("rate profile, step {}: rate {} bit/s is negative", i + 1,
                                    steps_[i].bits_per_s));
    }
    if (i > 0 && steps_[i].from <= steps_[i - 1].from) {
      throw ConfigError(
          fmt::format("rate profile, step {}: its time must be later than the one before", i + 1));
    }
  }
  if (steps_.back().bits_per_s == 0) {
    throw ConfigError(
        "rate profile: the last rate is 0, so nothing would ever arrive; end with a rate above 0");
  }
}

RateProfile RateProfile::parse_csv(std::string_view text, const std::string& label) {
  std::vector<Step> steps;
  int line_number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::size_t comma = line.find(',');
    double seconds = 0;
    double rate = 0;
    const bool good = comma != std::string_view::npos &&
                      parse_number(line.substr(0, comma), kLatestSecond, seconds) &&
                      parse_number(line.substr(comma + 1), 1e18, rate);
    if (!good && line_number == 1) continue;
    if (!good) {
      throw ConfigError(fmt::format("{}:{}: '{}' is not 'seconds,bits_per_s'", label, line_number,
                                    line.substr(0, 60)));
    }
    steps.push_back({TimePoint(Duration(std::llround(seconds * 1e9))), std::llround(rate)});
  }
  try {
    return RateProfile(std::move(steps));
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", label, error.what()));
  }
}

RateProfile RateProfile::outage(std::int64_t bits_per_s, TimePoint begin, TimePoint end) {
  std::vector<Step> steps;
  if (begin > TimePoint{}) steps.push_back({TimePoint{}, bits_per_s});
  steps.push_back({begin, 0});
  steps.push_back({end, bits_per_s});
  return RateProfile(std::move(steps));
}

std::int64_t RateProfile::rate_at(TimePoint time) const {
  const auto after = std::upper_bound(steps_.begin(), steps_.end(), time,
                                      [](TimePoint t, const Step& step) { return t < step.from; });
  return after == steps_.begin() ? steps_.front().bits_per_s : std::prev(after)->bits_per_s;
}

TimePoint RateProfile::next_change(TimePoint time) const {
  const auto after = std::upper_bound(steps_.begin(), steps_.end(), time,
                                      [](TimePoint t, const Step& step) { return t < step.from; });
  return after == steps_.end() ? kNever : after->from;
}

}  // namespace isthmus
