// SPDX-License-Identifier: Apache-2.0
// Which meshes do not fit a model and a batch, and what would.
#include <fmt/format.h>

#include <algorithm>

#include "inner/mesh/mesh.h"
#include "inner/mesh/mesh_rules.h"
#include "isthmus/errors.h"
#include "plan/mesh_cost.h"

namespace isthmus::plan {
namespace {

class Problems {
 public:
  Problems(const MeshWorkload& workload, const MeshChoice& choice) : w_(workload), c_(choice) {}

  [[nodiscard]] std::vector<std::string> all() {
    for (const auto& [key, value] :
         {std::pair{"tp", c_.tp}, std::pair{"pp", c_.pp}, std::pair{"dp", c_.dp},
          std::pair{"virtual_stages", c_.virtual_stages}}) {
      if (value < 1) add("parallel.{} = {}: must be at least 1", key, value);
    }
    if (!found_.empty()) return found_;
    tensor();
    batch();
    pipeline();
    return found_;
  }

 private:
  template <typename... Values>
  void add(fmt::format_string<Values...> text, Values&&... values) {
    found_.push_back(fmt::format(text, std::forward<Values>(values)...));
  }

  void tensor() {
    const auto problem = tensor_parallel_problem(
        w_.shape, {.tp = c_.tp, .sequence_parallel = c_.sequence_parallel}, w_.context);
    if (problem) found_.push_back(*problem);
  }

  void batch() {
    if (w_.sequences % c_.dp != 0) {
      add("parallel.dp = {}: must divide the {} samples of a step; the nearest that works is {}",
          c_.dp, w_.sequences, nearest_divisor(w_.sequences, c_.dp));
      return;
    }
    const std::int64_t own = w_.sequences / c_.dp;
    if (c_.micro_batches < 1 || own % c_.micro_batches != 0) {
      add("parallel.micro_batches = {}: must divide the {} samples of one rank; the nearest that "
          "works is {}",
          c_.micro_batches, own, nearest_divisor(own, std::max<std::int64_t>(c_.micro_batches, 1)));
    }
    if (c_.zero < 0 || c_.zero > 3) add("parallel.zero = {}: must be 0, 1, 2 or 3", c_.zero);
    const int most = most_zero(w_, c_);
    if (c_.zero <= 3 && c_.zero > most) {
      add("parallel.zero = {} with {}: the most that works is {}", c_.zero, what_bounds_zero(),
          most);
    }
  }

  [[nodiscard]] std::string what_bounds_zero() const {
    if (w_.inner.optimizer == "muon") return "inner.optimizer = \"muon\"";
    if (w_.outer.adam_moments) return fmt::format("outer.method = \"{}\"", w_.outer.method);
    return fmt::format("schedule = \"{}\"", pipeline_name(c_.schedule));
  }

  void pipeline() {
    const std::int64_t stages = std::int64_t{c_.pp} * c_.virtual_stages;
    if (stages > w_.shape.layers) {
      if (c_.virtual_stages > 1) {
        add("parallel.pp = {} with {} virtual stages each: the model has {} layers for {} stages; "
            "the most virtual stages that work are {}",
            c_.pp, c_.virtual_stages, w_.shape.layers, stages,
            std::max<std::int64_t>(1, w_.shape.layers / c_.pp));
      } else {
        add("parallel.pp = {}: the model has {} layers; the nearest that works is {}", c_.pp,
            w_.shape.layers, w_.shape.layers);
      }
    }
    if (c_.micro_batches < 1) return;
    try {
      check_recompute(c_.schedule, c_.recompute);
      // A few rounds tell as well as all of them whether the shape is one.
      const std::int64_t rounds = c_.micro_batches / c_.pp;
      const std::int64_t few = c_.micro_batches - std::max<std::int64_t>(rounds - 1, 0) * c_.pp;
      static_cast<void>(
          make_pipeline_schedule(c_.schedule, c_.pp, static_cast<int>(few), c_.virtual_stages));
    } catch (const ConfigError& error) {
      const bool divides = c_.micro_batches % c_.pp == 0;
      if (divides || c_.schedule != PipelineKind::kInterleaved || c_.virtual_stages < 2) {
        add("{}", error.what());
        return;
      }
      add("parallel.micro_batches = {}: {} needs a multiple of parallel.pp = {}; the nearest that "
          "works is {}, or 1f1b",
          c_.micro_batches, pipeline_name(c_.schedule), c_.pp,
          std::max<std::int64_t>((c_.micro_batches + c_.pp / 2) / c_.pp, 1) * c_.pp);
    }
  }

  const MeshWorkload& w_;
  const MeshChoice& c_;
  std::vector<std::string> found_;
};

}  // namespace

int most_zero(const MeshWorkload& workload, const MeshChoice& choice) {
  constexpr int kAll = 3;
  if (choice.dp == 1) return kAll;
  if (workload.inner.optimizer == "muon" || workload.outer.adam_moments) return 0;
  return choice.pp == 1 || one_gradient_at_a_time(choice.schedule) ? kAll : 1;
}

std::vector<std::string> mesh_problems(const MeshWorkload& workload, const MeshChoice& choice) {
  return Problems(workload, choice).all();
}

}  // namespace isthmus::plan
