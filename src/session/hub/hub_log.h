// SPDX-License-Identifier: Apache-2.0
// A hub's decisions, on disk before any site is told: the start of the run, the membership, the
// final rounds, the agreed steps. A hub's next process continues from them. One file,
// FOLDER/hub.log:
//
//   8 bytes "ISTHHUB\n" | version u32 | 0 u32 | records
//   record: body bytes u32 | kind u32 | CRC-32C of these eight u32 | CRC-32C of the body u32 | body
//
// An incomplete last record, after a crash, counts as never written: no site was told of it. Any
// other damage is an error with its offset. Integers are little endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/storage.h"
#include "isthmus/expected.h"
#include "session/site/site_notes.h"
#include "transport/exchange/hub_record.h"

namespace isthmus::app {

struct HubLogContents {
  struct Session {
    std::string id;
    std::string run_id;
    int sites = 0;
    std::vector<std::pair<std::string, std::string>> common;  // (what, value) equal at all sites
  };
  std::optional<Session> session;  // nothing: no run, or one that has ended
  std::vector<HubRecord> history;
  std::vector<AgreedNote> agreed;
  std::size_t whole_bytes = 0;  // complete records; later bytes are an incomplete record
};
/// Pure. RETURNS: the offset and the reason if the bytes are no log.
[[nodiscard]] Expected<HubLogContents, std::string> read_hub_log(std::span<const std::byte> bytes);

class HubLog {
 public:
  /// Reads the file. Borrows `storage`. THROWS: SystemError naming file, offset and remedy.
  HubLog(Storage& storage, std::filesystem::path folder);

  /// The file's content when it was opened.
  [[nodiscard]] const HubLogContents& contents() const { return contents_; }

  /// Agreements, at least the latest; for the task that appends them.
  [[nodiscard]] const std::vector<AgreedNote>& agreed() const { return agreed_; }

  // Any task; each call returns once the data are on disk. THROWS: SystemError; no site may be told
  // anything after that.
  /// A run begins: replaces the content.
  void begin(const HubLogContents::Session& session);
  void append(std::span<const HubRecord> records);
  void append(const AgreedNote& note);
  /// The run has ended in order.
  void end();
  /// Rewrites the file with the session, `history` and the agreements only; atomically.
  void compact(std::span<const HubRecord> history);
  /// Whether compact() is worth it.
  [[nodiscard]] bool has_grown() const;

 private:
  void write(std::span<const std::byte> bytes);
  void replace(std::span<const HubRecord> history);

  Storage& storage_;
  const std::filesystem::path path_;
  HubLogContents contents_;
  mutable std::mutex mutex_;
  // Under mutex_:
  std::optional<HubLogContents::Session> session_;
  std::vector<AgreedNote> agreed_;
  std::unique_ptr<WritableFile> file_;  // null: no run, or a write has failed
  std::size_t bytes_ = 0;               // since it was last rewritten
};

}  // namespace isthmus::app
