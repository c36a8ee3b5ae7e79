// SPDX-License-Identifier: Apache-2.0
// The order in which frames go that wait for one link, and what it does for rounds.
#include "transport/links/frame_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>

#include "transport/exchange/exchange_engine.h"
#include "transport/naive_mean.h"
#include "transport/wire/frame.h"

namespace isthmus::this_file {
namespace {

using testing_support::contribution_of;
using testing_support::naive_mean;
using testing_support::result_of;

FrameBytes frame(FrameKind kind, std::int64_t sent = 0, int fragment = 0) {
  return make_frame({.kind = kind, .id = {FragmentId(fragment), StepIndex(sent)}});
}

std::vector<FrameBytes> drain(FrameQueue& queue) {
  std::vector<FrameBytes> order;
  while (!queue.empty()) {
    const FrameBytes next = queue.front();
    order.push_back(queue.pop());
    EXPECT_EQ(order.back(), next);
  }
  return order;
}

TEST(FrameQueue, WhatTheProtocolSaysGoesBeforeValuesAndTheEarlierRoundsBeforeLaterOnes) {
  const FrameBytes later = frame(FrameKind::kContribution, 9);
  const FrameBytes earlier = frame(FrameKind::kResult, 4);
  const FrameBytes repaired = frame(FrameKind::kContribution, 4, 1);
  const FrameBytes note = frame(FrameKind::kNote);
  const FrameBytes done = frame(FrameKind::kDone, 9);
  const FrameBytes partial = frame(FrameKind::kPartial, 4);
  FrameQueue queue;
  for (const FrameBytes& each : {later, earlier, partial, repaired, note, done}) queue.push(each);
  EXPECT_THAT(drain(queue), testing::ElementsAre(note, done, earlier, partial, repaired, later));
}

TEST(FrameQueue, OneRoundsFramesKeepTheirOrder) {
  FrameQueue queue;
  std::vector<FrameBytes> frames;
  for (int i = 0; i < 20; ++i) {
    frames.push_back(frame(i % 3 == 0 ? FrameKind::kResult : FrameKind::kContribution, 5, i % 2));
    queue.push(frames.back());
  }
  EXPECT_EQ(drain(queue), frames);
}

TEST(FrameQueue, AnEchoAndAGoodbyeFollowAllThatCameBeforeThem) {
  for (const FrameKind kind : {FrameKind::kEcho, FrameKind::kBye}) {
    const FrameBytes values = frame(FrameKind::kContribution, 9);
    const FrameBytes last = frame(kind);
    const FrameBytes note = frame(FrameKind::kNote);
    FrameQueue queue;
    for (const FrameBytes& each : {values, last, note}) queue.push(each);
    EXPECT_THAT(drain(queue), testing::ElementsAre(note, values, last));
    queue.push(last);
    queue.push(values);
    EXPECT_THAT(drain(queue), testing::ElementsAre(last, values)) << "nothing before it waits";
  }
}

TEST(FrameQueue, BytesThatAreNoFramesKeepTheirOrder) {
  FrameQueue queue;
  std::vector<FrameBytes> all;
  for (std::size_t i = 0; i < 100; ++i) {
    std::vector<std::byte> bytes(i, std::byte{1});
    all.push_back(std::make_shared<const std::vector<std::byte>>(std::move(bytes)));
    queue.push(all.back());
  }
  EXPECT_EQ(drain(queue), all);
}

// By the definition, over a plain list; pushes and pops at random.
TEST(FrameQueue, IsTheOrderOfItsDefinitionOnRandomSequences) {
  struct Waiting {
    int kind = 0;  // 0 word, 1 values, 2 echo
    std::int64_t sent = 0;
    FrameBytes bytes;
  };
  const Rng rng{3, Stream::kTestData};
  std::vector<Waiting> list;
  FrameQueue queue;
  int most = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const double draw = rng.uniform(i);
    if (draw < 0.5) {
      Waiting fresh{.kind = draw < 0.1    ? 0
                            : draw < 0.45 ? 1
                                          : 2,
                    .sent = 1 + static_cast<std::int64_t>(rng.uniform(i, 1) * 5),
                    .bytes = nullptr};
      fresh.bytes = frame(fresh.kind == 0   ? FrameKind::kCommit
                          : fresh.kind == 1 ? FrameKind::kContribution
                                            : FrameKind::kEcho,
                          fresh.sent);
      queue.push(fresh.bytes);
      list.push_back(std::move(fresh));
      most = std::max(most, static_cast<int>(list.size()));
      continue;
    }
    ASSERT_EQ(queue.empty(), list.empty());
    if (list.empty()) continue;
    auto next = list.end();
    if (list.front().kind == 2) next = list.begin();
    for (auto it = list.begin(); it != list.end() && next == list.end(); ++it) {
      if (it->kind == 0) next = it;
    }
    const bool word = next != list.end();
    for (auto it = list.begin(); it != list.end() && !word; ++it) {
      if (it->kind == 1 && (next == list.end() || it->sent < next->sent)) next = it;
    }
    ASSERT_EQ(queue.pop(), next->bytes) << i;
    list.erase(next);
  }
  EXPECT_GT(most, 20);
}

/// Links that carry one frame a tick each way, in the order of a queue or of arrival.
class TickNet {
 public:
  TickNet(int members, bool in_arrival_order) : fifo_(in_arrival_order) {
    for (int m = 0; m < members; ++m) {
      engines_.push_back(std::make_unique<ExchangeEngine>(
          EngineOptions{.self = WorkerId(m),
                        .members = members,
                        .exchange = {.retry_interval = std::chrono::hours(1)}}));
      queues_.emplace_back(static_cast<std::size_t>(members));
      arrivals_.emplace_back(static_cast<std::size_t>(members));
    }
  }
  [[nodiscard]] ExchangeEngine& engine(int m) { return *engines_[static_cast<std::size_t>(m)]; }
  void begin(int m, Contribution contribution) {
    Outbox out;
    Round round(std::move(contribution), engine(m).rounds().place(contribution.id));
    engine(m).begin(std::move(round), true, std::nullopt, {}, out);
    submit(m, out);
  }
  void tick() {
    std::vector<std::tuple<int, int, FrameBytes>> arrive;
    for (std::size_t from = 0; from < engines_.size(); ++from) {
      for (std::size_t to = 0; to < engines_.size(); ++to) {
        if (FrameBytes next = take(from, to)) {
          arrive.emplace_back(static_cast<int>(from), static_cast<int>(to), std::move(next));
        }
      }
    }
    for (auto& [from, to, bytes] : arrive) {
      Outbox out;
      engine(to).receive(WorkerId(from), std::move(bytes), {}, out);
      submit(to, out);
    }
  }

 private:
  void submit(int from, const Outbox& out) {
    for (const Outgoing& each : out) {
      const auto f = static_cast<std::size_t>(from), t = static_cast<std::size_t>(each.to.value());
      if (fifo_) {
        arrivals_[f][t].push_back(each.frame);
      } else {
        queues_[f][t].push(each.frame);
      }
    }
  }
  [[nodiscard]] FrameBytes take(std::size_t from, std::size_t to) {
    if (!fifo_) return queues_[from][to].empty() ? nullptr : queues_[from][to].pop();
    if (arrivals_[from][to].empty()) return nullptr;
    FrameBytes next = arrivals_[from][to].front();
    arrivals_[from][to].pop_front();
    return next;
  }
  bool fifo_;
  std::vector<std::unique_ptr<ExchangeEngine>> engines_;
  std::vector<std::vector<FrameQueue>> queues_;
  std::vector<std::vector<std::deque<FrameBytes>>> arrivals_;
};

struct Ticks {
  int first = 0, second = 0;  // at which all have the result
};

// The last member begins when the others have the second round under way already.
Ticks two_rounds(bool in_arrival_order) {
  constexpr int kMembers = 3;
  constexpr std::size_t kValues = 400'000;
  constexpr SyncId kFirst{FragmentId(1), StepIndex(4)};
  constexpr SyncId kSecond{FragmentId(0), StepIndex(6)};
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const std::vector<float> expected = naive_mean(*codec, kMembers, kValues, ReductionKind::kReduce);
  TickNet net(kMembers, in_arrival_order);
  const auto begin = [&](int m, const SyncId& id) {
    net.begin(m, contribution_of(codec, WorkerId(m), kValues, id, ReductionKind::kReduce));
  };
  for (int m = 0; m < kMembers - 1; ++m) begin(m, kFirst);
  Ticks ticks;
  for (int tick = 1; std::min(ticks.first, ticks.second) == 0 && tick < 10000; ++tick) {
    net.tick();
    if (tick == 5) {
      for (int m = 0; m < kMembers - 1; ++m) begin(m, kSecond);
      begin(kMembers - 1, kFirst);
      begin(kMembers - 1, kSecond);
    }
    const auto all_have = [&](const SyncId& id) {
      bool all = tick > 5;
      for (int m = 0; m < kMembers && all; ++m) all = net.engine(m).ready(id);
      return all;
    };
    if (ticks.first == 0 && all_have(kFirst)) ticks.first = tick;
    if (ticks.second == 0 && all_have(kSecond)) ticks.second = tick;
  }
  for (int m = 0; m < kMembers; ++m) {
    for (const SyncId& id : {kFirst, kSecond}) {
      const auto result = net.engine(m).take(id);
      EXPECT_TRUE(result && result_of(*codec, *result) == expected) << m;
    }
  }
  return ticks;
}

TEST(FrameQueue, ARoundThatIsDueFirstEndsEarlierAndTheOtherNoLater) {
  const Ticks in_order = two_rounds(true);
  const Ticks by_due = two_rounds(false);
  RecordProperty("first_in_arrival_order", in_order.first);
  RecordProperty("first_by_due", by_due.first);
  EXPECT_LT(4 * by_due.first, 3 * in_order.first);
  EXPECT_LE(by_due.second, in_order.second + 2);
}

}  // namespace
}  // namespace isthmus::this_file
