// SPDX-License-Identifier: Apache-2.0
// Arrays of outer state that a device computes on: in its memory, or in pinned host memory. Of the
// latter one fragment's arrays at a time are copied to a place on the device and back, on one
// stream, so that all work on a place is in that stream's order. One thread.
#pragma once

#include <cstddef>

#include "kernels/cuda/device.h"

namespace isthmus::outer {

/// Memory of state that a device computes on.
enum class KeptIn { kDevice, kPinned };

/// Device memory for one array of any fragment.
class DevicePlace {
 public:
  DevicePlace() = default;
  explicit DevicePlace(std::size_t largest) : values_(largest) {}

 private:
  friend class KeptArray;
  cuda::DeviceArray<float> values_;
  const void* holds_ = nullptr;  // the array of which this is a copy
};

/// (n,) float32, uninitialised.
class KeptArray {
 public:
  KeptArray(KeptIn where, std::size_t n)
      : device_(where == KeptIn::kDevice ? n : 0), pinned_(where == KeptIn::kPinned ? n : 0) {}
  KeptArray(const KeptArray&) = delete;
  KeptArray& operator=(const KeptArray&) = delete;

  [[nodiscard]] std::size_t size() const { return device_.size() + pinned_.size(); }
  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] bool on_host() const { return !pinned_.empty(); }
  /// Address of the kept values, for copies; valid on the host once the stream has executed them.
  [[nodiscard]] const float* data() const { return on_host() ? pinned_.data() : device_.data(); }

  /// The values on the device, for work on `stream`: the array's device memory, or a copy in
  /// `place`, queued unless `place` has it already. Null when the array is empty.
  [[nodiscard]] float* bring(cuda::Stream& stream, DevicePlace& place) const {
    if (!on_host()) return device_.data();
    if (place.holds_ != this) {
      cuda::copy<float>(stream, place.values_.data(), pinned_.data(), size());
      place.holds_ = this;
    }
    return place.values_.data();
  }
  /// Queues the copy of values written at the address from `bring` back to the array.
  void put_back(cuda::Stream& stream, const DevicePlace& place) {
    if (on_host()) cuda::copy<float>(stream, pinned_.data(), place.values_.data(), size());
  }
  /// Queues the copy of new values from any address; `place`: where `bring` puts the array.
  void take(cuda::Stream& stream, const float* from, DevicePlace& place) {
    cuda::copy<float>(stream, on_host() ? pinned_.data() : device_.data(), from, size());
    if (place.holds_ == this) place.holds_ = nullptr;
  }

 private:
  cuda::DeviceArray<float> device_;
  cuda::PinnedArray<float> pinned_;
};

}  // namespace isthmus::outer
