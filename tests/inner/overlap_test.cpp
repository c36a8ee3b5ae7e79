// SPDX-License-Identifier: Apache-2.0
// Gradients of data-parallel ranks travel while the last backward pass runs (ZeRO 0 and 1), and are
// the same bits however they are cut. What overlaps is read off the order of a rank's calls, not
// off clocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "inner/mesh/gradient_shares.h"
#include "inner/mesh/mesh_rank.h"
#include "inner/mesh_test.h"
#include "transport/collectives/thread_communicator.h"

namespace isthmus::this_file {
namespace {

constexpr std::int64_t kSmall = 300;  // values of a bucket: several of each layer

/// What one rank does in a step, in order: "tensor", "pipeline", "data", "copies" for a call;
/// "start data" for what is started.
struct Diary {
  std::vector<std::string> calls;
  [[nodiscard]] std::size_t first(const std::string& call) const {
    return static_cast<std::size_t>(std::ranges::find(calls, call) - calls.begin());
  }
  [[nodiscard]] std::size_t last(const std::string& call) const {
    const auto found = std::find(calls.rbegin(), calls.rend(), call);
    return calls.size() - static_cast<std::size_t>(found - calls.rbegin()) - 1;
  }
  [[nodiscard]] std::int64_t count(const std::string& call, std::size_t from = 0) const {
    return std::count(calls.begin() + static_cast<std::ptrdiff_t>(from), calls.end(), call);
  }
};

/// Holds up what comes through until it is opened.
class Door {
 public:
  void open() {
    {
      const std::scoped_lock lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  /// RETURNS: false when nobody opened it in two minutes.
  bool pass() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(2), [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

/// Writes a diary; what is started over data-parallel ranks runs once the door is open.
class DiaryCommunicator final : public Communicator {
 public:
  DiaryCommunicator(std::unique_ptr<Communicator> plain, std::string name, Diary& diary, Door& door)
      : plain_(std::move(plain)), name_(std::move(name)), diary_(diary), door_(door) {}

  [[nodiscard]] int rank() const override { return plain_->rank(); }
  [[nodiscard]] int size() const override { return plain_->size(); }
  [[nodiscard]] std::string_view backend() const override { return plain_->backend(); }
  void all_reduce(Values values, Reduce reduce) override {
    note();
    plain_->all_reduce(values, reduce);
  }
  void reduce_scatter(ConstValues input, std::span<const std::int64_t> counts, Values output,
                      Reduce reduce) override {
    note();
    plain_->reduce_scatter(input, counts, output, reduce);
  }
  void all_gather(ConstValues input, std::span<const std::int64_t> counts, Values output) override {
    note();
    plain_->all_gather(input, counts, output);
  }
  void broadcast(Values values, int root) override { plain_->broadcast(values, root); }
  void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts, Values output,
                  std::span<const std::int64_t> receive_counts, std::int64_t of_all) override {
    note();
    plain_->all_to_all(input, send_counts, output, receive_counts, of_all);
  }
  void send(ConstValues values, int to, int tag) override { plain_->send(values, to, tag); }
  void receive(Values values, int from, int tag) override {
    note();
    plain_->receive(values, from, tag);
  }
  void barrier() override { plain_->barrier(); }
  [[nodiscard]] std::unique_ptr<Work> start(std::function<void(Communicator&)> operation) override {
    diary_.calls.push_back("start " + name_);
    Door* const door = name_ == "data" ? &door_ : nullptr;
    return plain_->start([door, operation = std::move(operation)](Communicator& plain) {
      if (door != nullptr && !door->pass()) throw CommunicatorError("the pass waits for its sums");
      operation(plain);
    });
  }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) override {
    static const std::vector<std::string> kNames = {"tensor", "pipeline", "data", "copies"};
    return std::make_unique<DiaryCommunicator>(plain_->split(color, key), kNames.at(splits_++),
                                               diary_, door_);
  }
  void abort(const std::string& cause) noexcept override { plain_->abort(cause); }
  [[nodiscard]] std::string end_cause() override { return plain_->end_cause(); }

 private:
  void note() { diary_.calls.push_back(name_); }

  std::unique_ptr<Communicator> plain_;
  std::string name_;
  Diary& diary_;
  Door& door_;
  std::size_t splits_ = 0;
};

/// The diaries of all ranks over one training pass, whose sums are held up until it is over.
std::vector<Diary> diaries_of(const LanguageModelOptions& model) {
  LanguageModelOptions alone = model;
  alone.bucket_values = kSmall;
  const MeshOptions options = mesh_options(alone);
  const ModelLayout layout(model_shape(model.model, model.context));
  const std::vector<float> weights(static_cast<std::size_t>(layout.elements()), 0.01f);
  const auto ranks = static_cast<std::size_t>(options.mesh.ranks());
  std::vector<Diary> diaries(ranks);
  auto worlds = make_thread_communicators(options.mesh.ranks(), std::chrono::minutes(4));
  std::vector<Door> doors(ranks);
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      RandomBatches batches(kVocab, options.sequences, options.context);
      DiaryCommunicator world(std::move(worlds[r]), "world", diaries[r], doors[r]);
      MeshRank rank(layout, options, world, true);
      rank.use_weights(weights.data());
      rank.train(batches.at(StepIndex(1)), 1.0);
      std::size_t buckets = 0;
      for (std::size_t k = 0; k < rank.chunks(); ++k) {
        buckets += gradient_buckets(rank.layout(k), bucket_options(options)).size();
      }
      EXPECT_EQ(diaries[r].count("start data"), static_cast<std::int64_t>(buckets));
      EXPECT_EQ(diaries[r].count("data"), 0) << "summed in the way of the pass";
      doors[r].open();
      rank.sum_gradients();
    });
  }
  threads.clear();
  return diaries;
}

LanguageModelOptions shared(LanguageModelOptions options, int zero) {
  options.zero = zero;
  return options;
}

TEST(Overlap, SumsBeginWhileTheLastBackwardPassRuns) {
  for (const int zero : {0, 1}) {
    for (const char* name : {"gpt2", "llama", "llama-tied", "llama-grouped"}) {
      const LanguageModelOptions one = model_of(name);
      const Case c{"", {.tp = 2, .dp = 2}, 2};
      for (const Diary& diary : diaries_of(shared(on_mesh(one, c), zero))) {
        const std::size_t first = diary.first("start data");
        const auto all = diary.count("tensor"), after = diary.count("tensor", first);
        // Two sums a layer are still to come but in the last one, and most of both passes is over.
        EXPECT_GE(after, 2 * (one.model.layers - 1)) << name;
        EXPECT_GE(all - after, 2 * (2 + 2) * one.model.layers - 2 * one.model.layers) << name;
        // They come in turns: sums of half a layer begin before the next half's pass has ended.
        std::int64_t turns = 0;
        for (std::size_t i = first; i + 1 < diary.calls.size(); ++i) {
          if (diary.calls[i] == "start data" && diary.calls[i + 1] == "tensor") ++turns;
        }
        EXPECT_GE(turns, 2 * one.model.layers - 1) << name;
      }
    }
  }
}

TEST(Overlap, EachStageHasItsOwnLastBackwardPass) {
  for (const PipelineKind kind : {PipelineKind::k1F1B, PipelineKind::kGpipe}) {
    const Case c{"", {.pp = 2, .dp = 2}, 4, kind};
    const LanguageModelOptions model = model_of("llama-tied");
    const std::vector<Diary> diaries = diaries_of(on_mesh(model, c));
    const std::int64_t of_table = kVocab * model.model.d_model / kSmall + 1;
    for (const std::size_t rank : {2U, 3U}) {  // of the last stage
      // Its sums are started before it hands on its last gradient, so before the first stage begins
      // its last backward pass; but for its head, which waits for what that adds to it.
      EXPECT_GE(diaries[rank].count("start data", diaries[rank].last("start pipeline")), 1);
      EXPECT_LE(diaries[rank].count("start data", diaries[rank].last("start pipeline")), of_table);
      EXPECT_GT(diaries[rank].first("start data"), diaries[rank].last("pipeline"));
    }
    for (const std::size_t rank : {0U, 1U}) {
      EXPECT_GT(diaries[rank].first("start data"), diaries[rank].last("pipeline"));
    }
  }
}

class CutSums : public testing::TestWithParam<std::tuple<const char*, Case, int>> {
 protected:
  LanguageModelOptions whole_ = shared(
      on_mesh(model_of(std::get<0>(GetParam())), std::get<1>(GetParam())), std::get<2>(GetParam()));
};

// The oracle is one bucket, whose sum is that of all gradients at once.
TEST_P(CutSums, AreTheBitsOfOneSum) {
  const auto values_after = [](const LanguageModelOptions& options) {
    RandomBatches batches(kVocab, options.sequences, options.context);
    LanguageModelLoop loop(options, batches.provider());
    for (int t = 1; t <= 2; ++t) (void)loop.train_step(StepIndex(t));
    return all_values(loop);
  };
  const std::vector<float> whole = values_after(whole_);
  LanguageModelOptions cut = whole_;
  for (const std::int64_t values : {std::int64_t{97}, kSmall, std::int64_t{5000}}) {
    cut.bucket_values = values;
    EXPECT_EQ(values_after(cut), whole) << values;
  }
  cut.bucket_values = kSmall;
  with_processes(cut, [&](const LanguageModelOptions& processes) {
    EXPECT_EQ(values_after(processes), whole);
  });
  LanguageModelOptions coded = whole_;
  coded.rank_codecs.data = "int8";
  const std::vector<float> coded_whole = values_after(coded);
  EXPECT_NE(coded_whole, whole);
  coded.bucket_values = kSmall;  // a tile at least
  EXPECT_EQ(values_after(coded), coded_whole);
}

const Case kCases[] = {
    {"dp2", {.dp = 2}},
    {"dp4 of 2 micro-batches", {.dp = 4}, 2},
    {"tp2 pp2 dp2 split", {.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true}, 2},
    {"pp2 dp2 interleaved", {.pp = 2, .dp = 2}, 4, PipelineKind::kInterleaved, 2},
    {"pp2 dp2 zb-h1", {.pp = 2, .dp = 2}, 4, PipelineKind::kZbH1},
};
INSTANTIATE_TEST_SUITE_P(Meshes, CutSums,
                         testing::Combine(testing::Values("gpt2", "llama-tied", "llama-grouped"),
                                          testing::ValuesIn(kCases), testing::Values(0, 1)),
                         [](const auto& at) {
                           std::string name = std::string(std::get<0>(at.param)) +
                                              std::get<1>(at.param).name + "zero" +
                                              std::to_string(std::get<2>(at.param));
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

// From the definition: gradients of both halves of the batch, added in rank order.
TEST(SumsOfBuckets, AreInRankOrder) {
  LanguageModelOptions half = model_of("llama");
  half.sequences /= 2;
  LanguageModelOptions mesh = on_mesh(model_of("llama"), {"", {.dp = 2}});
  mesh.bucket_values = kSmall;
  RandomBatches whole(kVocab, mesh.sequences, mesh.context);
  std::vector<float> expected;
  for (const std::size_t rank : {0U, 1U}) {
    LanguageModelLoop loop(half, [&](StepIndex t) {
      const TokenBatch batch = whole.at(t);
      const std::size_t size = batch.inputs.size() / 2;
      return TokenBatch{batch.inputs.subspan(rank * size, size),
                        batch.targets.subspan(rank * size, size), half.sequences, half.context};
    });
    (void)loop.gradients(StepIndex(1), {});
    std::size_t place = 0;
    for (std::size_t i = 0; i < loop.parameters().size(); ++i) {
      for (const float g : loop.gradient(i)) {
        if (rank == 0) expected.push_back(g / 2);  // exact: the mean is over both
        if (rank == 1) expected[place] += g / 2;
        ++place;
      }
    }
  }
  EXPECT_EQ(first_step(mesh).gradients, expected);
}

}  // namespace
}  // namespace isthmus::this_file
