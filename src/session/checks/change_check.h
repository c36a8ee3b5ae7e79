// SPDX-License-Identifier: Apache-2.0
// What of a run may be changed when it goes on, and why the rest may not: by --change, and by the
// `changes` of a caller of the library. Pure.
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
  /// Whether steps that were taken would have had other rates under `to`. Empty: the rates are the
  /// trainer's own.
  std::function<std::optional<UnfitRates>(const Config& from, const Config& to, std::int64_t steps)>
      rates = {};
};

/// A run that has taken `steps` steps under `from` is to go on under `to`. Whether the changed keys
/// are of those that mean the same from now on. THROWS: ConfigError naming the key, both values,
/// why not, and the way out.
void check_change(const Config& from, const Config& to, std::int64_t steps,
                  const ChangeRules& rules);

}  // namespace isthmus::app
