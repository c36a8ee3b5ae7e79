// SPDX-License-Identifier: Apache-2.0
// The pages of runs and comparisons, with the runs re-timed over other links.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report/page/comparison_report.h"

namespace isthmus::app {

/// Writes the page of the comparison in `folder`, re-timed over `links` (empty: those of its file).
/// Fills `options.other_links`. THROWS: SystemError, ConfigError.
ReportResult write_comparison_page(const std::filesystem::path& folder,
                                   const std::filesystem::path& out,
                                   const std::vector<std::string>& links, ReportOptions options);

/// Run folders re-timed over `links`. A run that cannot be re-timed tells why.
[[nodiscard]] report::OtherLinks runs_on_links(const std::vector<std::filesystem::path>& runs,
                                               const std::vector<std::string>& links);

/// {"run":...,"needs_simulating":"","links":{"1Gbit/s,30ms":{"end_s":...,"utilisation":...,
/// "evals":[[step,s],...]}}}, one a run.
[[nodiscard]] std::vector<std::string> retimed_json(const std::vector<std::filesystem::path>& runs,
                                                    const report::OtherLinks& other);

}  // namespace isthmus::app
