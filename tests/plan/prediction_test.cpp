// SPDX-License-Identifier: Apache-2.0
// The prediction against closed forms worked out by hand for links that are all alike.
#include "plan/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <sstream>
#include <string>

#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using std::chrono::milliseconds;

constexpr double kRate = 1e8;     // bit/s
constexpr double kOneWay = 0.04;  // s
constexpr double kStep = 0.25;    // s
constexpr double kFrame = 68;     // header and checksum of a frame
constexpr double kDone = kFrame + 16;
// Parts are 1/32 of what is left, at least 32 KiB, two tiles of 16 KiB: 25 tiles are 13 frames.
constexpr double kFrames100k = 13;
constexpr double kFrames50k = 7;
// Virtual time has whole nanoseconds and sums of doubles round: far below what any term is worth.
constexpr double kRounding = 1e-6;

double on_link(double bytes) { return bytes * 8 / kRate; }

/// `workers` members with equal links, one fragment of `elements` fp32 values, synced every H.
PredictionInput uniform(int workers, std::int64_t elements, std::int64_t H, std::int64_t steps) {
  PredictionInput input{.workers = workers,
                        .steps = steps,
                        .H = H,
                        .fragments = {{.elements = elements}},
                        .codec = make_codec("fp32"),
                        .step_time = [](WorkerId, StepIndex) { return milliseconds(250); }};
  const auto pairs = static_cast<std::size_t>(workers) * static_cast<std::size_t>(workers);
  input.links.assign(pairs, {.bits_per_s = 100'000'000, .one_way = milliseconds(40)});
  return input;
}

double sum_of_terms(const Prediction& prediction) {
  return std::accumulate(prediction.terms.begin(), prediction.terms.end(), 0.0,
                         [](double sum, const PredictionTerm& t) { return sum + t.seconds; });
}

double seconds_of(const Prediction& prediction, const std::string& name) {
  for (const PredictionTerm& term : prediction.terms) {
    if (term.name == name) {
      return term.seconds;
    }
  }
  return 0;
}

// One round of two workers, by hand: both send their whole vector; worker 1 says DONE when worker
// 0's has come, worker 0 knows then, and its COMMIT reaches worker 1 half a round trip later.
TEST(Prediction, OneRoundOfTwoWorkersIsBytesOverRatePlusOneAndAHalfRoundTrips) {
  const std::int64_t elements = 100'000;  // 400,000 bytes
  const Prediction prediction = predict(uniform(2, elements, 10, 10));
  const double data = on_link(4.0 * elements + kFrames100k * kFrame);
  const double expected = 10 * kStep + data + 3 * kOneWay + on_link(kDone) + on_link(kFrame);
  EXPECT_NEAR(prediction.predicted_s, expected, kRounding);
  EXPECT_NEAR(sum_of_terms(prediction), prediction.predicted_s, kRounding);
  EXPECT_NEAR(seconds_of(prediction, "payload on the link"), on_link(4.0 * elements), kRounding);
  EXPECT_NEAR(seconds_of(prediction, "propagation"), kOneWay, kRounding);
}

// Worker 0 knows of a commit half a round trip before worker 1 and starts its next window then, so
// from round to round its data comes as early as worker 1's DONE lets it: a period of one round
// trip.
TEST(Prediction, RoundsOfTwoWorkersFollowEachOtherAtBytesOverRatePlusOneRoundTrip) {
  const std::int64_t elements = 100'000;
  const double one = predict(uniform(2, elements, 10, 10)).predicted_s;
  const double nine = predict(uniform(2, elements, 10, 90)).predicted_s;
  const double period = 10 * kStep + on_link(4.0 * elements + kFrames100k * kFrame) + 2 * kOneWay;
  // What the two protocol messages take on the link is 13 microseconds of a round.
  EXPECT_NEAR((nine - one) / 8, period, 2 * on_link(kDone));
}

TEST(Prediction, PartsOfAVectorEachCarryAHeader) {
  const std::int64_t elements = 1'000'000;  // 245 tiles of 16 KiB in parts of two: 123 frames
  const Prediction prediction = predict(uniform(2, elements, 5, 5));
  EXPECT_NEAR(seconds_of(prediction, "frame headers"), on_link(123 * kFrame), kRounding);
  EXPECT_EQ(prediction.payload_bytes, 4'000'000u);
}

// reduce: every member sends M-1 chunks of B/M and its own mean chunk to M-1 others, on links of
// their own: 2 B/M per pair. Long chunks keep the links busy from one phase to the next.
TEST(Prediction, ReduceOfLongChunksTakesTwoChunksPerLinkAndOneDelayEach) {
  const std::int64_t elements = std::int64_t{16} << 20;  // 64 MiB, chunks of 16 MiB
  const PredictionInput input = uniform(4, elements, 10, 10);
  const Prediction prediction = predict(input);
  const double chunk = 4.0 * elements / 4;
  const double parts = 211;  // of 1024 tiles 16, of 1008, 993, ... 15, and so on: 1/64 of the rest
  const double data = on_link(2 * chunk + parts * kFrame + parts * (kFrame + 1));
  const double expected = 10 * kStep + data + kOneWay + 2 * kOneWay;
  EXPECT_NEAR(prediction.predicted_s, expected, on_link(kDone) * 2);
  EXPECT_EQ(prediction.payload_bytes, static_cast<std::uint64_t>(2 * 3 * chunk));
}

TEST(Prediction, ReduceOfShortChunksWaitsForBothPhases) {
  const std::int64_t elements = std::int64_t{4} * 4096;  // one tile of 16 KiB for each of four
  const Prediction prediction = predict(uniform(4, elements, 10, 10));
  const double part = on_link(4.0 * 4096 + kFrame) + on_link(4.0 * 4096 + kFrame + 1);
  EXPECT_NEAR(prediction.predicted_s, 10 * kStep + part + 4 * kOneWay, on_link(kDone) * 2);
}

TEST(Prediction, GatherSendsTheWholeVectorOverEveryLinkOnce) {
  const std::int64_t elements = 100'000;
  PredictionInput input = uniform(4, elements, 10, 10);
  input.exchange = ReductionKind::kGather;
  const Prediction prediction = predict(input);
  EXPECT_NEAR(prediction.predicted_s,
              10 * kStep + on_link(4.0 * elements + kFrames100k * kFrame) + 3 * kOneWay,
              on_link(kDone) * 2);
  EXPECT_EQ(prediction.payload_bytes, 3u * 400'000u);
}

TEST(Prediction, OverlapHidesAnExchangeThatFitsIntoIt) {
  const std::int64_t elements = 100'000;  // 32 ms on the link: less than one step
  PredictionInput input = uniform(2, elements, 10, 100);
  input.overlap = 2;
  input.final_sync = FinalSync::kDrain;
  input.fragments.front().offset = 5;  // the last round is applied before the last step
  const Prediction prediction = predict(input);
  EXPECT_NEAR(prediction.predicted_s, 100 * kStep, kRounding);
  EXPECT_DOUBLE_EQ(prediction.utilisation, 1.0);
}

TEST(Prediction, OverlapExposesWhatDoesNotFitIntoIt) {
  const std::int64_t elements = 12'500'000;  // 50 MB: 4 s on the link
  PredictionInput input = uniform(2, elements, 10, 10);
  input.fragments.front().offset = 5;
  input.overlap = 2;
  input.final_sync = FinalSync::kDrain;
  const Prediction prediction = predict(input);
  const double frames = 611;  // 3052 tiles, 5 a part
  const double round = on_link(4.0 * elements + frames * kFrame) + 3 * kOneWay;
  EXPECT_NEAR(prediction.predicted_s, 10 * kStep + round - 2 * kStep, on_link(kDone) * 2);
  EXPECT_NEAR(seconds_of(prediction, "hidden by overlap"), -2 * kStep, kRounding);
  EXPECT_NEAR(sum_of_terms(prediction), prediction.predicted_s, kRounding);
}

// ddp uses its result when it is whole: no commit in 15 of 16 steps.
TEST(Prediction, DdpPaysBytesAndHalfARoundTripAStep) {
  PredictionInput input = uniform(2, 100'000, 1, 15);
  input.commit_every = 16;
  const double step = kStep + on_link(4.0 * 100'000 + kFrames100k * kFrame) + kOneWay;
  const double last_commit = 2 * kOneWay;
  EXPECT_NEAR(predict(input).predicted_s, 15 * step + last_commit, on_link(kDone) * 2);
}

TEST(Prediction, BucketsOfDdpLeaveDuringTheBackwardPass) {
  PredictionInput input = uniform(2, 0, 1, 1);
  input.commit_every = 16;
  const double half = on_link(4.0 * 50'000 + kFrames50k * kFrame);
  input.fragments = {{.elements = 50'000, .ready = 0.5}, {.elements = 50'000, .ready = 1.0}};
  // The first is through before the second is ready (125 ms against 16 ms).
  const double commit = 2 * kOneWay;
  EXPECT_NEAR(predict(input).predicted_s, kStep + half + kOneWay + commit, on_link(kDone) * 2);
}

TEST(Prediction, TheSlowestPairOfLinksDecides) {
  PredictionInput input = uniform(3, 100'000, 10, 10);
  input.exchange = ReductionKind::kGather;
  input.links[2 * 3 + 1] = {.bits_per_s = 10'000'000, .one_way = milliseconds(40)};
  const Prediction prediction = predict(input);
  EXPECT_NEAR(seconds_of(prediction, "payload on the link"), 10 * on_link(400'000.0), kRounding);
}

TEST(Prediction, ASlowWorkerIsNamed) {
  PredictionInput input = uniform(2, 100'000, 10, 10);
  input.step_time = [](WorkerId worker, StepIndex) {
    return milliseconds(worker == WorkerId(0) ? 500 : 250);
  };
  const Prediction prediction = predict(input);
  EXPECT_NEAR(sum_of_terms(prediction), prediction.predicted_s, kRounding);
  EXPECT_NEAR(seconds_of(prediction, "slower workers"), 10 * 0.25, kRounding);
}

TEST(Prediction, ASurrogateScalesBytesAndNotDelays) {
  PredictionInput input = uniform(2, 100'000, 10, 10);
  input.link.byte_scale = 1000;
  const Prediction prediction = predict(input);
  EXPECT_NEAR(seconds_of(prediction, "payload on the link"), on_link(4e8), kRounding);
  EXPECT_NEAR(seconds_of(prediction, "propagation"), kOneWay, kRounding);
  EXPECT_EQ(prediction.payload_bytes, 400'000'000u);
}

TEST(Prediction, OneWorkerOnlyComputes) {
  const Prediction prediction = predict(uniform(1, 100'000, 10, 100));
  EXPECT_NEAR(prediction.predicted_s, 100 * kStep, kRounding);
  EXPECT_EQ(prediction.terms.size(), 1u);
  EXPECT_EQ(prediction.wire_bytes, 0u);
}

TEST(Prediction, FullFinalSyncAddsARoundOfEveryFragmentNotJustSent) {
  PredictionInput input = uniform(2, 100'000, 10, 12);
  input.final_sync = FinalSync::kDrain;
  const double drained = predict(input).predicted_s;
  EXPECT_EQ(predict(input).closing.rounds, 0);
  input.final_sync = FinalSync::kFull;
  EXPECT_NEAR(predict(input).predicted_s - drained,
              on_link(4.0 * 100'000 + kFrames100k * kFrame) + 2 * kOneWay + kOneWay / 2,
              kOneWay / 2 + 1e-3);
  EXPECT_EQ(predict(input).rounds, 2);
}

// The closing round is of a run of no other round, so its cost is that of the whole exchange.
TEST(Prediction, TellsWhatTheClosingRoundCosts) {
  PredictionInput input = uniform(2, 100'000, 10, 4);
  const Prediction prediction = predict(input);
  EXPECT_EQ(prediction.rounds, 1);
  EXPECT_EQ(prediction.closing.rounds, 1);
  EXPECT_EQ(prediction.closing.payload_bytes, 400'000u);
  EXPECT_EQ(prediction.closing.wire_bytes, prediction.wire_bytes);
  EXPECT_NEAR(prediction.closing.seconds, prediction.predicted_s - 4 * kStep, kRounding);
  EXPECT_NE(render_prediction(prediction, 0).find("the closing round: "), std::string::npos);
  input.steps = 10;
  EXPECT_EQ(predict(input).closing.rounds, 0);
  EXPECT_EQ(render_prediction(predict(input), 0).find("closing"), std::string::npos);
}

// Frozen after 4 steps, a sync every second step after 8 and every fourth after 12: 15 = 12 + 3.
TEST(Prediction, TheLocalStepsLeftOverOfZeroOneAdamAreAClosingRound) {
  std::vector<Parameter> parameters = {
      {.name = "w", .layer = 0, .shape = {1000}, .elements = {0, 1000}, .values = {}}};
  OuterOptions rare;
  rare.codec = "fp32";
  rare.zero_one_adam = {.var_freeze_step = 4, .var_update_scaler = 16, .local_step_scaler = 4};
  for (const auto& [steps, closing] : {std::pair{15, 1}, {16, 0}}) {
    std::vector<PredictionInput> phases = prediction_phases("01-adam", rare, parameters, 2, steps);
    for (PredictionInput& phase : phases) {
      phase.step_time = [](WorkerId, StepIndex) { return Duration(1); };
    }
    EXPECT_EQ(predict(phases.back()).closing.rounds, closing) << steps;
  }
}

// Rounds repeat, so short runs, which are played step by step, say what any long one costs: a line
// through two of them. Played step by step these would take hours.
TEST(Prediction, ARunOfAThousandMillionStepsIsAsManyPeriods) {
  constexpr std::int64_t kLong = 1'000'000'003;
  PredictionInput plain = uniform(2, 100'000, 10, 0);
  PredictionInput ddp = uniform(3, 100'000, 1, 0);
  ddp.commit_every = 16;
  ddp.fragments = {{.elements = 50'000, .ready = 0.5}, {.elements = 50'000, .ready = 1.0}};
  PredictionInput streaming = uniform(2, 0, 30, 0);
  streaming.fragments = {{.elements = 4'000'000, .offset = 0},
                         {.elements = 1'000'000, .offset = 11},
                         {.elements = 2'000'000, .offset = 23}};
  streaming.overlap = 3;
  PredictionInput delayed = uniform(4, 100'000, 7, 0);
  delayed.round_behind = true;
  PredictionInput unlike = uniform(3, 100'000, 5, 0);
  unlike.step_time = [](WorkerId worker, StepIndex) {
    return milliseconds(worker == WorkerId(1) ? 500 : 250);
  };
  const PredictionInput alone = uniform(1, 100'000, 10, 0);
  for (const PredictionInput& input : {plain, ddp, streaming, delayed, unlike, alone}) {
    // Of 60 periods: workers may take turns in being late.
    const std::int64_t period = 60 * input.H * std::max<std::int64_t>(1, input.commit_every);
    const auto of = [&](std::int64_t steps) {
      PredictionInput run = input;
      run.steps = steps;
      return predict(run);
    };
    const std::int64_t base = 2 * period + kLong % period;
    const Prediction one = of(base);
    const Prediction two = of(base + period);
    const auto periods = static_cast<double>((kLong - base) / period);
    const Prediction all = of(kLong);
    const auto expect = [&](double first, double second, double actual, double rounding) {
      const double expected = first + periods * (second - first);
      EXPECT_NEAR(actual, expected, 1e-9 * expected + periods * rounding) << "H = " << input.H;
    };
    expect(one.predicted_s, two.predicted_s, all.predicted_s, 0);
    expect(one.compute_s, two.compute_s, all.compute_s, 0);
    for (const auto number : {&Prediction::payload_bytes, &Prediction::wire_bytes}) {
      expect(static_cast<double>(one.*number), static_cast<double>(two.*number),
             static_cast<double>(all.*number), 1);  // whole bytes, of the mean of the workers
    }
    EXPECT_EQ(all.rounds, one.rounds + (kLong - base) / period * (two.rounds - one.rounds));
    EXPECT_EQ(all.closing.rounds, one.closing.rounds);
    EXPECT_NEAR(all.closing.seconds, one.closing.seconds, 1e-3);
    EXPECT_NEAR(sum_of_terms(all), all.predicted_s, 1e-9 * all.predicted_s);
  }
}

TEST(Prediction, WindowsOfManyStepsAreNotPlayedStepByStep) {
  constexpr std::int64_t kH = 300'000'000;
  const double round = predict(uniform(2, 100'000, 10, 10)).predicted_s - 10 * kStep;
  const Prediction three = predict(uniform(2, 100'000, kH, 3 * kH));
  EXPECT_EQ(three.rounds, 3);
  EXPECT_NEAR(three.predicted_s, 3 * kH * kStep + 3 * round, round);
  PredictionInput many = uniform(2, 100'000, kH, 1000 * kH + 5);
  many.overlap = 20;  // longer than a round
  many.final_sync = FinalSync::kDrain;
  const Prediction hidden = predict(many);
  EXPECT_EQ(hidden.rounds, 1000);
  EXPECT_NEAR(hidden.predicted_s / (1000.0 * kH + 5) / kStep, 1, 1e-9);
  PredictionInput jitter = uniform(2, 100'000, kH, 10 * kH);
  jitter.step_time = [](WorkerId, StepIndex t) { return milliseconds(200 + t.value() % 101); };
  EXPECT_NEAR(predict(jitter).compute_s / (10.0 * kH * kStep), 1, 1e-3) << "the mean is 250 ms";
}

TEST(PredictionInput, CountsTheTensorsOfTheMethodsOwnFragments) {
  std::vector<Parameter> parameters;
  std::int64_t at = 0;
  for (int layer = -1; layer < 4; ++layer) {
    parameters.push_back(
        {.name = "w", .layer = layer, .shape = {1000}, .elements = {at, at + 1000}, .values = {}});
    at += 1000;
  }
  OuterOptions options{.H = 10, .fragments = 2};
  options.overlap = 1;
  const PredictionInput input = prediction_input("streaming-diloco", options, parameters, 2, 100);
  ASSERT_EQ(input.fragments.size(), 3u);
  EXPECT_EQ(input.fragments[0].elements, 2000);
  EXPECT_EQ(input.fragments[2].elements, 1000);
  EXPECT_EQ(input.fragments[1].offset, 3);
  EXPECT_EQ(input.commit_every, 0);
}

TEST(PredictionInput, RefusesAMethodThereIsNot) {
  EXPECT_THROW((void)prediction_input("dilco", {}, {}, 2, 10), ConfigError);
}

TEST(RenderPrediction, PrintsEachTermAndTheError) {
  const Prediction prediction = predict(uniform(2, 100'000, 10, 20));
  const std::string text = render_prediction(prediction, prediction.predicted_s / 1.01);
  EXPECT_THAT(text, testing::HasSubstr("steps * step time = 20 * 250 ms"));
  EXPECT_THAT(text, testing::HasSubstr("2 rounds * 400,000 bytes"));
  EXPECT_THAT(text, testing::HasSubstr("100 Mbit/s"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_THAT(text, testing::HasSubstr("off by +1.000 %"));
}

TEST(RenderPrediction, GivesNoErrorWhereTheLinksWereNotThere) {
  const Prediction prediction = predict(uniform(2, 100'000, 10, 20));
  const std::string text =
      render_prediction(prediction, prediction.predicted_s / 2, "the links were not there");
  EXPECT_THAT(text, testing::HasSubstr("the links were not there"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("off by")));
}

}  // namespace
}  // namespace isthmus::this_file
