// SPDX-License-Identifier: Apache-2.0
#include "app/commands/plan/flag_quantity.h"

#include <fmt/format.h>

#include "session/run/usage_error.h"

namespace isthmus::app {

double flag_quantity(std::string_view flag, const std::string& text, Dimension dimension,
                     double most) {
  const auto quantity = parse_quantity(text, dimension);
  if (!quantity) {
    throw UsageError(
        fmt::format("{} {}: {}; {}", flag, text, quantity.error().text, quantity.error().hint));
  }
  if (!(quantity->value > 0) || quantity->value > most) {
    throw UsageError(fmt::format("{} {}: must be above 0 and at most {:g}; write {}", flag, text,
                                 most, unit_examples(dimension)));
  }
  return quantity->value;
}

}  // namespace isthmus::app
