// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/cuda_mesh_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/log.h"
#include "inner/cuda/cuda_loop_memory.h"
#include "inner/cuda/cuda_team.h"
#include "inner/mesh/mesh_model.h"
#include "inner/mesh/weight_coherence.h"
#include "isthmus/errors.h"
#include "kernels/cuda/device_errors.h"

namespace isthmus {
namespace {

class CudaMeshModel final : public MeshModel {
 public:
  CudaMeshModel(const ModelLayout& canonical, float* weights, const LanguageModelOptions& options,
                const CudaMeshOptions& mesh)
      : own_(
            canonical, weights,
            [this](TensorRange tensors) {
              collect(RankValues::kWeights, tensors, own_.canonical());
            },
            [this](TensorRange tensors) {
              hand_out(RankValues::kWeights, tensors, own_.canonical());
            }),
        mesh_(options.mesh),
        key_copies_(key_copies(canonical.shape(), options.mesh.tp)),
        team_(options.mesh, mesh.devices, options.patience),
        ranks_(team_.size()) {
    run([&](std::size_t i) {
      try {
        ranks_[i] =
            std::make_unique<CudaMeshRank>(canonical, cuda_mesh_rank_options(options, mesh.loop),
                                           team_.world(i), team_.device(i), mesh.sums);
      } catch (const cuda::OutOfDeviceMemory& error) {
        const std::string cause = fmt::format("cuda:{}: {}", team_.device(i), error.what());
        throw SystemError(cuda_memory_error(options, mesh.loop, cause, static_cast<int>(i)));
      }
    });
  }

  // NCCL's ends wait for one another, so they come side by side, each on its device.
  ~CudaMeshModel() override {
    try {
      team_.run([&](std::size_t i) { ranks_[i].reset(); });
    } catch (const cuda::DeviceLost&) {  // which has ended the mesh
    } catch (const std::exception& error) {
      log_warning("a mesh of devices ends: {}", error.what());
    }
  }
  CudaMeshModel(const CudaMeshModel&) = delete;
  CudaMeshModel& operator=(const CudaMeshModel&) = delete;

  [[nodiscard]] LossSum loss(const float* weights, const TokenBatch& batch) override {
    const bool own = weights == own_.canonical();
    if (own) own_.give();
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
    std::vector<TensorSquares> of_ranks(ranks_.size(), TensorSquares(squares.size()));
    const LossSum sum = train(weights, batch, gradient_scale, &of_ranks);
    check_alike(of_ranks);
    for (std::size_t t = 0; t < squares.size(); ++t) squares[t] = sum_of_shares(of_ranks, t);
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
    own_.give();  // where there was no pass before, as where a joiner replays results
    run([&](std::size_t i) { ranks_[i]->update(lr, gradient_scale); });
    own_.ranks_updated();
  }
  void read_weights(CanonicalRange elements) override { own_.read(elements); }
  void wrote_weights(CanonicalRange elements) override { own_.wrote(elements); }
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

  void collect(RankValues what, TensorRange tensors, float* canonical) {
    run([&](std::size_t i) {
      if (ranks_[i]->position().dp == 0) ranks_[i]->collect(what, tensors, canonical);
    });
  }
  void hand_out(RankValues what, TensorRange tensors, const float* canonical) {
    run([&](std::size_t i) { ranks_[i]->hand_out(what, tensors, canonical); });
  }

  LossSum train(const float* weights, const TokenBatch& batch, double gradient_scale,
                std::vector<TensorSquares>* squares) {
    ISTHMUS_CHECK(weights == own_.canonical());
    own_.give();
    std::vector<LossSum> sums(ranks_.size());
    run([&](std::size_t i) {
      sums[i] = ranks_[i]->train(batch, gradient_scale);
      if (squares != nullptr) ranks_[i]->write_squares((*squares)[i]);
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

  /// Of a tensor's gradient, over the first data-parallel group, in rank order.
  [[nodiscard]] double sum_of_shares(const std::vector<TensorSquares>& of_ranks,
                                     std::size_t tensor) const {
    double sum = 0;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const double share = of_ranks[i].own[tensor];
      if (ranks_[i]->position().dp == 0 && share != -1) sum += share;
    }
    return sum;
  }

  /// THROWS: RunError where ranks that have the same share, or the same tensor, have other sums of
  /// its gradients: their weights would part.
  void check_alike(const std::vector<TensorSquares>& of_ranks) const {
    const auto same = [](double a, double b) { return a == b || (a != a && b != b); };
    for (std::size_t i = 0; i < of_ranks.size(); ++i) {
      const MeshPosition at = ranks_[i]->position();
      const auto rank_of = [&](const MeshPosition& other) {
        return static_cast<std::size_t>(mesh_rank(mesh_, other));
      };
      const std::size_t first = rank_of({.tp = at.tp, .pp = at.pp, .dp = 0});
      // The first of the ranks with the same key heads answers for these heads, the first of all
      // ranks for values that all have.
      const std::size_t keys =
          rank_of({.tp = at.tp - at.tp % key_copies_, .pp = at.pp, .dp = at.dp});
      const std::size_t lowest = rank_of({.tp = 0, .pp = at.pp, .dp = at.dp});
      for (std::size_t t = 0; t < of_ranks[i].own.size(); ++t) {
        if (!same(of_ranks[i].own[t], of_ranks[first].own[t])) refuse(i, first);
        const double copy = of_ranks[i].copies[t];
        if (copy == -1) continue;
        const std::size_t other = of_ranks[keys].own[t] != -1 ? keys : lowest;
        if (!same(copy, of_ranks[other].own[t])) refuse(i, other);
      }
    }
  }
  [[noreturn]] void refuse(std::size_t rank, std::size_t other) const {
    throw RunError(fmt::format(
        "rank {} of the mesh, on cuda:{}, has other sums of the gradients than rank {}, on "
        "cuda:{}, which has the same values; go on from the newest checkpoint with "
        "parallel.communicators = \"threads\"",
        rank, team_.device(rank), other, team_.device(other)));
  }

  WeightCoherence own_;
  MeshShape mesh_;
  int key_copies_;
  CudaTeam team_;
  std::vector<std::unique_ptr<CudaMeshRank>> ranks_;
};

}  // namespace

CudaMeshRankOptions cuda_mesh_rank_options(const LanguageModelOptions& options,
                                           const CudaLoopSettings& settings) {
  // Which is faster for shares of a layer is not measured.
  const bool cudnn = options.attention == DeviceAttention::kCudnn;
  return {.mesh = mesh_options(options),
          .attention = cudnn ? DeviceAttention::kCudnn : DeviceAttention::kOwn,
          .logits_bytes = settings.logits_bytes};
}

std::unique_ptr<InnerLoop> make_cuda_mesh_of_shares(const LanguageModelOptions& options,
                                                    BatchProvider batches,
                                                    const CudaMeshOptions& mesh) {
  check_cuda_options(options);
  const MeshMaker make = [&](const ModelLayout& layout, float* weights) {
    return std::make_unique<CudaMeshModel>(layout, weights, options, mesh);
  };
  return std::make_unique<LanguageModelLoop>(options, std::move(batches), make);
}

}  // namespace isthmus
