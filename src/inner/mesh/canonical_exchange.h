// SPDX-License-Identifier: Apache-2.0
// What goes between the canonical values of a mesh's first process and the parts of all its ranks:
// weights out, gradients and moments in, in pieces, so that the first has room for one piece
// alone. All calls are collective; on the other ranks pointers to canonical values are not used.
// One thread, that of the rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "inner/mesh/mesh_rank.h"
#include "inner/model/weight_copies.h"

namespace isthmus {

class CanonicalExchange {
 public:
  static constexpr int kFirst = 0;  // the rank that has the canonical values
  /// The tags of its messages begin here, past those of losses and readings.
  static constexpr int kFirstTag = 2;
  static constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // values of a message, at most

  /// `ranks` and `rank` are borrowed; `canonical` is read here alone.
  CanonicalExchange(const ModelLayout& canonical, const MeshOptions& options, Communicator& ranks,
                    MeshRank& rank);

  /// To the first data-parallel rank of each share its weights, which hands them on to the others.
  void share_weights(const float* weights);
  /// gradients := the sums over the data-parallel ranks, each slice from the rank that has it.
  void collect_gradients(float* gradients);
  /// canonical := what the ranks own (ZeRO) of these tensors; hand_out is the inverse.
  void collect(RankValues what, TensorRange tensors, float* canonical);
  void hand_out(RankValues what, TensorRange tensors, const float* canonical);

  /// Room for a piece; nothing on the other ranks.
  [[nodiscard]] std::size_t held_bytes() const { return piece_.size() * sizeof(float); }
  /// The same before it is made, of the first rank.
  [[nodiscard]] static std::int64_t bytes(const ModelLayout& canonical, const MeshOptions& options);

 private:
  [[nodiscard]] bool first() const { return ranks_.rank() == kFirst; }
  [[nodiscard]] MeshPosition position(int rank) const { return mesh_position(options_.mesh, rank); }
  [[nodiscard]] const std::vector<RankLayout>& layouts(int rank) const {
    return layouts_[static_cast<std::size_t>(rank)];
  }
  /// Of all ranks' parts of these tensors, one after another; on the first rank.
  void for_parts(TensorRange tensors,
                 const std::function<void(int rank, std::size_t chunk, CanonicalRange)>& body);
  /// The same part, of this rank.
  [[nodiscard]] LocalValues own_part(RankValues what, TensorRange tensors, std::size_t chunk);
  void send_weights(const float* canonical, CanonicalRange part, int to, std::size_t chunk);
  void receive_weights(const LocalValues& own, std::size_t chunk);

  MeshOptions options_;
  Communicator& ranks_;
  MeshRank& rank_;
  std::vector<std::vector<RankLayout>> layouts_;  // of all ranks; the first rank's alone
  std::vector<float> piece_;
};

}  // namespace isthmus
