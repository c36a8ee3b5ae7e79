// SPDX-License-Identifier: Apache-2.0
// What the outer loop sees of a loop on the device.
#include <limits>

#include "cuda/thread_orders.h"
#include "cuda/training_case.h"
#include "kernels/cuda/step_guard.h"

namespace isthmus::this_file {
namespace {
using testing::HasSubstr;

constexpr double kFloatError = 2e-5;

class StepGuard : public cuda::DeviceTest {};

TEST_F(StepGuard, SpoilsTheNormOfAStepWhoseLossIsNotFinite) {
  cuda::Stream stream;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto squares_after = [&](double loss, double z_loss) {
    const auto totals =
        cuda::on_device<cuda::LossTotals>(stream, {{.loss = loss, .z_loss = z_loss, .targets = 1}});
    const auto squares = cuda::on_device<double>(stream, {4});
    cuda::guard_step(stream, totals.data(), squares.data());
    return cuda::on_host(stream, squares)[0];
  };
  EXPECT_EQ(squares_after(2, 0.5), 4);
  EXPECT_TRUE(std::isnan(squares_after(kInfinity, 0)));
  EXPECT_TRUE(std::isnan(squares_after(-kInfinity, 0)));
  EXPECT_TRUE(std::isnan(squares_after(1, std::numeric_limits<double>::quiet_NaN())));
}

class CudaLoopOnDevice : public CudaLoopTest {
 protected:
  LanguageModelOptions options_ = tiny_options("gpt2");
};

TEST_F(CudaLoopOnDevice, GradientsThenApplyIsATrainStep) {
  CudaLoop one(options_, batches_.provider());
  CudaLoop other(options_, cpu_batches_.provider());
  for (int t = 1; t <= 3; ++t) {
    const InnerStep step = one.train_step(StepIndex(t));
    EXPECT_EQ(other.gradients(StepIndex(t), {}).loss, step.loss);
    // An evaluation in between takes the gradients' place on the device.
    static_cast<void>(other.loss(batches_.at(StepIndex(9)), CopiedParameters(other.parameters())));
    EXPECT_EQ(other.apply_gradients(StepIndex(t)), step.grad_norm);
  }
  EXPECT_EQ(values_now(other), values_now(one));
}

TEST_F(CudaLoopOnDevice, ExchangedGradientsAreApplied) {
  CudaLoop loop(options_, batches_.provider());
  LanguageModelLoop cpu(options_, cpu_batches_.provider());
  for (InnerLoop* const one : {static_cast<InnerLoop*>(&loop), static_cast<InnerLoop*>(&cpu)}) {
    static_cast<void>(one->gradients(StepIndex(1), {}));
    for (std::size_t i = 0; i < one->parameters().size(); ++i) {
      for (float& g : one->gradient(i)) g *= 0.25f;
    }
  }
  const double norm = cpu.apply_gradients(StepIndex(1));
  EXPECT_NEAR(loop.apply_gradients(StepIndex(1)), norm, kFloatError * norm);
}

TEST_F(CudaLoopOnDevice, ValuesGoToAndFroInPieces) {
  for (const bool bf16 : {false, true}) {
    options_.bf16 = bf16;
    CudaLoop loop(options_, batches_.provider());
    CudaLoop same(options_, cpu_batches_.provider());
    static_cast<void>(loop.train_step(StepIndex(1)));
    static_cast<void>(same.train_step(StepIndex(1)));
    // Half of a tensor and some of the next; the rest of the mirror is as old as it was.
    const CanonicalRange piece{loop.parameters()[3].elements.begin + 5,
                               loop.parameters()[4].elements.begin + 3};
    loop.read_values(piece);
    std::vector<float> whole = values_now(same);
    float* const mirror = loop.parameters()[0].values.data();
    for (std::int64_t i = piece.begin; i < piece.end; ++i) {
      EXPECT_EQ(mirror[i], whole[static_cast<std::size_t>(i)]);
      whole[static_cast<std::size_t>(i)] = mirror[i] *= 1.5f;
    }
    loop.wrote_values(piece);
    set_values(same, whole);
    EXPECT_EQ(train(loop, 2, 2), train(same, 2, 2));
  }
}

TEST_F(CudaLoopOnDevice, LossReadsTheGivenParametersWhereverTheyLie) {
  for (const bool bf16 : {false, true}) {
    options_.bf16 = bf16;
    CudaLoop loop(options_, batches_.provider());
    RandomBatches fixed(kVocab, kSequences, kLength);
    const TokenBatch batch = fixed.at(StepIndex(1));
    const LoopParameters own(loop.parameters());
    const CopiedParameters copies(loop.parameters());
    const double before = loop.loss(batch, own);
    EXPECT_EQ(loop.loss(batch, copies), before);
    const InnerStep first = loop.train_step(StepIndex(1));
    EXPECT_EQ(first.loss, before);
    EXPECT_EQ(loop.loss(batch, copies), before) << "the anchors' loss";
    EXPECT_LT(loop.loss(batch, own), before) << "what was learned";
    // The rounded copies are the loop's own again.
    CudaLoop undisturbed(options_, cpu_batches_.provider());
    EXPECT_EQ(train(undisturbed, 1, 3).values, [&] {
      static_cast<void>(loop.loss(batch, copies));
      return train(loop, 2, 3).values;
    }());
  }
}

TEST_F(CudaLoopOnDevice, LossOfManySequencesIsThatOfTheCpu) {
  CudaLoop loop(options_, batches_.provider());
  LanguageModelLoop cpu(options_, cpu_batches_.provider());
  RandomBatches many(kVocab, 11, 7);
  const TokenBatch batch = many.at(StepIndex(1));
  const double expected = cpu.loss(batch, LoopParameters(cpu.parameters()));
  EXPECT_NEAR(loop.loss(batch, LoopParameters(loop.parameters())), expected,
              kFloatError * expected);
}

/// A source that gives rows of what is in its head alone.
class Rows final : public ParameterSource {
 public:
  explicit Rows(const ParameterSource& whole) : whole_(whole) {}
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override {
    return whole_.values(parameter);
  }
  [[nodiscard]] std::span<const float> rows(std::size_t parameter, std::int64_t columns,
                                            std::int64_t first, std::int64_t count) const override {
    const std::span<const float> all = whole_.values(parameter);
    rows_.assign(all.begin() + first * columns, all.begin() + (first + count) * columns);
    return rows_;
  }
  [[nodiscard]] bool by_rows() const override { return true; }

 private:
  const ParameterSource& whole_;
  mutable std::vector<float> rows_;
};

TEST_F(CudaLoopOnDevice, ForwardOnlyHasTheLossesOfTraining) {
  options_.model.z_loss = 0.01;
  CudaLoop training(options_, cpu_batches_.provider());
  LanguageModelLoop cpu(options_, cpu_batches_.provider());
  options_.forward_only = true;
  CudaLoop loop(options_, batches_.provider());
  const CopiedParameters copies(loop.parameters());
  const Rows rows(copies);
  const LoopParameters own(loop.parameters());
  for (int index = 0; index < 2; ++index) {
    const SampleShare share{.index = index, .count = 2};
    const InnerStep step = training.train_loss(StepIndex(3), share, copies);
    const InnerStep on_cpu = cpu.train_loss(StepIndex(3), share, copies);
    EXPECT_NEAR(step.loss, on_cpu.loss, kFloatError * on_cpu.loss);
    EXPECT_EQ(loop.train_loss(StepIndex(3), share, copies).loss, step.loss);
    EXPECT_EQ(loop.train_loss(StepIndex(3), share, rows).loss, step.loss);
    for (float& x : loop.parameters()[0].values) x *= 2;
    loop.wrote_values(loop.parameters()[0].elements);
    EXPECT_NE(loop.train_loss(StepIndex(3), share, own).loss, step.loss);
    for (float& x : loop.parameters()[0].values) x /= 2;
    loop.wrote_values(loop.parameters()[0].elements);
    EXPECT_EQ(loop.train_loss(StepIndex(3), share, own).loss, step.loss);
  }
  EXPECT_THROW(static_cast<void>(loop.train_loss(StepIndex(1), {.index = 0, .count = 3}, own)),
               ConfigError);
}

TEST_F(CudaLoopOnDevice, ADivergedStepNamesItselfAndChangesNothing) {
  CudaLoop loop(options_, batches_.provider());
  const Trajectory begin = train(loop, 1, 3);
  static_cast<void>(loop.gradients(StepIndex(4), {}));
  loop.gradient(1)[0] = std::numeric_limits<float>::quiet_NaN();
  try {
    static_cast<void>(loop.apply_gradients(StepIndex(4)));
    FAIL() << "a gradient that is not a number was applied";
  } catch (const RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr("step 4: the gradient norm is nan"));
  }
  EXPECT_EQ(values_now(loop), begin.values);

  std::vector<float> broken = begin.values;
  broken[0] = std::numeric_limits<float>::infinity();  // of a token that the batch may not have
  std::fill_n(broken.end() - 32, 32, std::numeric_limits<float>::infinity());  // final norm
  set_values(loop, broken);
  EXPECT_THROW(static_cast<void>(loop.train_step(StepIndex(4))), RunError);
  EXPECT_EQ(values_now(loop), broken);

  set_values(loop, begin.values);  // neither moments nor the number of updates have changed
  CudaLoop straight(options_, cpu_batches_.provider());
  const Trajectory expected = train(straight, 1, 5);
  EXPECT_EQ(train(loop, 4, 5).values, expected.values);
}

TEST_F(CudaLoopOnDevice, GivesTheSameBitsInEveryOrderOfStreams) {
  RandomBatches fixed(kVocab, kSequences, kLength);
  const TokenBatch other = fixed.at(StepIndex(99));
  std::vector<Trajectory> all;
  for (const int order : cuda::stream_orders()) {
    cuda::use_stream_order(order);
    RandomBatches batches(kVocab, kSequences, kLength);
    CudaLoop loop(options_, batches.provider());  // its own stream is the first, batches' the next
    all.push_back(train(loop, 1, 3));
    all.back().losses.push_back(loop.loss(other, CopiedParameters(loop.parameters())));
    all.back().losses.push_back(loop.gradients(StepIndex(4), {}).loss);
    all.back().norms.push_back(loop.apply_gradients(StepIndex(4)));
    all.back().values = train(loop, 5, 5).values;
  }
  cuda::use_stream_order(0);
  EXPECT_THAT(all, testing::Each(all.front()));
}

TEST_F(CudaLoopOnDevice, StepsMayBeLeftOutAndTakenAgain) {
  CudaLoop loop(options_, batches_.provider());
  LanguageModelLoop cpu(options_, cpu_batches_.provider());
  for (const int t : {1, 2, 5, 5, 3, 50, 51}) {
    const double expected = cpu.train_step(StepIndex(t)).loss;
    EXPECT_NEAR(loop.train_step(StepIndex(t)).loss, expected, kFloatError * expected) << t;
  }
}

TEST_F(CudaLoopOnDevice, ABatchThatCannotBeReadFailsInItsStep) {
  CudaLoop loop(options_, [&](StepIndex t) {
    if (t.value() == 3) throw RunError("step 3 cannot be read");
    return batches_.at(t);
  });
  static_cast<void>(train(loop, 1, 2));
  EXPECT_THROW(static_cast<void>(loop.train_step(StepIndex(3))), RunError);
  static_cast<void>(train(loop, 4, 5));
}

TEST_F(CudaLoopOnDevice, RefusesWhatADeviceDoesNotDo) {
  const auto refused = [&](const char* text, const auto& change) {
    LanguageModelOptions options = options_;
    change(options);
    try {
      const CudaLoop loop(options, batches_.provider());
      ADD_FAILURE() << text << " was taken";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  refused("inner.adjust_lr = \"spectral\"", [](LanguageModelOptions& o) {
    o.inner.optimizer = "muon";
    o.inner.adjust_lr = "spectral";
  });
  refused("inner.optimizer = \"adam\"",
          [](LanguageModelOptions& o) { o.inner.optimizer = "adam"; });
  refused("parallel.micro_batches = 3", [](LanguageModelOptions& o) { o.micro_batches = 3; });
  CudaLoop loop(options_, batches_.provider());
  LanguageModelOptions sgd = options_;
  sgd.inner.optimizer = "sgd";
  MemoryState state;
  loop.save(state);
  CudaLoop other(sgd, batches_.provider());
  EXPECT_THROW(other.load(state), RunError);
}

}  // namespace
}  // namespace isthmus::this_file
