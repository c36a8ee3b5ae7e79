// SPDX-License-Identifier: Apache-2.0
// Both ends of a join in one process: notes go from one to the other when the test says so.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/system_runtime.h"
#include "session/run/partial_state_file.h"
#include "session/site/joiner.h"
#include "session/site/state_donor.h"
#include "session/site/state_source.h"

namespace isthmus::app {

using namespace std::chrono_literals;

/// Of a member whose rounds end as the test says; begins nothing itself.
class FakeExchange final : public Exchange {
 public:
  explicit FakeExchange(WorkerId self) : self_(self) {}
  [[nodiscard]] WorkerId self() const override { return self_; }
  [[nodiscard]] int members() const override { return 3; }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return encode_key(id, 0); }
  Ticket begin(Contribution contribution) override { return {contribution.id}; }
  [[nodiscard]] bool poll(const Ticket&) override { return true; }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket, Duration) override {
    Reduced result;
    result.values.assign(200000, static_cast<float>(ticket.id.sent.value()));
    result.contributors = {WorkerId(0), WorkerId(1)};
    return result;
  }
  [[nodiscard]] ByteCounts bytes() const override { return {}; }

 private:
  WorkerId self_;
};

/// One tensor of values that a test can tell again.
class Loop final : public InnerLoop {
 public:
  Loop() : values_(300000) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i);
    parameter_ = {
        {.name = "w", .layer = 0, .shape = {300000}, .elements = {0, 300000}, .values = values_}};
  }
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameter_; }
  [[nodiscard]] std::vector<float>& values() { return values_; }
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
        source_({.sites = {"east", "west", "north"},
                 .bits_per_s = {},
                 .send = [this](WorkerId to, const Note& note) { sent_.emplace_back(to, note); }}),
        west_({.sites = {"east", "west", "north"},
               .bits_per_s = {},
               .send = [this](WorkerId, const Note& note) { from_west_.push_back(note); }}),
        host_({.sites = {"east", "west", "north"},
               .run_id = "run",
               .own = own(),
               .send = [this](WorkerId to, const Note& note) { sent_.emplace_back(to, note); },
               .wish = [this](const WishNote&) { ++wishes_; },
               .admit =
                   [this](WorkerId joiner, std::int64_t after) {
                     admitted_.push_back(fmt::format("{} after {}", joiner.value(), after));
                     return true;
                   },
               .live = [this] { return live_; },
               .clock_s = [] { return 12.5; },
               .window = 5,
               .total_steps = 100,
               .least_under_way = 0},
              source_) {}

  static HelloNote own() {
    HelloNote note;
    note.common = {{"train.steps", "100"}};
    return note;
  }
  /// What the newcomer has said reaches those it is for.
  void answer() {
    while (!answers_.empty()) {
      const auto [to, note] = answers_.front();
      answers_.pop_front();
      (to == WorkerId(0) ? source_ : west_).receive(WorkerId(2), note);
      if (to == WorkerId(0)) host_.receive(WorkerId(2), note);
    }
  }
  /// All notes reach whom they are for, until nothing is under way.
  void settle(Joiner& newcomer) {
    while (true) {
      answer();
      const TimePoint now = runtime_.clock().now();
      if (const auto part = source_.next(now, false)) sent_.emplace_back(part->first, part->second);
      if (const auto part = west_.next(now, false)) from_west_.emplace_back(part->second);
      if (!from_west_.empty()) {
        newcomer.receive(WorkerId(1), from_west_.front());
        from_west_.pop_front();
      } else if (!sent_.empty()) {
        const auto [to, note] = sent_.front();
        sent_.pop_front();
        if (to == WorkerId(1)) west_.receive(WorkerId(0), note);
        if (to == WorkerId(2)) newcomer.receive(WorkerId(0), note);
      } else {
        return;
      }
    }
  }
  std::unique_ptr<Joiner> newcomer(WorkerId self) {
    real_ = std::make_unique<FakeExchange>(self);
    return std::make_unique<Joiner>(
        *real_, runtime_, WorkerId(0), std::vector<std::string>{"east", "west", "north"},
        [this](WorkerId to, const Note& note) { answers_.emplace_back(to, note); });
  }
  /// One whose pieces go to a file.
  std::unique_ptr<Joiner> saving_newcomer() {
    real_ = std::make_unique<FakeExchange>(WorkerId(2));
    return std::make_unique<Joiner>(
        *real_, runtime_, WorkerId(0), std::vector<std::string>{"east", "west", "north"},
        [this](WorkerId to, const Note& note) { answers_.emplace_back(to, note); },
        std::make_unique<PartialStateFile>(storage_, file_));
  }
  /// Until `condition`, which some task brings about.
  void until(const std::function<bool()>& condition) {
    const TimePoint deadline = runtime_.clock().now() + 60s;
    const std::unique_ptr<WaitQueue> nothing = runtime_.make_wait_queue();
    while (!condition()) {
      ASSERT_LT(runtime_.clock().now(), deadline);
      (void)nothing->wait([] { return false; }, runtime_.clock().now() + 1ms);
    }
  }
  [[nodiscard]] bool offered(std::int64_t after) const {
    return std::ranges::any_of(sent_, [&](const auto& each) {
      const auto* offer = std::get_if<OfferNote>(&each.second);
      return offer != nullptr && offer->step == StepIndex(after);
    });
  }
  void after_step(std::int64_t t) {
    host_.after_step(StepIndex(t), loop_, *strategy_, forwarding_);
  }

  SystemRuntime runtime_;
  FakeExchange donor_{WorkerId(0)};
  ForwardingExchange forwarding_;
  Loop loop_;
  std::unique_ptr<OuterStrategy> strategy_;
  std::deque<std::pair<WorkerId, Note>> sent_;
  std::deque<Note> from_west_;
  std::deque<std::pair<WorkerId, Note>> answers_;
  std::unique_ptr<FakeExchange> real_;
  int wishes_ = 0;
  std::vector<bool> live_ = {true, true, false};
  std::vector<std::string> admitted_;
  StateSource source_;
  StateSource west_;
  StateDonor host_;
  SystemStorage storage_;
  const std::filesystem::path file_ =
      std::filesystem::path(testing::TempDir()) / "join_test" / PartialStateFile::kFile;
};

}  // namespace isthmus::app
