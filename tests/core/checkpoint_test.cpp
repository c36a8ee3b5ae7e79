// SPDX-License-Identifier: Apache-2.0
#include "core/state/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/temporary_directory.h"
#include "isthmus/errors.h"
#include "storage_faults.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Contents that are a function of the step, so that a checkpoint mixed from two steps shows.
class Contents {
 public:
  Contents(std::int64_t step, int workers) : values_(6, static_cast<float>(step)) {
    shared_.integer("step", step);
    shared_.tensor("momentum", values_);
    states_.resize(static_cast<std::size_t>(workers));
    for (std::size_t k = 0; k < states_.size(); ++k) {
      states_[k].real("loss", static_cast<double>(step) + 0.25 * static_cast<double>(k));
      states_[k].tensor("adam/m", values_);
    }
    contents_.info = {step, workers, "run-1", "abc"};
    contents_.model = {{"w", {2, 3}, values_}};
    contents_.shared = &shared_;
    for (const StateSnapshot& state : states_) contents_.workers.push_back(&state);
    contents_.files = {{"config.json", "{}"}};
  }
  Contents(const Contents&) = delete;
  Contents& operator=(const Contents&) = delete;
  [[nodiscard]] const CheckpointContents& get() const { return contents_; }

 private:
  std::vector<float> values_;
  StateSnapshot shared_;
  std::vector<StateSnapshot> states_;
  CheckpointContents contents_;
};

void save(Storage& storage, const std::filesystem::path& folder, std::int64_t step, int keep = 3) {
  CheckpointStore(storage, folder, keep).save(Contents(step, 2).get());
}

// Fails unless every part of the checkpoint is of its own step.
void expect_consistent(const Checkpoint& checkpoint) {
  const auto step = checkpoint.info().step;
  std::vector<float> values(6);
  const std::vector<std::int64_t> shape = {2, 3};
  checkpoint.read_model("w", shape, values);
  EXPECT_EQ(values, std::vector<float>(6, static_cast<float>(step)));
  EXPECT_EQ(checkpoint.shared()->integer("step"), step);
  EXPECT_EQ(checkpoint.worker(1)->real("loss"), static_cast<double>(step) + 0.25);
}

std::vector<std::string> names(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::string> result;
  for (const auto& path : paths) result.push_back(path.filename().string());
  return result;
}

class Checkpoints : public testing::Test {
 protected:
  TemporaryDirectory directory_;
  SystemStorage system_;
  FaultyStorage disk_{system_, {}};  // no faults, and no waiting for syncs
  std::filesystem::path folder_ = directory_ / "ckpt";
};

TEST_F(Checkpoints, HoldWhatWasSaved) {
  save(disk_, folder_, 1200);
  const Checkpoint checkpoint = Checkpoint::open(disk_, folder_ / "last");
  EXPECT_EQ(checkpoint.folder().filename(), "step-0001200");
  EXPECT_EQ(checkpoint.info().workers, 2);
  EXPECT_EQ(checkpoint.info().run_id, "run-1");
  EXPECT_EQ(checkpoint.info().config_hash, "abc");
  expect_consistent(checkpoint);
  EXPECT_THAT(disk_.list(folder_ / "step-0001200"),
              ElementsAre("config.json", "model.safetensors", "shared.safetensors", "state.json",
                          "worker-0.safetensors", "worker-1.safetensors"));
}

TEST_F(Checkpoints, HoldWhatARunKeepsToItsEnd) {
  save(disk_, folder_, 5);
  EXPECT_TRUE(read_checkpoint_info(disk_, folder_ / "last").settings.empty());
  const Contents contents(6, 2);
  CheckpointContents with = contents.get();
  with.info.settings = {{"outer.final_sync", "drain"}};
  CheckpointStore(disk_, folder_, 3).save(with);
  EXPECT_EQ(Checkpoint::open(disk_, folder_ / "last").info().settings, with.info.settings);
  EXPECT_EQ(read_checkpoint_info(disk_, folder_ / "last").settings, with.info.settings);
  EXPECT_EQ(read_checkpoint_info(disk_, folder_ / "last").config_hash, "abc");
}

TEST_F(Checkpoints, AreFoundFromTheRunTheFolderAndThemselves) {
  save(disk_, folder_, 5);
  const auto wanted = folder_ / "step-0000005";
  EXPECT_EQ(find_checkpoint(disk_, directory_.path()), wanted);
  EXPECT_EQ(find_checkpoint(disk_, folder_), wanted);
  EXPECT_EQ(find_checkpoint(disk_, folder_ / "last"), wanted);
  EXPECT_EQ(find_checkpoint(disk_, wanted), wanted);
  EXPECT_THAT(message_of<SystemError>([&] { (void)find_checkpoint(disk_, "/nowhere"); }),
              HasSubstr("/nowhere: holds no checkpoint"));
}

TEST_F(Checkpoints, KeepTheNewestAndAlwaysTheLast) {
  for (const std::int64_t step : {10, 20, 30, 40}) save(disk_, folder_, step, 2);
  EXPECT_THAT(disk_.list(folder_), ElementsAre("last", "step-0000030", "step-0000040"));
  // A run resumed from an old step: what it has just written is last and stays.
  save(disk_, folder_, 25, 1);
  EXPECT_EQ(disk_.read_link(folder_ / "last"), "step-0000025");
  EXPECT_THAT(names(list_checkpoints(disk_, folder_)), ElementsAre("step-0000025", "step-0000040"));
}

TEST_F(Checkpoints, KeepTheTwoNewestOfAllSites) {
  CheckpointStore store(disk_, folder_, 2);
  const auto save_one = [&](std::int64_t step, bool of_all_sites) {
    const Contents contents(step, 2);
    CheckpointContents with = contents.get();
    with.of_all_sites = of_all_sites;
    store.save(with);
  };
  const auto kept = [&] {
    std::vector<std::string> steps = names(list_checkpoints(disk_, folder_));
    std::ranges::sort(steps);
    return steps;
  };
  for (const std::int64_t step : {1, 2, 3}) save_one(step, true);
  for (const std::int64_t step : {4, 5, 6}) save_one(step, false);
  EXPECT_THAT(kept(), ElementsAre("step-0000002", "step-0000003", "step-0000005", "step-0000006"));
  CheckpointStore(disk_, folder_, 2).recover();  // another process
  save_one(7, false);
  EXPECT_THAT(kept(), ElementsAre("step-0000002", "step-0000003", "step-0000006", "step-0000007"));
  save_one(8, true);
  EXPECT_THAT(kept(), ElementsAre("step-0000003", "step-0000007", "step-0000008"));
  store.remove_after(7);  // step 8 is gone: what comes in its place is not of all
  for (const std::int64_t step : {8, 9, 10}) save_one(step, false);
  EXPECT_THAT(kept(), ElementsAre("step-0000003", "step-0000009", "step-0000010"));
}

TEST_F(Checkpoints, OfTheSameStepAreReplaced) {
  save(disk_, folder_, 7);
  CheckpointStore(disk_, folder_, 3).save(Contents(7, 3).get());
  EXPECT_EQ(Checkpoint::open(disk_, folder_ / "last").info().workers, 3);
  EXPECT_THAT(disk_.list(folder_), ElementsAre("last", "step-0000007"));
}

// The heart of it: a death before every single operation of a save (unsynced bytes are lost too),
// with an older checkpoint there, over one of the same step, and as the very first.
struct DeathCase {
  const char* name;
  std::vector<std::int64_t> before;
  std::int64_t step;
};
class Death : public testing::TestWithParam<DeathCase> {};

TEST_P(Death, AtAnyOperationLeavesAnOldOrNewCheckpointAndNoDebris) {
  const DeathCase& scene = GetParam();
  bool finished = false;
  std::int64_t at = 0;
  for (; !finished; ++at) {
    const TemporaryDirectory directory;
    const auto folder = directory / "ckpt";
    SystemStorage system;
    FaultyStorage disk(system, {});
    for (const std::int64_t step : scene.before) save(disk, folder, step, 2);
    FaultyStorage storage(disk, {.crash_at_operation = at});
    std::string died;
    try {
      save(storage, folder, scene.step, 2);
      finished = true;
    } catch (const SimulatedCrash& crash) {
      died = crash.what;
    }
    SCOPED_TRACE("death at operation " + std::to_string(at) + ": " + died);
    std::vector<std::string> refused;
    std::optional<std::int64_t> found;
    // Readable as it stands, before any repair...
    if (!scene.before.empty() || finished) {
      const Checkpoint checkpoint = open_newest_checkpoint(disk, folder, refused);
      expect_consistent(checkpoint);
      found = checkpoint.info().step;
      ASSERT_TRUE(*found == scene.step || *found == scene.before.back()) << *found;
    }
    // ...and after the next start's, which leaves only whole checkpoints.
    CheckpointStore(disk, folder, 2).recover();
    for (const auto& path : list_checkpoints(disk, folder)) {
      expect_consistent(Checkpoint::open(disk, path));
    }
    if (found) {
      EXPECT_EQ(open_newest_checkpoint(disk, folder, refused).info().step, *found);
    }
    if (disk.kind(folder) == FileKind::kDirectory) {
      for (const std::string& name : disk.list(folder)) EXPECT_NE(name.front(), '.') << name;
    }
    save(disk, folder, scene.step + 1, 2);
    EXPECT_EQ(Checkpoint::open(disk, folder / "last").info().step, scene.step + 1);
  }
  EXPECT_GT(at, 20) << "the sweep covered a whole save";
}

INSTANTIATE_TEST_SUITE_P(Sweep, Death,
                         testing::Values(DeathCase{"First", {}, 10},
                                         DeathCase{"Newer", {10, 20}, 30},
                                         DeathCase{"SameStep", {10, 20}, 20},
                                         DeathCase{"SameStepAlone", {20}, 20}),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_F(Checkpoints, SurviveAFullDiskAtEveryByte) {
  save(disk_, folder_, 10);
  bool finished = false;
  for (std::int64_t room = 0; !finished; room += 61) {
    FaultyStorage storage(disk_, {.disk_full_after_bytes = room});
    const std::string error = message_of<SystemError>([&] { save(storage, folder_, 20); });
    finished = error.empty();
    if (!finished) {
      EXPECT_THAT(error, HasSubstr("No space left"));
      EXPECT_THAT(disk_.list(folder_), ElementsAre("last", "step-0000010"));
    }
  }
  expect_consistent(Checkpoint::open(disk_, folder_ / "last"));
}

TEST_F(Checkpoints, NameTheFileThatIsMissingTruncatedOrCorrupt) {
  save(disk_, folder_, 10);
  const auto checkpoint = folder_ / "step-0000010";
  for (const std::string& name : disk_.list(checkpoint)) {
    const std::string whole = read_text(disk_, checkpoint / name);
    const auto error_with = [&](const std::string& bytes) {
      write_atomically(disk_, checkpoint / name, bytes);
      return message_of<SystemError>([&] { (void)Checkpoint::open(disk_, checkpoint); });
    };
    std::string flipped = whole;
    flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 1);
    EXPECT_THAT(error_with(flipped), HasSubstr(name));
    EXPECT_THAT(error_with(whole.substr(0, whole.size() / 2)), HasSubstr(name));
    EXPECT_THAT(error_with(""), HasSubstr(name));
    EXPECT_EQ(error_with(whole), "");
    disk_.remove(checkpoint / name);
    EXPECT_THAT(message_of<SystemError>([&] { (void)Checkpoint::open(disk_, checkpoint); }),
                HasSubstr(name));
    write_atomically(disk_, checkpoint / name, whole);
  }
}

TEST_F(Checkpoints, SayTruncatedOrCorrupt) {
  save(disk_, folder_, 10);
  const auto file = folder_ / "step-0000010/worker-1.safetensors";
  std::string bytes = read_text(disk_, file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_atomically(disk_, file, bytes);
  const auto error = [&] {
    return message_of<SystemError>([&] { (void)Checkpoint::open(disk_, folder_ / "last"); });
  };
  EXPECT_THAT(error(), HasSubstr("corrupt"));
  write_atomically(disk_, file, bytes.substr(1));
  EXPECT_THAT(error(), HasSubstr("truncated"));
}

TEST_F(Checkpoints, FallBackToThePreviousGoodOneAndSaySo) {
  save(disk_, folder_, 10);
  save(disk_, folder_, 20);
  write_atomically(disk_, folder_ / "step-0000020/model.safetensors", "short");
  std::vector<std::string> refused;
  const Checkpoint checkpoint = open_newest_checkpoint(disk_, folder_, refused);
  EXPECT_EQ(checkpoint.info().step, 10);
  EXPECT_THAT(refused, ElementsAre(AllOf(HasSubstr("step-0000020/model.safetensors"),
                                         HasSubstr("truncated"))));
  write_atomically(disk_, folder_ / "step-0000010/state.json", "{}");
  EXPECT_THAT(message_of<SystemError>([&] {
                std::vector<std::string> lines;
                (void)open_newest_checkpoint(disk_, folder_, lines);
              }),
              AllOf(HasSubstr("no usable checkpoint"), HasSubstr("step-0000010")));
}

TEST_F(Checkpoints, RefuseAnotherShapeOfTheModel) {
  save(disk_, folder_, 10);
  const Checkpoint checkpoint = Checkpoint::open(disk_, folder_ / "last");
  std::vector<float> values(6);
  const std::vector<std::int64_t> turned = {3, 2};
  EXPECT_THAT(message_of<RunError>([&] { checkpoint.read_model("w", turned, values); }),
              AllOf(HasSubstr("\"w\""), HasSubstr("[2, 3]"), HasSubstr("[3, 2]")));
  EXPECT_THAT(message_of<RunError>([&] { checkpoint.read_model("v", turned, values); }),
              HasSubstr("no tensor \"v\""));
}

TEST_F(Checkpoints, LeaveForeignFilesInTheFolderAlone) {
  disk_.create_directories(folder_);
  write_atomically(disk_, folder_ / ".notes.tmp", "mine");
  write_atomically(disk_, folder_ / "step-12", "mine");
  CheckpointStore(disk_, folder_, 1).recover();
  save(disk_, folder_, 10, 1);
  save(disk_, folder_, 20, 1);
  EXPECT_THAT(disk_.list(folder_), ElementsAre(".notes.tmp", "last", "step-0000020", "step-12"));
}

}  // namespace
}  // namespace isthmus::this_file
