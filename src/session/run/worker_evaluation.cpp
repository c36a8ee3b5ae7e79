// SPDX-License-Identifier: Apache-2.0
#include "session/run/worker_evaluation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "isthmus/errors.h"

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

/// THROWS: ConfigError unless each part asked for has one entry that can be added to the others.
std::vector<EvalPart> evaluated(Trainer& trainer, InnerLoop& inner, const ParameterSource& source,
                                const std::vector<std::int64_t>& asked) {
  std::vector<EvalPart> parts = trainer.evaluate(inner, source, asked);
  std::vector<std::int64_t> given;
  for (const EvalPart& part : parts) {
    given.push_back(part.batch);
    if (part.tokens >= 0) continue;
    throw ConfigError(
        fmt::format("Trainer::evaluate: part {}: tokens = {}: must be 0 or more (the targets in "
                    "its sum of losses)",
                    part.batch, part.tokens));
  }
  if (std::ranges::is_permutation(given, asked)) return parts;
  throw ConfigError(fmt::format(
      "Trainer::evaluate: asked for the parts [{}], it gave [{}]: give one entry for each of them",
      fmt::join(asked, ", "), fmt::join(given, ", ")));
}

}  // namespace

void evaluate_share(const WorkerSetup& setup, WorkerContext& context, Trainer& trainer,
                    InnerLoop& inner, const OuterStrategy& strategy, StepIndex t) {
  const std::optional<std::int64_t> parts = trainer.evaluation_parts();
  if (!parts) {
    return;
  }
  EvalShare share{.parts = {}, .batches = *parts, .now = {}};
  // A site in a process of its own evaluates its share on its own anchors, where it has such.
  if (strategy.shared_anchors() || setup.site != nullptr) {
    share.parts = evaluated(trainer, inner, strategy,
                            share_of_batches(setup.board.present(t), context.rank, share.batches));
  } else if (const auto mean =
                 setup.anchor_mean.lay_down(context.rank, t, strategy, inner.parameters().size())) {
    share.parts = evaluated(trainer, inner, *mean, every(share.batches, 0, 1));
  }
  share.now = context.runtime.clock().now();
  setup.board.post_eval(context.rank, t, share);
  if (t.value() < setup.plan.total_steps) {
    return;
  }
  if (const std::vector<std::int64_t> missing = setup.board.await_eval(t); !missing.empty()) {
    setup.board.complete_eval(t, evaluated(trainer, inner, strategy, missing));
  }
}

}  // namespace isthmus::app
