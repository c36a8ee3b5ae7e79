// SPDX-License-Identifier: Apache-2.0
// The mesh whose ranks are threads: they read the canonical weights and write the canonical
// gradients where these lie.
#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "inner/mesh_model.h"
#include "inner/mesh_update.h"
#include "isthmus/errors.h"
#include "transport/thread_communicator.h"

namespace isthmus {
namespace {

// Ranks wait for one another's computing, however long that takes; one that fails tells the others.
constexpr std::chrono::hours kLongestWait{24};

class ThreadMesh final : public MeshModel {
 public:
  ThreadMesh(const ModelLayout& canonical, const MeshOptions& options)
      : threads_(options.mesh.ranks()),
        worlds_(make_thread_communicators(options.mesh.ranks(), kLongestWait)),
        ranks_(worlds_.size()),
        updates_(worlds_.size()) {
    run([&](std::size_t i) {
      ranks_[i] = std::make_unique<MeshRank>(canonical, options, *worlds_[i], false);
      if (options.zero >= 1) {
        updates_[i] = std::make_unique<MeshUpdate>(canonical, options, *ranks_[i]);
      }
    });
  }

  [[nodiscard]] LossSum loss(const float* weights, const TokenBatch& batch) override {
    has_weights_ = false;  // those of an evaluation may be others
    std::vector<LossSum> sums(ranks_.size());
    run([&](std::size_t i) {
      ranks_[i]->use_weights(weights);
      sums[i] = ranks_[i]->loss(batch);
    });
    return sum_of(sums);
  }

  LossSum loss_and_gradients(const float* weights, const TokenBatch& batch, double gradient_scale,
                             float* gradients) override {
    std::vector<LossSum> sums(ranks_.size());
    run([&](std::size_t i) {
      MeshRank& rank = *ranks_[i];
      rank.use_weights(weights);
      sums[i] = rank.train(batch, gradient_scale);
      rank.sum_gradients();
      const auto give = [&](bool tied) {
        for (std::size_t k = 0; k < rank.chunks(); ++k) {
          ChunkState& state = rank.state(k);
          give_slice(rank.layout(k), state.gradients(), state.slice(), tied, gradients);
        }
      };
      give(false);
      worlds_[i]->barrier();
      give(true);
    });
    return sum_of(sums);
  }

  LossSum loss_and_slices(const float* weights, const TokenBatch& batch, double gradient_scale,
                          std::span<double> squares) override {
    std::vector<LossSum> sums(ranks_.size());
    run([&](std::size_t i) {
      ranks_[i]->use_weights(weights);
      sums[i] = ranks_[i]->train(batch, gradient_scale);
      ranks_[i]->sum_gradients();
      updates_[i]->share_tied_gradients();
      std::vector<double> of_all(squares.size());
      updates_[i]->sum_squares(of_all);
      if (i == 0) std::ranges::copy(of_all, squares.begin());
    });
    has_weights_ = true;
    return sum_of(sums);
  }

  void collect(RankValues what, float* canonical) override {
    for_chunks(what, [&](const RankLayout& layout, const LocalValues& own) {
      layout.give(own.values, own.range, false, canonical);
    });
  }

  void hand_out(RankValues what, const float* canonical) override {
    for_chunks(what, [&](const RankLayout& layout, const LocalValues& own) {
      layout.take(canonical, own.range, own.values);
    });
  }

  void update(double lr, double gradient_scale, float* weights) override {
    // Without a pass before, as where a joiner replays results, the ranks lack these weights.
    if (!has_weights_) run([&](std::size_t i) { ranks_[i]->use_weights(weights); });
    has_weights_ = false;  // the rank that updates a value may not be the only one that has it
    run([&](std::size_t i) { updates_[i]->update(lr, gradient_scale, weights); });
  }

  void reset_optimizer(std::int64_t updates) override {
    for (const auto& rank : ranks_) {
      for (std::size_t k = 0; k < rank->chunks(); ++k) rank->state(k).reset_optimizer(updates);
    }
  }

  [[nodiscard]] std::size_t held_bytes() const override {
    std::size_t bytes = 0;
    for (const auto& rank : ranks_) bytes += rank->held_bytes();
    return bytes;
  }

 private:
  /// body(i) for all ranks side by side. THROWS: what the first rank that failed threw; the others
  /// are told and end.
  void run(const std::function<void(std::size_t)>& body) {
    std::mutex mutex;
    std::exception_ptr first;
    threads_.for_each(static_cast<std::int64_t>(ranks_.size()), [&](std::int64_t rank, int) {
      const auto i = static_cast<std::size_t>(rank);
      try {
        body(i);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
        worlds_[i]->abort(error.what());
      }
    });
    try {
      if (first) std::rethrow_exception(first);
    } catch (const CommunicatorError& error) {
      throw RunError(error.what());
    }
  }

  void for_chunks(RankValues what,
                  const std::function<void(const RankLayout&, const LocalValues&)>& body) {
    run([&](std::size_t i) {
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

  kernels::ThreadTeam threads_;  // one a rank
  std::vector<std::unique_ptr<Communicator>> worlds_;
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
