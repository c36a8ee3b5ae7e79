// SPDX-License-Identifier: Apache-2.0
// A model over a mesh of ranks. Weights and gradients are the caller's, once, in the canonical
// layout: ranks get their shares of the weights when a pass begins and give their gradients' sums
// back when it ends, so the inner optimizer, the outer loop and checkpoints know nothing of the
// mesh. Ranks are threads of this process, or processes of which this one is the first.
//
// One thread drives a mesh. DETERMINISM: results depend on the mesh, not on threads, processes or
// timing.
#pragma once

#include <memory>

#include "inner/mesh_rank.h"

namespace isthmus {

class MeshModel {
 public:
  virtual ~MeshModel() = default;
  /// Mean cross-entropy's sums over the batch, any number of sequences. weights (elements,).
  /// THROWS (here and below): what a rank threw; PeerError when ranks that are processes are lost.
  /// The mesh is of no use afterwards.
  [[nodiscard]] virtual LossSum loss(const float* weights, const TokenBatch& batch) = 0;
  /// gradients (elements,) := those of gradient_scale * the sums. `batch` has options.sequences.
  virtual LossSum loss_and_gradients(const float* weights, const TokenBatch& batch,
                                     double gradient_scale, float* gradients) = 0;
  [[nodiscard]] virtual std::size_t held_bytes() const = 0;
};

/// Ranks that are threads of this process. `canonical` is borrowed. REQUIRES: check_mesh has
/// passed. THROWS: ConfigError when schedule and micro-batches do not fit together, std::bad_alloc.
[[nodiscard]] std::unique_ptr<MeshModel> make_thread_mesh(const ModelLayout& canonical,
                                                          const MeshOptions& options);

/// Ranks that are the processes of `ranks`, this one the first; the others call `serve_mesh`. Both
/// are borrowed. Destroying it ends the others' `serve_mesh`. REQUIRES: ranks.rank() == 0, as many
/// ranks as the mesh has.
[[nodiscard]] std::unique_ptr<MeshModel> make_process_mesh(const ModelLayout& canonical,
                                                           const MeshOptions& options,
                                                           Communicator& ranks);
/// Computes what the first rank's mesh asks for until it is destroyed. The same options everywhere.
/// THROWS: CommunicatorError when it is lost.
void serve_mesh(const ModelLayout& canonical, const MeshOptions& options, Communicator& ranks);

}  // namespace isthmus
