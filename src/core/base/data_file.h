// SPDX-License-Identifier: Apache-2.0
// The identity of one input file of a run's training data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

/// Ends the reading of a file that a run reads as the first versions did, unlike those of today.
inline constexpr std::string_view kAsItLies = ", as it lies";

/// Whether both read equal bytes as equal ids, as far as is known.
[[nodiscard]] inline bool is_same_reading(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return true;
  for (std::string_view* each : {&a, &b}) {
    if (each->ends_with(kAsItLies)) each->remove_suffix(kAsItLies.size());
  }
  return a == b;
}

}  // namespace isthmus
