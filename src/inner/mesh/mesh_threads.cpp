// SPDX-License-Identifier: Apache-2.0
// The mesh whose ranks are threads: they read the canonical weights and write the canonical
// gradients where these lie.
#include <algorithm>
#include <functional>
#include <vector>

#include "core/base/check.h"
#include "core/state/state_memory.h"
#include "inner/mesh/gradient_shares.h"
#include "inner/mesh/mesh_model.h"
#include "inner/mesh/mesh_update.h"
#include "inner/mesh/rank_team.h"

namespace isthmus {
namespace {

class ThreadMesh final : public MeshModel {
 public:
  ThreadMesh(const ModelLayout& canonical, const MeshOptions& options)
      : options_(options),
        team_(options.mesh, options.patience),
        ranks_(team_.size()),
        updates_(team_.size()) {
    StateMemory* const files = StateMemory::current();  // of the driving thread
    team_.run([&](std::size_t i) {
      const StateMemoryScope scope(files);
      ranks_[i] = std::make_unique<MeshRank>(canonical, options, team_.world(i), false);
      if (options.zero >= 1) {
        updates_[i] = std::make_unique<MeshUpdate>(canonical, options, *ranks_[i]);
      }
    });
  }

  [[nodiscard]] LossSum loss(const float* weights, const TokenBatch& batch) override {
    has_weights_ = false;  // those of an evaluation may be others
    std::vector<LossSum> sums(ranks_.size());
    team_.run([&](std::size_t i) {
      ranks_[i]->use_weights(weights);
      sums[i] = ranks_[i]->loss(batch);
    });
    return sum_of(sums);
  }

  LossSum loss_and_gradients(const float* weights, const TokenBatch& batch, double gradient_scale,
                             float* gradients) override {
    std::vector<LossSum> sums(ranks_.size());
    team_.run([&](std::size_t i) {
      MeshRank& rank = *ranks_[i];
      rank.use_weights(weights);
      sums[i] = rank.train(batch, gradient_scale);
      rank.sum_gradients();
      for (std::size_t k = 0; k < rank.chunks(); ++k) {
        const RankLayout& layout = rank.layout(k);
        for (const CanonicalRange& share : gradient_shares(layout, options_, rank.position().dp)) {
          give_share(layout, rank.state(k).gradients(), share, gradients);
        }
      }
    });
    return sum_of(sums);
  }

  LossSum loss_and_slices(const float* weights, const TokenBatch& batch, double gradient_scale,
                          std::span<double> squares) override {
    std::vector<LossSum> sums(ranks_.size());
    team_.run([&](std::size_t i) {
      ranks_[i]->use_weights(weights);
      sums[i] = ranks_[i]->train(batch, gradient_scale);
      ranks_[i]->sum_gradients();
      std::vector<double> of_all(squares.size());
      updates_[i]->sum_squares(of_all);
      if (i == 0) std::ranges::copy(of_all, squares.begin());
    });
    has_weights_ = true;
    return sum_of(sums);
  }

  void collect(RankValues what, float* canonical) override {
    for_chunks(what, [&](const RankLayout& layout, const LocalValues& own) {
      layout.give(own.values, own.range, canonical);
    });
  }

  void hand_out(RankValues what, const float* canonical) override {
    has_weights_ = false;  // they may have been changed since the pass, as gradients have
    for_chunks(what, [&](const RankLayout& layout, const LocalValues& own) {
      layout.take(canonical, own.range, own.values);
    });
  }

  void update(double lr, double gradient_scale, float* weights) override {
    // Without a pass before, as where a joiner replays results, the ranks lack these weights.
    if (!has_weights_) team_.run([&](std::size_t i) { ranks_[i]->use_weights(weights); });
    has_weights_ = false;  // other ranks than the one that updates a value may have it too
    team_.run([&](std::size_t i) { updates_[i]->update(lr, gradient_scale, weights); });
  }

  void reset_optimizer(std::int64_t updates) override {
    for (const auto& rank : ranks_) {
      for (std::size_t k = 0; k < rank->chunks(); ++k) rank->state(k).reset_optimizer(updates);
    }
  }

  void call_ranks(const RankService&) override { ISTHMUS_CHECK(false, options_.mesh.ranks()); }

  [[nodiscard]] std::size_t held_bytes() const override {
    std::size_t bytes = 0;
    for (const auto& rank : ranks_) bytes += rank->held_bytes();
    return bytes;
  }

 private:
  void for_chunks(RankValues what,
                  const std::function<void(const RankLayout&, const LocalValues&)>& body) {
    team_.run([&](std::size_t i) {
      for (std::size_t k = 0; k < ranks_[i]->chunks(); ++k) {
        body(ranks_[i]->layout(k), ranks_[i]->state(k).owned_values(what));
      }
    });
  }

  /// Losses of one tensor-parallel rank of each data-parallel group.
  [[nodiscard]] LossSum sum_of(const std::vector<LossSum>& sums) const {
    LossSum sum;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (ranks_[i]->has_head() && ranks_[i]->position().tp == 0) sum += sums[i];
    }
    return sum;
  }

  MeshOptions options_;
  RankTeam team_;
  std::vector<std::unique_ptr<MeshRank>> ranks_;
  std::vector<std::unique_ptr<MeshUpdate>> updates_;  // with ZeRO
  bool has_weights_ = false;  // the ranks, those of the gradients that they keep
};

}  // namespace

std::unique_ptr<MeshModel> make_thread_mesh(const ModelLayout& canonical,
                                            const MeshOptions& options) {
  return std::make_unique<ThreadMesh>(canonical, options);
}

}  // namespace isthmus
