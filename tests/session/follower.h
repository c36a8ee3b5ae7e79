// SPDX-License-Identifier: Apache-2.0
// A trainer of a caller's for tests: small, with inner state, and another target at each worker.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "isthmus/errors.h"
#include "isthmus/session.h"

namespace isthmus::testing_support {

/// Two tensors that follow a target which differs by worker, with momentum.
class Follower : public InnerLoop {
 public:
  explicit Follower(int worker) : worker_(worker) {
    for (std::size_t p = 0; p < 2; ++p) {
      const auto begin = static_cast<std::int64_t>(2 * p);
      parameters_.push_back({.name = p == 0 ? "first" : "second",
                             .layer = static_cast<int>(p),
                             .shape = {2},
                             .elements = {begin, begin + 2},
                             .values = std::span(values_).subspan(2 * p, 2)});
    }
    restart();
  }
  void restart() {
    values_ = {1, 2, 3, 4};
    velocity_ = {};
  }
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  InnerStep train_step(StepIndex t) override {
    double loss = 0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const auto target = static_cast<float>((t.value() * 7 + worker_ * 3) % 5);
      const float difference = values_[i] - target;
      velocity_[i] = 0.5f * velocity_[i] + difference;
      values_[i] -= 0.1f * velocity_[i];
      loss += 0.5 * static_cast<double>(difference * difference);
    }
    return {.loss = loss, .grad_norm = 1, .tokens = 4};
  }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 0.1; }
  void save(StateWriter& writer) const override { writer.tensor("velocity", velocity_); }
  void load(StateReader& reader) override { reader.tensor("velocity", velocity_); }

 private:
  const int worker_;
  std::array<float, 4> values_{}, velocity_{};
  std::vector<Parameter> parameters_;
};

class FollowerTrainer final : public Trainer {
 public:
  /// `shift`: how far the second tensor starts from where others' do.
  explicit FollowerTrainer(const WorkerContext& worker, float shift = 0)
      : loop_(worker.rank.value()) {
    for (float& value : loop_.parameters()[1].values) value += shift;
  }
  [[nodiscard]] InnerLoop& loop() override { return loop_; }

 private:
  Follower loop_;
};

/// The same, which takes every step as early as it may, so that whoever reads or changes its
/// parameters meanwhile sees, or spoils, those of later steps.
class AheadTrainer final : public Trainer {
 public:
  /// Counts the steps that were taken before they were asked for.
  AheadTrainer(const WorkerContext& worker, std::atomic<int>& ahead)
      : loop_(worker.rank.value(), ahead) {}
  [[nodiscard]] InnerLoop& loop() override { return loop_; }
  [[nodiscard]] bool trains_ahead() const override { return true; }
  void may_train_until(StepIndex last) override { loop_.until = last; }
  void stop_training_ahead() override { loop_.taken.clear(); }

 private:
  class Loop final : public InnerLoop {
   public:
    Loop(int worker, std::atomic<int>& ahead) : loop_(worker), ahead_(ahead) {}
    [[nodiscard]] std::span<const Parameter> parameters() const override {
      return loop_.parameters();
    }
    InnerStep train_step(StepIndex t) override {
      if (taken.empty()) {
        for (StepIndex each = t; each <= std::max(t, until); each = StepIndex(each.value() + 1)) {
          taken.emplace_back(each, loop_.train_step(each));
          if (each > t) ++ahead_;
        }
        until = StepIndex(0);
      }
      const auto [step, result] = taken.front();
      if (step != t) throw RunError("another step is asked for than was said");
      taken.pop_front();
      return result;
    }
    [[nodiscard]] double learning_rate(StepIndex t) const override {
      return loop_.learning_rate(t);
    }
    void read_values(CanonicalRange) override { check(); }
    void wrote_values(CanonicalRange) override { check(); }
    void reset_optimizer() override { check(); }
    void save(StateWriter& writer) const override {
      check();
      loop_.save(writer);
    }
    void load(StateReader& reader) override {
      check();
      loop_.load(reader);
    }

    StepIndex until{0};
    std::deque<std::pair<StepIndex, InnerStep>> taken;

   private:
    void check() const {
      if (!taken.empty()) throw RunError("the trainer is ahead of the step after which it is used");
    }
    Follower loop_;
    std::atomic<int>& ahead_;
  };
  Loop loop_;
};

[[nodiscard]] inline TrainerFacts follower_facts() {
  const Follower loop(0);
  TrainerFacts facts{.parameters = {loop.parameters().begin(), loop.parameters().end()},
                     .kind = "follower"};
  for (Parameter& each : facts.parameters) each.values = {};
  return facts;
}

}  // namespace isthmus::testing_support
