// SPDX-License-Identifier: Apache-2.0
// Windows of several documents: a packed batch has the losses and gradients of its documents
// trained alone, in one batch; meshes agree with one rank; the mean of the workers' gradients is
// the gradient of the mean.
#include "data/documents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "inner/mesh/training_step.h"
#include "inner/mesh_test.h"
#include "inner/model/model.h"
#include "inner/model/model_layout.h"
#include "inner/model/samples.h"

namespace isthmus::this_file {
namespace {

constexpr std::int32_t kEnd = 3;

/// Random windows cut into documents by kEnd, which are of all lengths from one token on.
class DocumentBatches {
 public:
  DocumentBatches(std::int64_t vocab, std::int64_t sequences, std::int64_t length)
      : random_(vocab, sequences, length) {}

  TokenBatch at(StepIndex t) {
    TokenBatch batch = random_.at(t);
    inputs_.assign(batch.inputs.begin(), batch.inputs.end());
    targets_.assign(batch.targets.begin(), batch.targets.end());
    starts_.resize(inputs_.size());
    const Rng rng{18, Stream::kTestData};
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (rng.below(4, i, static_cast<std::uint32_t>(t.value())) == 0) inputs_[i] = kEnd;
    }
    const auto length = static_cast<std::size_t>(batch.length);
    for (std::size_t i = 0; i < inputs_.size(); i += length) {
      mark_documents(kEnd, std::span(inputs_).subspan(i, length),
                     std::span(targets_).subspan(i, length), std::span(starts_).subspan(i, length));
    }
    return {inputs_, targets_, batch.sequences, batch.length, starts_};
  }
  [[nodiscard]] BatchProvider provider() {
    return [this](StepIndex t) { return at(t); };
  }

 private:
  RandomBatches random_;
  std::vector<std::int32_t> inputs_, targets_, starts_;
};

struct DocumentCase {
  std::string name;
  ModelConfig model;
  Recompute recompute = Recompute::kNone;
};
void PrintTo(const DocumentCase& c, std::ostream* out) { *out << c.name; }

std::vector<DocumentCase> cases() {
  const auto model = [](const char* arch) {
    return ModelConfig{.arch = arch,
                       .layers = 2,
                       .d_model = 32,
                       .heads = 2,
                       .d_ff = 40,
                       .vocab = 19,
                       .context = 64};
  };
  std::vector<DocumentCase> all = {{"Gpt2", model("gpt2")},
                                   {"Llama", model("llama")},
                                   {"Gpt2Selective", model("gpt2"), Recompute::kSelective},
                                   {"LlamaSelective", model("llama"), Recompute::kSelective},
                                   {"Gpt2Recompute", model("gpt2"), Recompute::kFull},
                                   {"LlamaRecompute", model("llama"), Recompute::kFull},
                                   {"LlamaGroupedQueryNorms", model("llama")},
                                   {"LlamaOddHeads", model("llama")}};
  all[6].model.heads = 4;
  all[6].model.kv_heads = 2;
  all[6].model.head_dim = 16;
  all[6].model.qk_norm = true;
  all[7].model.head_dim = 10;  // of no vector code
  return all;
}

class PackedModel : public testing::TestWithParam<DocumentCase> {
 protected:
  static constexpr std::int64_t kSequences = 3;
  static constexpr std::int64_t kLength = 50;

  template <typename Real>
  std::vector<Real> weights() const {
    const Rng rng{7, Stream::kTestData};
    std::vector<Real> values(static_cast<std::size_t>(layout_.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<Real>(0.2 * rng.normal(i));
    }
    return values;
  }

  template <typename Real>
  struct Result {
    LossSum sum;
    std::vector<Real> gradients;
  };
  /// Of one window after another, or document after document, gradients added up.
  template <typename Real>
  Result<Real> pass_over(const std::vector<TokenBatch>& batches, bool bf16 = false) const {
    kernels::ThreadTeam team(2);
    LanguageModel<Real> model(layout_, kSequences * kLength,
                              LanguageModel<Real>::training(GetParam().recompute), bf16);
    const std::vector<Real> values = weights<Real>();
    FlatWeights<Real> flat(layout_, values.data());
    Result<Real> result{{}, std::vector<Real>(values.size(), Real{0})};
    for (const TokenBatch& batch : batches) {
      result.sum += model.loss_and_gradients(
          team, flat, batch, {.gradient_scale = 0.01, .gradients = result.gradients.data()});
    }
    return result;
  }

  /// Each document of a packed batch, alone.
  static std::vector<TokenBatch> alone(const TokenBatch& packed) {
    std::vector<TokenBatch> documents;
    for (std::int64_t s = 0; s < packed.sequences; ++s) {
      for (std::int64_t t = 0; t < packed.length;) {
        std::int64_t end = t + 1;
        const auto start = [&](std::int64_t at) {
          return packed.document_starts[static_cast<std::size_t>(s * packed.length + at)];
        };
        while (end < packed.length && start(end) == t) ++end;
        EXPECT_EQ(start(t), t);
        const auto from = static_cast<std::size_t>(s * packed.length + t);
        const auto size = static_cast<std::size_t>(end - t);
        documents.push_back(
            {packed.inputs.subspan(from, size), packed.targets.subspan(from, size), 1, end - t});
        t = end;
      }
    }
    return documents;
  }

  template <typename Real>
  static double relative_error(const std::vector<Real>& x, const std::vector<Real>& exact) {
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double difference = static_cast<double>(x[i]) - static_cast<double>(exact[i]);
      error += difference * difference;
      norm += static_cast<double>(exact[i]) * static_cast<double>(exact[i]);
    }
    return std::sqrt(error / norm);
  }

  ModelLayout layout_{model_shape(GetParam().model, kLength)};
  DocumentBatches batches_{GetParam().model.vocab, kSequences, kLength};
};

TEST_P(PackedModel, HasTheLossesAndGradientsOfItsDocumentsAlone) {
  const TokenBatch packed = batches_.at(StepIndex(1));
  const std::vector<TokenBatch> documents = alone(packed);
  ASSERT_GT(documents.size(), 30U);

  const auto exact = pass_over<double>(documents);
  const auto packed_exact = pass_over<double>({packed});
  EXPECT_EQ(packed_exact.sum.targets, exact.sum.targets);
  EXPECT_LT(packed_exact.sum.targets, kSequences * kLength);  // ends of documents have none
  EXPECT_NEAR(packed_exact.sum.loss, exact.sum.loss, 1e-12 * exact.sum.loss);
  EXPECT_LE(relative_error(packed_exact.gradients, exact.gradients), 1e-12);

  const auto single = pass_over<float>(documents);
  const auto packed_single = pass_over<float>({packed});
  EXPECT_NEAR(packed_single.sum.loss, single.sum.loss, 1e-6 * single.sum.loss);
  EXPECT_LE(relative_error(packed_single.gradients, single.gradients), 1e-5);

  // As far as bfloat16 gradients of such a model are from those in float.
  const auto rounded = pass_over<float>({packed}, true);
  EXPECT_NEAR(rounded.sum.loss, single.sum.loss, 1e-3 * single.sum.loss);
  EXPECT_LE(relative_error(rounded.gradients, single.gradients), 10.0 / 512);
}

TEST_P(PackedModel, GradientsEqualCentralDifferences) {
  constexpr double kStep = 1e-5;
  const TokenBatch packed = batches_.at(StepIndex(2));
  const auto result = pass_over<double>({packed});
  kernels::ThreadTeam team(1);
  LanguageModel<double> model(layout_, kSequences * kLength,
                              LanguageModel<double>::Purpose::kInference);
  std::vector<double> values = weights<double>();
  FlatWeights<double> flat(layout_, values.data());
  const Rng rng{9, Stream::kTestData};
  for (const TensorInfo& tensor : layout_.tensors()) {
    const auto at = static_cast<std::size_t>(tensor.elements.begin) +
                    rng.below(static_cast<std::uint64_t>(tensor.elements.size()),
                              static_cast<std::uint64_t>(tensor.elements.begin));
    const double kept = values[at];
    values[at] = kept + kStep;
    const double above = model.loss(team, flat, packed).loss;
    values[at] = kept - kStep;
    const double below = model.loss(team, flat, packed).loss;
    values[at] = kept;
    const double expected = 0.01 * (above - below) / (2 * kStep);
    EXPECT_NEAR(result.gradients[at], expected, 1e-7 * std::max(1.0, std::abs(expected)))
        << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PackedModel, testing::ValuesIn(cases()),
                         [](const auto& at) { return at.param.name; });

// What stands before a document in its window is nothing to it, bit for bit.
TEST(PackedModel, OtherDocumentsDoNotMoveALoss) {
  ModelConfig config = cases()[1].model;
  const ModelLayout layout(model_shape(config, 24));
  std::vector<double> values(static_cast<std::size_t>(layout.elements()));
  const Rng rng{7, Stream::kTestData};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.3 * rng.normal(i);
  FlatWeights<double> flat(layout, values.data());
  kernels::ThreadTeam team(1);
  LanguageModel<double> model(layout, 24, LanguageModel<double>::Purpose::kInference);
  double losses[2] = {};
  for (const std::int32_t other : {5, 6}) {
    std::vector<std::int32_t> inputs(24, other), targets(24, kNoTarget), starts(24);
    inputs[9] = kEnd;
    mark_documents(kEnd, inputs, targets, starts);
    for (std::size_t t = 10; t < 24; ++t) {
      inputs[t] = static_cast<std::int32_t>(4 + t % 7);
      targets[t] = static_cast<std::int32_t>(5 + t % 6);
    }
    losses[other - 5] = model.loss(team, flat, {inputs, targets, 1, 24, starts}).loss;
    const double plain = model.loss(team, flat, {inputs, targets, 1, 24}).loss;
    EXPECT_GT(std::abs(plain - losses[other - 5]), 1e-3);  // the mask matters
  }
  EXPECT_EQ(losses[0], losses[1]);
}

Step packed_step(const LanguageModelOptions& options) {
  DocumentBatches batches(kVocab, options.sequences, options.context);
  LanguageModelLoop loop(options, batches.provider());
  Step step;
  step.loss = loop.gradients(StepIndex(1), {}).loss;
  for (std::size_t i = 0; i < loop.parameters().size(); ++i) {
    const auto gradient = loop.gradient(i);
    step.begins.push_back(step.gradients.size());
    step.gradients.insert(step.gradients.end(), gradient.begin(), gradient.end());
  }
  return step;
}

TEST(PackedMeshes, HaveTheLossAndGradientsOfOneRank) {
  const Case kMeshes[] = {
      {"tp2", {.tp = 2}},
      {"tp2 split", {.tp = 2, .sequence_parallel = true}},
      {"dp4 of 2 micro-batches", {.dp = 4}, 2},
      {"pp2 interleaved", {.pp = 2}, 4, PipelineKind::kInterleaved, 2},
      {"pp4 zb-h1", {.pp = 4}, 8, PipelineKind::kZbH1},
      {"tp2 pp2 dp2", {.tp = 2, .pp = 2, .dp = 2}, 2},
  };
  for (const char* name : {"gpt2", "llama-grouped"}) {
    const LanguageModelOptions one = model_of(name);
    const Step expected = packed_step(one);
    EXPECT_GT(std::abs(expected.loss - first_step(one).loss), 1e-4);
    for (const Case& c : kMeshes) {
      const LanguageModelOptions options = on_mesh(one, c);
      const Step mesh = packed_step(options);
      EXPECT_NEAR(mesh.loss, expected.loss, 1e-6 * expected.loss) << name << " " << c;
      EXPECT_LE(largest_difference_by_parameter(mesh, expected), 1e-5) << name << " " << c;
      with_processes(options, [&](const LanguageModelOptions& first) {
        const Step processes = packed_step(first);
        EXPECT_EQ(processes.loss, mesh.loss) << name << " " << c;
        EXPECT_EQ(processes.gradients, mesh.gradients) << name << " " << c;
      });
    }
  }
}

TEST(PackedLoop, MeanOfTheWorkersGradientsIsTheGradientOfTheMean) {
  const LanguageModelOptions whole = model_of("llama");
  DocumentBatches batches(kVocab, whole.sequences, whole.context);
  const Step one = packed_step(whole);
  LanguageModelOptions half = whole;
  half.sequences = whole.sequences / 2;
  std::vector<double> mean(one.gradients.size(), 0.0);
  double losses = 0;
  std::int64_t targets = 0;
  std::vector<std::int64_t> counted;
  for (std::int64_t worker = 0; worker < 2; ++worker) {
    const auto share = [&](StepIndex t) {
      const TokenBatch all = batches.at(t);
      TokenBatch own = samples_of(all, worker * half.sequences, half.sequences);
      own.mean_targets = static_cast<double>(counted_targets(all)) / 2;
      return own;
    };
    LanguageModelLoop loop(half, share);
    const InnerStep step = loop.gradients(StepIndex(1), {});
    counted.push_back(step.tokens);
    targets += step.tokens;
    losses += step.loss * static_cast<double>(step.tokens);
    std::size_t at = 0;
    for (std::size_t i = 0; i < loop.parameters().size(); ++i) {
      for (const float g : loop.gradient(i)) mean[at++] += static_cast<double>(g) / 2;
    }
  }
  EXPECT_NE(counted[0], counted[1]);
  EXPECT_NEAR(losses / static_cast<double>(targets), one.loss, 1e-6 * one.loss);
  double off = 0;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    off = std::max(off, std::abs(mean[i] - static_cast<double>(one.gradients[i])));
  }
  EXPECT_LE(off, 1e-6 * largest(one.gradients));
}

TEST(PackedLoop, ForwardOnlyRowByRowIsTheWhole) {
  LanguageModelOptions options = model_of("gpt2");
  DocumentBatches batches(kVocab, options.sequences, options.context);
  LanguageModelLoop loop(options, batches.provider());
  class Rows final : public ParameterSource {
   public:
    explicit Rows(std::span<const Parameter> parameters) : whole_(parameters) {}
    [[nodiscard]] std::span<const float> values(std::size_t parameter) const override {
      return whole_.values(parameter);
    }
    [[nodiscard]] bool by_rows() const override { return true; }

   private:
    LoopParameters whole_;
  };
  const TokenBatch batch = batches.at(StepIndex(5));
  const LoopParameters whole(loop.parameters());
  const Rows rows(loop.parameters());
  EXPECT_EQ(loop.loss(batch, rows), loop.loss(batch, whole));
}

}  // namespace
}  // namespace isthmus::this_file
