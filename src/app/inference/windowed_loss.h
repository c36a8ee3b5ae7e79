// SPDX-License-Identifier: Apache-2.0
// The loss of streams of ids under a model, window by window. A window of `context` inputs x[i, i +
// context) predicts x[i + 1, i + context + 1). Windows begin `stride` apart; a window after the
// stream's first counts only predictions that no earlier window has made. So every id of a stream
// but the first is counted exactly once, after at least context - stride + 1 ids (or all that there
// are); the first id has no context and is not counted. The memory does not grow with a stream. One
// thread drives it; kernels use a team.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inner/model/model.h"
#include "kernels/thread_team.h"

namespace isthmus::app {

struct WindowSizes {
  std::int64_t context = 0;
  std::int64_t stride = 0;  // 1 to context
};

class WindowedLoss {
 public:
  /// layout, weights and team are borrowed. REQUIRES: layout.shape().longest >= sizes.context.
  WindowedLoss(kernels::ThreadTeam& team, const ModelLayout& layout, Weights<float>& weights,
               WindowSizes sizes);

  /// Adds ids to the stream. REQUIRES: ids are in [0, vocab).
  void add(std::span<const std::int32_t> ids);
  /// The stream ends; the next id begins another one.
  void end_stream();
  /// The sum over all ids since the last call; also computes waiting windows. THROWS: RunError when
  /// a loss is not finite.
  [[nodiscard]] LossSum take();

 private:
  struct Window {
    std::size_t begin;  // in inputs_ and targets_
    std::int64_t length;
  };
  void cut(std::int64_t length);
  void flush();

  kernels::ThreadTeam& team_;
  Weights<float>& weights_;
  const WindowSizes sizes_;
  const std::int64_t rows_;  // of a batch
  LanguageModel<float> model_;
  std::vector<std::int32_t> stream_;  // ids that a later window reads
  std::size_t at_ = 0;                // in stream_: the next window's begin
  std::int64_t counted_ = 0;          // predictions of stream_[at_, ...) counted by earlier windows
  std::vector<Window> windows_;       // waiting to be computed together
  std::int64_t longest_ = 0;          // of the waiting windows
  std::vector<std::int32_t> inputs_, targets_;
  LossSum sum_;
};

}  // namespace isthmus::app
