// SPDX-License-Identifier: Apache-2.0
// A round's result as bytes, for a member that took no part in it (WIRE_FORMAT.md, "Joining").
// Without what the receiver did for it: bytes sent, time waited. Pure; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/expected.h"
#include "isthmus/transport.h"

namespace isthmus {

[[nodiscard]] std::vector<std::byte> write_result(const SyncId& id, const Reduced& result);

/// RETURNS: why `bytes` are no result of a run of `members` members. Whether its sizes are those of
/// the model is for the caller to see.
[[nodiscard]] Expected<std::pair<SyncId, Reduced>, std::string> read_result(
    std::span<const std::byte> bytes, int members);

}  // namespace isthmus
