// SPDX-License-Identifier: Apache-2.0
#include "transport/wire/note_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "transport/wire/byte_fields.h"

namespace isthmus {
namespace {

constexpr std::uint32_t kStreamMagic = 0x4d525453;  // "STRM"

/// An empty stream has a piece too.
std::uint64_t pieces_of(std::uint64_t bytes) {
  return std::max<std::uint64_t>(1, bytes / kNotePieceBytes + (bytes % kNotePieceBytes != 0));
}

Unexpected<std::string> bad_stream(const std::string& why) {
  return Unexpected<std::string>("a piece of a stream: " + why);
}

}  // namespace

NoteStreamCutter::NoteStreamCutter(std::uint32_t stream, std::uint32_t kind,
                                   std::span<const std::byte> bytes)
    : stream_(stream),
      kind_(kind),
      bytes_(bytes),
      digest_(xxh3_128(bytes)),
      pieces_(static_cast<std::uint32_t>(pieces_of(bytes.size()))) {}

std::vector<std::byte> NoteStreamCutter::next() {
  ISTHMUS_CHECK(!done());
  const std::size_t begin = next_ * kNotePieceBytes;
  const auto part = bytes_.subspan(begin, std::min(kNotePieceBytes, bytes_.size() - begin));
  std::vector<std::byte> piece(kNotePieceHeadBytes + part.size());
  FieldWriter out(piece);
  out.put(kStreamMagic);
  out.put(kind_);
  out.put(stream_);
  out.put(next_);
  out.put(static_cast<std::uint32_t>(part.size()));
  out.put(static_cast<std::uint64_t>(bytes_.size()));
  out.put_bytes(std::as_bytes(std::span(digest_.bytes)));
  out.put_bytes(part);
  ++next_;
  return piece;
}

Expected<std::optional<NoteStream>, std::string> NoteStreamAssembler::take(
    std::span<const std::byte> piece) {
  if (piece.size() < kNotePieceHeadBytes) {
    return bad_stream(fmt::format("{} bytes are too few", piece.size()));
  }
  FieldReader in(piece);
  if (in.get<std::uint32_t>() != kStreamMagic) return bad_stream("it does not begin like one");
  const auto kind = in.get<std::uint32_t>();
  const auto stream = in.get<std::uint32_t>();
  const auto number = in.get<std::uint32_t>();
  const auto size = in.get<std::uint32_t>();
  const auto total = in.get<std::uint64_t>();
  Digest128 digest;
  const std::span<const std::byte> stored = in.get_bytes(digest.bytes.size());
  std::ranges::transform(stored, digest.bytes.begin(), std::to_integer<std::uint8_t>);
  if (stream != stream_ || number != piece_) {
    return bad_stream(fmt::format("number {} of stream {} in place of {} of {}", number, stream,
                                  piece_, stream_));
  }
  if (number == 0) {
    if (total > limit_) {
      return bad_stream(fmt::format("its stream has {} bytes; {} are the most", total, limit_));
    }
    total_ = total;
    kind_ = kind;
    digest_ = digest;
    bytes_.clear();
  } else if (total != total_ || kind != kind_ || digest != digest_) {
    return bad_stream(fmt::format("number {} of stream {} is of another stream", number, stream));
  }
  const std::uint64_t due = std::min<std::uint64_t>(kNotePieceBytes, total_ - bytes_.size());
  if (size != due || piece.size() - kNotePieceHeadBytes != due) {
    return bad_stream(fmt::format("number {} of stream {} has {} bytes, {} are due", number, stream,
                                  piece.size() - kNotePieceHeadBytes, due));
  }
  const std::span<const std::byte> part = in.get_bytes(due);
  bytes_.insert(bytes_.end(), part.begin(), part.end());
  ++piece_;
  if (bytes_.size() < total_) return std::optional<NoteStream>{};
  if (xxh3_128(bytes_) != digest_) {
    return bad_stream(fmt::format("stream {} has come with other bytes than were sent", stream));
  }
  ++stream_;
  piece_ = 0;
  return std::optional<NoteStream>{{.kind = kind_, .bytes = std::exchange(bytes_, {})}};
}

}  // namespace isthmus
