// SPDX-License-Identifier: Apache-2.0
// The calls that are timed: each operation of a communicator with values of a given size, f32.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "transport/collectives/communicator.h"
#include "transport/collectives/communicator_call.h"

namespace isthmus {

struct CollectiveCase {
  Operation operation = Operation::kNothing;
  std::int64_t moved_bytes = 0;  // read and written by all ranks together
  std::function<void(Communicator&)> run;
};

/// One rank's memory for them.
class CollectiveRoom {
 public:
  CollectiveRoom(int ranks, int rank, std::int64_t largest_bytes);
  /// `bytes` as call_bytes() has them; of an all-to-all: what each rank gives. They borrow this.
  /// REQUIRES: bytes <= largest_bytes; the communicators are of these ranks.
  [[nodiscard]] std::vector<CollectiveCase> cases(std::int64_t bytes);

 private:
  int ranks_;
  int rank_;
  std::vector<float> values_;
  std::vector<float> room_;
  std::vector<std::int64_t> shares_;
  std::vector<std::int64_t> given_;  // of an all-to-all, alike for all ranks
};

}  // namespace isthmus
