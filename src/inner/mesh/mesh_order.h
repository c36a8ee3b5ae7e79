// SPDX-License-Identifier: Apache-2.0
// Orders of a mesh's first process to all its ranks, and their transfer. Plain data.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <span>

#include "inner/model/weight_copies.h"
#include "isthmus/inner_loop.h"
#include "transport/collectives/communicator.h"

namespace isthmus {

enum class Ask : std::int64_t {
  kEnd,
  kLoss,
  kTrain,
  kSlices,
  kCollect,
  kHandOut,
  kSpread,
  kUpdate,
  kReset,
  kServe
};

/// An order of the first rank to all ranks.
struct Order {
  Ask ask = Ask::kEnd;
  std::int64_t sequences = 0, length = 0;
  double gradient_scale = 0;
  double lr = 0;
  std::int64_t what = 0;   // RankValues, or the updates after a reset
  bool readings = false;   // true: readings follow the pass
  TensorRange tensors;     // tensors to collect or hand out
  bool documents = false;  // true: windows of the pass hold several documents
};

constexpr std::int64_t kWords = 10;
using Words = std::array<std::int64_t, kWords>;

[[nodiscard]] inline Words words_of(const Order& order) {
  return {static_cast<std::int64_t>(order.ask),
          order.sequences,
          order.length,
          std::bit_cast<std::int64_t>(order.gradient_scale),
          std::bit_cast<std::int64_t>(order.lr),
          order.what,
          order.readings ? 1 : 0,
          static_cast<std::int64_t>(order.tensors.begin),
          static_cast<std::int64_t>(order.tensors.end),
          order.documents ? 1 : 0};
}

[[nodiscard]] inline Order order_of(const Words& words) {
  return {static_cast<Ask>(words[0]),
          words[1],
          words[2],
          std::bit_cast<double>(words[3]),
          std::bit_cast<double>(words[4]),
          words[5],
          words[6] != 0,
          {static_cast<std::size_t>(words[7]), static_cast<std::size_t>(words[8])},
          words[9] != 0};
}

/// A service that all ranks run together for a caller of the mesh; the mesh does not look into it.
using RankService = std::function<void(Communicator& ranks)>;

/// The data of an order on the first rank; empty on the others.
struct Canonical {
  const float* weights = nullptr;  // of a pass without ZeRO; with ZeRO ranks have the weights
  const float* handed_out = nullptr;
  float* collected = nullptr;
  TokenBatch batch = {};
  std::span<double> squares = {};
  const RankService* service = nullptr;  // the first rank's part
};

}  // namespace isthmus
