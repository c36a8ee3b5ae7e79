// SPDX-License-Identifier: Apache-2.0
// One rank's part of the update of a mesh whose data-parallel ranks share the optimizer's state
// (ZeRO, arXiv:1910.02054): each rank updates its slice of the weights with its slice of the
// gradients' sums. Every canonical value is updated, clipped and counted once: a table on the first
// and the last stage belongs to the last, and tensors on all tensor-parallel ranks are updated by
// each of them and counted on the first.
//
// DETERMINISM: weights get the bits of one update of all of them. The norm is summed slice by
// slice, in rank order; it differs from that of whole parameters by about 1e-15, so the clipping
// factor, a float, is the same except at a rounding boundary. One thread, that of the rank.
#pragma once

#include <cstdint>
#include <span>

#include "inner/mesh/mesh_rank.h"

namespace isthmus {

class MeshUpdate {
 public:
  /// `rank` is borrowed; it must be rank `position` of such a mesh. REQUIRES: options.zero >= 1.
  MeshUpdate(const ModelLayout& canonical, const MeshOptions& options, MeshRank& rank);

  /// squares (canonical tensors,) := the squared norm of each tensor's gradient, the same on every
  /// rank. Called after rank.sum_gradients(). Collective over the mesh.
  void sum_squares(std::span<double> squares);
  /// Updates the rank's slices. canonical: weights that all ranks share, or null.
  void update(double lr, double gradient_scale, float* canonical);
  /// Called after `update` if the weights are the rank's own: gathers the slices so that all
  /// data-parallel ranks have whole weights. With a state codec only the encoded changes are sent.
  /// Does nothing with ZeRO 3, where passes gather. The first stage also gets the last stage's
  /// update of a tied table. Collective over the mesh.
  void gather_weights();
  /// Called after other code has changed the owned weights of ranks: all data-parallel ranks get
  /// all slices unencoded (not with ZeRO 3, where passes gather), and the first stage its part of a
  /// tied table. Collective over the mesh.
  void spread_owned();

 private:
  void gather_slices(std::size_t chunk);
  void gather_changes(std::size_t chunk);
  void give_table();
  void give_table_slices();
  /// The table's range among its stage's values, and the number of these.
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
  Stage first_, last_;  // of a tied table on two stages; else empty
};

}  // namespace isthmus
