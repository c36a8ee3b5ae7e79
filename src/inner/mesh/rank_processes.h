// SPDX-License-Identifier: Apache-2.0
// The processes that are the ranks of a mesh, as each of them sees the others. What a rank waits
// for differs, so does how long it may take: each has a communicator of its own over the same
// processes.
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

/// All but the fields at the end is borrowed.
struct RankProcesses {
  Communicator& passes;  // within a pass, where all ranks compute: parallel.patience
  /// What to compute next, which the first tells between its rounds, evaluations and checkpoints:
  /// the others wait as long as those take.
  Communicator& orders;
  Communicator& roll_call;  // who is still there, after a pass that failed: kRollCall at most
  const Clock& clock;

  // Of the first rank:
  std::int64_t step = 0;                                    // that a pass is for
  std::function<void(const RankFinding&)> on_finding = {};  // may be empty; on the driving thread

  void abort(const std::string& cause) noexcept {
    for (Communicator* each : {&passes, &orders, &roll_call}) each->abort(cause);
  }
};

/// How long ranks without a key wait for one another within a pass.
inline constexpr std::chrono::minutes kRankPatience{10};
/// What to do once ranks are lost.
inline constexpr const char* kRankRemedy =
    "go on from the newest checkpoint: the same command with --resume auto";
/// How long a roll call waits.
[[nodiscard]] std::chrono::milliseconds roll_call_wait(std::chrono::milliseconds patience);

/// What each rank is called in errors: "tp 1, pp 0, dp 0".
[[nodiscard]] std::vector<std::string> rank_places(const MeshShape& mesh);

/// After a call of `ranks` has failed with `cause`: ends the others' calls and asks who is there. A
/// rank that waits for another is not the one to blame, so not the first to be missed is named but
/// all that do not answer. Blocks for as long as a roll call waits.
/// RETURNS: the error in words, with what to do.
[[nodiscard]] std::string error_after_roll_call(RankProcesses& ranks, const std::string& cause);

}  // namespace isthmus
