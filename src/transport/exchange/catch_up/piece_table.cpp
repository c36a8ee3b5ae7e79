// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/catch_up/piece_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/check.h"
#include "transport/wire/byte_fields.h"

namespace isthmus {
namespace {

constexpr std::uint32_t kTableMagic = 0x4c425453;  // "STBL"
constexpr std::size_t kPieceHeadBytes = 12;
constexpr std::size_t kPieceEntryBytes = 20;

Unexpected<std::string> bad_table(const std::string& why) {
  return Unexpected<std::string>("a table of pieces: " + why);
}

}  // namespace

PieceTable cut_pieces(std::span<const std::byte> state, std::span<const std::uint64_t> borders) {
  PieceTable table;
  std::uint64_t at = 0;
  const auto cut_until = [&](std::uint64_t end) {
    while (at < end) {
      const std::uint64_t bytes = std::min<std::uint64_t>(kMostPieceBytes, end - at);
      table.push_back({.offset = at,
                       .bytes = static_cast<std::uint32_t>(bytes),
                       .digest = xxh3_128(state.subspan(at, bytes))});
      at += bytes;
    }
  };
  for (const std::uint64_t border : borders) {
    ISTHMUS_CHECK(border >= at && border <= state.size(), border, at, state.size());
    cut_until(border);
  }
  cut_until(state.size());
  return table;
}

std::vector<std::byte> write_table(const PieceTable& table) {
  std::vector<std::byte> bytes(kPieceHeadBytes + kPieceEntryBytes * table.size());
  FieldWriter out(bytes);
  out.put(kTableMagic);
  out.put(static_cast<std::uint64_t>(table.size()));
  for (const StatePiece& piece : table) {
    out.put(piece.bytes);
    out.put_bytes(std::as_bytes(std::span(piece.digest.bytes)));
  }
  return bytes;
}

Expected<PieceTable, std::string> read_table(std::span<const std::byte> bytes) {
  if (bytes.size() < kPieceHeadBytes)
    return bad_table(fmt::format("{} bytes are too few", bytes.size()));
  FieldReader in(bytes);
  if (in.get<std::uint32_t>() != kTableMagic) return bad_table("it does not begin like one");
  const auto pieces = in.get<std::uint64_t>();
  const std::size_t entries = bytes.size() - kPieceHeadBytes;
  if (entries % kPieceEntryBytes != 0 || pieces != entries / kPieceEntryBytes) {
    return bad_table(fmt::format("{} pieces in {} bytes", pieces, bytes.size()));
  }
  PieceTable table(static_cast<std::size_t>(pieces));
  std::uint64_t at = 0;
  for (StatePiece& piece : table) {
    piece.offset = at;
    piece.bytes = in.get<std::uint32_t>();
    const std::span<const std::byte> digest = in.get_bytes(piece.digest.bytes.size());
    std::ranges::transform(digest, piece.digest.bytes.begin(), std::to_integer<std::uint8_t>);
    if (piece.bytes == 0 || piece.bytes > kMostPieceBytes) {
      return bad_table(fmt::format("a piece of {} bytes", piece.bytes));
    }
    at += piece.bytes;
  }
  return table;
}

std::optional<std::size_t> find_piece(const PieceTable& table, std::uint64_t offset,
                                      std::uint64_t bytes) {
  const auto next = std::ranges::upper_bound(table, offset, {}, &StatePiece::offset);
  if (next == table.begin() || bytes == 0) return std::nullopt;
  const StatePiece& piece = *std::prev(next);
  const std::uint64_t into = offset - piece.offset;
  if (into >= piece.bytes || bytes > piece.bytes - into) return std::nullopt;
  return static_cast<std::size_t>(next - table.begin()) - 1;
}

std::vector<std::optional<std::uint64_t>> match_pieces(const PieceTable& wanted,
                                                       const PieceTable& own) {
  std::map<std::pair<Digest128, std::uint32_t>, std::uint64_t> places;
  for (const StatePiece& piece : own)
    places.emplace(std::pair(piece.digest, piece.bytes), piece.offset);
  std::vector<std::optional<std::uint64_t>> matched;
  matched.reserve(wanted.size());
  for (const StatePiece& piece : wanted) {
    const auto found = places.find({piece.digest, piece.bytes});
    matched.push_back(found == places.end() ? std::nullopt : std::optional(found->second));
  }
  return matched;
}

}  // namespace isthmus
