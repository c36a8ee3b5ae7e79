// SPDX-License-Identifier: Apache-2.0
// Loss against the clock, on the runs' own links, on others, and on a link of any rate: the page
// has the runs' clocks at many rates, among which its slider chooses.
#include "report/page/section_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/data/text.h"

namespace isthmus::report {
namespace {

/// Clocks at all rates that do not fit in this are left out of the page, which has a size to stay
/// below.
constexpr std::size_t kMaxClockBytes = 600'000;
constexpr std::size_t kMaxPanels = 5;

LineChart chart_over(Page& page, const LinkSection& section, std::string id,
                     const std::string& where,
                     const std::function<const std::vector<double>*(std::size_t)>& clock_of) {
  LineChart chart{.id = std::move(id),
                  .x_label = concat("simulated time, ", where),
                  .y_label = "validation loss, nats per token",
                  .x_unit = AxisUnit::kSeconds};
  chart.description = fmt::format("Loss against {}.", chart.x_label);
  double least = INFINITY;
  double most = 0;
  for (std::size_t i = 0; i < section.curves.size(); ++i) {
    const LinkCurve& curve = section.curves[i];
    const std::vector<double>* clock = clock_of(i);
    if (clock == nullptr || clock->empty()) {
      continue;
    }
    ChartSeries series{.label = curve.label, .colour = curve.colour, .marks = clock->size() <= 60};
    for (std::size_t k = 0; k < std::min(clock->size(), curve.mean_loss.size()); ++k) {
      series.points.push_back({(*clock)[k], curve.mean_loss[k]});
    }
    page.decimated = page.decimated || series.points.size() > page.limits.points_per_series;
    series.points = decimate(series.points, page.limits.points_per_series);
    least = std::min(least, clock->back());
    most = std::max(most, clock->back());
    chart.description += fmt::format(" {} ends at {}.", curve.label, format_seconds(clock->back()));
    chart.series.push_back(std::move(series));
  }
  constexpr double kSqueezed = 6;
  chart.log_x = least > 0 && most > kSqueezed * least;
  chart.x_label += chart.log_x ? " (log scale)" : "";
  return chart;
}

std::string time_cell(double seconds) {
  return std::isinf(seconds) ? "missed" : format_seconds(seconds);
}

/// Rows variants; per link the time to the target and of the whole run.
std::string links_table(const LinkSection& section) {
  std::string head = "<th scope=\"col\"></th>";
  for (const std::string& link : section.other.links) {
    head += fmt::format("<th scope=\"col\">{}<small>{}</small></th>", escape_html(link),
                        section.target ? "to the target · whole run" : "whole run · utilisation");
  }
  std::string rows;
  for (std::size_t v = 0; v < section.curves.size(); ++v) {
    const RetimedVariant& variant = section.other.variants[v];
    rows += fmt::format("<tr><th scope=\"row\"><span class=\"run\">{}{}</span></th>",
                        line_key(section.curves[v].colour), escape_html(section.curves[v].label));
    for (std::size_t l = 0; l < section.other.links.size(); ++l) {
      if (!variant.obstacle.empty()) {
        rows += "<td>needs simulating</td>";
      } else if (section.target) {
        rows += fmt::format("<td>{}<small>{}</small></td>", time_cell(section.other.seconds[v][l]),
                            format_seconds(variant.end_s[l]));
      } else {
        rows += fmt::format("<td>{}<small>{}</small></td>", format_seconds(variant.end_s[l]),
                            format_percent(variant.utilisation[l]));
      }
    }
    rows += "</tr>";
  }
  return fmt::format(
      "<div class=\"scroll\"><table class=\"on-links\"><thead><tr>{}</tr></thead><tbody>{}"
      "</tbody></table></div>\n",
      head, rows);
}

std::string obstacles(const LinkSection& section) {
  std::string html;
  for (std::size_t v = 0; v < section.curves.size(); ++v) {
    const std::string& why = section.other.variants[v].obstacle;
    if (!why.empty()) {
      html += fmt::format(
          "<p class=\"caution\"><b>{} needs simulating again on other links:</b> {}. Its curve is "
          "drawn on its own link only.</p>\n",
          escape_html(section.curves[v].label), escape_html(why));
    }
  }
  return html;
}

std::string list_json(const std::vector<double>& values) {
  std::string json;
  for (const double value : values) {
    json += (json.empty() ? "" : ",") + exact(value);
  }
  return "[" + json + "]";
}

std::string at_rate_json(const RetimedVariant::AtRate& at, bool target) {
  if (at.clock_s.empty()) return "null";
  return fmt::format(R"({{"clock":{},"end":{},"utilisation":{},"target":{}}})",
                     list_json(at.clock_s), exact(at.end_s), exact(at.utilisation),
                     target && std::isfinite(at.to_target_s) ? exact(at.to_target_s) : "null");
}

/// The clocks that the slider chooses from; a curve without them, or with clocks for which there is
/// no room, has its name only.
std::string curve_json(const LinkCurve& curve, const RetimedVariant& variant, bool target,
                       std::size_t& room) {
  std::string places;
  for (const RetimedVariant::AtRate& at : variant.by_rate) {
    places += (places.empty() ? "" : ",") + at_rate_json(at, target);
  }
  const std::string clocks =
      fmt::format(R"("mean":{},"at":[{}])", list_json(curve.mean_loss), places);
  const bool whole = !variant.by_rate.empty() && clocks.size() <= room;
  room -= whole ? clocks.size() : 0;
  return fmt::format(R"({{"label":{},"colour":{},{}}})", json_string(curve.label),
                     curve.colour % kPaletteSize, whole ? clocks : R"("at":null)");
}

std::string rates_json(const OtherLinks& other) {
  for (const RetimedVariant& variant : other.variants) {
    std::vector<double> rates;
    for (const RetimedVariant::AtRate& at : variant.by_rate) rates.push_back(at.bits_per_s);
    if (!rates.empty()) return list_json(rates);
  }
  return "[]";
}

/// The chart that the script makes live, the controls it fills, and the numbers it rewrites.
std::string live_part(Page& page, const LinkSection& section) {
  const LineChart chart = chart_over(page, section, "loss-links", section.own_link,
                                     [&](std::size_t v) { return &section.curves[v].clock_s; });
  std::string html = chart_html(chart);
  page.charts.push_back(chart_json(chart));
  std::string rows;
  for (const LinkCurve& curve : section.curves) {
    rows += fmt::format(
        "<tr><th scope=\"row\"><span class=\"run\">{}{}</span></th>{}<td data-is=\"end\">{}</td>"
        "<td data-is=\"utilisation\">{}</td></tr>",
        line_key(curve.colour), escape_html(curve.label),
        section.target ? fmt::format("<td data-is=\"target\">{}</td>", time_cell(curve.to_target_s))
                       : std::string{},
        curve.clock_s.empty() ? std::string{kNoNumber} : format_seconds(curve.clock_s.back()),
        format_percent(curve.utilisation));
  }
  html += fmt::format(
      "<div class=\"scroll\"><table id=\"live-times\"><thead><tr><th scope=\"col\"><span "
      "id=\"live-link\">{}</span></th>{}<th scope=\"col\">Whole run</th><th "
      "scope=\"col\">Utilisation</th></tr></thead><tbody>{}</tbody></table></div>\n",
      escape_html(section.own_link), section.target ? "<th scope=\"col\">To the target</th>" : "",
      rows);
  return html;
}

std::string panels(Page& page, const LinkSection& section) {
  const std::size_t shown = std::min(section.other.links.size(), kMaxPanels);
  std::string tabs = "<div class=\"tabs\">\n";
  std::string html;
  for (std::size_t l = 0; l < shown; ++l) {
    const std::string& link = section.other.links[l];
    const LineChart chart = chart_over(
        page, section, fmt::format("loss-link-{}", l), concat("over ", link), [&](std::size_t v) {
          const auto& clocks = section.other.variants[v].clock_s;
          return section.other.variants[v].obstacle.empty() ? &clocks[l] : nullptr;
        });
    if (chart.series.empty()) {
      continue;
    }
    tabs += fmt::format(
        R"(<input type="radio" name="link-view" id="tab-link-{0}"{1}><label for="tab-link-{0}">{2}</label>)",
        l, l == 0 ? " checked" : "", escape_html(link));
    html += fmt::format(
        "<div class=\"panel\"><h3>Loss against simulated time over {} {}</h3>\n{}</div>\n",
        escape_html(link), section.badge, chart_html(chart));
    page.charts.push_back(chart_json(chart));
  }
  return html.empty() ? std::string{} : concat(tabs, html, "</div>\n");
}

}  // namespace

void section_links(Page& page, const LinkSection& section) {
  page.html += section_open("links", "Loss against wall-clock");
  page.html += fmt::format(
      "<p class=\"lead\">The losses of a run do not depend on its link, so its clock can be "
      "computed "
      "for other links. The times are those of a simulation over that link, to the nanosecond. {} "
      "Seconds are simulated: {}.</p>\n",
      section.badge, escape_html(section.clock));
  const bool drawn_anew = std::ranges::any_of(
      section.other.variants, [](const auto& each) { return !each.clock_by_run_s.empty(); });
  if (drawn_anew) {
    page.html +=
        "<p class=\"hint\">Every seed draws the jitter of its sites' steps anew: curves, ends and "
        "the slider show the clock of the first one.</p>\n";
  }
  page.html += obstacles(section);
  page.html += live_part(page, section);
  if (!section.other.links.empty()) {
    page.html += links_table(section);
    page.html += panels(page, section);
  }
  page.html += "</section>\n";
  std::size_t room = kMaxClockBytes;
  bool left_out = false;
  std::string curves;
  for (std::size_t v = 0; v < section.curves.size(); ++v) {
    const std::size_t before = room;
    curves += (v == 0 ? "" : ",\n") + curve_json(section.curves[v], section.other.variants[v],
                                                 section.target.has_value(), room);
    left_out = left_out || (!section.other.variants[v].by_rate.empty() && room == before);
  }
  if (left_out) {
    page.html +=
        "<p class=\"hint\">Some runs have too many evaluations for the slider; <code>isthmus "
        "report RUN --links RATE,RTT</code> re-times them.</p>\n";
  }
  page.data += fmt::format(
      "<script type=\"application/json\" id=\"retiming\">{{\"target\":{},\"bits_per_s\":{},"
      "\"rtt_s\":{},\"rates\":{},\"curves\":[{}]}}</script>\n",
      section.target ? exact(*section.target) : "null", exact(section.other.bits_per_s),
      exact(section.other.rtt_s), rates_json(section.other), curves);
}

void section_bandwidth(Page& page, const LinkSection& section) {
  LineChart chart{.id = "utilisation-by-rate",
                  .x_label = fmt::format("rate of the link between sites, at a round trip of {} "
                                         "(log scale)",
                                         format_seconds(section.other.rtt_s)),
                  .y_label = "share of its time that a worker computes, %",
                  .log_x = true,
                  .x_unit = AxisUnit::kRate};
  chart.description = "Compute utilisation against the rate of the link.";
  for (std::size_t v = 0; v < section.curves.size(); ++v) {
    ChartSeries series{.label = section.curves[v].label, .colour = section.curves[v].colour};
    double reached = kNothing;
    for (const RetimedVariant::AtRate& at : section.other.variants[v].by_rate) {
      series.points.push_back({at.bits_per_s, 100 * at.utilisation});
      constexpr double kBusy = 0.9;
      if (std::isnan(reached) && at.utilisation >= kBusy) {
        reached = at.bits_per_s;
      }
    }
    if (!series.points.empty()) {
      chart.description += std::isnan(reached) ? fmt::format(" {} stays below 90 %.", series.label)
                                               : fmt::format(" {} comes to 90 % at {}.",
                                                             series.label, format_rate(reached));
      chart.series.push_back(std::move(series));
    }
  }
  if (chart.series.empty()) {
    return;
  }
  if (section.other.bits_per_s > 0) {
    chart.mark = ChartMark{section.other.bits_per_s,
                           concat("these runs: ", format_rate(section.other.bits_per_s))};
  }
  page.html += section_open("bandwidth", "Compute utilisation against bandwidth");
  page.html += fmt::format(
      "<p class=\"lead\">The same runs re-timed over one link between all sites, of any rate, "
      "without loss. {}</p>\n{}",
      section.badge, chart_html(chart));
  page.charts.push_back(chart_json(chart));
  std::string head = "<th scope=\"col\"></th>";
  std::string rows;
  const auto wanted = [](std::size_t i) { return i % 4 == 0; };  // a decade apart
  for (std::size_t v = 0; v < section.curves.size(); ++v) {
    const auto& places = section.other.variants[v].by_rate;
    if (places.empty()) {
      continue;
    }
    const bool first = rows.empty();
    rows += fmt::format("<tr><th scope=\"row\"><span class=\"run\">{}{}</span></th>",
                        line_key(section.curves[v].colour), escape_html(section.curves[v].label));
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (wanted(i)) {
        head += first ? fmt::format("<th scope=\"col\">{}</th>", format_rate(places[i].bits_per_s))
                      : std::string{};
        rows += fmt::format("<td>{}</td>", format_percent(places[i].utilisation));
      }
    }
    rows += "</tr>";
  }
  page.html += fmt::format(
      "<div class=\"scroll\"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>"
      "</section>\n",
      head, rows);
}

}  // namespace isthmus::report
