// SPDX-License-Identifier: Apache-2.0
// A snapshot as one byte string, for a worker that gets another worker's state without a disk. All
// fields are little-endian; tensors have the layout of a checkpoint's file:
//
//   "ISTHSTAT" (8), version 1 (4), bytes of the scalars (4), bytes of the whole (8),
//   scalars: JSON, as StateSnapshot::scalars; tensors: safetensors; XXH3-128 of all before it (16)
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/state/state_snapshot.h"
#include "isthmus/expected.h"

namespace isthmus {

[[nodiscard]] std::vector<std::byte> write_state(const StateSnapshot& state);

/// Begin and end offsets of the tensors in the result of `write_state`, ascending: equal tensors of
/// two workers lie between such borders at both, possibly at different offsets.
[[nodiscard]] std::vector<std::uint64_t> state_borders(std::span<const std::byte> state);

/// Reads the bytes of a snapshot; the reader owns `bytes` and names "state of a peer" in its
/// errors. RETURNS: why the bytes are not a state: the digest covers every byte.
[[nodiscard]] Expected<std::unique_ptr<StateReader>, std::string> read_state(
    std::vector<std::byte> bytes);

}  // namespace isthmus
