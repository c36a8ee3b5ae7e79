// SPDX-License-Identifier: Apache-2.0
// A finished run's clock on other links, as computed by a caller that can re-time runs
// (plan/retiming.h). Plain values.
#pragma once

#include <string>
#include <vector>

namespace isthmus::report {

/// One run's clock on other links. A variant's runs share it, unless their sites' steps have a
/// jitter, which each seed draws anew: then it is the first run's.
struct RetimedVariant {
  struct AtRate {
    double bits_per_s = 0;
    double utilisation = 0;       // NaN where a run would have failed or outlasted its clock;
    std::vector<double> clock_s;  // ... then empty, else by evaluation of its runs
    double end_s = 0;             // the whole run
    double to_target_s = 0;       // median over the runs; infinite if it is missed
  };
  std::string obstacle;                      // why the run must be simulated again; empty: exact
  std::vector<std::vector<double>> clock_s;  // by link, by evaluation of its runs
  /// With such a jitter the clocks of all runs: by link, by run, by evaluation. Otherwise empty.
  std::vector<std::vector<std::vector<double>>> clock_by_run_s;
  std::vector<double> end_s;        // by link: the whole run
  std::vector<double> utilisation;  // by link: share of time that a worker computes
  std::vector<AtRate> by_rate;      // over one link of each rate, at the run's own round trip
};

/// The runs' clocks on other links: equal to a simulation there, with the same steps.
struct OtherLinks {
  std::vector<std::string> links;  // "1Gbit/s,30ms"
  /// To the target, median over the seeds, by variant, by link: infinite if it is missed, NaN if
  /// the variant must be simulated again. Empty for runs without a target.
  std::vector<std::vector<double>> seconds;
  std::vector<RetimedVariant> variants;
  double bits_per_s = 0;  // of the runs' own links; 0: they differ, or there are none
  double rtt_s = 0;       // of the first one
};

}  // namespace isthmus::report
