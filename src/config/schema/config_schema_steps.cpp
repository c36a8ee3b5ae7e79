// SPDX-License-Identifier: Apache-2.0
// Counts of steps: those given as shares of the run become steps once the run's length is known.
#include <algorithm>
#include <cmath>

#include "config/schema/config_schema_values.h"

namespace isthmus::config {
namespace {

bool resolved_while_loading(Type type) {
  return type == Type::kStepsNow || type == Type::kStepsOrTime || type == Type::kOffsets;
}

}  // namespace

std::int64_t period_of(const StepCount& count, std::int64_t total) {
  const std::int64_t steps = count.resolve(total);
  return count.fraction.value_or(0) > 0 ? std::max<std::int64_t>(steps, 1) : steps;
}

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

}  // namespace isthmus::config

namespace isthmus {

std::int64_t total_steps(const Config& config) {
  if (config.train.steps) {
    return *config.train.steps;
  }
  const bool known = config.train.tokens && config.train.global_batch_tokens > 0;
  return known ? *config.train.tokens / config.train.global_batch_tokens : 0;
}

std::int64_t StepCount::resolve(std::int64_t total_steps) const {
  return fraction ? std::llround(*fraction * static_cast<double>(total_steps)) : steps;
}

}  // namespace isthmus
