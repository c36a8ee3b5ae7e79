// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda_mesh_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/log.h"
#include "inner/cuda_loop_memory.h"
#include "inner/cuda_team.h"
#include "inner/kept_weights.h"
#include "inner/mesh_model.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

class CudaMeshModel final : public MeshModel {
 public:
  CudaMeshModel(const ModelLayout& canonical, float* weights, const CudaMeshRankOptions& options,
                const CudaMeshOptions& mesh, const RankPatience& patience)
      : own_(canonical, weights),
        team_(options.mesh.mesh, mesh.devices, patience),
        ranks_(team_.size()) {
    run([&](std::size_t i) {
      ranks_[i] = std::make_unique<CudaMeshRank>(canonical, options, team_.world(i),
                                                 team_.device(i), mesh.sums);
    });
  }

  // NCCL's ends wait for one another, so they come side by side, each on its device.
  ~CudaMeshModel() override {
    try {
      team_.run([&](std::size_t i) { ranks_[i].reset(); });
    } catch (const std::exception& error) {
      log_warning("a mesh of devices ends: {}", error.what());
    }
  }
  CudaMeshModel(const CudaMeshModel&) = delete;
  CudaMeshModel& operator=(const CudaMeshModel&) = delete;

  [[nodiscard]] LossSum loss(const float* weights, const TokenBatch& batch) override {
    const bool own = weights == own_.canonical();
    if (own) give_own();
    std::vector<LossSum> sums(ranks_.size());
    run([&](std::size_t i) {
      if (!own) ranks_[i]->use(weights);
      sums[i] = ranks_[i]->loss(batch);
      ranks_[i]->use_own();
    });
    return sum_of(sums);
  }

  LossSum loss_and_gradients(const float* weights, const TokenBatch& batch, double gradient_scale,
                             float* gradients) override {
    const LossSum sum = train(weights, batch, gradient_scale, nullptr);
    collect(RankValues::kGradients, gradients);
    return sum;
  }

  LossSum loss_and_slices(const float* weights, const TokenBatch& batch, double gradient_scale,
                          std::span<double> squares) override {
    std::vector<std::vector<double>> of_ranks(ranks_.size(), std::vector<double>(squares.size()));
    const LossSum sum = train(weights, batch, gradient_scale, &of_ranks);
    add_squares(of_ranks, squares);
    return sum;
  }

  void collect(RankValues what, float* canonical) override {
    collect(what, own_.all_tensors(), canonical);
  }
  void hand_out(RankValues what, const float* canonical) override {
    hand_out(what, own_.all_tensors(), canonical);
  }
  void update(double lr, double gradient_scale, float* weights) override {
    ISTHMUS_CHECK(weights == own_.canonical());
    give_own();  // where there was no pass before, as where a joiner replays results
    run([&](std::size_t i) { ranks_[i]->update(lr, gradient_scale); });
    own_.ranks_updated();
  }
  void read_weights(CanonicalRange elements) override { own_.read(elements, collect_own()); }
  void wrote_weights(CanonicalRange elements) override { own_.wrote(elements, collect_own()); }
  void reset_optimizer(std::int64_t updates) override {
    run([&](std::size_t i) { ranks_[i]->reset_optimizer(updates); });
  }
  void call_ranks(const RankService&) override { ISTHMUS_CHECK(false, ranks_.size()); }

  [[nodiscard]] std::size_t held_bytes() const override {
    return std::accumulate(
        ranks_.begin(), ranks_.end(), std::size_t{0},
        [](std::size_t sum, const auto& rank) { return sum + rank->pinned_bytes(); });
  }

 private:
  void run(const std::function<void(std::size_t rank)>& body) { team_.run(body); }

  void give_own() {
    own_.give(
        [this](TensorRange tensors) { hand_out(RankValues::kWeights, tensors, own_.canonical()); });
  }
  [[nodiscard]] KeptWeights::Move collect_own() {
    return
        [this](TensorRange tensors) { collect(RankValues::kWeights, tensors, own_.canonical()); };
  }
  void collect(RankValues what, TensorRange tensors, float* canonical) {
    run([&](std::size_t i) {
      if (ranks_[i]->position().dp == 0) ranks_[i]->collect(what, tensors, canonical);
    });
  }
  void hand_out(RankValues what, TensorRange tensors, const float* canonical) {
    run([&](std::size_t i) { ranks_[i]->hand_out(what, tensors, canonical); });
  }

  LossSum train(const float* weights, const TokenBatch& batch, double gradient_scale,
                std::vector<std::vector<double>>* squares) {
    ISTHMUS_CHECK(weights == own_.canonical());
    give_own();
    std::vector<LossSum> sums(ranks_.size());
    run([&](std::size_t i) {
      sums[i] = ranks_[i]->train(batch, gradient_scale);
      if (squares != nullptr) ranks_[i]->add_squares((*squares)[i]);
    });
    return sum_of(sums);
  }

  /// Losses of one tensor-parallel rank of each data-parallel group.
  [[nodiscard]] LossSum sum_of(const std::vector<LossSum>& sums) const {
    LossSum sum;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (ranks_[i]->has_head() && ranks_[i]->position().tp == 0) sum += sums[i];
    }
    return sum;
  }

  /// squares := those of the first data-parallel group, in rank order. THROWS: RunError where
  /// another group has other gradients than the first.
  void add_squares(const std::vector<std::vector<double>>& of_ranks,
                   std::span<double> squares) const {
    std::ranges::fill(squares, 0.0);
    const auto place = [&](std::size_t i) {
      return std::pair(ranks_[i]->position().tp, ranks_[i]->position().pp);
    };
    for (std::size_t i = 0; i < of_ranks.size(); ++i) {
      if (ranks_[i]->position().dp == 0) {
        for (std::size_t t = 0; t < squares.size(); ++t) squares[t] += of_ranks[i][t];
        continue;
      }
      for (std::size_t first = 0; first < of_ranks.size(); ++first) {
        const bool same_share = ranks_[first]->position().dp == 0 && place(first) == place(i);
        if (same_share) check_alike(of_ranks, first, i);
      }
    }
  }
  void check_alike(const std::vector<std::vector<double>>& of_ranks, std::size_t first,
                   std::size_t other) const {
    const auto same = [](double a, double b) { return a == b || (a != a && b != b); };
    if (std::ranges::equal(of_ranks[first], of_ranks[other], same)) return;
    throw RunError(fmt::format(
        "rank {} of the mesh, on cuda:{}, has other sums of the gradients than rank {}, on "
        "cuda:{}, which has the same share; go on from the newest checkpoint with "
        "parallel.communicators = \"threads\"",
        other, team_.device(other), first, team_.device(first)));
  }

  KeptWeights own_;
  CudaTeam team_;
  std::vector<std::unique_ptr<CudaMeshRank>> ranks_;
};

}  // namespace

CudaMeshRankOptions cuda_mesh_rank_options(const LanguageModelOptions& options,
                                           const CudaLoopSettings& settings) {
  return {.mesh = mesh_options(options),
          .cudnn_attention = options.cudnn_attention,
          .logits_bytes = settings.logits_bytes};
}

std::unique_ptr<InnerLoop> make_cuda_mesh_of_shares(const LanguageModelOptions& options,
                                                    BatchProvider batches,
                                                    const CudaMeshOptions& mesh) {
  check_cuda_options(options);
  const MeshMaker make = [&](const ModelLayout& layout, float* weights) {
    return std::make_unique<CudaMeshModel>(
        layout, weights, cuda_mesh_rank_options(options, mesh.loop), mesh, options.patience);
  };
  try {
    return std::make_unique<LanguageModelLoop>(options, std::move(batches), make);
  } catch (const cuda::OutOfDeviceMemory& error) {
    throw SystemError(cuda_memory_error(options, mesh.loop, error.what()));
  }
}

}  // namespace isthmus
