// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_member_keys.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "core/base/check.h"

namespace isthmus {

LinkMemberKeys::LinkMemberKeys(LinkPeers& all, LinkStrangers& strangers,
                               LinkConnections& connections, LinkPresence& presence)
    : all_(all),
      strangers_(strangers),
      connections_(connections),
      presence_(presence),
      file_keys_(all.options.member_keys) {
  if (may_come()) {
    MemberOptions& options = all_.options;
    for (int member = 0; member < options.members; ++member) {
      if (WorkerId(member) != options.self && WorkerId(member) != *options.keys_from) {
        options.member_keys[static_cast<std::size_t>(member)].clear();
      }
    }
  }
}

void LinkMemberKeys::set(const KeyTable& table) {
  ISTHMUS_CHECK(all_.options.keys_from == all_.options.self, all_.options.self.value());
  if (version_ == table.version) return;
  version_ = table.version;
  use(table.members);
  for (const WorkerId rank : all_.living()) say(rank);
}

void LinkMemberKeys::take(WorkerId from, std::span<const std::byte> body) {
  const MemberOptions& options = all_.options;
  if (!options.keys_from || from != *options.keys_from || from == options.self) return;
  const auto table = read_key_table(body, options.members);
  if (!table) {
    strangers_.sent(table.error().what);
    return;
  }
  if (version_ && table->version <= *version_) return;  // said again, or overtaken
  version_ = table->version;
  std::vector<std::string> keys = table->members;
  for (std::size_t member = 0; member < keys.size(); ++member) {
    const std::string& known = file_keys_[member];
    if (!known.empty() && !keys[member].empty() && keys[member] != known) {
      strangers_.sent(fmt::format("another key for member {} than the configuration has", member));
      keys[member].clear();
    }
  }
  // The announcing member's own link stands, and a member without a key would not be asked.
  for (const WorkerId rank : {from, options.self}) {
    keys[static_cast<std::size_t>(rank.value())] =
        options.member_keys[static_cast<std::size_t>(rank.value())];
  }
  use(keys);
}

void LinkMemberKeys::use(const std::vector<std::string>& keys) {
  all_.port.keys_changed(keys);  // before anybody is dialled anew
  for (std::size_t member = 0; member < keys.size(); ++member) {
    if (all_.options.member_keys[member] != keys[member]) {
      change(WorkerId(static_cast<int>(member)), keys[member]);
    }
  }
}

void LinkMemberKeys::change(WorkerId rank, const std::string& key) {
  std::string& known = all_.options.member_keys[static_cast<std::size_t>(rank.value())];
  const bool had_one = !std::exchange(known, key).empty();
  if (rank == all_.options.self) return;
  if (had_one) {
    presence_.lose(rank, LinkEvent::Kind::kLost, "its key counts no more");
    connections_.forget_all(rank);
  }
  presence_.may_join_again(rank);
  if (key.empty()) {
    all_.port.hang_up(rank);
  } else if (all_.at(rank).lost) {
    begin_anew(rank);
    presence_.begin_anew(rank);
  } else {
    all_.port.dial_again(rank);
  }
}

void LinkMemberKeys::say(WorkerId rank) {
  if (all_.options.keys_from != all_.options.self || !version_) return;
  const LinkPeer::Accepted& accepted = all_.at(rank).accepted;
  const ConnectionId& id = accepted.ids[accepted.last];
  if (id.empty()) return;
  all_.port.to_connection(
      id, {.kind = LinkKind::kKeys, .stream = accepted.last},
      std::make_shared<const std::vector<std::byte>>(write_key_table(
          {.version = *version_, .members = all_.options.member_keys, .guests = {}})));
}

void LinkMemberKeys::begin_anew(WorkerId rank) {
  if (all_.options.keys_from == rank && version_) version_ = 0;
}

}  // namespace isthmus
