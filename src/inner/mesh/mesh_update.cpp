// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/mesh_update.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "core/base/check.h"
#include "kernels/optimizer.h"

namespace isthmus {
namespace {
constexpr int kUpdateTableTag = 1000;  // of messages between first and last stage

CanonicalRange moved(CanonicalRange range, std::int64_t by) {
  return {range.begin + by, range.end + by};
}
}  // namespace

MeshUpdate::MeshUpdate(const ModelLayout& canonical, const MeshOptions& options, MeshRank& rank)
    : options_(options), rank_(rank) {
  ISTHMUS_CHECK(options.zero >= 1, options.zero);
  if (options.mesh.pp == 1 || !canonical.shape().tied) return;
  const RankLayout first = std::move(MeshRank::layouts(canonical, options, rank_at(0, 0)).front());
  const RankLayout last =
      std::move(MeshRank::layouts(canonical, options, rank_at(options.mesh.pp - 1, 0)).back());
  first_ = {first.tied_embedding(), first.local().elements()};
  last_ = {last.local().tensors()[last.local().head()].elements, last.local().elements()};
  ISTHMUS_CHECK(first_.table.size() == last_.table.size(), first_.table.size());
}

int MeshUpdate::rank_at(int pp, int dp) const {
  return mesh_rank(options_.mesh, {.tp = rank_.position().tp, .pp = pp, .dp = dp});
}

bool MeshUpdate::has_first_stage() const { return rank_.position().pp == 0; }

bool MeshUpdate::has_last_stage() const { return rank_.position().pp + 1 == options_.mesh.pp; }

/// Which of the table's values data-parallel rank `dp` of a stage has in its slice.
CanonicalRange MeshUpdate::table_slice(const Stage& stage, int dp) const {
  const CanonicalRange slice = slice_of(stage.elements, options_.mesh.dp, dp);
  return moved(common(slice, stage.table), -stage.table.begin);
}

void MeshUpdate::sum_squares(std::span<double> squares) {
  std::ranges::fill(squares, 0.0);
  for (std::size_t k = 0; k < rank_.chunks(); ++k) {
    const RankLayout& layout = rank_.layout(k);
    const LocalValues sums = rank_.state(k).owned_values(RankValues::kGradients);
    for (std::size_t t = 0; t < layout.local().tensors().size(); ++t) {
      const CanonicalRange part = common(layout.local().tensors()[t].elements, sums.range);
      if (part.size() == 0 || !layout.answers_for(t)) continue;
      squares[layout.canonical_tensor(t)] +=
          kernels::squared_norm<float>(rank_.team(), part.size(), sums.at(part.begin));
    }
  }
  rank_.groups().world.all_reduce(
      {squares.data(), static_cast<std::int64_t>(squares.size()), Dtype::kF64}, Reduce::kSum);
}

void MeshUpdate::update(double lr, double gradient_scale, float* canonical) {
  for (std::size_t k = 0; k < rank_.chunks(); ++k) {
    rank_.state(k).update(rank_.team(), lr, gradient_scale, canonical);
  }
}

void MeshUpdate::gather_slices(std::size_t chunk) {
  StageState& state = rank_.state(chunk);
  const LocalValues all = state.own_weights();
  const CanonicalRange own = state.slice();
  const std::int64_t elements = rank_.layout(chunk).local().elements();
  std::vector<std::int64_t> counts;
  for (int dp = 0; dp < options_.mesh.dp; ++dp) {
    counts.push_back(slice_of(elements, options_.mesh.dp, dp).size());
  }
  rank_.groups().data->all_gather({all.at(own.begin), own.size(), Dtype::kF32}, counts,
                                  {all.values, elements, Dtype::kF32});
  state.wrote_weights();
}

void MeshUpdate::gather_changes(std::size_t chunk) {
  StageState& state = rank_.state(chunk);
  std::vector<std::int64_t> counts;
  for (int dp = 0; dp < options_.mesh.dp; ++dp) counts.push_back(state.change_bytes(dp));
  const std::span<const std::byte> own = state.change();
  std::vector<std::byte> all(
      static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0})));
  rank_.groups().data->all_gather({own.data(), static_cast<std::int64_t>(own.size()), Dtype::kU8},
                                  counts,
                                  {all.data(), static_cast<std::int64_t>(all.size()), Dtype::kU8});
  std::size_t begin = 0;
  for (int dp = 0; dp < options_.mesh.dp; ++dp) {
    const auto size = static_cast<std::size_t>(counts[static_cast<std::size_t>(dp)]);
    if (dp != rank_.position().dp) state.add_change(dp, std::span(all).subspan(begin, size));
    begin += size;
  }
  state.gave_change();
  state.wrote_weights();
}

void MeshUpdate::gather_weights() {
  if (options_.zero == 3) {  // passes gather them
    give_table_slices();
    return;
  }
  for (std::size_t k = 0; k < rank_.chunks(); ++k) {
    if (rank_.state(k).gives_changes())
      gather_changes(k);
    else
      gather_slices(k);
  }
  give_table();
}

void MeshUpdate::spread_owned() {
  if (options_.zero == 3) {
    give_table_slices();
    for (std::size_t k = 0; k < rank_.chunks(); ++k) rank_.state(k).forget_gathered();
    return;
  }
  for (std::size_t k = 0; k < rank_.chunks(); ++k) gather_slices(k);
  give_table();
}

/// The two stages cut the table's slices differently: each rank of the first stage gets its slices
/// from the ranks of the last stage.
void MeshUpdate::give_table_slices() {
  if (first_.table.size() == 0) return;
  Communicator& world = rank_.groups().world;
  const int own = rank_.position().dp;
  if (has_last_stage()) {
    const LocalValues weights = rank_.state(rank_.chunks() - 1).own_weights();
    for (int dp = 0; dp < options_.mesh.dp; ++dp) {
      const CanonicalRange both = common(table_slice(last_, own), table_slice(first_, dp));
      if (both.size() == 0) continue;
      world.send({weights.at(last_.table.begin + both.begin), both.size(), Dtype::kF32},
                 rank_at(0, dp), kUpdateTableTag);
    }
  }
  if (!has_first_stage()) return;
  StageState& state = rank_.state(0);
  const LocalValues weights = state.own_weights();
  for (int dp = 0; dp < options_.mesh.dp; ++dp) {
    const CanonicalRange both = common(table_slice(last_, dp), table_slice(first_, own));
    if (both.size() == 0) continue;
    world.receive({weights.at(first_.table.begin + both.begin), both.size(), Dtype::kF32},
                  rank_at(options_.mesh.pp - 1, dp), kUpdateTableTag);
  }
  state.wrote_weights();
  state.forget_gathered();
}

void MeshUpdate::give_table() {
  if (first_.table.size() == 0) return;
  Communicator& world = rank_.groups().world;
  const int dp = rank_.position().dp;
  if (has_last_stage()) {
    world.send({rank_.state(rank_.chunks() - 1).own_weights().at(last_.table.begin),
                last_.table.size(), Dtype::kF32},
               rank_at(0, dp), kUpdateTableTag);
  } else if (has_first_stage()) {
    world.receive(
        {rank_.state(0).own_weights().at(first_.table.begin), first_.table.size(), Dtype::kF32},
        rank_at(options_.mesh.pp - 1, dp), kUpdateTableTag);
  }
}

}  // namespace isthmus
