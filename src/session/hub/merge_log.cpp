// SPDX-License-Identifier: Apache-2.0
#include "session/hub/merge_log.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "isthmus/errors.h"
#include "transport/wire/byte_fields.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kMergeLogMagic = "ISTHMRG\n";
constexpr std::uint32_t kMergeLogVersion = 1;
constexpr std::size_t kMergeLogHead = 16, kMergeRecordHead = 24, kLongestSession = 256;

std::vector<std::byte> merge_log_head(const std::string& session) {
  std::vector<std::byte> head(kMergeLogHead + session.size());
  FieldWriter out(head);
  out.put_text(kMergeLogMagic);
  out.put(kMergeLogVersion);
  out.put(static_cast<std::uint32_t>(session.size()));
  out.put_text(session);
  return head;
}

std::vector<std::byte> record_head(std::int64_t number, std::span<const std::byte> body) {
  std::vector<std::byte> head(kMergeRecordHead);
  FieldWriter out(head);
  out.put(static_cast<std::uint64_t>(body.size()));
  out.put(static_cast<std::uint64_t>(number));
  out.put(crc32c(std::span(head).first(16)));
  out.put(crc32c(body));
  return head;
}

}  // namespace

Expected<MergeLogPlaces, std::string> read_merge_log(std::span<const std::byte> bytes) {
  const auto no = [](std::size_t at, const std::string& why) {
    return Unexpected<std::string>(fmt::format("at byte {}: {}", at, why));
  };
  MergeLogPlaces places;
  if (bytes.size() < kMergeLogHead) return no(0, "no log of merges of this version");
  FieldReader head(bytes);
  const bool known = head.get_text(kMergeLogMagic.size()) == kMergeLogMagic &&
                     head.get<std::uint32_t>() == kMergeLogVersion;
  const auto name = std::size_t{head.get<std::uint32_t>()};
  if (!known || name > kLongestSession || name > bytes.size() - kMergeLogHead) {
    return no(0, "no log of merges of this version");
  }
  places.session = head.get_text(name);
  std::size_t at = kMergeLogHead + name;
  while (bytes.size() - at >= kMergeRecordHead) {
    const std::span<const std::byte> rest = bytes.subspan(at);
    if (std::ranges::all_of(rest.first(kMergeRecordHead),
                            [](std::byte b) { return b == std::byte{0}; })) {
      break;  // the file had grown, its bytes had not been written
    }
    FieldReader in(rest);
    const auto size = in.get<std::uint64_t>();
    const auto number = static_cast<std::int64_t>(in.get<std::uint64_t>());
    if (in.get<std::uint32_t>() != crc32c(rest.first(16))) return no(at, "a damaged record");
    const auto sum = in.get<std::uint32_t>();
    if (rest.size() - kMergeRecordHead < size) break;
    const std::span<const std::byte> body = rest.subspan(kMergeRecordHead, size);
    if (sum != crc32c(body)) {
      if (rest.size() == kMergeRecordHead + size) break;
      return no(at, "a damaged record");
    }
    if (places.bodies.empty()) places.first = number;
    if (number < 1 || number != places.first + std::ssize(places.bodies)) {
      return no(at, fmt::format("merge {} in the place of merge {}", number,
                                places.first + std::ssize(places.bodies)));
    }
    places.bodies.emplace_back(at + kMergeRecordHead, size);
    at += kMergeRecordHead + size;
  }
  places.whole_bytes = at;
  return places;
}

MergeLog::MergeLog(Storage& storage, const std::filesystem::path& folder,
                   const std::string& session)
    : storage_(storage), path_(folder / "merges.log") {
  if (session.empty()) return;
  if (storage_.kind(path_) == FileKind::kAbsent) {
    begin(session);
    return;
  }
  const MappedFile file = storage_.map(path_);
  auto places = read_merge_log(file.bytes());
  if (!places) {
    throw SystemError(fmt::format(
        "{}: {}; bring the file back from a copy, or remove it and hub.log: all sites then go on "
        "from the newest checkpoint that all of them have (--resume auto)",
        path_.string(), places.error()));
  }
  if (places->session != session) {  // the session had begun, and nothing was merged
    begin(session);
    return;
  }
  places_ = *std::move(places);
  if (places_.whole_bytes < file.bytes().size()) {
    write_atomically(storage_, path_, file.bytes().first(places_.whole_bytes));
  }
  file_ = storage_.append(path_);
}

void MergeLog::begin(const std::string& session) {
  const std::vector<std::byte> head = merge_log_head(session);
  const std::scoped_lock lock(mutex_);
  file_.reset();
  write_atomically(storage_, path_, std::span<const std::byte>(head));
  file_ = storage_.append(path_);
  places_ = {.session = session, .first = 0, .bodies = {}, .whole_bytes = head.size()};
}

std::int64_t MergeLog::first() const {
  const std::scoped_lock lock(mutex_);
  return places_.first;
}

std::int64_t MergeLog::last() const {
  const std::scoped_lock lock(mutex_);
  return places_.bodies.empty() ? 0 : places_.first + std::ssize(places_.bodies) - 1;
}

void MergeLog::append(std::int64_t number, std::span<const std::byte> merge) {
  const std::vector<std::byte> head = record_head(number, merge);
  const std::scoped_lock lock(mutex_);
  if (!file_) {
    throw SystemError(path_.string() +
                      ": nothing can be written: no run has begun, or a write before has failed");
  }
  ISTHMUS_CHECK(places_.bodies.empty() || number == places_.first + std::ssize(places_.bodies),
                number);
  try {
    file_->append(head);
    file_->append(merge);
    file_->sync();
  } catch (...) {
    file_.reset();  // nothing may follow a record that was written in part
    throw;
  }
  if (places_.bodies.empty()) places_.first = number;
  places_.bodies.emplace_back(places_.whole_bytes + head.size(), merge.size());
  places_.whole_bytes += head.size() + merge.size();
}

std::vector<std::byte> MergeLog::read(std::int64_t number) const {
  const std::scoped_lock lock(mutex_);
  const std::int64_t place = number - places_.first;
  ISTHMUS_CHECK(place >= 0 && place < std::ssize(places_.bodies), number, places_.first);
  const auto [offset, size] = places_.bodies[static_cast<std::size_t>(place)];
  const MappedFile file = storage_.map(path_);
  if (file.bytes().size() < offset + size) {
    throw SystemError(fmt::format("{}: it was cut off while the hub ran: merge {} is missing",
                                  path_.string(), number));
  }
  const std::span<const std::byte> body = file.bytes().subspan(offset, size);
  return {body.begin(), body.end()};
}

}  // namespace isthmus::app
