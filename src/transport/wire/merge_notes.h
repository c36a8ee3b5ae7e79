// SPDX-License-Identifier: Apache-2.0
// Messages of merges (merge_message.h) as notes: each message is a stream of notes (note_stream.h)
// behind a mark, so that one member's notes to another may be of merges and of the program. Pure;
// one thread each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isthmus/expected.h"
#include "transport/wire/merge_message.h"
#include "transport/wire/note_stream.h"

namespace isthmus {

/// Whether a note is a piece of a message of merges.
[[nodiscard]] bool is_merge_note(std::span<const std::byte> note);

/// Sends one note of which `payload` bytes are encoded values.
using SendMergeNote = std::function<void(std::span<const std::byte> note, std::uint64_t payload)>;

/// Sends a message in its notes. `stream`: the number of the message, 0, 1, 2, ... to one receiver.
void send_merge_notes(std::uint32_t stream, MergeMessage message, std::span<const std::byte> bytes,
                      std::uint64_t payload, const SendMergeNote& send);

/// Joins the messages of one sender. Message 0 may come at any time: the sender begins anew. The
/// first one may follow pieces of a message that was under way when the sender or the receiver was
/// lost: such pieces are dropped.
class MergeNoteAssembler {
 public:
  /// Takes the next note. RETURNS: the message if this was its last piece; else nothing; or why the
  /// piece is invalid. REQUIRES: is_merge_note(note).
  [[nodiscard]] Expected<std::optional<NoteStream>, std::string> take(
      std::span<const std::byte> note);

 private:
  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;
  NoteStreamAssembler pieces_{kMostBytes};
  bool heard_ = false;  // a whole message
};

}  // namespace isthmus
