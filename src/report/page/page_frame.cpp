// SPDX-License-Identifier: Apache-2.0
// The common parts of the pages of runs and of comparisons: reading a run, head and foot of the
// page, writing it.
#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "core/base/storage.h"
#include "report/data/text.h"
#include "report/page/assets.h"
#include "report/page/page.h"

namespace isthmus::report {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

/// The folder's own name; for ".", "runs/a/" and the like, the name of where it leads.
std::string folder_name(const fs::path& directory) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(directory, error);
  const fs::path& path = error ? directory : whole;
  return (path.filename().empty() ? path.parent_path() : path).filename().string();
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

std::string page_opening(const PageHead& head) {
  const std::string title = escape_html(head.title);
  std::string sections = "<nav aria-label=\"Sections\">";
  for (const PageEntry& entry : head.sections) {
    sections += fmt::format("<a href=\"#{}\">{}</a>", entry.id, entry.name);
  }
  sections += "</nav>\n";
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light "
      "dark\"><title>{0}</title>\n<style>\n{1}</style></head>\n"
      "<body><header><h1>{0}</h1><p class=\"stamp\">{2}</p>{3}</header><main>\n",
      title, kPageStyle, escape_html(head.stamp), sections);
}

std::string page_closing(const Page& page) {
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
  html += "</footer>\n" + page.data;
  html += "<script type=\"application/json\" id=\"charts\">[";
  for (std::size_t i = 0; i < page.charts.size(); ++i) {
    html += (i == 0 ? "\n" : ",\n") + page.charts[i];
  }
  html += "]</script>\n<script>";
  html += kChartJs;
  html += "</script>\n<script>\n";
  html += kPageScript;
  return html + "</script></body></html>\n";
}

/// Creates the folder where needed; a reader never sees half a page.
void write_page_file(const fs::path& file, const std::string& text) {
  SystemStorage storage;
  if (file.has_parent_path()) {
    storage.create_directories(file.parent_path());
  }
  write_atomically(storage, file, text);
}

}  // namespace isthmus::report
