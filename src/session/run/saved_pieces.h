// SPDX-License-Identifier: Apache-2.0
// The pieces of a state (transport/exchange/catch_up/piece_table.h) that have come to a site that
// joins, in a file of its run's folder, so that its next process need not fetch them again. Nothing
// in the file is believed: a piece counts when its bytes have the digest that the donor's table
// names, whatever state it was saved from. Little-endian; what a kill has torn off at the end is
// left aside:
//
//   "ISTHPIEC" (8), version 1 (4), XXH3-128 of the table it was saved from (16),
//   then of each piece: its bytes (4), its XXH3-128 (16), the bytes
//
// It is never larger than the state and 20 bytes a piece. Nothing is synced: a kill of the process
// loses nothing, and what a failing machine loses is fetched again. One task at a time.
// THROWS: SystemError, from everything but `summary`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <span>

#include "core/base/hash.h"
#include "core/base/storage.h"
#include "record/run_files.h"
#include "transport/exchange/catch_up/piece_table.h"

namespace isthmus::app {

class SavedPieces {
 public:
  // In the run's folder; the second one while the first is written anew.
  static constexpr const char* kFile = kPiecesFile;
  static constexpr const char* kTemporaryFile = kPiecesTemporaryFile;

  /// Borrows `storage`. Touches nothing.
  SavedPieces(Storage& storage, std::filesystem::path file)
      : storage_(storage), file_(std::move(file)) {}

  /// What the file says of itself; no bytes where there is none.
  struct Summary {
    Digest128 table;
    std::uint64_t bytes = 0;  // of pieces
  };
  [[nodiscard]] Summary summary() const;

  /// Gives every piece of `table` whose bytes may be in the file to `have`, which says whether they
  /// are right. From then on the file holds those alone, and is open for more. What `have` throws
  /// leaves the file as it was.
  void open(const PieceTable& table,
            const std::function<bool(std::size_t piece, std::span<const std::byte>)>& have);
  /// REQUIRES: open(), and that `bytes` have the piece's digest.
  void add(const StatePiece& piece, std::span<const std::byte> bytes);
  /// The file is gone afterwards, and what a kill has left of another; one that never was is no
  /// error.
  void remove();

 private:
  Storage& storage_;
  const std::filesystem::path file_;
  std::unique_ptr<WritableFile> out_;
  std::set<Digest128> there_;
};

}  // namespace isthmus::app
