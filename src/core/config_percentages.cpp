// SPDX-License-Identifier: Apache-2.0
// Counts of steps given as shares of the run, once its length is known.
#include <fmt/format.h>

#include <algorithm>

#include "core/config_loader.h"
#include "core/config_values.h"

namespace isthmus::config {
namespace {

/// Steps between two events; the share of a short run is at least one step, since 0 means never.
std::int64_t period_of(const StepCount& count, std::int64_t total) {
  const std::int64_t steps = count.resolve(total);
  return count.fraction.value_or(0) > 0 ? std::max<std::int64_t>(steps, 1) : steps;
}

bool resolved_while_loading(Type type) {
  return type == Type::kStepsNow || type == Type::kStepsOrTime || type == Type::kOffsets;
}

}  // namespace

bool needs_length_of_run(const Value& value, Type type) {
  if (!resolved_while_loading(type)) {
    return false;
  }
  if (const auto* count = std::get_if<StepCount>(&value)) {
    return count->fraction.has_value();
  }
  const auto* list = std::get_if<std::vector<StepCount>>(&value);
  return list != nullptr && std::any_of(list->begin(), list->end(), [](const StepCount& each) {
           return each.fraction.has_value();
         });
}

Value in_steps(const Value& value, Type type, std::int64_t total) {
  if (!resolved_while_loading(type)) {
    return value;
  }
  if (const auto* list = std::get_if<std::vector<StepCount>>(&value)) {
    std::vector<std::int64_t> steps;
    for (const StepCount& each : *list) {
      steps.push_back(each.resolve(total));
    }
    return steps;
  }
  const auto* count = std::get_if<StepCount>(&value);
  if (count == nullptr) {
    return value;
  }
  return type == Type::kStepsNow ? Value(count->resolve(total))
                                 : Value(StepCount{period_of(*count, total), {}});
}

void Loader::resolve_percentages() {
  for (const Deferred& each : deferred_) {
    const std::int64_t total = total_steps(config);
    if (each.row->name == "train.steps" || total == 0) {
      diagnostics.add(
          "E-UNIT-WRONG", each.given.value,
          fmt::format("'{} = {}': a percentage of what? the length of the run is unknown",
                      each.row->name, each.given.shown),
          "write a count of steps");
      continue;
    }
    const Value value = in_steps(each.value, each.row->type, total);
    const auto* steps = std::get_if<std::int64_t>(&value);
    if (steps != nullptr && !each.row->range.contains(static_cast<double>(*steps))) {
      diagnostics.add("E-RANGE", each.given.value,
                      fmt::format("'{} = {}' is {} of {} steps: must be {}", each.row->name,
                                  each.given.shown, *steps, total, each.row->range.text()));
      continue;
    }
    each.row->field.set(config, value);
  }
  // Its share stays one, so that the resolved file says what was asked for, but for short runs.
  StepCount& every = config.eval.every;
  const std::int64_t total = total_steps(config);
  if (total > 0 && every.resolve(total) == 0) {
    every = {period_of(every, total), {}};
  }
}

}  // namespace isthmus::config
