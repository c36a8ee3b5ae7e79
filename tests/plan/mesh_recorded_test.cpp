// SPDX-License-Identifier: Apache-2.0
// What the plan says that a rank of a mesh holds and sends, against a rank that runs.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "inner/mesh_rank.h"
#include "plan/mesh_cost.h"
#include "transport/thread_communicator.h"

namespace isthmus::plan {
namespace {

/// Operations that one rank took part in by group, and their bytes as mesh_cost.h counts them.
struct Recorded {
  std::int64_t operations = 0, payload_bytes = 0;
  void add(std::int64_t values, Dtype dtype) {
    ++operations;
    payload_bytes += values * (dtype == Dtype::kF64 ? 8 : dtype == Dtype::kBf16 ? 2 : 4);
  }
};

class RecordingCommunicator final : public Communicator {
 public:
  /// One that counts into `own`, and hands out children that count into `children` in order.
  RecordingCommunicator(std::unique_ptr<Communicator> plain, Recorded* own,
                        std::vector<Recorded>* children)
      : owned_(std::move(plain)), plain_(*owned_), own_(own), children_(children) {}
  RecordingCommunicator(Communicator& plain, Recorded* own) : plain_(plain), own_(own) {}

  [[nodiscard]] int rank() const override { return plain_.rank(); }
  [[nodiscard]] int size() const override { return plain_.size(); }
  [[nodiscard]] std::string_view backend() const override { return plain_.backend(); }
  void all_reduce(Values values, Reduce reduce) override {
    own_->add(values.count, values.dtype);
    plain_.all_reduce(values, reduce);
  }
  void reduce_scatter(ConstValues input, std::span<const std::int64_t> counts, Values output,
                      Reduce reduce) override {
    own_->add(input.count, input.dtype);
    plain_.reduce_scatter(input, counts, output, reduce);
  }
  void all_gather(ConstValues input, std::span<const std::int64_t> counts, Values output) override {
    own_->add(output.count, output.dtype);
    plain_.all_gather(input, counts, output);
  }
  void broadcast(Values values, int root) override { plain_.broadcast(values, root); }
  void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts, Values output,
                  std::span<const std::int64_t> receive_counts) override {
    plain_.all_to_all(input, send_counts, output, receive_counts);
  }
  void send(ConstValues values, int to, int tag) override {
    own_->add(values.count, values.dtype);
    plain_.send(values, to, tag);
  }
  void receive(Values values, int from, int tag) override { plain_.receive(values, from, tag); }
  void barrier() override { plain_.barrier(); }
  [[nodiscard]] std::unique_ptr<Work> start(std::function<void(Communicator&)> operation) override {
    return plain_.start([own = own_, operation = std::move(operation)](Communicator& plain) {
      RecordingCommunicator recording(plain, own);
      operation(recording);
    });
  }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<RecordingCommunicator>(plain_.split(color, key), &(*children_)[next_++],
                                                   nullptr);
  }
  void abort(const std::string& cause) noexcept override { plain_.abort(cause); }
  [[nodiscard]] std::string end_cause() override { return plain_.end_cause(); }

 private:
  std::unique_ptr<Communicator> owned_;  // may be null
  Communicator& plain_;
  Recorded* own_;
  std::vector<Recorded>* children_ = nullptr;
  std::size_t next_ = 0;
};

struct Case {
  std::string name, model;
  MeshShape mesh;
  std::int64_t micro_batches = 1;
  bool recompute = false, bf16 = false;
  PipelineKind schedule = PipelineKind::k1F1B;
  int virtual_stages = 1;
};

MeshWorkload workload(const std::string& name) {
  ModelConfig model{.arch = "gpt2", .layers = 4, .d_model = 64, .heads = 8, .vocab = 120};
  if (name != "gpt2") {
    model.arch = "llama";
    model.qk_norm = true;
    model.kv_heads = name == "llama-two-keys" ? 2 : 4;
    model.tied = name == "llama";
  }
  return {model_shape(model, 16), InnerConfig{}, 16, 8};
}

class RecordedMesh : public testing::TestWithParam<Case> {};

TEST_P(RecordedMesh, HoldsAndSendsWhatThePlanSays) {
  const Case& c = GetParam();
  const MeshWorkload w = workload(c.model);
  MeshChoice choice;
  choice.tp = c.mesh.tp;
  choice.pp = c.mesh.pp;
  choice.dp = c.mesh.dp;
  choice.micro_batches = c.micro_batches;
  choice.schedule = c.schedule;
  choice.virtual_stages = c.virtual_stages;
  choice.recompute = c.recompute;
  choice.bf16 = c.bf16;
  choice.sequence_parallel = c.mesh.sequence_parallel;
  using Purpose = LanguageModel<float>::Purpose;
  const MeshOptions options{.mesh = c.mesh,
                            .schedule = c.schedule,
                            .virtual_stages = c.virtual_stages,
                            .sequences = w.sequences,
                            .micro_batches = c.micro_batches,
                            .context = w.context,
                            .purpose = c.recompute ? Purpose::kRecompute : Purpose::kTraining,
                            .bf16 = c.bf16};
  const ModelLayout layout(w.shape);
  const auto elements = static_cast<std::size_t>(layout.elements());
  const std::vector<float> weights(elements, 0.01f);
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(w.sequences * w.context), 3);
  const auto ranks = static_cast<std::size_t>(c.mesh.ranks());
  enum Group : std::size_t { kTensor, kPipeline, kData, kCopies, kGroups };
  std::vector<std::vector<Recorded>> recorded(ranks, std::vector<Recorded>(kGroups));
  {
    auto worlds = make_thread_communicators(c.mesh.ranks(), std::chrono::minutes(2));
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        Recorded world;
        RecordingCommunicator recording(std::move(worlds[r]), &world, &recorded[r]);
        MeshRank rank(layout, options, recording, true);
        rank.use_weights(weights.data());
        rank.train({tokens, tokens, w.sequences, w.context}, 1.0);
        rank.sum_gradients();
      });
    }
  }
  for (int r = 0; r < c.mesh.ranks(); ++r) {
    const RankCost cost = rank_cost(w, choice, mesh_position(c.mesh, r).pp);
    const std::vector<Recorded>& own = recorded[static_cast<std::size_t>(r)];
    EXPECT_EQ(own[kTensor].operations + own[kCopies].operations, cost.volumes.tensor.operations)
        << r;
    EXPECT_EQ(own[kTensor].payload_bytes + own[kCopies].payload_bytes,
              cost.volumes.tensor.payload_bytes)
        << r;
    EXPECT_EQ(own[kPipeline].operations, cost.volumes.pipeline.operations) << r;
    EXPECT_EQ(own[kPipeline].payload_bytes, cost.volumes.pipeline.payload_bytes) << r;
    // The plan counts for the rank with most rows of the vocabulary.
    if (mesh_position(c.mesh, r).tp != 0) continue;
    EXPECT_EQ(c.mesh.dp == 1 ? 0 : own[kData].operations, cost.data.reduce.operations) << r;
    EXPECT_EQ(c.mesh.dp == 1 ? 0 : own[kData].payload_bytes, cost.data.reduce.payload_bytes) << r;
    EXPECT_EQ(MeshRank::bytes(layout, options, r, true),
              cost.memory.parameters + cost.memory.gradients + cost.memory.activations +
                  cost.memory.buffers)
        << r;
  }
}

const Case kCases[] = {
    {"tp2", "gpt2", {.tp = 2}},
    {"tp2 dp2 of heads' norms", "llama", {.tp = 2, .dp = 2}, 2},
    {"tp2 split", "gpt2", {.tp = 2, .sequence_parallel = true}},
    {"tp4 split of 2", "llama", {.tp = 4, .sequence_parallel = true}, 2},
    {"tp2 pp2 dp2 split",
     "llama-untied",
     {.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true},
     2},
    {"tp2 pp2 split recomputing", "gpt2", {.tp = 2, .pp = 2, .sequence_parallel = true}, 4, true},
    {"tp2 split bf16", "llama", {.tp = 2, .sequence_parallel = true}, 2, false, true},
    {"tp2 pp2 interleaved split",
     "gpt2",
     {.tp = 2, .pp = 2, .sequence_parallel = true},
     4,
     false,
     false,
     PipelineKind::kInterleaved,
     2},
    {"pp4 zb-h1", "gpt2", {.pp = 4}, 8, false, false, PipelineKind::kZbH1},
    {"tp2 pp2 dp2 zb-h1",
     "llama",
     {.tp = 2, .pp = 2, .dp = 2},
     4,
     false,
     true,
     PipelineKind::kZbH1},
    {"tp2 pp2 zb-h1 split",
     "gpt2",
     {.tp = 2, .pp = 2, .sequence_parallel = true},
     4,
     false,
     false,
     PipelineKind::kZbH1},
    {"tp4 pp2 zb-h1 copies split",
     "llama-two-keys",
     {.tp = 4, .pp = 2, .sequence_parallel = true},
     4,
     false,
     true,
     PipelineKind::kZbH1},
    {"tp4 copies", "llama-two-keys", {.tp = 4}},
    {"tp4 pp2 copies split", "llama-two-keys", {.tp = 4, .pp = 2, .sequence_parallel = true}, 2},
};
INSTANTIATE_TEST_SUITE_P(Meshes, RecordedMesh, testing::ValuesIn(kCases), [](const auto& at) {
  std::string name = at.param.name;
  std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
  return name;
});

}  // namespace
}  // namespace isthmus::plan
