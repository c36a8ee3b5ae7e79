// SPDX-License-Identifier: Apache-2.0
// AdamW on a quadratic whose curvatures differ by lane, with noise that differs by worker and step.
#pragma once

#include <cmath>
#include <vector>

#include "core/base/rng.h"
#include "isthmus/inner_loop.h"

namespace isthmus::testing_support {

class AdamLoop final : public InnerLoop {
 public:
  struct Options {
    std::size_t first = 3000, second = 5000;  // lanes of the two tensors
    std::size_t dead = 0;                     // lanes at the end of the first that see no gradient
    double lr = 1e-2;
    std::int64_t decay_steps = 0;  // the rate falls linearly to zero over so many; 0: constant
    float noise = 0.5f;
    int worker = 0;
    AdamSettings adam = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    std::int64_t not_finite_at = 0;  // step whose gradient holds a NaN on this worker
  };

  explicit AdamLoop(Options options) : options_(options) {
    const std::size_t sizes[] = {options_.first, options_.second};
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::vector<float>* each : {&x_[i], &g_[i], &m_[i], &v_[i]}) each->resize(sizes[i]);
      for (std::size_t k = 0; k < sizes[i]; ++k) x_[i][k] = 2 + static_cast<float>(k % 7) / 8;
      const auto size = static_cast<std::int64_t>(sizes[i]);
      parameters_.push_back({.name = "w" + std::to_string(i),
                             .layer = static_cast<int>(i),
                             .shape = {size},
                             .elements = {begin, begin + size},
                             .values = x_[i],
                             .decay = i == 0});
      begin += size;
    }
  }

  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  InnerStep train_step(StepIndex t) override {
    InnerStep step = gradients(t, {});
    step.grad_norm = apply_gradients(t);
    return step;
  }
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override {
    const Rng rng{static_cast<std::uint64_t>(options_.worker), Stream::kTestData};
    double loss = 0;
    for (std::size_t i = 2; i-- > 0;) {
      for (std::size_t k = 0; k < x_[i].size(); ++k) {
        const auto element = static_cast<std::uint64_t>(parameters_[i].elements.begin) + k;
        const double noise = rng.uniform(element, static_cast<std::uint32_t>(t.value())) - 0.5;
        g_[i][k] = is_dead(i, k)
                       ? 0
                       : curvature(k) * (x_[i][k] + options_.noise * static_cast<float>(noise));
        loss += 0.5 * static_cast<double>(curvature(k) * x_[i][k] * x_[i][k]);
      }
      if (on_ready) on_ready(i);
    }
    if (t.value() == options_.not_finite_at) g_[1][5] = std::nanf("");
    return {.loss = loss, .grad_norm = 0, .tokens = 1};
  }
  std::span<float> gradient(std::size_t i) override { return g_[i]; }
  double apply_gradients(StepIndex t) override {
    double norm = 0;
    for (const auto& g : g_) {
      for (const float each : g) norm += static_cast<double>(each) * static_cast<double>(each);
    }
    norm = std::sqrt(norm);
    const AdamSettings& a = options_.adam;
    const double clip = a.clip > 0 ? std::min(1.0, a.clip / (norm + 1e-6)) : 1;
    const auto step = static_cast<double>(t.value());
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t k = 0; k < x_[i].size(); ++k) {
        const double g = clip * static_cast<double>(g_[i][k]);
        m_[i][k] = static_cast<float>(a.beta1 * static_cast<double>(m_[i][k]) + (1 - a.beta1) * g);
        v_[i][k] =
            static_cast<float>(a.beta2 * static_cast<double>(v_[i][k]) + (1 - a.beta2) * g * g);
        const double m = static_cast<double>(m_[i][k]) / (1 - std::pow(a.beta1, step));
        const double v = static_cast<double>(v_[i][k]) / (1 - std::pow(a.beta2, step));
        const double decay = i == 0 ? a.weight_decay * static_cast<double>(x_[i][k]) : 0;
        x_[i][k] -= static_cast<float>(learning_rate(t) * (m / (std::sqrt(v) + a.eps) + decay));
      }
    }
    return norm;
  }
  [[nodiscard]] double learning_rate(StepIndex t) const override {
    if (options_.decay_steps == 0) return options_.lr;
    return options_.lr *
           (1 - static_cast<double>(t.value() - 1) / static_cast<double>(options_.decay_steps));
  }
  [[nodiscard]] AdamSettings adam_settings() const override { return options_.adam; }
  [[nodiscard]] AdamMoments adam_moments(std::size_t i) override { return {m_[i], v_[i]}; }
  void save(StateWriter& writer) const override {
    for (std::size_t i = 0; i < 2; ++i) {
      writer.tensor("x" + std::to_string(i), x_[i]);
      writer.tensor("m" + std::to_string(i), m_[i]);
      writer.tensor("v" + std::to_string(i), v_[i]);
    }
  }
  void load(StateReader& reader) override {
    for (std::size_t i = 0; i < 2; ++i) {
      reader.tensor("x" + std::to_string(i), x_[i]);
      reader.tensor("m" + std::to_string(i), m_[i]);
      reader.tensor("v" + std::to_string(i), v_[i]);
    }
  }

  /// Curvatures from 1 to 16.
  [[nodiscard]] static float curvature(std::size_t k) { return static_cast<float>(1 << (k % 5)); }
  [[nodiscard]] bool is_dead(std::size_t i, std::size_t k) const {
    return i == 0 && k + options_.dead >= options_.first;
  }
  [[nodiscard]] std::vector<float> all() const {
    std::vector<float> flat = x_[0];
    flat.insert(flat.end(), x_[1].begin(), x_[1].end());
    return flat;
  }
  using InnerLoop::loss;
  [[nodiscard]] double loss() const {
    double sum = 0;
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t k = 0; k < x_[i].size(); ++k) {
        if (!is_dead(i, k)) sum += 0.5 * static_cast<double>(curvature(k) * x_[i][k] * x_[i][k]);
      }
    }
    return sum;
  }

 private:
  Options options_;
  std::vector<float> x_[2], g_[2], m_[2], v_[2];
  std::vector<Parameter> parameters_;
};

}  // namespace isthmus::testing_support
