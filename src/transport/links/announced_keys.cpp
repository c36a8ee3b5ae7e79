// SPDX-License-Identifier: Apache-2.0
#include "transport/links/announced_keys.h"

#include <utility>

namespace isthmus {

AnnouncedKeys::AnnouncedKeys(Runtime& runtime) : queue_(runtime.make_wait_queue()) {}

void AnnouncedKeys::set(std::vector<std::string> members) {
  queue_->update([&] {
    ++told_.version;
    told_.members = std::move(members);
  });
}

AnnouncedKeys::Told AnnouncedKeys::told() const {
  Told now;
  queue_->update([&] { now = told_; });
  return now;
}

std::uint64_t AnnouncedKeys::version() const {
  std::uint64_t now = 0;
  queue_->update([&] { now = told_.version; });
  return now;
}

std::vector<WorkerId> with_keys(const std::vector<std::string>& keys) {
  std::vector<WorkerId> these;
  for (std::size_t member = 0; member < keys.size(); ++member) {
    if (!keys[member].empty()) these.emplace_back(static_cast<int>(member));
  }
  return these;
}

std::shared_ptr<const AnnouncedKeys> told_keys_of(const NetworkTransport& transport) {
  const auto* hears = dynamic_cast<const HearsKeys*>(&transport);
  return hears == nullptr ? nullptr : hears->announced_keys();
}

std::string key_now(const AnnouncedKeys* told, const MemberOptions& options, WorkerId member) {
  const auto place = static_cast<std::size_t>(member.value());
  if (told != nullptr) {
    if (const AnnouncedKeys::Told now = told->told(); now.version > 0) return now.members.at(place);
  }
  return options.member_keys.at(place);
}

}  // namespace isthmus
