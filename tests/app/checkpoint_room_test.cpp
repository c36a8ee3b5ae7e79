// SPDX-License-Identifier: Apache-2.0
// What checkpoints take, and disks that cannot hold them.
#include "app/train/checkpoint_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "app/common/commands.h"
#include "app/train/config_to_options.h"
#include "core/temporary_directory.h"
#include "isthmus/errors.h"
#include "storage_faults.h"

namespace isthmus::app::this_file {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kRun = R"(schema = 1
[model]
arch = "llama"
layers = 2
d_model = 64
heads = 2
vocab = 256
[data]
source = "synth:zipf:vocab=256,tokens=9k"
[train]
steps = 10
global_batch = "512 tok"
context = 32
)";

class CheckpointRoomTest : public testing::Test {
 protected:
  /// On a disk with so many bytes free.
  CheckpointRoom room(const std::string& more, std::int64_t free,
                      std::optional<WorkerId> only = std::nullopt) {
    config_ = load_config_text(std::string(kRun) + more, "run.toml", {}, schema_context());
    const ModelLayout layout(model_shape(config_.model, config_.train.context));
    values_ = static_cast<std::uint64_t>(layout.elements());
    const TrainingPlan plan = make_training_plan(config_, std::vector<int>{0, 1}, only);
    const FaultyStorage storage(disk_, {.disk_full_after_bytes = free});
    return checkpoint_room(storage, config_, plan, layout, {.out = folder_ / "run", .only = only});
  }
  /// The same, of the run that is there.
  CheckpointRoom room_to_go_on(const std::string& more, std::int64_t free) {
    (void)room(more, free);
    const ModelLayout layout(model_shape(config_.model, config_.train.context));
    const TrainingPlan plan = make_training_plan(config_, std::vector<int>{0, 1}, std::nullopt);
    const FaultyStorage storage(disk_, {.disk_full_after_bytes = free});
    return checkpoint_room(storage, config_, plan, layout,
                           {.out = folder_ / "run", .goes_on = true});
  }
  std::string refusal(const CheckpointRoom& room) {
    return message_of<SystemError>([&] { check_checkpoint_room(room, config_, folder_ / "run"); });
  }

  TemporaryDirectory folder_;
  SystemStorage disk_;
  Config config_;
  std::uint64_t values_ = 0;
};

TEST_F(CheckpointRoomTest, ACheckpointHoldsTheModelAndEachWorkersState) {
  constexpr std::int64_t kMuch = std::int64_t{1} << 40;
  const auto values_of_one = [&](const std::string& more, std::optional<WorkerId> only = {}) {
    const std::uint64_t each = room(more, kMuch, only).each;
    return static_cast<double>(each) / (4.0 * static_cast<double>(values_));
  };
  // ddp: weights, and of its worker weights and two moments.
  EXPECT_EQ(values_of_one(""), 1 + 3);
  // diloco: anchors and momentum beside these, of two workers.
  EXPECT_EQ(values_of_one("[run]\nworkers = 2\n[outer]\nmethod = \"diloco\"\n"), 1 + 2 * 5);
  EXPECT_EQ(values_of_one("[inner]\noptimizer = \"sgd\"\nmomentum = 0\n"), 1 + 1);
  // A site that is a process of its own has its own state alone.
  const std::string sites =
      "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n[outer]\nmethod = \"diloco\"\n";
  EXPECT_EQ(values_of_one(sites, WorkerId(1)), 1 + 5);
}

TEST_F(CheckpointRoomTest, AsManyAsTheRunWillHaveAtATime) {
  EXPECT_EQ(room("", 1).at_once, 1);  // one, at the end
  EXPECT_EQ(room("[ckpt]\nevery = \"5 steps\"\nkeep = 3\n", 1).at_once, 2);
  EXPECT_EQ(room("[ckpt]\nevery = \"1 steps\"\nkeep = 3\n", 1).at_once, 4);
  EXPECT_EQ(room("[ckpt]\nevery = \"10min\"\nkeep = 3\n", 1).at_once, 4);
}

TEST_F(CheckpointRoomTest, ADiskThatCannotHoldThemIsRefusedWithBothNumbers) {
  const std::string every = "[ckpt]\nevery = \"1 steps\"\nkeep = 3\n";
  const auto each = static_cast<std::int64_t>(room(every, 1).each);
  EXPECT_EQ(refusal(room(every, 4 * each)), "");
  const std::string text = refusal(room(every, 4 * each - 1));
  EXPECT_THAT(text, AllOf(HasSubstr((folder_ / "run").string()), HasSubstr("4 checkpoints of"),
                          HasSubstr("ckpt.keep = 3"), HasSubstr(std::to_string(4 * each)),
                          HasSubstr(std::to_string(4 * each - 1)), HasSubstr("lower ckpt.keep"),
                          HasSubstr("--out on another disk")));
  EXPECT_EQ(refusal(room("", each)), "");
  EXPECT_THAT(refusal(room("", each - 1)),
              AllOf(HasSubstr("the checkpoint takes"), Not(HasSubstr("lower ckpt.keep"))));
}

TEST_F(CheckpointRoomTest, ARunThatHasTakenItsStepsNeedsNoRoom) {
  const std::string every = "[ckpt]\nevery = \"1 steps\"\nkeep = 3\n";
  const std::uint64_t each = room(every, 1).each;
  const auto lay_down = [&](const std::string& step) {
    const auto folder = folder_ / "run/ckpt" / step;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "model.safetensors") << std::string(each, 'x');
  };
  for (const char* step : {"step-0000007", "step-0000008", "step-0000009"}) lay_down(step);
  EXPECT_EQ(room_to_go_on(every, 1).at_once, 4);  // the last one comes before one of these goes
  EXPECT_NE(refusal(room_to_go_on(every, 1)), "");
  std::filesystem::remove_all(folder_ / "run/ckpt/step-0000007");
  lay_down("step-0000010");
  EXPECT_EQ(refusal(room_to_go_on(every, 1)), "");
}

TEST_F(CheckpointRoomTest, TheAdviceFits) {
  const std::string sites =
      "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n[outer]\nmethod = \"diloco\"\n";
  const std::string text =
      refusal(room(sites + "[ckpt]\nevery = \"1 steps\"\nkeep = 1\n", 1, WorkerId(1)));
  EXPECT_THAT(text, AllOf(HasSubstr("3 checkpoints of"), Not(HasSubstr("lower ckpt.keep"))));
  EXPECT_THAT(refusal(room("[ckpt]\nevery = \"5 steps\"\nkeep = 3\n", 1)),
              AllOf(HasSubstr("all that the run writes"), Not(HasSubstr("ckpt.keep = 3"))));
}

TEST_F(CheckpointRoomTest, CheckpointsThatAreThereAlreadyNeedNoRoomAgain) {
  const std::string every = "[ckpt]\nevery = \"1 steps\"\nkeep = 3\n";
  const std::uint64_t each = room(every, 1).each;
  std::filesystem::create_directories(folder_ / "run/ckpt/step-0000001");
  std::ofstream(folder_ / "run/ckpt/step-0000001/model.safetensors") << std::string(each, 'x');
  EXPECT_EQ(refusal(room(every, static_cast<std::int64_t>(3 * each))), "");
  EXPECT_NE(refusal(room(every, static_cast<std::int64_t>(3 * each) - 1)), "");
}

}  // namespace
}  // namespace isthmus::app::this_file
