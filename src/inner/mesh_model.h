// SPDX-License-Identifier: Apache-2.0
// A model over a mesh of ranks that are threads of this process. Weights and gradients are the
// caller's, once, in the canonical layout: ranks take their shares of the weights when a pass
// begins and give their gradients' sums back when it ends, so the inner optimizer, the outer loop
// and checkpoints know nothing of the mesh.
//
// One thread drives a mesh. DETERMINISM: results depend on the mesh, not on threads or timing.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "inner/mesh_rank.h"

namespace isthmus {

class MeshModel {
 public:
  /// `canonical` is borrowed. THROWS: ConfigError when mesh and model do not fit together
  /// (check_mesh, make_pipeline_schedule), std::bad_alloc.
  MeshModel(const ModelLayout& canonical, const MeshOptions& options);

  /// Mean cross-entropy's sums over the batch, any number of sequences. weights (elements,).
  [[nodiscard]] LossSum loss(const float* weights, const TokenBatch& batch);
  /// gradients (elements,) := those of gradient_scale * the sums. `batch` has options.sequences.
  LossSum loss_and_gradients(const float* weights, const TokenBatch& batch, double gradient_scale,
                             float* gradients);
  [[nodiscard]] std::size_t held_bytes() const;

 private:
  /// body(i) for all ranks side by side. THROWS: what the first rank that failed threw; the others
  /// are told and end, and the mesh is of no use afterwards.
  void run(const std::function<void(std::size_t)>& body);
  /// Losses of one tensor-parallel rank of each data-parallel group.
  [[nodiscard]] LossSum sum_of(const std::vector<LossSum>& sums) const;

  kernels::ThreadTeam threads_;  // one a rank
  std::vector<std::unique_ptr<MeshRank>> ranks_;
};

}  // namespace isthmus
