// SPDX-License-Identifier: Apache-2.0
// Generalized Primal Averaging (Defazio et al. 2025, arXiv:2512.17131; the authors' gpa_adamw.py):
// one worker's training, with gradients taken between the optimizer's own parameters and their
// running average. Nothing is exchanged. At the start x = y = z; then at each step
//   d  = what the inner optimizer does at y, its weight decay included
//   z <- z + d
//   x <- mu_x x + (1 - mu_x) z      evaluated and exported
//   y <- mu_y x + (1 - mu_y) z      what the inner loop holds
// Deviations: the authors keep y and z and work out x; z takes the step as y has made it, so in one
// more rounding; and their weight decay shrinks z unless use_wd_on_y.
// One thread.
#pragma once

#include <string>
#include <vector>

#include "isthmus/outer.h"
#include "outer/parts/settings.h"

namespace isthmus::outer {

class Gpa final : public OuterStrategy {
 public:
  Gpa(const MethodInfo& method, const OuterOptions& options, InnerLoop& inner);

  StepReport step() override;
  std::vector<RoundReport> finish() override { return {}; }
  [[nodiscard]] StepIndex steps() const override { return steps_; }
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;
  void forget_own_work() override;

 private:
  void average();
  [[nodiscard]] Identity identity() const;

  std::string method_;
  double mu_x_;
  double mu_y_;
  InnerLoop& inner_;
  std::vector<float> x_, z_;  // in canonical order
  StepIndex steps_;
};

}  // namespace isthmus::outer
