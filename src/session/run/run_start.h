// SPDX-License-Identifier: Apache-2.0
// The initial values of a new run (net.start). With "first" the first present worker gives its
// values to all, byte for byte, in rounds of the exchange before step 1. The worker's thread,
// before its method is made.
#pragma once

#include <cstdint>
#include <string>

#include "isthmus/config.h"
#include "isthmus/inner_loop.h"
#include "isthmus/transport.h"

namespace isthmus::app {

/// Whether a new run saves its start as a checkpoint of step 0: if no trainer can recreate that
/// start.
[[nodiscard]] inline bool lays_down_start(const Config& config) {
  return config.net.start == "first" || config.train.trainer == "external";
}

/// Most values in one round: 4 MiB, which a slow link carries to many sites within net.patience.
inline constexpr std::int64_t kStartPiece = std::int64_t{1} << 20;

/// Gives all workers the values of the first worker that stays to the end of the call, and writes
/// them into `inner`; if all are equal already, only digests are sent. Needs memory for a copy of
/// the values. Called by all workers that begin a run together. `piece`: equal at all workers.
/// THROWS: PeerError when a round fails.
void take_first_values(InnerLoop& inner, Exchange& exchange, Duration patience,
                       std::int64_t piece = kStartPiece);

/// A line for each tensor: its name and a short digest of its values. Sites exchange these lines,
/// so that a different start can be reported by tensor. Empty for a model with too many tensors or
/// too long names, whose lines would not fit into a note.
[[nodiscard]] std::string digests_of_start(InnerLoop& inner);
/// The name in the first line that differs; empty: none.
[[nodiscard]] std::string first_unlike(const std::string& digests, const std::string& others);

}  // namespace isthmus::app
