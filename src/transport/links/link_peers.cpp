// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/wire/frame.h"

namespace isthmus {

bool LinkPeer::is_former(const Digest128& incarnation) const {
  return std::ranges::find(process.superseded, incarnation) != process.superseded.end();
}

LinkPeers::LinkPeers(MemberOptions given, const Digest128& incarnation, LinkPort& the_port,
                     TimePoint began)
    : options(std::move(given)),
      hello{.protocol = kFrameVersion,
            .members = options.members,
            .from = options.self,
            .to = options.self,
            .streams = options.streams,
            .most_streams = options.most_streams,
            .run = options.identity.run,
            .configuration = options.identity.configuration,
            .layout = options.identity.layout,
            .incarnation = incarnation,
            .name = options.name},
      port(the_port),
      last_beat(began) {
  options.keys.reset();  // the public half is in member_keys
  if (hello.configuration.empty()) {
    hello.configuration = std::string(64, '0');
  }
  for (int member = 0; member < options.members; ++member) {
    peers.push_back(unknown());
  }
}

LinkPeer LinkPeers::unknown() const {
  LinkPeer peer(options.window_bytes);
  peer.dialled.streams.resize(static_cast<std::size_t>(options.streams));
  peer.dialled.use = peer.dialled.streams.size();
  peer.accepted.ids.resize(static_cast<std::size_t>(most_streams(options)));
  peer.accepted.next_greeting.resize(peer.accepted.ids.size());
  peer.life.answered = last_beat;
  return peer;
}

std::vector<WorkerId> LinkPeers::living() const {
  std::vector<WorkerId> result;
  for (int member = 0; member < options.members; ++member) {
    if (WorkerId(member) != options.self && !at(WorkerId(member)).lost) {
      result.push_back(WorkerId(member));
    }
  }
  return result;
}

std::string LinkPeers::describe(WorkerId rank) const {
  const auto place = static_cast<std::size_t>(rank.value());
  std::string name = at(rank).process.name;
  if (name.empty() && place < options.expected_names.size()) {
    name = options.expected_names[place];
  }
  return name.empty() ? fmt::format("member {}", rank.value())
                      : fmt::format("member {} ({})", rank.value(), name);
}

}  // namespace isthmus
