// SPDX-License-Identifier: Apache-2.0
// A link's rates over time from a CSV file, [[link]] trace: what a line gave in the course of a
// day, say. Plain data; reading is strict and bounded.
//
//   seconds,rate_up,rate_down
//   0,100Mbit/s,20Mbit/s
//   28800,12.5Mbit/s,4000000
//   86400,repeat
//
// The first line is the heading, word by word. Each other line holds from its time, in seconds
// since the beginning, to the next one's; rates are those of a to b and of b to a, with a unit or
// plain in bit/s, at least 1 kbit/s. A last line "TIME,repeat" says when the file begins again;
// without it the last rates stay. Times are at least 1 ms apart.
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
  Duration period{0};       // after which it begins again; 0: the last rates stay

  /// What it gives in the long run: the mean over a period, or the last rate where that stays.
  [[nodiscard]] double mean_up() const;
  [[nodiscard]] double mean_down() const;
  /// Equal for equal rates at equal times, however the file spells them and wherever it lies.
  [[nodiscard]] std::string digest() const;
};

/// `label` stands for the file in messages.
/// THROWS: ConfigError naming line and column of the first thing that is wrong.
[[nodiscard]] LinkTrace parse_link_trace(std::string_view text, const std::string& label);
/// THROWS: the same; SystemError where there is no such file, or it cannot be read.
[[nodiscard]] LinkTrace read_link_trace(const std::filesystem::path& file);

}  // namespace isthmus
