// SPDX-License-Identifier: Apache-2.0
// The initial values of a new run (net.start). With "first" the first worker that is there gives
// its values to all, byte for byte, in rounds of the exchange that come before step 1. The worker's
// thread, before its method is made.
#pragma once

#include <cstdint>
#include <string>

#include "isthmus/config.h"
#include "isthmus/inner_loop.h"
#include "isthmus/transport.h"

namespace isthmus::app {

/// Whether a new run lays down its start as a checkpoint of step 0: where no trainer can be asked
/// to make that start again.
[[nodiscard]] inline bool lays_down_start(const Config& config) {
  return config.net.start == "first" || config.train.trainer == "external";
}

/// Values that travel in one round, at most: 4 MiB, which a thin link carries to many sites within
/// net.patience.
inline constexpr std::int64_t kStartPiece = std::int64_t{1} << 20;

/// Gives all workers the values of the first one that stays to the end of this, and writes them
/// into `inner`; where all are equal already, digests alone travel. Takes room for a copy of the
/// values. Called by all workers that begin a run
/// together. `piece`: equal at all. THROWS: PeerError when a round fails.
void take_first_values(InnerLoop& inner, Exchange& exchange, Duration patience,
                       std::int64_t piece = kStartPiece);

/// A line for each tensor, its name and a short digest of its values: what a site tells the others
/// of its start, so that a difference can be told by tensor. Empty for a model of very many
/// tensors or long names, whose lines would not fit into a note.
[[nodiscard]] std::string digests_of_start(InnerLoop& inner);
/// The name in the first line that differs; empty: there is none.
[[nodiscard]] std::string first_unlike(const std::string& digests, const std::string& others);

}  // namespace isthmus::app
