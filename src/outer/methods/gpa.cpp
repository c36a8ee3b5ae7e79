// SPDX-License-Identifier: Apache-2.0
#include "outer/methods/gpa.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/all_elements.h"

namespace isthmus::outer {
namespace {

/// Between `from` (at share 0) and `to`: exactly `from` where the two are equal.
double between(double from, double to, double share) { return from + share * (to - from); }

}  // namespace

Gpa::Gpa(const MethodInfo& method, const OuterOptions& options, InnerLoop& inner)
    : method_(method.name), mu_x_(options.mu_x), mu_y_(options.mu_y), inner_(inner) {
  inner.read_values(all_elements(inner));
  for (const Parameter& parameter : inner.parameters()) {
    x_.insert(x_.end(), parameter.values.begin(), parameter.values.end());
  }
  z_ = x_;
}

StepReport Gpa::step() {
  const StepIndex t(steps_.value() + 1);
  const StepReport report{.step = t, .inner = inner_.train_step(t), .rounds = {}};
  if (!report.inner.idle) average();
  steps_ = t;
  return report;
}

// Before the step the inner loop held y(x, z), which is worked out again: the same bits.
void Gpa::average() {
  inner_.read_values(all_elements(inner_));
  for (const Parameter& parameter : inner_.parameters()) {
    const auto begin = static_cast<std::size_t>(parameter.elements.begin);
    for (std::size_t i = 0; i < parameter.values.size(); ++i) {
      float& x = x_[begin + i];
      float& z = z_[begin + i];
      float& y = parameter.values[i];
      const auto before = static_cast<float>(between(z, x, mu_y_));
      z = static_cast<float>(z + (static_cast<double>(y) - before));
      x = static_cast<float>(between(z, x, mu_x_));
      y = static_cast<float>(between(z, x, mu_y_));
    }
  }
  inner_.wrote_values(all_elements(inner_));
}

std::span<const float> Gpa::values(std::size_t parameter) const {
  const CanonicalRange elements = inner_.parameters()[parameter].elements;
  return std::span(x_).subspan(static_cast<std::size_t>(elements.begin),
                               static_cast<std::size_t>(elements.size()));
}

Identity Gpa::identity() const {
  return {
      {"method", method_}, {"mu_x", fmt::format("{}", mu_x_)}, {"mu_y", fmt::format("{}", mu_y_)}};
}

void Gpa::save(StateWriter& writer) const {
  save_identity(identity(), writer);
  writer.integer("step", steps_.value());
  writer.tensor("anchor/x", x_);
  writer.tensor("moved/z", z_);
}

void Gpa::load(StateReader& reader) {
  check_identity(identity(), reader);
  steps_ = StepIndex(reader.integer("step"));
  saved_finite(reader, "anchor/x", x_);
  saved_finite(reader, "moved/z", z_);
}

// The average is what others would go on from.
void Gpa::forget_own_work() {
  z_ = x_;
  for (std::size_t i = 0; i < inner_.parameters().size(); ++i) {
    std::ranges::copy(values(i), inner_.parameters()[i].values.begin());
  }
  inner_.wrote_values(all_elements(inner_));
}

}  // namespace isthmus::outer
