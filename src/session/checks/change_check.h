// SPDX-License-Identifier: Apache-2.0
// The keys of a run that may change when it continues, and why others may not: for --change, and
// for the `changes` of a library's caller. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "isthmus/config.h"

namespace isthmus::app {

struct UnfitRates {
  std::string why, remedy;  // one clause each
};

struct ChangeRules {
  bool by_argument = false;  // as RunChanges::by_argument
  /// Checks whether past steps would have had other learning rates under `to`. Empty: the trainer
  /// has its own rates.
  std::function<std::optional<UnfitRates>(const Config& from, const Config& to, std::int64_t steps)>
      rates = {};
};

/// Checks a run that has taken `steps` steps under `from` and is to continue under `to`: only keys
/// may change that do not change the meaning of past steps. THROWS: ConfigError naming the key,
/// both values, the reason, and the remedy.
void check_change(const Config& from, const Config& to, std::int64_t steps,
                  const ChangeRules& rules);

}  // namespace isthmus::app
