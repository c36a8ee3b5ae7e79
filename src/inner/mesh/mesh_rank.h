// SPDX-License-Identifier: Apache-2.0
// One rank of a mesh: its pipeline stages' models, its share of the weights and gradients, and its
// part of a training step: the pipeline's schedule over its micro-batches, and the sum of its
// gradients over the data-parallel ranks while the last backward pass runs. Where weights come from
// and gradients go to is the mesh's matter (inner/mesh/mesh_model.h).
//
// One thread drives a rank; ranks run side by side and meet in their communicators.
// DETERMINISM: sums over ranks go in rank order, micro-batches are added in ascending order, so
// results depend on the mesh alone.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "inner/mesh/chunk_state.h"
#include "inner/mesh/gradient_buckets.h"
#include "inner/mesh/mesh.h"
#include "inner/mesh/mesh_groups.h"
#include "inner/mesh/pipeline_schedule.h"
#include "inner/mesh/rank_layout.h"
#include "inner/mesh/rank_team.h"
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
  bool processes = false;      // ranks are processes: each has its own weights
  int zero = 0;                // what data-parallel ranks share out: moments, gradients, weights
  InnerConfig inner = {};      // with zero >= 1: the optimizer
  RankPatience patience = {};  // of ranks that are threads
  std::int64_t bucket_values = kGradientBucketValues;  // most that are summed at a time

  [[nodiscard]] std::int64_t micro_batch_sequences() const {
    return sequences / mesh.dp / micro_batches;
  }
};

class MeshRank {
 public:
  /// Collective over `world`, which is borrowed as `canonical` is. own_weights: the rank has room
  /// for its weights even where canonical ones could serve as they lie. REQUIRES: check_mesh has
  /// passed.
  MeshRank(const ModelLayout& canonical, const MeshOptions& options, Communicator& world,
           bool own_weights);
  ~MeshRank();

  [[nodiscard]] const MeshPosition& position() const { return at_; }
  [[nodiscard]] bool has_head() const;
  [[nodiscard]] const MeshGroups& groups() const { return groups_; }

  /// The parts of the model that this rank holds, one a virtual stage, and their places.
  [[nodiscard]] std::size_t chunks() const { return chunks_.size(); }
  [[nodiscard]] const RankLayout& layout(std::size_t chunk) const;
  /// Its weights are to be filled before a pass where they are its own; its gradients are those of
  /// the whole mesh in its shares after `sum_gradients`.
  [[nodiscard]] ChunkState& state(std::size_t chunk);
  /// weights (elements,), canonical and borrowed until the next call: the passes' weights.
  void use_weights(const float* canonical);

  /// Forward and backward of this rank's samples of the site's `batch`. gradient_scale: 1 /
  /// (targets in the site's mean). RETURNS: the losses of its samples on ranks that have the head,
  /// else nothing.
  LossSum train(const TokenBatch& batch, double gradient_scale);
  /// Sums over the site's samples: each data-parallel rank is left with its shares
  /// (inner/mesh/gradient_shares.h). What `train` has started is waited for. Collective.
  void sum_gradients();
  /// Forward only, of this rank's share of any number of sequences; returns as `train`.
  LossSum loss(const TokenBatch& batch);

  [[nodiscard]] kernels::ThreadTeam& team() { return team_; }
  [[nodiscard]] std::size_t held_bytes() const;
  /// What such a rank will hold: its weights, gradients and moments and its activations.
  [[nodiscard]] static std::int64_t bytes(const ModelLayout& canonical, const MeshOptions& options,
                                          int rank, bool own_weights = false);
  /// Of these, bytes of weights, gradients and moments, which lie in files where there are some.
  [[nodiscard]] static std::int64_t stored_bytes(const ModelLayout& canonical,
                                                 const MeshOptions& options, int rank,
                                                 bool own_weights = false);
  [[nodiscard]] static PipelineSchedule schedule(const MeshOptions& options);
  /// Micro-batches whose activations chunk `chunk` of pipeline rank `pp` has room for.
  [[nodiscard]] static std::size_t slots(const MeshOptions& options, int pp, int chunk);
  /// The places of what rank `rank` of such a mesh holds.
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
  kernels::AlignedBuffer gathered_;  // of one pass at a time; empty without a split sequence
  kernels::AlignedBuffer working_;   // scratch of all chunks' models, which take turns
  std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace isthmus
