// SPDX-License-Identifier: Apache-2.0
// A model over a mesh of ranks. Weights and gradients are the caller's, once, in the canonical
// layout: ranks get their shares of the weights when a pass begins and give their gradients' sums
// back when it ends, so the inner optimizer, the outer loop and checkpoints know nothing of the
// mesh. Ranks are threads of this process, on the CPU or with a device each (cuda_mesh_model.h), or
// processes of which this one is the first.
//
// With ZeRO (options.zero >= 1) the ranks keep gradients' sums and the optimizer's moments, each
// those of its slice, and update. Between ranks that are processes and the canonical weights then
// only those travel that somebody reads or has written (read_weights, wrote_weights).
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
  /// Mean cross-entropy's sums over the batch, any number of sequences. weights (elements,).
  /// THROWS (here and below): what a rank threw; PeerError when ranks that are processes are lost.
  /// The mesh is of no use afterwards.
  [[nodiscard]] virtual LossSum loss(const float* weights, const TokenBatch& batch) = 0;
  /// gradients (elements,) := those of gradient_scale * the sums. `batch` has options.sequences.
  virtual LossSum loss_and_gradients(const float* weights, const TokenBatch& batch,
                                     double gradient_scale, float* gradients) = 0;
  [[nodiscard]] virtual std::size_t held_bytes() const = 0;
  /// All ranks do something for the caller, between passes: this one `own_part`, the others what
  /// `serve_mesh` was given. REQUIRES: ranks that are processes.
  virtual void call_ranks(const RankService& own_part) = 0;

  // REQUIRES for all that follow: ranks that keep gradients and moments (options.zero >= 1, or
  // ranks on devices).

  /// As loss_and_gradients, but the sums stay where they are. squares (tensors,) := the squared
  /// norm of each tensor's gradient.
  virtual LossSum loss_and_slices(const float* weights, const TokenBatch& batch,
                                  double gradient_scale, std::span<double> squares) = 0;
  /// canonical (elements,) := what the ranks keep; hand_out is the inverse. REQUIRES: gradients, or
  /// moments that the optimizer has.
  virtual void collect(RankValues what, float* canonical) = 0;
  virtual void hand_out(RankValues what, const float* canonical) = 0;
  /// One update from gradient_scale * the ranks' gradients, of `weights` and of what the ranks
  /// have. REQUIRES: `weights` as in the last pass; with ranks that are processes, the mesh's own.
  virtual void update(double lr, double gradient_scale, float* weights) = 0;
  /// Before the mesh's own canonical weights of these elements are read by others: they are those
  /// of the ranks, until the next update. Threads on the CPU update them where they lie.
  virtual void read_weights(CanonicalRange) {}
  /// After others have written them: all of these elements, or some and `read_weights` gave the
  /// rest. The ranks get them before they are needed next.
  virtual void wrote_weights(CanonicalRange) {}
  /// Forgets the moments and the number of updates, which becomes `updates`.
  virtual void reset_optimizer(std::int64_t updates) = 0;
};

/// Ranks that are threads of this process. `canonical` is borrowed. REQUIRES: check_mesh has
/// passed. THROWS: ConfigError when schedule and micro-batches do not fit together, std::bad_alloc.
[[nodiscard]] std::unique_ptr<MeshModel> make_thread_mesh(const ModelLayout& canonical,
                                                          const MeshOptions& options);

/// Ranks that are the processes of `ranks`, this one the first; the others call `serve_mesh`. Both
/// are borrowed, as is `weights` (elements,), the mesh's own canonical ones: with ZeRO passes over
/// these do without what the ranks have. Destroying it ends the others' `serve_mesh`. Collective.
/// REQUIRES: ranks.orders.rank() == 0, as many ranks as the mesh has. THROWS: CommunicatorError.
[[nodiscard]] std::unique_ptr<MeshModel> make_process_mesh(const ModelLayout& canonical,
                                                           const MeshOptions& options,
                                                           RankProcesses& ranks, float* weights);
/// Computes what the first rank's mesh asks for until it is destroyed. The same options everywhere.
/// service: what this rank does when the first one's `call_ranks` is called.
/// THROWS: CommunicatorError when it is lost; what `service` throws.
void serve_mesh(const ModelLayout& canonical, const MeshOptions& options, RankProcesses& ranks,
                RankService service = {});

}  // namespace isthmus
