// SPDX-License-Identifier: Apache-2.0
// One recording a process: a site that comes back goes on in it, whatever lies beside it by then.
#include "session/site/site_recording.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/temporary_directory.h"
#include "isthmus/errors.h"

namespace isthmus::app::this_file {
namespace {

FrameBytes some_frame() {
  return make_frame({.kind = FrameKind::kDone, .id = {FragmentId(0), StepIndex(7)}}, {});
}

TEST(SiteRecording, WhoComesBackGoesOnInTheSameFile) {
  const TemporaryDirectory folder;
  const SystemStorage storage;
  const std::filesystem::path file = folder.path() / "east.frames";
  const std::filesystem::path older = older_recording(file);
  {
    SiteRecording earlier(file);
    (void)earlier.open(WorkerId(1), {"east", "west"}, false);
  }
  {
    SiteRecording recording(file);
    for (int session = 0; session < 3; ++session) {
      FrameRecorder& recorder = recording.open(WorkerId(0), {"east", "west"}, true);
      recorder.record(FrameEvent::kQueued, WorkerId(1), -1, *some_frame());
    }
  }
  const auto now = read_recording(storage.read(file));
  ASSERT_TRUE(now.has_value());
  EXPECT_EQ(now->records.size(), 3u);
  EXPECT_EQ(now->head.names, (std::vector<std::string>{"east", "west", "hub"}));
  const auto before = read_recording(storage.read(older));
  ASSERT_TRUE(before.has_value());
  EXPECT_EQ(before->head.self, WorkerId(1));
}

TEST(SiteRecording, OnlyTheFirstOpeningMayFail) {
  const TemporaryDirectory folder;
  const std::filesystem::path file = folder.path() / "east.frames";
  const std::filesystem::path older = older_recording(file);
  SiteRecording recording(file);
  std::ofstream(older) << "notes";
  EXPECT_THROW((void)recording.open(WorkerId(0), {"east", "west"}, false), ConfigError);
  std::filesystem::remove(older);
  FrameRecorder& first = recording.open(WorkerId(0), {"east", "west"}, false);
  std::ofstream(older) << "notes";
  EXPECT_EQ(&recording.open(WorkerId(0), {"east", "west"}, false), &first);
}

}  // namespace
}  // namespace isthmus::app::this_file
