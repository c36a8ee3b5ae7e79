// SPDX-License-Identifier: Apache-2.0
#include "report/page/comparison_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>

#include "report/data/text.h"
#include "report/page/comparison_page.h"
#include "report/page/section_links.h"

namespace isthmus::report {
namespace {

namespace fs = std::filesystem;

constexpr PageEntry kSections[] = {{"loss", "Loss"},
                                   {"links", "Wall-clock"},
                                   {"bandwidth", "Bandwidth"},
                                   {"utilisation", "Waits"},
                                   {"timeline", "Timeline"},
                                   {"rounds", "Rounds"},
                                   {"seeds", "Seeds"},
                                   {"tuning", "Tuning"},
                                   {"configuration", "Configuration"},
                                   {"provenance", "Provenance"},
                                   {"downloads", "Downloads"}};

/// The first run of a variant whose folder still exists, under the variant's name; without one, an
/// empty run that says so.
RunView view_of_variant(const ComparisonFolder& folder, const ComparedVariant& variant) {
  std::error_code error;
  for (const CellResult& run : variant.runs) {
    const fs::path directory = folder.path / run.directory;
    if (!run.directory.empty() && fs::exists(directory / "metrics.jsonl", error)) {
      RunView view = view_of(directory);
      view.data.label = variant.name;
      return view;
    }
  }
  RunView view;
  view.data.label = variant.name;
  view.data.method = variant.method;
  view.data.warnings.emplace_back("none of its runs' folders is there any more");
  view.clock.simulated = variant.runs.front().simulated;
  return view;
}

std::string own_link_text(const OtherLinks& other) {
  if (!(other.bits_per_s > 0)) {
    return "the runs' own links";
  }
  return fmt::format("the runs' own link, {} and {} round trip", format_rate(other.bits_per_s),
                     format_seconds(other.rtt_s));
}

LinkSection links_of(const Page& page, const Comparison& comparison, const OtherLinks& other) {
  LinkSection section{.other = other,
                      .curves = {},
                      .target = comparison.target,
                      .own_link = own_link_text(other),
                      .clock = page.runs.front().clock.basis,
                      .badge = clock_badge(page.runs.front())};
  for (std::size_t v = 0; v < comparison.variants.size(); ++v) {
    const ComparedVariant& variant = comparison.variants[v];
    LinkCurve curve{.label = variant.name,
                    .colour = static_cast<int>(v),
                    .to_target_s = comparison.results[v].to_target.clock_s};
    const std::vector<Spread> means = loss_by_evaluation(variant);
    for (const CellResult& run : variant.runs) {
      if (run.status == CellStatus::kOk && curve.clock_s.empty()) {
        for (std::size_t i = 0; i < means.size(); ++i) {
          curve.clock_s.push_back(run.evals[i].clock_s);
          curve.mean_loss.push_back(means[i].mean);
        }
      }
    }
    curve.utilisation = mean_utilisation(variant);
    section.curves.push_back(std::move(curve));
  }
  return section;
}

/// Links to traces that lie beside the runs' own files.
std::string trace_links(const ComparisonFolder& folder) {
  std::string html;
  for (const ComparedVariant& variant : folder.comparison.variants) {
    const std::string place = variant.runs.front().directory + "/trace.json";
    std::error_code error;
    if (fs::exists(folder.path / place, error)) {
      html += fmt::format("{}<a href=\"{}\">{}</a>", html.empty() ? "" : ", ", escape_html(place),
                          escape_html(variant.name));
    }
  }
  return html.empty() ? html : concat("<p class=\"hint\">Traces: ", html, ".</p>\n");
}

std::string file_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string render(const ComparisonFolder& folder, const std::vector<RunView>& runs,
                   const ReportOptions& options) {
  constexpr int kAttempts = 10;
  constexpr std::size_t kMargin = 20'000;  // headings around the downloads
  const Comparison& comparison = folder.comparison;
  const bool timed = all_simulated(runs) && !options.other_links.variants.empty();
  PageLimits limits;
  for (int attempt = 0;; ++attempt, limits = limits.halved()) {
    Page page{.runs = runs, .options = options, .limits = limits};
    const std::string title = options.title.empty() ? comparison.rules.name : options.title;
    std::string stamp = fmt::format("{} variants, {} seeds", comparison.variants.size(),
                                    comparison.variants.front().runs.size());
    stamp += options.generated.empty() ? "" : concat(" · ", options.generated);
    stamp += concat(" · isthmus ", comparison.variants.front().runs.front().version);
    page.html = page_opening({.title = title, .stamp = stamp, .sections = kSections});
    section_claims(page, folder);
    section_curves(page, folder);
    if (timed) {
      const LinkSection links = links_of(page, comparison, options.other_links);
      section_links(page, links);
      section_bandwidth(page, links);
    }
    section_time(page);
    page.html += trace_links(folder);
    section_traffic(page);
    section_seeds(page, folder);
    section_config(page);
    section_comparison_provenance(page, folder);
    const std::string end = page_closing(page);
    const std::size_t size = page.html.size() + end.size() + kMargin;
    if (size > kReportMaxBytes && attempt < kAttempts) {
      continue;
    }
    section_downloads(
        page, size < kReportMaxBytes ? kReportMaxBytes - size : 0,
        {{"summary.json", "application/json", "verdicts and everything they rest on",
          file_text(folder.path / "summary.json")},
         {"cells.csv", "text/csv", "every evaluation of every run", cells_csv(comparison)}});
    return page.html + end;
  }
}

}  // namespace

void section_comparison_provenance(Page& page, const ComparisonFolder& folder) {
  RunView view;
  view.data.label = folder.comparison.rules.name;
  view.data.directory = folder.path;
  read_manifest(folder.path / "manifest.json", view.data);
  const auto status = view.data.manifest.words.find("status");
  view.figures.status = status == view.data.manifest.words.end() ? "" : status->second;
  view.clock = page.runs.front().clock;
  page.html += section_open("provenance", "Provenance");
  page.html +=
      "<p class=\"lead\">The command that repeats the comparison, and what it ran on.</p>\n";
  page.html += provenance_of(view, "", page.limits.rows_per_table);
  page.html +=
      "<p class=\"hint\">Each run's folder holds a config.toml that repeats it by itself.</p>"
      "</section>\n";
}

ReportResult write_comparison_report(const ComparisonFolder& folder, const fs::path& out,
                                     const ReportOptions& options) {
  std::vector<RunView> runs;
  for (const ComparedVariant& variant : folder.comparison.variants) {
    runs.push_back(view_of_variant(folder, variant));
  }
  const std::string html = render(folder, runs, options);
  write_page_file(out, html);
  return {.bytes = html.size(), .files = {out}, .warnings = folder.warnings};
}

}  // namespace isthmus::report
