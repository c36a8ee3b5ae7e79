// SPDX-License-Identifier: Apache-2.0
#include "session/hub/hub_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/hash.h"
#include "core/base/json_input.h"
#include "isthmus/errors.h"
#include "transport/exchange/membership.h"
#include "transport/wire/byte_fields.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kHubLogMagic = "ISTHHUB\n";
constexpr std::uint32_t kHubLogVersion = 1;
constexpr std::size_t kFileHead = 16, kRecordHead = 16;
constexpr std::size_t kLongestBody = std::size_t{16} << 20;
constexpr std::size_t kGrown = std::size_t{1} << 20;
constexpr std::size_t kAgreedKept = 64;  // steps of long ago are behind every site

// Of records; the first two are HubRecord's.
constexpr std::uint32_t kSessionRecord = 16, kAgreedRecord = 17, kEndRecord = 18;

void put_record(std::uint32_t kind, std::span<const std::byte> body, std::vector<std::byte>& out) {
  std::vector<std::byte> head(kRecordHead);
  FieldWriter writer(head);
  writer.put(static_cast<std::uint32_t>(body.size()));
  writer.put(kind);
  writer.put(crc32c(std::span(head).first(8)));
  writer.put(crc32c(body));
  out.insert(out.end(), head.begin(), head.end());
  out.insert(out.end(), body.begin(), body.end());
}

void put_json(std::uint32_t kind, const nlohmann::json& json, std::vector<std::byte>& out) {
  const std::vector<std::uint8_t> bytes = nlohmann::json::to_cbor(json);
  put_record(kind, std::as_bytes(std::span(bytes)), out);
}

void put_session(const HubLogContents::Session& session, std::vector<std::byte>& out) {
  nlohmann::json common = nlohmann::json::array();
  for (const auto& [what, value] : session.common) common.push_back({what, value});
  put_json(kSessionRecord, {session.id, session.run_id, session.sites, std::move(common)}, out);
}

void put_agreed(const AgreedNote& note, std::vector<std::byte>& out) {
  put_json(kAgreedRecord, {note.number, static_cast<int>(note.purpose), note.step.value()}, out);
}

std::vector<std::byte> file_head() {
  std::vector<std::byte> head(kFileHead);
  FieldWriter writer(head);
  writer.put_text(kHubLogMagic);
  writer.put(kHubLogVersion);
  writer.put(std::uint32_t{0});
  return head;
}

/// Takes one record. THROWS: why the record's body is not valid.
void take(std::uint32_t kind, std::span<const std::byte> body, HubLogContents& contents) {
  const auto expect = [](bool fits, const std::string& why) {
    if (!fits) throw RunError(why);
  };
  if (kind == kSessionRecord) {
    const nlohmann::json json = parse_cbor(body, "session");
    contents = {};
    contents.session = {.id = json.at(0).get<std::string>(),
                        .run_id = json.at(1).get<std::string>(),
                        .sites = whole_number<int>(json.at(2)),
                        .common = {}};
    for (const auto& each : json.at(3)) {
      contents.session->common.emplace_back(each.at(0).get<std::string>(),
                                            each.at(1).get<std::string>());
    }
    expect(contents.session->sites >= 1 && contents.session->sites <= 4096, "so many sites");
    return;
  }
  expect(contents.session.has_value(), "a record before the run it is of");
  if (kind == kEndRecord) {
    contents = {};
  } else if (kind == kAgreedRecord) {
    const nlohmann::json json = parse_cbor(body, "agreed");
    const int purpose = whole_number<int>(json.at(1));
    expect(purpose >= 0 && purpose <= static_cast<int>(Purpose::kWait), "an unknown purpose");
    contents.agreed.push_back({.number = whole_number<std::int64_t>(json.at(0)),
                               .purpose = static_cast<Purpose>(purpose),
                               .step = StepIndex(whole_number<std::int64_t>(json.at(2)))});
  } else {
    HubRecord record{.kind = static_cast<HubRecord::Kind>(kind),
                     .body = {body.begin(), body.end()}};
    if (record.kind == HubRecord::Kind::kEpoch) {
      const auto news = EpochNews::read(body, contents.session->sites);
      expect(news.has_value(), news ? "" : news.error());
    } else {
      expect(record.kind == HubRecord::Kind::kCommit, fmt::format("kind {}", kind));
      const auto commit = read_commit(record);
      expect(commit.has_value(), commit ? "" : commit.error());
    }
    contents.history.push_back(std::move(record));
  }
}

}  // namespace

Expected<HubLogContents, std::string> read_hub_log(std::span<const std::byte> bytes) {
  const auto no = [](std::size_t at, const std::string& why) {
    return Unexpected<std::string>(fmt::format("at byte {}: {}", at, why));
  };
  HubLogContents contents;
  const std::vector<std::byte> head = file_head();
  const std::size_t known = std::min(bytes.size(), head.size());
  if (!std::ranges::equal(bytes.first(known), std::span(head).first(known))) {
    return no(0, "no hub log of this version");
  }
  if (bytes.size() < kFileHead) {
    return contents;
  }
  std::size_t at = kFileHead;
  while (bytes.size() - at >= kRecordHead) {
    const std::span<const std::byte> rest = bytes.subspan(at);
    if (std::ranges::all_of(rest, [](std::byte b) { return b == std::byte{0}; })) {
      break;  // the file had grown, its bytes had not been written
    }
    FieldReader reader(rest);
    const auto size = std::size_t{reader.get<std::uint32_t>()};
    const auto kind = reader.get<std::uint32_t>();
    if (reader.get<std::uint32_t>() != crc32c(rest.first(8)) || size > kLongestBody) {
      return no(at, "a damaged record");
    }
    const auto sum = reader.get<std::uint32_t>();
    if (rest.size() - kRecordHead < size) {
      break;
    }
    const std::span<const std::byte> body = rest.subspan(kRecordHead, size);
    const bool last = rest.size() == kRecordHead + size;
    if (sum != crc32c(body)) {
      if (last) break;
      return no(at, "a damaged record");
    }
    try {
      take(kind, body, contents);
    } catch (const std::exception& error) {
      return no(at, fmt::format("a record that cannot be: {}", error.what()));
    }
    at += kRecordHead + size;
  }
  contents.whole_bytes = at;
  return contents;
}

HubLog::HubLog(Storage& storage, std::filesystem::path folder)
    : storage_(storage), path_(std::move(folder) / "hub.log") {
  if (storage_.kind(path_) == FileKind::kAbsent) {
    return;
  }
  auto contents = read_hub_log(storage_.read(path_));
  if (!contents) {
    throw SystemError(fmt::format(
        "{}: {}; bring the file back from a copy, or remove it: all sites then go on from the "
        "newest checkpoint that all of them have (--resume auto)",
        path_.string(), contents.error()));
  }
  contents_ = *std::move(contents);
  session_ = contents_.session;
  agreed_ = contents_.agreed;
  if (session_) {
    replace(contents_.history);
    bytes_ = contents_.whole_bytes;  // a later `compact` knows which records are over
  }
}

void HubLog::begin(const HubLogContents::Session& session) {
  const std::scoped_lock lock(mutex_);
  session_ = session;
  agreed_.clear();
  replace({});
}

void HubLog::append(std::span<const HubRecord> records) {
  std::vector<std::byte> bytes;
  for (const HubRecord& record : records) {
    put_record(static_cast<std::uint32_t>(record.kind), record.body, bytes);
  }
  const std::scoped_lock lock(mutex_);
  write(bytes);
}

void HubLog::append(const AgreedNote& note) {
  std::vector<std::byte> bytes;
  put_agreed(note, bytes);
  const std::scoped_lock lock(mutex_);
  agreed_.push_back(note);
  write(bytes);
}

void HubLog::end() {
  std::vector<std::byte> bytes;
  put_record(kEndRecord, {}, bytes);
  const std::scoped_lock lock(mutex_);
  write(bytes);
  file_.reset();
}

void HubLog::compact(std::span<const HubRecord> history) {
  const std::scoped_lock lock(mutex_);
  replace(history);
}

bool HubLog::has_grown() const {
  const std::scoped_lock lock(mutex_);
  return bytes_ > kGrown;
}

void HubLog::write(std::span<const std::byte> bytes) {
  if (!file_) {
    throw SystemError(path_.string() +
                      ": nothing can be written: no run has begun, or a write before has failed");
  }
  try {
    file_->append(bytes);
    file_->sync();
  } catch (...) {
    file_.reset();  // nothing may follow a record that was written in part
    throw;
  }
  bytes_ += bytes.size();
}

void HubLog::replace(std::span<const HubRecord> history) {
  std::vector<std::byte> bytes = file_head();
  put_session(*session_, bytes);
  for (const HubRecord& record : history) {
    put_record(static_cast<std::uint32_t>(record.kind), record.body, bytes);
  }
  if (agreed_.size() > kAgreedKept) {
    agreed_.erase(agreed_.begin(), agreed_.end() - static_cast<std::ptrdiff_t>(kAgreedKept));
  }
  for (const AgreedNote& note : agreed_) put_agreed(note, bytes);
  file_.reset();
  write_atomically(storage_, path_, std::span<const std::byte>(bytes));
  file_ = storage_.append(path_);
  bytes_ = 0;
}

}  // namespace isthmus::app
