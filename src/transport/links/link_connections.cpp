// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_connections.h"

#include <fmt/format.h>

#include <memory>

namespace isthmus {

LinkConnections::Connection* LinkConnections::find(const ConnectionId& id) {
  const auto found = connections_.find(id);
  return found == connections_.end() ? nullptr : &found->second;
}

void LinkConnections::accept(const ConnectionId& id, WorkerId peer, std::uint32_t stream) {
  LinkPeer::Accepted& accepted = all_.at(peer).accepted;
  forget(id);
  forget(ConnectionId(accepted.ids[stream]));
  accepted.ids[stream] = id;
  accepted.last = stream;
  connections_[id] = {.peer = peer, .stream = stream, .received = 0};
}

void LinkConnections::forget(const ConnectionId& id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) {
    return;
  }
  const Connection& connection = found->second;
  if (ConnectionId& place = all_.at(connection.peer).accepted.ids[connection.stream]; place == id) {
    place.clear();
  }
  connections_.erase(found);
}

void LinkConnections::forget_all(WorkerId peer) {
  for (const ConnectionId& id : std::vector<ConnectionId>(all_.at(peer).accepted.ids)) forget(id);
}

void LinkConnections::refuse(const ConnectionId& id, const Refusal& refusal, std::uint32_t stream) {
  all_.port.to_connection(id, {.kind = LinkKind::kRefuse, .stream = stream},
                          std::make_shared<const std::vector<std::byte>>(write_refusal(refusal)));
}

void LinkConnections::give_up_on(WorkerId peer, const char* why) {
  std::uint32_t stream = 0;
  for (const ConnectionId& id : all_.at(peer).accepted.ids) {
    if (!id.empty()) {
      refuse(id,
             {RefusedField::kGivenUp, fmt::format("member {} {}", all_.options.self.value(), why)},
             stream);
    }
    ++stream;
  }
}

void LinkConnections::say(WorkerId peer, LinkKind kind, std::uint64_t number) {
  std::uint32_t stream = 0;
  for (const ConnectionId& id : all_.at(peer).accepted.ids) {
    if (!id.empty()) {
      all_.port.to_connection(id, {.kind = kind, .stream = stream, .number = number}, nullptr);
    }
    ++stream;
  }
}

void LinkConnections::acknowledge(WorkerId rank) {
  LinkPeer& peer = all_.at(rank);
  const ConnectionId& id = peer.accepted.ids[peer.accepted.last];
  if (id.empty()) {
    return;  // the next heartbeat acknowledges
  }
  peer.in.acknowledged();
  all_.port.to_connection(
      id, {.kind = LinkKind::kAck, .stream = peer.accepted.last, .number = peer.in.taken_frames()},
      nullptr);
}

}  // namespace isthmus
