// SPDX-License-Identifier: Apache-2.0
// Where the outer states of sites differ after a step: whose is wrong. Nobody votes. The authority
// is the record: the last state that all were seen to hold alike, and the results that have been
// committed since. Each site replays that record by itself; a site whose own state is not what its
// replay comes to is healed by it. Replays that differ leave nothing to go by. Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/expected.h"
#include "isthmus/types.h"

namespace isthmus::app {

/// What helps where outer states differ and nobody can say whose is right.
inline constexpr std::string_view kOuterRemedy =
    "go on from a checkpoint before it (--resume finds the last one that is the same everywhere); "
    "if it comes again, the memory or the processor of one of them is in doubt";

/// What a site's replay has come to.
struct OuterReplay {
  std::string digest;  // empty: there is none
  std::string why;     // there is none
};

/// What one site says.
struct OuterWord {
  std::string site;
  std::string about;                  // its program and processor
  std::string digest;                 // of the state it held
  std::optional<OuterReplay> replay;  // nothing: it was gone before it told of one
  bool gone = false;
};

struct OuterVerdict {
  std::string right;               // the digest of what all have from now on
  std::vector<std::size_t> wrong;  // places of those who are healed
};

/// A word counts for as much where its site is gone meanwhile, so that all who judge by the same
/// words judge alike, whenever they hear of that. REQUIRES: not all digests are alike. RETURNS: why
/// nothing can be decided, with the sites it is about, their programs and processors.
[[nodiscard]] Expected<OuterVerdict, std::string> judge_outer(StepIndex t,
                                                              const std::vector<OuterWord>& words);

}  // namespace isthmus::app
