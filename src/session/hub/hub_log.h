// SPDX-License-Identifier: Apache-2.0
// What a hub has decided, on its disk before anybody is told: which start of a run it serves, who
// is there, which rounds are final, which steps were agreed on. A hub's next process goes on from
// there. One file, FOLDER/hub.log:
//
//   8 bytes "ISTHHUB\n" | version u32 | 0 u32 | records
//   record: body bytes u32 | kind u32 | CRC-32C of these eight u32 | CRC-32C of the body u32 | body
//
// A tail that a crash has cut off in the middle of a record counts as never written: nobody has
// been told of it. Anything else that does not fit is an error with its offset. Integers are little
// endian.
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
    std::vector<std::pair<std::string, std::string>> common;  // (what, value) alike at all sites
  };
  std::optional<Session> session;  // nothing: no run, or one that has ended
  std::vector<HubRecord> history;
  std::vector<AgreedNote> agreed;
  std::size_t whole_bytes = 0;  // of the file; what follows was not written to its end
};
/// Pure. RETURNS: where the bytes are no log, and why.
[[nodiscard]] Expected<HubLogContents, std::string> read_hub_log(std::span<const std::byte> bytes);

class HubLog {
 public:
  /// Reads what is there. Borrows `storage`. THROWS: SystemError naming file, offset and remedy.
  HubLog(Storage& storage, std::filesystem::path folder);

  /// As the file was when it was opened.
  [[nodiscard]] const HubLogContents& contents() const { return contents_; }

  /// What has been agreed on, the latest of it at least; for the task that appends it.
  [[nodiscard]] const std::vector<AgreedNote>& agreed() const { return agreed_; }

  // Any task; each returns once it is on the disk. THROWS: SystemError, after which nothing more
  // may be told.
  /// A run begins: what was there is replaced.
  void begin(const HubLogContents::Session& session);
  void append(std::span<const HubRecord> records);
  void append(const AgreedNote& note);
  /// The run has ended in order.
  void end();
  /// Leaves nothing but the session, `history` and what was agreed; atomically.
  void compact(std::span<const HubRecord> history);
  /// Whether that is worth it.
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
  std::size_t bytes_ = 0;               // since it was last written anew
};

}  // namespace isthmus::app
