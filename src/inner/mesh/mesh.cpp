// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/mesh.h"

#include <fmt/format.h>

#include <algorithm>

#include "inner/mesh/mesh_rules.h"
#include "isthmus/errors.h"
#include "kernels/thread_team.h"

namespace isthmus {
namespace {

bool shares_key_heads(const ModelShape& s, std::int64_t tp) {
  return s.kv_heads % tp == 0 || tp % s.kv_heads == 0;
}

/// context: 0 where it need not divide.
bool works(const ModelShape& s, std::int64_t tp, std::int64_t context) {
  return s.heads % tp == 0 && s.d_ff % tp == 0 && shares_key_heads(s, tp) && tp <= s.vocab &&
         context % tp == 0;
}

/// The smaller one of two that are as near; above all query heads none works.
std::int64_t nearest_tp(const ModelShape& s, std::int64_t wanted, std::int64_t context) {
  for (std::int64_t tp = std::min(wanted, s.heads), above = tp; tp > 1; --tp, ++above) {
    if (works(s, tp, context)) return tp;
    if (works(s, above, context)) return above;
  }
  return 1;
}

}  // namespace

int mesh_rank(const MeshShape& mesh, const MeshPosition& at) {
  return (at.pp * mesh.dp + at.dp) * mesh.tp + at.tp;
}

MeshPosition mesh_position(const MeshShape& mesh, int rank) {
  return {.tp = rank % mesh.tp, .pp = rank / (mesh.tp * mesh.dp), .dp = rank / mesh.tp % mesh.dp};
}

std::optional<std::string> tensor_parallel_problem(const ModelShape& s, const MeshShape& mesh,
                                                   std::int64_t context) {
  const int tp = mesh.tp;
  const std::int64_t split = mesh.sequence_parallel ? context : 0;
  if (tp > 1 && s.qk_norm && s.family.wide_qk_norm) {
    return fmt::format(
        "parallel.tp = {}: {} norms queries and keys over all heads together, which no rank has; "
        "only tp = 1 works",
        tp, s.family.name);
  }
  if (tp > s.kv_heads && s.family.fused_products) {
    return fmt::format(
        "parallel.tp = {}: at most model.n_kv_heads = {} ranks can share the fused query, key and "
        "value tensors of {}",
        tp, s.kv_heads, s.family.name);
  }
  if (works(s, tp, split)) return std::nullopt;
  const std::int64_t nearest = nearest_tp(s, tp, split);
  for (const auto& [key, value] :
       {std::pair{"model.n_heads", s.heads}, std::pair{"model.d_ff", s.d_ff}}) {
    if (value % tp == 0) continue;
    return fmt::format("parallel.tp = {}: must divide {} = {}; the nearest that works is {}", tp,
                       key, value, nearest);
  }
  if (!shares_key_heads(s, tp)) {
    return fmt::format(
        "parallel.tp = {}: must divide model.n_kv_heads = {} or be a multiple of it; the nearest "
        "that works is {}",
        tp, s.kv_heads, nearest);
  }
  if (tp > s.vocab) {
    return fmt::format(
        "parallel.tp = {}: at most model.vocab = {} ranks can share it; the nearest that works is "
        "{}",
        tp, s.vocab, nearest);
  }
  return fmt::format(
      "parallel.sequence_parallel with parallel.tp = {}: tp must divide train.context = {}; the "
      "nearest that works is {}",
      tp, context, nearest);
}

void check_mesh(const ModelShape& s, const MeshShape& mesh, std::int64_t sequences,
                std::int64_t context) {
  constexpr std::int64_t kMostRanks = kernels::ThreadTeam::kMaxSize;
  const std::int64_t ranks = std::int64_t{mesh.tp} * mesh.pp * mesh.dp;
  if (ranks > kMostRanks) {
    throw ConfigError(
        fmt::format("parallel: tp x pp x dp = {} x {} x {} ranks in a site: at most {}", mesh.tp,
                    mesh.pp, mesh.dp, kMostRanks));
  }
  if (const auto problem = tensor_parallel_problem(s, mesh, context)) throw ConfigError(*problem);
  if (mesh.pp > s.layers) {
    throw ConfigError(
        fmt::format("parallel.pp = {}: at most model.n_layers = {} stages; the nearest that works "
                    "is {}",
                    mesh.pp, s.layers, s.layers));
  }
  if (sequences % mesh.dp != 0) {
    throw ConfigError(
        fmt::format("parallel.dp = {}: must divide the samples of a step and worker = {}; the "
                    "nearest that works is {}",
                    mesh.dp, sequences, nearest_divisor(sequences, mesh.dp)));
  }
}

}  // namespace isthmus
