// SPDX-License-Identifier: Apache-2.0
// With zmq_admission the files that know ZeroMQ. Options and their reasons: README.md.
#include "transport/zmq_sockets.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "isthmus/errors.h"
#include "transport/relayed_links.h"
#include "transport/tcp_connection.h"
#include "transport/tcp_counters.h"
#include "transport/zmq_admission.h"
#include "transport/zmq_messages.h"
#include "transport/zmq_transport.h"

namespace isthmus {
namespace {

constexpr int kMessagesPerTurn = 64;  // of one socket, before the others have theirs
constexpr int kQueuedFrames = 2;      // in ZeroMQ, each end of each connection
constexpr int kQueuedReplies = 256;   // to one connection; more are dropped
constexpr int kHandshakeMs = 5000;    // for whoever connects and says nothing
constexpr Duration kLastWords = std::chrono::milliseconds(250);
constexpr int kRetryMs = 50, kLongestRetryMs = 1000;
constexpr Duration kLongestConnect = std::chrono::seconds(2);
constexpr Duration kRedialAfter = std::chrono::milliseconds(kLongestRetryMs);

int milliseconds(Duration duration) {
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
}

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

/// What the links of a member may take of what this process has. A connection is a DEALER and both
/// ends of its monitor, each with a file to be woken by, and its TCP connection; one more comes in
/// return. Those to a peer that comes back may be there before those to its former process end.
struct Allowance {
  int streams = 0;  // to each peer
  int sockets = 0;
};
/// As many connections as there are files for, if those of the beginning have theirs.
/// THROWS: ConfigError when this process may not have so many open.
Allowance allowance_of(const MemberOptions& options) {
  constexpr long kSockets = 3, kFiles = 4, kOtherSockets = 16, kOtherFiles = 64;
  constexpr long kMostSockets = 65535;  // of a ZeroMQ context
  const long links = (options.members - 1L) * (options.readmits ? 2 : 1);
  const long besides = links * most_streams(options) + passed_on_files(options);
  const auto sockets = [&](long streams) { return kSockets * links * streams + kOtherSockets; };
  const auto files = [&](long streams) { return kFiles * links * streams + besides + kOtherFiles; };
  rlimit limit{};
  const bool limited = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  const auto fit = [&](long streams) {
    return sockets(streams) <= kMostSockets &&
           (!limited || static_cast<rlim_t>(files(streams)) <= limit.rlim_cur);
  };
  if (!fit(options.streams)) {
    throw ConfigError(fmt::format(
        "{} members with net.streams = {} need {} open files and {} sockets here; this process may "
        "have {} (ulimit -n) and {}: raise ulimit -n, or set fewer streams",
        options.members, options.most_streams == 0 ? std::to_string(options.streams) : "\"auto\"",
        files(options.streams), sockets(options.streams),
        limited ? std::to_string(limit.rlim_cur) : "any number", kMostSockets));
  }
  long streams = most_streams(options);
  while (!fit(streams)) --streams;
  return {.streams = static_cast<int>(streams), .sockets = static_cast<int>(sockets(streams))};
}

zmq::socket_t open_socket(zmq::context_t& context, zmq::socket_type type) {
  try {
    return {context, type};
  } catch (const zmq::error_t& error) {
    throw SystemError(fmt::format(
        "no socket for another link: {}; raise ulimit -n, or set fewer net.streams", error.what()));
  }
}

/// A socket and the news of its connections. ZeroMQ's own thread writes the news and waits for a
/// reader for ever, with all sockets of the context, so it must end before the reader does.
class Watched {
 public:
  Watched(zmq::context_t& context, zmq::socket_t plain, std::string place)
      : monitor(open_socket(context, zmq::socket_type::pair)),
        address(std::move(place)),
        socket(std::move(plain)) {
    monitor.set(zmq::sockopt::linger, 0);
    monitor.set(zmq::sockopt::rcvhwm, 0);  // whoever writes the news never waits
  }
  /// From now on there is news. Call once, when someone reads it.
  void watch(int events) {
    if (zmq_socket_monitor(socket.handle(), address.c_str(), events) != 0) {
      throw SystemError(
          fmt::format("no monitor of a socket: {}; raise ulimit -n, or set fewer "
                      "net.streams",
                      zmq_strerror(zmq_errno())));
    }
    monitor.connect(address);
    watched = true;
  }
  ~Watched() { (void)zmq_socket_monitor(socket.handle(), nullptr, 0); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  zmq::socket_t monitor;
  const std::string address;  // of the news
  bool watched = false;
  bool stands = false;               // a dialled connection, as far as the news says
  int descriptor = -1;               // of its TCP connection, which ZeroMQ owns and may have closed
  std::optional<TimePoint> ended{};  // ... which ZeroMQ does not try again
  zmq::socket_t socket;              // destroyed first
};

zmq::socket_t new_socket(zmq::context_t& context, zmq::socket_type type, const std::string& address,
                         Duration dead_after, Duration gone_after) {
  zmq::socket_t socket = open_socket(context, type);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kMaxLinkBody));
  socket.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
  socket.set(zmq::sockopt::tcp_maxrt, milliseconds(dead_after));
  // An attempt that nobody answers leaves time for another one before the peer counts as gone.
  socket.set(zmq::sockopt::connect_timeout,
             milliseconds(std::min<Duration>(kLongestConnect, gone_after * 3 / 4)));
  socket.set(zmq::sockopt::ipv6, address.find('[') != std::string::npos);
  return socket;
}

}  // namespace

struct ZmqSockets::State {
  explicit State(const MemberOptions& given) : options(given) {}

  std::unique_ptr<Watched> dial(Rank peer);
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
        (void)pace_connection(link.descriptor,
                              is_relayed(options, peer) ? Duration{0} : options.far);
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
  template <typename Visit>
  void for_each_dialled(const Visit& visit) {
    for (std::size_t peer = 0; peer < dialled.size(); ++peer) {
      for (std::size_t k = 0; k < dialled[peer].size(); ++k) {
        visit(Rank(static_cast<int>(peer)), static_cast<int>(k), *dialled[peer][k]);
      }
    }
  }

  const MemberOptions options;
  const Allowance allowance = allowance_of(options);
  zmq::context_t context{1, allowance.sockets};  // destroyed after all sockets
  std::optional<ZmqAdmission> admission;         // with keys
  int monitors = 0;
  zmq::socket_t wake_in{context, zmq::socket_type::pair};
  zmq::socket_t wake_out{context, zmq::socket_type::pair};
  std::unique_ptr<Watched> router;
  std::vector<std::vector<std::unique_ptr<Watched>>> dialled;  // by peer
  std::vector<std::string> addresses;                          // of those, by peer
  std::string endpoint;
};

ZmqSockets::ZmqSockets(const MemberOptions& options) : state_(std::make_unique<State>(options)) {
  state_->dialled.resize(static_cast<std::size_t>(options.members));
  state_->addresses.resize(static_cast<std::size_t>(options.members));
  if (options.keys) state_->admission.emplace(state_->context, options.member_keys);
  state_->wake_out.bind("inproc://wake");
  state_->wake_in.connect("inproc://wake");
  zmq::socket_t router = new_socket(state_->context, zmq::socket_type::router, options.bind,
                                    options.dead_after, options.gone_after);
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

void ZmqSockets::dial(Rank peer, const std::string& endpoint) {
  state_->addresses[static_cast<std::size_t>(peer.value())] = endpoint;
  auto& links = state_->dialled[static_cast<std::size_t>(peer.value())];
  for (int k = 0; k < state_->options.streams; ++k) links.push_back(state_->dial(peer));
}

int ZmqSockets::most_streams() const { return state_->allowance.streams; }

void ZmqSockets::dial_more(Rank peer, int streams) {
  auto& links = state_->dialled[static_cast<std::size_t>(peer.value())];
  while (!links.empty() && links.size() < static_cast<std::size_t>(streams)) {
    links.push_back(state_->dial(peer));
  }
}

std::unique_ptr<Watched> ZmqSockets::State::dial(Rank peer) {
  const auto place = static_cast<std::size_t>(peer.value());
  const std::string& address = addresses[place];
  zmq::socket_t plain = new_socket(context, zmq::socket_type::dealer, address, options.dead_after,
                                   options.gone_after);
  plain.set(zmq::sockopt::immediate, true);  // nothing queues for a connection that is not
  plain.set(zmq::sockopt::sndhwm, kQueuedFrames);
  plain.set(zmq::sockopt::reconnect_ivl, kRetryMs);
  plain.set(zmq::sockopt::reconnect_ivl_max, kLongestRetryMs);
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

// After what it takes for a breach of the protocol ZeroMQ never tries again, but who answers there
// may be another process by now.
void ZmqSockets::State::dial_ended_again(TimePoint now) {
  for (std::size_t peer = 0; peer < dialled.size(); ++peer) {
    for (auto& each : dialled[peer]) {
      if (each->ended && now - *each->ended >= kRedialAfter) {
        each = dial(Rank(static_cast<int>(peer)));
      }
    }
  }
}

void ZmqSockets::hang_up(Rank peer) {
  state_->dialled[static_cast<std::size_t>(peer.value())].clear();
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

void ZmqSockets::wake() { (void)state_->wake_in.send(zmq::message_t(), zmq::send_flags::dontwait); }

void ZmqSockets::close() {
  // Peers have confirmed, or had their time; a stranger's half-open connection may wait for ever.
  const int linger = milliseconds(std::min<Duration>(state_->options.linger, kLastWords));
  state_->for_each_dialled(
      [&](Rank, int, Watched& dialled) { dialled.socket.set(zmq::sockopt::linger, linger); });
  state_->router->socket.set(zmq::sockopt::linger, linger);
  state_->dialled.clear();
  state_->router.reset();
}

std::string zmq_version() {
  const auto [major, minor, patch] = zmq::version();
  return fmt::format("{}.{}.{}", major, minor, patch);
}

}  // namespace isthmus
