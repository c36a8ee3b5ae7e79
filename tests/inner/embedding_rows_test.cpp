// SPDX-License-Identifier: Apache-2.0
// The oracle of rows kept apart is a whole table of them.
#include "inner/model/embedding_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "inner/inner_test.h"

namespace isthmus::this_file {
namespace {

constexpr std::int64_t kTokens = 8;  // of a micro-batch

ModelLayout layout_of(std::int64_t rows) {
  ModelConfig model{.arch = "llama", .layers = 1, .d_model = 8, .heads = 2, .vocab = rows};
  model.tied = true;
  return ModelLayout(model_shape(model, kTokens));
}

/// A rank that has `layout`'s rows of a vocabulary of `all`, from `first` on.
void expect_dense_sum(const ModelLayout& layout, std::int64_t first, std::int64_t all) {
  kernels::ThreadTeam team(2);
  const std::int64_t rows = layout.shape().vocab, d = layout.shape().d_model;
  const VocabularyShare share{.first_row = first, .all_rows = all, .largest = rows};
  EmbeddingRows<float> kept(embedding_rows_size(layout, 2 * kTokens, 2));
  const Pass pass{team, 1, kTokens};
  RandomBatches batches(static_cast<std::int32_t>(all), 1, kTokens);
  for (int step = 1; step <= 3; ++step) {  // each begins anew
    std::vector<float> dense(static_cast<std::size_t>(rows * d), 0.0f);
    kept.begin();
    for (int part = 0; part < 2; ++part) {
      const TokenBatch batch = batches.at(StepIndex(2 * step + part));
      std::vector<float> stream(static_cast<std::size_t>(kTokens * d));
      for (std::size_t i = 0; i < stream.size(); ++i) {
        stream[i] = 0.37f * static_cast<float>(i % 11) - 0.9f * static_cast<float>(step + part);
      }
      add_embedding_gradients<float>(pass, layout, share, stream.data(), batch.inputs.data(),
                                     dense.data(), nullptr);
      kept.add(pass, layout, share, stream.data(), batch.inputs.data(), nullptr);
    }
    std::vector<float> expected(dense.size(), 0.25f), found = expected;
    for (std::size_t i = 0; i < dense.size(); ++i) expected[i] += dense[i];
    kept.add_to(team, found.data());
    EXPECT_EQ(found, expected) << "step " << step;
  }
}

TEST(EmbeddingRows, AddWhatAWholeTableWould) {
  expect_dense_sum(layout_of(100), 0, 100);  // more rows than tokens
  expect_dense_sum(layout_of(5), 0, 5);      // fewer
}

TEST(EmbeddingRows, AreOfTheRanksOwnVocabulary) { expect_dense_sum(layout_of(7), 4, 13); }

TEST(EmbeddingRows, LeaveOtherRowsOfTheTableAlone) {
  kernels::ThreadTeam team(1);
  std::vector<float> table(6, -0.0f);
  const std::vector<std::int32_t> tokens = {2, -1};
  const std::vector<float> values = {1, 2, 3, 4};
  add_rows<float>(team, tokens, values.data(), 2, table.data());
  EXPECT_THAT(std::vector<float>(table.begin() + 4, table.end()), testing::ElementsAre(1, 2));
  EXPECT_TRUE(std::all_of(table.begin(), table.begin() + 4,
                          [](float v) { return v == 0 && std::signbit(v); }));
}

}  // namespace
}  // namespace isthmus::this_file
