// SPDX-License-Identifier: Apache-2.0
#include "report/page/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/data/text.h"
#include "report/page/line_chart.h"

namespace isthmus::report {

std::string clock_caption(const RunView& run) {
  if (!run.clock.simulated) {
    return "time on the machine that ran it";
  }
  return concat("simulated time (", run.clock.basis, ")");
}

bool all_simulated(const std::vector<RunView>& runs) {
  return std::all_of(runs.begin(), runs.end(),
                     [](const RunView& run) { return run.clock.simulated; });
}

bool same_length(const RunView& a, const RunView& b) {
  return a.figures.steps == b.figures.steps && !a.data.end_status.empty() &&
         !b.data.end_status.empty();
}

std::string first_of_hint(std::size_t shown, std::size_t all, const char* what) {
  return shown < all ? fmt::format("<p class=\"hint\">The first {} of {} {}.</p>", shown, all, what)
                     : std::string{};
}

std::string section_open(const char* id, const char* heading) {
  return fmt::format("<section id=\"{}\"><h2>{}</h2>\n", id, heading);
}

std::string run_tag(const Page& page, std::size_t run) {
  return fmt::format("<span class=\"run\">{}{}</span>", line_key(static_cast<int>(run)),
                     escape_html(page.runs[run].data.label));
}

std::string clock_badge(const RunView& run) {
  if (!run.clock.simulated) {
    return {};
  }
  return fmt::format("<span class=\"badge\" title=\"{}\">[{}]</span>",
                     escape_html(concat("rests on ", run.clock.basis)),
                     run.clock.surrogate ? "surrogate" : "simulated");
}

}  // namespace isthmus::report
