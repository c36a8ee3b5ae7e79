// SPDX-License-Identifier: Apache-2.0
// The table at the top: a row a run; the first row is the reference of the others.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <string_view>

#include "core/base/units.h"
#include "report/data/text.h"
#include "report/page/page.h"

namespace isthmus::report {
namespace {

struct Column {
  const char* name;
  const char* unit;  // small print under the name, or ""
  std::function<std::string(const RunView&)> value;
  std::function<std::string(const RunView&, const RunView&)> against;  // the first run; may be null
  std::function<std::string(const RunView&)> note = nullptr;  // below the value; may be null
};

std::string times_less(double value, double reference) {
  if (!(value > 0) || !(reference > 0) || !std::isfinite(reference / value)) {
    return {};
  }
  return reference >= value ? format_ratio(reference / value) + "× less"
                            : format_ratio(value / reference) + "× more";
}

/// The share that headers and protocol messages add to the payload.
std::string overhead_text(const RunFigures& figures) {
  const double share = figures.wire_bytes / figures.payload_bytes - 1;
  return share > 0 && std::isfinite(share) ? "payload " + format_signed_percent(share)
                                           : std::string{};
}

std::vector<Column> columns() {
  const auto gap = [](double RunFigures::*field) {
    return [field](const RunView& run, const RunView& reference) {
      const double difference = run.figures.*field - reference.figures.*field;
      return std::isfinite(difference)
                 ? fmt::format("{}{:.4f}", difference < 0 ? "−" : "+", std::abs(difference))
                 : std::string{};
    };
  };
  const auto ratio = [](double RunFigures::*field) {
    return [field](const RunView& run, const RunView& reference) {
      return times_less(run.figures.*field, reference.figures.*field);
    };
  };
  return {
      {"Steps", "", [](const RunView& r) { return format_count(r.figures.steps); }, nullptr},
      {"Train loss", "final, nats",
       [](const RunView& r) { return format_loss(r.figures.train_loss); },
       gap(&RunFigures::train_loss)},
      {"Val. loss", "final, nats",
       [](const RunView& r) { return format_loss(r.figures.eval_loss); },
       gap(&RunFigures::eval_loss)},
      {"Payload", "sent per worker",
       [](const RunView& r) { return human_bytes(r.figures.payload_bytes); },
       ratio(&RunFigures::payload_bytes)},
      {"On the wire", "sent per worker",
       [](const RunView& r) { return human_bytes(r.figures.wire_bytes); }, nullptr,
       [](const RunView& r) { return overhead_text(r.figures); }},
      {"Simulated time", "", [](const RunView& r) { return format_seconds(r.figures.simulated_s); },
       ratio(&RunFigures::simulated_s)},
      {"Utilisation", "compute share",
       [](const RunView& r) { return format_percent(r.figures.utilisation); }, nullptr},
      {"Wall time", "this machine",
       [](const RunView& r) { return format_seconds(r.figures.wall_s); }, nullptr},
  };
}

/// Of the declared model, where the run has a surrogate, and not of the one that learned.
bool declared(const Column& column) {
  constexpr std::string_view kDeclared[] = {"Payload", "On the wire", "Simulated time"};
  return std::find(std::begin(kDeclared), std::end(kDeclared), column.name) != std::end(kDeclared);
}

}  // namespace

std::string summary_table(const Page& page) {
  std::vector<Column> all = columns();
  std::erase_if(all, [&](const Column& column) {  // a real run has no simulated time
    return std::all_of(page.runs.begin(), page.runs.end(),
                       [&](const RunView& run) { return column.value(run) == kNoNumber; });
  });
  std::string head = "<th scope=\"col\">Run</th>";
  for (const Column& column : all) {
    head += fmt::format("<th scope=\"col\">{}{}<small>{}</small></th>", column.name,
                        declared(column) ? clock_badge(page.runs.front()) : "", column.unit);
  }
  std::string rows;
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    const RunView& run = page.runs[i];
    const bool comparable = i > 0 && same_length(run, page.runs.front());
    rows += fmt::format("<tr><th scope=\"row\">{}<small>{}{}</small></th>", run_tag(page, i),
                        escape_html(run.figures.status),
                        i == 0 && page.runs.size() > 1 ? " · reference" : "");
    for (const Column& column : all) {
      const std::string against = column.note ? column.note(run)
                                  : comparable && column.against
                                      ? column.against(run, page.runs.front())
                                      : std::string{};
      const bool surrogate = declared(column) && run.clock.surrogate;
      rows += fmt::format("<td data-name=\"{}{}\">{}<small>{}</small></td>", column.name,
                          surrogate ? " [surrogate]" : "", escape_html(column.value(run)),
                          escape_html(against));
    }
    rows += "</tr>\n";
  }
  return fmt::format(
      "<div class=\"scroll\"><table "
      "class=\"summary\"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>\n",
      head, rows);
}

}  // namespace isthmus::report
