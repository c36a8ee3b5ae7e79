// SPDX-License-Identifier: Apache-2.0
// An inner loop whose values and moments live elsewhere, as those on a device do: what others see
// of them holds NaN but for what they asked for since the last step, and what they write counts
// only once they have said so.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "core/base/all_elements.h"
#include "outer/parts/forwarding_inner_loop.h"

namespace isthmus::testing_support {

class MirroredLoop final : public outer::ForwardingInnerLoop {
 public:
  /// Borrows `real`, whose own parameters are the place elsewhere.
  explicit MirroredLoop(InnerLoop& real)
      : ForwardingInnerLoop(real),
        mirror_(static_cast<std::size_t>(all_elements(real).size())),
        first_(mirror_.size()),
        second_(mirror_.size()) {
    for (Parameter parameter : real.parameters()) {
      parameter.values = std::span(mirror_).subspan(
          static_cast<std::size_t>(parameter.elements.begin), parameter.values.size());
      parameters_.push_back(parameter);
    }
    forget();
  }

  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  void read_values(CanonicalRange elements) override {
    read_ += elements.size();
    for_each(elements, [&](std::size_t i, std::size_t k, std::size_t element) {
      mirror_[element] = inner_.parameters()[i].values[k];
    });
  }
  void wrote_values(CanonicalRange elements) override {
    for_each(elements, [&](std::size_t i, std::size_t k, std::size_t element) {
      inner_.parameters()[i].values[k] = mirror_[element];
    });
  }
  void read_moments(CanonicalRange elements) override {
    for_each(elements, [&](std::size_t i, std::size_t k, std::size_t element) {
      first_[element] = inner_.adam_moments(i).first[k];
      second_[element] = inner_.adam_moments(i).second[k];
    });
  }
  void wrote_moments(CanonicalRange elements) override {
    for_each(elements, [&](std::size_t i, std::size_t k, std::size_t element) {
      inner_.adam_moments(i).first[k] = first_[element];
      inner_.adam_moments(i).second[k] = second_[element];
    });
  }
  InnerStep train_step(StepIndex t) override {
    const InnerStep step = inner_.train_step(t);
    forget();
    return step;
  }
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override {
    const InnerStep step = inner_.gradients(t, on_ready);
    forget();
    return step;
  }
  double apply_gradients(StepIndex t) override {
    const double norm = inner_.apply_gradients(t);
    forget();
    return norm;
  }
  [[nodiscard]] AdamMoments adam_moments(std::size_t i) override {
    static_cast<void>(inner_.adam_moments(i));  // refuses what `real` does
    const auto begin = static_cast<std::size_t>(parameters_[i].elements.begin);
    const std::size_t size = parameters_[i].values.size();
    return {std::span(first_).subspan(begin, size), std::span(second_).subspan(begin, size)};
  }

  /// Elements that were asked for so far.
  [[nodiscard]] std::int64_t elements_read() const { return read_; }

 private:
  void forget() {
    for (std::vector<float>* mirror : {&mirror_, &first_, &second_}) {
      std::ranges::fill(*mirror, std::numeric_limits<float>::quiet_NaN());
    }
  }
  /// each(parameter, its element, canonical element)
  template <typename Each>
  void for_each(CanonicalRange elements, Each each) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const CanonicalRange tensor = parameters_[i].elements;
      const std::int64_t end = std::min(elements.end, tensor.end);
      for (std::int64_t e = std::max(elements.begin, tensor.begin); e < end; ++e) {
        each(i, static_cast<std::size_t>(e - tensor.begin), static_cast<std::size_t>(e));
      }
    }
  }

  std::vector<float> mirror_, first_, second_;  // in canonical order
  std::vector<Parameter> parameters_;
  std::int64_t read_ = 0;
};

}  // namespace isthmus::testing_support
