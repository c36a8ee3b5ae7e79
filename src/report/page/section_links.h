// SPDX-License-Identifier: Apache-2.0
// The sections on other links, shared by pages of runs and of comparisons.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "report/data/retimed.h"
#include "report/page/line_chart.h"
#include "report/page/page.h"

namespace isthmus::report {

/// A run, or the runs of a variant, which share their clock.
struct LinkCurve {
  std::string label;
  int colour = 0;
  std::vector<double> clock_s;    // at the evaluations, on the runs' own links
  std::vector<double> mean_loss;  // over the runs
  double to_target_s = 0;         // on the runs' own links
  double utilisation = kNothing;
};

struct LinkSection {
  const OtherLinks& other;  // a variant for each curve
  std::vector<LinkCurve> curves;
  std::optional<double> target;  // a loss
  std::string own_link;          // "100 Mbit/s, 80 ms round trip"
  std::string clock;             // basis of simulated seconds; plain text
  std::string badge;             // HTML
};

void section_links(Page& page, const LinkSection& section);
/// Left out if nothing could be re-timed.
void section_bandwidth(Page& page, const LinkSection& section);

}  // namespace isthmus::report
