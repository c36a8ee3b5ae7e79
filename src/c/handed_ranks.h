// SPDX-License-Identifier: Apache-2.0
// The ranks of a site that share its outer state (outer.placement = "ranks"), reached by the
// caller's collectives. Rank 0 has the run; the calls are made on the callers' threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "isthmus/c.h"
#include "isthmus/config.h"
#include "isthmus/inner_loop.h"
#include "transport/collectives/communicator.h"

namespace isthmus::c {

struct HandedRanks {
  int rank = 0;
  std::unique_ptr<Communicator> all;
  std::function<void()> begin;                // rank 0: the others are to serve once
  std::function<void(Communicator&)> served;  // another rank's share of the outer state
  std::shared_ptr<std::int64_t> calls;        // of the caller's, so far

  /// Runs a part at rank 0, while the others serve.
  void run(const std::function<void(Communicator&)>& part) const {
    begin();
    part(*all);
  }
};

/// THROWS: ConfigError.
[[nodiscard]] HandedRanks handed_ranks(std::int32_t rank, std::int32_t ranks,
                                       isthmus_ranks_call call, void* context);
/// The share of a rank other than 0. THROWS: ConfigError where the method's state is whole.
[[nodiscard]] std::function<void(Communicator&)> share_of_rank(
    const Config& config, std::span<const Parameter> parameters);

}  // namespace isthmus::c
