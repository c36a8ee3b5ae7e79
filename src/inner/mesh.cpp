// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "inner/mesh_rules.h"
#include "isthmus/errors.h"
#include "kernels/thread_team.h"

namespace isthmus {
namespace {

void check_divides(const char* key, std::int64_t value, const char* of, std::int64_t n,
                   std::int64_t works_for_all) {
  if (n % value == 0) return;
  throw ConfigError(fmt::format("{} = {}: must divide {} = {}; the nearest that works is {}", key,
                                value, of, n, nearest_divisor(works_for_all, value)));
}

}  // namespace

int mesh_rank(const MeshShape& mesh, const MeshPosition& at) {
  return (at.pp * mesh.dp + at.dp) * mesh.tp + at.tp;
}

MeshPosition mesh_position(const MeshShape& mesh, int rank) {
  return {.tp = rank % mesh.tp, .pp = rank / (mesh.tp * mesh.dp), .dp = rank / mesh.tp % mesh.dp};
}

void check_mesh(const ModelShape& s, const MeshShape& mesh, std::int64_t sequences) {
  constexpr std::int64_t kMostRanks = kernels::ThreadTeam::kMaxSize;
  const std::int64_t ranks = std::int64_t{mesh.tp} * mesh.pp * mesh.dp;
  if (ranks > kMostRanks) {
    throw ConfigError(
        fmt::format("parallel: tp x pp x dp = {} x {} x {} ranks in a site: at most {}", mesh.tp,
                    mesh.pp, mesh.dp, kMostRanks));
  }
  const std::int64_t shared = std::gcd(std::gcd(s.heads, s.kv_heads), s.d_ff);
  check_divides("parallel.tp", mesh.tp, "model.n_heads", s.heads, shared);
  check_divides("parallel.tp", mesh.tp, "model.n_kv_heads", s.kv_heads, shared);
  check_divides("parallel.tp", mesh.tp, "model.d_ff", s.d_ff, shared);
  if (mesh.tp > s.vocab) {
    throw ConfigError(fmt::format("parallel.tp = {}: at most model.vocab = {} ranks can share it",
                                  mesh.tp, s.vocab));
  }
  if (mesh.pp > s.layers) {
    throw ConfigError(
        fmt::format("parallel.pp = {}: at most model.n_layers = {} stages; the nearest that works "
                    "is {}",
                    mesh.pp, s.layers, s.layers));
  }
  check_divides("parallel.dp", mesh.dp, "the samples of a step and worker", sequences, sequences);
}

}  // namespace isthmus
