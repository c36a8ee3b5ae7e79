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

}  // namespace isthmus
