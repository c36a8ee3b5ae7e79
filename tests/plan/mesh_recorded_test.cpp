// SPDX-License-Identifier: Apache-2.0
// What the plan says that a rank of a mesh holds and sends, against a rank that runs.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "inner/mesh/canonical_exchange.h"
#include "inner/mesh/mesh_rank.h"
#include "inner/mesh/mesh_update.h"
#include "plan/mesh_cost.h"
#include "plan/mesh_recorded_cases.h"
#include "plan/mesh_traffic.h"
#include "transport/collectives/thread_communicator.h"

namespace isthmus::plan::this_file {
namespace {

/// Operations that one rank took part in, and their bytes as mesh_cost.h counts them.
struct Counted {
  std::int64_t operations = 0, payload_bytes = 0;
  void add(std::int64_t values, Dtype dtype) {
    ++operations;
    const int bytes = dtype == Dtype::kF64    ? 8
                      : dtype == Dtype::kBf16 ? 2
                      : dtype == Dtype::kU8   ? 1
                                              : 4;
    payload_bytes += values * bytes;
  }
  Counted& operator+=(const Counted& other) {
    operations += other.operations;
    payload_bytes += other.payload_bytes;
    return *this;
  }
};

/// Of one group, by kind; messages are those that the rank sent.
struct Recorded {
  Counted sums, scatters, gathers, broadcasts, messages;
  [[nodiscard]] Counted all() const {
    Counted all;
    for (const Counted& kind : {sums, scatters, gathers, broadcasts, messages}) all += kind;
    return all;
  }
};

void expect_volume(const Counted& found, const Volume& planned, const std::string& what) {
  EXPECT_EQ(found.operations, planned.operations) << what;
  EXPECT_EQ(found.payload_bytes, planned.payload_bytes) << what;
}

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
    own_->sums.add(values.count, values.dtype);
    plain_.all_reduce(values, reduce);
  }
  void reduce_scatter(ConstValues input, std::span<const std::int64_t> counts, Values output,
                      Reduce reduce) override {
    own_->scatters.add(input.count, input.dtype);
    plain_.reduce_scatter(input, counts, output, reduce);
  }
  void all_gather(ConstValues input, std::span<const std::int64_t> counts, Values output) override {
    own_->gathers.add(output.count, output.dtype);
    plain_.all_gather(input, counts, output);
  }
  void broadcast(Values values, int root) override {
    own_->broadcasts.add(values.count, values.dtype);
    plain_.broadcast(values, root);
  }
  void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts, Values output,
                  std::span<const std::int64_t> receive_counts, std::int64_t of_all) override {
    plain_.all_to_all(input, send_counts, output, receive_counts, of_all);
  }
  void send(ConstValues values, int to, int tag) override {
    own_->messages.add(values.count, values.dtype);
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

MeshWorkload workload(const std::string& name, std::int64_t sequences) {
  ModelConfig model{.arch = "gpt2", .layers = 4, .d_model = 64, .heads = 8, .vocab = 120};
  if (name == "gpt2-shallow") {
    model.layers = 2;
  } else if (name == "gpt2-deep") {
    model.layers = 7;  // of which stages have unlike numbers, even and odd
  } else if (name != "gpt2") {
    model.arch = "llama";
    model.qk_norm = true;
    model.kv_heads = name == "llama-two-keys" ? 2 : 4;
    model.tied = name == "llama";
  }
  return {model_shape(model, 16), InnerConfig{}, 16, sequences};
}

/// A training step of a rank that is a process, with what travels of its weights and gradients.
void step(MeshRank& rank, const ModelLayout& layout, const MeshOptions& options,
          Communicator& world, const std::vector<float>& weights, const TokenBatch& batch) {
  if (options.zero == 0) {
    CanonicalExchange exchange(layout, options, world, rank);
    exchange.share_weights(weights.data());
    rank.train(batch, 1.0);
    rank.sum_gradients();
    std::vector<float> gradients(weights.size());
    exchange.collect_gradients(gradients.data());
    return;
  }
  rank.use_weights(weights.data());  // those of the step before
  rank.train(batch, 1.0);
  rank.sum_gradients();
  MeshUpdate update(layout, options, rank);
  std::vector<double> squares(layout.tensors().size());
  update.sum_squares(squares);
  update.update(1e-3, 1.0, nullptr);
  update.gather_weights();
}

class RecordedMesh : public testing::TestWithParam<Case> {};

TEST_P(RecordedMesh, HoldsAndSendsWhatThePlanSays) {
  const Case& c = GetParam();
  const MeshWorkload w = workload(c.model, c.sequences);
  MeshChoice choice;
  choice.tp = c.mesh.tp;
  choice.pp = c.mesh.pp;
  choice.dp = c.mesh.dp;
  choice.micro_batches = c.micro_batches;
  choice.schedule = c.schedule;
  choice.virtual_stages = c.virtual_stages;
  choice.recompute = c.recompute;
  choice.bf16 = c.bf16;
  choice.zero = c.zero;
  choice.codec_state = c.codec_state;
  choice.sequence_parallel = c.mesh.sequence_parallel;
  const MeshOptions options{.mesh = c.mesh,
                            .schedule = c.schedule,
                            .virtual_stages = c.virtual_stages,
                            .sequences = w.sequences,
                            .micro_batches = c.micro_batches,
                            .context = w.context,
                            .purpose = LanguageModel<float>::training(c.recompute),
                            .bf16 = c.bf16,
                            .codecs = {.state = c.codec_state},
                            .processes = true,
                            .zero = c.zero};
  const ModelLayout layout(w.shape);
  const auto elements = static_cast<std::size_t>(layout.elements());
  const std::vector<float> weights(elements, 0.01f);
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(w.sequences * w.context), 3);
  const auto ranks = static_cast<std::size_t>(c.mesh.ranks());
  enum Group : std::size_t { kTensor, kPipeline, kData, kCopies, kGroups };
  std::vector<std::vector<Recorded>> recorded(ranks, std::vector<Recorded>(kGroups));
  std::vector<Recorded> with_site(ranks);
  {
    auto worlds = make_thread_communicators(c.mesh.ranks(), std::chrono::minutes(2));
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        RecordingCommunicator recording(std::move(worlds[r]), &with_site[r], &recorded[r]);
        MeshRank rank(layout, options, recording, true);
        step(rank, layout, options, recording, weights, {tokens, tokens, w.sequences, w.context});
      });
    }
  }
  for (int r = 0; r < c.mesh.ranks(); ++r) {
    const RankCost cost = rank_cost(w, choice, mesh_position(c.mesh, r).pp);
    const std::vector<Recorded>& own = recorded[static_cast<std::size_t>(r)];
    const std::string at = "rank " + std::to_string(r);
    Counted tensor = own[kTensor].all();
    tensor += own[kCopies].all();
    expect_volume(tensor, cost.volumes.tensor, at + " tensor");
    expect_volume(own[kPipeline].all(), cost.volumes.pipeline, at + " pipeline");
    if (c.mesh.dp > 1) {
      const Recorded& data = own[kData];
      expect_volume(data.scatters, scaled(cost.data.reduce, cost.data.reduces), at + " reduced");
      expect_volume(c.zero == 0 ? data.broadcasts : data.gathers, cost.data.gathered,
                    at + " gathered");
      expect_volume(data.all(), cost.volumes.data, at + " data");
    }
    // The plan counts for the rank with most rows of the vocabulary and of a table's slices.
    if (mesh_position(c.mesh, r).tp != 0) continue;
    if (mesh_position(c.mesh, r).dp == 0) {
      Volume messages = cost.volumes.embeddings;
      messages += cost.volumes.site;  // with ZeRO there is none in a step
      const Recorded& site = with_site[static_cast<std::size_t>(r)];
      expect_volume(c.zero == 0 ? site.all() : site.messages, messages,
                    at + " with the other stage of a tied table and the site's first");
    }
    // And for a rank that has moments of all its slice: on the first stage not of a tied table.
    if (mesh_position(c.mesh, r).dp + 1 != c.mesh.dp) continue;
    std::int64_t planned = cost.memory.parameters + cost.memory.gradients +
                           cost.memory.activations + cost.memory.buffers;
    if (c.zero >= 1) planned += cost.memory.moments;  // else the site's first rank has them
    // Slices differ by one value, and up to four arrays are cut.
    const std::int64_t cut = c.zero == 0 ? 0 : 4 * 4;
    const std::int64_t held = MeshRank::bytes(layout, options, r, true);
    EXPECT_LE(std::abs(held - planned), cut) << held << " of " << planned << ", " << at;
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, RecordedMesh, testing::ValuesIn(kCases), [](const auto& at) {
  std::string name = at.param.name;
  std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
  return name;
});

}  // namespace
}  // namespace isthmus::plan::this_file
