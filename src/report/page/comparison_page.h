// SPDX-License-Identifier: Apache-2.0
// The sections of a comparison's page. `page.runs` holds the first seed's run of each variant, in
// the order of the variants.
#pragma once

#include <string>

#include "report/page/comparison_report.h"
#include "report/page/page.h"

namespace isthmus::report {

void section_claims(Page& page, const ComparisonFolder& folder);  // verdicts and the table
void section_curves(Page& page, const ComparisonFolder& folder);  // against steps and bytes
void section_seeds(Page& page, const ComparisonFolder& folder);   // final losses, tuning
void section_comparison_provenance(Page& page, const ComparisonFolder& folder);

/// Every evaluation of every run as CSV.
[[nodiscard]] std::string cells_csv(const Comparison& comparison);
/// A variant's coloured line and escaped name.
[[nodiscard]] std::string variant_tag(const Comparison& comparison, std::size_t variant);
/// The share of their time that workers compute, 0 to 1: the mean over the finished runs; NaN
/// without one.
[[nodiscard]] double mean_utilisation(const ComparedVariant& variant);
/// Mean and deviation over the finished runs at each evaluation that all of them have, in nats a
/// token.
[[nodiscard]] std::vector<Spread> loss_by_evaluation(const ComparedVariant& variant);

}  // namespace isthmus::report
