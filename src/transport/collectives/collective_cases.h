// SPDX-License-Identifier: Apache-2.0
// The calls to time: each operation of a communicator with f32 values of a given size.
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

/// One rank's memory for these calls.
class CollectiveRoom {
 public:
  CollectiveRoom(int ranks, int rank, std::int64_t largest_bytes);
  /// The calls borrow this object. `bytes`: as in call_bytes(); for an all-to-all the bytes that
  /// each rank sends. REQUIRES: bytes <= largest_bytes; the communicators have these ranks.
  [[nodiscard]] std::vector<CollectiveCase> cases(std::int64_t bytes);

 private:
  int ranks_;
  int rank_;
  std::vector<float> values_;
  std::vector<float> room_;
  std::vector<std::int64_t> shares_;
  std::vector<std::int64_t> given_;  // for an all-to-all, equal for all ranks
};

}  // namespace isthmus
