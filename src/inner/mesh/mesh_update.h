// SPDX-License-Identifier: Apache-2.0
// One rank's part of updating a mesh whose data-parallel ranks share the optimizer's state out
// (ZeRO, arXiv:1910.02054): each updates its slice of the weights with its slice of the gradients'
// sums. What is updated, clipped and counted is each canonical value once; a table that the first
// and the last stage hold is the last one's, tensors that all tensor-parallel ranks have are
// updated by each of them and count with the first.
//
// DETERMINISM: weights get the bits of one update of all of them. The norm is summed slice by
// slice, in rank order: some 1e-15 off that of whole parameters, so a clipping factor, which is a
// float, is the same but where it is on the edge of two. One thread, that of the rank.
#pragma once

#include <cstdint>
#include <span>

#include "inner/mesh/mesh_rank.h"

namespace isthmus {

class MeshUpdate {
 public:
  /// `rank` is borrowed; it is rank `position` of such a mesh. REQUIRES: options.zero >= 1.
  MeshUpdate(const ModelLayout& canonical, const MeshOptions& options, MeshRank& rank);

  /// squares (canonical tensors,) := the squared norm of each one's gradient, the same on every
  /// rank. After rank.sum_gradients(). Collective over the mesh.
  void sum_squares(std::span<double> squares);
  /// Updates the rank's slices. canonical: where weights lie that all ranks see, or null.
  void update(double lr, double gradient_scale, float* canonical);
  /// After `update`, where weights are the rank's own: all data-parallel ranks have all slices
  /// again, by what the update has changed where there is a codec for it, unless passes gather them
  /// (ZeRO 3); and the first stage has what the last one has updated of a tied table. Collective
  /// over the mesh.
  void gather_weights();
  /// Others than ranks have changed what each owns: all data-parallel ranks get all slices as they
  /// are, unless passes gather them (ZeRO 3), and the first stage its part of a tied table.
  /// Collective over the mesh.
  void spread_owned();

 private:
  void gather_slices(std::size_t chunk);
  void gather_changes(std::size_t chunk);
  void give_table();
  void give_table_slices();
  /// The table's place among its stage's values, and their number.
  struct Stage {
    CanonicalRange table{0, 0};
    std::int64_t elements = 0;
  };
  [[nodiscard]] CanonicalRange table_slice(const Stage& stage, int dp) const;
  [[nodiscard]] int rank_at(int pp, int dp) const;
  [[nodiscard]] bool has_first_stage() const;
  [[nodiscard]] bool has_last_stage() const;

  MeshOptions options_;
  MeshRank& rank_;
  Stage first_, last_;  // of a tied table that lies in two stages; else empty
};

}  // namespace isthmus
