// SPDX-License-Identifier: Apache-2.0
// Data that were appended to: what counts as appended, and what of them is for validation.
#include "data/appended_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/state/state_bytes.h"
#include "core/state/state_snapshot.h"
#include "core/temporary_directory.h"
#include "data/batch_source.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using testing::HasSubstr;

class AppendedData : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& bytes) {
    write_atomically(storage_, directory_ / name, bytes);
  }
  Dataset open(const std::string& source) {
    DataConfig config;
    config.source = source;
    config.val_fraction = 0.1;
    return Dataset::open(storage_, config, directory_.path());
  }
  /// "10 tokens", or why not.
  std::string found(const std::string& source, const std::vector<DataFile>& before) {
    const Dataset data = open(source);
    const auto tokens = tokens_of_beginning(data, before);
    return tokens ? std::to_string(*tokens) + " tokens" : tokens.error();
  }
  static std::string text(int words) {
    std::string all;
    for (int i = 0; i < words; ++i) all += "word " + std::to_string(i * i) + ". ";
    return all;
  }
  TemporaryDirectory directory_;
  SystemStorage storage_;
};

TEST_F(AppendedData, AFileThatHasGrownBeginsWithItself) {
  put("a.txt", text(50));
  const std::vector<DataFile> before = open("text:a.txt").fingerprint();
  const std::string same = std::to_string(text(50).size()) + " tokens";
  EXPECT_EQ(found("text:a.txt", before), same);
  put("a.txt", text(80));
  EXPECT_EQ(found("text:a.txt", before), same);
  put("b.txt", text(80));  // wherever it lies
  EXPECT_EQ(found("text:b.txt", before), same);
  EXPECT_EQ(found("tokens:b.txt:u8", before), same);  // the same ids of the same bytes
}

TEST_F(AppendedData, FurtherFilesComeBehind) {
  put("part-1.txt", text(50));
  put("part-2.txt", text(20));
  const std::vector<DataFile> before = open("text:part-*.txt").fingerprint();
  const std::string same = std::to_string(text(50).size() + text(20).size()) + " tokens";
  put("part-3.txt", text(30));
  EXPECT_EQ(found("text:part-*.txt", before), same);
  put("part-2.txt", text(25));
  EXPECT_EQ(found("text:part-*.txt", before), same);
  put("part-0.txt", text(30));
  EXPECT_THAT(found("text:part-*.txt", before), HasSubstr("shorter"));
}

TEST_F(AppendedData, SaysWhyOtherDataAreNoContinuation) {
  put("a.txt", text(50));
  const std::vector<DataFile> before = open("text:a.txt").fingerprint();
  put("shorter.txt", text(40));
  EXPECT_THAT(found("text:shorter.txt", before), HasSubstr("shorter"));
  put("other.txt", "X" + text(80).substr(1));
  EXPECT_THAT(found("text:other.txt", before), HasSubstr("the first"));
  put("same-size.txt", "X" + text(50).substr(1));
  EXPECT_THAT(found("text:same-size.txt", before), HasSubstr("has sha256"));
  put("a-1.txt", text(60));
  put("a-2.txt", text(10));
  const std::vector<DataFile> two = open("text:a-*.txt").fingerprint();
  put("a-1.txt", text(61));
  EXPECT_THAT(found("text:a-*.txt", two), HasSubstr("further files behind"));
  storage_.remove_all(directory_ / "a-2.txt");
  put("a-1.txt", text(60));
  EXPECT_THAT(found("text:a-*.txt", two), HasSubstr("are 1 files, and were 2"));
  EXPECT_THAT(found("text:a.txt", {}), HasSubstr("does not say"));
}

TEST_F(AppendedData, AnotherWidthOfTheSameBytesIsNoContinuation) {
  const std::string ids = text(60);
  put("a.bin", ids.substr(0, 400));
  const std::vector<DataFile> before = open("tokens:a.bin:u16").fingerprint();
  put("a.bin", ids.substr(0, 600));
  EXPECT_EQ(found("tokens:a.bin:u16", before), "200 tokens");
  EXPECT_THAT(found("tokens:a.bin:u8", before), HasSubstr("another width"));
}

TEST_F(AppendedData, AHeaderThatCountsTokensTakesFurtherFiles) {
  std::vector<std::uint16_t> ids(300);
  std::iota(ids.begin(), ids.end(), std::uint16_t{0});
  write_llmc_tokens(storage_, directory_ / "a.bin", std::span(ids).first(200));
  const std::vector<DataFile> before = open("tokens:a*.bin").fingerprint();
  write_llmc_tokens(storage_, directory_ / "a2.bin", ids);
  EXPECT_EQ(found("tokens:a*.bin", before), "200 tokens");
  write_llmc_tokens(storage_, directory_ / "a.bin", ids);
  EXPECT_THAT(found("tokens:a.bin", before), HasSubstr("a further file"));
}

/// Token i has id i.
class GrownCorpus : public AppendedData {
 protected:
  Dataset counting(std::int64_t tokens) {
    std::vector<std::uint16_t> ids(static_cast<std::size_t>(tokens));
    std::iota(ids.begin(), ids.end(), std::uint16_t{0});
    write_llmc_tokens(storage_, directory_ / "x.bin", ids);
    return open("tokens:x.bin");
  }
  static constexpr std::int64_t kBefore = 1000;  // [900, 1000) for validation
  static constexpr std::int64_t kAfter = 1500;
  const DataHistory history_ = {{.after_step = 10, .tokens = kBefore}};
  const BatchPlan plan_{.context = 8, .samples = 4, .seed = 7, .vocab = 65536};
};

TEST_F(GrownCorpus, TheValidationPartStaysAsItWas) {
  const Dataset before = counting(kBefore);
  const Dataset after = counting(kAfter);
  ValidationSource was(before, {.context = 8, .vocab = 65536});
  ValidationSource is(after, {.context = 8, .vocab = 65536}, history_);
  ASSERT_EQ(is.windows(), was.windows());
  const TokenBatch a = was.at(0, was.windows());
  const TokenBatch b = is.at(0, is.windows());
  EXPECT_TRUE(std::ranges::equal(a.inputs, b.inputs));
  EXPECT_TRUE(std::ranges::equal(a.targets, b.targets));
}

TEST_F(GrownCorpus, TrainingReadsNoTokenOfTheValidationPart) {
  const Dataset before = counting(kBefore);
  const Dataset after = counting(kAfter);
  BatchSource was(before, plan_, 0);
  BatchSource is(after, plan_, 0, history_);
  std::set<std::int32_t> read;
  for (std::int64_t step = 0; step < 120; ++step) {
    const TokenBatch batch = is.at(step);
    if (step < 10) {
      EXPECT_TRUE(std::ranges::equal(batch.inputs, was.at(step).inputs)) << step;
    }
    read.insert(batch.inputs.begin(), batch.inputs.end());
    read.insert(batch.targets.begin(), batch.targets.end());
  }
  EXPECT_EQ(std::ranges::count_if(read, [](std::int32_t id) { return id >= 900 && id < 1000; }), 0);
  EXPECT_EQ(read.size(), 1393U);  // 174 windows of the 1400 tokens, and their last target
}

TEST_F(GrownCorpus, TheHistoryIsSavedWithTheState) {
  StateSnapshot none;
  save_history({}, none);
  StateSnapshot some;
  const DataHistory history = {{10, 1000}, {30, 1200}};
  save_history(history, some);
  const auto read = [](const StateSnapshot& snapshot, std::int64_t tokens) {
    return load_history(**read_state(write_state(snapshot)), tokens);
  };
  EXPECT_TRUE(read(none, 5).empty());
  EXPECT_EQ(read(some, 1500), history);
  EXPECT_THROW((void)read(some, 1100), RunError);
}

}  // namespace
}  // namespace isthmus::this_file
