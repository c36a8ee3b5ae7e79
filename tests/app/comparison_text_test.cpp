// SPDX-License-Identifier: Apache-2.0
// A comparison on the terminal: aligned, never wider than 100 columns, no bare "inf" or "nan".
#include "app/compare/comparison_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "app/common/terminal.h"

namespace isthmus::app::this_file {
namespace {

using testing::HasSubstr;
using testing::Not;

report::CellResult run(const std::string& variant, std::int64_t seed, double loss) {
  return {
      .key = "k",
      .variant = variant,
      .method = "diloco",
      .seed = seed,
      .steps = 2'000'000,
      .tokens = 1000,
      .simulated = true,
      .evals = {{1'000'000, loss + 0.5, 5e6, 5e14, 6e14}, {2'000'000, loss, 1e7, 1e15, 1.2e15}}};
}

report::Comparison comparison(report::ComparisonRules rules, bool timed = true) {
  std::vector<report::ComparedVariant> variants;
  int number = 0;
  for (const char* name : {"ddp", "a-variant-whose-name-is-as-long-as-it-may-be", "lost"}) {
    report::ComparedVariant variant{
        .name = name,
        .tuned = {{"inner.lr", "0.000012345"}, {"outer.lr", "0.7"}, {"outer.momentum", "0.95"}},
        .edges = {{"inner.lr", "0.000012345", true}}};
    for (std::int64_t seed = 1; seed <= 8; ++seed) {
      variant.runs.push_back(
          run(name, seed, 12.5 + 0.01 * number + 0.003 * static_cast<double>(seed * number % 3)));
      variant.runs.back().simulated = timed;
      if (!timed) {
        for (report::CellEval& eval : variant.runs.back().evals) {
          eval.clock_s = NAN;
        }
      }
    }
    ++number;
    variants.push_back(std::move(variant));
  }
  variants.back().runs[3].status = report::CellStatus::kFailed;
  variants.back().runs[3].cause = "step 3: the loss is huge: the run has diverged; lower inner.lr";
  variants.back().runs[3].evals.clear();
  return report::compare_variants(std::move(rules), std::move(variants));
}

std::string text_of(const report::Comparison& compared) {
  const Terminal terminal(1, ColorMode::kNever);
  return render_comparison(compared,
                           {"2,000,000 steps of 16,384 tokens",
                            "simulated, clock and bytes of a declared model of 405B parameters at "
                            "12.5 s a step; 100 Mbit/s, 0.1 % loss, 80 ms round trip"},
                           terminal);
}

void expect_narrow(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(display_width(line), kComparisonColumns) << line;
    EXPECT_TRUE(line.empty() || line.back() != ' ') << "[" << line << "]";
  }
  EXPECT_THAT(text, Not(HasSubstr("inf")));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(ComparisonText, IsNeverWiderThanAHundredColumns) {
  report::Comparison compared =
      comparison({.name = "wide", .target = 12.52, .budget_steps = 1'999'999, .budget_s = 9e6});
  compared.other_links = {{"100Mbit/s,80ms", "10Gbit/s,1ms"},
                          {{1e7, 2}, {INFINITY, 6}, {NAN, NAN}}};
  compared.other_links.variants.resize(compared.variants.size());
  compared.other_links.variants.back().obstacle = "its warm-up ends where the gradients say";
  compared.notes.push_back(std::string(60, 'y') + " " + std::string(70, 'z'));
  const std::string text = text_of(compared);
  expect_narrow(text);
  EXPECT_THAT(text, HasSubstr("failed 1/8"));
  EXPECT_THAT(text, HasSubstr("baseline"));
  EXPECT_THAT(text, HasSubstr("inner.lr=0.000012345,"));
  EXPECT_THAT(text, HasSubstr("100Mbit/s,80ms"));
  EXPECT_THAT(text, HasSubstr("needs simulating again on other links: its warm-up ends"));
}

// Cut names that look alike would put one variant's numbers to another's account.
TEST(ComparisonText, VariantsAreToldApartByWhatIsShownOfTheirNames) {
  const auto text = [](std::vector<std::string> names) {
    report::Comparison compared = comparison({.name = "names", .target = 12.52});
    for (std::size_t v = 0; v < names.size(); ++v) compared.variants[v].name = names[v];
    return text_of(compared);
  };
  const std::string ends =
      text({"ddp", "streaming-diloco-at-four-bits", "streaming-diloco-at-two-bits"});
  EXPECT_THAT(ends, HasSubstr("\n~loco-at-four-bits  "));
  EXPECT_THAT(ends, HasSubstr("\n~iloco-at-two-bits  "));
  expect_narrow(ends);
  const std::string whole = text({"ddp", "streaming-diloco-with-H-50-for-a-long-window",
                                  "streaming-diloco-with-H-20-for-a-long-window"});
  EXPECT_THAT(whole, HasSubstr("\nstreaming-diloco-with-H-20-for-a-long-window  "));
}

TEST(ComparisonText, AFailedBaselineGivesNoMargin) {
  const std::string text =
      text_of(comparison({.name = "failed", .baseline = 2, .target_relative_to = 2}));
  EXPECT_THAT(text, HasSubstr("margin  none: lost failed\n"));
  EXPECT_THAT(text, HasSubstr("(1.01 x the mean of lost's 7 finished runs)"));
}

TEST(ComparisonText, WithoutAClockTimeIsLeftOut) {
  const std::string text = text_of(comparison({.name = "steps", .target = 12.52}, false));
  expect_narrow(text);
  EXPECT_THAT(text, Not(HasSubstr("simulated time")));
}

TEST(ComparisonText, AMissedTargetIsADash) {
  const std::string text = text_of(comparison({.name = "missed", .target = 1.0}));
  expect_narrow(text);
  EXPECT_THAT(text, HasSubstr("0/8"));
  EXPECT_THAT(text, HasSubstr("Missed the target in 8 of 8 runs."));
}

TEST(ComparisonText, AQuickOneSaysSoFirstAndLast) {
  const std::string text = text_of(comparison({.name = "quick", .quick = true}));
  EXPECT_TRUE(text.starts_with("NOT A RESULT"));
  EXPECT_THAT(text, testing::EndsWith("NOT A RESULT: run it without --quick\n"));
}

TEST(Paragraph, IndentsWhatFollowsTheFirstLine) {
  const std::string text = paragraph("one " + std::string(97, 'x') + " two three", 4);
  EXPECT_EQ(text, "one\n    " + std::string(97, 'x') + "\n    two three\n");
}

}  // namespace
}  // namespace isthmus::app::this_file
