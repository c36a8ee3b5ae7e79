// SPDX-License-Identifier: Apache-2.0
// Rules of [inner].
#include <fmt/format.h>

#include "config/check/config_check.h"

namespace isthmus::config {

void validate_inner(const InnerConfig& inner, CheckContext& check) {
  if (inner.optimizer != "adamw" && inner.nesterov && inner.momentum == 0) {
    check.refuse("E-CONFLICT", "inner.nesterov",
                 fmt::format("{} without 'inner.momentum'", check.quoted("inner.nesterov")),
                 fmt::format("momentum = {} in [inner], or remove nesterov",
                             inner.optimizer == "muon" ? 0.95 : 0.9));
  }
}

}  // namespace isthmus::config
