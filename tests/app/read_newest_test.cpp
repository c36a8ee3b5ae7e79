// SPDX-License-Identifier: Apache-2.0
// Commands that read a checkpoint of a run that goes on and removes it meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "app/train/hf_model.h"
#include "isthmus/errors.h"

namespace isthmus::app::this_file {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Folders = std::vector<std::filesystem::path>;

/// Checkpoints that come one after another, of which the first `removed` go while they are read.
struct LivingRun {
  int removed = 0;
  int newest = 0;
  int reads = 0;

  std::string read() {
    try {
      read_newest([this] { return Folders{"run/ckpt/step-" + std::to_string(newest)}; },
                  [this] {
                    ++reads;
                    if (newest >= removed) return;
                    ++newest;
                    throw SystemError("worker-0.safetensors: cannot read: No such file");
                  });
    } catch (const SystemError& error) {
      return error.what();
    }
    return "";
  }
};

TEST(ReadNewest, ReadsTheNextCheckpointWhereOneHasGone) {
  LivingRun run{.removed = 3};
  EXPECT_EQ(run.read(), "");
  EXPECT_EQ(run.reads, 4);
}

TEST(ReadNewest, SaysThatTheRunRemovesThemFasterThanTheyAreRead) {
  LivingRun run{.removed = 1000};
  EXPECT_THAT(run.read(), AllOf(HasSubstr("run/ckpt/step-4: its run goes on and removed it"),
                                HasSubstr("raise ckpt.keep"), HasSubstr("worker-0")));
  EXPECT_EQ(run.reads, 5);
}

TEST(ReadNewest, TellsADefectOfTheNewestAtOnce) {
  int reads = 0;
  EXPECT_THROW(read_newest([] { return Folders{"run/ckpt/last"}; },
                           [&] {
                             ++reads;
                             throw SystemError("damaged");
                           }),
               SystemError);
  EXPECT_EQ(reads, 1);
}

}  // namespace
}  // namespace isthmus::app::this_file
