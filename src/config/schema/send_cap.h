// SPDX-License-Identifier: Apache-2.0
// The send limit of a site by the time of day: site.cap, which replaces net.cap for that site, and
// net.quiet. The time is that of the site's own clock, in its time zone. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "isthmus/config.h"

namespace isthmus {

/// Smallest cap: below it a link would practically stop.
inline constexpr double kSmallestCap = 1000;  // bit/s
/// Smallest rate for serving a state in parts of 128 KiB, so that one is sent every few seconds.
inline constexpr double kSmallestServe = 250'000;  // bit/s

/// Hours of every day, in minutes after midnight. They span midnight if `until` is before `from`,
/// and are the whole day if both are equal, which parse_quiet_hours refuses.
struct QuietHours {
  int from = 0;   // included
  int until = 0;  // excluded
  double bits_per_s = 0;
  [[nodiscard]] bool contains(int minute_of_day) const;
};

/// "22:00-06:30 10Mbit/s"; "24:00" is midnight, so "00:00-24:00" begins when it ends and is
/// refused: net.cap is for all day. THROWS: ConfigError with the text and its cause.
[[nodiscard]] QuietHours parse_quiet_hours(std::string_view text);

class SendCap {
 public:
  /// REQUIRES: `site` belongs to the configuration, which has been checked.
  SendCap(const Config& config, const SiteConfig& site);
  /// The lowest of the limits that hold at this minute, in bit/s; 0: no limit.
  [[nodiscard]] double at(int minute_of_day) const;

 private:
  double always_;  // 0: no bound
  std::vector<QuietHours> quiet_;
};

}  // namespace isthmus
