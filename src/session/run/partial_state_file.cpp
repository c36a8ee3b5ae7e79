// SPDX-License-Identifier: Apache-2.0
#include "session/run/partial_state_file.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "isthmus/errors.h"
#include "transport/wire/byte_fields.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kMagic = "ISTHPIEC";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeadBytes = 28;
constexpr std::size_t kRecordBytes = 20;  // before a piece's bytes

struct Record {
  Digest128 digest;
  std::span<const std::byte> bytes;
};
struct Contents {
  Digest128 table;
  std::vector<Record> records;
  bool whole = false;  // nothing is torn off at the end
};

Digest128 get_digest(FieldReader& in) {
  Digest128 digest;
  std::ranges::transform(in.get_bytes(digest.bytes.size()), digest.bytes.begin(),
                         std::to_integer<std::uint8_t>);
  return digest;
}

/// Views into `file`; a file that is none of ours has no records.
Contents read(std::span<const std::byte> file) {
  Contents contents;
  if (file.size() < kHeadBytes) return contents;
  FieldReader in(file);
  if (in.get_text(kMagic.size()) != kMagic || in.get<std::uint32_t>() != kVersion) return contents;
  contents.table = get_digest(in);
  std::size_t left = file.size() - kHeadBytes;
  while (left >= kRecordBytes) {
    const auto bytes = in.get<std::uint32_t>();
    const Digest128 digest = get_digest(in);
    left -= kRecordBytes;
    if (bytes == 0 || bytes > kMostPieceBytes || bytes > left) return contents;
    contents.records.push_back({.digest = digest, .bytes = in.get_bytes(bytes)});
    left -= bytes;
  }
  contents.whole = left == 0;
  return contents;
}

std::vector<std::byte> head_of(const Digest128& table) {
  std::vector<std::byte> bytes(kHeadBytes);
  FieldWriter out(bytes);
  out.put_text(kMagic);
  out.put(kVersion);
  out.put_bytes(std::as_bytes(std::span(table.bytes)));
  return bytes;
}

/// In one write, so that a kill seldom tears it.
std::vector<std::byte> record_of(const Digest128& digest, std::span<const std::byte> piece) {
  std::vector<std::byte> bytes(kRecordBytes + piece.size());
  FieldWriter out(bytes);
  out.put(static_cast<std::uint32_t>(piece.size()));
  out.put_bytes(std::as_bytes(std::span(digest.bytes)));
  out.put_bytes(piece);
  return bytes;
}

}  // namespace

PartialStateFile::Summary PartialStateFile::summary() const {
  Summary summary;
  try {
    if (storage_.kind(file_) != FileKind::kFile) return summary;
    const MappedFile file = storage_.map(file_);
    const Contents contents = read(file.bytes());
    summary.table = contents.table;
    for (const Record& record : contents.records) summary.bytes += record.bytes.size();
  } catch (const SystemError&) {  // `open` tells of it
    return {};
  }
  return summary;
}

void PartialStateFile::open(
    const PieceTable& table,
    const std::function<bool(std::size_t, std::span<const std::byte>)>& have) {
  const Digest128 digest = xxh3_128(write_table(table));
  std::multimap<std::pair<Digest128, std::size_t>, std::size_t> wanted;
  for (std::size_t k = 0; k < table.size(); ++k) {
    wanted.emplace(std::pair(table[k].digest, std::size_t{table[k].bytes}), k);
  }
  bool keeps = false;
  if (storage_.kind(file_) == FileKind::kFile) {
    const MappedFile file = storage_.map(file_);
    const Contents contents = read(file.bytes());
    std::vector<Record> right;
    for (const Record& record : contents.records) {
      const auto [begin, end] = wanted.equal_range(std::pair(record.digest, record.bytes.size()));
      bool taken = begin != end;
      for (auto place = begin; place != end; ++place) {
        taken = taken && have(place->second, record.bytes);
      }
      if (taken && there_.insert(record.digest).second) right.push_back(record);
    }
    keeps = contents.whole && contents.table == digest && right.size() == contents.records.size();
    if (!keeps && !right.empty()) {
      write_atomically(storage_, file_, [&](WritableFile& out) {
        out.append(head_of(digest));
        for (const Record& record : right) out.append(record_of(record.digest, record.bytes));
      });
      keeps = true;
    }
  } else {
    storage_.create_directories(file_.parent_path());
  }
  out_ = keeps ? storage_.append(file_) : storage_.create(file_);
  if (!keeps) out_->append(head_of(digest));
}

void PartialStateFile::add(const StatePiece& piece, std::span<const std::byte> bytes) {
  ISTHMUS_CHECK(out_ != nullptr, piece.offset);
  if (there_.insert(piece.digest).second) out_->append(record_of(piece.digest, bytes));
}

void PartialStateFile::remove() {
  out_.reset();
  there_.clear();
  storage_.remove_all(file_);
  storage_.remove_all(file_.parent_path() / kTemporaryFile);
}

}  // namespace isthmus::app
