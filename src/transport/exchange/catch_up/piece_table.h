// SPDX-License-Identifier: Apache-2.0
// A state as pieces of at most 4 MiB, each identified by its size and digest (WIRE_FORMAT.md,
// "Joining"). Pieces begin and end at tensors' borders, so equal content of two members gives equal
// pieces wherever it lies, and equal pieces can be found without knowing their content. Pure; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "isthmus/expected.h"

namespace isthmus {

inline constexpr std::uint32_t kMostPieceBytes = std::uint32_t{4} << 20;

struct StatePiece {
  std::uint64_t offset = 0;  // in the state; pieces are contiguous
  std::uint32_t bytes = 0;   // 1 to kMostPieceBytes
  Digest128 digest;          // XXH3-128
  bool operator==(const StatePiece&) const = default;
};
/// In order of offsets, from 0 on.
using PieceTable = std::vector<StatePiece>;

[[nodiscard]] inline std::uint64_t table_bytes(const PieceTable& table) {
  return table.empty() ? 0 : table.back().offset + table.back().bytes;
}

/// Pieces of kMostPieceBytes, shorter before a border and at the end; no piece is empty.
/// `borders`: offsets in `state` that no piece crosses. REQUIRES: ascending, at most state.size().
[[nodiscard]] PieceTable cut_pieces(std::span<const std::byte> state,
                                    std::span<const std::uint64_t> borders);

/// 12 bytes and 20 a piece: magic number and count, then sizes and digests, little-endian. Offsets
/// follow from the sizes.
[[nodiscard]] std::vector<std::byte> write_table(const PieceTable& table);
/// The inverse of write_table. RETURNS: the reason if `bytes` are no table.
[[nodiscard]] Expected<PieceTable, std::string> read_table(std::span<const std::byte> bytes);

/// The index of the piece that contains all of these bytes; nothing: no single piece does, or
/// `bytes` is 0.
[[nodiscard]] std::optional<std::size_t> find_piece(const PieceTable& table, std::uint64_t offset,
                                                    std::uint64_t bytes);

/// For each piece of `wanted` the offset of a piece of `own` with its size and digest, the first of
/// several; nothing: `own` has none.
[[nodiscard]] std::vector<std::optional<std::uint64_t>> match_pieces(const PieceTable& wanted,
                                                                     const PieceTable& own);

}  // namespace isthmus
