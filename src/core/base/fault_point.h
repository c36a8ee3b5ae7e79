// SPDX-License-Identifier: Apache-2.0
// Moments at which a test has its own process killed, as by `kill -9`: tests/end_to_end/
// killed_at_points.py. Nothing is armed but by `train --site` with ISTHMUS_FAULT=kill@POINT:N in
// its environment, which says so in its log. Any task.
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <string_view>

namespace isthmus {

enum class FaultPoint {
  kContributes,   // the first frame of a contribution is to be sent
  kContributed,   // ... of another member has come
  kAnswers,       // a part of the mean is to be sent by who has reduced it
  kAnswered,      // ... has come
  kSaysDone,      // the digest of a round is to be sent
  kSaidDone,      // it has been sent, and the next frame comes
  kCommits,       // the coordinator has decided, and is to tell one member
  kCommitted,     // that has come
  kApplies,       // the committed result is to be applied
  kApplied,       // a step has ended
  kAdmits,        // the coordinator is to tell one member who takes part
  kEntered,       // that has come
  kCheckpoints,   // some files of a checkpoint are written
  kCheckpointed,  // it has its name, and is not the last one yet
  kJoins,         // a state was offered to this site
  kFetches,       // a piece of it has come
  kServes,        // a piece is to be given to one that joins
};
/// As ISTHMUS_FAULT names them, in that order.
inline constexpr std::array<std::string_view, 17> kFaultPoints = {
    "contributes", "contributed",  "answers", "answered", "says-done", "said-done",
    "commits",     "committed",    "applies", "applied",  "admits",    "entered",
    "checkpoints", "checkpointed", "joins",   "fetches",  "serves"};

struct Fault {
  FaultPoint at = FaultPoint::kContributes;
  int nth = 1;  // time that it is reached
};

/// "kill@POINT:N". THROWS: ConfigError for anything else, with what there is.
[[nodiscard]] Fault parse_fault(std::string_view text);
/// From now on this process is killed there. Once.
void arm(const Fault& fault);
[[nodiscard]] bool is_armed();
/// A process that is armed for it ends here when its time has come.
void reach(FaultPoint point);

}  // namespace isthmus
