// SPDX-License-Identifier: Apache-2.0
// Whether data begin with other data, of which sizes and digests alone are left.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/base/data_file.h"
#include "data/dataset.h"
#include "isthmus/expected.h"

namespace isthmus {

/// How many tokens `before` were, where `data` begin with these very tokens: files stand unchanged
/// and in the former order, and of the last one, if it has no header and is not compressed, the
/// first bytes have the former digest. Reads all of that. RETURNS: or one clause on why not.
[[nodiscard]] Expected<std::int64_t, std::string> tokens_of_beginning(
    const Dataset& data, std::span<const DataFile> before);

}  // namespace isthmus
