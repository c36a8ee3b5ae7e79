// SPDX-License-Identifier: Apache-2.0
// A hub's log: what was written is read, whatever was cut off at its end; damage is named.
#include "session/hub/hub_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/storage.h"
#include "isthmus/errors.h"
#include "storage_faults.h"

namespace isthmus::app::this_file {
namespace {

class HubLogTest : public ::testing::Test {
 protected:
  HubLogTest() { std::filesystem::create_directories(folder_); }
  ~HubLogTest() override { std::filesystem::remove_all(folder_); }

  static HubRecord commit(int step) {
    return commit_record({FragmentId(1), StepIndex(step)},
                         Digest128{{static_cast<std::uint8_t>(step)}});
  }
  static HubLogContents::Session session() {
    return {.id = "s1", .run_id = "r1", .sites = 3, .common = {{"outer.H", "5"}}};
  }
  [[nodiscard]] std::vector<std::byte> bytes() const { return storage_.read(folder_ / "hub.log"); }

  SystemStorage storage_;
  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(HubLogTest, WhatWasDecidedIsReadAgain) {
  {
    HubLog log(storage_, folder_);
    EXPECT_FALSE(log.contents().session.has_value());
    log.begin(session());
    log.append(std::vector<HubRecord>{commit(5), commit(10)});
    log.append(AgreedNote{.number = 3, .purpose = Purpose::kJoin, .step = StepIndex(12)});
  }
  for (int opened = 0; opened < 2; ++opened) {  // opening writes it anew
    const HubLog log(storage_, folder_);
    ASSERT_TRUE(log.contents().session.has_value());
    EXPECT_EQ(log.contents().session->id, "s1");
    EXPECT_EQ(log.contents().session->common, session().common);
    ASSERT_EQ(log.contents().history.size(), 2u);
    EXPECT_EQ(log.contents().history[1].body, commit(10).body);
    ASSERT_EQ(log.contents().agreed.size(), 1u);
    EXPECT_EQ(log.contents().agreed[0].number, 3);
    EXPECT_EQ(log.contents().agreed[0].step, StepIndex(12));
  }
}

TEST_F(HubLogTest, ATailThatWasCutOffWasNeverWritten) {
  HubLog log(storage_, folder_);
  log.begin(session());
  std::vector<std::size_t> ends = {bytes().size()};
  for (int step = 1; step <= 4; ++step) {
    log.append(std::vector<HubRecord>{commit(step)});
    ends.push_back(bytes().size());
  }
  const std::vector<std::byte> all = bytes();
  for (std::size_t size = 0; size <= all.size(); ++size) {
    const auto contents = read_hub_log(std::span(all).first(size));
    ASSERT_TRUE(contents.has_value()) << size << ": " << contents.error();
    EXPECT_EQ(contents->session.has_value(), size >= ends[0]) << size;
    std::size_t whole = 0;
    for (std::size_t i = 1; i < ends.size(); ++i) whole += size >= ends[i] ? 1 : 0;
    EXPECT_EQ(contents->history.size(), whole) << size;
    std::vector<std::byte> zeros(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(ends[2]));
    zeros.resize(size < ends[2] ? ends[2] : size);  // grown, and not written
    EXPECT_EQ(read_hub_log(zeros)->history.size(), 2u);
  }
}

TEST_F(HubLogTest, DamageInTheMiddleIsNamed) {
  HubLog log(storage_, folder_);
  log.begin(session());
  const std::size_t begin = bytes().size();
  log.append(std::vector<HubRecord>{commit(1), commit(2), commit(3)});
  const std::vector<std::byte> all = bytes();
  const std::size_t second = begin + (all.size() - begin) / 3;
  for (std::size_t at = 0; at < second; ++at) {
    std::vector<std::byte> damaged = all;
    damaged[at] ^= std::byte{4};
    const auto contents = read_hub_log(damaged);
    ASSERT_FALSE(contents.has_value()) << at;
    EXPECT_THAT(contents.error(), ::testing::HasSubstr("at byte "));
  }
  std::vector<std::byte> damaged = all;
  damaged[begin + 20] ^= std::byte{1};
  write_atomically(storage_, folder_ / "hub.log", std::span<const std::byte>(damaged));
  try {
    const HubLog again(storage_, folder_);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("hub.log"),
                                               ::testing::HasSubstr(std::to_string(begin)),
                                               ::testing::HasSubstr("remove it")));
  }
}

TEST_F(HubLogTest, NothingFollowsARecordThatIsThereInPart) {
  HubLog(storage_, folder_).begin(session());
  const auto one = static_cast<std::int64_t>(bytes().size());
  const auto again = [](HubLog& log, const std::string& why) {
    try {
      log.append(std::vector<HubRecord>{commit(2)});
      FAIL();
    } catch (const SystemError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(why));
    }
  };
  FaultyStorage full(storage_, {.disk_full_after_bytes = one + 10});  // opening writes it anew
  {
    HubLog log(full, folder_);
    again(log, "hub.log");
    EXPECT_EQ(bytes().size(), static_cast<std::size_t>(one + 10));
    again(log, "a write before has failed");
  }
  HubLog log(storage_, folder_);
  EXPECT_TRUE(log.contents().history.empty());
  log.append(std::vector<HubRecord>{commit(1)});
  log.end();
  again(log, "no run has begun");
}

TEST_F(HubLogTest, WhatAProcessBeforeHasWrittenCounts) {
  {
    HubLog log(storage_, folder_);
    log.begin(session());
    const std::vector<HubRecord> records(40000, commit(1));
    log.append(records);
    EXPECT_TRUE(log.has_grown());
  }
  HubLog log(storage_, folder_);
  EXPECT_TRUE(log.has_grown());
  log.compact(std::vector<HubRecord>{commit(1)});
  EXPECT_FALSE(log.has_grown());
}

TEST_F(HubLogTest, ItShrinksAndARunEnds) {
  {
    HubLog log(storage_, folder_);
    log.begin(session());
    for (int step = 0; step < 200; ++step) log.append(std::vector<HubRecord>{commit(step)});
    const std::size_t before = bytes().size();
    log.compact(std::vector<HubRecord>{commit(199)});
    EXPECT_LT(bytes().size(), before / 10);
    log.append(std::vector<HubRecord>{commit(200)});
  }
  {
    HubLog log(storage_, folder_);
    EXPECT_EQ(log.contents().history.size(), 2u);
    log.end();
  }
  const HubLog log(storage_, folder_);
  EXPECT_FALSE(log.contents().session.has_value());
  EXPECT_TRUE(log.contents().history.empty());
}

}  // namespace
}  // namespace isthmus::app::this_file
