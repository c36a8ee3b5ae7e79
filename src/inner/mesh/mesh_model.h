// SPDX-License-Identifier: Apache-2.0
// A model over a mesh of ranks. The caller owns weights and gradients once, in the canonical
// layout. Ranks get their shares of the weights when a pass begins and return their gradients' sums
// when it ends, so the inner optimizer, the outer loop and checkpoints do not depend on the mesh.
// Ranks are threads of this process, on the CPU or with one device each (cuda_mesh_model.h), or
// processes, of which this process is the first.
//
// With ZeRO (options.zero >= 1) each rank keeps the gradients' sums and the optimizer's moments of
// its slice, and updates it. Ranks that are processes then exchange with the canonical weights only
// values that are read or were written (read_weights, wrote_weights).
//
// One thread drives a mesh. DETERMINISM: results depend on the mesh, not on threads, processes or
// timing.
#pragma once

#include <memory>
#include <span>

#include "inner/mesh/mesh_order.h"
#include "inner/mesh/mesh_rank.h"
#include "inner/mesh/rank_processes.h"

namespace isthmus {

class MeshModel {
 public:
  virtual ~MeshModel() = default;
  /// RETURNS: the sums of cross-entropy over the batch, any number of sequences. weights
  /// (elements,). THROWS (here and below): the exception of a rank; PeerError when ranks that are
  /// processes are lost. The mesh must not be used afterwards.
  [[nodiscard]] virtual LossSum loss(const float* weights, const TokenBatch& batch) = 0;
  /// gradients (elements,) := the gradients of gradient_scale * the sums. `batch` has
  /// options.sequences.
  virtual LossSum loss_and_gradients(const float* weights, const TokenBatch& batch,
                                     double gradient_scale, float* gradients) = 0;
  [[nodiscard]] virtual std::size_t held_bytes() const = 0;
  /// Runs a service on all ranks, between passes: `own_part` on this rank, on the others the
  /// service that `serve_mesh` was given. REQUIRES: ranks that are processes.
  virtual void call_ranks(const RankService& own_part) = 0;

  // REQUIRES for the functions below: ranks that keep gradients and moments (options.zero >= 1, or
  // ranks on devices).

  /// As loss_and_gradients, but the ranks keep the sums. squares (tensors,) := the squared norm of
  /// each tensor's gradient.
  virtual LossSum loss_and_slices(const float* weights, const TokenBatch& batch,
                                  double gradient_scale, std::span<double> squares) = 0;
  /// collect: canonical (elements,) := the ranks' values; hand_out is the inverse. REQUIRES:
  /// gradients, or moments that the optimizer has.
  virtual void collect(RankValues what, float* canonical) = 0;
  virtual void hand_out(RankValues what, const float* canonical) = 0;
  /// One update of `weights` and of the ranks' weights from gradient_scale * the ranks' gradients.
  /// REQUIRES: `weights` as in the last pass; with ranks that are processes, the mesh's own.
  virtual void update(double lr, double gradient_scale, float* weights) = 0;
  /// Called before other code reads these elements of the mesh's own canonical weights: copies the
  /// ranks' weights there, valid until the next update. Threads on the CPU update the canonical
  /// weights in place, so the default does nothing.
  virtual void read_weights(CanonicalRange) {}
  /// Called after other code has written these elements. Every element was written, or comes
  /// unchanged from `read_weights`. The ranks get them before their next use.
  virtual void wrote_weights(CanonicalRange) {}
  /// Resets the moments; sets the number of updates to `updates`.
  virtual void reset_optimizer(std::int64_t updates) = 0;
};

/// Ranks that are threads of this process. `canonical` is borrowed. REQUIRES: check_mesh has
/// passed. THROWS: ConfigError when schedule and micro-batches do not fit together, std::bad_alloc.
[[nodiscard]] std::unique_ptr<MeshModel> make_thread_mesh(const ModelLayout& canonical,
                                                          const MeshOptions& options);

/// Ranks that are the processes of `ranks`; this process is the first, and the others call
/// `serve_mesh`. `canonical`, `ranks` and `weights` are borrowed. weights (elements,): the mesh's
/// own canonical weights; with ZeRO, passes over these need no transfer of values that the ranks
/// already have. The destructor ends the others' `serve_mesh`. Collective. REQUIRES:
/// ranks.orders.rank() == 0, as many ranks as the mesh has. THROWS: CommunicatorError.
[[nodiscard]] std::unique_ptr<MeshModel> make_process_mesh(const ModelLayout& canonical,
                                                           const MeshOptions& options,
                                                           RankProcesses& ranks, float* weights);
/// Serves the first rank's mesh until it is destroyed. REQUIRES: equal options on all ranks.
/// service: this rank's part of the first rank's `call_ranks`. THROWS: CommunicatorError when the
/// first rank is lost; exceptions of `service`.
void serve_mesh(const ModelLayout& canonical, const MeshOptions& options, RankProcesses& ranks,
                RankService service = {});

}  // namespace isthmus
