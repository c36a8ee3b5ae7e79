// SPDX-License-Identifier: Apache-2.0
// Defaults of the InnerLoop interface: a function that an implementation leaves out is refused by
// name.
#include "isthmus/inner_loop.h"

#include <fmt/format.h>

#include "core/base/all_elements.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr const char* kAdamMethods = "either of the methods 1bit-adam and 01-adam";

[[noreturn]] void not_offered(const char* what, const char* needed_by) {
  throw ConfigError(fmt::format(
      "InnerLoop::{}: this inner loop does not implement it, and {} needs it; implement "
      "it, or choose what needs train_step alone (diloco, for example)",
      what, needed_by));
}

}  // namespace

std::span<const float> ParameterSource::rows(std::size_t parameter, std::int64_t columns,
                                             std::int64_t first, std::int64_t count) const {
  return values(parameter).subspan(static_cast<std::size_t>(first * columns),
                                   static_cast<std::size_t>(count * columns));
}

void InnerLoop::read_values(CanonicalRange) {}
void InnerLoop::wrote_values(CanonicalRange) {}
void InnerLoop::read_moments(CanonicalRange) {}
void InnerLoop::wrote_moments(CanonicalRange) {}
InnerStep InnerLoop::gradients(StepIndex, const GradientReady&) {
  not_offered("gradients", "method ddp");
}
std::span<float> InnerLoop::gradient(std::size_t) { not_offered("gradient", "method ddp"); }
double InnerLoop::apply_gradients(StepIndex) { not_offered("apply_gradients", "method ddp"); }
double InnerLoop::loss(const TokenBatch&, const ParameterSource&) {
  not_offered("loss", "evaluation");
}
InnerStep InnerLoop::train_loss(StepIndex, SampleShare, const ParameterSource&) {
  not_offered("train_loss", "method spsa");
}
AdamSettings InnerLoop::adam_settings() const { not_offered("adam_settings", kAdamMethods); }
AdamMoments InnerLoop::adam_moments(std::size_t) { not_offered("adam_moments", kAdamMethods); }
void InnerLoop::reset_optimizer() {
  throw ConfigError(
      "InnerLoop::reset_optimizer: this inner loop does not implement it, and its parameters have "
      "become NaN or infinite, so that they and its optimizer begin anew from the anchors; find "
      "what has made them so, and implement it (with nothing to do where there is no state)");
}
void InnerLoop::save(StateWriter&) const {}
void InnerLoop::load(StateReader&) {}

CanonicalRange all_elements(const InnerLoop& inner) {
  const std::span<const Parameter> parameters = inner.parameters();
  return parameters.empty()
             ? CanonicalRange{}
             : CanonicalRange{parameters.front().elements.begin, parameters.back().elements.end};
}

}  // namespace isthmus
