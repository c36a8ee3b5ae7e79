// SPDX-License-Identifier: Apache-2.0
// What outer methods that take Adam's update over ask of a loop on a device.
#include "core/check.h"
#include "inner/cuda_loop.h"
#include "inner/training_step.h"

namespace isthmus {

AdamSettings CudaLoop::adam_settings() const { return adam_settings_of(options_.inner); }

CudaMoments& CudaLoop::moments() {
  ISTHMUS_CHECK(optimizer_.has_value());
  if (!moments_) moments_.emplace(options_.inner, layout_, *optimizer_);
  return *moments_;
}

AdamMoments CudaLoop::adam_moments(std::size_t parameter) {
  return moments().of(parameters_[parameter].elements);
}

// Mirrors that are made after it would have to be read then.
void CudaLoop::read_moments(CanonicalRange range) {
  settle_beside();
  if (optimizer_ && options_.inner.optimizer == "adamw") moments().read(stream_, range);
}

void CudaLoop::wrote_moments(CanonicalRange range) {
  settle_beside();
  if (moments_) moments_->wrote(stream_, range);
}

float* CudaLoop::device_moment(int index) {
  ISTHMUS_CHECK(optimizer_.has_value());
  if (moments_) moments_->settle(stream_);
  return optimizer_->moment(index);
}

void CudaLoop::wrote_device_moments() {
  if (moments_) moments_->forget();
}

void CudaLoop::settle_moments() const {
  if (!moments_) return;
  moments_->settle(stream_);
  stream_.synchronize();
}

}  // namespace isthmus
