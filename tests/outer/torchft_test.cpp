// SPDX-License-Identifier: Apache-2.0
// Replays pytorch/torchft's regression fixtures test_mocked_updates 0, 2, 3 and 5 (BSD-3-Clause, at
// 73dafea), and the same set-up with alpha = .5 (their numbers 1 and 4), worked out by hand: an
// anchor of "own value after mixing" would not pass those: two replicas, two scalar fragments that
// start at 1, inner SGD lr 1 with gradient 2, outer SGD lr 2, a sync every 3 steps of alternating
// fragments, 15 steps. Their delay is counted back from the boundary: offsets [3, 0] for delay 0,
// [2, 5] with overlap 1 for delay 1. All values are exactly representable, so equality is demanded.
#include <gtest/gtest.h>

#include <map>

#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

/// Every step subtracts lr 1 times gradient 2 from each of two scalar layers.
class FallingLoop final : public InnerLoop {
 public:
  FallingLoop() {
    for (int layer = 0; layer < 2; ++layer) {
      parameters_.push_back(
          {.name = "layers." + std::to_string(layer) + ".weight",
           .layer = layer,
           .shape = {1, 1},
           .elements = {layer, layer + 1},
           .values = std::span(values_).subspan(static_cast<std::size_t>(layer), 1)});
    }
  }
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  InnerStep train_step(StepIndex) override {
    for (float& value : values_) {
      value -= 2;
    }
    return {};
  }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 1; }
  [[nodiscard]] float layer(std::size_t i) const { return values_[i]; }

 private:
  std::vector<float> values_ = {1, 1};
  std::vector<Parameter> parameters_;
};

struct Fixture {
  int number;
  std::vector<std::int64_t> offsets;
  std::int64_t overlap;
  double alpha;
  std::map<int, float> local0, local1;    // values right after a sync was applied
  std::map<int, float> anchor0, anchor1;  // outer parameters from that step on
};

const std::vector<Fixture> kFixtures = {{0,
                                         {3, 0},
                                         0,
                                         0,
                                         {{3, -11}, {9, -35}, {15, -59}},
                                         {{6, -23}, {12, -47}},
                                         {{3, -11}, {9, -35}},
                                         {{6, -23}, {12, -47}}},
                                        // Layer 0 falls to -5; Delta 6; anchor 1 - 12; mixed -8.
                                        // Then -20; Delta -11 + 20 = 9; anchor -29; mixed -24.5.
                                        {1,
                                         {3, 0},
                                         0,
                                         0.5,
                                         {{3, -8}, {9, -24.5f}, {15, -40.25f}},
                                         {{6, -17}, {12, -32}},
                                         {{3, -11}, {9, -29}, {15, -44}},
                                         {{6, -23}, {12, -35}}},
                                        {2,
                                         {3, 0},
                                         0,
                                         1,
                                         {{3, -5}, {9, -17}, {15, -29}},
                                         {{6, -11}, {12, -23}},
                                         {{3, -11}, {9, -23}},
                                         {{6, -23}, {12, -23}}},
                                        {3,
                                         {2, 5},
                                         1,
                                         0,
                                         {{3, -7}, {9, -27}, {15, -47}},
                                         {{6, -19}, {12, -39}},
                                         {{3, -7}, {9, -27}},
                                         {{6, -19}, {12, -39}}},
                                        // Sent at -3, Delta 4, anchor -7; mixed with -5: -6.
                                        {4,
                                         {2, 5},
                                         1,
                                         0.5,
                                         {{3, -6}, {9, -21.5f}, {15, -35.75f}},
                                         {{6, -15}, {12, -29}},
                                         {{3, -7}, {9, -25}, {15, -38}},
                                         {{6, -19}, {12, -31}}},
                                        {5,
                                         {2, 5},
                                         1,
                                         1,
                                         {{3, -5}, {9, -17}, {15, -29}},
                                         {{6, -11}, {12, -23}},
                                         {{3, -7}, {9, -23}},
                                         {{6, -19}, {12, -23}}}};

class TorchFt : public ::testing::TestWithParam<Fixture> {};

TEST_P(TorchFt, EveryValueOfTheFixtureIsReproduced) {
  const Fixture& fixture = GetParam();
  run_in_process(2, [&](WorkerContext& context) {
    FallingLoop inner;
    const OuterOptions options{.H = 6,
                               .lr = 2.0,
                               .momentum = 0.0,
                               .fragments = 2,
                               .offsets = fixture.offsets,
                               .overlap = fixture.overlap,
                               .alpha = fixture.alpha};
    const auto strategy = make_outer_strategy("streaming-diloco", options, inner, context.exchange);
    float local[2] = {1, 1};
    for (int t = 1; t <= 15; ++t) {
      (void)strategy->step();
      const std::map<int, float>* synced[2] = {&fixture.local0, &fixture.local1};
      const std::map<int, float>* anchors[2] = {&fixture.anchor0, &fixture.anchor1};
      for (std::size_t i = 0; i < 2; ++i) {
        // Between syncs every value falls by 2.
        local[i] = synced[i]->contains(t) ? synced[i]->at(t) : local[i] - 2;
        EXPECT_EQ(inner.layer(i), local[i]) << "layer " << i << " after step " << t;
        if (anchors[i]->contains(t)) {
          EXPECT_EQ(strategy->values(i)[0], anchors[i]->at(t)) << "global " << i << " step " << t;
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(MockedUpdates, TorchFt, ::testing::ValuesIn(kFixtures),
                         [](const auto& fixture) { return std::to_string(fixture.param.number); });

}  // namespace
}  // namespace isthmus::this_file
