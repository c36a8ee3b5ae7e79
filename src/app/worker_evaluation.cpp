// SPDX-License-Identifier: Apache-2.0
#include "app/worker_evaluation.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "app/run_parts.h"

namespace isthmus::app {
namespace {

/// Evaluation windows taken together. A constant, so that the sums do not depend on the workers.
constexpr std::int64_t kEvalBatch = 8;

std::vector<std::int64_t> every(std::int64_t batches, std::int64_t first, std::int64_t stride) {
  std::vector<std::int64_t> share;
  for (std::int64_t k = first; k < batches; k += stride) share.push_back(k);
  return share;
}

/// By place among the workers present.
std::vector<std::int64_t> share_of_batches(const std::vector<bool>& present, Rank rank,
                                           std::int64_t batches) {
  const auto self = present.begin() + rank.value();
  return *self ? every(batches, std::count(present.begin(), self, true),
                       std::count(present.begin(), present.end(), true))
               : std::vector<std::int64_t>();
}

std::vector<EvalPart> evaluate(ValidationSource& windows, InnerLoop& inner,
                               const ParameterSource& source,
                               const std::vector<std::int64_t>& batches) {
  std::vector<EvalPart> parts;
  for (const std::int64_t k : batches) {
    const std::int64_t begin = k * kEvalBatch;
    const TokenBatch batch = windows.at(begin, std::min(kEvalBatch, windows.windows() - begin));
    const auto tokens = static_cast<std::int64_t>(batch.targets.size());
    const double mean = inner.loss(batch, source);
    parts.push_back({.batch = k, .loss_sum = mean * static_cast<double>(tokens), .tokens = tokens});
  }
  return parts;
}

}  // namespace

void evaluate_share(const WorkerSetup& setup, WorkerContext& context, InnerLoop& inner,
                    const OuterStrategy& strategy, StepIndex t) {
  if (setup.eval_tokens < 0) {
    return;
  }
  ValidationSource windows(setup.data, setup.config.train.context, setup.eval_tokens,
                           setup.config.model.vocab, parse_validation_part(setup.config.eval.part));
  EvalShare share{
      .parts = {}, .batches = (windows.windows() + kEvalBatch - 1) / kEvalBatch, .now = {}};
  if (strategy.shared_anchors()) {
    share.parts = evaluate(windows, inner, strategy,
                           share_of_batches(setup.board.present(t), context.rank, share.batches));
  } else if (const auto mean =
                 setup.anchor_mean.lay_down(context.rank, t, strategy, inner.parameters().size())) {
    share.parts = evaluate(windows, inner, *mean, every(share.batches, 0, 1));
  }
  share.now = context.runtime.clock().now();
  setup.board.post_eval(context.rank, t, share);
  if (t.value() < setup.plan.total_steps) {
    return;
  }
  if (const std::vector<std::int64_t> missing = setup.board.await_eval(t); !missing.empty()) {
    setup.board.complete_eval(t, evaluate(windows, inner, strategy, missing));
  }
}

}  // namespace isthmus::app
