// SPDX-License-Identifier: Apache-2.0
// A snapshot as one byte string, for a worker that takes over another's state without a disk. All
// fields little-endian; the tensors lie as in a checkpoint's file:
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

/// Where tensors begin and end in what `write_state` gave, ascending: equal tensors of two workers
/// lie between borders at both, though not at the same places.
[[nodiscard]] std::vector<std::uint64_t> state_borders(std::span<const std::byte> state);

/// What a snapshot wrote; the reader owns `bytes` and names "state of a peer" in its errors.
/// RETURNS: why they are no state: every byte is covered by the digest.
[[nodiscard]] Expected<std::unique_ptr<StateReader>, std::string> read_state(
    std::vector<std::byte> bytes);

}  // namespace isthmus
