// SPDX-License-Identifier: Apache-2.0
// Both ends of a join in one process: notes go from one to the other when the test says so.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/join_host.h"
#include "app/newcomer.h"
#include "core/system_runtime.h"
#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

/// Of a member whose rounds end as the test says; begins nothing itself.
class FakeExchange final : public Exchange {
 public:
  explicit FakeExchange(Rank self) : self_(self) {}
  [[nodiscard]] Rank self() const override { return self_; }
  [[nodiscard]] int members() const override { return 3; }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return encode_key(id, 0); }
  Ticket begin(Contribution contribution) override { return {contribution.id}; }
  [[nodiscard]] bool poll(const Ticket&) override { return true; }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket, Duration) override {
    Reduced result;
    result.values.assign(200000, static_cast<float>(ticket.id.sent.value()));
    result.contributors = {Rank(0), Rank(1)};
    return result;
  }
  [[nodiscard]] ByteCounts bytes() const override { return {}; }

 private:
  Rank self_;
};

/// One tensor of values that a test can tell again.
class Loop final : public InnerLoop {
 public:
  Loop() : values_(300000) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i);
    parameter_ = {{.name = "w", .layer = 0, .shape = {300000}, .values = values_}};
  }
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameter_; }
  InnerStep train_step(StepIndex) override { return {}; }
  InnerStep gradients(StepIndex, const GradientReady&) override { return {}; }
  [[nodiscard]] std::span<float> gradient(std::size_t) override { return values_; }
  double apply_gradients(StepIndex) override { return 0; }
  [[nodiscard]] double loss(const TokenBatch&, const ParameterSource&) override { return 0; }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 0; }
  void reset_optimizer() override {}
  void save(StateWriter& writer) const override { writer.integer("steps", 41); }
  void load(StateReader&) override {}

 private:
  std::vector<float> values_;
  std::vector<Parameter> parameter_;
};

class Join : public ::testing::Test {
 protected:
  Join()
      : forwarding_(donor_),
        strategy_(make_outer_strategy("localsgd", {}, loop_, forwarding_)),
        host_({.sites = {"east", "west", "north"},
               .run_id = "run",
               .own = own(),
               .send = [this](Rank to, const Note& note) { sent_.emplace_back(to, note); },
               .wish = [this](const WishNote&) { ++wishes_; },
               .admit =
                   [this](Rank joiner, std::int64_t after) {
                     admitted_.push_back(fmt::format("{} after {}", joiner.value(), after));
                     return true;
                   },
               .live = [this] { return live_; },
               .clock_s = [] { return 12.5; },
               .window = 5,
               .total_steps = 100,
               .least_under_way = 0}) {}

  static HelloNote own() {
    HelloNote note;
    note.common = {{"train.steps", "100"}};
    return note;
  }
  /// All notes to `to` reach `newcomer`, and its answers the host, until nothing is under way.
  void settle(Newcomer& newcomer, Rank to) {
    while (!sent_.empty()) {
      const auto [rank, note] = sent_.front();
      sent_.pop_front();
      if (rank == to) newcomer.receive(note);
      while (!answers_.empty()) {
        const Note answer = answers_.front();
        answers_.pop_front();
        host_.receive(to, answer);
      }
    }
  }
  std::unique_ptr<Newcomer> newcomer(Rank self) {
    real_ = std::make_unique<FakeExchange>(self);
    return std::make_unique<Newcomer>(*real_, runtime_, "a",
                                      [this](const Note& note) { answers_.push_back(note); });
  }
  void after_step(std::int64_t t) {
    host_.after_step(StepIndex(t), loop_, *strategy_, forwarding_);
  }

  SystemRuntime runtime_;
  FakeExchange donor_{Rank(0)};
  ForwardingExchange forwarding_;
  Loop loop_;
  std::unique_ptr<OuterStrategy> strategy_;
  std::deque<std::pair<Rank, Note>> sent_;
  std::deque<Note> answers_;
  std::unique_ptr<FakeExchange> real_;
  int wishes_ = 0;
  std::vector<bool> live_ = {true, true, false};
  std::vector<std::string> admitted_;
  JoinHost host_;
};

TEST_F(Join, GivesAStateThenResultsUntilAllHaveAgreed) {
  host_.hello(Rank(2), own());
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_THAT(std::get<RunningNote>(sent_.front().second).live, ElementsAre(0, 1));
  sent_.clear();
  const auto north = newcomer(Rank(2));
  host_.receive(Rank(2), JoinNote{{0, 1}});
  after_step(7);
  settle(*north, Rank(2));
  ASSERT_TRUE(north->fetch(runtime_.clock().now()));
  EXPECT_EQ(north->offer().step, StepIndex(7));
  EXPECT_EQ(north->offer().clock_s, 12.5);
  const std::unique_ptr<StateReader> state = north->take_state();
  std::vector<float> values(300000);
  state->tensor("local/w", values);
  EXPECT_EQ(values[299999], 299999.0f);
  EXPECT_EQ(state->integer("inner/steps"), 41);

  // Its strategy asks for the round of step 8; the donor takes it, in several notes.
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const Ticket ticket =
      north->exchange().begin({.id = {FragmentId(0), StepIndex(8)},
                               .encoded = encode(*codec, std::vector<float>(200000)),
                               .codec = codec});
  ASSERT_TRUE(forwarding_.wait({{FragmentId(0), StepIndex(8)}}, 1s));
  after_step(8);
  settle(*north, Rank(2));
  EXPECT_TRUE(north->may_replay(StepIndex(8), 0s));
  const auto result = north->exchange().wait(ticket, 0s);
  ASSERT_TRUE(result.has_value()) << result.error().what;
  EXPECT_EQ(result->values, std::vector<float>(200000, 8.0f));

  // Step 9 is not over at the donor: the newcomer has caught up, once.
  for (int k = 0; k < 2; ++k) EXPECT_THROW((void)north->may_replay(StepIndex(9), 0s), PeerError);
  settle(*north, Rank(2));
  while (!answers_.empty()) {
    host_.receive(Rank(2), answers_.front());
    answers_.pop_front();
  }
  EXPECT_EQ(wishes_, 1);
  EXPECT_TRUE(host_.agreed(11));
  EXPECT_THAT(admitted_, ElementsAre("2 after 11"));
  north->admitted(11);
  EXPECT_TRUE(north->may_replay(StepIndex(11), 0s));
  EXPECT_FALSE(north->may_replay(StepIndex(12), 0s));

  // Rounds sent by step 11 are still forwarded while they may end, later ones never.
  for (const std::int64_t sent : {11, 12}) {
    ASSERT_TRUE(forwarding_.wait({{FragmentId(0), StepIndex(sent)}}, 1s));
  }
  int streams = 0;
  for (const auto& [to, note] : sent_) streams += std::holds_alternative<ResultNote>(note) ? 1 : 0;
  EXPECT_EQ(streams, 2);  // 800,000 bytes are two pieces
}

// The model has 1.2 MB, so twelve results of 0.8 MB may be on their way, not before they are taken.
TEST_F(Join, TurnsAwayWhoTakesInLessThanTheRunMakes) {
  const auto north = newcomer(Rank(2));
  host_.receive(Rank(2), JoinNote{{0, 1}});
  after_step(7);
  std::int64_t t = 7;
  const auto results = [&](int count) {
    for (int k = 0; k < count; ++k) {
      ASSERT_TRUE(forwarding_.wait({{FragmentId(0), StepIndex(++t)}}, 1s));
    }
  };
  const auto turned_away = [&] {
    return std::ranges::any_of(sent_, [](const auto& sent) {
      return std::holds_alternative<TurnedAwayNote>(sent.second);
    });
  };
  results(11);
  settle(*north, Rank(2));  // all taken
  results(11);
  EXPECT_FALSE(turned_away());
  results(1);
  ASSERT_TRUE(turned_away());
  EXPECT_THAT(std::get<TurnedAwayNote>(sent_.back().second).why, HasSubstr("less than the run"));
  const std::size_t sent = sent_.size();
  results(5);
  after_step(t);
  EXPECT_EQ(sent_.size(), sent) << "nothing more is kept for it";
}

TEST_F(Join, IsOneAtATimeAndEndsWithALoss) {
  live_ = {true, false, false};
  host_.receive(Rank(1), JoinNote{{0}});
  host_.receive(Rank(2), JoinNote{{0, 1}});
  after_step(3);
  EXPECT_EQ(sent_.front().first, Rank(1));
  EXPECT_EQ(sent_.size(), 1u);
  sent_.clear();
  host_.receive(Rank(1), CaughtUpNote{});
  EXPECT_EQ(wishes_, 1);
  host_.lost(Rank(1));
  EXPECT_FALSE(host_.agreed(5)) << "whoever it was about is gone";
  EXPECT_TRUE(admitted_.empty());
  after_step(4);
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_.front().first, Rank(2));
  EXPECT_EQ(std::get<OfferNote>(sent_.front().second).step, StepIndex(4));
}

TEST_F(Join, WhoIsInTheRunDoesNotJoin) {
  host_.receive(Rank(1), JoinNote{{0}});
  after_step(3);
  EXPECT_TRUE(sent_.empty());
}

TEST_F(Join, AsksAgainWhoDoesNotKnowAll) {
  host_.receive(Rank(2), JoinNote{{0}});
  EXPECT_THAT(std::get<RunningNote>(sent_.front().second).live, ElementsAre(0, 1));
  sent_.clear();
  after_step(3);
  EXPECT_TRUE(sent_.empty());
}

TEST_F(Join, EndsWithTheRun) {
  host_.receive(Rank(2), JoinNote{{0, 1}});
  after_step(3);
  host_.receive(Rank(2), CaughtUpNote{});
  sent_.clear();
  EXPECT_FALSE(host_.agreed(100)) << "there is no step left";
  EXPECT_THAT(std::get<TurnedAwayNote>(sent_.front().second).why, HasSubstr("last step"));
  host_.receive(Rank(2), JoinNote{{0, 1}});
  sent_.clear();
  host_.close();
  EXPECT_THAT(std::get<TurnedAwayNote>(sent_.front().second).why, HasSubstr("has ended"));
}

TEST_F(Join, TurnsAwayAnotherConfiguration) {
  HelloNote other;
  other.common = {{"train.steps", "200"}};
  host_.hello(Rank(2), other);
  const auto& note = std::get<TurnedAwayNote>(sent_.front().second);
  EXPECT_TRUE(note.configuration);
  EXPECT_THAT(note.why, HasSubstr("train.steps is 100 at east and 200 at north"));
}

TEST_F(Join, RefusesWhatItDidNotAskFor) {
  const auto north = newcomer(Rank(2));
  north->receive(OfferNote{.step = StepIndex(3), .bytes = 1000, .clock_s = 0});
  north->receive(PieceNote{.offset = 10, .bytes = std::vector<std::byte>(10)});
  EXPECT_THROW((void)north->fetch(runtime_.clock().now()), PeerError);

  const auto again = newcomer(Rank(2));
  again->receive(OfferNote{.step = StepIndex(3), .bytes = 10, .clock_s = 0});
  again->receive(PieceNote{.offset = 0, .bytes = std::vector<std::byte>(10)});
  ASSERT_TRUE(again->fetch(runtime_.clock().now()));
  EXPECT_THROW((void)again->take_state(), PeerError) << "ten zeros are no state";
}

}  // namespace
}  // namespace isthmus::app
