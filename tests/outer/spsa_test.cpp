// SPDX-License-Identifier: Apache-2.0
// The method against a naive re-enactment, its log's replay, resume, bytes and memory.
#include "outer/methods/spsa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "inner/loop/language_model_loop.h"
#include "kernels/spsa_code.h"
#include "outer/parts/spsa_replay.h"
#include "spsa_runs.h"

namespace isthmus::this_file {
namespace {

using outer::SpsaLog;
using testing_support::bits_of;
using testing_support::Finish;
using testing_support::kRun;
using testing_support::MemoryState;
using testing_support::odd_tensors;
using testing_support::QuadraticLoop;
using testing_support::run_workers;
using testing_support::spsa_options;

/// Weights moved by eps z, with z element by element from its definition.
class NaivePerturbation final : public ParameterSource {
 public:
  NaivePerturbation(std::span<const Parameter> parameters, const kernels::SpsaDirection& z,
                    float eps) {
    for (const Parameter& p : parameters) {
      copies_.emplace_back();
      for (std::size_t i = 0; i < p.values.size(); ++i) {
        const std::int64_t element = p.elements.begin + static_cast<std::int64_t>(i);
        const auto sign = static_cast<float>(kernels::spsa_sign(kRun, z, element));
        copies_.back().push_back(p.values[i] + eps * sign);
      }
    }
  }
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override {
    return copies_[parameter];
  }

 private:
  std::vector<std::vector<float>> copies_;
};

// Oracle (5) and the whole step: one machine that draws the entries of M machines in turn and adds
// them up in floating point of twice the width lands on the same bits as M machines.
TEST(Spsa, ManyMachinesAreOneMachineWithTheSameEntries) {
  constexpr int kWorkers = 3;
  constexpr int kSteps = 20;
  for (const int samples : {1, 2}) {
    const OuterOptions options = spsa_options(samples);
    const std::vector<Finish> many = run_workers(kWorkers, kSteps, options);
    std::vector<std::unique_ptr<QuadraticLoop>> loops;
    for (int m = 0; m < kWorkers; ++m) {
      loops.push_back(std::make_unique<QuadraticLoop>(odd_tensors(m)));
    }
    QuadraticLoop& one = *loops[0];
    const auto eps = static_cast<float>(options.spsa.eps);
    for (std::uint32_t t = 1; t <= kSteps; ++t) {
      std::vector<kernels::SpsaEntry> entries;
      for (std::uint32_t m = 0; m < kWorkers; ++m) {
        for (int s = 0; s < samples; ++s) {
          const kernels::SpsaDirection z{t, m, static_cast<std::uint32_t>(s)};
          const auto at = [&](float move) {
            return loops[m]
                ->train_loss(StepIndex(t), {s, samples},
                             NaivePerturbation(one.parameters(), z, move))
                .loss;
          };
          const double slope = (at(eps) - at(-eps)) / (2 * static_cast<double>(eps));
          const std::uint8_t code = kernels::spsa_encode(static_cast<float>(slope), 0);
          entries.push_back({m, static_cast<std::uint32_t>(s), kernels::spsa_decode_q31(code)});
        }
      }
      const double lr = 0.7f;
      const auto c = static_cast<float>(lr / (static_cast<double>(entries.size()) * 2147483648.0));
      const auto decay = static_cast<float>(1 - lr * static_cast<double>(1e-3f));
      for (const Parameter& p : one.parameters()) {
        for (std::size_t i = 0; i < p.values.size(); ++i) {
          std::int64_t sum = 0;
          for (const kernels::SpsaEntry& e : entries) {
            sum += e.d * kernels::spsa_sign(kRun, {t, e.machine, e.sample},
                                            p.elements.begin + static_cast<std::int64_t>(i));
          }
          const float decayed = p.values[i] * decay;
          p.values[i] = decayed - static_cast<float>(sum) * c;
        }
      }
    }
    for (const Finish& end : many) {
      EXPECT_EQ(bits_of(end.weights), bits_of(one.all())) << samples << " samples";
    }
  }
}

// Oracle (1): base checkpoint and log give the bits of those who were there, whatever the threads
// and however many steps share a pass.
TEST(Spsa, ALateJoinerReplaysTheBitsOfAVeteran) {
  constexpr int kSteps = 150;
  std::vector<float> middle;
  const std::vector<Finish> ends =
      run_workers(2, kSteps, spsa_options(2), [&](int worker, OuterStrategy& s, QuadraticLoop& q) {
        if (worker == 0 && s.steps() == StepIndex(70)) middle = q.all();
      });
  EXPECT_EQ(ends[0].log, ends[1].log);
  const auto log = SpsaLog::parse(ends[0].log);
  ASSERT_TRUE(log.has_value()) << log.error().what;
  EXPECT_EQ(log->last(), StepIndex(kSteps));
  EXPECT_EQ(log->entries(), 2u * 2u * kSteps);
  for (const int threads : {1, 2}) {
    kernels::ThreadTeam team(threads);
    for (const std::size_t at_once : {1u, 7u, 64u}) {
      QuadraticLoop joiner(odd_tensors(0));
      const auto ok = replay(*log, StepIndex(0), log->last(), joiner.parameters(), team, at_once);
      ASSERT_TRUE(ok.has_value()) << ok.error().what;
      EXPECT_EQ(bits_of(joiner.all()), bits_of(ends[0].weights)) << threads << " " << at_once;

      // From a later checkpoint and what is left of the log after it.
      QuadraticLoop later(odd_tensors(0));
      std::size_t begin = 0;
      for (const Parameter& p : later.parameters()) {
        std::copy_n(middle.begin() + static_cast<std::ptrdiff_t>(begin), p.values.size(),
                    p.values.begin());
        begin += p.values.size();
      }
      const SpsaLog rest = log->cut(StepIndex(70), outer::weights_digest(later.parameters()));
      EXPECT_LT(rest.bytes().size(), log->bytes().size());
      EXPECT_EQ(rest.chain(), log->chain());
      const auto reread = SpsaLog::parse(rest.bytes());
      ASSERT_TRUE(reread.has_value()) << reread.error().what;
      const auto also =
          replay(*reread, StepIndex(70), reread->last(), later.parameters(), team, at_once);
      ASSERT_TRUE(also.has_value()) << also.error().what;
      EXPECT_EQ(bits_of(later.all()), bits_of(ends[0].weights));
    }
  }
}

TEST(Spsa, ReplayRefusesOtherWeightsOtherModelsAndStepsItLacks) {
  const std::vector<Finish> ends = run_workers(1, 65, spsa_options());
  const SpsaLog log = SpsaLog::parse(ends[0].log).value();
  kernels::ThreadTeam team(1);
  const auto refusal = [&](QuadraticLoop& loop, std::int64_t from, std::int64_t to) {
    const auto ok = replay(log, StepIndex(from), StepIndex(to), loop.parameters(), team);
    return ok ? std::string() : ok.error().what;
  };
  QuadraticLoop changed(odd_tensors(0));
  changed.parameters()[1].values[500] += 1e-6f;
  EXPECT_THAT(refusal(changed, 0, 65), ::testing::HasSubstr("not those the log starts from"));
  EXPECT_THAT(refusal(changed, 1, 65), ::testing::HasSubstr("after step 64 the weights differ"));
  QuadraticLoop other({.tensors = {{0, 5}}});
  EXPECT_THAT(refusal(other, 0, 65), ::testing::HasSubstr("another model"));
  QuadraticLoop good(odd_tensors(0));
  EXPECT_THAT(refusal(good, 0, 66), ::testing::HasSubstr("after 0 to 65"));
  EXPECT_EQ(refusal(good, 0, 65), "");
}

/// Watches that its own values never change while it computes a loss.
class WatchedLoop final : public InnerLoop {
 public:
  explicit WatchedLoop(QuadraticLoop& loop) : loop_(loop) {}
  [[nodiscard]] std::span<const Parameter> parameters() const override {
    return loop_.parameters();
  }
  InnerStep train_step(StepIndex) override { throw std::logic_error("spsa took a train_step"); }
  InnerStep train_loss(StepIndex t, SampleShare share, const ParameterSource& source) override {
    const std::vector<std::uint32_t> now = bits_of(loop_.all());
    if (t == last_) {
      EXPECT_EQ(now, before_);
    }
    last_ = t;
    const InnerStep step = loop_.train_loss(t, share, source);
    before_ = bits_of(loop_.all());
    EXPECT_EQ(now, before_);
    ++calls_;
    return step;
  }
  [[nodiscard]] double learning_rate(StepIndex t) const override { return loop_.learning_rate(t); }
  [[nodiscard]] int calls() const { return calls_; }

 private:
  QuadraticLoop& loop_;
  StepIndex last_;
  std::vector<std::uint32_t> before_;
  int calls_ = 0;
};

// Oracle (2).
TEST(Spsa, ForwardPairsLeaveTheWeightsUntouched) {
  run_in_process(1, [](WorkerContext& context) {
    QuadraticLoop quadratic(odd_tensors(0));
    WatchedLoop inner(quadratic);
    const auto strategy = make_outer_strategy("spsa", spsa_options(3), inner, context.exchange);
    for (int t = 1; t <= 5; ++t) {
      const std::vector<float> before = quadratic.all();
      (void)strategy->step();
      EXPECT_NE(quadratic.all(), before);
    }
    EXPECT_EQ(inner.calls(), 5 * 3 * 2);
  });
}

// Oracle (4): on a quadratic a central difference is exact, so a slope is z.grad; their mean times
// z is the gradient, with variance |grad|^2 - grad_i^2 in element i.
TEST(Spsa, TheEstimateIsUnbiasedWithTheVarianceOfRademacherDirections) {
  constexpr int kElements = 40;
  constexpr int kDraws = 10000;
  std::vector<double> x(kElements), gradient(kElements), sum(kElements), squares(kElements);
  double norm = 0;
  for (int i = 0; i < kElements; ++i) {
    const double curvature = 1 + 0.1 * i;
    x[static_cast<std::size_t>(i)] = 0.5 - 0.03 * i;
    gradient[static_cast<std::size_t>(i)] = curvature * x[static_cast<std::size_t>(i)];
    norm += gradient[static_cast<std::size_t>(i)] * gradient[static_cast<std::size_t>(i)];
  }
  constexpr double kEps = 1e-3;
  const auto f = [&](const kernels::SpsaDirection& z, double eps) {
    double value = 0;
    for (int i = 0; i < kElements; ++i) {
      const double moved =
          x[static_cast<std::size_t>(i)] + eps * kernels::spsa_sign(kRun, z, 1000 + i);
      value += 0.5 * (1 + 0.1 * i) * moved * moved;
    }
    return value;
  };
  for (std::uint32_t draw = 0; draw < kDraws; ++draw) {
    const kernels::SpsaDirection z{.step = draw, .machine = 1, .sample = 0};
    const double slope = (f(z, kEps) - f(z, -kEps)) / (2 * kEps);
    double exact = 0;
    for (int i = 0; i < kElements; ++i) {
      exact += gradient[static_cast<std::size_t>(i)] * kernels::spsa_sign(kRun, z, 1000 + i);
    }
    ASSERT_NEAR(slope, exact, 1e-9);
    for (int i = 0; i < kElements; ++i) {
      const double estimate = slope * kernels::spsa_sign(kRun, z, 1000 + i);
      sum[static_cast<std::size_t>(i)] += estimate;
      squares[static_cast<std::size_t>(i)] += estimate * estimate;
    }
  }
  double variance = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    const double sigma = std::sqrt((norm - gradient[i] * gradient[i]) / kDraws);
    EXPECT_NEAR(sum[i] / kDraws, gradient[i], 5 * sigma) << i;
    variance += squares[i] / kDraws - (sum[i] / kDraws) * (sum[i] / kDraws);
  }
  EXPECT_NEAR(variance / ((kElements - 1) * norm), 1.0, 0.05);
}

// Oracle (6): one byte an entry to each peer, and each 64 steps sixteen for the chain.
TEST(Spsa, SendsOneByteAnEntry) {
  constexpr int kWorkers = 4;
  constexpr int kSamples = 5;
  for (const Finish& end : run_workers(kWorkers, 64, spsa_options(kSamples))) {
    for (const StepReport& report : end.reports) {
      ASSERT_EQ(report.rounds.size(), report.step.value() == 64 ? 2u : 1u);
      EXPECT_EQ(report.rounds[0].payload_bytes, kSamples * (kWorkers - 1u));
      EXPECT_GT(report.rounds[0].wire_bytes, report.rounds[0].payload_bytes);
      EXPECT_EQ(report.rounds[0].members, kWorkers);
    }
    EXPECT_EQ(end.reports.back().rounds[1].payload_bytes, 16u * (kWorkers - 1));
  }
}

// A run that saves, ends and goes on is the run that went through: weights, log, chain.
TEST(Spsa, ResumesToTheSameBits) {
  constexpr int kWorkers = 2;
  constexpr int kSteps = 140;
  constexpr int kSaved = 75;
  const OuterOptions options = spsa_options(2);
  std::vector<MemoryState> states(kWorkers);
  std::vector<std::vector<float>> saved(kWorkers);
  const std::vector<Finish> whole = run_workers(
      kWorkers, kSteps, options, [&](int worker, OuterStrategy& strategy, QuadraticLoop& inner) {
        if (strategy.steps() == StepIndex(kSaved)) {
          strategy.save(states[static_cast<std::size_t>(worker)]);
          saved[static_cast<std::size_t>(worker)] = inner.all();
        }
      });
  run_in_process(kWorkers, [&](WorkerContext& context) {
    const auto w = static_cast<std::size_t>(context.rank.value());
    QuadraticLoop inner(odd_tensors(context.rank.value()));
    std::size_t begin = 0;
    for (const Parameter& p : inner.parameters()) {
      std::copy_n(saved[w].begin() + static_cast<std::ptrdiff_t>(begin), p.values.size(),
                  p.values.begin());
      begin += p.values.size();
    }
    const auto strategy = make_outer_strategy("spsa", options, inner, context.exchange);
    strategy->load(states[w]);
    while (strategy->steps() < StepIndex(kSteps)) (void)strategy->step();
    EXPECT_EQ(bits_of(inner.all()), bits_of(whole[w].weights));
    EXPECT_TRUE(std::ranges::equal(strategy->log(), whole[w].log));
  });
  // Oracle (9), as far as membership is fixed: with other members a new log, the chain unbroken.
  run_in_process(1, [&](WorkerContext& context) {
    QuadraticLoop inner(odd_tensors(0));
    const auto strategy = make_outer_strategy("spsa", options, inner, context.exchange);
    strategy->load(states[0]);
    (void)strategy->step();
    const SpsaLog before = SpsaLog::parse(whole[0].log).value();
    const SpsaLog after = SpsaLog::parse(strategy->log()).value();
    EXPECT_EQ(after.header().base_step, StepIndex(kSaved));
    EXPECT_EQ(after.header().base_chain, before.cut(StepIndex(kSaved), {}).header().base_chain);
  });
  OuterOptions other = options;
  other.spsa.run_key ^= 1;
  run_in_process(1, [&](WorkerContext& context) {
    QuadraticLoop inner(odd_tensors(0));
    const auto strategy = make_outer_strategy("spsa", other, inner, context.exchange);
    EXPECT_THROW(strategy->load(states[0]), ConfigError);
  });
}

}  // namespace
}  // namespace isthmus::this_file
