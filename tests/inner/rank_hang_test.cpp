// SPDX-License-Identifier: Apache-2.0
// Meshes of which one rank stops for good at a random call: who is named, and that all others end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "inner/draws.h"
#include "inner/mesh_test.h"
#include "inner/rank_threads.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

// Meshes are as small as can be and mostly wait, so all run side by side; healthy ranks answer at
// once, unless the machine lets them stand for as long as this.
constexpr std::chrono::seconds kPatience{10};
constexpr std::chrono::minutes kForever{10};  // of meshes in which nobody stops
constexpr int kTrials = 24;
constexpr int kSteps = 5;  // a rank looks at its clock more often than the largest draw

/// A rank looks at its clock around every call: from some look on it never comes back from there,
/// until the test is over.
class StickingClock final : public Clock {
 public:
  explicit StickingClock(int looks) : looks_(looks) {}
  [[nodiscard]] TimePoint now() const override {
    std::unique_lock lock(mutex_);
    if (--looks_ <= 0) released_.wait(lock, [this] { return free_; });
    return runtime_.clock().now();
  }
  void release() {
    const std::scoped_lock lock(mutex_);
    free_ = true;
    released_.notify_all();
  }

 private:
  SystemRuntime runtime_;
  mutable std::mutex mutex_;
  mutable std::condition_variable released_;
  mutable int looks_;
  bool free_ = false;
};

struct Outcome {
  MeshShape mesh;
  int stuck = -1;  // nobody
  int looks = 0;
  std::string error;  // of the first rank
};

Outcome play(int seed) {
  Draws draws(seed);
  constexpr std::array<MeshShape, 5> kMeshes = {
      {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 1}, {1, 2, 2}}};
  Outcome outcome{.mesh = kMeshes[static_cast<std::size_t>(draws.whole(0, 4))]};
  if (seed % 4 != 0) {
    outcome.stuck = draws.whole(1, outcome.mesh.ranks() - 1);
    outcome.looks = draws.whole(8, 37);
  }
  LanguageModelOptions options = on_mesh(model_of("llama"), {"", outcome.mesh, 2});
  // Updates, and weights handed out, are waited for as passes are.
  if (outcome.mesh.dp > 1) options.zero = draws.whole(0, 3);
  std::vector<std::unique_ptr<StickingClock>> clocks;
  std::vector<const Clock*> borrowed;
  for (int r = 0; r < outcome.mesh.ranks(); ++r) {
    clocks.push_back(std::make_unique<StickingClock>(r == outcome.stuck ? outcome.looks : 1 << 30));
    borrowed.push_back(clocks.back().get());
  }
  RankThreads ranks(outcome.mesh, outcome.stuck < 0 ? kForever : kPatience, borrowed);
  const ModelLayout layout(model_shape(options.model, options.context));
  std::vector<std::jthread> others;
  for (int r = 1; r < outcome.mesh.ranks(); ++r) {
    others.emplace_back([&, r] {
      LanguageModelOptions own = options;
      own.processes = &ranks[r];
      try {
        serve_mesh(layout, mesh_options(own), ranks[r]);
      } catch (const CommunicatorError&) {  // the first rank has the same
      }
    });
  }
  options.processes = &ranks[0];
  try {
    RandomBatches batches(kVocab, options.sequences, options.context);
    LanguageModelLoop loop(options, batches.provider());
    for (int t = 1; t <= kSteps; ++t) (void)loop.train_step(StepIndex(t));
  } catch (const PeerError& error) {
    outcome.error = error.what();
  }
  for (int r = 1; r < outcome.mesh.ranks(); ++r) {
    if (r != outcome.stuck) others[static_cast<std::size_t>(r - 1)].join();
  }
  for (const auto& clock : clocks) clock->release();
  return outcome;
}

/// Ranks that the roll call of the error has missed.
std::vector<int> named(const Outcome& outcome) {
  const std::string lost = outcome.error.substr(0, outcome.error.find("; it began with"));
  const std::size_t begin = lost.rfind(" for ");
  std::vector<int> ranks;
  if (begin == std::string::npos) return ranks;
  const std::vector<std::string> places = rank_places(outcome.mesh);
  for (int r = 0; r < outcome.mesh.ranks(); ++r) {
    const std::string name = fmt::format("rank {} ({})", r, places[static_cast<std::size_t>(r)]);
    if (lost.find(name, begin) != std::string::npos) ranks.push_back(r);
  }
  return ranks;
}

TEST(RankHang, TheRankThatStoppedIsNamedAndNoOther) {
  std::vector<Outcome> outcomes(kTrials);
  std::vector<std::jthread> players;
  for (int seed = 0; seed < kTrials; ++seed) {
    players.emplace_back([&, seed] { outcomes[static_cast<std::size_t>(seed)] = play(seed); });
  }
  players.clear();
  int right = 0, wrong = 0, hangs = 0;
  for (const Outcome& outcome : outcomes) {
    hangs += outcome.stuck >= 0;
    const std::vector<int> ranks = named(outcome);
    for (const int rank : ranks) (rank == outcome.stuck ? right : wrong) += 1;
    EXPECT_EQ(ranks, outcome.stuck < 0 ? std::vector<int>{} : std::vector<int>{outcome.stuck})
        << outcome.mesh.tp << " x " << outcome.mesh.pp << " x " << outcome.mesh.dp << ", look "
        << outcome.looks << ": " << outcome.error;
    if (outcome.stuck < 0) {
      EXPECT_EQ(outcome.error, "");
    } else {
      EXPECT_NE(outcome.error.find("--resume auto"), std::string::npos);
    }
  }
  fmt::print("hangs: precision {:.3f}, recall {:.3f} of {} in {} meshes\n",
             static_cast<double>(right) / (right + wrong), static_cast<double>(right) / hangs,
             hangs, kTrials);
}

}  // namespace
}  // namespace isthmus::this_file
