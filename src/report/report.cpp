// SPDX-License-Identifier: Apache-2.0
#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <system_error>

#include "core/storage.h"
#include "isthmus/errors.h"
#include "report/assets.h"
#include "report/csv.h"
#include "report/page.h"
#include "report/text.h"

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

/// The folder's own name; for ".", "runs/a/" and the like, the name of where it leads.
std::string folder_name(const fs::path& directory) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(directory, error);
  const fs::path& path = error ? directory : whole;
  return (path.filename().empty() ? path.parent_path() : path).filename().string();
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

std::vector<std::string> worker_names(const RunData& run) {
  std::vector<std::string> names;
  for (int i = 0; i < run.workers; ++i) {
    const auto site = run.config.find(fmt::format("site[{}].name", i));
    std::string name = site == run.config.end() ? std::string{} : site->second.value;
    if (name.size() >= 2 && name.front() == '"' && name.back() == '"') {
      name = name.substr(1, name.size() - 2);
    }
    names.push_back(name.empty() ? fmt::format("worker {}", i) : name);
  }
  return names;
}

RunView view_of(const fs::path& directory) {
  RunView view{.data = read_run(directory)};
  view.data.workers = std::max(view.data.workers, static_cast<int>(view.data.times.size()));
  view.figures = figures_of(view.data);
  view.clock = clock_words(view.data);
  view.shares = worker_shares(view.data, view.figures);
  view.worker_names = worker_names(view.data);
  return view;
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

std::string contents() {
  struct Entry {
    const char* id;
    const char* name;
  };
  constexpr Entry kEntries[] = {
      {"loss", "Loss"},          {"utilisation", "Utilisation"},     {"timeline", "Timeline"},
      {"rounds", "Rounds"},      {"configuration", "Configuration"}, {"provenance", "Provenance"},
      {"downloads", "Downloads"}};
  std::string html = "<nav aria-label=\"Sections\">";
  for (const Entry& entry : kEntries) {
    html += fmt::format("<a href=\"#{}\">{}</a>", entry.id, entry.name);
  }
  return html + "</nav>\n";
}

std::string opening(const std::vector<RunView>& runs, const ReportOptions& options) {
  const std::string title = escape_html(title_of(runs, options));
  const auto version = runs.front().data.manifest.words.find("version");
  std::string line = runs.size() == 1 ? "1 run" : fmt::format("{} runs", runs.size());
  if (!options.generated.empty()) {
    line += concat(" · ", options.generated);
  }
  if (version != runs.front().data.manifest.words.end()) {
    line += concat(" · isthmus ", version->second);
  }
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light "
      "dark\"><title>{0}</title>\n<style>\n{1}</style></head>\n"
      "<body><header><h1>{0}</h1><p class=\"stamp\">{2}</p>{3}</header><main>\n",
      title, kPageStyle, escape_html(line), contents());
}

std::string closing(const Page& page) {
  std::string html = "</main><footer><p>";
  if (page.decimated) {
    html += fmt::format(
        "Long series are thinned to at most {} points each: every stretch keeps its lowest and its "
        "highest value. ",
        page.limits.points_per_series);
  }
  html += "Bytes and rates count in powers of 1,000; losses are mean cross-entropy in nats.</p>";
  if (!page.options.command.empty()) {
    html += concat("<p>Made by <code>", escape_html(page.options.command), "</code>.</p>");
  }
  html += "</footer>\n<script type=\"application/json\" id=\"charts\">[";
  for (std::size_t i = 0; i < page.charts.size(); ++i) {
    html += (i == 0 ? "\n" : ",\n") + page.charts[i];
  }
  html += "]</script>\n<script>";
  html += kChartJs;
  html += "</script>\n<script>\n";
  html += kPageScript;
  return html + "</script></body></html>\n";
}

std::string render(const std::vector<RunView>& runs, const ReportOptions& options) {
  constexpr int kAttempts = 10;
  constexpr std::size_t kMargin = 20'000;  // headings around the downloads
  PageLimits limits;
  for (int attempt = 0;; ++attempt, limits = limits.halved()) {
    Page page{.runs = runs, .options = options, .limits = limits};
    page.html = opening(runs, options);
    section_verdict(page);
    section_loss(page);
    section_time(page);
    section_traffic(page);
    section_prediction(page);
    section_config(page);
    const std::string end = closing(page);
    const std::size_t size = page.html.size() + end.size() + kMargin;
    if (size > kReportMaxBytes && attempt < kAttempts) {
      continue;
    }
    section_downloads(page, size < kReportMaxBytes ? kReportMaxBytes - size : 0);
    return page.html + end;
  }
}

/// Creates the folder where needed; a reader never sees half a page.
void write_file(const fs::path& file, const std::string& text) {
  SystemStorage storage;
  if (file.has_parent_path()) {
    storage.create_directories(file.parent_path());
  }
  write_atomically(storage, file, text);
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
  report::write_file(out, html);
  ReportResult result{.bytes = html.size(), .files = {out}, .warnings = {}};
  report::collect_warnings(views, result);
  return result;
}

ReportResult write_report_csv(const std::vector<std::filesystem::path>& runs,
                              const std::filesystem::path& directory) {
  const std::vector<report::RunView> views = report::load_all(runs);
  ReportResult result;
  const auto write = [&](const char* name, const std::string& text) {
    report::write_file(directory / name, text);
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
