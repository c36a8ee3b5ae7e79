// SPDX-License-Identifier: Apache-2.0
// A link's rates over time from a CSV file, [[link]] trace, for example a line's rates over a day.
// Plain data; reading is strict and bounded.
//
//   seconds,rate_up,rate_down
//   0,100Mbit/s,20Mbit/s
//   28800,12.5Mbit/s,4000000
//   86400,repeat
//
// The first line is the heading, exactly as above. Each other line holds from its time, in seconds
// since the beginning, up to the next line's time. Rates are those from a to b and from b to a,
// with a unit or plain in bit/s, at least 1 kbit/s. A last line "TIME,repeat" tells when the file
// repeats; without it the last rates stay. Times are at least 1 ms apart.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/types.h"

namespace isthmus {

struct LinkTrace {
  struct Step {
    Duration from{0};  // the first at 0, ascending
    double bits_per_s_up = 0;
    double bits_per_s_down = 0;
    bool operator==(const Step&) const = default;
  };
  std::vector<Step> steps;  // at least one
  Duration period{0};       // after which the steps repeat; 0: the last rates stay

  /// The long-run rate: the mean over a period, or the last rate if it stays.
  [[nodiscard]] double mean_up() const;
  [[nodiscard]] double mean_down() const;
  /// Equal for equal rates at equal times, whatever their spelling and the file's path.
  [[nodiscard]] std::string digest() const;
};

/// `label` names the file in messages. THROWS: ConfigError naming line and column of the first
/// error.
[[nodiscard]] LinkTrace parse_link_trace(std::string_view text, const std::string& label);
/// THROWS: the same; SystemError when the file is missing or unreadable.
[[nodiscard]] LinkTrace read_link_trace(const std::filesystem::path& file);

}  // namespace isthmus
