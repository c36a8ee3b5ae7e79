// SPDX-License-Identifier: Apache-2.0
// With zmq_admission, zmq_watched and zmq_enrolment the files that know ZeroMQ. Options and their
// reasons: README.md.
#include "transport/links/zmq/zmq_sockets.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "core/base/check.h"
#include "isthmus/errors.h"
#include "transport/links/tcp/tcp_connection.h"
#include "transport/links/zmq/zmq_messages.h"
#include "transport/links/zmq/zmq_sockets_state.h"
#include "transport/links/zmq/zmq_transport.h"

namespace isthmus {
namespace {

constexpr int kQueuedFrames = 2;     // in ZeroMQ, each end of each connection
constexpr int kQueuedReplies = 256;  // to one connection; more are dropped
constexpr Duration kLastWords = std::chrono::milliseconds(250);
constexpr int kRetryMs = 50, kLongestRetryMs = 1000;

constexpr int kLinkEvents = kHandshakeFailed | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_CONNECTED |
                            ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CONNECT_RETRIED;

bool send_batch(Watched& link) {
  if (link.batch.empty()) return true;
  link.ready.touch();
  return link.batch.send(link.socket);
}

}  // namespace

ZmqSockets::ZmqSockets(const MemberOptions& options) : state_(std::make_unique<State>(options)) {
  state_->dialled.resize(static_cast<std::size_t>(options.members));
  state_->addresses.resize(static_cast<std::size_t>(options.members));
  if (options.keys) state_->admission.emplace(state_->context);
  state_->keys.resize(static_cast<std::size_t>(options.members));
  state_->around.resize(static_cast<std::size_t>(options.members));
  state_->wake_out.bind("inproc://wake");
  state_->wake_in.connect("inproc://wake");
  zmq::socket_t router =
      new_socket(state_->context, zmq::socket_type::router, options.bind, options);
  router.set(zmq::sockopt::sndhwm, kQueuedReplies);
  router.set(zmq::sockopt::rcvhwm, kQueuedFrames);
  if (options.keys) ZmqAdmission::make_server(router, *options.keys);
  state_->router = state_->watch(std::move(router));
  try {
    state_->router->socket.bind(options.bind);
  } catch (const zmq::error_t& error) {
    throw SystemError(fmt::format("cannot listen at {}: {}; choose another address or port",
                                  options.bind, error.what()));
  }
  state_->endpoint = state_->router->socket.get(zmq::sockopt::last_endpoint);
}

ZmqSockets::~ZmqSockets() = default;

const std::string& ZmqSockets::endpoint() const { return state_->endpoint; }

void ZmqSockets::dial(WorkerId peer, const std::string& endpoint, bool around) {
  state_->addresses[static_cast<std::size_t>(peer.value())] = endpoint;
  state_->around[static_cast<std::size_t>(peer.value())] = around;
  auto& links = state_->dialled[static_cast<std::size_t>(peer.value())];
  if (!state_->may_dial(peer)) return;
  for (int k = 0; k < state_->options.streams; ++k) links.push_back(state_->dial(peer, endpoint));
}

int ZmqSockets::most_streams() const { return state_->allowance.streams; }

void ZmqSockets::dial_more(WorkerId peer, int streams) {
  const auto place = static_cast<std::size_t>(peer.value());
  auto& links = state_->dialled[place];
  while (!links.empty() && state_->may_dial(peer) &&
         links.size() < static_cast<std::size_t>(streams)) {
    links.push_back(state_->dial(peer, state_->addresses[place]));
  }
}

std::unique_ptr<Watched> ZmqSockets::State::dial(WorkerId peer, const std::string& address,
                                                 bool tries) {
  const auto place = static_cast<std::size_t>(peer.value());
  zmq::socket_t plain = new_socket(context, zmq::socket_type::dealer, address, options);
  plain.set(zmq::sockopt::immediate, true);  // nothing queues for a connection that is not
  plain.set(zmq::sockopt::sndhwm, kQueuedFrames);
  plain.set(zmq::sockopt::reconnect_ivl, kRetryMs);
  plain.set(zmq::sockopt::reconnect_ivl_max, kLongestRetryMs);
  if (tries) {
    plain.set(zmq::sockopt::heartbeat_ivl, milliseconds(options.heartbeat));
    plain.set(zmq::sockopt::heartbeat_timeout, milliseconds(options.dead_after / 2));
  }
  if (options.keys) ZmqAdmission::make_client(plain, *options.keys, keys[place]);
  std::unique_ptr<Watched> watched = watch(std::move(plain));
  watched->watch(kLinkEvents);
  try {
    watched->socket.connect(address);
  } catch (const zmq::error_t& error) {
    throw ConfigError(
        fmt::format("endpoint \"{}\" of member {}: {}", address, peer.value(), error.what()));
  }
  return watched;
}

void ZmqSockets::State::tune(Watched& link, WorkerId peer) const {
  // Should the file be another's already, that is a file, or a connection it does not harm.
  (void)pace_connection(link.descriptor, far_of(peer));
  const std::optional<Duration> trip = round_trip(link.descriptor);
  link.near = trip && *trip <= far_of(peer);
  link.within_machine = link.near && isthmus::is_within_machine(link.descriptor);
}

void ZmqSockets::State::redial(std::unique_ptr<Watched>& link, WorkerId peer,
                               const std::string& address, bool tries, TimePoint now) {
  try {
    link = dial(peer, address, tries);
  } catch (const SystemError&) {
    link->ended = now;
  }
}

// After what it takes for a breach of the protocol ZeroMQ never tries again, but who answers there
// may be another process by now.
void ZmqSockets::State::dial_ended_again(TimePoint now) {
  for (std::size_t peer = 0; peer < dialled.size(); ++peer) {
    if (!may_dial(WorkerId(static_cast<int>(peer)))) continue;  // is hung up on soon
    for (auto& each : dialled[peer]) {
      if (each->ended && now - *each->ended >= kRedialAfter) {
        redial(each, WorkerId(static_cast<int>(peer)), addresses[peer], false, now);
      }
    }
  }
}

void ZmqSockets::hang_up(WorkerId peer) {
  state_->dialled[static_cast<std::size_t>(peer.value())].clear();
  end_beside(peer);
}

void ZmqSockets::dial_beside(WorkerId peer, const std::string& endpoint) {
  if (!state_->may_dial(peer)) return;
  state_->beside.insert_or_assign(
      peer.value(), State::Beside{endpoint, state_->dial(peer, endpoint, true), std::nullopt});
}

void ZmqSockets::end_beside(WorkerId peer) { state_->beside.erase(peer.value()); }

std::optional<TimePoint> ZmqSockets::beside_stands_since(WorkerId peer) const {
  const auto found = state_->beside.find(peer.value());
  return found == state_->beside.end() ? std::nullopt : found->second.stands_since;
}

void ZmqSockets::take_over(LinkEngine& engine, WorkerId peer, bool around, TimePoint now) {
  const auto taken = state_->beside.extract(peer.value());
  ISTHMUS_CHECK(!taken.empty() && taken.mapped().stands_since, peer.value());
  const auto place = static_cast<std::size_t>(peer.value());
  state_->addresses[place] = taken.mapped().address;
  state_->around[place] = around;
  auto& links = state_->dialled[place];
  links.clear();
  links.push_back(std::move(taken.mapped().link));
  state_->tune(*links.front(), peer);
  // As after its handshake: lets the socket take in that there is a connection.
  links.front()->ready.ask(links.front()->socket);
  engine.rerouted(peer, around, now);
  engine.stream_up(peer, 0, now);
}

void ZmqSockets::set_keys(const std::vector<std::string>& members,
                          const std::vector<std::string>& guests) {
  if (!state_->admission) return;
  state_->keys = members;
  state_->admission->set_keys(members, guests);
  state_->end_uncounted();
}

void ZmqSockets::State::end_uncounted() {
  std::erase_if(opened, [&](const auto& entry) {
    if (admission->owner_of(entry.second) || admission->is_guest(entry.second)) return false;
    // Should it be another's already, in the moment before its end is heard of, that is a file, or
    // a connection that comes back.
    (void)::shutdown(entry.first, SHUT_RDWR);
    return true;
  });
}

void ZmqSockets::send_batches() {
  state_->for_each_dialled([](WorkerId, int, Watched& link) { (void)send_batch(link); });
}

bool ZmqSockets::is_near(WorkerId peer) const {
  const auto& links = state_->dialled[static_cast<std::size_t>(peer.value())];
  return std::ranges::any_of(links, [](const auto& link) { return link->stands && link->near; }) &&
         std::ranges::all_of(links, [](const auto& link) { return !link->stands || link->near; });
}

bool ZmqSockets::is_within_machine(WorkerId peer) const {
  const auto& links = state_->dialled[static_cast<std::size_t>(peer.value())];
  return is_near(peer) && std::ranges::all_of(links, [](const auto& link) {
           return !link->stands || link->within_machine;
         });
}

void ZmqSockets::judge_again(WorkerId peer) {
  for (const auto& link : state_->dialled[static_cast<std::size_t>(peer.value())]) {
    if (link->stands && !link->near &&
        round_trip(link->descriptor).value_or(Duration::max()) <= state_->far_of(peer)) {
      state_->tune(*link, peer);
    }
  }
}

bool ZmqSockets::to_stream(WorkerId peer, int stream, const LinkHeader& header,
                           const FrameBytes& body) {
  const auto& links = state_->dialled[static_cast<std::size_t>(peer.value())];
  if (static_cast<std::size_t>(stream) >= links.size()) return false;
  Watched& link = *links[static_cast<std::size_t>(stream)];
  zmq::socket_t& socket = link.socket;
  if (link.near && ZmqBatch::suits(header, body)) {
    if (!link.batch.fits(body) && !send_batch(link)) return false;
    if (link.batch.empty()) {
      link.ready.ask(socket);
      if (!link.ready.writable()) return false;
      link.batch.begin(delivery_rate(link.descriptor) * in_seconds(state_->far_of(peer)));
    }
    link.batch.add(header, body);
    return true;
  }
  if (!send_batch(link)) return false;  // messages of a connection keep their order
  // Nothing is put together for a connection that does not take it.
  if (body && body->in_pieces()) {
    link.ready.ask(socket);
    if (!link.ready.writable()) return false;
  }
  link.ready.touch();
  zmq::message_t part = message_of(body);
  const LinkHeaderBytes head = write_link_header(header, message_bytes(part));
  return socket.send(zmq::buffer(head), zmq::send_flags::sndmore | zmq::send_flags::dontwait) &&
         socket.send(part, zmq::send_flags::dontwait);
}

void ZmqSockets::to_connection(const ConnectionId& id, const LinkHeader& header,
                               const FrameBytes& body) {
  zmq::message_t part = message_of(body);
  const LinkHeaderBytes head = write_link_header(header, message_bytes(part));
  constexpr auto kMore = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
  zmq::socket_t& router = state_->router->socket;
  state_->router->ready.touch();
  if (router.send(zmq::buffer(id), kMore) && router.send(zmq::buffer(head), kMore)) {
    (void)router.send(part, zmq::send_flags::dontwait);
  }
}

void ZmqSockets::wake() { (void)state_->wake_in.send(zmq::message_t(), zmq::send_flags::dontwait); }

void ZmqSockets::close() {
  send_batches();  // of rows that have waited for more frames
  // Peers have confirmed, or had their time; a stranger's half-open connection may wait for ever.
  const int linger = milliseconds(std::min<Duration>(state_->options.linger, kLastWords));
  state_->for_each_dialled(
      [&](WorkerId, int, Watched& dialled) { dialled.socket.set(zmq::sockopt::linger, linger); });
  state_->router->socket.set(zmq::sockopt::linger, linger);
  state_->dialled.clear();
  state_->beside.clear();
  state_->router.reset();
}

std::string zmq_version() {
  const auto [major, minor, patch] = zmq::version();
  return fmt::format("{}.{}.{}", major, minor, patch);
}

}  // namespace isthmus
