// SPDX-License-Identifier: Apache-2.0
// Configuration (differences first), links, and where the numbers come from.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <span>

#include "core/base/units.h"
#include "report/data/text.h"
#include "report/page/page.h"

namespace isthmus::report {
namespace {

std::string value_in(const RunView& run, const std::string& key) {
  const auto found = run.data.config.find(key);
  return found == run.data.config.end() ? std::string{} : found->second.value;
}

std::string differences(const Page& page) {
  std::set<std::string> keys;
  for (const RunView& run : page.runs) {
    for (const auto& [key, value] : run.data.config) {
      keys.insert(key);
    }
  }
  std::string rows;
  // Bounded over all columns, since there is one a run.
  const std::size_t limit = std::max<std::size_t>(page.limits.rows_per_table / page.runs.size(), 4);
  std::size_t differing = 0;
  for (const std::string& key : keys) {
    const std::string first = value_in(page.runs.front(), key);
    const bool differs = std::any_of(page.runs.begin(), page.runs.end(), [&](const RunView& run) {
      return value_in(run, key) != first;
    });
    if (!differs || ++differing > limit) {
      continue;
    }
    rows += fmt::format("<tr><th scope=\"row\"><code>{}</code></th>", escape_html(key));
    for (const RunView& run : page.runs) {
      const std::string value = value_in(run, key);
      rows +=
          value.empty() ? "<td>–</td>" : concat("<td><code>", escape_html(value), "</code></td>");
    }
    rows += "</tr>";
  }
  if (rows.empty()) {
    return "<p class=\"empty\">The configurations do not differ.</p>\n";
  }
  std::string head = "<th scope=\"col\">Key</th>";
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    head += concat("<th scope=\"col\">", run_tag(page, i), "</th>");
  }
  return fmt::format(
      "<h3>Differences</h3><div class=\"scroll\"><table "
      "class=\"config\"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>{}\n",
      head, rows, first_of_hint(std::min(limit, differing), differing, "keys that differ"));
}

std::string values_of(const RunView& run, std::size_t limit) {
  if (run.data.config.empty()) {
    return {};
  }
  std::string rows;
  std::size_t shown = 0;
  for (const auto& [key, value] : run.data.config) {
    if (shown == limit) {
      break;
    }
    ++shown;
    rows += fmt::format(
        "<tr><th scope=\"row\"><code>{}</code></th><td><code>{}</code></td><td "
        "class=\"origin\">{}</td></tr>",
        escape_html(key), escape_html(value.value), escape_html(value.origin));
  }
  return fmt::format(
      "<details><summary>Every value of {}</summary><div class=\"scroll\"><table "
      "class=\"config\"><thead><tr>"
      "<th scope=\"col\">Key</th><th scope=\"col\">Value</th><th "
      "scope=\"col\">From</th></tr></thead><tbody>{}</tbody></table></div>{}</details>\n",
      escape_html(run.data.label), rows,
      first_of_hint(shown, run.data.config.size(), "values; all are in config.resolved.toml"));
}

std::string links_of(const Page& page, std::size_t index) {
  const RunView& run = page.runs[index];
  if (run.data.links.empty()) {
    return {};
  }
  constexpr std::size_t kMaxLinks = 64;
  const std::size_t shown =
      std::min({run.data.links.size(), kMaxLinks, page.limits.rows_per_table});
  std::string rows;
  for (std::size_t i = 0; i < shown; ++i) {
    const LinkRecord& link = run.data.links[i];
    std::string mean;
    if (!link.trace.empty()) {  // two files may have one name, and one file two
      const std::string name = std::filesystem::path(link.trace).filename().string();
      mean = fmt::format(" (mean of {}{}{})", escape_html(name),
                         link.trace_digest.empty() ? "" : ", ", escape_html(link.trace_digest));
    }
    rows += fmt::format(
        "<tr><th scope=\"row\">{} ↔ "
        "{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        escape_html(link.a), escape_html(link.b), format_rate(link.bits_per_s_up) + mean,
        format_rate(link.bits_per_s_down) + mean, format_seconds(link.rtt_s),
        format_percent(link.loss), format_count(link.streams), escape_html(link.congestion));
  }
  return fmt::format(
      "<details><summary>Links of {}</summary><div class=\"scroll\"><table><thead><tr><th "
      "scope=\"col\">Link</th>"
      "<th scope=\"col\">Up</th><th scope=\"col\">Down</th><th scope=\"col\">RTT</th><th "
      "scope=\"col\">Packets lost</th>"
      "<th scope=\"col\">Streams</th><th "
      "scope=\"col\">Congestion</th></tr></thead><tbody>{}</tbody></table></div>{}</details>\n",
      escape_html(run.data.label), rows, first_of_hint(shown, run.data.links.size(), "links"));
}

/// A word as a POSIX shell takes it.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=,@%+-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
    return word;
  }
  std::string quoted = "'";
  for (const char c : word) {
    quoted += c == '\'' ? std::string{"'\\''"} : std::string{c};
  }
  return quoted + "'";
}

std::string command_of(const RunView& run) {
  const std::vector<std::string>& argv = run.data.manifest.argv;
  const bool names_program =
      !argv.empty() && std::filesystem::path(argv.front()).filename().string() == "isthmus";
  std::string command = argv.empty() || names_program ? "" : "isthmus";
  for (const std::string& word : argv) {
    command += concat(command.empty() ? "" : " ", shell_word(word));
  }
  return command;
}

void fact(std::string& html, const char* name, const std::string& value) {
  if (!value.empty()) {
    html += fmt::format("<dt>{}</dt><dd>{}</dd>", name, escape_html(value));
  }
}

std::string word(const RunView& run, const char* key) {
  const auto found = run.data.manifest.words.find(key);
  return found == run.data.manifest.words.end() ? std::string{} : found->second;
}

std::string joined_with(const char* separator, const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (!part.empty()) {
      text += concat(text.empty() ? "" : separator, part);
    }
  }
  return text;
}

}  // namespace

std::string provenance_of(const RunView& run, const std::string& heading, std::size_t limit) {
  std::string facts;
  fact(facts, "Run", word(run, "run_id"));
  fact(facts, "Folder", run.data.directory.string());
  fact(facts, "Started", word(run, "started"));
  fact(facts, "Ended", word(run, "ended"));
  fact(facts, "Status", run.figures.status);
  fact(facts, "Clock",
       run.clock.simulated ? concat("simulated, ", run.clock.basis) : "this machine's");
  fact(facts, "isthmus", joined_with(", ", {word(run, "version"), word(run, "git")}));
  fact(facts, "Compiler", joined_with(", ", {word(run, "compiler"), word(run, "flags")}));
  const std::string cores = word(run, "cores");
  fact(facts, "Machine",
       joined_with(", ",
                   {word(run, "cpu"), cores.empty() ? cores : cores + " cores", word(run, "os")}));
  std::vector<std::string> model;
  for (const auto& [key, value] : run.data.manifest.model) {
    model.push_back(concat(key, " ", value));
  }
  fact(facts, "Model", joined_with(", ", model));
  fact(facts, "Configuration", word(run, "config_hash"));
  fact(facts, "Resumed from", word(run, "parent"));
  const std::vector<DataFile>& files = run.data.manifest.data;
  const std::size_t shown = std::min(files.size(), limit);
  for (const DataFile& file : std::span(files).first(shown)) {
    fact(facts, "Data",
         joined_with(", ", {file.path, human_bytes(file.bytes),
                            file.sha256.empty() ? "" : concat("sha256 ", file.sha256)}));
  }
  if (shown < files.size()) {
    fact(facts, "Data", fmt::format("and {} more files", files.size() - shown));
  }
  const std::string command = command_of(run);
  return fmt::format("{}{}<dl>{}</dl>\n", heading,
                     command.empty() ? std::string{}
                                     : concat("<pre class=\"command\"><code>", escape_html(command),
                                              "</code></pre>"),
                     facts);
}

void section_config(Page& page) {
  page.html += section_open("configuration", "Configuration");
  if (page.runs.size() > 1) {
    page.html += differences(page);
  }
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    page.html += values_of(page.runs[i], page.limits.rows_per_table) + links_of(page, i);
  }
  page.html += "</section>\n";
}

void section_provenance(Page& page) {
  page.html += section_open("provenance", "Provenance");
  page.html += "<p class=\"lead\">The command that repeats each run, and what it ran on.</p>\n";
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    page.html += provenance_of(page.runs[i], concat("<h3>", run_tag(page, i), "</h3>"),
                               page.limits.rows_per_table);
  }
  page.html += "</section>\n";
}

}  // namespace isthmus::report
