// SPDX-License-Identifier: Apache-2.0
// Windows of conversations: against loops over the conversations, for any number of workers.
#include "data/packed_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/base/rng.h"
#include "core/temporary_directory.h"
#include "data/appended_data.h"
#include "data/batch_source.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr std::int64_t kContext = 16;
constexpr std::size_t kCount = 200;

EncodedConversation of_size(std::size_t size) {
  EncodedConversation made;
  made.ids.assign(size, static_cast<std::uint32_t>(size));
  made.learnt.assign(size, true);
  return made;
}

/// Conversations of 2 to 16 tokens, each token a number of its own; a third of them is learnt, the
/// last one always.
std::vector<EncodedConversation> conversations() {
  const Rng rng{7, Stream::kTestData};
  std::vector<EncodedConversation> all(kCount);
  std::uint32_t id = 1;
  for (std::size_t c = 0; c < all.size(); ++c) {
    const std::uint64_t size = 2 + rng.below(15, c);
    for (std::uint64_t i = 0; i < size; ++i) {
      all[c].ids.push_back(id++);
      all[c].learnt.push_back(i + 1 == size || rng.below(3, c * 100 + i, 1) == 0);
    }
  }
  return all;
}

TEST(PackRows, PutsEachConversationIntoTheFullestWindowThatHasRoom) {
  std::vector<EncodedConversation> given;
  for (const std::size_t size : {10, 12, 4, 3, 6, 2, 16}) given.push_back(of_size(size));
  const PackedRows packed = pack_rows(given, kContext);
  // 12 has room for 4; 10 has room for 3 and then 2; 6 has no room for 16.
  ASSERT_EQ(packed.rows, 4);
  ASSERT_EQ(packed.ids.size(), 4u * kContext);
  ASSERT_EQ(packed.marks.size(), packed.ids.size());
  std::vector<std::pair<std::uint32_t, std::size_t>> begins;  // size and place of each
  for (std::size_t i = 0; i < packed.ids.size(); ++i) {
    if ((packed.marks[i] & kBeginsConversation) != 0) begins.emplace_back(packed.ids[i], i);
    EXPECT_EQ((packed.marks[i] & kLearnt) != 0, packed.ids[i] != 0) << i;
  }
  // 0: padding, which begins as a conversation does.
  EXPECT_THAT(begins,
              ElementsAre(Pair(10u, 0), Pair(3u, 10), Pair(2u, 13), Pair(0u, 15), Pair(12u, 16),
                          Pair(4u, 28), Pair(6u, 32), Pair(0u, 38), Pair(16u, 48)));
}

TEST(MarkConversations, LeavesTargetsOfLearntTokensOfTheSameConversation) {
  constexpr std::uint8_t kB = kBeginsConversation, kL = kLearnt;
  const std::vector<std::uint8_t> marks = {kB, 0, kL, kL, kB | kL, kL, 0, kB, 0, 0};
  std::vector<std::int32_t> targets = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  std::vector<std::int32_t> starts(targets.size());
  EXPECT_EQ(mark_conversations(marks, targets, starts), 3);
  EXPECT_THAT(starts, ElementsAre(0, 0, 0, 0, 4, 4, 4, 7, 7, 7));
  EXPECT_THAT(targets, ElementsAre(-100, 2, 3, -100, 5, -100, -100, -100, -100, -100));
  EXPECT_EQ(learnt_targets(marks), 3);
}

class PackedRowsTest : public testing::Test {
 protected:
  PackedRowsTest() { put("a.jsonl", "{}"); }
  void put(const std::string& name, const std::string& text) {
    write_atomically(storage_, directory_ / name, text);
  }
  Dataset open(double val_fraction = 0.1, std::int64_t context = kContext) {
    DataConfig config;
    config.source = "text:*.jsonl";
    config.val_fraction = val_fraction;
    return Dataset::open(storage_, config, directory_.path(), ReadingRules::kOfToday,
                         kMostInflatedBytes,
                         [&](const std::vector<std::filesystem::path>& paths, const std::string&) {
                           std::vector<TokenFile> files;
                           for (const auto& path : paths) {
                             files.emplace_back().path = path;
                             files.back().file = storage_.map(path);
                           }
                           PackedConversations packed =
                               pack_conversations(std::move(files), given_, context, val_fraction);
                           packed.facts.vocabulary = 65536;
                           return packed;
                         });
  }
  static BatchPlan plan(int workers, DataPartition partition = DataPartition::kIid) {
    return {.context = kContext,
            .samples = 12,
            .workers = workers,
            .partition = partition,
            .seed = 5,
            .vocab = 65536,
            .documents = true,
            .one_mean = true};
  }
  /// (token, the token before it) of what is learnt.
  std::set<std::pair<std::int32_t, std::int32_t>> wanted(std::size_t begin, std::size_t end) {
    std::set<std::pair<std::int32_t, std::int32_t>> all;
    for (std::size_t c = begin; c < end; ++c) {
      for (std::size_t i = 1; i < given_[c].ids.size(); ++i) {
        const auto id = static_cast<std::int32_t>(given_[c].ids[i]);
        if (given_[c].learnt[i]) all.emplace(id, id - 1);
      }
    }
    return all;
  }
  static void add(const TokenBatch& batch, std::set<std::pair<std::int32_t, std::int32_t>>& seen) {
    for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
      if (batch.targets[i] < 0) continue;
      EXPECT_TRUE(seen.emplace(batch.targets[i], batch.inputs[i]).second) << batch.targets[i];
    }
  }

  TemporaryDirectory directory_;
  SystemStorage storage_;
  std::vector<EncodedConversation> given_ = conversations();
};

TEST_F(PackedRowsTest, APassLearnsEveryReplyOnceWhateverTheWorkers) {
  const Dataset data = open();
  const ConversationFacts& facts = *data.sources().front().packed;
  EXPECT_EQ(facts.held_out, 20);
  EXPECT_EQ(window_count(data.train_tokens(), kContext), facts.training_rows);
  for (const int workers : {1, 2, 4}) {
    BatchPlan own = plan(workers);
    own.samples = facts.training_rows / 4 * 4;
    std::vector<BatchSource> sources;
    for (int m = 0; m < workers; ++m) sources.emplace_back(data, own, m);
    std::set<std::pair<std::int32_t, std::int32_t>> seen;
    double mean = 0;
    for (BatchSource& source : sources) {
      const TokenBatch batch = source.at(0);
      add(batch, seen);
      mean += workers == 1 ? static_cast<double>(seen.size()) : batch.mean_targets;
    }
    EXPECT_NEAR(mean, static_cast<double>(seen.size()), 1e-9) << workers;
    const auto all = wanted(0, kCount - 20);
    EXPECT_TRUE(std::ranges::includes(all, seen)) << workers;
    EXPECT_GE(seen.size() + 3 * kContext, all.size());  // three windows at most are of later steps
  }
}

TEST_F(PackedRowsTest, WorkersReadTheSamplesOfOneOrder) {
  const Dataset data = open();
  BatchSource one(data, plan(1), 0);
  for (std::int64_t step = 0; step < 9; ++step) {
    const TokenBatch whole = one.at(step);
    for (int m = 0; m < 3; ++m) {
      BatchSource third(data, plan(3), m);
      const TokenBatch part = third.at(step);
      for (std::int64_t i = 0; i < part.sequences; ++i) {
        const auto of = [&](const auto& values, std::int64_t sample) {
          return values.subspan(static_cast<std::size_t>(sample * kContext), kContext);
        };
        EXPECT_TRUE(std::ranges::equal(of(part.inputs, i), of(whole.inputs, i * 3 + m)));
        EXPECT_TRUE(std::ranges::equal(of(part.targets, i), of(whole.targets, i * 3 + m)));
        EXPECT_TRUE(
            std::ranges::equal(of(part.document_starts, i), of(whole.document_starts, i * 3 + m)));
      }
    }
  }
}

TEST_F(PackedRowsTest, EvaluatesTheConversationsThatAreHeldOut) {
  const Dataset data = open();
  ValidationSource source(data, {.context = kContext, .vocab = 65536, .documents = true});
  EXPECT_EQ(source.windows(), data.sources().front().packed->validation_rows);
  std::set<std::pair<std::int32_t, std::int32_t>> seen;
  add(source.at(0, source.windows()), seen);
  EXPECT_EQ(seen, wanted(kCount - 20, kCount));
}

TEST_F(PackedRowsTest, OneWindowIsEnoughAndNoneIsHeldOutOfNoShare) {
  given_.resize(1);
  const Dataset data = open(0);
  EXPECT_EQ(data.validation_tokens(), 0);
  BatchSource source(data, plan(1), 0);
  const TokenBatch batch = source.at(4);
  EXPECT_EQ(batch.inputs[0], 1);
  EXPECT_EQ(batch.inputs[kContext], 1);
}

TEST_F(PackedRowsTest, FingerprintsTellWhatTheTokensAreAndNothingMayGrow) {
  const Dataset data = open();
  const std::vector<DataFile> before = data.fingerprint();
  ASSERT_EQ(before.size(), 1u);
  EXPECT_THAT(before.front().reading, HasSubstr("conversations in windows of 16"));
  EXPECT_EQ(tokens_of_beginning(open(), before).value(), data.tokens());
  given_.back().learnt[1] = !given_.back().learnt[1];
  EXPECT_NE(open().fingerprint().front().reading, before.front().reading);
  EXPECT_THAT(tokens_of_beginning(open(), before).error(), HasSubstr("chat template"));
  given_ = conversations();
  put("b.jsonl", "{}");
  const Dataset two = open();
  EXPECT_EQ(two.fingerprint().size(), 2u);
  EXPECT_FALSE(tokens_of_beginning(two, before).has_value());
  std::vector<std::int32_t> ids(static_cast<std::size_t>(two.tokens()));
  two.read(0, ids);
  EXPECT_EQ(ids.back(), 0);
}

TEST(ConversationsText, SaysWhatIsThereAndWhatIsNot) {
  ConversationFacts facts{.context = 16, .training_rows = 9, .validation_rows = 1, .held_out = 2};
  facts.counts = {.conversations = 20, .tokens = 120, .learnt = 60};
  EXPECT_EQ(conversations_text(facts),
            "20 conversations of 120 tokens, of which 60 are learnt; 9 windows of 16 for training, "
            "1 of 2 held-out conversations; 25.0 % of the windows is padding");
  EXPECT_EQ(conversations_note(facts), "");
  facts.counts.cut = 3;
  facts.counts.skipped = 1;
  facts.counts.first_skipped = "a.jsonl:7: is no JSON object";
  EXPECT_EQ(conversations_note(facts),
            "of the conversations, 3 were cut to train.context = 16 tokens; 1 malformed lines are "
            "left out (data.skip_bad), the first: a.jsonl:7: is no JSON object");
}

}  // namespace
}  // namespace isthmus::this_file
