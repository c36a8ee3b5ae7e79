// SPDX-License-Identifier: Apache-2.0
// The one file that knows ZeroMQ. Options and their reasons: README.md.
#include "transport/zmq_sockets.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "isthmus/errors.h"
#include "transport/zmq_transport.h"

namespace isthmus {
namespace {

constexpr int kMessagesPerTurn = 64;      // of one socket, before the others have theirs
constexpr int kQueuedFrames = 4;          // in ZeroMQ, each end of each connection
constexpr int kQueuedReplies = 256;       // to one connection; more are dropped
constexpr std::size_t kCopyBelow = 4096;  // bytes that are cheaper copied than lent
constexpr int kHandshakeMs = 5000;        // for whoever connects and says nothing
constexpr Duration kLastWords = std::chrono::milliseconds(250);
constexpr int kRetryMs = 50, kLongestRetryMs = 1000;
constexpr Duration kLongestConnect = std::chrono::seconds(2);

int milliseconds(Duration duration) {
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
}

std::span<const std::byte> bytes_of(const zmq::message_t& message) {
  return {static_cast<const std::byte*>(message.data()), message.size()};
}

/// Lends a frame to ZeroMQ, whose own thread gives it back. The flag orders what the two threads do
/// where tools cannot see ZeroMQ's own ordering.
struct Lent {
  FrameBytes frame;
  std::atomic<bool> ready{false};
};
void give_back(void*, void* hint) {
  auto* lent = static_cast<Lent*>(hint);
  (void)lent->ready.load(std::memory_order_acquire);
  delete lent;  // NOLINT(cppcoreguidelines-owning-memory)
}

zmq::message_t message_of(const FrameBytes& body) {
  if (body == nullptr || body->size() < kCopyBelow) {
    return body == nullptr ? zmq::message_t() : zmq::message_t(body->data(), body->size());
  }
  auto* lent = new Lent{.frame = body};  // NOLINT(cppcoreguidelines-owning-memory)
  lent->ready.store(true, std::memory_order_release);
  // ZeroMQ takes mutable memory and writes nothing into a message to be sent.
  return {const_cast<std::byte*>(body->data()), body->size(), give_back, lent};
}

/// All parts of the next message, or nothing. Parts beyond the third are dropped.
std::optional<std::vector<zmq::message_t>> next_message(zmq::socket_t& socket) {
  std::vector<zmq::message_t> parts;
  while (true) {
    zmq::message_t part;
    if (!socket.recv(part, zmq::recv_flags::dontwait)) {
      return std::nullopt;
    }
    const bool more = part.more();
    if (parts.size() < 3) parts.push_back(std::move(part));
    if (!more) return parts;
  }
}

std::optional<int> next_event(zmq::socket_t& monitor) {
  const auto parts = next_message(monitor);
  std::uint16_t kind = 0;
  if (!parts || (*parts)[0].size() < sizeof kind) {
    return std::nullopt;
  }
  std::memcpy(&kind, (*parts)[0].data(), sizeof kind);
  return kind;
}

constexpr int kHandshakeFailed = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                 ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
constexpr int kWatched = kHandshakeFailed | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                         ZMQ_EVENT_CONNECT_RETRIED;

/// How many sockets the links of a member need. A connection is a DEALER and both ends of its
/// monitor, each with a file to be woken by, and its TCP connection; one more comes in return.
/// THROWS: ConfigError when this process may not have so many open.
int sockets_for(const MemberOptions& options) {
  constexpr long kSockets = 3, kFiles = 5, kOtherSockets = 16, kOtherFiles = 64;
  const long connections = (options.members - 1L) * options.streams;
  const long sockets = kSockets * connections + kOtherSockets;
  const long files = kFiles * connections + kOtherFiles;
  constexpr long kMostSockets = 65535;  // of a ZeroMQ context
  rlimit limit{};
  const bool limited = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (sockets > kMostSockets || (limited && static_cast<rlim_t>(files) > limit.rlim_cur)) {
    throw ConfigError(fmt::format(
        "{} members with net.streams = {} need {} open files and {} sockets here; this process may "
        "have {} (ulimit -n) and {}: raise ulimit -n, or set fewer streams",
        options.members, options.streams, files, sockets,
        limited ? std::to_string(limit.rlim_cur) : "any number", kMostSockets));
  }
  return static_cast<int>(sockets);
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
  zmq::socket_t socket;  // destroyed first
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

  std::unique_ptr<Watched> watch(zmq::socket_t socket) {
    return std::make_unique<Watched>(context, std::move(socket),
                                     fmt::format("inproc://monitor-{}", monitors++));
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
  zmq::context_t context{1, sockets_for(options)};  // destroyed after all sockets
  int monitors = 0;
  zmq::socket_t wake_in{context, zmq::socket_type::pair};
  zmq::socket_t wake_out{context, zmq::socket_type::pair};
  std::unique_ptr<Watched> router;
  std::vector<std::vector<std::unique_ptr<Watched>>> dialled;  // by peer
  std::string endpoint;
};

ZmqSockets::ZmqSockets(const MemberOptions& options) : state_(std::make_unique<State>(options)) {
  state_->dialled.resize(static_cast<std::size_t>(options.members));
  state_->wake_out.bind("inproc://wake");
  state_->wake_in.connect("inproc://wake");
  zmq::socket_t router = new_socket(state_->context, zmq::socket_type::router, options.bind,
                                    options.dead_after, options.gone_after);
  router.set(zmq::sockopt::sndhwm, kQueuedReplies);
  router.set(zmq::sockopt::rcvhwm, kQueuedFrames);
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
  for (int k = 0; k < state_->options.streams; ++k) {
    zmq::socket_t socket = new_socket(state_->context, zmq::socket_type::dealer, endpoint,
                                      state_->options.dead_after, state_->options.gone_after);
    socket.set(zmq::sockopt::immediate, true);  // nothing queues for a connection that is not
    socket.set(zmq::sockopt::sndhwm, kQueuedFrames);
    socket.set(zmq::sockopt::reconnect_ivl, kRetryMs);
    socket.set(zmq::sockopt::reconnect_ivl_max, kLongestRetryMs);
    auto& place = state_->dialled[static_cast<std::size_t>(peer.value())];
    place.push_back(state_->watch(std::move(socket)));
    place.back()->watch(kWatched);
    try {
      place.back()->socket.connect(endpoint);
    } catch (const zmq::error_t& error) {
      throw ConfigError(
          fmt::format("endpoint \"{}\" of member {}: {}", endpoint, peer.value(), error.what()));
    }
  }
}

void ZmqSockets::hang_up(Rank peer) {
  state_->dialled[static_cast<std::size_t>(peer.value())].clear();
}

bool ZmqSockets::to_stream(Rank peer, int stream, const LinkHeader& header,
                           const FrameBytes& body) {
  zmq::socket_t& socket =
      state_->dialled[static_cast<std::size_t>(peer.value())][static_cast<std::size_t>(stream)]
          ->socket;
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
    if ((items[3 + 2 * i].revents & ZMQ_POLLOUT) != 0) {
      engine.writable(whose[i].first, whose[i].second);
    }
  }
  while (next_message(state_->wake_out)) {
  }
}

void ZmqSockets::read(LinkEngine& engine, const std::function<TimePoint()>& now,
                      const std::function<void(const LinkEvent&)>& event) {
  state_->for_each_dialled([&](Rank peer, int stream, Watched& dialled) {
    while (const auto news = next_event(dialled.monitor)) {
      if (*news == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
        // Lets the socket take in that there is a connection: else it would not take the greeting.
        (void)dialled.socket.get(zmq::sockopt::events);
        engine.stream_up(peer, stream, now());
      } else if (*news == ZMQ_EVENT_DISCONNECTED) {
        engine.stream_down(peer, stream, now(), "disconnected");
      } else if (*news == ZMQ_EVENT_CONNECT_RETRIED) {
        engine.stream_trouble(peer, stream, LinkEvent::Kind::kRetried,
                              "no connection, trying again");
      } else if ((*news & kHandshakeFailed) != 0) {
        engine.stream_trouble(peer, stream, LinkEvent::Kind::kHandshakeFailed,
                              "handshake failed: whoever answers there is no member");
      }
    }
    for (int i = 0; i < kMessagesPerTurn; ++i) {
      const auto parts = next_message(dialled.socket);
      if (!parts) break;
      if (parts->size() == 2) {
        engine.from_stream(peer, bytes_of((*parts)[0]), bytes_of((*parts)[1]), now());
      }
    }
  });
  while (const auto news = next_event(state_->router->monitor)) {
    if ((*news & kHandshakeFailed) != 0) {
      event({LinkEvent::Kind::kStranger, Rank{-1}, -1,
             fmt::format("someone connected to {} and does not speak the protocol",
                         state_->endpoint)});
    }
  }
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    const auto parts = next_message(state_->router->socket);
    if (!parts) break;
    const bool whole = parts->size() == 3;  // else it stays without a header, and is refused
    engine.from_connection((*parts)[0].to_string(),
                           whole ? bytes_of((*parts)[1]) : std::span<const std::byte>{},
                           whole ? bytes_of((*parts)[2]) : std::span<const std::byte>{}, now());
  }
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
