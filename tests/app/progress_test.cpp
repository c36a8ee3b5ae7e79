// SPDX-License-Identifier: Apache-2.0
#include "app/observe/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "core/base/log.h"
#include "core/temporary_directory.h"

namespace isthmus::app::this_file {
namespace {

class ProgressTest : public testing::TestWithParam<ProgressMode> {
 protected:
  void SetUp() override { descriptor = ::open(file().c_str(), O_CREAT | O_RDWR, 0600); }
  void TearDown() override { ::close(descriptor); }
  [[nodiscard]] std::filesystem::path file() const { return folder / "out"; }
  TemporaryDirectory folder;
  int descriptor = -1;
};

TEST_P(ProgressTest, ShortWorkShowsNothing) {
  Terminal terminal(descriptor, ColorMode::kNever);
  {
    Progress progress(terminal, GetParam());
    for (int i = 0; i < 100; ++i) {
      progress.update({.done = i, .total = 100});
    }
  }
  EXPECT_EQ(std::filesystem::file_size(file()), 0U);
}

TEST_P(ProgressTest, WarningsPassInEveryMode) {
  Terminal terminal(descriptor, ColorMode::kNever);
  {
    Progress progress(terminal, GetParam());
    log_warning("link {} is slow", "east");
  }
  EXPECT_GT(std::filesystem::file_size(file()), 0U);
}

TEST_P(ProgressTest, AskingWhetherItIsDueComesFirst) {
  Terminal terminal(descriptor, ColorMode::kNever);
  Progress progress(terminal, GetParam());
  const bool silent = GetParam() == ProgressMode::kNone;
  EXPECT_EQ(progress.due(), !silent);  // the first update tells where the run begins
  progress.update({.done = 1, .total = 100});
  EXPECT_FALSE(progress.due());
}

INSTANTIATE_TEST_SUITE_P(Modes, ProgressTest,
                         testing::Values(ProgressMode::kAuto, ProgressMode::kPlain,
                                         ProgressMode::kNone, ProgressMode::kJson));

}  // namespace
}  // namespace isthmus::app::this_file
