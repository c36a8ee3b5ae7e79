// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/sharded_optimizer.h"

#include <fmt/format.h>

#include <vector>

#include "core/state/state_memory.h"
#include "inner/mesh/mesh_rules.h"
#include "inner/model/optimizer.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {
RankValues moment_of(int index) { return index == 0 ? RankValues::kMoment1 : RankValues::kMoment2; }
}  // namespace

void check_zero(int zero, PipelineKind schedule, const InnerConfig& inner) {
  if (zero == 0) return;
  if (inner.optimizer == "muon") {
    throw ConfigError(
        fmt::format("parallel.zero = {}: with inner.optimizer = \"muon\" each update needs whole "
                    "matrices, and ranks have slices cut anywhere; leave zero out or choose adamw",
                    zero));
  }
  if (zero >= 2 && !one_gradient_at_a_time(schedule)) {
    throw ConfigError(fmt::format(
        "parallel.zero = {} with schedule = \"{}\": it has gradients of several micro-batches at "
        "once, and zero >= 2 has room for one's; choose 1f1b, interleaved-1f1b or zero = 1",
        zero, pipeline_name(schedule)));
  }
}

ShardedOptimizer::ShardedOptimizer(const InnerConfig& inner, const ModelLayout& layout,
                                   MeshModel& mesh)
    : inner_(inner), layout_(layout), mesh_(mesh) {}

void ShardedOptimizer::update(double lr, double gradient_scale, std::span<float> values) {
  mesh_.update(lr, gradient_scale, values.data());
  ++updates_;
}

void ShardedOptimizer::reset() {
  mesh_.reset_optimizer(0);
  updates_ = 0;
}

void ShardedOptimizer::save(StateWriter& writer) const {
  save_updates(writer, inner_, updates_);
  // In memory: a writer may borrow values that lie in files, and these values are gone after the
  // call.
  std::vector<float> values(static_cast<std::size_t>(layout_.elements()));
  for (int i = 0; i < moments(); ++i) {
    mesh_.collect(moment_of(i), values.data());
    save_moment(writer, i, values);
  }
}

void ShardedOptimizer::load(StateReader& reader) {
  updates_ = load_updates(reader, inner_);
  mesh_.reset_optimizer(updates_);
  StateArray values(static_cast<std::size_t>(layout_.elements()));
  for (int i = 0; i < moments(); ++i) {
    load_moment(reader, i, values.span());
    mesh_.hand_out(moment_of(i), values.data());
  }
}

// Without Muon a value has as many as any other.
int ShardedOptimizer::moments() const {
  return static_cast<int>(InnerOptimizer::moment_values(inner_, std::int64_t{1}));
}

}  // namespace isthmus
