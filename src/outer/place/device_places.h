// SPDX-License-Identifier: Apache-2.0
// Arrays of outer state that a device computes on, wherever they are kept: in its own memory, or in
// pinned memory of the host, from where one fragment's at a time comes to a place on the device and
// goes back by copies on one stream. So all work on a place is in that stream's order. One thread.
#pragma once

#include <cstddef>

#include "kernels/cuda/device.h"

namespace isthmus::outer {

/// Where the state is kept that a device computes on.
enum class KeptIn { kDevice, kPinned };

/// Room on the device for one array of any fragment.
class DevicePlace {
 public:
  DevicePlace() = default;
  explicit DevicePlace(std::size_t largest) : values_(largest) {}

 private:
  friend class KeptArray;
  cuda::DeviceArray<float> values_;
  const void* holds_ = nullptr;  // the array of which this is a copy
};

/// (n,) float32, unfilled.
class KeptArray {
 public:
  KeptArray(KeptIn where, std::size_t n)
      : device_(where == KeptIn::kDevice ? n : 0), pinned_(where == KeptIn::kPinned ? n : 0) {}
  KeptArray(const KeptArray&) = delete;
  KeptArray& operator=(const KeptArray&) = delete;

  [[nodiscard]] std::size_t size() const { return device_.size() + pinned_.size(); }
  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] bool on_host() const { return !pinned_.empty(); }
  /// Where it is kept; for copies. Right for the host once the stream has got so far.
  [[nodiscard]] const float* data() const { return on_host() ? pinned_.data() : device_.data(); }

  /// Its values on the device, for work on `stream`: its own memory, or their copy in `place`,
  /// which is queued unless it is there. Null when it is empty.
  [[nodiscard]] float* bring(cuda::Stream& stream, DevicePlace& place) const {
    if (!on_host()) return device_.data();
    if (place.holds_ != this) {
      cuda::copy<float>(stream, place.values_.data(), pinned_.data(), size());
      place.holds_ = this;
    }
    return place.values_.data();
  }
  /// Queues that what work has written where `bring` said is kept.
  void put_back(cuda::Stream& stream, const DevicePlace& place) {
    if (on_host()) cuda::copy<float>(stream, pinned_.data(), place.values_.data(), size());
  }
  /// Queues new values from anywhere; `place` is where it is brought.
  void take(cuda::Stream& stream, const float* from, DevicePlace& place) {
    cuda::copy<float>(stream, on_host() ? pinned_.data() : device_.data(), from, size());
    if (place.holds_ == this) place.holds_ = nullptr;
  }

 private:
  cuda::DeviceArray<float> device_;
  cuda::PinnedArray<float> pinned_;
};

}  // namespace isthmus::outer
