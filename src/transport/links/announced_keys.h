// SPDX-License-Identifier: Apache-2.0
// The valid keys as announced by a hub (MemberOptions::keys_from): written by a member's transport,
// read by the relay and the relayed links of the same process, which share it. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/links/network_transport.h"

namespace isthmus {

class AnnouncedKeys {
 public:
  explicit AnnouncedKeys(Runtime& runtime);

  /// By member; empty: not admitted.
  void set(std::vector<std::string> members);
  struct Told {
    std::uint64_t version = 0;  // grows with every `set`; 0: no announcement
    std::vector<std::string> members;
  };
  [[nodiscard]] Told told() const;
  [[nodiscard]] std::uint64_t version() const;

 private:
  std::unique_ptr<WaitQueue> queue_;
  Told told_;  // under queue_'s lock
};

/// Members that have a key in `keys`, by member.
[[nodiscard]] std::vector<WorkerId> with_keys(const std::vector<std::string>& keys);

/// A transport that receives announced keys.
class HearsKeys {
 public:
  virtual ~HearsKeys() = default;
  [[nodiscard]] virtual std::shared_ptr<const AnnouncedKeys> announced_keys() const = 0;
};
/// Of `transport`; null if it receives none.
[[nodiscard]] std::shared_ptr<const AnnouncedKeys> told_keys_of(const NetworkTransport& transport);

/// The key by which a relay and its callers know a member now: as announced, or else from the
/// options; empty: not announced yet. `told` may be null.
[[nodiscard]] std::string key_now(const AnnouncedKeys* told, const MemberOptions& options,
                                  WorkerId member);

}  // namespace isthmus
