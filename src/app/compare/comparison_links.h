// SPDX-License-Identifier: Apache-2.0
// A comparison's clocks on other links: the same losses at the same steps, re-timed. A variant is
// re-timed only if re-timing at its own links reproduces its runs; the others tell why they must be
// simulated again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/train/comparison_retimer.h"
#include "report/data/comparison.h"

namespace isthmus::app {

/// Adds the link of `config`, for the page. Its rate only if all links are alike and supported by
/// the page's script: it stands for all of them there.
void note_own_link(const Config& config, report::OtherLinks& other);

enum class RetimedFor {
  kTable,  // the times alone
  kPage    // and what the page's script and charts need
};

/// Re-timed over each of `links`. `runs`: finished ones of that configuration, except run.seed.
[[nodiscard]] report::RetimedVariant retimed_variant(const Config& config,
                                                     const std::vector<report::CellResult>& runs,
                                                     const std::vector<std::string>& links,
                                                     RetimedFor use);

/// For each of `links` and each variant of `comparison`; the variants have simulated clocks.
/// `config_of`: the configuration of a variant's first run.
[[nodiscard]] report::OtherLinks times_on_links(
    const report::Comparison& comparison, const std::vector<std::string>& links,
    const std::function<Config(std::size_t variant)>& config_of, RetimedFor use);

}  // namespace isthmus::app
