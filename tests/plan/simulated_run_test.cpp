// SPDX-License-Identifier: Apache-2.0
// The prediction against the real protocol and the real methods in virtual time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <numeric>
#include <vector>

#include "isthmus/outer.h"
#include "plan/prediction.h"
#include "record/round_times.h"
#include "sim/run_simulated.h"

namespace isthmus::this_file {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr double kOverlapping = 5e-3;
constexpr double kOverlappingReduce = 3e-2;
// A single round that overlaps others, which may go before it or behind.
constexpr double kOneOverlapping = 0.3;
// Rounds of one closing round end together, and their DONE and COMMIT queue behind one another.
constexpr double kWordsInAQueue = 1e-4;
// Probes, which go out after two silent seconds of a scaled-up transfer, are not predicted.
constexpr double kProbes = 5e-3;

struct Scenario {
  const char* name = "";
  std::string method = "diloco";
  int workers = 2;
  std::int64_t steps = 40;
  OuterOptions options;
  std::vector<std::int64_t> sizes = {200'000, 150'000, 150'000, 100'000};  // one tensor a layer
  DirectedLink link{.bits_per_s = 100'000'000, .one_way = milliseconds(40)};
  LinkOptions behaviour;
  Duration step = milliseconds(50);
  int slow_worker = -1;  // takes half as long again
  /// Share by which prediction and simulation may differ. Rounds that do not overlap are worked out
  /// exactly; overlapping ones leave out that protocol messages of one queue behind data of
  /// another.
  double tolerance = 1e-5;

  friend void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }
};

Duration step_of(const Scenario& scenario, WorkerId worker) {
  return worker.value() == scenario.slow_worker ? scenario.step * 3 / 2 : scenario.step;
}

/// Learns nothing: steps take their time and gradients become final from the last tensor to the
/// first, as those of a model do (forward a third, backward by size).
class ClockedLoop final : public InnerLoop {
 public:
  ClockedLoop(const Scenario& scenario, WorkerContext& context)
      : runtime_(context.runtime), step_(step_of(scenario, context.rank)) {
    std::int64_t begin = 0;
    for (const std::int64_t size : scenario.sizes) {
      values_.emplace_back(static_cast<std::size_t>(size), 0.0F);
      gradients_.emplace_back(static_cast<std::size_t>(size), 0.0F);
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
  InnerStep train_step(StepIndex) override {
    runtime_.compute(step_, [] {});
    return {.tokens = 1};
  }
  InnerStep gradients(StepIndex, const GradientReady& on_ready) override {
    const TimePoint begin = runtime_.clock().now();
    std::int64_t done = 0;
    for (std::size_t i = parameters_.size(); i-- > 0;) {
      done += parameters_[i].elements.size();
      const double share =
          (1.0 + 2.0 * static_cast<double>(done) / static_cast<double>(total_)) / 3;
      runtime_.sleep_until(begin +
                           Duration(std::llround(static_cast<double>(step_.count()) * share)));
      on_ready(i);
    }
    return {.tokens = 1};
  }
  [[nodiscard]] std::span<float> gradient(std::size_t i) override { return gradients_[i]; }
  double apply_gradients(StepIndex) override { return 0; }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 0; }

 private:
  Runtime& runtime_;
  Duration step_;
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<float>> gradients_;
  std::vector<Parameter> parameters_;
  std::int64_t total_ = 0;
};

struct Measured {
  double seconds = 0;
  double payload = 0;  // mean over the workers, as it went over the modelled link
  double wire = 0;
  RoundTimes rounds;  // at the observer
};

Measured simulate(const Scenario& scenario, WorkerId observer = WorkerId(0)) {
  Measured measured;
  SimulationOptions options{.workers = scenario.workers,
                            .links = uniform_links(scenario.workers, scenario.link)};
  options.network.link = scenario.behaviour;
  options.exchange.on_round = [&](WorkerId self, const SyncId& id, Duration took) {
    if (self != observer) return;
    measured.rounds.add(id.fragment, id.sent, std::chrono::duration<double>(took).count());
  };
  const SimulationResult result = run_simulated(options, [&](WorkerContext& context) {
    ClockedLoop inner(scenario, context);
    const auto strategy =
        make_outer_strategy(scenario.method, scenario.options, inner, context.exchange);
    for (std::int64_t t = 0; t < scenario.steps; ++t) {
      (void)strategy->step();
    }
    (void)strategy->finish();
    const ByteCounts bytes = context.exchange.bytes();
    measured.payload +=
        static_cast<double>(bytes.payload) * scenario.behaviour.byte_scale / scenario.workers;
    measured.wire +=
        static_cast<double>(bytes.wire) * scenario.behaviour.byte_scale / scenario.workers;
  });
  measured.seconds = std::chrono::duration<double>(result.duration).count();
  return measured;
}

PredictionInput input_of(const Scenario& scenario) {
  std::vector<Parameter> parameters;
  std::int64_t begin = 0;
  for (const std::int64_t size : scenario.sizes) {
    parameters.push_back({.layer = static_cast<int>(parameters.size()),
                          .shape = {size},
                          .elements = {begin, begin + size}});
    begin += size;
  }
  PredictionInput input = prediction_input(scenario.method, scenario.options, parameters,
                                           scenario.workers, scenario.steps);
  input.link = scenario.behaviour;
  input.links = uniform_links(scenario.workers, scenario.link);
  input.step_time = [&](WorkerId worker, StepIndex) { return step_of(scenario, worker); };
  return input;
}

Prediction predicted(const Scenario& scenario) { return predict(input_of(scenario)); }

class PredictedRun : public testing::TestWithParam<Scenario> {};

TEST_P(PredictedRun, TakesAsLongAsTheSimulationAndSendsTheSameBytes) {
  const Scenario& scenario = GetParam();
  const Measured measured = simulate(scenario);
  const Prediction prediction = predicted(scenario);
  EXPECT_NEAR(prediction.predicted_s / measured.seconds, 1, scenario.tolerance)
      << render_prediction(prediction, measured.seconds);
  EXPECT_EQ(static_cast<double>(prediction.payload_bytes), std::round(measured.payload));
  // Probes and their echoes, which are not predicted, go out after two silent seconds.
  EXPECT_NEAR(static_cast<double>(prediction.wire_bytes) / measured.wire, 1, kProbes);
  const double sum = std::accumulate(
      prediction.terms.begin(), prediction.terms.end(), 0.0,
      [](double total, const PredictionTerm& term) { return total + term.seconds; });
  EXPECT_NEAR(sum, prediction.predicted_s, 1e-9 * prediction.predicted_s);
}

// At the coordinator and at another worker, who knows half a round trip later.
TEST_P(PredictedRun, EachRoundTakesAsLongAsInTheSimulation) {
  const Scenario& scenario = GetParam();
  for (const WorkerId observer : {WorkerId(0), WorkerId(scenario.workers - 1)}) {
    const Measured measured = simulate(scenario, observer);
    const Prediction prediction = predicted(scenario);
    const RoundComparison comparison =
        compare_rounds(predict_rounds(input_of(scenario), observer), measured.rounds);
    // Methods that do not drain leave their last round under way.
    const auto rounds = static_cast<std::int64_t>(comparison.all.rounds);
    ASSERT_GE(rounds, prediction.rounds - 1);
    ASSERT_LE(rounds, prediction.rounds);
    const bool exact = scenario.tolerance <= 1e-5;
    for (const RoundPair& pair : comparison.pairs) {
      const bool queue = prediction.closing.rounds > 1 && pair.sent == scenario.steps;
      const double tolerance =
          exact ? (queue ? kWordsInAQueue : scenario.tolerance) : kOneOverlapping;
      EXPECT_NEAR(pair.predicted_s, pair.measured_s, tolerance * pair.measured_s)
          << "fragment " << pair.fragment << " of step " << pair.sent << " at worker "
          << observer.value();
    }
  }
}

/// Share of its time that a worker computes, where an exchange takes 0.9 H steps.
struct Utilisation {
  double measured = 0;
  double predicted = 0;
};
Utilisation utilisation_of(const std::string& method, const OuterOptions& options) {
  // Data, DONE and COMMIT take half a round trip each after 240,000 bytes.
  constexpr double kBytes = 60'000.0 * 4 + 68;
  const Duration one_way = microseconds(100);
  Scenario scenario{.method = method,
                    .steps = 2000,
                    .options = options,
                    .sizes = {20'000, 15'000, 15'000, 10'000}};
  const double window_s = 0.05 * static_cast<double>(options.H);
  const double wire_s = 0.9 * window_s - 3 * std::chrono::duration<double>(one_way).count();
  scenario.link = {.bits_per_s = std::llround(kBytes * 8 / wire_s), .one_way = one_way};
  return {0.05 * static_cast<double>(scenario.steps) / simulate(scenario).seconds,
          predicted(scenario).utilisation};
}

// R rounds of H steps each; an exchange of 0.9 H steps is exposed each time, or once at the end.
TEST(Utilisation, IsThatOfTheFormula) {
  constexpr double kRounds = 100;
  const double blocking = 1 / 1.9;
  const double hidden = kRounds / (kRounds + 0.9);
  const Utilisation diloco = utilisation_of("diloco", {.H = 20});
  EXPECT_NEAR(diloco.measured, blocking, 1e-3);
  EXPECT_LE(diloco.measured, 0.55);
  EXPECT_NEAR(diloco.predicted, diloco.measured, 1e-3);
  for (const std::string method : {"delayed", "co2"}) {
    const Utilisation behind = utilisation_of(method, {.H = 20});
    EXPECT_NEAR(behind.measured, hidden, 1e-4) << method;
    EXPECT_GE(behind.measured, 0.99) << method;
    EXPECT_NEAR(behind.predicted, behind.measured, 1e-4) << method;
  }
  for (const FinalSync sync : {FinalSync::kDrain, FinalSync::kFull}) {
    const Utilisation eager = utilisation_of("eager", {.H = 20, .final_sync = sync});
    const double expected = sync == FinalSync::kFull ? hidden : 1;  // drain: nothing to wait for
    EXPECT_NEAR(eager.measured, expected, 1e-4);
    EXPECT_NEAR(eager.predicted, eager.measured, sync == FinalSync::kFull ? 1e-4 : 1e-9);
  }
  // One fragment, and four in turn. On a link that is busy for 0.9 of the time the DONE and COMMIT
  // of one fragment queue behind the data of the next, so four need as long a tau.
  const Utilisation whole = utilisation_of("streaming-diloco", {.H = 20, .overlap = 19});
  EXPECT_NEAR(whole.measured, hidden, 1e-4);
  EXPECT_NEAR(whole.predicted, whole.measured, 1e-4);
  const Utilisation parts =
      utilisation_of("streaming-diloco", {.H = 20, .fragments = 4, .overlap = 19});
  EXPECT_GE(parts.measured, 0.99);
  EXPECT_NEAR(parts.predicted, parts.measured, 1e-3);
}

OuterOptions every(std::int64_t H) { return {.H = H}; }
OuterOptions streaming(std::int64_t H, std::int64_t overlap, int fragments) {
  OuterOptions options{.H = H, .fragments = fragments};
  options.overlap = overlap;
  return options;
}
OuterOptions with_codec(OuterOptions options, std::string codec) {
  options.codec = std::move(codec);
  return options;
}
OuterOptions with_exchange(OuterOptions options, ReductionKind kind) {
  options.exchange = kind;
  return options;
}
OuterOptions with_final_sync(OuterOptions options, FinalSync sync) {
  options.final_sync = sync;
  return options;
}

const std::vector<Scenario> kScenarios = {
    {.name = "DdpOfTwo", .method = "ddp"},
    {.name = "DdpOfTwoWholeCommits", .method = "ddp", .steps = 32},
    {.name = "DdpThatCommitsEveryStep", .method = "ddp", .options = {.commit_every = 1}},
    {.name = "DdpThatCommitsEverySeventhStep", .method = "ddp", .options = {.commit_every = 7}},
    {.name = "DdpThatCommitsAtTheEnd",
     .method = "ddp",
     .workers = 4,
     .options = {.commit_every = 1000}},
    {.name = "DdpOfFour", .method = "ddp", .workers = 4},
    {.name = "DdpInBuckets",
     .method = "ddp",
     .steps = 5,
     .sizes = {3'000'000, 3'000'000, 3'000'000},
     .step = std::chrono::seconds(3)},
    {.name = "LocalSgdOfTwo", .method = "localsgd", .options = every(10)},
    {.name = "DilocoOfTwo", .options = every(10)},
    {.name = "DilocoEveryStep", .options = every(1)},
    {.name = "DilocoOfFourReduced", .workers = 4, .options = every(10)},
    {.name = "DilocoOfFourGathered",
     .workers = 4,
     .options = with_exchange(every(10), ReductionKind::kGather)},
    {.name = "DilocoOfTwoReduced", .options = with_exchange(every(10), ReductionKind::kReduce)},
    {.name = "DilocoOfThreeSmall", .workers = 3, .options = every(10), .sizes = {3'000, 2'000}},
    {.name = "DilocoOfEight", .workers = 8, .steps = 20, .options = every(5)},
    {.name = "DilocoInInt8", .workers = 4, .options = with_codec(every(10), "int8")},
    {.name = "DilocoShorterThanARound", .steps = 7, .options = every(10)},
    {.name = "DilocoFullFinalSync", .steps = 45, .options = every(10)},
    {.name = "DilocoSurrogate",
     .options = every(10),
     .behaviour = {.byte_scale = 1212.37},
     .step = std::chrono::seconds(1),
     .tolerance = kProbes},
    {.name = "DilocoSlowWorker", .options = every(10), .slow_worker = 0},
    {.name = "DilocoOtherSlowWorker", .options = every(10), .slow_worker = 1},
    {.name = "DilocoShortLink",
     .workers = 4,
     .options = every(10),
     .link = {.bits_per_s = 1'000'000'000, .one_way = microseconds(100)}},
    {.name = "DilocoOverTcp", .options = every(10), .behaviour = {.model = LinkModel::kTcp}},
    {.name = "DilocoOverTcpSurrogate",
     .options = every(10),
     .behaviour = {.model = LinkModel::kTcp, .byte_scale = 1212.37},
     .tolerance = kProbes},
    {.name = "DdpOverTcp", .method = "ddp", .behaviour = {.model = LinkModel::kTcp}},
    {.name = "DilocoOfFourOverTcp",
     .workers = 4,
     .options = every(10),
     .behaviour = {.model = LinkModel::kTcp}},
    {.name = "DilocoOverLossyCubic",
     .options = every(10),
     .link = {.bits_per_s = 100'000'000,
              .one_way = milliseconds(40),
              .loss = 0.001,
              .streams = 4,
              .congestion = Congestion::kCubic},
     .behaviour = {.model = LinkModel::kTcp}},
    {.name = "DilocoOverCubicAfterIdleTime",
     .options = every(10),
     .link = {.bits_per_s = 100'000'000,
              .one_way = milliseconds(40),
              .congestion = Congestion::kCubic},
     .behaviour = {.model = LinkModel::kTcp}},
    {.name = "DilocoOverLossyPlainLink",
     .options = every(10),
     .link = {.bits_per_s = 100'000'000,
              .one_way = milliseconds(40),
              .loss = 0.001,
              .congestion = Congestion::kCubic}},
    {.name = "DelayedHidden", .method = "delayed", .options = every(10), .step = milliseconds(200)},
    {.name = "DelayedExposed", .method = "delayed", .options = every(10), .step = milliseconds(10)},
    {.name = "DelayedPartialWindow",
     .method = "delayed",
     .steps = 45,
     .options = with_final_sync(every(10), FinalSync::kFull)},
    {.name = "DelayedOfFourReduced", .method = "delayed", .workers = 4, .options = every(10)},
    {.name = "EagerHidden", .method = "eager", .options = every(10), .step = milliseconds(200)},
    {.name = "EagerExposed", .method = "eager", .options = every(10), .step = milliseconds(10)},
    {.name = "EagerPartialWindow",
     .method = "eager",
     .workers = 3,
     .steps = 45,
     .options = every(10)},
    {.name = "StreamingThatCloses",
     .method = "streaming-diloco",
     .steps = 42,
     .options = streaming(8, 0, 4)},
    {.name = "DilocoDrained",
     .steps = 45,
     .options = with_final_sync(every(10), FinalSync::kDrain)},
    {.name = "SparselocoOfThree", .method = "sparseloco", .workers = 3, .options = every(10)},
    {.name = "Co2Hidden", .method = "co2", .options = every(10), .step = milliseconds(200)},
    {.name = "Co2SlowWorker", .method = "co2", .options = every(10), .slow_worker = 1},
    {.name = "Co2NoDrain",
     .method = "co2",
     .options = with_final_sync(every(10), FinalSync::kNone)},
    {.name = "StreamingWithoutOverlap",
     .method = "streaming-diloco",
     .options = streaming(8, 0, 4)},
    {.name = "StreamingHidden",
     .method = "streaming-diloco",
     .options = streaming(8, 2, 4),
     .step = milliseconds(200)},
    {.name = "StreamingExposed",
     .method = "streaming-diloco",
     .options = streaming(8, 1, 4),
     .tolerance = kOverlapping},
    {.name = "StreamingCrowded",
     .method = "streaming-diloco",
     .options = streaming(8, 3, 4),
     .step = milliseconds(10),
     .tolerance = kOverlapping},
    {.name = "StreamingOfFourReduced",
     .method = "streaming-diloco",
     .workers = 4,
     .options = streaming(8, 2, 4),
     .tolerance = kOverlappingReduce},
    {.name = "StreamingOfFourCrowded",
     .method = "streaming-diloco",
     .workers = 4,
     .options = streaming(8, 3, 4),
     .step = milliseconds(10),
     .tolerance = kOverlappingReduce},
};

INSTANTIATE_TEST_SUITE_P(Scenarios, PredictedRun, testing::ValuesIn(kScenarios),
                         [](const auto& test) { return std::string{test.param.name}; });

}  // namespace
}  // namespace isthmus::this_file
