// SPDX-License-Identifier: Apache-2.0
// With zmq_admission the files that know ZeroMQ. Options and their reasons: README.md.
#include "transport/zmq_sockets.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "core/check.h"
#include "isthmus/errors.h"
#include "transport/link_allowance.h"
#include "transport/tcp_connection.h"
#include "transport/tcp_counters.h"
#include "transport/zmq_admission.h"
#include "transport/zmq_messages.h"
#include "transport/zmq_transport.h"
#include "transport/zmq_watched.h"

namespace isthmus {
namespace {

constexpr int kMessagesPerTurn = 64;  // of one socket, before the others have theirs
constexpr int kQueuedFrames = 2;      // in ZeroMQ, each end of each connection
constexpr int kQueuedReplies = 256;   // to one connection; more are dropped
constexpr Duration kLastWords = std::chrono::milliseconds(250);
constexpr int kRetryMs = 50, kLongestRetryMs = 1000;
constexpr Duration kRedialAfter = std::chrono::milliseconds(kLongestRetryMs);

constexpr int kHandshakeFailed = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
HandshakeFault fault_of(const News& news) {
  if (news.kind == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) return HandshakeFault::kKeyRefused;
  if (news.kind == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) return HandshakeFault::kHungUp;
  return news.value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH ? HandshakeFault::kMechanism
         : news.value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC    ? HandshakeFault::kWrongAddress
                                                                  : HandshakeFault::kOther;
}

constexpr int kWatched = kHandshakeFailed | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_CONNECTED |
                         ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CONNECT_RETRIED;

}  // namespace

struct ZmqSockets::State {
  explicit State(const MemberOptions& given) : options(given) {}

  /// One that tries a way (`tries`) finds out by itself whether that is still there.
  std::unique_ptr<Watched> dial(Rank peer, const std::string& address, bool tries = false);
  /// In the place of one that has ended; for want of a file or socket it is tried again later.
  void redial(std::unique_ptr<Watched>& link, Rank peer, const std::string& address, bool tries,
              TimePoint now);
  void dial_ended_again(TimePoint now);
  std::unique_ptr<Watched> watch(zmq::socket_t socket) {
    return std::make_unique<Watched>(context, std::move(socket),
                                     fmt::format("inproc://monitor-{}", monitors++));
  }
  /// What came of a connection that was dialled.
  void take_news(LinkEngine& engine, Rank peer, int stream, Watched& link,
                 const std::function<TimePoint()>& now) {
    while (const auto news = next_event(link.monitor)) {
      if (news->kind == ZMQ_EVENT_CONNECTED) {
        link.descriptor = static_cast<int>(news->value);
      } else if (news->kind == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
        // Should the file be another's already, that is a file, or a connection it does not harm.
        (void)pace_connection(link.descriptor, far_of(peer));
        // Lets the socket take in that there is a connection: else it would not take the greeting.
        (void)link.socket.get(zmq::sockopt::events);
        link.stands = true;
        engine.stream_up(peer, stream, now());
      } else if (news->kind == ZMQ_EVENT_DISCONNECTED) {  // also after a handshake that failed
        link.descriptor = -1;
        if (std::exchange(link.stands, false)) {
          engine.stream_down(peer, stream, now(), "disconnected");
        }
      } else if (news->kind == ZMQ_EVENT_CONNECT_RETRIED) {
        engine.stream_trouble(peer, stream, LinkEvent::Kind::kRetried,
                              "no connection, trying again");
      } else if ((news->kind & kHandshakeFailed) != 0) {
        engine.handshake_failed(peer, stream, fault_of(*news));
        if (news->kind != ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) link.ended = now();
      }
    }
  }
  /// What came of connections that try another way.
  void take_news_beside(TimePoint now) {
    for (auto& [peer, each] : beside) {
      Watched& link = *each.link;
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
      if (link.ended && now - *link.ended >= kRedialAfter) {
        each.stands_since.reset();
        redial(each.link, Rank(peer), each.address, true, now);
      }
    }
  }
  [[nodiscard]] Duration far_of(Rank peer) const {
    const bool passed_on = around[static_cast<std::size_t>(peer.value())];
    return passed_on || is_relayed(options, peer) ? Duration{0} : options.far;
  }
  template <typename Visit>
  void for_each_dialled(const Visit& visit) {
    for (std::size_t peer = 0; peer < dialled.size(); ++peer) {
      for (std::size_t k = 0; k < dialled[peer].size(); ++k) {
        visit(Rank(static_cast<int>(peer)), static_cast<int>(k), *dialled[peer][k]);
      }
    }
  }

  const MemberOptions options;
  const LinkAllowance allowance = link_allowance(options);
  zmq::context_t context{1, allowance.sockets};  // destroyed after all sockets
  std::optional<ZmqAdmission> admission;         // with keys
  int monitors = 0;
  zmq::socket_t wake_in{context, zmq::socket_type::pair};
  zmq::socket_t wake_out{context, zmq::socket_type::pair};
  std::unique_ptr<Watched> router;
  std::vector<std::vector<std::unique_ptr<Watched>>> dialled;  // by peer
  std::vector<std::string> addresses;                          // of those, by peer
  std::vector<bool> around;                                    // ... by way of a relay
  struct Beside {
    std::string address;
    std::unique_ptr<Watched> link;
    std::optional<TimePoint> stands_since;
  };
  std::map<int, Beside> beside;  // by peer
  std::string endpoint;
};

ZmqSockets::ZmqSockets(const MemberOptions& options) : state_(std::make_unique<State>(options)) {
  state_->dialled.resize(static_cast<std::size_t>(options.members));
  state_->addresses.resize(static_cast<std::size_t>(options.members));
  state_->around.resize(static_cast<std::size_t>(options.members));
  if (options.keys) state_->admission.emplace(state_->context, options.member_keys);
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

void ZmqSockets::dial(Rank peer, const std::string& endpoint, bool around) {
  state_->addresses[static_cast<std::size_t>(peer.value())] = endpoint;
  state_->around[static_cast<std::size_t>(peer.value())] = around;
  auto& links = state_->dialled[static_cast<std::size_t>(peer.value())];
  for (int k = 0; k < state_->options.streams; ++k) links.push_back(state_->dial(peer, endpoint));
}

int ZmqSockets::most_streams() const { return state_->allowance.streams; }

void ZmqSockets::dial_more(Rank peer, int streams) {
  const auto place = static_cast<std::size_t>(peer.value());
  auto& links = state_->dialled[place];
  while (!links.empty() && links.size() < static_cast<std::size_t>(streams)) {
    links.push_back(state_->dial(peer, state_->addresses[place]));
  }
}

std::unique_ptr<Watched> ZmqSockets::State::dial(Rank peer, const std::string& address,
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
  if (options.keys) ZmqAdmission::make_client(plain, *options.keys, options.member_keys[place]);
  std::unique_ptr<Watched> watched = watch(std::move(plain));
  watched->watch(kWatched);
  try {
    watched->socket.connect(address);
  } catch (const zmq::error_t& error) {
    throw ConfigError(
        fmt::format("endpoint \"{}\" of member {}: {}", address, peer.value(), error.what()));
  }
  return watched;
}

void ZmqSockets::State::redial(std::unique_ptr<Watched>& link, Rank peer,
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
    for (auto& each : dialled[peer]) {
      if (each->ended && now - *each->ended >= kRedialAfter) {
        redial(each, Rank(static_cast<int>(peer)), addresses[peer], false, now);
      }
    }
  }
}

void ZmqSockets::hang_up(Rank peer) {
  state_->dialled[static_cast<std::size_t>(peer.value())].clear();
  end_beside(peer);
}

void ZmqSockets::dial_beside(Rank peer, const std::string& endpoint) {
  state_->beside.insert_or_assign(
      peer.value(), State::Beside{endpoint, state_->dial(peer, endpoint, true), std::nullopt});
}

void ZmqSockets::end_beside(Rank peer) { state_->beside.erase(peer.value()); }

std::optional<TimePoint> ZmqSockets::beside_stands_since(Rank peer) const {
  const auto found = state_->beside.find(peer.value());
  return found == state_->beside.end() ? std::nullopt : found->second.stands_since;
}

void ZmqSockets::take_over(LinkEngine& engine, Rank peer, bool around, TimePoint now) {
  const auto taken = state_->beside.extract(peer.value());
  ISTHMUS_CHECK(!taken.empty() && taken.mapped().stands_since, peer.value());
  const auto place = static_cast<std::size_t>(peer.value());
  state_->addresses[place] = taken.mapped().address;
  state_->around[place] = around;
  auto& links = state_->dialled[place];
  links.clear();
  links.push_back(std::move(taken.mapped().link));
  (void)pace_connection(links.front()->descriptor, state_->far_of(peer));
  // As after its handshake: lets the socket take in that there is a connection.
  (void)links.front()->socket.get(zmq::sockopt::events);
  engine.rerouted(peer, around, now);
  engine.stream_up(peer, 0, now);
}

bool ZmqSockets::to_stream(Rank peer, int stream, const LinkHeader& header,
                           const FrameBytes& body) {
  const auto& links = state_->dialled[static_cast<std::size_t>(peer.value())];
  if (static_cast<std::size_t>(stream) >= links.size()) return false;
  zmq::socket_t& socket = links[static_cast<std::size_t>(stream)]->socket;
  zmq::message_t part = message_of(body);
  const LinkHeaderBytes head = write_link_header(header, bytes_of(part));
  return socket.send(zmq::buffer(head), zmq::send_flags::sndmore | zmq::send_flags::dontwait) &&
         socket.send(part, zmq::send_flags::dontwait);
}

void ZmqSockets::to_connection(const ConnectionId& id, const LinkHeader& header,
                               const FrameBytes& body) {
  zmq::message_t part = message_of(body);
  const LinkHeaderBytes head = write_link_header(header, bytes_of(part));
  constexpr auto kMore = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
  zmq::socket_t& router = state_->router->socket;
  if (router.send(zmq::buffer(id), kMore) && router.send(zmq::buffer(head), kMore)) {
    (void)router.send(part, zmq::send_flags::dontwait);
  }
}

void ZmqSockets::wait(LinkEngine& engine, Duration at_most) {
  if (!state_->router->watched) state_->router->watch(kHandshakeFailed);  // read from now on
  std::vector<zmq::pollitem_t> items = {{state_->wake_out.handle(), 0, ZMQ_POLLIN, 0},
                                        {state_->router->socket.handle(), 0, ZMQ_POLLIN, 0},
                                        {state_->router->monitor.handle(), 0, ZMQ_POLLIN, 0}};
  if (state_->admission) items.push_back({state_->admission->handle(), 0, ZMQ_POLLIN, 0});
  const std::size_t first = items.size();
  std::vector<std::pair<Rank, int>> whose;
  state_->for_each_dialled([&](Rank peer, int stream, Watched& dialled) {
    const int wants = engine.wants_write(peer, stream) ? ZMQ_POLLIN | ZMQ_POLLOUT : ZMQ_POLLIN;
    whose.emplace_back(peer, stream);
    items.push_back({dialled.socket.handle(), 0, static_cast<short>(wants), 0});
    items.push_back({dialled.monitor.handle(), 0, ZMQ_POLLIN, 0});
  });
  for (const auto& [peer, each] : state_->beside) {
    items.push_back({each.link->monitor.handle(), 0, ZMQ_POLLIN, 0});
  }
  try {
    zmq::poll(items, std::chrono::ceil<std::chrono::milliseconds>(std::max(at_most, Duration{0})));
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) throw;
    return;
  }
  for (std::size_t i = 0; i < whose.size(); ++i) {
    if ((items[first + 2 * i].revents & ZMQ_POLLOUT) != 0) {
      engine.writable(whose[i].first, whose[i].second);
    }
  }
  while (next_message(state_->wake_out)) {
  }
}

void ZmqSockets::read(LinkEngine& engine, const std::function<TimePoint()>& now) {
  if (state_->admission) {
    state_->admission->answer([&](const std::string& key) { engine.stranger_key(key); });
  }
  state_->for_each_dialled([&](Rank peer, int stream, Watched& dialled) {
    state_->take_news(engine, peer, stream, dialled, now);
    for (int i = 0; i < kMessagesPerTurn; ++i) {
      const auto parts = next_message(dialled.socket);
      if (!parts) break;
      if (parts->size() == 2) {
        engine.from_stream(peer, bytes_of((*parts)[0]), bytes_of((*parts)[1]), now());
      }
    }
  });
  state_->dial_ended_again(now());
  state_->take_news_beside(now());
  while (const auto news = next_event(state_->router->monitor)) {
    if ((news->kind & kHandshakeFailed) != 0) {
      engine.stranger_handshake(fault_of(*news), state_->endpoint);
    }
  }
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    auto parts = next_message(state_->router->socket);
    if (!parts) break;
    const bool whole = parts->size() == 3;  // else it stays without a header, and is refused
    const auto owner =
        state_->admission ? ZmqAdmission::owner_of(parts->back()) : std::optional<Rank>();
    engine.from_connection(
        (*parts)[0].to_string(), whole ? bytes_of((*parts)[1]) : std::span<const std::byte>{},
        whole ? bytes_of((*parts)[2]) : std::span<const std::byte>{}, now(), owner);
  }
}

std::optional<LinkCounters> ZmqSockets::counters(Rank peer, int streams, int in_use) const {
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

std::vector<std::optional<LinkCounters>> ZmqSockets::each_counter(Rank peer) const {
  std::vector<std::optional<LinkCounters>> all;
  for (const auto& each : state_->dialled[static_cast<std::size_t>(peer.value())]) {
    all.push_back(each->stands ? tcp_counters(each->descriptor) : std::nullopt);
  }
  return all;
}

void ZmqSockets::wake() { (void)state_->wake_in.send(zmq::message_t(), zmq::send_flags::dontwait); }

void ZmqSockets::close() {
  // Peers have confirmed, or had their time; a stranger's half-open connection may wait for ever.
  const int linger = milliseconds(std::min<Duration>(state_->options.linger, kLastWords));
  state_->for_each_dialled(
      [&](Rank, int, Watched& dialled) { dialled.socket.set(zmq::sockopt::linger, linger); });
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
