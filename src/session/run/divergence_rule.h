// SPDX-License-Identifier: Apache-2.0
// The decision which outer state is wrong when the states of sites differ after a step. It is no
// vote: the records decide, namely the last state that all sites had alike, and the results
// committed since. Each site replays these records by itself; a site whose state differs from its
// replay is healed by it. If replays differ, nothing can be decided. Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/expected.h"
#include "isthmus/types.h"

namespace isthmus::app {

/// The remedy when outer states differ and no site can tell which is right.
inline constexpr std::string_view kOuterRemedy =
    "go on from a checkpoint before it (--resume finds the last one that is the same everywhere); "
    "if it comes again, the memory or the processor of one of them is in doubt";

/// The outcome of a site's replay.
struct OuterReplay {
  std::string digest;  // empty: no replay
  std::string why;     // why there is no replay
};

/// The report of one site.
struct OuterWord {
  std::string site;
  std::string about;                  // its program and processor
  std::string digest;                 // of the state it held
  std::optional<OuterReplay> replay;  // nothing: lost before it reported a replay
  bool gone = false;
};

struct DivergenceVerdict {
  std::string right;               // the digest of all sites from now on
  std::vector<std::size_t> wrong;  // places of the sites that are healed
};

/// A report of a lost site counts like any other, so that all sites with the same reports decide
/// alike, whenever they hear of the loss. REQUIRES: at least two digests differ. RETURNS: why
/// nothing can be decided, naming sites, programs and processors.
[[nodiscard]] Expected<DivergenceVerdict, std::string> judge_outer(
    StepIndex t, const std::vector<OuterWord>& words);

}  // namespace isthmus::app
