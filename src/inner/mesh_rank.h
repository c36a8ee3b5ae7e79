// SPDX-License-Identifier: Apache-2.0
// One rank of a mesh: its pipeline stages' models, its share of the weights and gradients, and its
// part of a training step: the pipeline's schedule over its micro-batches, then the sum of its
// gradients over the data-parallel ranks. Weights come from, and gradients go to, arrays in the
// canonical layout.
//
// One thread drives a rank; ranks run side by side and meet in their communicators.
// DETERMINISM: sums over ranks go in rank order, micro-batches are added in ascending order, so
// results depend on the mesh alone.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "inner/mesh.h"
#include "inner/model.h"
#include "inner/pipeline_schedule.h"
#include "inner/rank_layout.h"
#include "kernels/aligned_buffer.h"
#include "kernels/thread_team.h"
#include "transport/communicator.h"

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

  [[nodiscard]] std::int64_t micro_batch_sequences() const {
    return sequences / mesh.dp / micro_batches;
  }
};

/// The groups that a rank is in, split from `world`.
struct MeshGroups {
  std::unique_ptr<Communicator> world;
  std::unique_ptr<Communicator> tensor;    // the same stage and samples
  std::unique_ptr<Communicator> pipeline;  // the same tensor share and samples, by stage
  std::unique_ptr<Communicator> data;      // the same share of the same stage

  /// Collective over world. REQUIRES: world's size is mesh.ranks().
  MeshGroups(const MeshShape& mesh, std::unique_ptr<Communicator> all_ranks);
};

class MeshRank {
 public:
  /// Collective over `world`. `canonical` is borrowed. REQUIRES: check_mesh has passed.
  MeshRank(const ModelLayout& canonical, const MeshOptions& options,
           std::unique_ptr<Communicator> world);
  ~MeshRank();

  [[nodiscard]] const MeshPosition& position() const { return at_; }
  [[nodiscard]] bool has_head() const;
  [[nodiscard]] Communicator& world() { return *groups_.world; }

  /// Forward and backward of this rank's samples of the site's `batch`. weights: (elements,)
  /// canonical. gradient_scale: 1 / (targets in the site's mean). Afterwards `give_gradients`.
  /// RETURNS: the losses of its samples on ranks that have the head, else nothing.
  LossSum train(const float* weights, const TokenBatch& batch, double gradient_scale);
  /// gradients (elements,) canonical := the sum over the site's samples; each rank writes what it
  /// answers for, together they write every element. Collective.
  void give_gradients(float* gradients);
  /// Forward only, of this rank's share of any number of sequences.
  LossSum loss(const float* weights, const TokenBatch& batch);

  [[nodiscard]] std::size_t held_bytes() const;
  /// What such a rank will hold: its copies of weights and gradients and its activations.
  [[nodiscard]] static std::int64_t bytes(const ModelLayout& canonical, const MeshOptions& options,
                                          int rank);

 private:
  struct Slot;
  struct Chunk;
  void make_chunks(const ModelLayout& canonical);
  void take_weights(const float* weights);
  Slot& slot_of(Chunk& chunk, int micro_batch);
  void run(const PipelineOp& op, const TokenBatch& share, double gradient_scale, LossSum& sum);
  [[nodiscard]] Pass pass_of(const TokenBatch& batch);
  void sum_gradients();

  MeshOptions options_;
  MeshPosition at_;
  MeshGroups groups_;
  PipelineSchedule schedule_;
  kernels::ThreadTeam team_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace isthmus
