// SPDX-License-Identifier: Apache-2.0
// Sites that left and joined during a run, and the fate of the work of sites that came back.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/units.h"
#include "report/data/text.h"
#include "report/page/page.h"

namespace isthmus::report {
namespace {

constexpr std::size_t kMostRows = 200;

bool has_membership(const RunView& run) { return !run.data.membership.empty(); }

std::string what_of(const MembershipRecord& record) {
  if (!std::isfinite(record.tokens_kept)) {
    return record.why.empty() ? record.what : fmt::format("{}: {}", record.what, record.why);
  }
  const std::string alone =
      record.steps_alone > 0
          ? fmt::format("; {} of them on {} step{} alone while it was cut off",
                        human_count(record.tokens_alone), human_count(record.steps_alone),
                        record.steps_alone > 1 ? "s" : "")
          : "";
  return fmt::format("uncommitted work when it was found again: {} tokens kept, {} lost{}",
                     human_count(record.tokens_kept), human_count(record.tokens_lost), alone);
}

std::string membership_table(const Page& page, std::size_t index) {
  const RunView& run = page.runs[index];
  const auto& records = run.data.membership;
  std::string rows;
  const std::size_t first = records.size() - std::min(records.size(), kMostRows);
  for (std::size_t i = first; i < records.size(); ++i) {
    const MembershipRecord& record = records[i];
    rows += fmt::format(
        "<tr><td>{}</td><th scope=\"row\">{}</th><td class=\"formula\">{}</td><td>{}</td></tr>",
        format_count(static_cast<double>(record.step)), escape_html(record.site),
        escape_html(what_of(record)), format_count(record.sites));
  }
  const std::string cut = first == 0 ? ""
                                     : fmt::format("<p class=\"note\">The last {} of {}.</p>",
                                                   kMostRows, records.size());
  return fmt::format(
      "<h3>{}</h3>{}<div class=\"scroll\"><table class=\"prediction\"><thead><tr>"
      "<th scope=\"col\">After step</th><th scope=\"col\">Site</th><th scope=\"col\">What</th>"
      "<th scope=\"col\">Sites then</th></tr></thead><tbody>{}</tbody></table></div>\n",
      run_tag(page, index), cut, rows);
}

}  // namespace

void section_membership(Page& page) {
  if (std::none_of(page.runs.begin(), page.runs.end(), has_membership)) {
    return;
  }
  page.html += section_open("membership", "Who was there");
  page.html +=
      "<p class=\"lead\">As the site whose folder this is has written it down. What a site had "
      "trained on when it was cut off, and alone from then on, stands in its own folder.</p>\n";
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    if (has_membership(page.runs[i])) {
      page.html += membership_table(page, i);
    }
  }
  page.html += "</section>\n";
}

}  // namespace isthmus::report
