// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <numeric>
#include <utility>

#include "core/base/all_elements.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "kernels/cuda/adam_step.h"
#include "kernels/cuda/device_errors.h"
#include "kernels/cuda/outer_arithmetic.h"
#include "outer/parts/frozen_momentum.h"
#include "outer/parts/lanes.h"
#include "outer/place/device_encoder.h"

namespace isthmus::outer {
namespace {

std::size_t size_of(const InnerLoop& inner) {
  return static_cast<std::size_t>(all_elements(inner).size());
}

std::size_t tiles_of_gradients(const InnerLoop& inner) {
  std::size_t tiles = 0;
  for (const Parameter& parameter : inner.parameters()) {
    tiles += tiles_of(static_cast<std::size_t>(parameter.elements.size()));
  }
  return tiles;
}

class DeviceMomentum final : public FrozenMomentum {
 public:
  DeviceMomentum(const InnerLoop& inner, const Codec& codec, std::size_t bucket_values,
                 cuda::ResidentAdam& adam)
      : inner_(inner),
        adam_(adam),
        encoder_(codec, std::min(size_of(inner), bucket_values), KeptIn::kDevice, {}),
        residual_(codec.error_feedback() ? size_of(inner) : 0),
        tile_sums_(tiles_of_gradients(inner)),
        host_tile_sums_(tile_sums_.size()) {
    std::vector<cuda::ParameterRun> runs;
    for (const Parameter& parameter : inner.parameters()) {
      runs.push_back({.begin = parameter.elements.begin,
                      .n = parameter.elements.size(),
                      .weight_decay = parameter.decay ? 1.0 : 0.0});  // whether there is any
    }
    put(parts_, cuda::parts_of(runs));
    adam_.keep_gradients_on_device(false);  // a warm-up reads them on the host
  }

  // The arrays are freed first, and queued work may still use them.
  ~DeviceMomentum() override {
    adam_.keep_gradients_on_device(false);  // whatever becomes of the stream: others go on with it
    try {
      stream().synchronize();
    } catch (const cuda::DeviceLost&) {  // the code that has used the device reports it
    } catch (const std::exception& error) {
      log_warning("1bit-adam on a device: {}", error.what());
    }
  }
  DeviceMomentum(const DeviceMomentum&) = delete;
  DeviceMomentum& operator=(const DeviceMomentum&) = delete;

  void begin(const std::vector<Bucket>& buckets) override;
  [[nodiscard]] double gradient_norm(bool idle) override;
  void mix(float keep, float own) override {
    keep_ = keep;
    own_ = own;
  }
  [[nodiscard]] Sent encode(std::size_t bucket, const EncodeKey& key, bool fit) override;
  void take(std::size_t bucket, std::span<const float> mean) override;
  void step(const AdamStep& step) override;

  void forget(std::size_t bucket) override {
    if (residual_.empty()) return;
    const Place& place = places_.at(bucket);
    cuda::fill_zero(stream(), residual_.data() + place.begin, place.values);
  }
  [[nodiscard]] std::span<const float> residual(std::size_t bucket) const override;
  void restore(std::size_t bucket, std::span<const float> residual) override;

 private:
  /// Of a bucket.
  struct Place {
    std::size_t begin = 0, values = 0;  // of the residual
    cuda::LaneParts lanes;
  };
  [[nodiscard]] cuda::Stream& stream() const { return encoder_.stream(); }
  [[nodiscard]] float* residual_of(const Place& place) const {
    return residual_.empty() ? nullptr : residual_.data() + place.begin;
  }
  /// Blocks.
  template <typename T>
  void put(cuda::DeviceArray<T>& array, const std::vector<T>& values) {
    array = cuda::DeviceArray<T>(values.size());
    cuda::copy<T>(stream(), array.data(), values.data(), values.size());
    stream().synchronize();
  }

  const InnerLoop& inner_;
  cuda::ResidentAdam& adam_;
  mutable DeviceEncoder encoder_;  // its stream copies the values that a caller reads
  cuda::DeviceArray<float> residual_;
  cuda::DeviceArray<double> tile_sums_;  // of the gradients of each tensor, one after another
  cuda::PinnedArray<double> host_tile_sums_;
  cuda::DeviceArray<cuda::ParameterRun> parts_;  // of all tensors
  cuda::DeviceArray<cuda::LaneRun> lanes_;       // of all buckets
  std::vector<Place> places_;                    // by bucket
  mutable std::vector<float> host_residual_;
  // Of a step:
  float keep_ = 0, own_ = 0;
  float* first_ = nullptr;
};

void DeviceMomentum::begin(const std::vector<Bucket>& buckets) {
  std::vector<cuda::LaneRun> lanes;
  std::vector<std::size_t> ends;
  places_.clear();
  std::size_t begin = 0;
  for (const Bucket& bucket : buckets) {
    std::vector<cuda::LaneRun> runs;
    std::int64_t at = 0;
    for (const Slice& slice : bucket.slices) {
      const auto size = static_cast<std::int64_t>(slice.size);
      const std::int64_t tensor = inner_.parameters()[slice.parameter].elements.begin;
      runs.push_back(
          {.begin = tensor + static_cast<std::int64_t>(slice.begin), .at = at, .n = size});
      at += size;
    }
    const std::vector<cuda::LaneRun> parts = cuda::parts_of(runs);
    lanes.insert(lanes.end(), parts.begin(), parts.end());
    ends.push_back(lanes.size());
    places_.push_back({.begin = begin, .values = bucket.values, .lanes = {}});
    begin += bucket.values;
  }
  put(lanes_, lanes);
  for (std::size_t k = 0, from = 0; k < places_.size(); from = ends[k++]) {
    places_[k].lanes = {lanes_.data() + from, static_cast<std::int64_t>(ends[k] - from)};
  }
  cuda::fill_zero(stream(), residual_.data(), residual_.size());
  adam_.keep_gradients_on_device(true);
}

// As outer::gradient_norm: the tiles in order make the norm of a tensor, and the squares of these
// norms are summed over all tensors.
double DeviceMomentum::gradient_norm(bool idle) {
  first_ = adam_.device_moment(0);
  float* const gradients = adam_.device_gradients();
  encoder_.begin_after(adam_.stream());
  if (idle) cuda::fill_zero(stream(), gradients, size_of(inner_));
  std::size_t tile = 0;
  for (const Parameter& parameter : inner_.parameters()) {
    const auto size = static_cast<std::size_t>(parameter.elements.size());
    cuda::tile_squares(stream(), size, gradients + parameter.elements.begin,
                       tile_sums_.data() + tile);
    tile += tiles_of(size);
  }
  cuda::copy<double>(stream(), host_tile_sums_.data(), tile_sums_.data(), tile);
  stream().synchronize();
  double squares = 0;
  const double* sums = host_tile_sums_.data();
  for (const Parameter& parameter : inner_.parameters()) {
    const double* const end = sums + tiles_of(static_cast<std::size_t>(parameter.elements.size()));
    const double norm = std::sqrt(std::accumulate(sums, end, 0.0));
    squares += norm * norm;
    sums = end;
  }
  return std::sqrt(squares);
}

WorkerEnd::Sent DeviceMomentum::encode(std::size_t bucket, const EncodeKey& key, bool fit) {
  const Place& place = places_.at(bucket);
  encoder_.begin_vector(place.values);
  if (fit) {
    cuda::gather_momentum(stream(), place.lanes, keep_, first_, own_, adam_.device_gradients(),
                          encoder_.vector());
  } else {
    cuda::fill_zero(stream(), encoder_.vector(), place.values);
  }
  encoder_.begin_encoding(key, fit ? residual_of(place) : nullptr);
  DeviceEncoder::Contribution contribution = encoder_.finish_encoding();
  return {.encoded = std::move(contribution.encoded), .sample = std::move(contribution.sample)};
}

// The loop is told at once, since a round that fails after this one ends the step.
void DeviceMomentum::take(std::size_t bucket, std::span<const float> mean) {
  encoder_.forget_mean();  // another one may come at the same address
  cuda::scatter_momentum(stream(), places_.at(bucket).lanes, encoder_.bring_mean(mean), first_);
  encoder_.go_before(adam_.stream());
  adam_.wrote_device_moments();
}

void DeviceMomentum::step(const AdamStep& step) {
  cuda::adam_step(stream(), step, {parts_.data(), static_cast<std::int64_t>(parts_.size())},
                  adam_.device_values(), first_, adam_.device_moment(1));
  encoder_.go_before(adam_.stream());
  adam_.wrote_device_values(all_elements(inner_));
}

std::span<const float> DeviceMomentum::residual(std::size_t bucket) const {
  if (residual_.empty()) return {};
  const Place& place = places_.at(bucket);
  host_residual_.resize(place.values);
  cuda::copy<float>(stream(), host_residual_.data(), residual_of(place), place.values);
  stream().synchronize();
  return host_residual_;
}

void DeviceMomentum::restore(std::size_t bucket, std::span<const float> residual) {
  const Place& place = places_.at(bucket);
  ISTHMUS_CHECK(residual.size() == place.values, residual.size(), place.values);
  cuda::copy<float>(stream(), residual_of(place), residual.data(), place.values);
  stream().synchronize();
}

}  // namespace

std::unique_ptr<FrozenMomentum> frozen_momentum_on_device(const InnerLoop& inner,
                                                          const Codec& codec,
                                                          std::size_t bucket_values,
                                                          cuda::ResidentAdam& adam) {
  return std::make_unique<DeviceMomentum>(inner, codec, bucket_values, adam);
}

}  // namespace isthmus::outer
