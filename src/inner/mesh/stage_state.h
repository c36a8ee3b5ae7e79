// SPDX-License-Identifier: Apache-2.0
// A rank's persistent state of its part of the model: weights, gradients and the optimizer's
// moments. Each is whole, or, with ZeRO (arXiv:1910.02054), the rank's slice of what the
// data-parallel ranks share. Also the buffers for values that exist only during a pass. Slices are
// contiguous ranges of values, cut at any element. Persistent state is in files if the creating
// thread has some (core/state/state_memory.h). One thread, that of the rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/state/state_memory.h"
#include "inner/mesh/gathered_weights.h"
#include "inner/mesh/gradient_reduction.h"
#include "inner/mesh/mesh_groups.h"
#include "inner/mesh/parameter_buckets.h"
#include "inner/mesh/rank_layout.h"
#include "inner/mesh/reduced_gradients.h"
#include "inner/model/embedding_rows.h"
#include "inner/model/local_values.h"
#include "inner/model/model.h"
#include "inner/model/model_weights.h"
#include "inner/model/optimizer.h"
#include "inner/model/paged_share.h"
#include "isthmus/config.h"
#include "kernels/thread_team.h"

namespace isthmus {

struct StageStateOptions {
  int zero = 0;              // sharded state: 1 moments, 2 also gradients, 3 also weights
  int ranks = 1, rank = 0;   // data-parallel
  bool own_weights = false;  // own memory even if the canonical weights could be used in place
  bool trains = true;        // false: forward only
  InnerConfig inner = {};    // with zero >= 1
  GradientBucketOptions buckets = {};  // of whole gradients
  std::int64_t tokens = 0;             // tokens of a data-parallel rank in a step
  std::int64_t micro_batches = 1;      // micro-batches of these tokens
};

/// Kinds of values that can be gathered from all ranks, or scattered to them.
enum class RankValues : std::int64_t { kWeights, kGradients, kMoment1, kMoment2 };

class StageState {
 public:
  /// `layout` and `groups` are borrowed.
  /// THROWS: std::bad_alloc.
  StageState(const RankLayout& layout, const StageStateOptions& options, const MeshGroups& groups);
  StageState(const StageState&) = delete;
  StageState& operator=(const StageState&) = delete;

  /// Range of values whose summed gradients this rank keeps. REQUIRES: zero >= 1.
  [[nodiscard]] CanonicalRange slice() const;
  /// Range of values that this rank updates: its slice, without a tied table that the last stage
  /// updates.
  [[nodiscard]] CanonicalRange owned() const { return owned(layout_, options_); }
  /// The same for the rank that the arguments describe.
  [[nodiscard]] static CanonicalRange owned(const RankLayout& layout,
                                            const StageStateOptions& options);

  /// The rank's own weights: all, or with zero = 3 its slice; empty if the canonical weights are
  /// used in place.
  [[nodiscard]] LocalValues own_weights() const { return own_weights_; }
  /// Sets the weights for the next passes: `canonical`, borrowed, or the rank's share of it.
  void use(const float* canonical);
  [[nodiscard]] Weights<float>& weights();

  /// Called after all of own_weights() were written: if they are in a file, writes them there now.
  /// Passes only read them, so no later call would.
  void wrote_weights() const;
  /// Drops gathered copies of the own weights, which have changed.
  void forget_gathered();
  /// True if passes gather weights, collectively.
  [[nodiscard]] bool gathers() const { return gathered_.has_value(); }
  /// Makes the gathers of a forward pass without computing.
  void walk_weights();

  /// All gradients, or the slice with zero >= 2.
  [[nodiscard]] LocalValues gradients() const { return gradients_; }
  /// True if the sums over the ranks are in the slice at the end of each micro-batch.
  [[nodiscard]] bool reduces() const { return reduced_.has_value(); }
  /// Options for the backward passes of a micro-batch, the head's first. last: last micro-batch of
  /// the step.
  [[nodiscard]] BackwardOptions<float> backward_options(double gradient_scale, bool last);
  // The calls of a training step and its micro-batches, in this order. On a stage without head,
  // forward passes of other micro-batches may come between a micro-batch's two passes. REQUIRES:
  // with zero >= 2 one_gradient_at_a_time (mesh_rules.h).
  void begin_step();
  void begin_forward();
  void begin_backward();
  void end_micro_batch();
  /// Called after a step's last pass: sends the embedding's gradient of a tied table to rank `to`,
  /// whose stage uses the table as its head. The message has as many rows as a step can touch, so
  /// that traffic does not depend on the tokens. REQUIRES: the layout's tied_embedding().
  void give_embedding_rows(int to) const;
  /// The receiver's side: afterwards the table's gradient is final, and the last micro-batch has
  /// ended.
  void take_embedding_rows(kernels::ThreadTeam& team, int from);
  /// Sums the gradients over the ranks: each rank keeps its shares (gradient_shares.h) or its
  /// slice. Sums of whole gradients are in flight since the last backward pass; waits for them.
  /// Collective.
  void sum_gradients();

  /// The values `what` of owned(). REQUIRES: zero >= 1; for a moment: the optimizer has it, or
  /// owned() is empty.
  [[nodiscard]] LocalValues owned_values(RankValues what) const;
  /// Updates the weights owned() from gradient_scale * their gradients. If the rank has its own
  /// weights, it updates these and copies them to `canonical` unless null; else it updates
  /// `canonical`. REQUIRES: zero >= 1.
  void update(kernels::ThreadTeam& team, double lr, double gradient_scale, float* canonical);
  void reset_optimizer(std::int64_t updates);

  /// With a state codec (and zero 1 or 2) an update's changes are encoded: the owner too adds the
  /// decoded change to the old weights, so all ranks have the same bits.
  [[nodiscard]] bool gives_changes() const { return change_codec_ != nullptr; }
  /// The encoded change of owned() by the last update; empty if other ranks see the weights
  /// directly.
  [[nodiscard]] std::span<const std::byte> change() const { return change_; }
  /// Frees the change once all ranks have it.
  void gave_change() { change_ = {}; }
  /// Size of the encoded change of data-parallel rank `dp`. REQUIRES (and below): gives_changes().
  [[nodiscard]] std::int64_t change_bytes(int dp) const;
  /// Adds the change of rank `dp` to the own weights. REQUIRES: these are whole, and equal to those
  /// that `dp` updated. THROWS: RunError for codes of values that are not finite.
  void add_change(int dp, std::span<const std::byte> codes);

  [[nodiscard]] std::size_t held_bytes() const;
  /// Bytes of weights, gradients and moments of such a state, without buffers.
  [[nodiscard]] static std::int64_t stored_bytes(const RankLayout& layout,
                                                 const StageStateOptions& options);
  /// All bytes of such a state.
  [[nodiscard]] static std::int64_t bytes(const RankLayout& layout,
                                          const StageStateOptions& options);

 private:
  [[nodiscard]] CanonicalRange owned_by(int dp) const;
  /// values := before + decoded change from `before`. RETURNS: the change's codes.
  std::vector<std::byte> round_change(std::vector<float> before, std::span<float> values) const;
  /// The gradients as one flat array, for paging hints.
  [[nodiscard]] std::span<const float> flat_gradients() const;

  const RankLayout& layout_;
  const MeshGroups& groups_;
  StageStateOptions options_;
  StateArray weights_memory_;
  StateArray gradients_memory_;  // empty when forward only
  LocalValues own_weights_, gradients_;
  std::optional<PagedShare> flat_weights_;
  std::optional<InnerOptimizer> optimizer_;
  std::optional<ParameterBuckets> buckets_;     // with zero >= 2
  std::optional<GatheredWeights> gathered_;     // with zero = 3, if the weights are the rank's own
  std::optional<ReducedGradients> reduced_;     // with zero >= 2
  std::optional<GradientReduction> reduction_;  // of whole gradients, with several data-parallel
                                                // ranks
  std::optional<EmbeddingRows<float>> embedding_rows_;
  const Codec* change_codec_ = nullptr;  // of the groups
  std::vector<std::byte> change_;
  bool first_of_step_ = true;
};

}  // namespace isthmus
