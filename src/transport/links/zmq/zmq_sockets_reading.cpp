// SPDX-License-Identifier: Apache-2.0
// What comes in by the sockets of a member, and what becomes of its connections.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "transport/links/tcp/tcp_connection.h"
#include "transport/links/tcp/tcp_socket.h"
#include "transport/links/zmq/tcp_counters.h"
#include "transport/links/zmq/zmq_messages.h"
#include "transport/links/zmq/zmq_sockets_state.h"

namespace isthmus {
namespace {

constexpr int kMessagesPerTurn = 64;  // of one socket, before the others have theirs; or DATA

HandshakeFault fault_of(const News& news) {
  if (news.kind == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) return HandshakeFault::kKeyRefused;
  if (news.kind == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) return HandshakeFault::kHungUp;
  return news.value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH ? HandshakeFault::kMechanism
         : news.value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC    ? HandshakeFault::kWrongAddress
                                                                  : HandshakeFault::kOther;
}

}  // namespace

void ZmqSockets::State::take_news(LinkEngine& engine, WorkerId peer, int stream, Watched& link,
                                  const std::function<TimePoint()>& now) {
  if (!link.news.readable()) return;
  link.news.touch();
  while (const auto news = next_event(link.monitor)) {
    if (news->kind == ZMQ_EVENT_CONNECTED) {
      link.descriptor = static_cast<int>(news->value);
    } else if (news->kind == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      tune(link, peer);
      // Lets the socket take in that there is a connection: else it would not take the greeting.
      link.ready.ask(link.socket);
      link.stands = true;
      engine.stream_up(peer, stream, now());
    } else if (news->kind == ZMQ_EVENT_DISCONNECTED) {  // also after a handshake that failed
      link.descriptor = -1;
      link.batch.clear();  // the engine sends it again
      if (std::exchange(link.stands, false)) {
        engine.stream_down(peer, stream, now(), "disconnected");
      }
    } else if (news->kind == ZMQ_EVENT_CONNECT_RETRIED) {
      engine.stream_trouble(peer, stream, LinkEvent::Kind::kRetried, "no connection, trying again");
    } else if ((news->kind & kHandshakeFailed) != 0) {
      engine.handshake_failed(peer, stream, fault_of(*news));
      if (news->kind != ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) link.ended = now();
    }
  }
}

void ZmqSockets::State::take_news_beside(TimePoint now) {
  for (auto& [peer, each] : beside) {
    Watched& link = *each.link;
    link.news.touch();
    while (const auto news = next_event(link.monitor)) {
      if (news->kind == ZMQ_EVENT_CONNECTED) {
        link.descriptor = static_cast<int>(news->value);
      } else if (news->kind == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
        link.stands = true;
        each.stands_since = now;
      } else if (news->kind == ZMQ_EVENT_DISCONNECTED) {
        link.descriptor = -1;
        link.stands = false;
        each.stands_since.reset();
      } else if ((news->kind & kHandshakeFailed) != 0 &&
                 news->kind != ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) {
        link.ended = now;
      }
    }
    if (link.ended && now - *link.ended >= kRedialAfter && may_dial(WorkerId(peer))) {
      each.stands_since.reset();
      redial(each.link, WorkerId(peer), each.address, true, now);
    }
  }
}

void ZmqSockets::State::take_news_of_accepted(LinkEngine& engine) {
  if (!router->news.readable()) return;
  router->news.touch();
  while (const auto news = next_event(router->monitor)) {
    if ((news->kind & kHandshakeFailed) != 0) {
      engine.stranger_handshake(fault_of(*news), endpoint);
    } else if (news->kind == ZMQ_EVENT_DISCONNECTED) {
      // Its file may be another one's soon; a connection that has it already tells so again.
      opened.erase(static_cast<int>(news->value));
    }
  }
}

void ZmqSockets::State::hear_guest(const std::string& guest,
                                   const std::vector<zmq::message_t>& parts, TimePoint now) {
  constexpr Duration kBetween = std::chrono::seconds(1);
  if (!options.on_enrol || parts.size() != 3) return;
  const auto header = parse_link_message(message_bytes(parts[1]), message_bytes(parts[2]));
  if (!header || header->kind != LinkKind::kEnrol) return;
  std::erase_if(guests, [&](const auto& each) {  // who is none any more
    return each.second.request.empty() && now >= each.second.next;
  });
  const auto [entry, fresh] = guests.try_emplace(guest);
  if (!fresh && now < entry->second.next) return;
  const std::span<const std::byte> request = message_bytes(parts[2]);
  entry->second = {.connection = parts[0].to_string(),
                   .request = {request.begin(), request.end()},
                   .next = now + kBetween};
}

void ZmqSockets::State::note_key(const std::string& key, zmq::message_t& message) {
  const int file = zmq_msg_get(message.handle(), ZMQ_SRCFD);
  if (file >= 0) opened[file] = key;
}

// Bytes that are no whole DATA end the row; the engine gets them as a message without a header,
// which it counts as a stranger's.
int ZmqSockets::State::take_row(LinkEngine& engine, std::vector<zmq::message_t>& parts,
                                TimePoint now, std::optional<WorkerId> owner) {
  const std::string id = parts[0].to_string();
  const auto message = std::make_shared<const zmq::message_t>(std::move(parts[2]));
  std::span<const std::byte> rest = message_bytes(*message);
  int taken = 0;
  for (; taken == 0 || !rest.empty(); ++taken) {
    const auto piece = taken < static_cast<int>(ZmqBatch::kMost) ? next_data(rest) : std::nullopt;
    if (!piece) {
      engine.from_connection(id, {}, {}, now, owner);
      return taken + 1;
    }
    engine.from_connection(id, piece->header, piece->body, now, owner,
                           kept_piece(message, piece->body));
  }
  return taken;
}

void ZmqSockets::wait(LinkEngine& engine, Duration at_most) {
  send_batches();
  if (!state_->router->watched) {  // read from now on
    state_->router->watch(kHandshakeFailed | ZMQ_EVENT_DISCONNECTED);
  }
  std::vector<std::pair<zmq::socket_t*, ZmqPolled*>> asked;
  std::vector<Waited> waited;
  bool some_ready = false;
  const auto add = [&](zmq::socket_t& socket, ZmqPolled& polled, bool writes = false) {
    if (polled.touched()) polled.ask(socket);
    some_ready = some_ready || polled.readable() || (writes && polled.writable());
    asked.emplace_back(&socket, &polled);
    waited.push_back({.descriptor = polled.descriptor(), .to_read = true});
  };
  add(state_->wake_out, state_->woken);
  add(state_->router->socket, state_->router->ready);
  add(state_->router->monitor, state_->router->news);
  if (state_->admission) add(state_->admission->socket(), state_->admission->polled());
  std::vector<std::pair<WorkerId, int>> want;
  state_->for_each_dialled([&](WorkerId peer, int stream, Watched& dialled) {
    const bool writes = engine.wants_write(peer, stream);
    if (writes) want.emplace_back(peer, stream);
    add(dialled.socket, dialled.ready, writes || !dialled.batch.empty());
    add(dialled.monitor, dialled.news);
  });
  for (const auto& [peer, each] : state_->beside) add(each.link->monitor, each.link->news);
  wait_for_any(waited, some_ready ? 0 : std::max(in_seconds(at_most), 0.0));
  for (std::size_t i = 0; i < waited.size(); ++i) {
    if (waited[i].ready) asked[i].second->ask(*asked[i].first);
  }
  for (const auto& [peer, stream] : want) {
    const auto& links = state_->dialled[static_cast<std::size_t>(peer.value())];
    if (links[static_cast<std::size_t>(stream)]->ready.writable()) engine.writable(peer, stream);
  }
  if (state_->woken.readable()) {
    state_->woken.touch();
    while (next_message(state_->wake_out)) {
    }
  }
}

void ZmqSockets::read(LinkEngine& engine, const std::function<TimePoint()>& now) {
  send_batches();
  if (state_->admission) {
    state_->admission->answer(now(), [&](const std::string& key) { engine.stranger_key(key); });
  }
  state_->for_each_dialled([&](WorkerId peer, int stream, Watched& dialled) {
    state_->take_news(engine, peer, stream, dialled, now);
    if (!dialled.ready.readable()) return;
    dialled.ready.touch();
    for (int i = 0; i < kMessagesPerTurn; ++i) {
      const auto parts = next_message(dialled.socket);
      if (!parts) break;
      if (parts->size() == 2) {
        engine.from_stream(peer, message_bytes((*parts)[0]), message_bytes((*parts)[1]), now());
      }
    }
    // Once more: an acknowledgement sends frames, which asks the socket, and the look for a further
    // message then takes in, unseen, that the connection has room again.
    dialled.ready.touch();
  });
  state_->dial_ended_again(now());
  state_->take_news_beside(now());
  state_->take_news_of_accepted(engine);
  Watched& router = *state_->router;
  const int most = router.ready.readable() ? kMessagesPerTurn : 0;
  if (most > 0) router.ready.touch();
  for (int i = 0; i < most; ++i) {
    auto parts = next_message(router.socket);
    if (!parts) break;
    const bool whole = parts->size() == 3;  // else it stays without a header, and is refused
    std::optional<WorkerId> owner;
    if (state_->admission) {
      const std::string key = ZmqAdmission::key_of(parts->back());
      owner = state_->admission->owner_of(key);
      const bool guest = !owner && state_->admission->is_guest(key);
      if (state_->options.keys_from) state_->note_key(key, parts->back());
      if (!owner && !guest && state_->options.keys_from) {
        state_->end_uncounted();
        continue;
      }
      if (guest) {
        state_->hear_guest(key, *parts, now());
        continue;
      }
    }
    if (whole && (*parts)[1].size() == 0) {
      i += state_->take_row(engine, *parts, now(), owner) - 1;
      continue;
    }
    const std::span<const std::byte> none;
    FrameBytes kept = whole ? kept_message((*parts)[2]) : nullptr;
    const std::span<const std::byte> body = kept    ? *kept
                                            : whole ? message_bytes((*parts)[2])
                                                    : none;
    engine.from_connection((*parts)[0].to_string(), whole ? message_bytes((*parts)[1]) : none, body,
                           now(), owner, std::move(kept));
  }
  answer_guests();
}

void ZmqSockets::answer_guests() {
  for (auto& [key, guest] : state_->guests) {
    if (guest.request.empty()) continue;
    const EnrolAnswer answer = state_->options.on_enrol(key, guest.request);
    if (!answer.welcome && answer.why.empty()) continue;  // not yet
    guest.request.clear();
    const Refusal refusal{RefusedField::kKey, answer.why};
    to_connection(
        guest.connection, {.kind = answer.welcome ? LinkKind::kWelcome : LinkKind::kRefuse},
        std::make_shared<const std::vector<std::byte>>(answer.welcome ? std::vector<std::byte>()
                                                                      : write_refusal(refusal)));
  }
}

std::optional<LinkCounters> ZmqSockets::counters(WorkerId peer, int streams, int in_use) const {
  const auto& links = state_->dialled[static_cast<std::size_t>(peer.value())];
  if (links.size() < static_cast<std::size_t>(streams)) return std::nullopt;
  LinkCounters all;
  for (int k = 0; k < streams; ++k) {
    const Watched& each = *links[static_cast<std::size_t>(k)];
    const auto counted = each.stands ? tcp_counters(each.descriptor) : std::nullopt;
    if (!counted) return std::nullopt;  // sums over fewer than before would mislead
    all.segments += counted->segments;
    all.retransmits += counted->retransmits;
    all.busy += counted->busy;
    all.congestion = counted->congestion;
    if (k < in_use) all.rtt += counted->rtt / std::min(streams, in_use);
  }
  return all;
}

std::vector<std::optional<LinkCounters>> ZmqSockets::each_counter(WorkerId peer) const {
  std::vector<std::optional<LinkCounters>> all;
  for (const auto& each : state_->dialled[static_cast<std::size_t>(peer.value())]) {
    all.push_back(each->stands ? tcp_counters(each->descriptor) : std::nullopt);
  }
  return all;
}

}  // namespace isthmus
