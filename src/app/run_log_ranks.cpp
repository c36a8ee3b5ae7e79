// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "app/run_log.h"
#include "app/status_board.h"
#include "app/wall_clock.h"
#include "core/log.h"

namespace isthmus::app {

void MetricsLog::rank(StepIndex t, const RankFinding& finding) {
  const MeshPosition& at = finding.at;
  const std::string who =
      fmt::format("rank {} (tp {}, pp {}, dp {})", finding.rank, at.tp, at.pp, at.dp);
  const std::string_view verb = trouble_verb(finding.trouble);
  if (finding.over) {
    log_warning("{} {} as fast as its peers again, since step {} it did not", who, verb,
                finding.since);
  } else {
    log_warning("{} {} {:.1f} times slower than its peers since step {}", who, verb, finding.factor,
                finding.since);
  }
  append(line("rank")
             .add("step", t.value())
             .add("rank", finding.rank)
             .add("tp", at.tp)
             .add("pp", at.pp)
             .add("dp", at.dp)
             .add("what", verb)
             .add("over", finding.over)
             .add("factor", finding.factor)
             .add("since", finding.since)
             .add("t", unix_now()));
  if (options_.status != nullptr) options_.status->rank(finding);
}

}  // namespace isthmus::app
