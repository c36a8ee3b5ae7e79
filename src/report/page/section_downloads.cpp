// SPDX-License-Identifier: Apache-2.0
// The numbers behind the page, as files inside it.
#include <fmt/format.h>

#include "core/base/base64.h"
#include "core/base/units.h"
#include "report/data/text.h"
#include "report/page/csv.h"
#include "report/page/page.h"

namespace isthmus::report {
namespace {

/// Small files first: a file that does not fit is named instead.
std::vector<Download> of_runs(const std::vector<RunView>& runs) {
  return {{"runs.json", "application/json", "the table at the top", runs_json(runs)},
          {"runs.csv", "text/csv", "the table at the top", runs_csv(runs)},
          {"prediction.csv", "text/csv", "predicted times, term by term", prediction_csv(runs)},
          {"eval.csv", "text/csv", "every validation loss", eval_csv(runs)},
          {"rounds.csv", "text/csv", "every round", rounds_csv(runs)},
          {"train.csv", "text/csv", "every training step", train_csv(runs)}};
}

}  // namespace

void section_downloads(Page& page, std::size_t budget, const std::vector<Download>& first) {
  std::vector<Download> downloads = first;
  const std::vector<Download> runs = of_runs(page.runs);
  downloads.insert(downloads.end(), runs.begin(), runs.end());
  page.html += section_open("downloads", "Downloads");
  if (!first.empty()) {
    page.html += "<p class=\"hint\">Files of runs hold the first seed of each variant.</p>";
  }
  page.html += "<ul class=\"downloads\">\n";
  std::string left_out;
  std::size_t used = 0;
  for (const Download& download : downloads) {
    const std::string coded = base64(download.body);
    if (used + coded.size() > budget) {
      left_out += (left_out.empty() ? "" : ", ") + download.name;
      continue;
    }
    used += coded.size();
    page.html += fmt::format(
        "<li><a download=\"{0}\" href=\"data:{1};charset=utf-8;base64,{2}\">{0}</a> {3}, "
        "{4}</li>\n",
        download.name, download.type, coded, download.what,
        human_bytes(static_cast<double>(download.body.size())));
  }
  page.html += "</ul>\n";
  if (!left_out.empty()) {
    page.html += fmt::format(
        "<p class=\"hint\">Too long for this page: {}. <code>isthmus report RUN… --csv DIR</code> "
        "writes them.</p>\n",
        left_out);
  }
  page.html += "</section>\n";
}

}  // namespace isthmus::report
