// SPDX-License-Identifier: Apache-2.0
// A hub's decisions about its rounds, as bytes for its log. The hub writes each record before it
// tells any member; the engine of the next hub process reads them (exchange_engine.h). Pure.
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
    // fragment u32, step u64, digest: a round is final. An earlier program may have
    // added shares of the fragment's next round, u32 a member; they are passed over.
    kCommit = 1,
    kEpoch = 2,  // EpochNews::write(): the membership
  };
  Kind kind = Kind::kCommit;
  std::vector<std::byte> body;
};

/// The progress of a run's decisions, as a hub has them in its log or as a member was told.
struct Decided {
  std::uint32_t epoch = 0;
  std::vector<SyncId> newest = {};  // by fragment: the newest final round

  /// False when this log lacks a decision of `other`. The newest rounds suffice: the rounds of a
  /// fragment become final in order.
  [[nodiscard]] bool includes(const Decided& other) const;
};

[[nodiscard]] HubRecord commit_record(const SyncId& id, const Digest128& digest);
/// RETURNS: the reason if the record's body is not a commit. A record may end with shares of the
/// owners, one 32-bit number a member, which earlier programs wrote; they are passed over.
[[nodiscard]] Expected<std::pair<SyncId, Digest128>, std::string> read_commit(
    const HubRecord& record);

}  // namespace isthmus
