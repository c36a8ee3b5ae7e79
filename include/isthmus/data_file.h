// SPDX-License-Identifier: Apache-2.0
// The identity of one input file of a run's training data. A value.
#pragma once

#include <cstdint>
#include <string>

namespace isthmus {

/// One file, or one synthetic source, as recorded and compared by manifests, checkpoints and sites.
struct DataFile {
  std::string path;  // or the synthetic source's spelling
  std::uint64_t bytes = 0;
  std::string sha256;
  /// How the bytes are read: "4,000 ids of u32". Empty: unknown, from a version that recorded none.
  std::string reading = {};
  bool operator==(const DataFile&) const = default;
};

/// An extension of a run's data between two sessions of the run.
struct DataGrowth {
  std::int64_t after_step = 0;  // steps that the run had taken
  std::int64_t tokens = 0;      // tokens that the data had before
  bool operator==(const DataGrowth&) const = default;
};

}  // namespace isthmus
