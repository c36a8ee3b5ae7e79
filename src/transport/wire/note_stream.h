// SPDX-License-Identifier: Apache-2.0
// Byte strings longer than a note, cut into pieces that fit into notes, and joined again
// (WIRE_FORMAT.md, "Joining"). Pieces of one sender arrive in order, so a stream ends before the
// next one begins; missing, repeated or changed pieces are detected. Pure; one thread each.
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

inline constexpr std::size_t kNotePieceBytes = std::size_t{512} * 1024;  // of a stream in one piece
inline constexpr std::size_t kNotePieceHeadBytes = 44;

/// Cuts one stream into pieces.
class NoteStreamCutter {
 public:
  /// `stream`: its number, 0, 1, 2, ... at one sender. `kind`: for the caller. Borrows `bytes`.
  NoteStreamCutter(std::uint32_t stream, std::uint32_t kind, std::span<const std::byte> bytes);

  /// Whether all pieces have been taken. An empty stream has one piece.
  [[nodiscard]] bool done() const { return next_ == pieces_; }
  /// REQUIRES: !done().
  [[nodiscard]] std::vector<std::byte> next();

 private:
  std::uint32_t stream_;
  std::uint32_t kind_;
  std::span<const std::byte> bytes_;
  Digest128 digest_;
  std::uint32_t pieces_;
  std::uint32_t next_ = 0;
};

struct NoteStream {
  std::uint32_t kind = 0;
  std::vector<std::byte> bytes;
};

/// Joins the streams of one sender.
class NoteStreamAssembler {
 public:
  /// A stream of more than `limit` bytes is refused.
  explicit NoteStreamAssembler(std::uint64_t limit) : limit_(limit) {}

  /// Takes the next piece. RETURNS: the stream if this was its last piece; else nothing; or why the
  /// piece is invalid or not the next: later pieces cannot be relied on then.
  [[nodiscard]] Expected<std::optional<NoteStream>, std::string> take(
      std::span<const std::byte> piece);

 private:
  std::uint64_t limit_;
  std::uint32_t stream_ = 0;
  std::uint32_t piece_ = 0;
  std::uint64_t total_ = 0;  // of the current stream; all its pieces repeat it and these:
  std::uint32_t kind_ = 0;
  Digest128 digest_;
  std::vector<std::byte> bytes_;
};

}  // namespace isthmus
