// SPDX-License-Identifier: Apache-2.0
#include "app/inference/windowed_loss.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

constexpr std::int64_t kRows = 2048;      // of a batch of short windows
constexpr std::int32_t kNotCounted = -1;  // as a target

}  // namespace

WindowedLoss::WindowedLoss(kernels::ThreadTeam& team, const ModelLayout& layout,
                           Weights<float>& weights, WindowSizes sizes)
    : team_(team),
      weights_(weights),
      sizes_(sizes),
      rows_(std::max(kRows, sizes.context)),
      model_(layout, rows_, LanguageModel<float>::Purpose::kInference) {
  ISTHMUS_CHECK(sizes.context >= 1 && sizes.context <= layout.shape().longest, sizes.context);
  ISTHMUS_CHECK(sizes.stride >= 1 && sizes.stride <= sizes.context, sizes.stride, sizes.context);
}

/// A window of `length` inputs from at_ on, with the predictions that are counted.
void WindowedLoss::cut(std::int64_t length) {
  if ((std::ssize(windows_) + 1) * std::max(longest_, length) > rows_) flush();
  windows_.push_back({inputs_.size(), length});
  longest_ = std::max(longest_, length);
  for (std::int64_t i = 0; i < length; ++i) {
    const std::size_t place = at_ + static_cast<std::size_t>(i);
    inputs_.push_back(stream_[place]);
    targets_.push_back(i < counted_ ? kNotCounted : stream_[place + 1]);
  }
}

void WindowedLoss::add(std::span<const std::int32_t> ids) {
  stream_.insert(stream_.end(), ids.begin(), ids.end());
  const auto whole = static_cast<std::size_t>(sizes_.context) + 1;
  while (stream_.size() - at_ >= whole) {
    cut(sizes_.context);
    at_ += static_cast<std::size_t>(sizes_.stride);
    counted_ = sizes_.context - sizes_.stride;
  }
  if (at_ >= stream_.size() / 2) {
    stream_.erase(stream_.begin(), stream_.begin() + static_cast<std::ptrdiff_t>(at_));
    at_ = 0;
  }
}

void WindowedLoss::end_stream() {
  const std::int64_t inputs = std::ssize(stream_) - static_cast<std::int64_t>(at_) - 1;
  if (inputs > counted_) cut(inputs);
  stream_.clear();
  at_ = 0;
  counted_ = 0;
}

/// Computes the waiting windows as a batch. Shorter windows are filled up at their ends, which no
/// counted prediction sees.
void WindowedLoss::flush() {
  if (windows_.empty()) return;
  const auto count = std::ssize(windows_);
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(count * longest_), 0);
  std::vector<std::int32_t> targets(inputs.size(), kNotCounted);
  for (std::ptrdiff_t w = 0; w < count; ++w) {
    const Window& window = windows_[static_cast<std::size_t>(w)];
    const auto begin = static_cast<std::ptrdiff_t>(window.begin);
    std::copy_n(inputs_.begin() + begin, window.length, inputs.begin() + w * longest_);
    std::copy_n(targets_.begin() + begin, window.length, targets.begin() + w * longest_);
  }
  sum_ +=
      model_.loss(team_, weights_,
                  {.inputs = inputs, .targets = targets, .sequences = count, .length = longest_});
  windows_.clear();
  inputs_.clear();
  targets_.clear();
  longest_ = 0;
}

LossSum WindowedLoss::take() {
  flush();
  if (!std::isfinite(sum_.loss)) {
    throw RunError("the model's loss is not finite: its weights have diverged");
  }
  return std::exchange(sum_, {});
}

}  // namespace isthmus::app
