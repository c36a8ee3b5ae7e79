// SPDX-License-Identifier: Apache-2.0
#include "app/compare/comparison_page.h"

#include <fmt/format.h>

#include "app/common/commands.h"
#include "app/compare/comparison_links.h"
#include "config/schema/experiment.h"
#include "isthmus/errors.h"
#include "record/json_line.h"
#include "report/data/run_data.h"

namespace isthmus::app {
namespace {

/// compare.links of the folder's file; none when it cannot be read any more.
std::vector<std::string> links_of_file(const std::filesystem::path& folder) {
  try {
    return Experiment::load(folder / "config.toml", {}, schema_context()).settings().links;
  } catch (const Error&) {
    return {};
  }
}

/// As program_version() of the program that made the run.
std::string version_of(const report::RunData& run) {
  const auto word = [&](const char* key) {
    const auto found = run.manifest.words.find(key);
    return found == run.manifest.words.end() ? std::string() : found->second;
  };
  return word("version").empty() ? std::string() : word("version") + " " + word("git");
}

/// A run folder's evaluations, as a comparison's cell has them.
report::CellResult cell_of(const report::RunData& run, const Config& config) {
  report::CellResult cell{.seed = static_cast<std::int64_t>(config.run.seed),
                          .simulated = true,
                          .version = version_of(run)};
  for (const report::EvalPoint& eval : run.evals) {
    cell.evals.push_back({.step = eval.step,
                          .loss = eval.loss,
                          .clock_s = eval.simulated_s,
                          .payload_bytes = eval.payload_bytes,
                          .wire_bytes = eval.wire_bytes});
  }
  return cell;
}

}  // namespace

ReportResult write_comparison_page(const std::filesystem::path& folder,
                                   const std::filesystem::path& out,
                                   const std::vector<std::string>& links, ReportOptions options) {
  const report::ComparisonFolder found = report::read_comparison(folder);
  const auto& variants = found.comparison.variants;
  if (variants.front().runs.front().simulated) {
    options.other_links = times_on_links(
        found.comparison, links.empty() ? links_of_file(folder) : links,
        [&](std::size_t v) { return config_of_run(folder / variants[v].runs.front().directory); },
        RetimedFor::kPage);
  }
  return report::write_comparison_report(found, out, options);
}

report::OtherLinks runs_on_links(const std::vector<std::filesystem::path>& runs,
                                 const std::vector<std::string>& links) {
  report::OtherLinks other{.links = links};
  for (const std::filesystem::path& run : runs) {
    report::RetimedVariant variant;
    try {
      const Config config = config_of_run(run);
      if (other.variants.empty()) note_own_link(config, other);
      variant = retimed_variant(config, {cell_of(report::read_run(run), config)}, links,
                                RetimedFor::kPage);
    } catch (const Error& error) {
      variant.obstacle = std::string("its configuration cannot be read: ") + error.what();
    }
    other.variants.push_back(std::move(variant));
  }
  return other;
}

std::vector<std::string> retimed_json(const std::vector<std::filesystem::path>& runs,
                                      const report::OtherLinks& other) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < other.variants.size(); ++i) {
    const report::RetimedVariant& variant = other.variants[i];
    const report::RunData run = report::read_run(runs[i]);
    JsonLine by_link;
    for (std::size_t l = 0; variant.obstacle.empty() && l < other.links.size(); ++l) {
      std::vector<std::string> evals;
      for (std::size_t k = 0; k < variant.clock_s[l].size(); ++k) {
        evals.push_back(fmt::format("[{},{}]", run.evals[k].step, variant.clock_s[l][k]));
      }
      by_link.add_raw(other.links[l], JsonLine()
                                          .add("end_s", variant.end_s[l])
                                          .add("utilisation", variant.utilisation[l])
                                          .add_raw("evals", json_array(evals))
                                          .str());
    }
    lines.push_back(JsonLine()
                        .add("run", runs[i].string())
                        .add("needs_simulating", variant.obstacle)
                        .add_raw("links", by_link.str())
                        .str());
  }
  return lines;
}

}  // namespace isthmus::app
