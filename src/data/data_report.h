// SPDX-License-Identifier: Apache-2.0
// What a token source holds, and whether it is what it should be.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace isthmus {

/// Called now and then while a source is read through.
using DataProgress = std::function<void(std::int64_t done, std::int64_t total)>;

struct TokenCensus {
  std::int64_t tokens = 0;
  std::int32_t smallest = 0;
  std::int32_t largest = 0;
  std::int64_t distinct = 0;
  double unigram_entropy = 0;  // of single tokens by frequency, in nats
};

/// Reads every token once. `progress` may be empty. THROWS: SystemError at the first that is no id.
[[nodiscard]] TokenCensus take_census(const Dataset& data, const DataProgress& progress = {});

/// One line for every input that is missing, new or changed against `expected` (a manifest's list);
/// files are told apart by name.
[[nodiscard]] std::vector<std::string> data_changes(std::span<const DataFile> expected,
                                                    std::span<const DataFile> found);

}  // namespace isthmus
