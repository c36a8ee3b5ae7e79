// SPDX-License-Identifier: Apache-2.0
// Texts compressed with gzip or zstd, inflated into memory. Blocking; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/file_format.h"

namespace isthmus {

/// Largest number of bytes of all texts of one source that are inflated into memory.
inline constexpr std::int64_t kMostInflatedBytes = std::int64_t{8} << 30;

/// Inflates all members or frames, concatenated. `compression` is not kNone. THROWS: SystemError
/// naming the file and the defect: damaged, truncated, or larger than `most`.
[[nodiscard]] std::vector<std::byte> inflated(std::span<const std::byte> bytes,
                                              Compression compression, const std::string& label,
                                              std::int64_t most = kMostInflatedBytes);

}  // namespace isthmus
