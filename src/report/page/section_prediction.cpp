// SPDX-License-Identifier: Apache-2.0
// The closed-form prediction beside the run's own clock.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/data/text.h"
#include "report/page/page.h"
#include "report/page/section_round_errors.h"

namespace isthmus::report {
namespace {

bool has_prediction(const RunView& run) { return !run.data.summary.prediction.terms.empty(); }

/// "112,071.542 s"
std::string exact_seconds(double seconds) {
  const auto thousandths = std::llround(seconds * 1000);
  const auto whole = thousandths / 1000;
  return fmt::format("{}.{:03} s", format_count(static_cast<double>(whole)),
                     std::abs(thousandths % 1000));
}

/// The duration, and below it the seconds that the error is made of.
std::string whole_seconds(double seconds) {
  return std::isfinite(seconds)
             ? fmt::format("{}<small>{}</small>", format_seconds(seconds), exact_seconds(seconds))
             : escape_html(format_seconds(seconds));
}

std::string term_row(const PredictionRow& term, double total) {
  const double share = total > 0 ? std::clamp(term.seconds / total, 0.0, 1.0) : 0;
  return fmt::format(
      "<tr><th scope=\"row\">{}</th><td class=\"formula\">{}</td><td>{}</td><td "
      "style=\"--share:{:.1f}%\" class=\"share\">{}</td></tr>",
      escape_html(term.name), escape_html(term.formula), escape_html(format_seconds(term.seconds)),
      std::isfinite(share) ? share * 100 : 0, escape_html(format_percent(term.seconds / total)));
}

std::string prediction_table(const Page& page, std::size_t index) {
  const RunView& run = page.runs[index];
  const PredictionRecord& prediction = run.data.summary.prediction;
  std::string rows;
  for (const PredictionRow& term : prediction.terms) {
    rows += term_row(term, prediction.predicted_s);
  }
  const std::string& absent = prediction.links_absent;
  const double error = std::isnan(prediction.error)
                           ? prediction.predicted_s / prediction.measured_s - 1
                           : prediction.error;
  const char* const clock = run.clock.simulated ? "simulated clock" : "measured";
  return fmt::format(
      "<h3>{} {}</h3><div class=\"scroll\"><table class=\"prediction\"><thead><tr><th "
      "scope=\"col\">Term</th>"
      "<th scope=\"col\">Closed form</th><th scope=\"col\">Seconds</th><th "
      "scope=\"col\">Share</th></tr></thead>"
      "<tbody>{}</tbody><tfoot><tr><th "
      "scope=\"row\">predicted</th><td></td><td>{}</td><td></td></tr>"
      "<tr><th scope=\"row\">{}</th><td></td><td>{}</td><td></td></tr>"
      "<tr><th scope=\"row\">error</th><td class=\"formula\">predicted / {} − "
      "1</td><td>{}</td><td></td></tr>"
      "</tfoot></table></div>\n",
      run_tag(page, index), clock_badge(run), rows, whole_seconds(prediction.predicted_s), clock,
      whole_seconds(prediction.measured_s), clock,
      escape_html(absent.empty() ? format_signed_percent(error) : absent));
}

}  // namespace

void section_prediction(Page& page) {
  if (std::none_of(page.runs.begin(), page.runs.end(), has_prediction)) {
    return;
  }
  page.html += section_open("prediction", "Prediction");
  page.html +=
      "<p class=\"lead\">What a formula says of the run's length, from the configuration alone, "
      "beside the run's clock. A simulated clock tests the formula; it has met no real "
      "network.</p>\n";
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    if (has_prediction(page.runs[i])) {
      page.html += prediction_table(page, i) + round_errors_of(page, i);
    }
  }
  page.html += "</section>\n";
}

}  // namespace isthmus::report
