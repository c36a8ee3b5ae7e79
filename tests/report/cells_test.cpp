// SPDX-License-Identifier: Apache-2.0
// Cells written and read back; what is torn or damaged is no cell.
#include "report/data/cells.h"

#include <gtest/gtest.h>

#include <cmath>

namespace isthmus::report::this_file {
namespace {

CellResult some_cell() {
  return {.key = "00ff",
          .configuration = "a1",
          .stage = CellStage::kTune,
          .variant = "long-window",
          .method = "diloco",
          .seed = 9'007'199'254'740'993,  // not a double
          .tuned = {{"inner.lr", "0.004"}, {"outer.lr", "\"0.7\""}},
          .steps = 40,
          .tokens = 81'920,
          .parameters = 221'568,
          .data_tokens = 3'680'926,
          .data_entropy = 1.232,
          .simulated = true,
          .utilisation = 0.1 + 0.2,
          .wall_s = 1.5,
          .evals = {{20, 3.25, 20.5, 1e6, 1.1e6}, {40, 2.0 / 3, 41, 2e6, 2.2e6}},
          .directory = "long-window/tune-01",
          .version = "0.1.0 abc",
          .finished = "2026-11-21T10:00:00Z"};
}

TEST(Cells, AreReadBackAsTheyWere) {
  const CellResult cell = some_cell();
  const auto again = read_cell(cell_line(cell));
  ASSERT_TRUE(again);
  EXPECT_EQ(cell_line(*again), cell_line(cell));
  EXPECT_EQ(again->seed, cell.seed);
  EXPECT_EQ(again->evals[1].loss, 2.0 / 3);
  EXPECT_EQ(again->utilisation, 0.1 + 0.2);
  EXPECT_EQ(again->final_loss(), 2.0 / 3);
  EXPECT_EQ(again->configuration, cell.configuration);
  EXPECT_EQ(again->data_tokens, cell.data_tokens);
  EXPECT_EQ(again->data_entropy, cell.data_entropy);
  EXPECT_EQ(again->tuned, cell.tuned);
}

TEST(Cells, AFailedRunHasACauseAndNoLoss) {
  CellResult cell = some_cell();
  cell.status = CellStatus::kFailed;
  cell.cause = "step 3: the loss is \"nan\"";
  cell.evals.clear();
  const auto again = read_cell(cell_line(cell));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->cause, cell.cause);
  EXPECT_TRUE(std::isinf(again->final_loss()));
}

TEST(Cells, ARunThatEndsWithoutALossHasFailed) {
  CellResult good = some_cell();
  fail_without_loss(good);
  EXPECT_EQ(cell_line(good), cell_line(some_cell()));
  const double none = NAN;
  for (const double loss : {none, -none, static_cast<double>(INFINITY)}) {
    CellResult diverged = some_cell();
    diverged.evals.back().loss = loss;
    fail_without_loss(diverged);
    EXPECT_EQ(diverged.status, CellStatus::kFailed);
    EXPECT_NE(diverged.cause.find("step 40: the loss"), std::string::npos) << diverged.cause;
    EXPECT_EQ(diverged.cause.find("-nan"), std::string::npos) << diverged.cause;
    EXPECT_TRUE(read_cell(cell_line(diverged)));  // its line is not taken for damage
  }
  CellResult blind = some_cell();
  blind.evals.clear();
  fail_without_loss(blind);
  EXPECT_EQ(blind.status, CellStatus::kFailed);
  EXPECT_TRUE(read_cell(cell_line(blind)));
}

TEST(Cells, ARunOnRealThreadsHasNoClock) {
  CellResult cell = some_cell();
  cell.simulated = false;
  cell.evals[0].clock_s = cell.evals[1].clock_s = NAN;
  const auto again = read_cell(cell_line(cell));
  ASSERT_TRUE(again);
  EXPECT_TRUE(std::isnan(again->evals[1].clock_s));
  EXPECT_FALSE(again->simulated);
}

TEST(Cells, ATornLineIsNone) {
  const std::string line = cell_line(some_cell());
  const std::string text = line + "\n" + line + "\n";
  EXPECT_EQ(read_cells(text).cells.size(), 2U);
  EXPECT_EQ(read_cells(text).damaged, 0U);
  for (std::size_t cut = line.size() + 2; cut < text.size(); ++cut) {
    const CellFile file = read_cells(std::string_view(text).substr(0, cut));
    EXPECT_EQ(file.cells.size(), 1U) << cut;
    EXPECT_EQ(file.damaged, 1U) << cut;
  }
}

TEST(Cells, DamagedLinesAreLeftOutAndCounted) {
  const std::string line = cell_line(some_cell());
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = line;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string& damaged :
       {std::string("{}"), std::string("null"), std::string(""), std::string(64, '\0'),
        changed("\"v\":1", "\"v\":2"), changed("\"stage\":\"tune\"", "\"stage\":\"x\""),
        changed("\"key\":\"00ff\"", "\"key\":\"\""), changed("\"status\":\"ok\"", "\"status\":3"),
        changed("[20,3.25,20.5,", "[60,3.25,20.5,"),  // steps go on
        changed("[20,3.25,", "[20,null,"), changed("[20,3.25,20.5,", "[20,3.25,null,"),
        changed("1000000,1100000]", "null,1100000]"), changed("1000000,1100000]", "1000000,null]"),
        changed("[20,3.25,", "[20,"), changed("\"tuned\":{", "\"tuned\":3,\"x\":{")}) {
    EXPECT_FALSE(read_cell(damaged)) << damaged;
    const CellFile file = read_cells(line + "\n" + damaged + "\n" + line + "\n");
    EXPECT_EQ(file.cells.size(), 2U) << damaged;
    EXPECT_EQ(file.damaged, 1U) << damaged;
  }
}

}  // namespace
}  // namespace isthmus::report::this_file
