// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/frozen_momentum.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/all_elements.h"
#include "kernels/adam_step_math.h"
#include "outer/parts/flat_view.h"
#include "outer/parts/frozen_variance.h"

namespace isthmus::outer {
namespace {

class HostMomentum final : public FrozenMomentum {
 public:
  HostMomentum(InnerLoop& inner, std::shared_ptr<const Codec> codec)
      : inner_(inner), codec_(std::move(codec)), scratch_(kTileValues) {}

  void begin(const std::vector<Bucket>& buckets) override {
    buckets_ = buckets;
    end_.emplace(sizes_of(buckets_), codec_);
    end_->set_fill([this](std::size_t bucket, std::size_t begin, std::span<float> tile) {
      const std::span<float> g = std::span(scratch_).first(tile.size());
      momentum_[bucket].read(begin, tile);
      gradient_[bucket].read(begin, g);
      for (std::size_t i = 0; i < tile.size(); ++i) {
        tile[i] = kernels::own_momentum(keep_, tile[i], own_, g[i]);
      }
    });
  }

  [[nodiscard]] double gradient_norm(bool) override { return outer::gradient_norm(inner_); }

  void mix(float keep, float own) override {
    keep_ = keep;
    own_ = own;
    inner_.read_moments(all_elements(inner_));
    momentum_.assign(buckets_.size(), {});
    gradient_.assign(buckets_.size(), {});
    for (std::size_t k = 0; k < buckets_.size(); ++k) {
      for (const Slice& slice : buckets_[k].slices) {
        momentum_[k].append(
            inner_.adam_moments(slice.parameter).first.subspan(slice.begin, slice.size));
        gradient_[k].append(inner_.gradient(slice.parameter).subspan(slice.begin, slice.size));
      }
    }
  }

  [[nodiscard]] Sent encode(std::size_t bucket, const EncodeKey& key, bool fit) override {
    return end_->encode(bucket, key, fit);
  }
  void forget(std::size_t bucket) override { end_->forget(bucket); }
  [[nodiscard]] std::span<const float> residual(std::size_t bucket) const override {
    return end_->residual(bucket);
  }
  void restore(std::size_t bucket, std::span<const float> residual) override {
    end_->restore(bucket, residual);
  }

  // The loop is told at once, since a round that fails after this one ends the step; of all, which
  // `mix` has read, since it may copy a part at once.
  void take(std::size_t bucket, std::span<const float> mean) override {
    momentum_[bucket].for_each([&](std::size_t begin, std::span<float> m) {
      std::ranges::copy(mean.subspan(begin, m.size()), m.begin());
    });
    inner_.wrote_moments(all_elements(inner_));
  }

  void step(const AdamStep& step) override {
    inner_.read_values(all_elements(inner_));
    for (std::size_t i = 0; i < inner_.parameters().size(); ++i) {
      const Parameter& parameter = inner_.parameters()[i];
      const AdamMoments moments = inner_.adam_moments(i);
      AdamStep own = step;
      if (!parameter.decay) own.weight_decay = 0;
      adam_step(own, parameter.values, moments.first, moments.second);
    }
    inner_.wrote_values(all_elements(inner_));
  }

 private:
  InnerLoop& inner_;
  std::shared_ptr<const Codec> codec_;  // co-owned by the rounds in flight
  std::vector<Bucket> buckets_;
  std::optional<HostWorkerEnd> end_;
  // Of a step:
  float keep_ = 0, own_ = 0;
  std::vector<FlatView> momentum_, gradient_;  // by bucket
  std::vector<float> scratch_;
};

}  // namespace

std::unique_ptr<FrozenMomentum> frozen_momentum_on_host(InnerLoop& inner,
                                                        std::shared_ptr<const Codec> codec) {
  return std::make_unique<HostMomentum>(inner, std::move(codec));
}

}  // namespace isthmus::outer
