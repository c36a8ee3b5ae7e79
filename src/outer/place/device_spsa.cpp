// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <exception>
#include <stdexcept>
#include <vector>

#include "core/base/all_elements.h"
#include "core/base/log.h"
#include "kernels/cuda/device_errors.h"
#include "kernels/cuda/spsa.h"
#include "outer/parts/spsa_replay.h"
#include "outer/parts/spsa_weights.h"

namespace isthmus::outer {
namespace {

class DeviceWeights final : public SpsaWeights {
 public:
  DeviceWeights(const InnerLoop& inner, std::uint64_t run_key, cuda::ResidentValues& values)
      : source_(run_key, values), run_key_(run_key), values_(values), all_(all_elements(inner)) {
    for (const Parameter& parameter : inner.parameters()) {
      if (!runs_.empty() && runs_.back().decays == parameter.decay &&
          runs_.back().elements.end == parameter.elements.begin) {
        runs_.back().elements.end = parameter.elements.end;
      } else {
        runs_.push_back({parameter.elements, parameter.decay});
      }
    }
  }

  // Queued work reads the steps.
  ~DeviceWeights() override {
    try {
      values_.stream().synchronize();
    } catch (const cuda::DeviceLost&) {  // the code that has used the device reports it
    } catch (const std::exception& error) {
      log_warning("method spsa on a device: {}", error.what());
    }
  }
  DeviceWeights(const DeviceWeights&) = delete;
  DeviceWeights& operator=(const DeviceWeights&) = delete;

  [[nodiscard]] const ParameterSource& perturbed(const kernels::SpsaDirection& z,
                                                 float eps) override {
    source_.set(z, eps);
    return source_;
  }

  void apply(const SpsaLogHeader& header, const SpsaRecord& record) override {
    cuda::Stream& stream = values_.stream();
    const SpsaUpdate update = spsa_update(header, record);
    for (const bool decays : {false, true}) {
      const kernels::SpsaStep step = update.on(decays);
      steps_[decays ? 1 : 0].put(stream, {&step, 1});
    }
    for (const Run& run : runs_) {
      cuda::spsa_apply(stream, run_key_, steps_[run.decays ? 1 : 0], run.elements.begin,
                       static_cast<std::size_t>(run.elements.size()),
                       values_.device_values() + run.elements.begin);
    }
    values_.wrote_device_values(all_);
  }
  [[nodiscard]] std::size_t scratch_bytes() const override { return 0; }

 private:
  class Source final : public ParameterSource, public cuda::DeviceSource {
   public:
    Source(std::uint64_t run_key, cuda::ResidentValues& values)
        : run_key_(run_key), values_(values) {}
    void set(const kernels::SpsaDirection& z, float eps) {
      z_ = z;
      eps_ = eps;
    }
    [[nodiscard]] std::span<const float> values(std::size_t) const override {
      throw std::logic_error("perturbed weights on a device are asked for on the host");
    }
    void fill(cuda::Stream& stream, CanonicalRange elements, float* out) const override {
      cuda::spsa_perturb(stream, run_key_, z_, eps_, elements.begin,
                         static_cast<std::size_t>(elements.size()),
                         values_.device_values() + elements.begin, out);
    }

   private:
    std::uint64_t run_key_;
    cuda::ResidentValues& values_;
    kernels::SpsaDirection z_;
    float eps_ = 0;
  };
  /// Neighbours that decay alike.
  struct Run {
    CanonicalRange elements;
    bool decays = false;
  };

  Source source_;
  std::uint64_t run_key_;
  cuda::ResidentValues& values_;
  CanonicalRange all_;
  std::vector<Run> runs_;
  std::array<cuda::SpsaSteps, 2> steps_;  // of weights without decay, of weights with decay
};

}  // namespace

std::unique_ptr<SpsaWeights> spsa_weights_on_device(const InnerLoop& inner, std::uint64_t run_key,
                                                    cuda::ResidentValues& values) {
  return std::make_unique<DeviceWeights>(inner, run_key, values);
}

}  // namespace isthmus::outer
