// SPDX-License-Identifier: Apache-2.0
// When a rank's gradients are summed, on the emulated device, whose work is done as late as it may
// be and whose memory the host can read.
#include "cuda/mesh_case.h"
#include "cuda/thread_orders.h"

namespace isthmus::this_file {
namespace {

/// Remembers what there was to be summed when.
class WatchingPeers final : public CudaPeers {
 public:
  struct Sum {
    const float* begin;
    std::vector<float> values;
    bool embedding_is_there;
  };

  explicit WatchingPeers(std::int64_t targets) : targets_(targets) {}
  [[nodiscard]] std::int64_t targets(StepIndex) override { return targets_; }
  void sum_on_device(std::span<const CudaBucket> buckets) override {
    for (const CudaBucket& bucket : buckets) {
      bucket.final_->synchronize();
      const std::span<float> values = bucket.values;
      if (sums.empty()) end_ = values.data() + values.size();
      const float* const first = end_ - elements;
      sums.push_back({values.data(), {values.begin(), values.end()}, first[0] != 0});
    }
  }
  void sum(std::span<double>) override {}

  std::int64_t elements = 0;
  std::vector<Sum> sums;

 private:
  std::int64_t targets_;
  const float* end_ = nullptr;
};

class RankOverlap : public CudaModelsTest {};

TEST_P(RankOverlap, EachBucketIsSummedOnceItsGradientsAreFinalWhileThePassGoesOn) {
  WatchingPeers peers(kSequences * kLength);
  // One token alone: the first row of the embedding has a gradient in the end.
  std::vector<std::int32_t> ids(static_cast<std::size_t>(kSequences * kLength), 0);
  const auto batches = [&](StepIndex) { return TokenBatch{ids, ids, kSequences, kLength}; };
  for (const bool graphs : {false, true}) {
    options_.micro_batches = graphs ? 1 : 2;
    CudaLoop loop(options_, batches, {.graphs = graphs, .bucket_values = 1}, &peers);
    peers.elements = loop.parameters().back().elements.end;
    for (int t = 1; t <= 3; ++t) {  // queued, recorded, launched again
      peers.sums.clear();
      static_cast<void>(loop.gradients(StepIndex(1), {}));
      const std::vector<float> gradients = all_gradients(loop);
      // Behind the layers, each layer, before the layers.
      ASSERT_EQ(std::ssize(peers.sums), options_.model.layers + 2);
      const float* const first = peers.sums.back().begin;
      const float* end = first + gradients.size();
      for (const WatchingPeers::Sum& sum : peers.sums) {
        EXPECT_EQ(sum.begin + sum.values.size(), end);
        end = sum.begin;
        const auto at = gradients.begin() + (sum.begin - first);
        EXPECT_TRUE(std::equal(sum.values.begin(), sum.values.end(), at)) << at - gradients.begin();
        const bool tied = loop.parameters().back().name != "lm_head.weight";
        if (!tied && graphs) {
          EXPECT_EQ(sum.embedding_is_there, sum.begin == first);
        }
      }
    }
  }
}

TEST_P(RankOverlap, BucketsHaveTheLeastSizeThatIsAskedFor) {
  WatchingPeers peers(kSequences * kLength);
  constexpr std::int64_t kLeast = 10'000;  // less than a layer has, more than is behind them
  CudaLoop loop(options_, batches_.provider(), {.bucket_values = kLeast}, &peers);
  static_cast<void>(loop.pass(StepIndex(1)));
  std::size_t all = 0;
  for (const WatchingPeers::Sum& sum : peers.sums) {
    all += sum.values.size();
    if (&sum != &peers.sums.back()) {
      EXPECT_GE(std::ssize(sum.values), kLeast);
    }
  }
  EXPECT_GE(peers.sums.size(), 2u);
  EXPECT_EQ(all, values_now(loop).size());
}

ISTHMUS_FOR_EACH_MODEL(RankOverlap);

class MeshStreams : public cuda::DeviceTest {};

// Ranks make their streams side by side, so no one of them can be told to be late.
TEST_F(MeshStreams, GiveTheSameBitsEarlyAndLate) {
  constexpr int kRanks = 2;
  std::vector<Trajectory> all;
  for (const int order : {0, 1}) {
    cuda::use_stream_order(order);
    RandomBatches batches(kVocab, kMeshSequences, kLength);
    CudaMeshOptions options = on_devices(kRanks);
    options.loop.bucket_values = 1;
    CudaMesh mesh(with_ranks(tiny_options("gpt2"), kRanks), batches.provider(), options);
    all.push_back(train(mesh, 1, 4));
    EXPECT_THAT(values_of_ranks(mesh, kRanks), testing::Each(all.back().values));
  }
  cuda::use_stream_order(0);
  EXPECT_EQ(all.front(), all.back());
}

}  // namespace
}  // namespace isthmus::this_file
