// SPDX-License-Identifier: Apache-2.0
// A hub that dies and comes back (elastic_run.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "transport/elastic_run.h"
#include "transport/exchange/membership.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;

/// No round is committed twice, and epochs follow one another.
void check_log(const std::vector<HubRecord>& log, const std::string& where) {
  std::map<SyncId, Digest128> committed;
  std::uint32_t epoch = 0;
  for (const HubRecord& record : log) {
    if (record.kind == HubRecord::Kind::kCommit) {
      const auto commit = read_commit(record);
      ASSERT_TRUE(commit.has_value()) << where;
      EXPECT_TRUE(committed.insert(*commit).second) << where << ": committed twice";
    } else {
      const std::span<const std::byte> body = record.body;
      const std::uint32_t number = static_cast<std::uint32_t>(body[0]);
      EXPECT_EQ(number, ++epoch) << where;
    }
  }
}

// The hub dies up to four times, at random moments or between a decision and the word of it, and
// a member, the first too, may die beside it.
TEST(ExchangeHubSweep, AHubMayDieAtWhateverMoment) {
  std::size_t deaths = 0;
  for (const std::uint64_t seed : sweep_seeds(seeds_of_a_kind())) {
    const SweptSchedule schedule(seed);
    Plan plan = plan_of(seed);
    plan.members = 2 + static_cast<int>(seed % 3);
    EngineNet net(plan.members, seed, faults_of(seed), true, 1, retry_of(seed), true);
    ElasticRun run(plan, net, keeps_all(seed));
    const int victim = static_cast<int>(seed / 7 % static_cast<std::uint64_t>(plan.members));
    // Who has lost the hub and the only other member does not wait for them.
    const int death = plan.members > 2 && seed % 5 < 2 ? static_cast<int>(net.uniform() * 250) : -1;
    int next = static_cast<int>(net.uniform() * 120);
    if (seed % 2 == 1) net.kill_hub_at_record(1 + static_cast<std::size_t>(net.uniform() * 8));
    int happened = 0, died_at = 0;
    while (run.advance()) {
      ASSERT_LT(++happened, 100000) << "seed " << seed;
      if (happened == death) net.kill(victim, 200ms);
      if (happened == next && !net.dead(net.hub())) net.kill(net.hub(), 200ms);
      if (net.dead(net.hub()) && died_at == 0) {
        died_at = happened;
        ++deaths;
      }
      if (died_at > 0 && happened > died_at + 60) {
        net.revive_hub();
        died_at = 0;
        if (deaths % 4 != 0) next = happened + 1 + static_cast<int>(net.uniform() * 120);
      }
    }
    run.check("seed " + std::to_string(seed));
    check_log(net.hub_log(), "seed " + std::to_string(seed));
    if (net.dead(net.hub())) net.revive_hub();
    const ExchangeEngine& hub = net.engine(net.hub());
    for (int m = 0; m < plan.members; ++m) {  // or it would be taken for an older copy
      EXPECT_TRUE(net.dead(m) || hub.hub().decided().includes(net.engine(m).hub().decided()))
          << "seed " << seed << " member " << m;
    }
    if (schedule.failed()) continue;
  }
  EXPECT_GT(deaths, seeds_of_a_kind());
}

// Sites that find each other may lose the hub and one another on the way.
TEST(ExchangeHub, NobodyIsCutOffFromARunThatHasNotBegun) {
  ExchangeEngine member(
      {.self = WorkerId(0), .members = 2, .exchange = {.elastic = true, .hub = true}});
  Outbox out;
  member.lose(WorkerId(1), "away", TimePoint{}, out);
  member.lose(WorkerId(2), "away", TimePoint{}, out);
  EXPECT_TRUE(member.take_epochs().empty());
}

// News of who has left that did not reach a member, which goes on with what it knows: the others'
// frames show that there is news, and the hub tells it again.
TEST(ExchangeHub, WhoMissesTheNewsIsToldAgainOnceOthersSpeakOfIt) {
  const EngineOptions options{.members = 3,
                              .exchange = {.retry_interval = 1s, .elastic = true, .hub = true}};
  const auto engine = [&](int self) {
    EngineOptions own = options;
    own.self = WorkerId(self);
    return ExchangeEngine(own);
  };
  ExchangeEngine hub = engine(3), knows = engine(0), missed = engine(1);
  Outbox news;
  ASSERT_TRUE(hub.release(WorkerId(2), 5, TimePoint{}, news));
  Outbox none;
  for (const Outgoing& each : news) {
    if (each.to == WorkerId(0)) knows.receive(WorkerId(3), each.frame, TimePoint{}, none);
  }
  ASSERT_EQ(knows.members().membership().number(), 1u);
  for (int second = 0; second < 5 && missed.members().membership().number() == 0; ++second) {
    const TimePoint now{second * 1s};
    Outbox of_others, asked, answer;
    knows.note(WorkerId(1), {}, of_others);
    missed.receive(WorkerId(0), of_others.front().frame, now, asked);
    for (const Outgoing& each : asked) {
      ASSERT_EQ(each.to, WorkerId(3));
      hub.receive(WorkerId(1), each.frame, now, answer);
    }
    for (const Outgoing& each : answer) missed.receive(WorkerId(3), each.frame, now, none);
  }
  EXPECT_EQ(missed.members().membership().number(), 1u);
}

// What a log that was written anew leaves out nobody asks for any more, but for the last round of
// each fragment: by it a member tells whether the log is older than what it has been told.
TEST(ExchangeHub, ALogIsAsNewAsWhatItsMembersKnow) {
  const auto at = [](int fragment, std::int64_t step) {
    return SyncId{FragmentId(fragment), StepIndex(step)};
  };
  ExchangeEngine hub(
      {.self = WorkerId(2), .members = 2, .exchange = {.elastic = true, .hub = true}});
  const std::vector<HubRecord> log = {commit_record(at(0, 10), {}), commit_record(at(1, 15), {}),
                                      commit_record(at(0, 20), {})};
  hub.hub().restore(log);
  const Decided whole = hub.hub().decided();
  EXPECT_EQ(whole.epoch, 0u);
  EXPECT_EQ(whole.newest, (std::vector{at(0, 20), at(1, 15)}));
  EXPECT_TRUE(whole.includes({.newest = {at(0, 10)}}));
  EXPECT_TRUE(whole.includes(whole));
  EXPECT_FALSE(whole.includes({.newest = {at(0, 20), at(1, 25)}}));
  EXPECT_FALSE(whole.includes({.newest = {at(2, 1)}}));
  EXPECT_FALSE(whole.includes({.epoch = 1}));
  Outbox out;
  // Both say that they are through with everything before step 30, so no verdict is kept.
  for (const WorkerId member : {WorkerId(0), WorkerId(1)}) {
    hub.hub().stands(member, TimePoint{}, out);
    hub.receive(member, make_frame({.kind = FrameKind::kProbe, .closed_before = 30}), TimePoint{},
                out);
  }
  ExchangeEngine next(
      {.self = WorkerId(2), .members = 2, .exchange = {.elastic = true, .hub = true}});
  next.hub().restore(hub.hub().history());
  EXPECT_EQ(hub.hub().history().size(), 2u);
  EXPECT_TRUE(next.hub().decided().includes(whole));
}

// A run that all have lost is none that all have left.
TEST(ExchangeHub, NobodyHasLeftWhereAllWereLost) {
  ExchangeEngine hub(
      {.self = WorkerId(2), .members = 2, .exchange = {.elastic = true, .hub = true}});
  Outbox out;
  for (const WorkerId member : {WorkerId(0), WorkerId(1)}) {
    EXPECT_FALSE(hub.all_left());
    hub.exclude(member, "its process has been started anew", TimePoint{}, out);
  }
  EXPECT_FALSE(hub.all_left());
}

TEST(ExchangeHub, WhatAHubHasDecidedSurvivesAsBytes) {
  const SyncId id{FragmentId(3), StepIndex(1234567890123)};
  const HubRecord record = commit_record(id, Digest128{{1, 2, 3}});
  const auto read = read_commit(record);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->first, id);
  EXPECT_EQ(read->second, (Digest128{{1, 2, 3}}));
  HubRecord with_shares = record;  // of an earlier program: one 32-bit number a member
  with_shares.body.resize(record.body.size() + 3 * sizeof(std::uint32_t));
  EXPECT_EQ(read_commit(with_shares)->first, id);
  EXPECT_EQ(read_commit(with_shares)->second, (Digest128{{1, 2, 3}}));
  HubRecord torn = record;
  torn.body.pop_back();
  EXPECT_FALSE(read_commit(torn).has_value());
}

}  // namespace
}  // namespace isthmus::this_file
