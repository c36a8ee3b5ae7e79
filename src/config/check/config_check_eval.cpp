// SPDX-License-Identifier: Apache-2.0
// Rules of [eval].
#include <fmt/format.h>

#include "config/check/config_check.h"

namespace isthmus::config {

void validate_eval(const EvalConfig& eval, CheckContext& check) {
  if (!heads_divide_width(check.config.model)) return;
  const bool windows_fit = eval.all || eval.tokens >= check.config.train.context;
  if (!windows_fit && check.given("eval.tokens")) {
    check.refuse("E-RANGE", "eval.tokens",
                 fmt::format("{}: less than one window of train.context = {} tokens",
                             check.quoted("eval.tokens"), check.config.train.context));
  }
}

}  // namespace isthmus::config
