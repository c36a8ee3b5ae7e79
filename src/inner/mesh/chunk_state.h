// SPDX-License-Identifier: Apache-2.0
// What a rank keeps of its part of the model between passes: weights, gradients and the optimizer's
// moments, each of all its values or, where the data-parallel ranks share them out (ZeRO,
// arXiv:1910.02054), of its slice; and the buffers in which values lie that come and go during a
// pass. Slices are neighbouring values, cut anywhere. What stays between passes lies in files where
// the thread that makes it has some (core/state/state_memory.h). One thread, that of the rank.
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

struct ChunkStateOptions {
  int zero = 0;              // moments are shared out (1), also gradients (2), also weights (3)
  int ranks = 1, rank = 0;   // data-parallel
  bool own_weights = false;  // even where canonical ones could serve as they lie
  bool trains = true;
  InnerConfig inner = {};              // with zero >= 1
  GradientBucketOptions buckets = {};  // of whole gradients
  std::int64_t tokens = 0;             // of a data-parallel rank in a step
  std::int64_t micro_batches = 1;      // in which they come
};

/// What can be collected from all ranks, or handed out to them.
enum class RankValues : std::int64_t { kWeights, kGradients, kMoment1, kMoment2 };

class ChunkState {
 public:
  /// `layout` and `groups` are borrowed.
  /// THROWS: std::bad_alloc.
  ChunkState(const RankLayout& layout, const ChunkStateOptions& options, const MeshGroups& groups);
  ChunkState(const ChunkState&) = delete;
  ChunkState& operator=(const ChunkState&) = delete;

  /// Values whose sums of gradients this rank keeps. REQUIRES: zero >= 1.
  [[nodiscard]] CanonicalRange slice() const;
  /// Values that this rank updates: its slice, less a tied table that the last stage updates.
  [[nodiscard]] CanonicalRange owned() const { return owned(layout_, options_); }
  /// The same of another rank.
  [[nodiscard]] static CanonicalRange owned(const RankLayout& layout,
                                            const ChunkStateOptions& options);

  /// The rank's own weights, all or with zero = 3 its slice; no values where canonical ones serve.
  [[nodiscard]] LocalValues own_weights() const { return own_weights_; }
  /// The passes' weights from now on: `canonical`, borrowed, or the rank's share of it.
  void use(const float* canonical);
  [[nodiscard]] Weights<float>& weights();

  /// After all of own_weights() were written: where they lie in a file they go there now. Passes
  /// only read them, so nobody else would.
  void wrote_weights() const;
  /// What was gathered of the own weights is forgotten: they have changed.
  void forget_gathered();
  /// Passes gather weights, collectively.
  [[nodiscard]] bool gathers() const { return gathered_.has_value(); }
  /// The gathers of a forward pass without it.
  void walk_weights();

  /// All gradients, or with zero >= 2 the slice.
  [[nodiscard]] LocalValues gradients() const { return gradients_; }
  /// Sums over the ranks are in the slice when a micro-batch ends.
  [[nodiscard]] bool reduces() const { return reduced_.has_value(); }
  /// For the backward passes of a micro-batch, first of all that of the head. last: of the step.
  [[nodiscard]] BackwardOptions<float> backward_options(double gradient_scale, bool last);
  // A training step and its micro-batches, in this order; of a stage without head other forward
  // passes may come between a micro-batch's two. REQUIRES: with zero >= 2
  // one_gradient_at_a_time (mesh_rules.h).
  void begin_step();
  void begin_forward();
  void begin_backward();
  void end_micro_batch();
  /// After a step's last pass what the embedding adds to a tied table goes to the rank `to`, whose
  /// stage has it as its head: of as many rows as a step can touch, so that traffic does not depend
  /// on tokens. REQUIRES: the layout's tied_embedding().
  void give_embedding_rows(int to) const;
  /// The same there: the table's gradient is then final, and the last micro-batch ended.
  void take_embedding_rows(kernels::ThreadTeam& team, int from);
  /// Gradients are summed over the ranks: each is left with its shares (gradient_shares.h), or with
  /// its slice. Whole ones travel since the last backward pass; waits for them. Collective.
  void sum_gradients();

  /// Those of owned(). REQUIRES: zero >= 1; the optimizer has such a moment, or there are none.
  [[nodiscard]] LocalValues owned_values(RankValues what) const;
  /// Updates the weights owned() from gradient_scale * their gradients: the rank's own, which are
  /// then given to `canonical` unless that is null, or those of `canonical`. REQUIRES: zero >= 1.
  void update(kernels::ThreadTeam& team, double lr, double gradient_scale, float* canonical);
  void reset_optimizer(std::int64_t updates);

  /// With a codec of the state (and zero 1 or 2) what an update changes goes through it: the owner
  /// too adds what the other ranks will decode to the weights of before, so all have the same bits.
  [[nodiscard]] bool gives_changes() const { return change_codec_ != nullptr; }
  /// Codes of the last update's change of owned(), where the weights are the rank's own alone.
  [[nodiscard]] std::span<const std::byte> change() const { return change_; }
  /// All ranks have it: its room is given back.
  void gave_change() { change_ = {}; }
  /// Bytes of the codes that data-parallel rank `dp` gives. REQUIRES (and below): gives_changes().
  [[nodiscard]] std::int64_t change_bytes(int dp) const;
  /// Adds what rank `dp` gave to the own weights. REQUIRES: these are whole, and were those that
  /// `dp` updated. THROWS: RunError for codes of values that are no numbers.
  void add_change(int dp, std::span<const std::byte> codes);

  [[nodiscard]] std::size_t held_bytes() const;
  /// Of what such a state holds: weights, gradients and moments, without buffers.
  [[nodiscard]] static std::int64_t stored_bytes(const RankLayout& layout,
                                                 const ChunkStateOptions& options);
  /// What such a state holds.
  [[nodiscard]] static std::int64_t bytes(const RankLayout& layout,
                                          const ChunkStateOptions& options);

 private:
  [[nodiscard]] CanonicalRange owned_by(int dp) const;
  /// values := before + what the change from `before` decodes to. RETURNS: its codes.
  std::vector<std::byte> round_change(std::vector<float> before, std::span<float> values) const;
  /// Gradients where they are flat, for hints.
  [[nodiscard]] std::span<const float> flat_gradients() const;

  const RankLayout& layout_;
  const MeshGroups& groups_;
  ChunkStateOptions options_;
  StateArray weights_memory_;
  StateArray gradients_memory_;  // empty when forward only
  LocalValues own_weights_, gradients_;
  std::optional<PagedShare> flat_weights_;
  std::optional<InnerOptimizer> optimizer_;
  std::optional<ParameterBuckets> buckets_;     // with zero >= 2
  std::optional<GatheredWeights> gathered_;     // with zero = 3 where weights are the rank's own
  std::optional<ReducedGradients> reduced_;     // with zero >= 2
  std::optional<GradientReduction> reduction_;  // of whole gradients that others have too
  std::optional<EmbeddingRows<float>> embedding_rows_;
  const Codec* change_codec_ = nullptr;  // of the groups
  std::vector<std::byte> change_;
  bool first_of_step_ = true;
};

}  // namespace isthmus
