// SPDX-License-Identifier: Apache-2.0
// What is awkward about a mesh that works.
#include <fmt/format.h>

#include <algorithm>

#include "inner/mesh/mesh_rules.h"
#include "inner/mesh/rank_layout.h"
#include "plan/mesh_search.h"

namespace isthmus::plan {

std::vector<std::string> mesh_warnings(const MeshWorkload& workload, const MeshMachine& machine,
                                       const MeshCandidate& candidate) {
  constexpr double kUneven = 1.1;
  std::vector<std::string> warnings;
  const MeshChoice& c = candidate.choice;
  const ModelShape& s = workload.shape;
  if (s.vocab % c.tp != 0) {
    warnings.push_back(fmt::format(
        "model.vocab = {} does not divide by tp = {}: the last rank has fewer rows; {} would",
        s.vocab, c.tp, (s.vocab + c.tp - 1) / c.tp * c.tp));
  }
  double most = 0, all = 0;
  for (const RankCost& cost : rank_costs(ModelLayout(s), workload, c)) {
    most = std::max(most, cost.flops);
    all += cost.flops;
  }
  const double uneven = most * c.pp / all;
  if (uneven > kUneven) {
    warnings.push_back(fmt::format(
        "stage {} computes {:.2f} times the mean: {} layers and a head of {:.1f} do not divide by "
        "pp = {}",
        candidate.time.busiest, uneven, s.layers, head_layers(s), c.pp));
  }
  if (c.pp > 1 && c.micro_batches < c.pp) {
    warnings.push_back(fmt::format(
        "{} micro-batches on {} stages leave most of the pipeline idle; at least {} would fill it",
        c.micro_batches, c.pp, c.pp));
  }
  const auto tensor = candidate.time.links[static_cast<std::size_t>(MeshDimension::kTensor)];
  if (c.tp > 1 && tensor > 0) {
    warnings.push_back(
        fmt::format("tensor-parallel groups of {} use {}, not {}: sums of every layer "
                    "wait for it",
                    c.tp, machine.links[tensor].name, machine.links[0].name));
  }
  if (c.tp > s.kv_heads) {
    warnings.push_back(fmt::format(
        "tp = {} is more than model.n_kv_heads = {}: {} ranks hold and compute each key head", c.tp,
        s.kv_heads, key_copies(s, c.tp)));
  }
  if (c.tp > 1 && s.d_model / c.tp < 128) {
    warnings.push_back(fmt::format(
        "tp = {} leaves {} columns of d_model = {} to a rank: products that narrow compute slower",
        c.tp, s.d_model / c.tp, s.d_model));
  }
  return warnings;
}

}  // namespace isthmus::plan
