// SPDX-License-Identifier: Apache-2.0
// The communicators of one rank of a mesh, each with the codec of its dimension.
#pragma once

#include <memory>

#include "inner/mesh/mesh.h"
#include "isthmus/codec.h"
#include "isthmus/config.h"
#include "transport/collectives/communicator.h"

namespace isthmus {

/// THROWS: ConfigError naming key, codec and remedy: between ranks a codec must encode all values,
/// round to nearest, and use no error feedback.
void check_rank_codecs(const CodecByDimension& codecs);

/// The groups of one rank, split from `world`.
struct MeshGroups {
  Communicator& world;                                                    // borrowed
  std::unique_ptr<const Codec> tensor_codec, pipeline_codec, data_codec;  // codecs of the groups
                                                                          // below
  std::unique_ptr<const Codec> state_codec;  // of the changes of an update (StageState)
  std::unique_ptr<Communicator> tensor;      // ranks with the same stage and samples
  std::unique_ptr<Communicator> pipeline;    // ranks with the same tensor share and samples, by
                                             // stage
  std::unique_ptr<Communicator> data;        // ranks with the same share of the same stage
  std::unique_ptr<Communicator> copies;      // ranks with the same key heads; null if no other rank
                                             // has them

  /// key_copies: number of adjacent tensor-parallel ranks with the same key heads. Collective over
  /// world. REQUIRES: world's size is mesh.ranks(). THROWS: ConfigError naming an unknown codec.
  MeshGroups(const MeshShape& mesh, int key_copies, const CodecByDimension& codecs,
             Communicator& all_ranks);
};

}  // namespace isthmus
