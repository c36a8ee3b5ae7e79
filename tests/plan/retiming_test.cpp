// SPDX-License-Identifier: Apache-2.0
// Re-timing against the real methods and the real exchange in virtual time: every step of every run
// at the same nanosecond, after the same bytes.
#include "plan/retiming.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <vector>

#include "isthmus/outer.h"
#include "plan/prediction.h"
#include "plan/retiming_scenarios.h"
#include "sim/run_simulated.h"

namespace isthmus::this_file {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;

/// A loop that learns something simple and takes its time, as the one of `simulate` does.
class ClockedLoop final : public InnerLoop {
 public:
  ClockedLoop(const Scenario& scenario, WorkerContext& context)
      : scenario_(scenario), runtime_(context.runtime), rank_(context.rank) {
    std::int64_t begin = 0;
    for (const std::int64_t size : scenario.sizes) {
      const auto count = static_cast<std::size_t>(size);
      values_.emplace_back(count, 0.25F);
      gradients_.emplace_back(count, 0.5F);
      first_.emplace_back(count, 0.125F);
      second_.emplace_back(count, 0.5F);
      parameters_.push_back({.name = fmt::format("layer {}", parameters_.size()),
                             .layer = static_cast<int>(parameters_.size()),
                             .shape = {size},
                             .elements = {begin, begin + size},
                             .values = values_.back()});
      begin += size;
    }
    total_ = begin;
  }
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  InnerStep train_step(StepIndex t) override {
    const std::optional<Duration> length = step_of(scenario_, rank_, t);
    if (!length) return {.idle = true};
    runtime_.compute(*length, [&] {
      for (auto& values : values_) values[0] -= 0.01F * static_cast<float>(rank_.value() + 1);
    });
    return {.tokens = 1};
  }
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override {
    const TimePoint begin = runtime_.clock().now();
    const Duration length = *step_of(scenario_, rank_, t);
    const auto share = [&](double part) {
      return Duration(static_cast<Duration::rep>(static_cast<double>(length.count()) * part));
    };
    runtime_.compute(share(kForwardShare), [] {});
    for (auto& gradient : gradients_) gradient.assign(gradient.size(), 0.5F);
    std::int64_t done = 0;
    for (std::size_t i = on_ready ? parameters_.size() : 0; i-- > 0;) {
      done += parameters_[i].elements.size();
      const double backward = static_cast<double>(done) / static_cast<double>(total_);
      runtime_.sleep_until(begin + share(kForwardShare + (1 - kForwardShare) * backward));
      on_ready(i);
    }
    runtime_.sleep_until(begin + length);
    return {.tokens = 1};
  }
  [[nodiscard]] std::span<float> gradient(std::size_t i) override { return gradients_[i]; }
  double apply_gradients(StepIndex) override {
    runtime_.compute(Duration{0}, [] {});
    return 1;
  }
  InnerStep train_loss(StepIndex t, SampleShare, const ParameterSource&) override {
    runtime_.compute(t == loss_step_ ? Duration{0} : *step_of(scenario_, rank_, t), [] {});
    loss_step_ = t;
    return {.loss = 1, .tokens = 1};
  }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 1e-3; }
  [[nodiscard]] AdamSettings adam_settings() const override { return {}; }
  [[nodiscard]] AdamMoments adam_moments(std::size_t i) override { return {first_[i], second_[i]}; }
  void reset_optimizer() override {}

 private:
  const Scenario& scenario_;
  Runtime& runtime_;
  WorkerId rank_;
  std::vector<std::vector<float>> values_, gradients_, first_, second_;
  std::vector<Parameter> parameters_;
  std::int64_t total_ = 0;
  StepIndex loss_step_;
};

RetimedRun simulate(const Scenario& scenario, const DirectedLink& link) {
  RetimedRun run;
  run.steps.resize(static_cast<std::size_t>(scenario.steps));
  SimulationOptions options{.workers = scenario.workers,
                            .links = uniform_links(scenario.workers, link),
                            .exchange = {.retry_interval = hours(24 * 365)}};
  options.network.link = {.model = scenario.model, .byte_scale = scenario.byte_scale};
  run_simulated(options, [&](WorkerContext& context) {
    ClockedLoop inner(scenario, context);
    const auto strategy =
        make_outer_strategy(scenario.method, scenario.options, inner, context.exchange);
    for (std::int64_t t = 1; t <= scenario.steps; ++t) {
      (void)strategy->step();
      if (t == scenario.steps) (void)strategy->finish();
      const ByteCounts bytes = context.exchange.bytes();
      RetimedStep& step = run.steps[static_cast<std::size_t>(t) - 1];
      step.end = std::max(step.end, context.runtime.clock().now());
      step.payload_bytes = std::max(step.payload_bytes, bytes.payload);
      step.wire_bytes = std::max(step.wire_bytes, bytes.wire);
    }
  });
  return run;
}

const std::vector<DirectedLink> kLinks = {
    {.bits_per_s = 100'000'000, .one_way = milliseconds(40)},
    {.bits_per_s = 3'000'000, .one_way = milliseconds(7)},
    {.bits_per_s = 10'000'000'000, .one_way = microseconds(50)},
    {.bits_per_s = 25'000'000, .one_way = milliseconds(75), .jitter = milliseconds(5)},
    {.bits_per_s = 50'000'000,
     .one_way = milliseconds(20),
     .loss = 0.001,
     .streams = 4,
     .congestion = Congestion::kCubic},
    {.one_way = milliseconds(10)},  // of any rate
};

class RetimedRuns : public testing::TestWithParam<Scenario> {};

TEST_P(RetimedRuns, AreTheSimulationAtTheOtherLinkToTheNanosecond) {
  const Scenario& scenario = GetParam();
  const RunProgram program = program_of(scenario);
  for (const DirectedLink& link : kLinks) {
    const RetimedRun simulated = simulate(scenario, link);
    const RetimedRun again = retime(retiming_of(scenario, program, link));
    ASSERT_EQ(again.steps.size(), simulated.steps.size());
    for (std::size_t i = 0; i < again.steps.size(); ++i) {
      const auto where = fmt::format("step {} at {} bit/s", i + 1, link.bits_per_s);
      ASSERT_EQ(again.steps[i].end.time_since_epoch().count(),
                simulated.steps[i].end.time_since_epoch().count())
          << where;
      ASSERT_EQ(again.steps[i].payload_bytes, simulated.steps[i].payload_bytes) << where;
      ASSERT_EQ(again.steps[i].wire_bytes, simulated.steps[i].wire_bytes) << where;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, RetimedRuns, testing::ValuesIn(kScenarios),
                         [](const auto& test) { return std::string{test.param.name}; });

TEST(Retiming, TellsARunFromAnother) {
  const Scenario scenario{.options = every(10)};
  const RunProgram program = program_of(scenario);
  const RetimedRun run = retime(retiming_of(scenario, program, kLinks[0]));
  std::vector<RecordedEvaluation> evaluations;
  for (const std::int64_t t : {10, 20, 37}) {
    const RetimedStep& step = run.steps[static_cast<std::size_t>(t) - 1];
    evaluations.push_back(
        {.step = t,
         .clock_s = std::chrono::duration<double>(step.end.time_since_epoch()).count(),
         .payload_bytes = static_cast<double>(step.payload_bytes),
         .wire_bytes = static_cast<double>(step.wire_bytes)});
  }
  EXPECT_EQ(differs_from_run(run, 1, evaluations), std::nullopt);
  std::vector<RecordedEvaluation> later = evaluations;
  later[1].clock_s += 1e-9;
  EXPECT_THAT(differs_from_run(run, 1, later).value_or(""), testing::HasSubstr("step 20 ends at"));
  std::vector<RecordedEvaluation> heavier = evaluations;
  heavier[2].payload_bytes += 4;
  EXPECT_THAT(differs_from_run(run, 1, heavier).value_or(""), testing::HasSubstr("by step 37"));
}

TEST(Retiming, ARunByAnotherVersionMayDifferALittleButNotInItsPayload) {
  const Scenario scenario{.options = every(10)};
  const RunProgram program = program_of(scenario);
  const RetimedRun run = retime(retiming_of(scenario, program, kLinks[0]));
  const auto recorded = [&](double clock, double payload, double wire) {
    const RetimedStep& step = run.steps.back();
    return std::vector<RecordedEvaluation>{
        {.step = static_cast<std::int64_t>(run.steps.size()),
         .clock_s = clock * std::chrono::duration<double>(step.end.time_since_epoch()).count(),
         .payload_bytes = payload * static_cast<double>(step.payload_bytes),
         .wire_bytes = wire * static_cast<double>(step.wire_bytes)}};
  };
  const auto differs = [&](double clock, double payload, double wire, double tolerance) {
    return differs_from_run(run, 1, recorded(clock, payload, wire), tolerance).has_value();
  };
  EXPECT_FALSE(differs(1.04, 1, 0.97, kOtherVersionsTolerance));
  EXPECT_TRUE(differs(1.04, 1, 0.97, 0));
  EXPECT_TRUE(differs(1.06, 1, 1, kOtherVersionsTolerance));
  EXPECT_TRUE(differs(0.94, 1, 1, kOtherVersionsTolerance));
  EXPECT_TRUE(differs(1, 1, 1.06, kOtherVersionsTolerance));
  EXPECT_TRUE(differs(1, 1.001, 1, kOtherVersionsTolerance));
}

TEST(Retiming, RefusesWhatIsFoundFromTheGradients) {
  EXPECT_EQ(retiming_obstacle("diloco", {}), std::nullopt);
  EXPECT_EQ(retiming_obstacle("1bit-adam", frozen(5)), std::nullopt);
  EXPECT_THAT(retiming_obstacle("1bit-adam", {}).value_or(""), testing::HasSubstr("outer.freeze"));
  EXPECT_THAT(
      retiming_obstacle("streaming-diloco", {.H = 2, .overlap = 1, .late = LateRound::kSlip})
          .value_or(""),
      testing::HasSubstr("outer.late"));
}

TEST(Retiming, MeasuresTheLongestWaitAndTheShareOfComputing) {
  const Scenario scenario{.steps = 10, .options = every(10)};
  const RunProgram program = program_of(scenario);
  const RetimedRun run = retime(retiming_of(scenario, program, kLinks[0]));
  const Duration end = run.end().time_since_epoch();
  const Duration computed = run.computed[0];
  EXPECT_EQ(end - computed, run.longest_wait);  // one round, nothing hidden
  EXPECT_DOUBLE_EQ(run.utilisation(),
                   static_cast<double>(computed.count()) / static_cast<double>(end.count()));
}

/// Rounds of 0.6, 6 and 60,000 years: 37 of the first pass, the others outlast a clock of 292
/// years.
TEST(Retiming, SaysWhenTheClockWouldRunOut) {
  const DirectedLink slow{.bits_per_s = 1'000'000, .one_way = milliseconds(1)};
  for (const auto& [scale, too_long] : {std::pair{1e7, false}, {1e8, true}, {1e12, true}}) {
    const Scenario scenario{.steps = 37, .options = every(1), .byte_scale = scale};
    const RunProgram program = program_of(scenario);
    const RetimedRun run = retime(retiming_of(scenario, program, slow));
    EXPECT_EQ(run.too_long, too_long) << scale;
    if (!too_long) {
      EXPECT_GT(run.end().time_since_epoch(), hours(24 * 365));
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
