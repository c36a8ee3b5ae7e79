// SPDX-License-Identifier: Apache-2.0
// The numbers behind the page, as files inside it.
#include <fmt/format.h>

#include "core/units.h"
#include "report/csv.h"
#include "report/page.h"
#include "report/text.h"

namespace isthmus::report {

void section_downloads(Page& page, std::size_t budget) {
  struct Download {
    const char* name;
    const char* type;
    const char* what;
    std::string (*make)(const std::vector<RunView>&);
  };
  // Small ones first: what does not fit is named instead.
  constexpr Download kDownloads[] = {
      {"runs.json", "application/json", "the table at the top", runs_json},
      {"runs.csv", "text/csv", "the table at the top", runs_csv},
      {"prediction.csv", "text/csv", "predicted times, term by term", prediction_csv},
      {"eval.csv", "text/csv", "every validation loss", eval_csv},
      {"rounds.csv", "text/csv", "every round", rounds_csv},
      {"train.csv", "text/csv", "every training step", train_csv},
  };
  page.html += section_open("downloads", "Downloads") + "<ul class=\"downloads\">\n";
  std::string left_out;
  std::size_t used = 0;
  for (const Download& download : kDownloads) {
    const std::string body = download.make(page.runs);
    const std::string coded = base64(body);
    if (used + coded.size() > budget) {
      left_out += (left_out.empty() ? "" : ", ") + std::string{download.name};
      continue;
    }
    used += coded.size();
    page.html += fmt::format(
        "<li><a download=\"{0}\" href=\"data:{1};charset=utf-8;base64,{2}\">{0}</a> {3}, "
        "{4}</li>\n",
        download.name, download.type, coded, download.what,
        human_bytes(static_cast<double>(body.size())));
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
