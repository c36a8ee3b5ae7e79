// SPDX-License-Identifier: Apache-2.0
// Rules of [run].
#include <fmt/format.h>

#include "config/check/config_check.h"

namespace isthmus::config {

void validate_run(const RunConfig& run, CheckContext& check) {
  if (!run.deterministic) {
    check.refuse(
        "E-VALUE", "run.deterministic",
        fmt::format("{}: runs are always deterministic", check.quoted("run.deterministic")),
        "remove the key; there is no faster mode that it would forbid");
  }
  if (!is_plain_name(run.name)) {
    check.refuse("E-VALUE", "run.name",
                 fmt::format("{}: must be 1 to 64 letters, digits, '-', '_' or '.'",
                             check.quoted("run.name")));
  }
}

}  // namespace isthmus::config
