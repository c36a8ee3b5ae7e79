// SPDX-License-Identifier: Apache-2.0
// A full disk that somebody frees in time, or not, in virtual time.
#include "core/base/disk_patience.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <tuple>

#include "core/state/checkpoint.h"
#include "core/state/state_snapshot.h"
#include "core/temporary_directory.h"
#include "isthmus/errors.h"
#include "sim/world.h"
#include "storage_faults.h"

namespace isthmus::this_file {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kSomeCheckpoint = 100'000;

void save_one(Storage& storage, const std::filesystem::path& folder) {
  StateSnapshot shared;
  StateSnapshot worker;
  worker.tensor("local/w", std::vector<float>(100, 2.0f));
  const std::vector<float> values(100, 1.0f);
  CheckpointContents contents;
  contents.info = {.step = 40, .workers = 1, .run_id = "run", .config_hash = "hash"};
  contents.model = {{.name = "w", .shape = {100}, .values = values}};
  contents.shared = &shared;
  contents.workers = {&worker};
  CheckpointStore(storage, folder, 2).save(contents);
}

// Before, the run ended at the first refusal, and the weights with it.
TEST(DiskPatience, ACheckpointIsWrittenOnceThereIsRoom) {
  const TemporaryDirectory folder;
  SystemStorage disk;
  FaultyStorage full(disk, {.disk_full_after_bytes = 500});
  SimWorld world(1);
  world.run([&] {
    world.at(TimePoint(minutes(3)), 1, [&] { full.make_room(kSomeCheckpoint); });
    DiskPatience(world).write("the checkpoint of step 40",
                              [&] { save_one(full, folder / "ckpt"); });
    EXPECT_GE(world.clock().now(), TimePoint(minutes(3)));
    EXPECT_LE(world.clock().now(), TimePoint(minutes(3)) + DiskPatience::kBetween);
  });
  const Checkpoint whole = Checkpoint::open(disk, folder / "ckpt/last");
  EXPECT_EQ(whole.info().step, 40);
  std::array<float, 100> read{};
  whole.read_model("w", std::vector<std::int64_t>{100}, read);
  EXPECT_EQ(read[99], 1.0f);
}

TEST(DiskPatience, GivesUpAfterTenMinutesAndSaysSo) {
  const TemporaryDirectory folder;
  SystemStorage disk;
  FaultyStorage full(disk, {.disk_full_after_bytes = 500});
  SimWorld world(1);
  world.run([&] {
    const std::string text = message_of<DiskFullError>([&] {
      DiskPatience(world).write("the checkpoint of step 40",
                                [&] { save_one(full, folder / "ckpt"); });
    });
    EXPECT_THAT(text, AllOf(HasSubstr("the checkpoint of step 40 could not be written, tried for "
                                      "600 s"),
                            HasSubstr("No space left"), HasSubstr("free space")));
    EXPECT_GE(world.clock().now(), TimePoint(DiskPatience::kInAll));
    EXPECT_LE(world.clock().now(), TimePoint(DiskPatience::kInAll) + DiskPatience::kBetween);
  });
}

// Slurm kills 30 s after its signal; a person waits for nothing.
TEST(DiskPatience, ASignalEndsTheTriesSoon) {
  for (const auto& [wish, least, most] : {std::tuple(DiskWish::kGiveUp, seconds(0), seconds(1)),
                                          std::tuple(DiskWish::kHurry, seconds(15), seconds(25))}) {
    SimWorld world(1);
    world.run([&, wish = wish, least = least, most = most] {
      const TimePoint signal = TimePoint(seconds(42));
      const DiskPatience patience(
          world, [&, wish] { return world.clock().now() < signal ? DiskWish::kTryOn : wish; });
      EXPECT_THROW(patience.write("it", [] { throw DiskFullError("no space", 0); }), DiskFullError);
      EXPECT_GE(world.clock().now(), signal + least);
      EXPECT_LE(world.clock().now(), signal + most);
    });
  }
}

TEST(DiskPatience, WhatComesInPartsIsWrittenOnce) {
  const TemporaryDirectory folder;
  SystemStorage disk;
  FaultyStorage full(disk, {.disk_full_after_bytes = 6});
  SimWorld world(1);
  int tries = 0;
  world.run([&] {
    world.at(TimePoint(minutes(1)), 1, [&] { full.make_room(100); });
    const DiskPatience patience(world);
    append_patiently(*full.create(folder / "line"), as_bytes("12345678"), &patience, "a line",
                     [&] { ++tries; });
  });
  EXPECT_EQ(read_text(disk, folder / "line"), "12345678");
  EXPECT_GT(tries, 2);  // and the folder may have changed hands before each
}

TEST(DiskPatience, OtherFailuresEndAtOnce) {
  SimWorld world(1);
  world.run([&] {
    int tries = 0;
    EXPECT_THROW(DiskPatience(world).write("it",
                                           [&] {
                                             ++tries;
                                             throw SystemError("a dead disk");
                                           }),
                 SystemError);
    EXPECT_EQ(tries, 1);
    EXPECT_EQ(world.clock().now(), TimePoint{});
  });
}

TEST(DiskPatience, ADiskThatIsFullIsToldFromOthersAndSaysWhatWasWritten) {
  const TemporaryDirectory folder;
  SystemStorage disk;
  FaultyStorage full(disk, {.disk_full_after_bytes = 6});
  EXPECT_EQ(full.free_bytes(folder / "not/there/yet"), 6U);
  const auto file = full.create(folder / "line");
  try {
    file->append(as_bytes("12345678"));
    FAIL();
  } catch (const DiskFullError& error) {
    EXPECT_EQ(error.written(), 6U);
  }
  EXPECT_GT(disk.free_bytes(folder / "not/there/yet"), 6U);
}

}  // namespace
}  // namespace isthmus::this_file
