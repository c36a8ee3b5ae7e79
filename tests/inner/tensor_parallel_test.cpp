// SPDX-License-Identifier: Apache-2.0
// Tensor-parallel ranks in double, with and without a split sequence: what they find is one rank's
// to the last few bits, so the algebra is right and float's rounding is all that is left.
#include "inner/model/tensor_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "inner/mesh/rank_layout.h"
#include "inner/mesh_test.h"
#include "inner/model/init.h"
#include "inner/model/model.h"
#include "transport/collectives/thread_communicator.h"

namespace isthmus::this_file {
namespace {
constexpr double kRounding = 1e-12;  // of the largest gradient of a parameter

struct Found {
  LossSum sum;
  std::vector<double> gradients;  // in the layout's order
};

std::vector<double> doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

Found run(const ModelLayout& layout, const VocabularyShare& vocabulary,
          const std::vector<double>& values, const TokenBatch& batch, Communicator* ranks,
          bool split, LanguageModel<double>::Purpose purpose) {
  kernels::ThreadTeam team(1);
  const std::int64_t rows = batch.sequences * batch.length;
  std::vector<double> whole(static_cast<std::size_t>(rows * layout.shape().d_model));
  const Pass pass{team, batch.sequences, batch.length,
                  TensorGroup(ranks, split ? whole.data() : nullptr)};
  LanguageModel<double> model(layout, rows, purpose, false, split ? ranks->size() : 1);
  model.hold_vocabulary(vocabulary);
  FlatWeights<double> weights(layout, values.data());
  Found found;
  found.gradients.assign(values.size(), 0.0);
  const BackwardOptions<double> backward{.gradient_scale = 1.0 / static_cast<double>(rows),
                                         .gradients = found.gradients.data()};
  model.stage_forward(pass, weights, batch.inputs.data(), true);
  found.sum = model.stage_head(pass, weights, batch, &backward);
  model.stage_backward(pass, weights, batch.inputs.data(), backward);
  return found;
}

using Param = std::tuple<const char*, int, bool>;
class TensorParallel : public testing::TestWithParam<Param> {};

TEST_P(TensorParallel, HasTheGradientsOfOneRankInDouble) {
  const std::string name = std::get<0>(GetParam());
  const int tp = std::get<1>(GetParam());
  const bool split = std::get<2>(GetParam());
  const LanguageModelOptions options = model_of(name);
  const ModelLayout canonical(model_shape(options.model, options.context));
  const auto n = static_cast<std::size_t>(canonical.elements());
  std::vector<float> values(n), places(n);
  const Rng rng{11, Stream::kTestData};
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = 0.2f * (static_cast<float>(rng.below(2001, i, 0)) / 1000.0f - 1.0f);
    places[i] = static_cast<float>(i);  // exact: fewer than 2^24
  }
  RandomBatches batches(kVocab, 3, options.context);
  const TokenBatch batch = batches.at(StepIndex(1));
  const std::int64_t vocab = canonical.shape().vocab;
  using Purpose = LanguageModel<double>::Purpose;
  const Found one =
      run(canonical, {0, vocab, vocab}, doubles(values), batch, nullptr, false, Purpose::kTraining);

  RankShare share{.ranks = tp, .layers = {0, canonical.shape().layers}};
  share.sequence_parallel = split;
  std::vector<RankLayout> layouts;
  for (share.rank = 0; share.rank < tp; ++share.rank) layouts.emplace_back(canonical, share);
  std::vector<Found> found(static_cast<std::size_t>(tp));
  {
    auto ranks = make_thread_communicators(tp, std::chrono::minutes(2));
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      threads.emplace_back([&, r] {
        const RankLayout& layout = layouts[r];
        std::vector<float> own(static_cast<std::size_t>(layout.local().elements()));
        layout.take(values.data(), {0, layout.local().elements()}, own.data());
        // Recomputing, so that its collective calls are tried too.
        const auto with = [&](Purpose purpose) {
          return run(layout.local(), layout.vocabulary(), doubles(own), batch, ranks[r].get(),
                     split, purpose);
        };
        found[r] = with(Purpose::kRecompute);
        EXPECT_EQ(with(Purpose::kSelective).gradients, found[r].gradients) << r;
      });
    }
  }
  // By definition: summands are added, shares stand where they belong, the rest is the same.
  std::vector<double> all(n, 0.0);
  for (std::size_t r = 0; r < layouts.size(); ++r) {
    EXPECT_NEAR(found[r].sum.loss, one.sum.loss, kRounding * one.sum.loss) << r;
    const RankLayout& layout = layouts[r];
    std::vector<float> at(found[r].gradients.size());
    layout.take(places.data(), {0, layout.local().elements()}, at.data());
    std::vector<bool> summand(at.size(), false);
    for (const auto ranges : {layout.partial(), layout.copied()}) {
      for (const CanonicalRange& range : ranges) {
        for (auto i = range.begin; i < range.end; ++i) summand[static_cast<std::size_t>(i)] = true;
      }
    }
    for (std::size_t i = 0; i < at.size(); ++i) {
      double& sum = all[static_cast<std::size_t>(at[i])];
      sum = summand[i] ? sum + found[r].gradients[i] : found[r].gradients[i];
    }
  }
  for (const TensorInfo& tensor : canonical.tensors()) {
    double top = 0, off = 0;
    for (auto i = tensor.elements.begin; i < tensor.elements.end; ++i) {
      const auto k = static_cast<std::size_t>(i);
      top = std::max(top, std::abs(one.gradients[k]));
      const double apart = std::abs(all[k] - one.gradients[k]);
      if (!(apart <= off)) off = apart;  // NaN stays
    }
    EXPECT_GT(top, 0) << tensor.name;
    EXPECT_LE(off, kRounding * top) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, TensorParallel,
                         testing::Combine(testing::Values("gpt2", "llama", "llama-tied",
                                                          "llama-grouped", "llama-two-keys",
                                                          "llama-one-key"),
                                          testing::Values(2, 4), testing::Bool()),
                         [](const auto& at) {
                           std::string text = std::string(std::get<0>(at.param)) +
                                              std::to_string(std::get<1>(at.param)) +
                                              (std::get<2>(at.param) ? "split" : "");
                           std::erase(text, '-');
                           return text;
                         });

INSTANTIATE_TEST_SUITE_P(Families, TensorParallel,
                         testing::Combine(testing::Values("llama-yarn", "mistral", "qwen2",
                                                          "smollm3", "phi3", "neox", "neox-serial",
                                                          "gemma", "gemma2", "gemma3"),
                                          testing::Values(2, 4), testing::Bool()),
                         [](const auto& at) {
                           std::string text = std::string(std::get<0>(at.param)) +
                                              std::to_string(std::get<1>(at.param)) +
                                              (std::get<2>(at.param) ? "split" : "");
                           std::erase(text, '-');
                           return text;
                         });

// A gather gives every rank all rows, a sum leaves each its own, however the rows divide.
TEST(TensorGroups, SplitRowsThatDoNotDivide) {
  constexpr std::int64_t kColumns = 3;
  for (const std::int64_t rows : {1, 2, 5, 12}) {
    auto ranks = make_thread_communicators(4, std::chrono::minutes(2));
    std::vector<std::jthread> threads;
    for (auto& communicator : ranks) {
      threads.emplace_back([&communicator, rows] {
        const auto values = static_cast<std::size_t>(rows * kColumns);
        std::vector<float> whole(values);
        const TensorGroup group(communicator.get(), whole.data());
        const int rank = communicator->rank();
        const std::int64_t first = rows * rank / 4;
        const auto own_values = static_cast<std::size_t>(group.own_rows(rows) * kColumns);
        std::vector<float> own(own_values);
        for (std::size_t i = 0; i < own.size(); ++i) {
          own[i] = static_cast<float>(first * kColumns) + static_cast<float>(i);
        }
        const float* all = group.all_rows<float>(own.data(), rows, kColumns);
        for (std::size_t i = 0; i < values; ++i) EXPECT_EQ(all[i], static_cast<float>(i));
        float* const summand = group.summand(own.data());
        for (std::size_t i = 0; i < values; ++i) {
          summand[i] = static_cast<float>(i) * static_cast<float>(rank + 1);
        }
        group.sum(own.data(), rows, kColumns);
        for (std::size_t i = 0; i < own.size(); ++i) {
          EXPECT_EQ(own[i], 10 * (static_cast<float>(first * kColumns) + static_cast<float>(i)));
        }
      });
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
