// SPDX-License-Identifier: Apache-2.0
// When offers are merged, and the bytes of their messages.
#include "transport/exchange/merges/merge_pool.h"

#include <gtest/gtest.h>

#include "core/base/rng.h"
#include "transport/wire/merge_message.h"

namespace isthmus {
namespace {

using namespace std::chrono_literals;

Offer offer_of(int fragment, std::int64_t sent, int quorum, Duration grace) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  return {.id = {FragmentId(fragment), StepIndex(sent)},
          .encoded = encode(*codec, std::vector<float>{1, 2, 3}),
          .codec = codec,
          .weight = 20,
          .tokens = 10,
          .rule = {.quorum = quorum, .grace = grace}};
}

class Pool {
 public:
  explicit Pool(int workers, int quorum, Duration grace = 10s)
      : pool(workers), quorum_(quorum), grace_(grace) {}
  void offer(int worker, Duration at, int fragment = 0, std::int64_t sent = 5) {
    EXPECT_TRUE(
        pool.take(WorkerId(worker), offer_of(fragment, sent, quorum_, grace_), TimePoint(at)));
  }
  /// The workers of the merge that is due; empty: none is.
  std::vector<int> merged(Duration at) {
    std::vector<int> workers;
    if (const auto picked = pool.pick(TimePoint(at))) {
      for (const auto& [worker, offer] : picked->offers) workers.push_back(worker.value());
    }
    return workers;
  }
  MergePool pool;

 private:
  int quorum_;
  Duration grace_;
};

using Workers = std::vector<int>;

TEST(MergePool, MergesAtOnceWhenEveryWorkerHasMadeAnOffer) {
  Pool pool(3, 3);
  pool.offer(2, 1s);
  pool.offer(0, 2s);
  EXPECT_EQ(pool.merged(100s), Workers{}) << "a quorum of all waits for the third";
  EXPECT_EQ(pool.pool.due(), kNever);
  pool.offer(1, 101s);
  EXPECT_EQ(pool.merged(101s), (Workers{0, 1, 2}));
  EXPECT_EQ(pool.merged(200s), Workers{});
}

TEST(MergePool, TheGraceWindowBeginsWithTheQuorum) {
  Pool pool(4, 2);
  pool.offer(3, 1s);
  EXPECT_EQ(pool.pool.due(), kNever);
  pool.offer(1, 4s);
  EXPECT_EQ(pool.pool.due(), TimePoint(14s));
  pool.offer(2, 13s);
  EXPECT_EQ(pool.pool.due(), TimePoint(14s)) << "a further offer does not move it";
  EXPECT_EQ(pool.merged(13999ms), Workers{});
  EXPECT_EQ(pool.merged(14s), (Workers{1, 2, 3}));
  pool.offer(0, 15s);
  EXPECT_EQ(pool.pool.due(), kNever) << "a late offer waits for the next quorum";
  pool.offer(3, 20s, 0, 10);
  EXPECT_EQ(pool.merged(30s), (Workers{0, 3}));
}

// Random bits of the means of one fragment and step are not the same ones.
TEST(MergePool, TwoMergesOfOneStepAreEncodedUnderUnlikeWorkers) {
  Pool pool(4, 2, 1s);
  const auto encoder = [&](Duration at) {
    return mean_encoder(pool.pool.pick(TimePoint(at)).value());
  };
  pool.offer(0, 1s);
  pool.offer(1, 1s);
  EXPECT_EQ(encoder(2s), kMeanWorker) << "as a round";
  pool.offer(2, 3s);
  pool.offer(3, 3s);
  EXPECT_EQ(encoder(4s), kMeanWorker - 2);
  pool.offer(0, 5s, 0, 8);
  pool.offer(3, 5s, 0, 9);
  EXPECT_EQ(encoder(6s), kMeanWorker - 3) << "the offer of the merge's step";
}

TEST(MergePool, TheShortestGraceWindowCounts) {
  MergePool pool(3);
  EXPECT_TRUE(pool.take(WorkerId(0), offer_of(0, 5, 1, 10s), TimePoint(1s)));
  EXPECT_TRUE(pool.take(WorkerId(1), offer_of(0, 5, 1, 2s), TimePoint(2s)));
  EXPECT_EQ(pool.due(), TimePoint(3s));
}

TEST(MergePool, FragmentsAreMergedApart) {
  Pool pool(2, 2);
  pool.offer(0, 1s, 0);
  pool.offer(1, 2s, 1);
  EXPECT_EQ(pool.merged(50s), Workers{});
  pool.offer(0, 51s, 1);
  EXPECT_EQ(pool.merged(51s), (Workers{0, 1}));
}

TEST(MergePool, NobodyWaitsForAWorkerThatTrainsNoMoreOrIsGone) {
  Pool pool(3, 3);
  pool.offer(0, 1s);
  pool.pool.stop(WorkerId(1));
  EXPECT_EQ(pool.merged(2s), Workers{}) << "worker 2 trains";
  pool.pool.leave(WorkerId(2));
  EXPECT_EQ(pool.merged(2s), Workers{0});
  pool.offer(1, 3s);
  EXPECT_EQ(pool.merged(3s), Workers{}) << "worker 0 still trains";
  pool.pool.stop(WorkerId(0));
  EXPECT_EQ(pool.merged(3s), Workers{1}) << "what it offers after its last step is merged";
}

TEST(MergePool, AQuorumIsOfTheWorkersThatCanStillOffer) {
  Pool pool(4, 3);
  pool.pool.leave(WorkerId(3));
  pool.pool.leave(WorkerId(2));
  pool.offer(0, 1s);
  EXPECT_EQ(pool.pool.due(), kNever) << "two are left, and two are the quorum";
  pool.offer(1, 2s);
  EXPECT_EQ(pool.merged(2s), (Workers{0, 1}));
}

TEST(MergePool, WhatALostWorkerHasOfferedIsMerged) {
  Pool pool(3, 2);
  pool.offer(2, 1s);
  pool.pool.leave(WorkerId(2));
  pool.offer(0, 2s);
  EXPECT_EQ(pool.merged(12s), (Workers{0, 2}));
}

TEST(MergePool, RefusesASecondOfferOfAFragment) {
  Pool pool(2, 2);
  pool.offer(0, 1s);
  EXPECT_FALSE(pool.pool.take(WorkerId(0), offer_of(0, 9, 2, 1s), TimePoint(2s)));
}

TEST(MergePool, EndsWhenAllHaveFinishedAndEverythingIsMerged) {
  Pool pool(2, 1);
  pool.pool.finish(WorkerId(0));
  pool.offer(1, 1s);
  pool.pool.leave(WorkerId(1));
  EXPECT_FALSE(pool.pool.ended());
  EXPECT_EQ(pool.merged(1s), Workers{1});
  EXPECT_TRUE(pool.pool.ended());
  EXPECT_EQ(pool.pool.merges(), 1);
}

// ---- Messages -----------------------------------------------------------------------------------

EncodedMerge merge_of() {
  const std::shared_ptr<const Codec> codec = make_codec("int8:256");
  return {.merge = {.number = 7,
                    .fragment = FragmentId(2),
                    .step = StepIndex(40),
                    .offers = {{WorkerId(0), StepIndex(35), 100, 2.5},
                               {WorkerId(3), StepIndex(40), 50, 0.5}},
                    .values = {}},
          .codec = codec->name(),
          .encoded = encode(*codec, std::vector<float>(1000, 0.5f))};
}

TEST(MergeMessage, OffersAndMergesComeBackAsTheyWereWritten) {
  const Offer offer = offer_of(3, 12, 2, 250ms);
  const auto read = read_offer(write_offer(offer));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->id, offer.id);
  EXPECT_EQ(read->encoded.bytes, offer.encoded.bytes);
  EXPECT_EQ(read->codec->name(), "fp32");
  EXPECT_EQ(read->weight, offer.weight);
  EXPECT_EQ(read->tokens, offer.tokens);
  EXPECT_EQ(read->rule.quorum, 2);
  EXPECT_EQ(read->rule.grace, Duration(250ms));

  const EncodedMerge merge = merge_of();
  const auto merged = read_merge(write_merge(merge));
  ASSERT_TRUE(merged.has_value());
  EXPECT_EQ(merged->number, 7);
  EXPECT_EQ(merged->offers, merge.merge.offers);
  EXPECT_EQ(merged->step, StepIndex(40));
  EXPECT_EQ(merged->values, std::vector<float>(1000, 0.5f));
  EXPECT_EQ(merged->bytes, merge.encoded.bytes.size());
}

// Every codec, and the sparse ones at the least they can keep of a tile.
TEST(MergeMessage, OffersOfEveryCodecAreRead) {
  std::vector<std::string> spellings = {"topk:1", "topk:8", "topk:32:value=sign", "dct-topk:1",
                                        "randk:1"};
  for (const CodecInfo& info : codecs()) spellings.push_back(info.name);
  const std::vector<float> values(300 * kTileValues + 1, 0.5f);
  for (const std::string& spelling : spellings) {
    Offer offer = offer_of(0, 1, 1, 1s);
    offer.codec = make_codec(spelling);
    offer.encoded = encode(*offer.codec, values);
    const auto read = read_offer(write_offer(offer));
    ASSERT_TRUE(read.has_value()) << spelling << ": " << read.error();
    EXPECT_EQ(read->encoded.values, values.size()) << spelling;
    EXPECT_EQ(read->encoded.bytes, offer.encoded.bytes) << spelling;
  }
}

// Bytes that were cut or changed give a reason or a message, and never more memory than they name.
TEST(MergeMessage, HostileBytesAreRefusedOrRead) {
  const std::vector<std::byte> offer = write_offer(offer_of(3, 12, 2, 250ms));
  const std::vector<std::byte> merge = write_merge(merge_of());
  for (std::size_t n = 0; n < offer.size(); ++n) {
    EXPECT_FALSE(read_offer(std::span(offer).first(n)).has_value()) << n;
  }
  for (std::size_t n = 0; n < merge.size(); ++n) {
    EXPECT_FALSE(read_merge(std::span(merge).first(n)).has_value()) << n;
  }
  const Rng rng{1, Stream::kTestData};
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    for (const std::vector<std::byte>& whole : {offer, merge}) {
      std::vector<std::byte> changed = whole;
      for (std::uint32_t k = 0; k < 3; ++k) {
        const auto head = std::min<std::size_t>(whole.size(), 80);
        const auto at = static_cast<std::size_t>(rng.uniform(i, 2 * k) * static_cast<double>(head));
        changed[at] = static_cast<std::byte>(rng.uniform(i, 2 * k + 1) * 256);
      }
      (void)read_offer(changed);
      (void)read_merge(changed);
    }
  }
}

}  // namespace
}  // namespace isthmus
