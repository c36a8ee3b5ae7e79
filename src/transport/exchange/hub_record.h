// SPDX-License-Identifier: Apache-2.0
// What a hub has decided about its rounds, as bytes for its log: written down before anybody is
// told, and given to the engine of the hub's next process (exchange_engine.h). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "isthmus/expected.h"
#include "isthmus/transport.h"

namespace isthmus {

struct HubRecord {
  enum class Kind : std::uint16_t {
    // fragment u32, step u64, digest: a round is final. Where shares move, those of its fragment's
    // next round follow, u32 a member.
    kCommit = 1,
    kEpoch = 2,  // EpochNews::write(): who is there
  };
  Kind kind = Kind::kCommit;
  std::vector<std::byte> body;
};

/// How far that is, as a hub has it written down, or a member been told.
struct Decided {
  std::uint32_t epoch = 0;
  std::vector<SyncId> newest = {};  // of each fragment, the last round that is final

  /// Fragments' rounds become final in order, so a log that lacks one of these lacks what was told.
  [[nodiscard]] bool includes(const Decided& other) const;
};

/// `shares`: as told with it, in their bytes; may be empty.
[[nodiscard]] HubRecord commit_record(const SyncId& id, const Digest128& digest,
                                      std::span<const std::byte> shares = {});
/// RETURNS: why the record's body is none.
[[nodiscard]] Expected<std::pair<SyncId, Digest128>, std::string> read_commit(
    const HubRecord& record);
/// What follows in one that has been read; borrows the record.
[[nodiscard]] std::span<const std::byte> shares_of_commit(const HubRecord& record);

}  // namespace isthmus
