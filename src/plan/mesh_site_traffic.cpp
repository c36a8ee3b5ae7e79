// SPDX-License-Identifier: Apache-2.0
// What goes between the first process of a site, which has the canonical weights and gradients, and
// the others (inner/mesh/canonical_exchange.h).
#include "inner/mesh/canonical_exchange.h"
#include "inner/mesh/gradient_buckets.h"
#include "plan/mesh_traffic.h"

namespace isthmus::plan {
namespace {

/// Of so many neighbouring values, in the pieces that the first process has room for.
Volume messages_of(std::int64_t values) {
  Volume volume;
  volume.operations = volume.hops =
      (values + CanonicalExchange::kPiece - 1) / CanonicalExchange::kPiece;
  volume.payload_bytes = values * kFloatBytes;
  volume.sent_bytes = static_cast<double>(volume.payload_bytes);
  return volume;
}

}  // namespace

Volume site_volume(const ModelLayout& layout, const MeshChoice& choice, const MeshShare& share,
                   int pipeline_rank) {
  Volume volume;
  if (choice.zero != 0 || choice.tp * choice.pp * choice.dp == 1) return volume;
  if (pipeline_rank == 0) {
    for (int rank = 0; rank < choice.pp; ++rank) {
      const int others = rank == 0 ? choice.tp - 1 : choice.tp;
      for (const StageShare& stage : mesh_share(layout, choice, rank).stages) {
        volume += scaled(messages_of(elements_of(stage)), others);
      }
    }
    return volume;
  }
  for (const StageShare& stage : share.stages) {
    const GradientBuckets buckets(elements_of(stage), {.ranks = choice.dp});
    for (const CanonicalRange& part : buckets.shares(0)) volume += messages_of(part.size());
  }
  return volume;
}

}  // namespace isthmus::plan
