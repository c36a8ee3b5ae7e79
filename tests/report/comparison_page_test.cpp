// SPDX-License-Identifier: Apache-2.0
// The page of a comparison: what it says first, that it never calls little a result, and the
// promises that every page keeps.
#include "report/page/comparison_page.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "isthmus/errors.h"
#include "report/page/comparison_report.h"
#include "report/page/line_chart.h"
#include "report/run_fixture.h"

namespace isthmus::report::this_file {
namespace {

testing::AssertionResult says(const std::string& page, const std::string& text) {
  return page.find(text) != std::string::npos
             ? testing::AssertionSuccess() << "says: " << text
             : testing::AssertionFailure() << "does not say: " << text;
}

CellResult cell(const std::string& variant, std::int64_t seed, CellStage stage, double loss,
                const std::string& rate) {
  CellResult result{.key = fmt::format("{}-{}-{}", variant, seed, rate),
                    .stage = stage,
                    .variant = variant,
                    .method = "diloco",
                    .seed = seed,
                    .tuned = {{"inner.lr", rate}},
                    .steps = 20,
                    .tokens = 2000,
                    .parameters = 100,
                    .simulated = true,
                    .utilisation = 0.5,
                    .directory = fmt::format("{}/seed-{}", variant, seed),
                    .version = "0.1.0 test"};
  result.evals = {{10, loss + 1, 100, 1e6, 1.1e6}, {20, loss, 200, 2e6, 2.2e6}};
  return result;
}

class ComparisonPage : public testing::Test {
 protected:
  /// Two variants, the second called `name`; its first seed's folder holds a run.
  void write(const std::string& name, int seeds, bool quick = false) {
    std::string cells;
    for (const std::string& variant : {std::string{"base"}, name}) {
      for (int seed = 1; seed <= seeds; ++seed) {
        const double loss = (variant == "base" ? 2.0 : 2.1) + 0.001 * (seed % 3);
        cells += cell_line(cell(variant, seed, CellStage::kSeed, loss, "0.004")) + "\n";
      }
      cells += cell_line(cell(variant, 0, CellStage::kTune, 2.05, "0.004")) + "\n";
      cells += cell_line(cell(variant, 0, CellStage::kTune, 2.25, "0.008")) + "\n";
    }
    write_file(path() / "cells.jsonl", cells);
    std::string list;
    for (int seed = 1; seed <= seeds; ++seed)
      list += fmt::format("{}{}", seed > 1 ? "," : "", seed);
    const auto variant = [](const std::string& each, const char* edges) {
      return fmt::format(
          R"({{"name":"{}","method":"diloco","tuned":{{"inner.lr":"0.004"}},"trials":2,"edges":[{}]}})",
          each, edges);
    };
    write_file(
        path() / "summary.json",
        fmt::format(
            R"({{"kind":"comparison","name":"thin","quick":{},"baseline":"base","seeds":[{}],"confidence":0.95,"margin_share":0.01,"floor":0,"target":{{"value":2.2,"relative_to":"base","factor":1.1,"budget_steps":0,"budget_s":0}},"variants":[{},{}],"notes":["a note of the plan"]}})",
            quick, list, variant("base", ""),
            variant(name, R"({"key":"inner.lr","value":"0.004","side":"smallest"})")));
    write_file(path() / "manifest.json",
               R"({"argv":["isthmus","compare","thin.toml","--out","a b"],"status":"ok"})");
    write_run(path() / "base" / "seed-1", {});
  }
  std::string page(const ReportOptions& options = {}) {
    write_comparison_report(read_comparison(path()), path() / "report.html", options);
    return read_file(path() / "report.html");
  }
  [[nodiscard]] std::filesystem::path path() const { return folder_.path() / "comparison"; }

 private:
  TemporaryFolder folder_;
};

TEST_F(ComparisonPage, BeginsWithTheVerdictAndItsNumbers) {
  write("other", 8);
  const std::string html = page();
  EXPECT_TRUE(says(html, "<b>other</b> against <b>base</b>: final loss higher"));
  EXPECT_TRUE(says(html, "+0.1000"));
  EXPECT_TRUE(says(html, "a note of the plan"));
  EXPECT_FALSE(says(html, "Not a result"));
  EXPECT_LT(html.find("class=\"verdict\""), html.find("id=\"loss\""));
}

TEST_F(ComparisonPage, HasEverySectionAndTheCommandThatRepeatsIt) {
  write("other", 8);
  const std::string html = page();
  for (const char* id : {"verdict", "loss", "utilisation", "timeline", "rounds", "seeds", "tuning",
                         "configuration", "provenance", "downloads"}) {
    EXPECT_TRUE(says(html, fmt::format("<section id=\"{}\"", id)));
  }
  EXPECT_TRUE(says(html, "isthmus compare thin.toml --out &#39;a b&#39;"));
  EXPECT_TRUE(says(html, "download=\"cells.csv\""));
  EXPECT_TRUE(says(html, "is the smallest value tried"));
}

TEST_F(ComparisonPage, CallsFewSeedsAndQuickRunsNoResult) {
  write("other", 5);
  EXPECT_TRUE(says(page(), "<b>Not a result:</b> 5 seeds"));
  write("other", 8, true);
  EXPECT_TRUE(says(page(), "<b>Not a result:</b> three seeds at a quarter"));
}

TEST_F(ComparisonPage, ShowsRetimedClocksAndWhyOneIsMissing) {
  write("other", 8);
  ReportOptions options;
  options.other_links = {.links = {"1Gbit/s,30ms"},
                         .seconds = {{12.5}, {std::numeric_limits<double>::quiet_NaN()}},
                         .variants = {{.clock_s = {{10, 20}},
                                       .end_s = {20},
                                       .utilisation = {0.7},
                                       .by_rate = {{1e6, 0.1, {7, 70}, 70, 68},
                                                   {1e9, 0.95, {1, 2}, 2, INFINITY},
                                                   {1e10, std::nan("")}}},
                                      {.obstacle = "its warm-up <ended> by itself"}},
                         .bits_per_s = 1e8,
                         .rtt_s = 0.08};
  const std::string html = page(options);
  std::set<std::string> ids;
  for (std::size_t at = html.find(" id=\""); at < html.find("<script");
       at = html.find(" id=\"", at + 1)) {
    const std::string id = html.substr(at + 5, html.find('"', at + 5) - at - 5);
    EXPECT_TRUE(ids.insert(id).second) << id << " twice: the script would find the wrong one";
  }
  EXPECT_TRUE(says(html, "12.5 s<small>20.0 s</small>"));
  EXPECT_TRUE(says(html, "<td>needs simulating</td>"));
  EXPECT_TRUE(says(html, "its warm-up &lt;ended&gt; by itself"));
  EXPECT_TRUE(says(html, "<section id=\"bandwidth\""));
  EXPECT_TRUE(says(html, "these runs: 100 Mbit/s"));
  // The slider's places: reached, missed, and one at which a run would fail.
  EXPECT_TRUE(says(html, R"("rates":[1000000,1000000000,10000000000])"));
  EXPECT_TRUE(says(html, R"("at":[{"clock":[7,70],"end":70,"utilisation":0.1,"target":68},)"
                         R"({"clock":[1,2],"end":2,"utilisation":0.95,"target":null},null]})"));
}

TEST_F(ComparisonPage, IsOneSmallFileWithoutNetwork) {
  write("other", 8);
  const std::string html = page();
  EXPECT_LT(html.size(), kReportMaxBytes);
  const std::string own = html.substr(0, html.find("<script"));
  for (const char* outside : {"http://", "https://", "src=", "@import", "url("}) {
    EXPECT_FALSE(says(own, outside)) << outside;
  }
}

/// Cells of `write` with so many more evaluations each, and with the run of one seed of "other"
/// failed.
std::string longer_cells(std::int64_t evaluations, std::int64_t failed_seed) {
  std::string cells;
  for (const std::string variant : {"base", "other"}) {
    for (std::int64_t seed = 1; seed <= 8; ++seed) {
      CellResult each = cell(variant, seed, CellStage::kSeed, 2.0, "0.004");
      each.evals.clear();
      for (std::int64_t t = 1; t <= evaluations; ++t) {
        const double loss = 4 - 2 * std::sin(static_cast<double>(t * seed) / 1e4);
        each.evals.push_back({t, loss, 1.0 / 3 + static_cast<double>(t), 1e6, 1.1e6});
      }
      if (variant == "other" && seed == failed_seed) {
        each.status = CellStatus::kFailed;
        each.utilisation = 0;
      }
      cells += cell_line(each) + "\n";
    }
  }
  return cells;
}

TEST_F(ComparisonPage, StaysSmallWithManyEvaluationsOnOtherLinks) {
  constexpr std::int64_t kEvaluations = 10'000;
  write("other", 8);
  write_file(path() / "cells.jsonl", longer_cells(kEvaluations, 0));
  std::vector<double> clock;
  for (std::int64_t t = 1; t <= kEvaluations; ++t) clock.push_back(static_cast<double>(t) / 7);
  RetimedVariant retimed{.clock_s = {clock, clock},
                         .end_s = {1, 1},
                         .utilisation = {0.7, 0.7},
                         .by_rate = {{1e6, 0.1, clock, 1}, {1e9, 0.9, clock, 1}}};
  const ReportOptions options{.other_links = {.links = {"1Gbit/s,30ms", "10Gbit/s,1ms"},
                                              .seconds = {{1, 1}, {1, 1}},
                                              .variants = {retimed, retimed}}};
  const std::string html = page(options);
  EXPECT_LT(html.size(), kReportMaxBytes);
  EXPECT_TRUE(says(html, "too many evaluations for the slider"));
}

TEST_F(ComparisonPage, TakesTheRunsOfTheSummaryNotLaterOnesOfAnotherFile) {
  write("other", 8);
  std::string runs;
  std::string later;
  for (int seed = 1; seed <= 8; ++seed) {
    runs += fmt::format(R"({}{{"seed":{},"key":"other-{}-0.004","directory":null}})",
                        seed > 1 ? "," : "", seed, seed);
    CellResult changed = cell("other", seed, CellStage::kSeed, 1.5, "0.004");
    changed.key += "-changed";
    later += cell_line(changed) + "\n";
  }
  write_file(path() / "cells.jsonl", read_file(path() / "cells.jsonl") + later);
  std::string summary = read_file(path() / "summary.json");
  const std::string name = R"("name":"other",)";
  summary.insert(summary.find(name), fmt::format(R"("runs":[{}],)", runs));
  write_file(path() / "summary.json", summary);
  const ComparedVariant other = read_comparison(path()).comparison.variants[1];
  EXPECT_EQ(other.runs.front().key, "other-1-0.004");
  EXPECT_EQ(other.runs.front().directory, "");
}

// Two variants in the same colour and dash would be read for each other.
TEST_F(ComparisonPage, FourteenVariantsLookDifferent) {
  write("other", 8);
  const std::string html = page();
  std::set<std::string> rules;
  for (int colour = 0; colour < 14; ++colour) {
    EXPECT_TRUE(says(line_key(colour), fmt::format("class=\"key c{}\"", colour)));
    EXPECT_TRUE(says(html, fmt::format(".c{} {{ stroke: var(--c{});", colour, colour % 7)));
    // Everything that the style sheet says of this line.
    std::string style;
    const std::string start = fmt::format(".c{} {{", colour);
    for (std::size_t at = html.find(start); at != std::string::npos;
         at = html.find(start, at + 1)) {
      style += html.substr(at + start.size(), html.find('}', at) - at - start.size());
    }
    EXPECT_TRUE(rules.insert(style).second) << "colour " << colour << ":" << style;
  }
}

// A variant renamed since, or one that computes what another does: the runs are known by their
// keys.
TEST_F(ComparisonPage, FindsRunsThatStandUnderAnotherName) {
  write("other", 8);
  std::string summary = read_file(path() / "summary.json");
  std::string runs;
  for (int seed = 1; seed <= 8; ++seed) {
    runs += fmt::format(R"({}{{"seed":{},"key":"other-{}-0.004","directory":"other/seed-{}"}})",
                        seed > 1 ? "," : "", seed, seed, seed);
  }
  const std::string name = R"("name":"other",)";
  summary.replace(summary.find(name), name.size(),
                  fmt::format(R"("name":"renamed","runs":[{}],)", runs));
  write_file(path() / "summary.json", summary);
  const ComparisonFolder folder = read_comparison(path());
  const ComparedVariant& renamed = folder.comparison.variants[1];
  EXPECT_EQ(renamed.name, "renamed");
  EXPECT_EQ(renamed.runs.front().key, "other-1-0.004");
  EXPECT_EQ(renamed.runs.front().variant, "renamed");
}

TEST_F(ComparisonPage, RefusesASummaryWithoutSeeds) {
  write("other", 8);
  std::string summary = read_file(path() / "summary.json");
  const std::string seeds = R"("seeds":[1,2,3,4,5,6,7,8])";
  summary.replace(summary.find(seeds), seeds.size(), R"("seeds":[])");
  write_file(path() / "summary.json", summary);
  EXPECT_THROW((void)read_comparison(path()), SystemError);
}

TEST_F(ComparisonPage, LeavesFailedRunsOutOfTheUtilisation) {
  write("other", 8);
  write_file(path() / "cells.jsonl", longer_cells(2, 3));
  EXPECT_TRUE(says(page(), R"(failed 1/8)"));
  const ComparisonFolder folder = read_comparison(path());
  EXPECT_DOUBLE_EQ(mean_utilisation(folder.comparison.variants[1]), 0.5);
}

TEST_F(ComparisonPage, ReadsTheBoundOfTheTarget) {
  write("other", 8);
  std::string summary = read_file(path() / "summary.json");
  const std::string none = "\"budget_steps\":0";
  summary.replace(summary.find(none), none.size(), "\"budget_steps\":15");
  write_file(path() / "summary.json", summary);
  EXPECT_EQ(read_comparison(path()).comparison.rules.budget_steps, 15);
}

TEST_F(ComparisonPage, EscapesWhatItReads) {
  write("<img src=x onerror=alert(1)>", 8);
  EXPECT_FALSE(says(page(), "<img src=x"));
}

TEST_F(ComparisonPage, RefusesAComparisonThatHasNotEnded) {
  write("other", 8);
  std::filesystem::remove(path() / "summary.json");
  try {
    (void)read_comparison(path());
    FAIL() << "taken for a comparison";
  } catch (const SystemError& error) {
    EXPECT_TRUE(says(error.what(), "--resume"));
  }
}

}  // namespace
}  // namespace isthmus::report::this_file
