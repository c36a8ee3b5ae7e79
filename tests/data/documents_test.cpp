// SPDX-License-Identifier: Apache-2.0
// Windows whose documents stay apart: against loops over the stream, for any number of workers.
#include "data/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "core/base/rng.h"
#include "core/temporary_directory.h"
#include "data/batch_source.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int32_t kEnd = 9;
constexpr std::int64_t kContext = 16;

/// A stream of documents of 1 to 40 tokens, each token a number of its own but for the ends.
class Documents : public testing::Test {
 protected:
  Documents() {
    const Rng rng{3, Stream::kTestData};
    for (std::uint64_t document = 0; ids_.size() < 3000; ++document) {
      const std::uint64_t length = 1 + rng.below(40, document);
      for (std::uint64_t i = 0; i < length; ++i) {
        ids_.push_back(static_cast<std::uint16_t>(10 + ids_.size()));
      }
      ids_.back() = kEnd;
    }
    put("x.bin", ids_);
  }
  void put(const std::string& name, const std::vector<std::uint16_t>& ids) {
    std::string bytes(ids.size() * 2, '\0');
    std::memcpy(bytes.data(), ids.data(), bytes.size());
    write_atomically(storage_, directory_ / name, bytes);
  }
  void put_record(const std::string& name, const std::string& json) {
    write_atomically(storage_, directory_ / name, json);
  }
  Dataset open(std::optional<std::int64_t> eos = kEnd, double val_fraction = 0.1) {
    DataConfig config;
    config.source = "tokens:x.bin:u16";
    config.val_fraction = val_fraction;
    config.eos = eos;
    return Dataset::open(storage_, config, directory_.path());
  }
  static BatchPlan plan(int workers, DataPartition partition = DataPartition::kIid) {
    return {.context = kContext,
            .samples = 12,
            .workers = workers,
            .partition = partition,
            .seed = 5,
            .vocab = 65536,
            .documents = true};
  }

  TemporaryDirectory directory_;
  SystemStorage storage_;
  std::vector<std::uint16_t> ids_;
};

TEST(MarkDocuments, GivesEachTokenItsDocumentAndNoTargetAcrossABorder) {
  const std::vector<std::int32_t> inputs = {4, 5, kEnd, kEnd, 6, 7, kEnd, 8};
  std::vector<std::int32_t> targets = {5, kEnd, kEnd, 6, 7, kEnd, 8, 4};
  std::vector<std::int32_t> starts(inputs.size());
  EXPECT_EQ(mark_documents(kEnd, inputs, targets, starts), 5);
  EXPECT_THAT(starts, ElementsAre(0, 0, 0, 3, 4, 4, 4, 7));
  // A document's end is predicted, what follows it is not.
  EXPECT_THAT(targets, ElementsAre(5, kEnd, -100, -100, 7, kEnd, -100, 4));
  EXPECT_EQ(targets_inside_documents(kEnd, inputs), 5);
}

TEST_F(Documents, BatchesAreTheStreamsWindowsCutAtBorders) {
  const Dataset data = open();
  BatchPlan stream = plan(1);
  stream.documents = false;
  BatchSource plain(data, stream, 0);
  BatchSource packed(data, plan(1), 0);
  for (std::int64_t step = 0; step < 30; ++step) {
    const TokenBatch a = plain.at(step);
    const TokenBatch b = packed.at(step);
    EXPECT_TRUE(a.document_starts.empty());
    ASSERT_TRUE(std::ranges::equal(a.inputs, b.inputs)) << step;
    ASSERT_EQ(b.document_starts.size(), b.inputs.size());
    EXPECT_EQ(b.mean_targets, 0);
    for (std::int64_t i = 0; i < b.sequences * kContext; ++i) {
      const auto at = static_cast<std::size_t>(i);
      // The definition: back from the token to behind the last end before it, or to the window.
      std::int64_t start = i % kContext;
      while (start > 0 &&
             b.inputs[at - static_cast<std::size_t>(i % kContext - start) - 1] != kEnd) {
        --start;
      }
      ASSERT_EQ(b.document_starts[at], start) << "step " << step << " token " << i;
      ASSERT_EQ(b.targets[at], b.inputs[at] == kEnd ? -100 : a.targets[at]);
    }
  }
}

TEST_F(Documents, EveryTokenComesOnceAnEpochWhateverTheSeedAndTheWorkers) {
  const Dataset data = open();
  const std::int64_t windows = window_count(data.train_tokens(), kContext);
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    for (const int workers : {1, 2, 3, 4}) {
      std::map<std::int32_t, int> seen;
      std::vector<BatchSource> sources;
      for (int m = 0; m < workers; ++m) {
        BatchPlan own = plan(workers);
        own.seed = seed;
        sources.emplace_back(data, own, m);
      }
      for (std::int64_t g = 0; g < windows; ++g) {  // samples of the first epoch
        const std::int64_t step = g / 12, sample = g % 12;
        const TokenBatch batch = sources[static_cast<std::size_t>(sample % workers)].at(step);
        for (const std::int32_t id : batch.inputs.subspan(
                 static_cast<std::size_t>(sample / workers * kContext), kContext)) {
          ++seen[id];
        }
      }
      for (std::int64_t i = 0; i < windows * kContext; ++i) {
        const auto id = static_cast<std::int32_t>(ids_[static_cast<std::size_t>(i)]);
        if (id == kEnd) continue;
        ASSERT_EQ(seen[id], 1) << "seed " << seed << " token " << i;
      }
    }
  }
}

TEST_F(Documents, WorkersTakeOneMeanOverTheTargetsOfAll) {
  const Dataset data = open();
  for (const DataPartition partition : {DataPartition::kIid, DataPartition::kShards}) {
    for (const int workers : {2, 3}) {
      std::vector<BatchSource> sources;
      BatchPlan shared = plan(workers, partition);
      shared.one_mean = true;
      for (int m = 0; m < workers; ++m) sources.emplace_back(data, shared, m);
      EXPECT_EQ(BatchSource(data, plan(workers, partition), 0).at(0).mean_targets, 0);
      for (std::int64_t step = 0; step < 20; ++step) {
        double all = 0, mean = 0;
        for (BatchSource& source : sources) {
          const TokenBatch batch = source.at(step);
          all += static_cast<double>(
              std::ranges::count_if(batch.targets, [](std::int32_t id) { return id >= 0; }));
          mean += batch.mean_targets;
          EXPECT_EQ(batch.mean_targets * workers, std::round(batch.mean_targets * workers));
        }
        EXPECT_NEAR(mean, all, 1e-9) << "step " << step;
      }
    }
  }
}

TEST_F(Documents, ValidationIsCutAtBordersToo) {
  const Dataset data = open();
  ValidationSource plain(data, {.context = kContext, .vocab = 65536});
  ValidationSource packed(data, {.context = kContext, .vocab = 65536, .documents = true});
  ASSERT_EQ(packed.windows(), plain.windows());
  const TokenBatch a = plain.at(2, 3);
  const TokenBatch b = packed.at(2, 3);
  EXPECT_TRUE(std::ranges::equal(a.inputs, b.inputs));
  EXPECT_TRUE(a.document_starts.empty());
  for (std::size_t i = 0; i < b.inputs.size(); ++i) {
    EXPECT_EQ(b.targets[i], b.inputs[i] == kEnd ? -100 : a.targets[i]);
  }
  EXPECT_GT(std::ranges::count(b.inputs, kEnd), 0);
}

TEST_F(Documents, ASourceSaysItsEndInTheRecordBesideIt) {
  EXPECT_FALSE(open({}).sources().front().document_end);
  put_record("x.json", R"({"tokenizer_sha256": "00", "end": 9})");
  EXPECT_EQ(open({}).sources().front().document_end, kEnd);
  EXPECT_NO_THROW(open({}).check_documents());
  EXPECT_NO_THROW(open(kEnd).check_documents());
  EXPECT_THAT(message_of<ConfigError>([&] { open(10).check_documents(); }),
              AllOf(HasSubstr("data.eos = 10"), HasSubstr("x.bin end with token 9")));
  put_record("x.json", R"({"something": "else"})");
  EXPECT_FALSE(open({}).sources().front().document_end);
  put_record("x.json", R"({"tokenizer_sha256": "00", "end": "nine"})");
  EXPECT_THAT(message_of<SystemError>([&] { (void)open({}); }),
              AllOf(HasSubstr("x.json"), HasSubstr("\"nine\" is no token id")));
}

TEST_F(Documents, RefusesASourceThatDoesNotSayWhereDocumentsEnd) {
  const Dataset data = open({});
  EXPECT_THAT(message_of<ConfigError>([&] { BatchSource(data, plan(1), 0); }),
              AllOf(HasSubstr("data.pack = \"documents\""), HasSubstr("tokens:x.bin:u16"),
                    HasSubstr("isthmus data tokenize"), HasSubstr("data.eos")));
  EXPECT_THAT(message_of<ConfigError>([&] {
                ValidationSource(data, {.context = kContext, .vocab = 65536, .documents = true});
              }),
              HasSubstr("data.eos"));
  // Files of which one says nothing are a source that says nothing.
  put("y.bin", ids_);
  put_record("y.json", R"({"tokenizer_sha256": "00", "end": 9})");
  DataConfig config;
  config.source = "tokens:?.bin:u16";
  EXPECT_FALSE(Dataset::open(storage_, config, directory_.path()).sources().front().document_end);
}

TEST_F(Documents, RefusesAStepWithoutATarget) {
  put("x.bin", std::vector<std::uint16_t>(400, kEnd));
  const Dataset data = open();
  BatchSource source(data, plan(2), 1);
  EXPECT_THAT(message_of<ConfigError>([&] { (void)source.at(3); }),
              AllOf(HasSubstr("step 4"), HasSubstr("one token"), HasSubstr("data.eos")));
}

TEST(ParseDataPack, KnowsItsTwoForms) {
  EXPECT_FALSE(parse_data_pack("stream"));
  EXPECT_TRUE(parse_data_pack("documents"));
  EXPECT_THAT(message_of<ConfigError>([] { (void)parse_data_pack("docs"); }),
              HasSubstr("data.pack = \"docs\""));
}

}  // namespace
}  // namespace isthmus::this_file
