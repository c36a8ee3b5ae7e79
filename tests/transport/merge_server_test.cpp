// SPDX-License-Identifier: Apache-2.0
// The coordinator of merges at a hub: which merges each member is sent, and what becomes of offers
// that come again, early, or of a process that is gone.
#include "transport/exchange/merge_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "core/base/system_runtime.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ServedHistory final : public MergeHistory {
 public:
  [[nodiscard]] std::int64_t first() const override { return merges_.empty() ? 0 : first_; }
  [[nodiscard]] std::int64_t last() const override {
    return merges_.empty() ? 0 : first_ + std::ssize(merges_) - 1;
  }
  void append(std::int64_t number, std::span<const std::byte> merge) override {
    if (merges_.empty()) first_ = number;
    EXPECT_EQ(number, first_ + std::ssize(merges_));
    merges_.emplace_back(merge.begin(), merge.end());
  }
  [[nodiscard]] std::vector<std::byte> read(std::int64_t number) const override {
    return merges_.at(static_cast<std::size_t>(number - first_));
  }

 private:
  std::int64_t first_ = 0;
  std::vector<std::vector<std::byte>> merges_;
};

/// A hub of three members, and what each of them has been sent.
class ServerAtAHub : public ::testing::Test {
 protected:
  ServerAtAHub() : queue_(runtime_.make_wait_queue()) { start({true, true, true}); }
  ~ServerAtAHub() override { server_.reset(); }

  void start(const std::vector<bool>& live) {
    server_.reset();
    server_ = std::make_unique<MergeServer>(
        MergeServer::Parts{.self = WorkerId(3),
                           .members = 3,
                           .runtime = runtime_,
                           .history = &history_,
                           .send = [this](WorkerId to, std::span<const std::byte> note,
                                          std::uint64_t) { sent(to, note); },
                           .on_failure =
                               [this](const std::exception_ptr& failure) {
                                 try {
                                   std::rethrow_exception(failure);
                                 } catch (const std::exception& error) {
                                   queue_->update([&] { failure_ = error.what(); });
                                 }
                               }},
        live);
    server_->begin();
    for (auto& each : streams_) each = 0;
  }
  void sent(WorkerId to, std::span<const std::byte> note) {
    // Each message here is one piece.
    queue_->update([&] { pieces_[to.value()].emplace_back(note.begin(), note.end()); });
  }
  /// The numbers of the merges that the member has been sent since it followed; 0: the end.
  std::vector<std::int64_t> got(int member) {
    MergeNoteAssembler assembler;
    std::vector<std::int64_t> numbers;
    queue_->update([&] {
      for (const std::vector<std::byte>& note : pieces_[member]) {
        const auto message = assembler.take(note);
        if (!message || !*message) continue;
        const bool merge = (*message)->kind == static_cast<std::uint32_t>(MergeMessage::kMerge);
        numbers.push_back(merge ? read_merge_head((*message)->bytes)->number : 0);
      }
    });
    return numbers;
  }
  void await(int member, std::size_t messages) {
    ASSERT_TRUE(queue_->wait([&] { return pieces_[member].size() >= messages || failure_; },
                             runtime_.clock().now() + 60s))
        << "member " << member;
  }
  void say(int from, MergeMessage message, std::span<const std::byte> bytes = {}) {
    send_merge_notes(streams_[static_cast<std::size_t>(from)]++, message, bytes, 0,
                     [&](std::span<const std::byte> note, std::uint64_t) {
                       EXPECT_TRUE(server_->receive(WorkerId(from), note));
                     });
  }
  /// The member's process is new to the hub, or the other way round.
  void follow(int from, std::int64_t last) {
    server_->lose(WorkerId(from));
    streams_[static_cast<std::size_t>(from)] = 0;
    queue_->update([&] { pieces_[from].clear(); });
    say(from, MergeMessage::kFollow, write_follow(last));
  }
  void offer(int from, std::int64_t sent, int quorum = 3, int fragment = 0) {
    const std::shared_ptr<const Codec> codec = make_codec("fp32");
    const std::vector<float> values{static_cast<float>(sent)};
    say(from, MergeMessage::kOffer,
        write_offer({.id = {FragmentId(fragment), StepIndex(sent)},
                     .encoded = encode(*codec, values),
                     .codec = codec,
                     .weight = 1,
                     .tokens = 10,
                     .rule = {.quorum = quorum, .grace = std::chrono::hours(1)}}));
  }
  std::vector<MergedOffer> offers_of(std::int64_t number) {
    return read_merge_head(history_.read(number))->offers;
  }

  SystemRuntime runtime_;
  std::unique_ptr<WaitQueue> queue_;
  ServedHistory history_;
  std::map<int, std::vector<std::vector<std::byte>>> pieces_;
  std::optional<std::string> failure_;
  std::array<std::uint32_t, 3> streams_{};
  std::unique_ptr<MergeServer> server_;
};

TEST_F(ServerAtAHub, AMemberGetsTheMergesThatItLacksInTheirOrder) {
  for (int m = 0; m < 2; ++m) follow(m, 0);
  for (const std::int64_t step : {5, 10, 15}) {
    for (int m = 0; m < 2; ++m) offer(m, step, 2);
    server_->leave(WorkerId(2));  // has not come: nobody waits for it
    await(0, static_cast<std::size_t>(step / 5));
    await(1, static_cast<std::size_t>(step / 5));
  }
  follow(2, 1);
  await(2, 2);
  EXPECT_THAT(got(2), ElementsAre(2, 3));
  EXPECT_THAT(got(0), ElementsAre(1, 2, 3));
}

TEST_F(ServerAtAHub, WhatIsOfferedAgainIsMergedOnce) {
  for (int m = 0; m < 3; ++m) follow(m, 0);
  for (int m = 0; m < 3; ++m) offer(m, 5);
  await(0, 1);
  offer(0, 10);
  // The hub's next process: member 1 has not got the merge, and nobody knows what has come.
  start({true, true, true});
  follow(0, 1);
  offer(0, 10);
  follow(1, 0);
  offer(1, 5);
  follow(2, 1);
  offer(2, 10);
  offer(2, 10);
  await(1, 1);
  EXPECT_THAT(got(1), ElementsAre(1));
  offer(1, 10);
  await(0, 1);
  await(2, 1);
  EXPECT_THAT(got(0), ElementsAre(2));
  ASSERT_EQ(history_.last(), 2);
  EXPECT_THAT(offers_of(2), ElementsAre(MergedOffer{WorkerId(0), StepIndex(10), 10, 1},
                                        MergedOffer{WorkerId(1), StepIndex(10), 10, 1},
                                        MergedOffer{WorkerId(2), StepIndex(10), 10, 1}));
}

// Its next process might offer the same fragment before a quorum is there.
TEST_F(ServerAtAHub, TheOfferOfAProcessThatIsGoneIsMergedWhenTheNextOneComes) {
  for (int m = 0; m < 3; ++m) follow(m, 0);
  offer(2, 7);
  server_->leave(WorkerId(2));
  follow(2, 0);
  offer(2, 6);  // it goes on from another worker's state, of an earlier step
  await(2, 1);
  EXPECT_THAT(offers_of(1), ElementsAre(MergedOffer{WorkerId(2), StepIndex(7), 10, 1}));
  offer(0, 10);
  offer(1, 10);
  await(2, 2);
  EXPECT_THAT(offers_of(2), ElementsAre(MergedOffer{WorkerId(0), StepIndex(10), 10, 1},
                                        MergedOffer{WorkerId(1), StepIndex(10), 10, 1},
                                        MergedOffer{WorkerId(2), StepIndex(6), 10, 1}));
}

TEST_F(ServerAtAHub, AProcessThatIsGoneOffersNothing) {
  for (int m = 0; m < 3; ++m) follow(m, 0);
  server_->lose(WorkerId(2));
  server_->leave(WorkerId(2));
  streams_[2] = 0;
  offer(2, 5);
  offer(0, 5);
  offer(1, 5);
  await(0, 1);
  EXPECT_EQ(offers_of(1).size(), 2u);
}

TEST_F(ServerAtAHub, AllHearTheEndOnce) {
  for (int m = 0; m < 3; ++m) follow(m, 0);
  for (int m = 0; m < 3; ++m) {
    say(m, MergeMessage::kStopped);
    say(m, MergeMessage::kFinished);
  }
  for (int m = 0; m < 3; ++m) await(m, 1);
  EXPECT_THAT(got(1), ElementsAre(0));
  start({true, true, true});  // one of them had not heard it
  follow(1, 0);
  for (int m = 0; m < 3; ++m) say(m, MergeMessage::kFinished);
  await(1, 1);
  EXPECT_THAT(got(1), ElementsAre(0));
}

// It takes in merges to catch up, and may die or come too late before it has joined.
TEST_F(ServerAtAHub, AProcessThatFollowsAndDoesNotJoinIsNotWaitedFor) {
  for (int m = 0; m < 3; ++m) follow(m, 0);
  server_->leave(WorkerId(2));
  follow(2, 0);
  server_->lose(WorkerId(2));
  for (int m = 0; m < 2; ++m) {
    say(m, MergeMessage::kStopped);
    say(m, MergeMessage::kFinished);
  }
  for (int m = 0; m < 2; ++m) await(m, 1);
  EXPECT_THAT(got(1), ElementsAre(0));
}

TEST_F(ServerAtAHub, MembersWithUnlikeNumbersOfMergesAndNoHistoryAreRefused) {
  follow(0, 55);
  follow(1, 57);
  ASSERT_TRUE(queue_->wait([&] { return failure_.has_value(); }, runtime_.clock().now() + 60s));
  EXPECT_THAT(*failure_, HasSubstr("worker 1: it has 57 merges, and the hub's log ends with 55"));
}

TEST_F(ServerAtAHub, AnEmptyHistoryGoesOnAfterTheMergesOfACheckpoint) {
  for (int m = 0; m < 3; ++m) follow(m, 40);
  for (int m = 0; m < 3; ++m) offer(m, 105);
  await(2, 1);
  EXPECT_THAT(got(2), ElementsAre(41));
  start({true, true, true});
  follow(0, 40);
  await(0, 1);
  EXPECT_THAT(got(0), ElementsAre(41));
}

TEST_F(ServerAtAHub, AnOlderCopyOfTheHistoryIsRefused) {
  for (int m = 0; m < 3; ++m) follow(m, 0);
  for (int m = 0; m < 3; ++m) offer(m, 5);
  await(0, 1);
  follow(0, 2);
  ASSERT_TRUE(queue_->wait([&] { return failure_.has_value(); }, runtime_.clock().now() + 60s));
  EXPECT_THAT(*failure_,
              HasSubstr("worker 0: it has 2 merges, and the hub's log ends with 1: it is "
                        "an older copy of that log"));
}

TEST_F(ServerAtAHub, ANewSessionForgetsTheFormerOne) {
  for (int m = 0; m < 3; ++m) follow(m, 0);
  offer(0, 5);
  server_->begin_anew();
  for (int m = 0; m < 3; ++m) follow(m, 0);
  for (int m = 0; m < 3; ++m) offer(m, 5);
  await(1, 1);
  EXPECT_EQ(offers_of(1).size(), 3u);
  EXPECT_THAT(got(1), ElementsAre(1));
}

}  // namespace
}  // namespace isthmus::this_file
