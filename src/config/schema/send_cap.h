// SPDX-License-Identifier: Apache-2.0
// What a site may send at, by the time of its day: net.cap, site.cap and net.quiet. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "isthmus/config.h"

namespace isthmus {

/// A link must not stop, and nobody waits for less.
inline constexpr double kSmallestCap = 1000;  // bit/s
/// Of a state in parts of 128 KiB, one of which is to come every few seconds.
inline constexpr double kSmallestServe = 250'000;  // bit/s

/// Hours of every day, in minutes after midnight; past midnight where `until` is not after `from`.
struct QuietHours {
  int from = 0;   // included
  int until = 0;  // not
  double bits_per_s = 0;
  [[nodiscard]] bool contains(int minute_of_day) const;
};

/// "22:00-06:30 10Mbit/s"; "24:00" is midnight. THROWS: ConfigError with the text and its cause.
[[nodiscard]] QuietHours parse_quiet_hours(std::string_view text);

class SendCap {
 public:
  /// REQUIRES: `site` is one of the configuration, which has been checked.
  SendCap(const Config& config, const SiteConfig& site);
  /// In bit/s; 0: no bound.
  [[nodiscard]] double at(int minute_of_day) const;

 private:
  double always_;  // 0: no bound
  std::vector<QuietHours> quiet_;
};

}  // namespace isthmus
