// SPDX-License-Identifier: Apache-2.0
#include "session/run/worker_evaluation.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace isthmus::app {
namespace {

std::vector<std::int64_t> every(std::int64_t batches, std::int64_t first, std::int64_t stride) {
  std::vector<std::int64_t> share;
  for (std::int64_t k = first; k < batches; k += stride) share.push_back(k);
  return share;
}

/// By place among the workers present.
std::vector<std::int64_t> share_of_batches(const std::vector<bool>& present, WorkerId rank,
                                           std::int64_t batches) {
  const auto self = present.begin() + rank.value();
  return *self ? every(batches, std::count(present.begin(), self, true),
                       std::count(present.begin(), present.end(), true))
               : std::vector<std::int64_t>();
}

}  // namespace

void evaluate_share(const WorkerSetup& setup, WorkerContext& context, Trainer& trainer,
                    InnerLoop& inner, const OuterStrategy& strategy, StepIndex t) {
  const std::optional<std::int64_t> parts = trainer.evaluation_parts();
  if (!parts) {
    return;
  }
  EvalShare share{.parts = {}, .batches = *parts, .now = {}};
  if (strategy.shared_anchors()) {
    share.parts = trainer.evaluate(
        inner, strategy, share_of_batches(setup.board.present(t), context.rank, share.batches));
  } else if (const auto mean =
                 setup.anchor_mean.lay_down(context.rank, t, strategy, inner.parameters().size())) {
    share.parts = trainer.evaluate(inner, *mean, every(share.batches, 0, 1));
  }
  share.now = context.runtime.clock().now();
  setup.board.post_eval(context.rank, t, share);
  if (t.value() < setup.plan.total_steps) {
    return;
  }
  if (const std::vector<std::int64_t> missing = setup.board.await_eval(t); !missing.empty()) {
    setup.board.complete_eval(t, trainer.evaluate(inner, strategy, missing));
  }
}

}  // namespace isthmus::app
