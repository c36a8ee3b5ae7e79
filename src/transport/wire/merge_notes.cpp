// SPDX-License-Identifier: Apache-2.0
#include "transport/wire/merge_notes.h"

#include <utility>

#include "transport/wire/byte_fields.h"

namespace isthmus {
namespace {

constexpr std::uint32_t kMergesMark = 0x4752454d;  // "MERG"
constexpr std::size_t kMergesMarkBytes = 4;

}  // namespace

bool is_merge_note(std::span<const std::byte> note) {
  if (note.size() < kMergesMarkBytes) return false;
  FieldReader in(note);
  return in.get<std::uint32_t>() == kMergesMark;
}

void send_merge_notes(std::uint32_t stream, MergeMessage message, std::span<const std::byte> bytes,
                      std::uint64_t payload, const SendMergeNote& send) {
  NoteStreamCutter pieces(stream, static_cast<std::uint32_t>(message), bytes);
  while (!pieces.done()) {
    const std::vector<std::byte> piece = pieces.next();
    std::vector<std::byte> note(kMergesMarkBytes + piece.size());
    FieldWriter out(note);
    out.put(kMergesMark);
    out.put_bytes(piece);
    send(note, std::exchange(payload, 0));
  }
}

Expected<std::optional<NoteStream>, std::string> MergeNoteAssembler::take(
    std::span<const std::byte> note) {
  auto message = pieces_.take(note.subspan(kMergesMarkBytes));
  if (!message) {
    NoteStreamAssembler anew(kMostBytes);
    auto first = anew.take(note.subspan(kMergesMarkBytes));
    if (!first && heard_) return message;
    pieces_ = first ? std::move(anew) : NoteStreamAssembler(kMostBytes);
    message = first ? std::move(first) : std::optional<NoteStream>{};
  }
  heard_ = heard_ || message->has_value();
  return message;
}

}  // namespace isthmus
