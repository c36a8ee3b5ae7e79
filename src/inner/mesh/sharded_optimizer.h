// SPDX-License-Identifier: Apache-2.0
// The inner optimizer of a mesh whose ranks keep its moments (ZeRO, or ranks on devices): the
// interface of an InnerOptimizer, carried out by the ranks. Checkpoints have the format of an
// InnerOptimizer's, so a run may resume with another mesh or sharding. One thread.
#pragma once

#include <cstdint>
#include <span>

#include "inner/mesh/mesh_model.h"
#include "inner/mesh/pipeline_schedule.h"
#include "inner/model/model_layout.h"
#include "isthmus/config.h"
#include "isthmus/state.h"

namespace isthmus {

/// THROWS: ConfigError naming key, value and remedy when the ranks of such a mesh cannot shard that
/// much: an optimizer that needs whole matrices, a schedule that needs whole gradients.
void check_zero(int zero, PipelineKind schedule, const InnerConfig& inner);

class ShardedOptimizer {
 public:
  /// Borrows both; `mesh` must have been made with `inner`, and its ranks keep moments.
  ShardedOptimizer(const InnerConfig& inner, const ModelLayout& layout, MeshModel& mesh);

  /// One update of `values` from gradient_scale * the gradients that the ranks keep.
  void update(double lr, double gradient_scale, std::span<float> values);
  void reset();
  /// Needs temporary memory of one moment of all values.
  void save(StateWriter& writer) const;
  void load(StateReader& reader);

 private:
  [[nodiscard]] int moments() const;

  InnerConfig inner_;
  const ModelLayout& layout_;
  MeshModel& mesh_;
  std::int64_t updates_ = 0;
};

}  // namespace isthmus
