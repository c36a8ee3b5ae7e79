// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "isthmus/errors.h"
#include "isthmus/outer.h"

namespace isthmus::this_file {
namespace {

struct Tensor {
  int layer;
  std::int64_t size;
};

std::vector<Parameter> parameters_of(const std::vector<Tensor>& tensors) {
  std::vector<Parameter> parameters;
  std::int64_t begin = 0;
  for (const Tensor& tensor : tensors) {
    parameters.push_back({.name = std::to_string(parameters.size()),
                          .layer = tensor.layer,
                          .shape = {tensor.size},
                          .elements = {begin, begin + tensor.size},
                          .values = {}});
    begin += tensor.size;
  }
  return parameters;
}

using Table = std::vector<std::vector<std::size_t>>;
Table table_of(const std::vector<Tensor>& tensors, int fragments, FragmentPattern pattern,
               bool embeddings_own = false) {
  Table table;
  for (const Fragment& fragment :
       make_fragments(parameters_of(tensors), fragments, pattern, embeddings_own)) {
    EXPECT_EQ(fragment.id.value(), static_cast<int>(table.size()));
    table.push_back(fragment.parameters);
  }
  return table;
}

const std::vector<Tensor> kModel = {{kNoLayer, 50}, {0, 10}, {0, 10}, {1, 30},
                                    {2, 5},         {3, 5},  {4, 21}, {kNoLayer, 7}};

TEST(Fragments, OneFragmentHoldsEverything) {
  EXPECT_EQ(table_of(kModel, 1, FragmentPattern::kStrided), (Table{{0, 1, 2, 3, 4, 5, 6, 7}}));
}

TEST(Fragments, EmbeddingsMayBeTheirOwnWithOneLayerFragment) {
  EXPECT_EQ(table_of(kModel, 1, FragmentPattern::kStrided, true),
            (Table{{1, 2, 3, 4, 5, 6}, {0, 7}}));
}

TEST(Fragments, StridedTakesLayerModuloP) {
  EXPECT_EQ(table_of(kModel, 2, FragmentPattern::kStrided), (Table{{1, 2, 4, 6}, {3, 5}, {0, 7}}));
}

TEST(Fragments, SequentialTakesLayerTimesPOverL) {
  EXPECT_EQ(table_of(kModel, 2, FragmentPattern::kSequential),
            (Table{{1, 2, 3, 4}, {5, 6}, {0, 7}}));  // floor(l 2 / 5): 0 0 0 1 1
}

TEST(Fragments, BalancedGivesLargestLayersFirstToTheLightest) {
  // Layer sizes 20 30 5 5 21: 1 -> a, 4 -> b, 0 -> b, 2 -> a, 3 -> a: loads 40 and 41.
  EXPECT_EQ(table_of(kModel, 2, FragmentPattern::kBalanced), (Table{{3, 4, 5}, {1, 2, 6}, {0, 7}}));
}

TEST(Fragments, ElementsAreCounted) {
  const std::vector<Fragment> table =
      make_fragments(parameters_of(kModel), 2, FragmentPattern::kStrided, false);
  EXPECT_EQ(table[0].elements, 46);
  EXPECT_EQ(table[1].elements, 35);
  EXPECT_EQ(table[2].elements, 57);
}

TEST(Fragments, ModelsWithoutLayerlessTensorsHaveNoFragmentForThem) {
  const std::vector<Tensor> tensors = {{0, 1}, {1, 1}};
  EXPECT_EQ(table_of(tensors, 2, FragmentPattern::kStrided), (Table{{0}, {1}}));
  EXPECT_EQ(table_of(tensors, 1, FragmentPattern::kStrided, true), (Table{{0, 1}}));
}

TEST(Fragments, ModelsWithoutLayersAreOneFragment) {
  const std::vector<Tensor> tensors = {{kNoLayer, 1}, {kNoLayer, 1}};
  EXPECT_EQ(table_of(tensors, 1, FragmentPattern::kStrided, true), (Table{{0, 1}}));
}

TEST(Fragments, LayersBeyondTheTableAreRefused) {
  for (const int layer : {-7, kLayerLimit, std::numeric_limits<int>::max()}) {
    EXPECT_THROW((void)table_of({{layer, 1}, {0, 1}}, 1, FragmentPattern::kBalanced), ConfigError)
        << layer;
  }
  EXPECT_EQ(table_of({{kLayerLimit - 1, 1}, {0, 1}}, 1, FragmentPattern::kStrided).size(), 1U);
}

TEST(Fragments, MoreFragmentsThanLayersAreRefused) {
  EXPECT_THROW((void)table_of(kModel, 6, FragmentPattern::kStrided), ConfigError);
  EXPECT_THROW((void)table_of(kModel, 0, FragmentPattern::kStrided), ConfigError);
  const std::vector<Tensor> gap = {{0, 1}, {2, 1}};
  EXPECT_THROW((void)table_of(gap, 3, FragmentPattern::kStrided), ConfigError);
}

}  // namespace
}  // namespace isthmus::this_file
