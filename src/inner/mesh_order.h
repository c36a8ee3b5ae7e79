// SPDX-License-Identifier: Apache-2.0
// What the first process of a mesh asks all its ranks for, and how it travels. Plain data.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "isthmus/inner_loop.h"

namespace isthmus {

enum class Ask : std::int64_t { kEnd, kLoss, kTrain, kSlices, kCollect, kHandOut, kUpdate, kReset };

/// What the first rank asks all for.
struct Order {
  Ask ask = Ask::kEnd;
  std::int64_t sequences = 0, length = 0;
  double gradient_scale = 0;
  bool new_weights = true;  // which the ranks get before the pass
  double lr = 0;
  std::int64_t what = 0;  // RankValues, or the updates after a reset
  bool readings = false;  // are wanted after the pass
};

constexpr std::int64_t kWords = 8;
using Words = std::array<std::int64_t, kWords>;

[[nodiscard]] inline Words words_of(const Order& order) {
  return {static_cast<std::int64_t>(order.ask),
          order.sequences,
          order.length,
          std::bit_cast<std::int64_t>(order.gradient_scale),
          order.new_weights ? 1 : 0,
          std::bit_cast<std::int64_t>(order.lr),
          order.what,
          order.readings ? 1 : 0};
}

[[nodiscard]] inline Order order_of(const Words& words) {
  return {static_cast<Ask>(words[0]),
          words[1],
          words[2],
          std::bit_cast<double>(words[3]),
          words[4] != 0,
          std::bit_cast<double>(words[5]),
          words[6],
          words[7] != 0};
}

/// What the first rank has of an order's data; nothing on the others.
struct Canonical {
  const float* weights = nullptr;  // of a pass
  const float* handed_out = nullptr;
  float* collected = nullptr;  // gradients of a pass, weights after an update
  TokenBatch batch = {};
  std::span<double> squares = {};
};

}  // namespace isthmus
