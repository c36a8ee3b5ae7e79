// SPDX-License-Identifier: Apache-2.0
#include "report/page/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <system_error>
#include <vector>

#include "isthmus/errors.h"
#include "report/data/text.h"
#include "report/page/csv.h"
#include "report/page/page.h"
#include "report/page/section_links.h"

namespace isthmus {
namespace report {
namespace {

namespace fs = std::filesystem;

constexpr int kNestedLevels = 3;
constexpr std::size_t kMaxRuns = 64;

void collect_runs(const fs::path& folder, int levels, std::vector<fs::path>& runs) {
  std::error_code error;
  if (fs::exists(folder / "metrics.jsonl", error)) {
    runs.push_back(folder);
    return;
  }
  if (levels == 0) {
    return;
  }
  std::vector<fs::path> below;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    std::error_code ignored;
    // Trials of a comparison served its tuning; they are no runs to report.
    const bool trial = it->path().filename().string().starts_with("tune-");
    if (it->is_directory(ignored) && !it->is_symlink(ignored) && !trial) {
      below.push_back(it->path());
    }
  }
  std::sort(below.begin(), below.end());
  for (const fs::path& path : below) {
    collect_runs(path, levels - 1, runs);
  }
}

/// Short names that tell the runs apart: the method, else the folder, else numbered folders.
void label_runs(std::vector<RunView>& runs) {
  const auto distinct = [&](auto name_of) {
    std::map<std::string, int> seen;
    for (const RunView& run : runs) {
      const std::string name = name_of(run);
      if (name.empty() || ++seen[name] > 1) {
        return false;
      }
    }
    return true;
  };
  const auto method = [](const RunView& run) { return run.data.method; };
  const auto folder = [](const RunView& run) { return folder_name(run.data.directory); };
  const bool by_method = distinct(method);
  const bool by_folder = distinct(folder);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    RunData& data = runs[i].data;
    data.label = by_method   ? data.method
                 : by_folder ? folder(runs[i])
                             : fmt::format("{} {}", i + 1,
                                           data.method.empty() ? folder(runs[i]) : data.method);
  }
}

std::vector<RunView> load_all(const std::vector<fs::path>& paths) {
  std::vector<RunView> views;
  for (const fs::path& path : paths) {
    for (const fs::path& directory : find_runs(path)) {
      if (views.size() == kMaxRuns) {
        throw SystemError(
            fmt::format("{} run directories or more: one report takes at most {}; "
                        "name fewer",
                        kMaxRuns + 1, kMaxRuns));
      }
      views.push_back(view_of(directory));
    }
  }
  if (views.empty()) {
    throw SystemError("no run to report: name at least one run directory");
  }
  label_runs(views);
  return views;
}

std::string title_of(const std::vector<RunView>& runs, const ReportOptions& options) {
  if (!options.title.empty()) {
    return options.title;
  }
  const auto name_of = [](const RunView& run) {
    const auto name = run.data.manifest.words.find("name");
    return name == run.data.manifest.words.end() ? folder_name(run.data.directory) : name->second;
  };
  const std::string base = name_of(runs.front());
  const bool shared = std::all_of(runs.begin(), runs.end(),
                                  [&](const RunView& run) { return name_of(run) == base; });
  std::string labels;
  for (std::size_t i = 0; i < std::min<std::size_t>(runs.size(), 4); ++i) {
    labels += (i == 0 ? "" : i + 1 == runs.size() ? " and " : ", ") + runs[i].data.label;
  }
  labels += runs.size() > 4 ? " and others" : "";
  return base == labels || !shared ? labels : concat(base, ": ", labels);
}

/// In the order of the page; a section without content is left out.
constexpr PageEntry kReportSections[] = {
    {"loss", "Loss"},
    {"links", "Loss by link"},
    {"bandwidth", "Bandwidth"},
    {"utilisation", "Utilisation"},
    {"timeline", "Timeline"},
    {"traffic", "Traffic"},
    {"rounds", "Rounds"},
    {"prediction", "Prediction"},
    {"membership", "Membership"},
    {"configuration", "Configuration"},
    {"provenance", "Provenance"},
};

std::vector<PageEntry> sections_of(const Page& page) {
  std::vector<PageEntry> there;
  for (const PageEntry& entry : kReportSections) {
    if (page.html.find(fmt::format("<section id=\"{}\"", entry.id)) != std::string::npos) {
      there.push_back(entry);
    }
  }
  there.push_back({"downloads", "Downloads"});
  return there;
}

std::string stamp_of(const std::vector<RunView>& runs, const ReportOptions& options) {
  const auto version = runs.front().data.manifest.words.find("version");
  std::string line = runs.size() == 1 ? "1 run" : fmt::format("{} runs", runs.size());
  if (!options.generated.empty()) {
    line += concat(" · ", options.generated);
  }
  if (version != runs.front().data.manifest.words.end()) {
    line += concat(" · isthmus ", version->second);
  }
  return line;
}

LinkSection links_of(const std::vector<RunView>& runs, const OtherLinks& other) {
  LinkSection section{.other = other,
                      .curves = {},
                      .target = std::nullopt,
                      .own_link = "the runs' own links",
                      .clock = runs.front().clock.basis,
                      .badge = clock_badge(runs.front())};
  for (std::size_t i = 0; i < std::min(runs.size(), other.variants.size()); ++i) {
    LinkCurve curve{.label = runs[i].data.label,
                    .colour = static_cast<int>(i),
                    .utilisation = runs[i].figures.utilisation};
    for (const EvalPoint& eval : runs[i].data.evals) {
      curve.clock_s.push_back(eval.simulated_s);
      curve.mean_loss.push_back(eval.loss);
    }
    section.curves.push_back(std::move(curve));
  }
  return section;
}

std::string render(const std::vector<RunView>& runs, const ReportOptions& options) {
  constexpr int kAttempts = 10;
  constexpr std::size_t kMargin = 20'000;  // headings around the downloads
  PageLimits limits;
  for (int attempt = 0;; ++attempt, limits = limits.halved()) {
    Page page{.runs = runs, .options = options, .limits = limits};
    section_verdict(page);
    section_loss(page);
    if (!options.other_links.variants.empty()) {
      const LinkSection links = links_of(runs, options.other_links);
      section_links(page, links);
      section_bandwidth(page, links);
    }
    section_time(page);
    section_traffic(page);
    section_prediction(page);
    section_membership(page);
    section_config(page);
    section_provenance(page);
    const std::vector<PageEntry> sections = sections_of(page);
    const std::string opening = page_opening(
        {.title = title_of(runs, options), .stamp = stamp_of(runs, options), .sections = sections});
    const std::string end = page_closing(page);
    const std::size_t size = opening.size() + page.html.size() + end.size() + kMargin;
    if (size > kReportMaxBytes && attempt < kAttempts) {
      continue;
    }
    section_downloads(page, size < kReportMaxBytes ? kReportMaxBytes - size : 0);
    return concat(opening, page.html, end);
  }
}

void collect_warnings(const std::vector<RunView>& runs, ReportResult& result) {
  for (const RunView& run : runs) {
    for (const std::string& warning : run.data.warnings) {
      result.warnings.push_back(fmt::format("{}: {}", run.data.directory.string(), warning));
    }
  }
}

}  // namespace
}  // namespace report

std::vector<std::filesystem::path> find_runs(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    throw SystemError(fmt::format("{}: no such run directory", path.string()));
  }
  std::vector<std::filesystem::path> runs;
  report::collect_runs(path, report::kNestedLevels, runs);
  if (runs.empty()) {
    throw SystemError(
        fmt::format("{}: not a run directory, nor does it hold one: there is no "
                    "metrics.jsonl in it",
                    path.string()));
  }
  return runs;
}

ReportResult write_report(const std::vector<std::filesystem::path>& runs,
                          const std::filesystem::path& out, const ReportOptions& options) {
  const std::vector<report::RunView> views = report::load_all(runs);
  const std::string html = report::render(views, options);
  report::write_page_file(out, html);
  ReportResult result{.bytes = html.size(), .files = {out}, .warnings = {}};
  report::collect_warnings(views, result);
  return result;
}

ReportResult write_report_csv(const std::vector<std::filesystem::path>& runs,
                              const std::filesystem::path& directory) {
  const std::vector<report::RunView> views = report::load_all(runs);
  ReportResult result;
  const auto write = [&](const char* name, const std::string& text) {
    report::write_page_file(directory / name, text);
    result.bytes += text.size();
    result.files.push_back(directory / name);
  };
  write("runs.csv", report::runs_csv(views));
  write("train.csv", report::train_csv(views));
  write("eval.csv", report::eval_csv(views));
  write("rounds.csv", report::rounds_csv(views));
  write("prediction.csv", report::prediction_csv(views));
  report::collect_warnings(views, result);
  return result;
}

}  // namespace isthmus
