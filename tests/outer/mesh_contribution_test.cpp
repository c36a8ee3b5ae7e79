// SPDX-License-Identifier: Apache-2.0
// What a site sends does not depend on its mesh: with the same canonical values before and after an
// inner step, sites of unlike meshes encode the same bytes. And where a mesh computes the bits of
// one rank, it sends them too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inner/mesh_test.h"
#include "isthmus/outer.h"

namespace isthmus::this_file {
namespace {

using Bytes = std::vector<std::byte>;

/// Keeps what its member sends. Borrows `real`.
class RecordingExchange final : public Exchange {
 public:
  RecordingExchange(Exchange& real, std::vector<Bytes>& sent) : real_(real), sent_(sent) {}
  [[nodiscard]] WorkerId self() const override { return real_.self(); }
  [[nodiscard]] int members() const override { return real_.members(); }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return real_.key(id); }
  Ticket begin(Contribution contribution) override {
    sent_.push_back(contribution.encoded.bytes);
    return real_.begin(std::move(contribution));
  }
  [[nodiscard]] bool poll(const Ticket& ticket) override { return real_.poll(ticket); }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override {
    return real_.wait(ticket, patience);
  }
  [[nodiscard]] ByteCounts bytes() const override { return real_.bytes(); }

 private:
  Exchange& real_;
  std::vector<Bytes>& sent_;
};

/// What every site is made to find in inner step t at canonical element e: mostly small, some zero,
/// some large enough that their block holds little else.
float found_at(StepIndex t, std::int64_t e) {
  if (e % 97 == 0) return 0;
  const Rng rng{29, Stream::kTestData};
  const auto normal =
      static_cast<float>(rng.normal(static_cast<std::uint64_t>(t.value() * 10'000'000 + e)));
  return e % 1009 == 0 ? normal : 1e-3f * normal;
}

/// A real loop whose steps are really taken on its mesh, and whose results are then replaced by
/// `found_at`, at the canonical places that the loop itself names.
class GivenResults final : public InnerLoop {
 public:
  explicit GivenResults(LanguageModelLoop& real) : real_(real) {}
  [[nodiscard]] std::span<const Parameter> parameters() const override {
    return real_.parameters();
  }
  InnerStep train_step(StepIndex t) override {
    const CopiedParameters before(real_.parameters());
    const InnerStep step = real_.train_step(t);
    for (std::size_t p = 0; p < parameters().size(); ++p) {
      const Parameter& parameter = parameters()[p];
      for (std::size_t i = 0; i < parameter.values.size(); ++i) {
        parameter.values[i] = before.values(p)[i] - found(t, parameter, i);
      }
    }
    return step;
  }
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override {
    const InnerStep step = real_.gradients(t, {});
    for (std::size_t p = parameters().size(); p-- > 0;) {
      const std::span<float> gradient = real_.gradient(p);
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = found(t, parameters()[p], i);
      }
      if (on_ready) on_ready(p);
    }
    return step;
  }
  [[nodiscard]] std::span<float> gradient(std::size_t p) override { return real_.gradient(p); }
  double apply_gradients(StepIndex t) override { return real_.apply_gradients(t); }
  [[nodiscard]] double learning_rate(StepIndex t) const override { return real_.learning_rate(t); }

 private:
  static float found(StepIndex t, const Parameter& parameter, std::size_t i) {
    return found_at(t, parameter.elements.begin + static_cast<std::int64_t>(i));
  }
  LanguageModelLoop& real_;
};

struct Method {
  std::string name;
  OuterOptions outer;
};

constexpr int kSteps = 6;

/// What each of the sites sends, contribution by contribution. given: their results are.
std::vector<std::vector<Bytes>> sent_by(const std::vector<LanguageModelOptions>& sites,
                                        const Method& method, bool given) {
  std::vector<std::vector<Bytes>> sent(sites.size());
  run_in_process(static_cast<int>(sites.size()), [&](WorkerContext& context) {
    const auto site = static_cast<std::size_t>(context.rank.value());
    const LanguageModelOptions& options = sites[site];
    RandomBatches batches(kVocab, options.sequences, options.context);
    LanguageModelLoop real(options, batches.provider());
    GivenResults replaced(real);
    RecordingExchange exchange(context.exchange, sent[site]);
    const auto strategy = make_outer_strategy(
        method.name, method.outer, given ? static_cast<InnerLoop&>(replaced) : real, exchange);
    for (int t = 1; t <= kSteps; ++t) (void)strategy->step();
    (void)strategy->finish();
  });
  return sent;
}

LanguageModelOptions with(LanguageModelOptions options, const Case& c, int zero = 0) {
  options = on_mesh(std::move(options), c);
  options.zero = zero;
  return options;
}

Method method_of(const std::string& name, const std::string& codec) {
  OuterOptions outer;
  outer.codec = codec;
  if (name == "diloco") outer.H = 2;
  if (name == "streaming-diloco") {
    outer.H = 3;
    outer.fragments = 2;
    outer.overlap = 1;
    outer.alpha = 0.5;
  }
  return {name, outer};
}

/// Two sites that train the same model.
enum class Pair { kOneAndCube, kSplitMeshes, kChunksAndOne };

std::vector<LanguageModelOptions> sites_of(Pair pair, LanguageModelOptions one) {
  switch (pair) {
    case Pair::kOneAndCube:
      return {one, with(one, {"", {.tp = 2, .pp = 2, .dp = 2}, 2})};
    case Pair::kSplitMeshes:
      return {with(one, {"", {.tp = 4, .dp = 2, .sequence_parallel = true}}, 3),
              with(one, {"", {.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true}, 2}, 1)};
    case Pair::kChunksAndOne:
      one.model.layers = 8;
      return {with(one, {"", {.pp = 4}, 4, PipelineKind::kInterleaved, 2}), one};
  }
  return {};
}

struct ContributionCase {
  const char* model;
  const char* method;
  const char* codec;
  Pair pair;
};

class MeshContribution : public testing::TestWithParam<ContributionCase> {};

TEST_P(MeshContribution, HasTheSameBytesOnEveryMesh) {
  const ContributionCase& c = GetParam();
  const auto sent =
      sent_by(sites_of(c.pair, model_of(c.model)), method_of(c.method, c.codec), true);
  ASSERT_GE(sent[0].size(), 3U);
  ASSERT_EQ(sent[0].size(), sent[1].size());
  for (std::size_t i = 0; i < sent[0].size(); ++i) {
    const bool commits = std::string_view(c.method) == "ddp" && i >= kSteps;  // and no more
    EXPECT_EQ(sent[0][i].empty(), commits) << i;
    EXPECT_TRUE(sent[0][i] == sent[1][i]) << "contribution " << i;
  }
}

constexpr ContributionCase kContributions[] = {
    {"gpt2", "diloco", "int8", Pair::kOneAndCube},
    {"llama-tied", "diloco", "fp4", Pair::kOneAndCube},
    {"gpt2", "diloco", "1bit", Pair::kOneAndCube},
    {"llama-tied", "diloco", "topk:64", Pair::kOneAndCube},
    {"llama-tied", "diloco", "fp32", Pair::kChunksAndOne},
    {"gpt2", "diloco", "1bit:ef", Pair::kSplitMeshes},
    {"llama-tied", "diloco", "topk:64:ef", Pair::kSplitMeshes},
    {"gpt2", "streaming-diloco", "int8", Pair::kChunksAndOne},
    {"llama-tied", "streaming-diloco", "fp4-e2m1:64:ef", Pair::kOneAndCube},
    {"llama-tied", "ddp", "int8", Pair::kSplitMeshes},
    {"gpt2", "ddp", "fp4-e2m1:64:ef", Pair::kOneAndCube},
};

std::string case_name(const testing::TestParamInfo<ContributionCase>& at) {
  std::string name = std::string(at.param.model) + at.param.method + "_" + at.param.codec;
  std::erase_if(name, [](char c) { return std::isalnum(c) == 0 && c != '_'; });
  return name;
}
INSTANTIATE_TEST_SUITE_P(Codecs, MeshContribution, testing::ValuesIn(kContributions), case_name);

// Nothing replaced: a pipeline of an untied model has the bits of one rank that accumulates as many
// micro-batches, so it sends its bytes, round after round.
TEST(MeshContributionOfTraining, APipelineSendsTheBytesOfOneRank) {
  LanguageModelOptions one = model_of("llama");
  one.model.layers = 8;
  one.inner.clip = 0;  // the norm's sum of squares is the same; its order is not promised
  one.micro_batches = 4;
  for (const char* codec : {"int8", "fp4", "1bit", "1bit:ef", "topk:64"}) {
    for (const Case& c : {Case{"", {.pp = 4}, 4, PipelineKind::kInterleaved, 2},
                          Case{"", {.pp = 2}, 4, PipelineKind::kZbH1}}) {
      const auto sent = sent_by({one, with(one, c)}, method_of("diloco", codec), false);
      ASSERT_EQ(sent[0].size(), 3U);
      EXPECT_TRUE(sent[0] == sent[1]) << codec;
    }
  }
}

// The oracle can tell: one canonical value that differs changes the bytes.
TEST(MeshContributionOfTraining, UnlikeTrainingSendsOtherBytes) {
  const LanguageModelOptions one = model_of("llama");
  LanguageModelOptions other = with(one, {"", {.tp = 2}});
  other.inner.lr = one.inner.lr * 1.5;
  const auto sent = sent_by({one, other}, method_of("diloco", "int8"), false);
  EXPECT_FALSE(sent[0] == sent[1]);
}

}  // namespace
}  // namespace isthmus::this_file
