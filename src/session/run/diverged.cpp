// SPDX-License-Identifier: Apache-2.0
#include "session/run/diverged.h"

#include <fmt/format.h>

#include <cmath>

#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

// The built-in trainer says so too (inner/mesh/training_step.cpp).
constexpr std::string_view kDiverged = "the run has diverged";

void check(StepIndex t, const char* what, double value) {
  if (std::isfinite(value)) return;
  throw RunError(fmt::format(
      "step {}: the {} is {}: {}; lower the learning rate or clip gradients, and tell a "
      "step that was left out as skipped",
      t.value(), what, value, kDiverged));
}

}  // namespace

void check_finite(StepIndex t, const InnerStep& step) {
  if (step.idle) return;
  if (step.tokens < 0) {
    throw ConfigError(fmt::format(
        "step {}: InnerStep::tokens = {}: must be 0 or more (the targets in the mean, by which the "
        "worker's contribution weighs)",
        t.value(), step.tokens));
  }
  if (step.grad_norm < 0) {
    throw ConfigError(
        fmt::format("step {}: InnerStep::grad_norm = {}: must be 0 (not known) or more", t.value(),
                    step.grad_norm));
  }
  check(t, "loss", step.loss);
  check(t, "gradient norm", step.grad_norm);
}

bool has_diverged(std::string_view cause) {
  return cause.find(kDiverged) != std::string_view::npos;
}

}  // namespace isthmus::app
