// SPDX-License-Identifier: Apache-2.0
// Checks that data begin with earlier data, of which only sizes and digests are known.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/base/data_file.h"
#include "data/dataset.h"
#include "isthmus/expected.h"

namespace isthmus {

/// RETURNS: the number of tokens of `before`, if `data` begin with exactly these tokens: files are
/// unchanged and in the same order. Of the last file, if it has no header and is not compressed,
/// only the first bytes need the former digest. Reads all of that. Else one clause on why not.
[[nodiscard]] Expected<std::int64_t, std::string> tokens_of_beginning(
    const Dataset& data, std::span<const DataFile> before);

}  // namespace isthmus
