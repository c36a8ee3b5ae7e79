// SPDX-License-Identifier: Apache-2.0
// The pieces of a state (transport/exchange/catch_up/piece_table.h) that a joiner has received, in
// a file of its run's folder, so that its next process need not fetch them again. Nothing in the
// file is trusted: a piece counts when its bytes have the digest in the donor's table, whatever
// state it was saved from. Little-endian; an incomplete piece at the end, after a kill, is ignored:
//
//   "ISTHPIEC" (8), version 1 (4), XXH3-128 of the table it was saved from (16),
//   then for each piece: its bytes (4), its XXH3-128 (16), the bytes
//
// The file is never larger than the state and 20 bytes a piece. Nothing is synced: a kill of the
// process loses nothing, and pieces lost with a failing machine are fetched again. One task at a
// time. THROWS: SystemError, from everything but `summary`.
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

class PartialStateFile {
 public:
  // In the run's folder; the second one while the first is rewritten.
  static constexpr const char* kFile = kPiecesFile;
  static constexpr const char* kTemporaryFile = kPiecesTemporaryFile;

  /// Borrows `storage`. Does not access the file.
  PartialStateFile(Storage& storage, std::filesystem::path file)
      : storage_(storage), file_(std::move(file)) {}

  /// The file's header; bytes is 0 if there is no file.
  struct Summary {
    Digest128 table;
    std::uint64_t bytes = 0;  // of pieces
  };
  [[nodiscard]] Summary summary() const;

  /// Passes every piece of `table` whose bytes may be in the file to `have`, which tells whether
  /// they are right. The file then holds only the right pieces, and is open for more. If `have`
  /// throws, the file is unchanged.
  void open(const PieceTable& table,
            const std::function<bool(std::size_t piece, std::span<const std::byte>)>& have);
  /// REQUIRES: open(), and that `bytes` have the piece's digest.
  void add(const StatePiece& piece, std::span<const std::byte> bytes);
  /// Removes the file, and a temporary file left by a kill; missing files are no error.
  void remove();

 private:
  Storage& storage_;
  const std::filesystem::path file_;
  std::unique_ptr<WritableFile> out_;
  std::set<Digest128> there_;
};

}  // namespace isthmus::app
