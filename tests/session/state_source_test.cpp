// SPDX-License-Identifier: Apache-2.0
// What a site gives of its state, and what it makes of notes that no honest site sends.
#include "session/site/state_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/base/system_runtime.h"
#include "core/state/state_bytes.h"
#include "session/run/worker_state.h"
#include "session/site/joiner.h"
#include "session/site/state_server.h"
#include "transport/exchange/catch_up/joining_exchange.h"

namespace isthmus::app::this_file {
namespace {

using namespace std::chrono_literals;

constexpr WorkerId kEast(0);
constexpr WorkerId kNorth(2);

class NoExchange final : public Exchange {
 public:
  [[nodiscard]] WorkerId self() const override { return WorkerId(1); }
  [[nodiscard]] int members() const override { return 3; }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return encode_key(id, 0); }
  Ticket begin(Contribution contribution) override { return {contribution.id}; }
  [[nodiscard]] bool poll(const Ticket&) override { return true; }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket&, Duration) override {
    return Reduced();
  }
  [[nodiscard]] ByteCounts bytes() const override { return {}; }
};

class Loop final : public InnerLoop {
 public:
  Loop() : values_(100'000) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i);
    parameter_ = {
        {.name = "w", .layer = 0, .shape = {100'000}, .elements = {0, 100'000}, .values = values_}};
  }
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameter_; }
  InnerStep train_step(StepIndex) override { return {}; }
  InnerStep gradients(StepIndex, const GradientReady&) override { return {}; }
  [[nodiscard]] std::span<float> gradient(std::size_t) override { return values_; }
  double apply_gradients(StepIndex) override { return 0; }
  [[nodiscard]] double loss(const TokenBatch&, const ParameterSource&) override { return 0; }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 0; }
  void reset_optimizer() override {}
  void save(StateWriter& writer) const override {
    if (fails_) throw std::bad_alloc();
    writer.integer("steps", 41);
  }
  void load(StateReader&) override {}
  bool fails_ = false;

 private:
  std::vector<float> values_;
  std::vector<Parameter> parameter_;
};

class Source : public ::testing::Test {
 protected:
  Source()
      : strategy_(make_outer_strategy("localsgd", {}, loop_, exchange_)),
        source_({.sites = {"east", "west", "north"},
                 .bits_per_s = {},
                 .send = [this](WorkerId, const Note& note) { sent_.push_back(note); }}) {}

  void table(const PieceTable& table) {
    const std::vector<std::byte> bytes = write_table(table);
    for (NoteStreamCutter cutter(0, 0, bytes); !cutter.done();) {
      source_.receive(kEast, TableNote{cutter.next()});
    }
  }
  [[nodiscard]] std::vector<std::byte> state() {
    return write_state(worker_snapshot(loop_, *strategy_, true));
  }

  NoExchange exchange_;
  Loop loop_;
  std::unique_ptr<OuterStrategy> strategy_;
  std::vector<Note> sent_;
  StateSource source_;
};

TEST_F(Source, ASecondTableChangesNothing) {
  const std::vector<std::byte> own = state();
  const PieceTable first = cut_pieces(own, state_borders(own));
  ASSERT_GT(first.size(), 2u);
  source_.receive(kEast, PrepareNote{.newcomer = 2, .step = StepIndex(5)});
  source_.after_step(StepIndex(5), loop_, *strategy_);
  EXPECT_FALSE(source_.next(TimePoint(1h), false)) << "nothing is asked for";
  table(first);
  EXPECT_TRUE(sent_.empty()) << "not by the task that receives";
  EXPECT_FALSE(source_.next(TimePoint(1h), false));
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(std::get<HoldsNote>(sent_.front()).pieces, std::vector<bool>(first.size(), true));

  PieceTable second;  // of ten times as many pieces, of a byte each
  for (std::size_t k = 0; k < 10 * first.size(); ++k) second.push_back({.offset = k, .bytes = 1});
  table(second);
  const StatePiece& last = first.back();
  source_.receive(kNorth, GetNote{.offset = 10 * first.size() - 1, .bytes = 1});
  source_.receive(kNorth, GetNote{.offset = last.offset, .bytes = last.bytes});
  source_.receive(kNorth, GetNote{.offset = last.offset + last.bytes, .bytes = 1});
  std::vector<std::pair<std::uint64_t, std::size_t>> given;
  while (const auto part = source_.next(TimePoint(1h), false)) {
    const auto& [offset, bytes] = part->second;
    ASSERT_LE(offset + bytes.size(), own.size());
    EXPECT_TRUE(std::ranges::equal(bytes, std::span(own).subspan(offset, bytes.size())));
    given.emplace_back(offset, bytes.size());
  }
  EXPECT_THAT(given,
              testing::Contains(std::pair<std::uint64_t, std::size_t>(last.offset, last.bytes)));
  EXPECT_EQ(sent_.size(), 1u);
}

TEST_F(Source, WithoutMemoryForItsStateItGivesNothing) {
  const std::vector<std::byte> own = state();
  source_.receive(kEast, PrepareNote{.newcomer = 2, .step = StepIndex(5)});
  loop_.fails_ = true;
  source_.after_step(StepIndex(5), loop_, *strategy_);
  loop_.fails_ = false;
  table(cut_pieces(own, state_borders(own)));
  source_.after_step(StepIndex(6), loop_, *strategy_);
  EXPECT_FALSE(source_.next(TimePoint(1h), false));
  EXPECT_TRUE(sent_.empty());
  EXPECT_TRUE(source_.takes_in()) << "the others give";
  source_.forget(kNorth);
  EXPECT_FALSE(source_.takes_in());
}

// It has a state of gigabytes to read in, and results to replay, before it takes part.
TEST_F(Source, WhoHasTheWholeStateIsBeingTakenInUntilItJoinsOrGoes) {
  EXPECT_FALSE(source_.takes_in());
  for (const bool donor : {true, false}) {
    for (const bool joins : {true, false}) {
      if (donor) {
        static_cast<void>(source_.hold(kNorth, state()));
      } else {
        source_.receive(kEast, PrepareNote{.newcomer = 2, .step = StepIndex(5)});
      }
      source_.receive(kNorth, EnoughNote{});
      EXPECT_TRUE(source_.takes_in());
      EXPECT_FALSE(source_.serves(kNorth));
      joins ? source_.forget(kNorth) : source_.lost(kNorth, TimePoint(1h));
      EXPECT_FALSE(source_.takes_in());
    }
  }
}

TEST_F(Source, WhoFallsBehindIsGivenItWhileRoundsAreOpen) {
  static_cast<void>(source_.hold(kNorth, state()));
  const auto asks = [&] { source_.receive(kNorth, GetNote{.offset = 0, .bytes = 10}); };
  TimePoint now(1h);
  asks();
  ASSERT_TRUE(source_.next(now, true));
  asks();
  now += 1s;
  EXPECT_FALSE(source_.next(now, true));
  source_.hurry(kEast);
  EXPECT_FALSE(source_.next(now, true)) << "another one";
  source_.hurry(kNorth);
  EXPECT_TRUE(source_.next(now, true));
}

// Every site of the run is told of the pieces that the next one is given.
TEST_F(Source, WhoHasJoinedLeavesTheNextOnesTableAside) {
  SystemRuntime runtime;
  Joiner north(exchange_, runtime, kEast, {"east", "west", "north"}, [](WorkerId, const Note&) {});
  const auto take_table = [&](const PieceTable& table) {
    const std::vector<std::byte> bytes = write_table(table);
    north.receive(kEast, TableNote{NoteStreamCutter(0, 0, bytes).next()});
  };
  const std::vector<std::byte> zeros(1000);
  north.receive(kEast, OfferNote{.step = StepIndex(3), .bytes = 1000, .clock_s = 0});
  take_table(cut_pieces(zeros, {}));
  north.receive(kEast, PieceNote{.offset = 0, .bytes = zeros});
  ASSERT_TRUE(north.fetch(runtime.clock().now()));
  take_table(cut_pieces(std::span(zeros).first(999), {}));
  EXPECT_TRUE(north.fetch(runtime.clock().now()));
}

TEST_F(Source, AServerThatCannotSendGoesOn) {
  SystemRuntime runtime;
  const std::unique_ptr<WaitQueue> queue = runtime.make_wait_queue();
  int sent = 0;
  static_cast<void>(source_.hold(kNorth, state()));
  StateServer server(
      runtime, source_,
      [&](WorkerId, const Note&) {
        queue->update([&] { ++sent; });
        throw std::runtime_error("no memory");
      },
      [] { return false; });
  // Who joins asks until it is answered: what is asked during a failure is forgotten with the rest.
  const TimePoint deadline = runtime.clock().now() + 60s;
  bool twice = false;
  while (!twice && runtime.clock().now() < deadline) {
    source_.receive(kNorth, GetNote{.offset = 0, .bytes = 10});
    server.wake();
    twice = queue->wait([&] { return sent >= 2; }, runtime.clock().now() + 20ms);
  }
  EXPECT_TRUE(twice);
}

}  // namespace
}  // namespace isthmus::app::this_file
