// SPDX-License-Identifier: Apache-2.0
// Points at which a test kills its own process, as by `kill -9`:
// tests/end_to_end/killed_at_points.py. A fault is armed only by `train --site` with
// ISTHMUS_FAULT=kill@POINT:N in its environment, which its log reports. Any task.
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <string_view>

namespace isthmus {

enum class FaultPoint {
  kContributes,   // before sending the first frame of a contribution
  kContributed,   // after receiving another member's first frame of a contribution
  kAnswers,       // an owner, before sending a part of the mean
  kAnswered,      // after receiving such a part
  kSaysDone,      // before sending the digest of a round (DONE)
  kSaidDone,      // after sending it, at the next received frame
  kCommits,       // the coordinator, after its decision, before telling a member
  kCommitted,     // after receiving a commit
  kApplies,       // before applying the committed result
  kApplied,       // at the end of a step
  kAdmits,        // the coordinator, before telling a member the membership
  kEntered,       // after receiving it
  kCheckpoints,   // some files of a checkpoint are written
  kCheckpointed,  // a checkpoint has its name, before `last` is set to it
  kJoins,         // a state was offered to this site, which joins
  kFetches,       // after receiving a piece of that state
  kServes,        // a donor, before sending a piece to a joining site
};
/// Their names in ISTHMUS_FAULT, in that order.
inline constexpr std::array<std::string_view, 17> kFaultPoints = {
    "contributes", "contributed",  "answers", "answered", "says-done", "said-done",
    "commits",     "committed",    "applies", "applied",  "admits",    "entered",
    "checkpoints", "checkpointed", "joins",   "fetches",  "serves"};

struct Fault {
  FaultPoint at = FaultPoint::kContributes;
  int nth = 1;  // the fault occurs at the n-th time
};

/// Parses "kill@POINT:N". THROWS: ConfigError for anything else, with the allowed points.
[[nodiscard]] Fault parse_fault(std::string_view text);
/// Arms the fault; may be called once.
void arm(const Fault& fault);
[[nodiscard]] bool is_armed();
/// Kills this process if it is armed for this point and count.
void reach(FaultPoint point);

}  // namespace isthmus
