// SPDX-License-Identifier: Apache-2.0
// Where the time went: a bar per worker, and a timeline of the first rounds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>

#include "core/base/units.h"
#include "report/data/text.h"
#include "report/page/axis.h"
#include "report/page/page.h"

namespace isthmus::report {
namespace {

constexpr std::size_t kMaxBars = 16;
constexpr int kMaxLanes = 8;
constexpr int kLaneHeight = 46;  // one worker: compute and wait above, sent and received below
constexpr int kTimelineUnits = 100000;

std::string worker_name(const RunView& run, int worker) {
  const auto index = static_cast<std::size_t>(worker);
  return index < run.worker_names.size() ? run.worker_names[index]
                                         : fmt::format("worker {}", worker);
}

std::string bar(const RunView& run, std::size_t worker) {
  const WorkerShare& share = run.shares[worker];
  const auto drawn = [](double part, double room) {
    return std::isfinite(part) ? std::clamp(part, 0.0, room) : 0.0;
  };
  const double compute = share.compute_s / share.total_s;
  const double wait = share.wait_s / share.total_s;
  const double compute_drawn = drawn(compute, 1.0);
  const double wait_drawn = drawn(wait, 1.0 - compute_drawn);
  const std::string name = escape_html(worker_name(run, static_cast<int>(worker)));
  return fmt::format(
      R"(<tr><th scope="row">{0}</th><td class="bar-cell"><div class="bar" role="img" aria-label="{0}: compute {1}, wait {2}"><i class="compute" style="width:{3:.3f}%"></i><i class="wait" style="width:{4:.3f}%"></i></div></td><td>{1}</td><td>{2}</td><td>{5}</td></tr>
)",
      name, format_percent(compute), format_percent(wait), compute_drawn * 100, wait_drawn * 100,
      format_seconds(share.compute_s));
}

/// One table body: the run's name, then a row a worker.
std::string bars_of(const Page& page, std::size_t index) {
  const RunView& run = page.runs[index];
  std::string rows =
      fmt::format("<tbody><tr class=\"group\"><th colspan=\"5\" scope=\"rowgroup\">{} {}</th></tr>",
                  run_tag(page, index), clock_badge(run));
  std::size_t shown = 0;
  const std::size_t bars = std::min({run.shares.size(), kMaxBars, page.limits.workers_per_run});
  for (std::size_t w = 0; w < bars; ++w) {
    if (run.shares[w].total_s > 0) {
      rows += bar(run, w);
      ++shown;
    }
  }
  if (shown == 0) {
    rows += "<tr><td colspan=\"5\" class=\"empty\">No compute times were recorded.</td></tr>";
  }
  if (run.shares.size() > bars) {
    const auto [low, high] = std::minmax_element(
        run.shares.begin(), run.shares.end(),
        [](const WorkerShare& a, const WorkerShare& b) { return a.compute_s < b.compute_s; });
    rows += fmt::format(
        "<tr><td colspan=\"5\" class=\"empty\">The first {} of {} workers; over all of them "
        "compute "
        "lies between {} and {}.</td></tr>",
        bars, run.shares.size(), format_percent(low->utilisation()),
        format_percent(high->utilisation()));
  }
  return rows + "</tbody>\n";
}

/// End of the stretch worth a first look: the first three rounds to arrive.
double first_rounds_end(const std::vector<Span>& spans) {
  std::set<std::pair<std::int64_t, std::int64_t>> rounds;
  double end = 0;
  for (const Span& span : spans) {
    if (span.kind == SpanKind::kReceive) {
      rounds.emplace(span.step, span.fragment);
    }
    if (rounds.size() > 3) {
      break;
    }
    end = std::max(end, span.end_s);
  }
  return end;
}

/// The spans drawn: the first of the shown workers, up to the limit; a cut keeps whole moments.
std::vector<Span> drawn_spans(const RunView& run, std::size_t limit) {
  std::vector<Span> drawn;
  for (const Span& span : run.data.spans) {
    if (span.worker < kMaxLanes && drawn.size() < limit) {
      drawn.push_back(span);
    }
  }
  return drawn;
}

std::string span_title(const RunView& run, const Span& span) {
  std::string text = concat(worker_name(run, span.worker), ": ", span_name(span.kind));
  if (span.peer >= 0) {
    text +=
        concat(span.kind == SpanKind::kReceive ? " from " : " to ", worker_name(run, span.peer));
  }
  if (span.bytes > 0) {
    text += concat(", ", human_bytes(span.bytes));
  }
  if (span.fragment >= 0) {
    text += fmt::format(", fragment {}", span.fragment);
  }
  return text + fmt::format(", step {}: {} from {}", span.step,
                            format_seconds(span.end_s - span.begin_s),
                            format_seconds(span.begin_s));
}

struct LanePlace {
  int top;
  int height;
};
LanePlace place_of(SpanKind kind, int worker) {
  const int top = worker * kLaneHeight;
  switch (kind) {
    case SpanKind::kCompute:
    case SpanKind::kWait:
      return {top + 5, 18};
    case SpanKind::kSend:
      return {top + 25, 7};
    case SpanKind::kReceive:
      return {top + 33, 7};
    default:
      return {top, 0};
  }
}

/// Rectangles of one kind; `scale` is timeline units a second.
std::string rects(const RunView& run, const std::vector<Span>& spans, SpanKind kind, double scale) {
  std::string html;
  for (const Span& span : spans) {
    if (span.kind != kind) {
      continue;
    }
    const LanePlace place = place_of(kind, span.worker);
    fmt::format_to(std::back_inserter(html),
                   R"(<rect x="{:.0f}" y="{}" width="{:.0f}" height="{}"><title>{}</title></rect>)",
                   span.begin_s * scale, place.top,
                   std::max(1.0, (span.end_s - span.begin_s) * scale), place.height,
                   escape_html(span_title(run, span)));
  }
  return fmt::format("<g class=\"{}\">{}</g>", span_name(kind), html);
}

/// How much of the run the timeline shows.
std::string extent_hint(const RunView& run, std::size_t drawn, double window) {
  std::string text = fmt::format(
      "First {} of {}", format_seconds(window),
      format_seconds(run.shares.empty() ? run.data.last_span_end_s : run.shares.front().total_s));
  if (run.data.times.size() > static_cast<std::size_t>(kMaxLanes)) {
    text += fmt::format(", first {} of {} workers", kMaxLanes, run.data.times.size());
  }
  if (static_cast<std::int64_t>(drawn) < run.data.span_count) {
    text += fmt::format("; {} of {} events are in this page, all of them in events.jsonl",
                        format_count(static_cast<double>(drawn)),
                        format_count(static_cast<double>(run.data.span_count)));
  }
  if (!std::isnan(run.data.spans_cut_s)) {
    text += fmt::format("; the run recorded events up to {} only",
                        format_seconds(run.data.spans_cut_s));
  }
  return concat("<p class=\"hint\">", escape_html(text),
                ".<span class=\"js-only\"> Scroll to zoom, drag to move, double-click to "
                "reset.</span></p>\n");
}

std::string timeline_of(Page& page, std::size_t index) {
  const RunView& run = page.runs[index];
  std::string html = fmt::format("<h3>{} {}</h3>", run_tag(page, index), clock_badge(run));
  const std::vector<Span> spans = drawn_spans(run, page.limits.spans_per_run);
  double end = 0;
  int lanes = 0;
  for (const Span& span : spans) {
    end = std::max(end, span.end_s);
    lanes = std::max(lanes, span.worker + 1);
  }
  if (spans.empty() || !(end > 0)) {
    return html + "<p class=\"empty\">No events were recorded.</p>\n";
  }
  const double scale = kTimelineUnits / end;
  const double window = std::clamp(first_rounds_end(spans), end / 1000, end);
  std::string names;
  std::string lines;
  for (int worker = 0; worker < lanes; ++worker) {
    names += fmt::format("<span style=\"top:{}px;height:{}px\">{}</span>", worker * kLaneHeight,
                         kLaneHeight, escape_html(worker_name(run, worker)));
    lines += fmt::format("M0 {}h{}", (worker + 1) * kLaneHeight, kTimelineUnits);
  }
  std::string ticks;
  for (const Tick& tick : Axis{.low = 0, .high = window, .unit = AxisUnit::kSeconds}.ticks(6)) {
    if (tick.position < 0.97) {
      ticks += fmt::format("<span style=\"left:{:.2f}%\">{}</span>", tick.position * 100,
                           escape_html(tick.label));
    }
  }
  std::string shapes;
  for (const SpanKind kind :
       {SpanKind::kWait, SpanKind::kCompute, SpanKind::kSend, SpanKind::kReceive}) {
    shapes += rects(run, spans, kind, scale);
  }
  html += fmt::format(
      R"(<figure class="timeline" data-end="{end}" data-units="{units}"><div class="lanes">{names}</div>
<div class="track"><svg height="{height}" viewBox="0 0 {window:.0f} {height}" preserveAspectRatio="none" role="img" aria-label="Timeline of {label}: what each worker did in the first {seconds}">{shapes}<path class="rule" d="{lines}"/></svg><div class="x-labels">{ticks}</div></div>
<figcaption class="x-name">{caption}</figcaption></figure>
)",
      fmt::arg("end", exact(end)), fmt::arg("units", kTimelineUnits), fmt::arg("names", names),
      fmt::arg("height", lanes * kLaneHeight), fmt::arg("window", window * scale),
      fmt::arg("label", escape_html(run.data.label)),
      fmt::arg("seconds", escape_html(format_seconds(window))), fmt::arg("shapes", shapes),
      fmt::arg("lines", lines), fmt::arg("ticks", ticks),
      fmt::arg("caption", escape_html(clock_caption(run))));
  return html + extent_hint(run, spans.size(), window);
}

constexpr const char* kSpanLegend =
    "<p class=\"legend spans plain-wait\"><span><i class=\"compute\"></i>compute</span><span><i "
    "class=\"wait\">"
    "</i>wait</span><span><i class=\"send\"></i>send</span><span><i class=\"receive\"></i>receive"
    "</span></p>\n";

}  // namespace

void section_time(Page& page) {
  page.html += section_open("utilisation", "Compute utilisation");
  page.html +=
      "<p class=\"lead\">The share of its time that each worker spent computing. A worker waits "
      "when "
      "it needs the result of a round that is still under way.</p>\n";
  page.html +=
      "<table class=\"bars\"><thead><tr><th scope=\"col\">Worker</th><th scope=\"col\"></th>"
      "<th scope=\"col\">Compute</th><th scope=\"col\">Wait</th><th "
      "scope=\"col\">Computed</th></tr>"
      "</thead>";
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    page.html += bars_of(page, i);
  }
  page.html += "</table>\n";
  page.html += concat("</section>\n", section_open("timeline", "Timeline"), kSpanLegend);
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    page.html += timeline_of(page, i);
  }
  page.html += "</section>\n";
}

}  // namespace isthmus::report
