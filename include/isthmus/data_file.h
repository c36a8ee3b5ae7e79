// SPDX-License-Identifier: Apache-2.0
// The identity of one input file of a run's training data. A value.
#pragma once

#include <cstdint>
#include <string>

namespace isthmus {

/// One file, or one synthetic source, as manifests, checkpoints and sites compare it.
struct DataFile {
  std::string path;  // or the synthetic source's spelling
  std::uint64_t bytes = 0;
  std::string sha256;
  /// How its bytes are read: "4,000 ids of u32". Empty: not known, by versions that kept none.
  std::string reading = {};
  bool operator==(const DataFile&) const = default;
};

/// A run's data were appended to while it was at rest.
struct DataGrowth {
  std::int64_t after_step = 0;  // of the run, at rest then
  std::int64_t tokens = 0;      // that the data had until then
  bool operator==(const DataGrowth&) const = default;
};

}  // namespace isthmus
