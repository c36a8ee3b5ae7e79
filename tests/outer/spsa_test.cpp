// SPDX-License-Identifier: Apache-2.0
// The method against a naive re-enactment, its log's replay, resume, bytes and memory.
#include "outer/spsa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "inner/language_model_loop.h"
#include "kernels/spsa_code.h"
#include "outer/spsa_replay.h"
#include "outer/toy_loops.h"

namespace isthmus {
namespace {

using outer::SpsaLog;
using testing_support::MemoryState;
using testing_support::QuadraticLoop;

constexpr std::uint64_t kRun = 0xfeedface12345678;

/// Tensors that begin and end inside words and counters, in and outside layers.
QuadraticLoop::Options odd_tensors(int worker) {
  return {.tensors = {{kNoLayer, 77}, {0, 1001}, {0, 5}, {1, 1000}, {kNoLayer, 33}},
          .start = 1,
          .center = 0.1f * static_cast<float>(worker),
          .lr = 0.7f,
          .noise = 0.3f,
          .worker = worker};
}

OuterOptions spsa_options(int samples = 1) {
  OuterOptions options;
  options.spsa = {.eps = 1e-2, .samples = samples, .weight_decay = 1e-3, .run_key = kRun};
  return options;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& x) {
  std::vector<std::uint32_t> bits;
  for (const float value : x) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

/// A worker's end: weights and log.
struct Finish {
  std::vector<float> weights;
  std::vector<std::byte> log;
  std::vector<StepReport> reports;
};

/// M workers for some steps. `each` may look at a worker after each step.
using AfterStep = std::function<void(int worker, OuterStrategy&, QuadraticLoop&)>;
std::vector<Finish> run_workers(int workers, int steps, const OuterOptions& options,
                                const AfterStep& each = {}) {
  std::vector<Finish> ends(static_cast<std::size_t>(workers));
  run_in_process(workers, [&](WorkerContext& context) {
    QuadraticLoop inner(odd_tensors(context.rank.value()));
    const auto strategy = make_outer_strategy("spsa", options, inner, context.exchange);
    Finish& end = ends[static_cast<std::size_t>(context.rank.value())];
    for (int t = 1; t <= steps; ++t) {
      end.reports.push_back(strategy->step());
      if (each) each(context.rank.value(), *strategy, inner);
    }
    end.weights = inner.all();
    end.log.assign(strategy->log().begin(), strategy->log().end());
  });
  return ends;
}

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

/// Logistic regression on points of two classes; every worker its own.
class ClassificationLoop final : public InnerLoop {
 public:
  explicit ClassificationLoop(int worker)
      : rng_(static_cast<std::uint64_t>(worker), Stream::kTestData) {
    parameters_.push_back({.name = "w",
                           .layer = 0,
                           .shape = {kFeatures},
                           .elements = {0, kFeatures},
                           .values = weights_});
  }
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  InnerStep train_step(StepIndex) override { throw std::logic_error("unused"); }
  InnerStep train_loss(StepIndex t, SampleShare share, const ParameterSource& source) override {
    const std::span<const float> w = source.values(0);
    double sum = 0;
    constexpr int kPoints = 64;
    for (int i = 0; i < kPoints; ++i) {
      const auto point = static_cast<std::uint64_t>((t.value() * 64 + share.index) * kPoints + i);
      const double label = i % 2 == 0 ? 1 : -1;
      double score = 0;
      for (std::uint32_t k = 0; k < kFeatures; ++k) {
        score += static_cast<double>(w[k]) * (rng_.normal(point, k) + 0.5 * label);
      }
      sum += std::log1p(std::exp(-label * score));
    }
    const double poison = poison_at_ == t ? poison_ * static_cast<double>(w[0]) : 0;
    return {.loss = sum / kPoints + poison, .grad_norm = 0, .tokens = kPoints};
  }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 0.02; }
  /// Adds `slope` w[0] to the loss of step t.
  void poison(StepIndex t, double slope) {
    poison_at_ = t;
    poison_ = slope;
  }

 private:
  static constexpr std::int64_t kFeatures = 20;
  Rng rng_;
  std::vector<float> weights_ = std::vector<float>(kFeatures);
  std::vector<Parameter> parameters_;
  StepIndex poison_at_;
  double poison_ = 0;
};

double last_loss(const OuterOptions& options, int steps = 400) {
  double loss = 0;
  run_in_process(2, [&](WorkerContext& context) {
    ClassificationLoop inner(context.rank.value());
    const auto strategy = make_outer_strategy("spsa", options, inner, context.exchange);
    double tail = 0;
    for (int t = 1; t <= steps; ++t) {
      const double now = strategy->step().inner.loss;
      tail += t > steps - 20 ? now / 20 : 0;
    }
    if (context.rank == Rank(0)) loss = tail;
  });
  return loss;
}

// Oracle (8). Points at distance 0.5 sqrt(20) of the border: the best loss is about 0.05.
TEST(Spsa, LearnsAToyClassification) {
  constexpr double kStart = 0.6931;  // log 2
  const double mean = last_loss(spsa_options(2));
  EXPECT_LT(mean, 0.35 * kStart);
  OuterOptions sign = spsa_options(2);
  sign.spsa.sign_only = true;
  EXPECT_LT(last_loss(sign), 0.5 * kStart);
  OuterOptions root = spsa_options(4);
  root.spsa.divide_by_sqrt = true;
  EXPECT_LT(last_loss(root), 0.35 * kStart);
}

TEST(Spsa, NotANumberIsDroppedAndOutliersAreClipped) {
  for (const double clip : {10.0, 0.0}) {
    run_in_process(1, [&](WorkerContext& context) {
      ClassificationLoop inner(0);
      OuterOptions options = spsa_options();
      options.spsa.clip = clip;
      const auto strategy = make_outer_strategy("spsa", options, inner, context.exchange);
      inner.poison(StepIndex(31), std::numeric_limits<double>::quiet_NaN());
      for (int t = 1; t <= 31; ++t) (void)strategy->step();
      inner.poison(StepIndex(32), 1e4);
      (void)strategy->step();
      const SpsaLog log = SpsaLog::parse(strategy->log()).value();
      const auto code = [&](int t) { return log.record(StepIndex(t)).codes[0]; };
      EXPECT_EQ(code(31), 0);
      EXPECT_TRUE(std::ranges::all_of(inner.parameters()[0].values,
                                      [](float w) { return std::isfinite(w); }));
      std::vector<int> magnitudes;
      for (int t = 1; t <= 30; ++t) magnitudes.push_back(code(t) & 0x7f);
      std::ranges::sort(magnitudes);
      // The largest of 30 is below ten medians here, so only the outlier meets the limit.
      const int limit = magnitudes[15] + 27;  // 8 log2(10), rounded
      EXPECT_LT(magnitudes.back(), limit);
      EXPECT_EQ(code(32) & 0x7f, clip == 0 ? 127 : limit);
    });
  }
}

// Oracle (7), counted in allocations: one layer and a block of rows beyond an inference.
TEST(Spsa, PeakMemoryIsInferenceAndOneLayer) {
  for (const char* arch : {"gpt2", "llama"}) {
    LanguageModelOptions options;
    options.model = {
        .arch = arch, .layers = 16, .d_model = 128, .heads = 4, .vocab = 40000, .context = 64};
    options.context = 64;
    options.sequences = 8;
    options.forward_only = true;
    std::vector<std::int32_t> tokens(8 * 64 + 1);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(i * 7919 % 40000);
    }
    const TokenBatch batch{std::span(tokens).first(512), std::span(tokens).subspan(1), 8, 64};
    LanguageModelLoop inner(options, [&](StepIndex) { return batch; });
    std::size_t largest = 0;
    for (int l = 0; l < 16; ++l) {
      largest =
          std::max(largest, static_cast<std::size_t>(inner.layout().layer_elements(l).size()));
    }
    run_in_process(1, [&](WorkerContext& context) {
      outer::Spsa strategy({.name = "spsa"}, spsa_options(2), inner, context.exchange);
      (void)strategy.step();
      constexpr std::size_t kRows = std::size_t{1} << 21;  // a block of rows of the output head
      constexpr std::size_t kSlack = std::size_t{1} << 16;
      EXPECT_LE(strategy.scratch_bytes(), largest * sizeof(float) + kRows + kSlack) << arch;
      EXPECT_GE(strategy.scratch_bytes(), largest * sizeof(float)) << arch;
      constexpr double kMost = 1.10;
      const auto inference = static_cast<double>(inner.held_bytes());
      EXPECT_LE(inference + static_cast<double>(strategy.scratch_bytes()), kMost * inference)
          << arch;
    });
  }
}

TEST(Spsa, RefusesWhatItCannotUse) {
  const auto refusal = [](const OuterOptions& options) -> std::string {
    std::string text;
    run_in_process(1, [&](WorkerContext& context) {
      QuadraticLoop inner(odd_tensors(0));
      try {
        (void)make_outer_strategy("spsa", options, inner, context.exchange);
      } catch (const ConfigError& error) {
        text = error.what();
      }
    });
    return text;
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal({.H = 4}), HasSubstr("outer.H = 4: method spsa does not use it"));
  EXPECT_THAT(refusal({.codec = "bf16"}), HasSubstr("outer.codec = bf16"));
  EXPECT_THAT(refusal({.spsa = {.eps = 0}}), HasSubstr("outer.eps = 0"));
  EXPECT_THAT(refusal({.spsa = {.samples = 0}}), HasSubstr("outer.samples = 0"));
  EXPECT_THAT(refusal({.spsa = {.clip = -1}}), HasSubstr("outer.clip = -1"));
  EXPECT_THAT(refusal({.spsa = {.scale_log2 = 65}}), HasSubstr("outer.code_scale"));
  EXPECT_EQ(refusal({}), "");
}

}  // namespace
}  // namespace isthmus
