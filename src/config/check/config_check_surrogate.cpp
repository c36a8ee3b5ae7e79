// SPDX-License-Identifier: Apache-2.0
// Rules of [surrogate].
#include <fmt/format.h>

#include "config/check/config_check.h"

namespace isthmus::config {

void validate_surrogate(CheckContext& check) {
  const bool half_surrogate = check.given("surrogate.params") != check.given("surrogate.step_time");
  if (half_surrogate) {
    const std::string_view absent =
        check.given("surrogate.params") ? "surrogate.step_time" : "surrogate.params";
    check.refuse("E-KEY-MISSING",
                 check.given("surrogate.params") ? "surrogate.params" : "surrogate.step_time",
                 fmt::format("[surrogate] without '{}'", absent),
                 "it needs both, for example params = \"1B\" and step_time = \"0.9s\"");
  }
}

}  // namespace isthmus::config
