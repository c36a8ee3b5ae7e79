// SPDX-License-Identifier: Apache-2.0
// Transfers between the canonical values on a mesh's first process and the shares of all its ranks:
// weights out, gradients and moments in, in pieces, so that the first process needs memory for only
// one piece. All calls are collective; pointers to canonical values are used only on the first
// rank. One thread, that of the rank.
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
  /// First of its message tags, after those of losses and readings.
  static constexpr int kFirstTag = 2;
  static constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // largest number of values of a
                                                                 // message

  /// Borrows `ranks` and `rank`; `canonical` is read only in the constructor.
  CanonicalExchange(const ModelLayout& canonical, const MeshOptions& options, Communicator& ranks,
                    MeshRank& rank);

  /// Sends each share's weights to its first data-parallel rank, which sends them on to the other
  /// data-parallel ranks.
  void share_weights(const float* weights);
  /// gradients := the sums over the data-parallel ranks, each slice from the rank that holds it.
  void collect_gradients(float* gradients);
  /// collect: canonical := the values of these tensors that the ranks own (ZeRO); hand_out is the
  /// inverse.
  void collect(RankValues what, TensorRange tensors, float* canonical);
  void hand_out(RankValues what, TensorRange tensors, const float* canonical);

  /// Bytes of the buffer for a piece; 0 on the other ranks.
  [[nodiscard]] std::size_t held_bytes() const { return piece_.size() * sizeof(float); }
  /// The same for the first rank, before the object is made.
  [[nodiscard]] static std::int64_t bytes(const ModelLayout& canonical, const MeshOptions& options);

 private:
  [[nodiscard]] bool first() const { return ranks_.rank() == kFirst; }
  [[nodiscard]] MeshPosition position(int rank) const { return mesh_position(options_.mesh, rank); }
  [[nodiscard]] const std::vector<RankLayout>& layouts(int rank) const {
    return layouts_[static_cast<std::size_t>(rank)];
  }
  /// Calls `body` for each part of these tensors on each rank, in order; on the first rank.
  void for_parts(TensorRange tensors,
                 const std::function<void(int rank, std::size_t chunk, CanonicalRange)>& body);
  /// This rank's part of them.
  [[nodiscard]] LocalValues own_part(RankValues what, TensorRange tensors, std::size_t chunk);
  void send_weights(const float* canonical, CanonicalRange part, int to, std::size_t chunk);
  void receive_weights(const LocalValues& own, std::size_t chunk);

  MeshOptions options_;
  Communicator& ranks_;
  MeshRank& rank_;
  std::vector<std::vector<RankLayout>> layouts_;  // of all ranks; only on the first rank
  std::vector<float> piece_;
};

}  // namespace isthmus
