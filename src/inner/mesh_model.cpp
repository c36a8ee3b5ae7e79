// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh_model.h"

#include <chrono>
#include <exception>
#include <mutex>
#include <utility>

#include "transport/thread_communicator.h"

namespace isthmus {
namespace {

// Only a rank that hangs is waited for so long: one that fails tells the others at once.
constexpr std::chrono::minutes kLongestWait{10};

}  // namespace

MeshModel::MeshModel(const ModelLayout& canonical, const MeshOptions& options)
    : threads_(options.mesh.ranks()) {
  check_mesh(canonical.shape(), options.mesh, options.sequences);
  auto worlds = make_thread_communicators(options.mesh.ranks(), kLongestWait);
  ranks_.resize(worlds.size());
  run([&](std::size_t i) {
    ranks_[i] = std::make_unique<MeshRank>(canonical, options, std::move(worlds[i]));
  });
}

void MeshModel::run(const std::function<void(std::size_t)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  threads_.for_each(static_cast<std::int64_t>(ranks_.size()), [&](std::int64_t rank, int) {
    const auto i = static_cast<std::size_t>(rank);
    try {
      body(i);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      if (ranks_[i]) ranks_[i]->world().abort(error.what());
    }
  });
  if (first) std::rethrow_exception(first);
}

LossSum MeshModel::sum_of(const std::vector<LossSum>& sums) const {
  LossSum sum;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (ranks_[i]->has_head() && ranks_[i]->position().tp == 0) sum += sums[i];
  }
  return sum;
}

LossSum MeshModel::loss(const float* weights, const TokenBatch& batch) {
  std::vector<LossSum> sums(ranks_.size());
  run([&](std::size_t i) { sums[i] = ranks_[i]->loss(weights, batch); });
  return sum_of(sums);
}

LossSum MeshModel::loss_and_gradients(const float* weights, const TokenBatch& batch,
                                      double gradient_scale, float* gradients) {
  std::vector<LossSum> sums(ranks_.size());
  run([&](std::size_t i) {
    sums[i] = ranks_[i]->train(weights, batch, gradient_scale);
    ranks_[i]->give_gradients(gradients);
  });
  return sum_of(sums);
}

std::size_t MeshModel::held_bytes() const {
  std::size_t bytes = 0;
  for (const auto& rank : ranks_) bytes += rank->held_bytes();
  return bytes;
}

}  // namespace isthmus
