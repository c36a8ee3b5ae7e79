// SPDX-License-Identifier: Apache-2.0
// The groups of ranks that one rank of a mesh meets, each with the codec of its dimension.
#pragma once

#include <memory>

#include "inner/mesh/mesh.h"
#include "isthmus/codec.h"
#include "isthmus/config.h"
#include "transport/collectives/communicator.h"

namespace isthmus {

/// THROWS: ConfigError naming key, codec and remedy: between ranks a code holds all values, rounded
/// to nearest, without error feedback.
void check_rank_codecs(const CodecByDimension& codecs);

/// The groups that a rank is in, split from `world`.
struct MeshGroups {
  Communicator& world;                                                    // borrowed
  std::unique_ptr<const Codec> tensor_codec, pipeline_codec, data_codec;  // of those below
  std::unique_ptr<const Codec> state_codec;  // of what an update changes (ChunkState)
  std::unique_ptr<Communicator> tensor;      // the same stage and samples
  std::unique_ptr<Communicator> pipeline;    // the same tensor share and samples, by stage
  std::unique_ptr<Communicator> data;        // the same share of the same stage
  std::unique_ptr<Communicator> copies;      // the same key heads; null where each has its own

  /// key_copies: neighbouring tensor-parallel ranks that have the same key heads. Collective over
  /// world. REQUIRES: world's size is mesh.ranks(). THROWS: ConfigError naming an unknown codec.
  MeshGroups(const MeshShape& mesh, int key_copies, const CodecByDimension& codecs,
             Communicator& all_ranks);
};

}  // namespace isthmus
