// SPDX-License-Identifier: Apache-2.0
// A finding about one rank of a site's mesh: it has become slow, or is no longer slow. Plain data;
// made by inner/mesh/rank_watch.h, written to the record of the run.
#pragma once

#include <cstdint>
#include <string_view>

namespace isthmus {

/// A rank's place in the mesh of its site.
struct MeshPosition {
  int tp = 0, pp = 0, dp = 0;
};

enum class RankTrouble { kSlowComputing, kSlowMessages };
/// "computes", "answers".
[[nodiscard]] constexpr std::string_view trouble_verb(RankTrouble trouble) {
  return trouble == RankTrouble::kSlowComputing ? "computes" : "answers";
}

struct RankFinding {
  RankTrouble trouble = RankTrouble::kSlowComputing;
  int rank = 0;
  MeshPosition at;
  bool over = false;
  double factor = 1;
  std::int64_t since = 0;  // step
};

}  // namespace isthmus
