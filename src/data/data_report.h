// SPDX-License-Identifier: Apache-2.0
// The contents of a token source, and checks against a manifest.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace isthmus {

/// Called at intervals while a source is read.
using DataProgress = std::function<void(std::int64_t done, std::int64_t total)>;

struct TokenCensus {
  std::int64_t tokens = 0;
  std::int32_t smallest = 0;
  std::int32_t largest = 0;
  std::int64_t distinct = 0;
  double unigram_entropy = 0;  // of single tokens by frequency, in nats
};

/// Reads every token once. `progress` may be empty. THROWS: SystemError at the first invalid id.
[[nodiscard]] TokenCensus take_census(const Dataset& data, const DataProgress& progress = {});

/// One line for every input that is missing, new or changed relative to `expected` (a manifest's
/// list); files are matched by name.
[[nodiscard]] std::vector<std::string> data_changes(std::span<const DataFile> expected,
                                                    std::span<const DataFile> found);

}  // namespace isthmus
