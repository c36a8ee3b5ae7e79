// SPDX-License-Identifier: Apache-2.0
// The merges of a run (method decoupled) on the hub's disk, before any site is told: whose offers
// each holds, in the order in which they were made, and the mean. A hub's next process goes on
// after the last one, and a site that comes late gets those that it lacks. One file,
// FOLDER/merges.log:
//
//   8 bytes "ISTHMRG\n" | version u32 | n u32 | n bytes: the hub's session | records
//   record: body bytes u64 | number u64 | CRC-32C of these sixteen u32 | CRC-32C of the body u32 |
//           body: a merge (transport/wire/WIRE_FORMAT.md, "Merges")
//
// An incomplete last record, after a crash, counts as never written: no site was told of it. Any
// other damage is an error with its offset. A file of another session counts as empty. Integers are
// little endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/storage.h"
#include "isthmus/expected.h"
#include "transport/exchange/merges/merge_history.h"

namespace isthmus::app {

/// Where the bodies of the records lie, and where the whole records end.
struct MergeLogPlaces {
  std::string session;
  std::int64_t first = 0;                                       // number of the first record; or 0
  std::vector<std::pair<std::uint64_t, std::uint64_t>> bodies;  // offset, bytes
  std::uint64_t whole_bytes = 0;  // later bytes are of no whole record
};
/// Pure. RETURNS: the offset and the reason if the bytes are no log.
[[nodiscard]] Expected<MergeLogPlaces, std::string> read_merge_log(
    std::span<const std::byte> bytes);

/// Any task; one call at a time takes effect.
class MergeLog final : public MergeHistory {
 public:
  /// Reads the file. `session`: that of the hub's log; empty: none. Borrows `storage`. THROWS:
  /// SystemError naming file, offset and remedy.
  MergeLog(Storage& storage, const std::filesystem::path& folder, const std::string& session);

  /// A session begins: replaces the content. THROWS: SystemError.
  void begin(const std::string& session);

  [[nodiscard]] std::int64_t first() const override;
  [[nodiscard]] std::int64_t last() const override;
  void append(std::int64_t number, std::span<const std::byte> merge) override;
  [[nodiscard]] std::vector<std::byte> read(std::int64_t number) const override;

 private:
  Storage& storage_;
  const std::filesystem::path path_;
  mutable std::mutex mutex_;
  // Under mutex_:
  MergeLogPlaces places_;
  std::unique_ptr<WritableFile> file_;  // null: no session, or a write has failed
};

}  // namespace isthmus::app
