// SPDX-License-Identifier: Apache-2.0
// A one-hidden-layer network with hand-written gradients that learns sin(x). Each worker sees its
// own part of the x axis, so workers must agree to learn the whole. The trainer of both examples.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <vector>

#include "isthmus/inner_loop.h"
#include "isthmus/state.h"

namespace isthmus::examples {

constexpr std::size_t kHidden = 16;
constexpr std::size_t kSamples = 32;

class SineNet final : public InnerLoop {
 public:
  /// Worker `worker` of `workers`. `momentum`: of the inner SGD.
  SineNet(int worker, int workers, float momentum = 0)
      : worker_(worker), workers_(workers), momentum_(momentum) {
    add("hidden.weight", 0, hidden_weight_, gradient_hidden_weight_);
    add("hidden.bias", 0, hidden_bias_, gradient_hidden_bias_);
    add("out.weight", 1, out_weight_, gradient_out_weight_);
    restart();
  }

  /// Back to step 0.
  void restart() {
    for (std::size_t h = 0; h < kHidden; ++h) {
      const float turn = static_cast<float>(h) / kHidden;  // equal on all workers, as it must be
      hidden_weight_[h] = 0.4f + turn;
      hidden_bias_[h] = 4 * turn - 2;
      out_weight_[h] = h % 2 == 0 ? 0.2f : -0.2f;
    }
    reset_optimizer();
  }

  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }

  InnerStep train_step(StepIndex t) override {
    InnerStep step = gradients(t, {});
    step.grad_norm = apply_gradients(t);
    return step;
  }

  // Separate gradients and update are what method ddp needs; diloco would do with train_step alone.
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override {
    for (const std::span<float> gradient : gradients_) {
      for (float& g : gradient) g = 0;
    }
    double loss = 0;
    for (std::size_t i = 0; i < kSamples; ++i) {
      const float x = sample(t, i);
      std::array<float, kHidden> activation{};
      const float error = predict(x, activation) - std::sin(x);
      loss += 0.5 * static_cast<double>(error * error) / kSamples;
      for (std::size_t h = 0; h < kHidden; ++h) {
        const float back = error * out_weight_[h] * (1 - activation[h] * activation[h]) / kSamples;
        gradient_out_weight_[h] += error * activation[h] / kSamples;
        gradient_hidden_weight_[h] += back * x;
        gradient_hidden_bias_[h] += back;
      }
    }
    for (std::size_t left = parameters_.size(); on_ready && left > 0; --left) {
      on_ready(left - 1);
    }
    return {.loss = loss, .grad_norm = 0, .tokens = kSamples};
  }
  std::span<float> gradient(std::size_t parameter) override { return gradients_[parameter]; }
  double apply_gradients(StepIndex t) override {
    double squares = 0;
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      for (std::size_t i = 0; i < gradients_[p].size(); ++i) {
        const float g = gradients_[p][i];
        squares += static_cast<double>(g * g);
        velocity_[p][i] = momentum_ * velocity_[p][i] + g;
        parameters_[p].values[i] -= static_cast<float>(learning_rate(t)) * velocity_[p][i];
      }
    }
    return std::sqrt(squares);
  }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 0.1; }

  // What a checkpoint keeps beside the parameters.
  void reset_optimizer() override { velocity_ = {}; }
  void save(StateWriter& writer) const override {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      writer.tensor("velocity/" + parameters_[p].name, velocity_[p]);
    }
  }
  void load(StateReader& reader) override {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      reader.tensor("velocity/" + parameters_[p].name, velocity_[p]);
    }
  }

  /// Mean squared error over the whole axis, with the parameters of `source`.
  [[nodiscard]] double error_of(const ParameterSource& source) const {
    return error_of(source, 0, 1);
  }
  /// The same over part `part` of `parts` equal ones of the axis.
  [[nodiscard]] double error_of(const ParameterSource& source, std::int64_t part,
                                std::int64_t parts) const {
    double sum = 0;
    const std::int64_t points = kPoints / parts;
    for (std::int64_t i = part * points; i < (part + 1) * points; ++i) {
      const float x = std::numbers::pi_v<float> * (2.0f * static_cast<float>(i) / kPoints - 1);
      float y = 0;
      for (std::size_t h = 0; h < kHidden; ++h) {
        y += source.values(2)[h] * std::tanh(source.values(0)[h] * x + source.values(1)[h]);
      }
      sum += std::pow(static_cast<double>(y - std::sin(x)), 2);
    }
    return sum / static_cast<double>(points);
  }
  static constexpr std::int64_t kPoints = 200;  // of an evaluation, over the whole axis

 private:
  using Tensor = std::array<float, kHidden>;

  void add(const char* name, int layer, Tensor& values, Tensor& gradient) {
    const auto begin = static_cast<std::int64_t>(parameters_.size() * kHidden);
    parameters_.push_back({.name = name,
                           .layer = layer,
                           .shape = {kHidden},
                           .elements = {begin, begin + static_cast<std::int64_t>(kHidden)},
                           .values = values,
                           .decay = false});
    gradients_.push_back(gradient);
  }
  [[nodiscard]] float predict(float x, Tensor& activation) const {
    float y = 0;
    for (std::size_t h = 0; h < kHidden; ++h) {
      activation[h] = std::tanh(hidden_weight_[h] * x + hidden_bias_[h]);
      y += out_weight_[h] * activation[h];
    }
    return y;
  }
  /// Position is a pure function of (worker, step, sample): a resumed run sees the same data.
  [[nodiscard]] float sample(StepIndex t, std::size_t i) const {
    const double golden = 0.6180339887498949;
    const double point = static_cast<double>(t.value()) * kSamples + static_cast<double>(i);
    const double within = point * golden - std::floor(point * golden);
    const double unit = (worker_ + within) / workers_;
    return static_cast<float>(std::numbers::pi * (2 * unit - 1));
  }

  int worker_;
  int workers_;
  float momentum_;
  Tensor hidden_weight_{}, hidden_bias_{}, out_weight_{};
  Tensor gradient_hidden_weight_{}, gradient_hidden_bias_{}, gradient_out_weight_{};
  std::array<Tensor, 3> velocity_{};  // of the inner SGD, by parameter
  std::vector<Parameter> parameters_;
  std::vector<std::span<float>> gradients_;
};

}  // namespace isthmus::examples
