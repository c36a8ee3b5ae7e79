// SPDX-License-Identifier: Apache-2.0
// Training follows PyTorch: 30 steps of Hugging Face's models from the same weights and tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inner/golden/torch_losses.h"
#include "inner/loop/language_model_loop.h"

namespace isthmus::this_file {
namespace {

constexpr std::int64_t kSequences = 4;
constexpr std::int64_t kLength = 16;
constexpr std::int64_t kVocab = 61;
// Two fp32 programs that add in another order drift apart by some 1e-7 a step at first; AdamW's
// first steps, whose size does not depend on the gradient's, widen that. The issue asks for 1e-3.
constexpr double kLossTolerance = 3e-6;
constexpr double kNormTolerance = 3e-5;
// Muon's updates differ by up to 0.07 of their norm (tests/kernels/muon_test.cpp), in directions of
// no account: over 30 steps that is 0.07 / sqrt(30) of a way that changes the loss by 0.1 of 4, and
// the norm by as much as itself.
constexpr double kMuonLossTolerance = 0.07 / 5.5 * 0.1 / 4;
constexpr double kMuonNormTolerance = 0.07 / 5.5;

/// Uniform in [-1, 1): the same integer hash as golden/make_torch_losses.py.
double hashed(std::uint32_t seed, std::uint32_t index) {
  std::uint32_t h = seed + index;
  h ^= h >> 16;
  h *= 0x85EBCA6Bu;
  h ^= h >> 13;
  h *= 0xC2B2AE35u;
  h ^= h >> 16;
  return static_cast<double>(h >> 8) / (1 << 23) - 1;
}

std::uint32_t fnv1a(std::string_view text) {
  std::uint32_t h = 2166136261u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  return h;
}

void fill(std::span<const Parameter> parameters) {
  for (const Parameter& p : parameters) {
    const bool norm_weight = p.shape.size() == 1 && p.name.ends_with("weight");
    const double centre = norm_weight ? 1.0 : 0.0;
    const double width = p.shape.size() == 1 ? 0.1 : 0.15;
    for (std::size_t i = 0; i < p.values.size(); ++i) {
      const double u = hashed(fnv1a(p.name), static_cast<std::uint32_t>(i));
      p.values[i] = static_cast<float>(centre + width * u);
    }
  }
}

/// Batches of the generator, one step at a time.
class HashedBatches {
 public:
  TokenBatch at(StepIndex t) {
    inputs_.clear();
    targets_.clear();
    for (std::int64_t b = 0; b < kSequences; ++b) {
      for (std::int64_t i = 0; i < kLength; ++i) {
        inputs_.push_back(token(t, b * (kLength + 1) + i));
        targets_.push_back(token(t, b * (kLength + 1) + i + 1));
      }
    }
    return {inputs_, targets_, kSequences, kLength};
  }

 private:
  static std::int32_t token(StepIndex t, std::int64_t i) {
    const double u = hashed(99, static_cast<std::uint32_t>(i + 100000 * t.value()));
    return static_cast<std::int32_t>((u + 1) / 2 * static_cast<double>(kVocab));
  }
  std::vector<std::int32_t> inputs_, targets_;
};

struct GoldenCase {
  std::string name;
  LanguageModelOptions options;
  std::span<const double> losses, norms;
  double loss_tolerance = kLossTolerance;
  double norm_tolerance = kNormTolerance;
};

void PrintTo(const GoldenCase& c, std::ostream* out) { *out << c.name; }

LanguageModelOptions options_of(const std::string& arch) {
  LanguageModelOptions o;
  o.model = {.arch = arch, .layers = 3, .d_model = 32, .heads = 4, .vocab = kVocab, .context = 24};
  o.inner.lr = 3e-3;
  o.context = kLength;
  o.sequences = kSequences;
  o.total_steps = 30;
  if (arch == "llama") {
    o.model.kv_heads = 2;
    o.model.d_ff = 80;
  }
  return o;
}

std::vector<GoldenCase> cases() {
  std::vector<GoldenCase> all = {
      {"Gpt2", options_of("gpt2"), golden::kGpt2Losses, golden::kGpt2Norms},
      {"Gpt2Sgd", options_of("gpt2"), golden::kGpt2SgdLosses, golden::kGpt2SgdNorms},
      {"Llama", options_of("llama"), golden::kLlamaLosses, golden::kLlamaNorms},
      {"LlamaUntied", options_of("llama"), golden::kLlamaUntiedLosses, golden::kLlamaUntiedNorms},
      {"Qwen3", options_of("llama"), golden::kQwen3Losses, golden::kQwen3Norms},
      {"LlamaMuon", options_of("llama"), golden::kLlamaMuonLosses, golden::kLlamaMuonNorms,
       kMuonLossTolerance, kMuonNormTolerance}};
  InnerConfig& sgd = all[1].options.inner;
  sgd.optimizer = "sgd";
  sgd.lr = 0.05;
  sgd.momentum = 0.9;
  sgd.nesterov = true;
  all[3].options.model.tied = false;
  all[3].options.model.head_dim = 12;
  all[4].options.model.qk_norm = true;
  all[4].options.model.head_dim = 8;
  InnerConfig& muon = all[5].options.inner;
  muon.optimizer = "muon";
  muon.momentum = 0.95;
  muon.nesterov = true;
  return all;
}

class GoldenTest : public testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenTest, LossesAndNormsFollowTorch) {
  HashedBatches batches;
  LanguageModelLoop loop(GetParam().options, [&](StepIndex t) { return batches.at(t); });
  fill(loop.parameters());
  double worst_loss = 0;
  double worst_norm = 0;
  for (std::size_t i = 0; i < GetParam().losses.size(); ++i) {
    const InnerStep step = loop.train_step(StepIndex(static_cast<std::int64_t>(i) + 1));
    EXPECT_EQ(step.tokens, kSequences * kLength);
    const double loss_error = std::abs(step.loss / GetParam().losses[i] - 1);
    const double norm_error = std::abs(step.grad_norm / GetParam().norms[i] - 1);
    EXPECT_LE(loss_error, GetParam().loss_tolerance) << "step " << i + 1 << " loss " << step.loss;
    EXPECT_LE(norm_error, GetParam().norm_tolerance)
        << "step " << i + 1 << " norm " << step.grad_norm;
    worst_loss = std::max(worst_loss, loss_error);
    worst_norm = std::max(worst_norm, norm_error);
  }
  std::printf("worst relative error: loss %.1e, norm %.1e\n", worst_loss, worst_norm);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, testing::ValuesIn(cases()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace isthmus::this_file
