// SPDX-License-Identifier: Apache-2.0
// A toy inner loop whose values are on a device: the host sees NaN but for what it has asked for
// since they changed, and what it writes counts once it has said so.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "core/base/all_elements.h"
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
    stream_.synchronize();
  }

  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  void read_values(CanonicalRange elements) override {
    if (beside_ != nullptr) beside_->values_are_asked_for();
    read_ += elements.size();
    cuda::copy<float>(stream_, mirror_.data() + elements.begin, values_.data() + elements.begin,
                      static_cast<std::size_t>(elements.size()));
    stream_.synchronize();
  }
  void wrote_values(CanonicalRange elements) override {
    if (beside_ != nullptr) beside_->values_are_asked_for();
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

  /// False from now on: steps are not told to anybody.
  void set_tells(bool tells) { tells_ = tells; }
  [[nodiscard]] bool go_beside(cuda::OverlapHooks* beside) override {
    beside_ = tells_ ? beside : nullptr;
    return tells_;
  }

  InnerStep train_step(StepIndex t) override {
    queue_pass();
    point_.record(stream_);
    const bool again = beside_ != nullptr && beside_->passes_are_queued();
    if (again) {
      ++passes_again_;
      queue_pass();
    } else {
      waited_for_ += point_.reached() ? 1 : 0;
    }
    stream_.synchronize();
    const InnerStep step = real_.train_step(t);
    take_from_real();
    point_.record(stream_);
    if (beside_ != nullptr) beside_->step_is_queued(t);
    waited_for_ += point_.reached() ? 1 : 0;
    if (on_wait) on_wait(t);
    stream_.synchronize();
    end_.record(stream_);
    return step;
  }
  /// With values that are made up on the device.
  [[nodiscard]] InnerStep train_loss(StepIndex t, SampleShare share,
                                     const ParameterSource& source) override {
    const auto& there = dynamic_cast<const cuda::DeviceSource&>(source);
    const cuda::DeviceArray<float> out(mirror_.size());
    there.fill(stream_, isthmus::all_elements(real_), out.data());
    std::vector<float> host(out.size());
    cuda::copy<float>(stream_, host.data(), out.data(), host.size());
    stream_.synchronize();
    return real_.train_loss(t, share, HostValues(parameters_, host));
  }
  [[nodiscard]] double learning_rate(StepIndex t) const override { return real_.learning_rate(t); }
  void reset_optimizer() override { real_.reset_optimizer(); }
  void save(StateWriter& writer) const override {
    if (beside_ != nullptr) beside_->values_are_asked_for();
    real_.save(writer);
  }
  void load(StateReader& reader) override { real_.load(reader); }

  /// Elements that the host has asked for so far.
  [[nodiscard]] std::int64_t elements_read() const { return read_; }
  [[nodiscard]] int passes_again() const { return passes_again_; }
  /// How often a pass or an update had been done when it was queued and its companion returned. On
  /// the emulated device: was waited for.
  [[nodiscard]] int waited_for() const { return waited_for_; }
  /// ... and whether somebody has waited for the stream since the last step.
  [[nodiscard]] bool waited_since_step() const { return end_.reached(); }
  /// Called when a step is queued and is to be waited for. May be empty.
  std::function<void(StepIndex t)> on_wait;

 private:
  class HostValues final : public ParameterSource {
   public:
    HostValues(std::span<const Parameter> parameters, std::span<const float> values)
        : parameters_(parameters), values_(values) {}
    [[nodiscard]] std::span<const float> values(std::size_t parameter) const override {
      const CanonicalRange elements = parameters_[parameter].elements;
      return values_.subspan(static_cast<std::size_t>(elements.begin),
                             static_cast<std::size_t>(elements.size()));
    }

   private:
    std::span<const Parameter> parameters_;
    std::span<const float> values_;
  };

  /// What a step reads of its weights.
  void queue_pass() {
    for (const Parameter& parameter : real_.parameters()) {
      cuda::copy<float>(stream_, parameter.values.data(), values_.data() + parameter.elements.begin,
                        parameter.values.size());
    }
  }
  /// The update: queued, and done when somebody waits.
  void take_from_real() {
    for (const Parameter& parameter : real_.parameters()) {
      cuda::copy<float>(stream_, values_.data() + parameter.elements.begin, parameter.values.data(),
                        parameter.values.size());
    }
    std::ranges::fill(mirror_, std::numeric_limits<float>::quiet_NaN());
  }

  InnerLoop& real_;
  std::vector<float> mirror_;  // in canonical order
  cuda::DeviceArray<float> values_;
  cuda::Stream stream_;
  std::vector<Parameter> parameters_;
  std::int64_t read_ = 0;
  bool tells_ = true;
  int passes_again_ = 0, waited_for_ = 0;
  cuda::Event point_, end_;
  cuda::OverlapHooks* beside_ = nullptr;
};

}  // namespace isthmus::testing_support
