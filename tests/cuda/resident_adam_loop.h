// SPDX-License-Identifier: Apache-2.0
// A toy inner loop with AdamW whose weights, gradients and moments are on a device: the host sees
// NaN but for what it has asked for since it changed, and what it writes counts once it has said
// so.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "core/base/all_elements.h"
#include "isthmus/inner_loop.h"
#include "kernels/cuda/resident_adam.h"

namespace isthmus::testing_support {

class ResidentAdamLoop final : public InnerLoop, public cuda::ResidentAdam {
 public:
  /// Borrows `real`, which computes on the host.
  explicit ResidentAdamLoop(InnerLoop& real)
      : real_(real), size_(static_cast<std::size_t>(isthmus::all_elements(real).size())) {
    for (Array* array : {&values_, &gradients_, &first_, &second_}) {
      array->there = cuda::DeviceArray<float>(size_);
      array->here.resize(size_);
    }
    for (Parameter parameter : real.parameters()) {
      parameter.values = part(values_, parameter);
      parameters_.push_back(parameter);
    }
    take_from_real();
  }

  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  void read_values(CanonicalRange) override { bring(values_); }
  void wrote_values(CanonicalRange) override { put(values_); }
  void read_moments(CanonicalRange) override {
    bring(first_);
    bring(second_);
  }
  void wrote_moments(CanonicalRange) override {
    put(first_);
    put(second_);
  }
  [[nodiscard]] float* device_values() override { return values_.there.data(); }
  [[nodiscard]] cuda::Stream& stream() override { return stream_; }
  void wrote_device_values(CanonicalRange) override { forget(values_); }
  [[nodiscard]] bool go_beside(cuda::OverlapHooks*) override { return false; }
  [[nodiscard]] float* device_gradients() override { return gradients_.there.data(); }
  void keep_gradients_on_device(bool keep) override { stay_ = keep; }
  [[nodiscard]] float* device_moment(int index) override {
    return (index == 0 ? first_ : second_).there.data();
  }
  void wrote_device_moments() override {
    forget(first_);
    forget(second_);
  }

  InnerStep train_step(StepIndex t) override {
    static_cast<void>(gradients(t, {}));
    return {.grad_norm = apply_gradients(t)};
  }
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override {
    give_to_real();
    const InnerStep step = real_.gradients(t, {});
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      std::ranges::copy(real_.gradient(i), part(gradients_, parameters_[i]).begin());
    }
    put(gradients_);
    if (stay_) forget(gradients_);
    for (std::size_t i = parameters_.size(); on_ready && i-- > 0;) on_ready(i);
    return step;
  }
  [[nodiscard]] std::span<float> gradient(std::size_t i) override {
    return part(gradients_, parameters_[i]);
  }
  double apply_gradients(StepIndex t) override {
    give_to_real();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      std::ranges::copy(gradient(i), real_.gradient(i).begin());
    }
    const double norm = real_.apply_gradients(t);
    take_from_real();
    return norm;
  }
  [[nodiscard]] double learning_rate(StepIndex t) const override { return real_.learning_rate(t); }
  [[nodiscard]] AdamSettings adam_settings() const override { return real_.adam_settings(); }
  [[nodiscard]] AdamMoments adam_moments(std::size_t i) override {
    return {part(first_, parameters_[i]), part(second_, parameters_[i])};
  }
  /// Weights and moments as `real` has them.
  void save(StateWriter& writer) const override {
    give_to_real();
    real_.save(writer);
  }
  void load(StateReader& reader) override {
    real_.load(reader);
    take_from_real();
  }

 private:
  struct Array {
    cuda::DeviceArray<float> there;
    mutable std::vector<float> here;
  };
  static std::span<float> part(const Array& array, const Parameter& parameter) {
    return std::span(array.here)
        .subspan(static_cast<std::size_t>(parameter.elements.begin),
                 static_cast<std::size_t>(parameter.elements.size()));
  }
  void bring(const Array& array) const {
    cuda::copy<float>(stream_, array.here.data(), array.there.data(), size_);
    stream_.synchronize();
  }
  void put(const Array& array) {
    cuda::copy<float>(stream_, array.there.data(), array.here.data(), size_);
    stream_.synchronize();  // the copy here is not pinned
  }
  static void forget(const Array& array) {
    std::ranges::fill(array.here, std::numeric_limits<float>::quiet_NaN());
  }
  void give_to_real() const {
    for (const Array* array : {&values_, &first_, &second_}) bring(*array);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Parameter& parameter = parameters_[i];
      std::ranges::copy(part(values_, parameter), real_.parameters()[i].values.begin());
      std::ranges::copy(part(first_, parameter), real_.adam_moments(i).first.begin());
      std::ranges::copy(part(second_, parameter), real_.adam_moments(i).second.begin());
    }
    for (const Array* array : {&values_, &first_, &second_}) forget(*array);
  }
  void take_from_real() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Parameter& parameter = parameters_[i];
      std::ranges::copy(real_.parameters()[i].values, part(values_, parameter).begin());
      std::ranges::copy(real_.adam_moments(i).first, part(first_, parameter).begin());
      std::ranges::copy(real_.adam_moments(i).second, part(second_, parameter).begin());
    }
    for (Array* array : {&values_, &first_, &second_}) {
      put(*array);
      forget(*array);
    }
  }

  InnerLoop& real_;
  std::size_t size_;
  std::vector<Parameter> parameters_;
  Array values_, gradients_, first_, second_;
  bool stay_ = false;
  mutable cuda::Stream stream_;  // ends before what it copies
};

}  // namespace isthmus::testing_support
