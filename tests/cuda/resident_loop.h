// SPDX-License-Identifier: Apache-2.0
// A toy inner loop whose values are on a device: the host sees NaN but for what it has asked for
// since they changed, and what it writes counts once it has said so.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "core/all_elements.h"
#include "isthmus/inner_loop.h"
#include "kernels/cuda/resident_values.h"

namespace isthmus::testing_support {

class ResidentLoop final : public InnerLoop, public cuda::ResidentValues {
 public:
  /// Borrows `real`, which computes the steps on the host.
  explicit ResidentLoop(InnerLoop& real)
      : real_(real),
        mirror_(static_cast<std::size_t>(isthmus::all_elements(real).size())),
        values_(mirror_.size()) {
    for (Parameter parameter : real.parameters()) {
      parameter.values = std::span(mirror_).subspan(
          static_cast<std::size_t>(parameter.elements.begin), parameter.values.size());
      parameters_.push_back(parameter);
    }
    take_from_real();
  }

  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  void read_values(CanonicalRange elements) override {
    read_ += elements.size();
    cuda::copy<float>(stream_, mirror_.data() + elements.begin, values_.data() + elements.begin,
                      static_cast<std::size_t>(elements.size()));
    stream_.synchronize();
  }
  void wrote_values(CanonicalRange elements) override {
    cuda::copy<float>(stream_, values_.data() + elements.begin, mirror_.data() + elements.begin,
                      static_cast<std::size_t>(elements.size()));
    stream_.synchronize();  // the mirror is not pinned
  }
  [[nodiscard]] float* device_values() override { return values_.data(); }
  [[nodiscard]] cuda::Stream& stream() override { return stream_; }
  void wrote_device_values(CanonicalRange elements) override {
    std::fill_n(mirror_.begin() + elements.begin, elements.size(),
                std::numeric_limits<float>::quiet_NaN());
  }

  InnerStep train_step(StepIndex t) override {
    for (const Parameter& parameter : real_.parameters()) {
      cuda::copy<float>(stream_, parameter.values.data(), values_.data() + parameter.elements.begin,
                        parameter.values.size());
    }
    stream_.synchronize();
    const InnerStep step = real_.train_step(t);
    take_from_real();
    return step;
  }
  [[nodiscard]] double learning_rate(StepIndex t) const override { return real_.learning_rate(t); }
  void reset_optimizer() override { real_.reset_optimizer(); }
  void save(StateWriter& writer) const override { real_.save(writer); }
  void load(StateReader& reader) override { real_.load(reader); }

  /// Elements that the host has asked for so far.
  [[nodiscard]] std::int64_t elements_read() const { return read_; }

 private:
  void take_from_real() {
    for (const Parameter& parameter : real_.parameters()) {
      cuda::copy<float>(stream_, values_.data() + parameter.elements.begin, parameter.values.data(),
                        parameter.values.size());
    }
    stream_.synchronize();
    std::ranges::fill(mirror_, std::numeric_limits<float>::quiet_NaN());
  }

  InnerLoop& real_;
  std::vector<float> mirror_;  // in canonical order
  cuda::DeviceArray<float> values_;
  cuda::Stream stream_;
  std::vector<Parameter> parameters_;
  std::int64_t read_ = 0;
};

}  // namespace isthmus::testing_support
