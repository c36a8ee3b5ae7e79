// SPDX-License-Identifier: Apache-2.0
// The processes that are the ranks of a mesh, from one of them. Waits of different kinds have
// different timeouts, so each kind has a separate communicator over the same processes.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "inner/mesh/mesh.h"
#include "inner/mesh/rank_watch.h"
#include "isthmus/runtime.h"
#include "transport/collectives/communicator.h"

namespace isthmus {

/// Borrows the references and owns the fields at the end.
struct RankProcesses {
  Communicator& passes;  // calls within a pass, where all ranks compute: parallel.patience
  /// Orders of the first rank, sent between its rounds, evaluations and checkpoints: the others
  /// wait as long as these take.
  Communicator& orders;
  Communicator& roll_call;  // asks which ranks still answer, after a failed pass: at most
                            // roll_call_wait
  const Clock& clock;

  // Used on the first rank:
  std::int64_t step = 0;                                    // step of the current pass
  std::function<void(const RankFinding&)> on_finding = {};  // may be empty; on the driving thread

  void abort(const std::string& cause) noexcept {
    for (Communicator* each : {&passes, &orders, &roll_call}) each->abort(cause);
  }
};

/// Default timeout of ranks that wait for one another within a pass.
inline constexpr std::chrono::minutes kRankPatience{10};
/// Remedy in errors of lost ranks.
inline constexpr const char* kRankRemedy =
    "go on from the newest checkpoint: the same command with --resume auto";
/// Timeout of a roll call.
[[nodiscard]] std::chrono::milliseconds roll_call_wait(std::chrono::milliseconds patience);

/// Names of the ranks in errors: "tp 1, pp 0, dp 0".
[[nodiscard]] std::vector<std::string> rank_places(const MeshShape& mesh);

/// Called after a call of `ranks` has failed with `cause`: ends the others' calls and asks all
/// ranks to answer. A rank that waits for another is not at fault, so the error names all ranks
/// that do not answer, not the first rank that was missed. Blocks for as long as a roll call.
/// RETURNS: the error text, with a remedy.
[[nodiscard]] std::string error_after_roll_call(RankProcesses& ranks, const std::string& cause);

}  // namespace isthmus
