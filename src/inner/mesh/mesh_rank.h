// SPDX-License-Identifier: Apache-2.0
// One rank of a mesh: its pipeline stages' models and its share of the weights and gradients. Its
// part of a training step is the pipeline's schedule over its micro-batches, and the sum of its
// gradients over the data-parallel ranks during the last backward pass. The mesh decides where
// weights come from and gradients go to (inner/mesh/mesh_model.h).
//
// One thread drives a rank; ranks run concurrently and meet in their communicators. DETERMINISM:
// sums over ranks are in rank order, micro-batches are added in ascending order, so results depend
// only on the mesh.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "inner/mesh/gradient_buckets.h"
#include "inner/mesh/mesh.h"
#include "inner/mesh/mesh_groups.h"
#include "inner/mesh/pipeline_schedule.h"
#include "inner/mesh/rank_layout.h"
#include "inner/mesh/rank_team.h"
#include "inner/mesh/stage_state.h"
#include "inner/model/model.h"
#include "isthmus/config.h"
#include "kernels/aligned_buffer.h"
#include "kernels/thread_team.h"

namespace isthmus {

struct MeshOptions {
  MeshShape mesh;
  PipelineKind schedule = PipelineKind::k1F1B;
  int virtual_stages = 1;          // chunks of a pipeline rank
  std::int64_t sequences = 1;      // samples of the site in one step
  std::int64_t micro_batches = 1;  // of each data-parallel rank
  std::int64_t context = 1;
  LanguageModel<float>::Purpose purpose = LanguageModel<float>::Purpose::kTraining;
  bool bf16 = false;
  int threads = 1;  // of each rank
  CodecByDimension codecs;
  bool processes = false;      // true: ranks are processes with separate weights
  int zero = 0;                // ZeRO stage; sharded over data-parallel ranks: 1 moments, 2 also
                               // gradients, 3 also weights
  InnerConfig inner = {};      // with zero >= 1: the optimizer
  RankPatience patience = {};  // timeouts of ranks that are threads
  std::int64_t bucket_values = kGradientBucketValues;  // largest number of gradients summed at a
                                                       // time

  [[nodiscard]] std::int64_t micro_batch_sequences() const {
    return sequences / mesh.dp / micro_batches;
  }
};

class MeshRank {
 public:
  /// Collective over `world`; `world` and `canonical` are borrowed. own_weights: the rank has
  /// separate weights even if the canonical ones could be used in place. REQUIRES: check_mesh has
  /// passed.
  MeshRank(const ModelLayout& canonical, const MeshOptions& options, Communicator& world,
           bool own_weights);
  ~MeshRank();

  [[nodiscard]] const MeshPosition& position() const { return at_; }
  [[nodiscard]] bool has_head() const;
  [[nodiscard]] const MeshGroups& groups() const { return groups_; }

  /// The parts of the model that this rank holds, one per virtual stage, and their layouts.
  [[nodiscard]] std::size_t chunks() const { return chunks_.size(); }
  [[nodiscard]] const RankLayout& layout(std::size_t chunk) const;
  /// The chunk's state. The caller must fill its weights before a pass if they are the rank's own;
  /// after `sum_gradients` its gradients are those of the whole mesh, in the rank's shares.
  [[nodiscard]] StageState& state(std::size_t chunk);
  /// Sets the weights of the next passes: weights (elements,), canonical, borrowed until the next
  /// call.
  void use_weights(const float* canonical);

  /// Forward and backward of this rank's samples of the site's `batch`. gradient_scale: 1 /
  /// (targets in the site's mean). RETURNS: the losses of its samples on ranks that have the head,
  /// else zero.
  LossSum train(const TokenBatch& batch, double gradient_scale);
  /// Sums over the site's samples: each data-parallel rank keeps its shares
  /// (inner/mesh/gradient_shares.h). Waits for the sums that `train` has started. Collective.
  void sum_gradients();
  /// Forward only, for this rank's share of any number of sequences. RETURNS: as `train`.
  LossSum loss(const TokenBatch& batch);

  [[nodiscard]] kernels::ThreadTeam& team() { return team_; }
  [[nodiscard]] std::size_t held_bytes() const;
  /// Bytes of such a rank's weights, gradients, moments and activations.
  [[nodiscard]] static std::int64_t bytes(const ModelLayout& canonical, const MeshOptions& options,
                                          int rank, bool own_weights = false);
  /// Bytes of weights, gradients and moments among them; these are in files if there are some.
  [[nodiscard]] static std::int64_t stored_bytes(const ModelLayout& canonical,
                                                 const MeshOptions& options, int rank,
                                                 bool own_weights = false);
  [[nodiscard]] static PipelineSchedule schedule(const MeshOptions& options);
  /// Number of micro-batches whose activations chunk `chunk` of pipeline rank `pp` can hold.
  [[nodiscard]] static std::size_t slots(const MeshOptions& options, int pp, int chunk);
  /// The layouts of the chunks of rank `rank` of such a mesh.
  [[nodiscard]] static std::vector<RankLayout> layouts(const ModelLayout& canonical,
                                                       const MeshOptions& options, int rank);

 private:
  struct Slot;
  struct Chunk;
  void make_chunks(const ModelLayout& canonical, bool own_weights);
  Slot& slot_of(Chunk& chunk, int micro_batch);
  void run(const PipelineOp& op, const TokenBatch& share, double gradient_scale, LossSum& sum);
  [[nodiscard]] Pass pass_of(const TokenBatch& batch);
  void check(const TokenBatch& batch) const;

  MeshOptions options_;
  MeshPosition at_;
  MeshGroups groups_;
  PipelineSchedule schedule_;
  kernels::ThreadTeam team_;
  kernels::AlignedBuffer gathered_;  // of one pass at a time; empty unless the sequence is split
  kernels::AlignedBuffer working_;   // scratch of all chunks' models, which run in turn
  std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace isthmus
