// SPDX-License-Identifier: Apache-2.0
#include "session/site/link_rendezvous.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "isthmus/errors.h"
#include "record/wall_clock.h"
#include "session/run/usage_error.h"
#include "transport/links/link_message.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kGreeting = "isthmus-bench-link 1 ";
constexpr std::size_t kLongestLine = 256;
constexpr double kTalkS = 5;     // for the other end's line
constexpr double kAttemptS = 2;  // timeout of one attempt to connect
constexpr int kLookMs = 200;
constexpr std::size_t kTokenDigits = 32;

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  [[nodiscard]] int get() const { return descriptor_; }
  [[nodiscard]] bool good() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

constexpr std::string_view kUnresolved = "no address for the name";

Addresses resolve(const HostPort& place, bool listens, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (listens ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(place.host.empty() ? nullptr : place.host.c_str(),
                                  std::to_string(place.port).c_str(), &hints, &found);
  if (error != 0) {
    why = fmt::format("{} {}: {}", kUnresolved, place.host, ::gai_strerror(error));
    return nullptr;
  }
  return Addresses(found);
}

Socket open_socket(const addrinfo& address) {
  return Socket(::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                         address.ai_protocol));
}

/// RETURNS: whether it became ready before `deadline`.
bool wait_for(const Socket& socket, short events, double deadline, const MeetingOptions& options) {
  while (true) {
    if (options.check) options.check();
    pollfd ready{.fd = socket.get(), .events = events, .revents = 0};
    const double left_ms = 1e3 * (deadline - monotonic_now());
    if (left_ms <= 0) return false;
    if (::poll(&ready, 1, std::clamp(static_cast<int>(left_ms) + 1, 1, kLookMs)) > 0) return true;
  }
}

/// RETURNS: the line without its end, or nothing when none comes.
std::string read_line(const Socket& socket, double deadline, const MeetingOptions& options) {
  std::string line;
  while (line.size() < kLongestLine && wait_for(socket, POLLIN, deadline, options)) {
    char c = 0;
    const ssize_t got = ::recv(socket.get(), &c, 1, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return {};
    if (got == 1 && c == '\n') return line;
    if (got == 1) line += c;
  }
  return {};
}

bool write_line(const Socket& socket, const std::string& line) {
  const std::string text = line + "\n";  // less than any socket's buffer
  return ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(text.size());
}

std::string numeric_host_of(const sockaddr_storage& address, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host.data(), host.size(),
                    nullptr, 0, NI_NUMERICHOST) != 0) {
    return {};
  }
  const std::string text = host.data();
  constexpr std::string_view kMapped = "::ffff:";
  if (text.starts_with(kMapped)) return text.substr(kMapped.size());
  return text.find(':') == std::string::npos ? text : "[" + text + "]";
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxMemberName &&
         text.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
             std::string_view::npos;
}

void check_name(const std::string& name) {
  if (!is_name(name)) {
    throw UsageError(fmt::format("--site {}: must be 1 to {} letters, digits, '-', '_' or '.'",
                                 name, kMaxMemberName));
  }
}

std::string_view next_word(std::string_view& rest) {
  const std::size_t space = rest.find(' ');
  const std::string_view word = rest.substr(0, space);
  rest = space == std::string_view::npos ? std::string_view() : rest.substr(space + 1);
  return word;
}

/// Token and name of a line that begins as it should; its port where it has one.
Expected<Meeting, std::string> read_talk(std::string_view line, bool with_port) {
  const auto refuse = [](std::string why) { return Unexpected<std::string>(std::move(why)); };
  if (!line.starts_with(kGreeting)) {
    return refuse(line.empty() ? "it says nothing"
                               : "it does not speak this measurement's language, or not version 1");
  }
  std::string_view rest = line.substr(kGreeting.size());
  Meeting meeting;
  meeting.token = next_word(rest);
  if (meeting.token.size() != kTokenDigits ||
      meeting.token.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return refuse("a token that is none");
  }
  if (with_port) {
    const std::string_view port = next_word(rest);
    const auto [stop, error] =
        std::from_chars(port.data(), port.data() + port.size(), meeting.port);
    if (error != std::errc() || stop != port.data() + port.size() || meeting.port < 1 ||
        meeting.port > 65535) {
      return refuse("a port that is none");
    }
  }
  if (!is_name(rest)) {
    return refuse("a name that is none");
  }
  meeting.name = rest;
  return meeting;
}

/// Listens at the first address that can be bound.
Socket listen_at(const HostPort& place) {
  std::string why;
  const Addresses addresses = resolve(place, true, why);
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    Socket socket = open_socket(*each);
    const int on = 1;
    if (socket.good() &&
        ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        ::bind(socket.get(), each->ai_addr, each->ai_addrlen) == 0 &&
        ::listen(socket.get(), 8) == 0) {
      return socket;
    }
    why = std::strerror(errno);
  }
  throw SystemError(
      fmt::format("--listen {}:{}: cannot listen there: {}; choose another address "
                  "or port",
                  place.host, place.port, why));
}

/// One attempt. RETURNS: a connection, or none and why.
Socket connect_to(const HostPort& to, const MeetingOptions& options, std::string& why) {
  const Addresses addresses = resolve(to, false, why);
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    Socket socket = open_socket(*each);
    int error = 0;
    socklen_t size = sizeof error;
    if (!socket.good()) {
      why = std::strerror(errno);
    } else if (::connect(socket.get(), each->ai_addr, each->ai_addrlen) != 0 &&
               errno != EINPROGRESS) {
      why = std::strerror(errno);
    } else if (!wait_for(socket, POLLOUT, monotonic_now() + kAttemptS, options)) {
      why = "no answer: is the port open in its firewall?";
    } else if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error != 0) {
      why = std::strerror(error);
    } else {
      return socket;
    }
  }
  return Socket(-1);
}

}  // namespace

HostPort parse_host_port(std::string_view flag, const std::string& text) {
  HostPort place;
  const std::size_t colon = text.rfind(':');
  const std::string_view port = std::string_view(text).substr(colon + 1);
  const auto [stop, error] = std::from_chars(port.data(), port.data() + port.size(), place.port);
  if (colon == std::string::npos || error != std::errc() || stop != port.data() + port.size() ||
      place.port < 1 || place.port > 65535) {
    throw UsageError(
        fmt::format("{} {}: must be HOST:PORT, for example 0.0.0.0:48200", flag, text));
  }
  place.host = text.substr(0, colon);
  if (place.host.starts_with('[') && place.host.ends_with(']')) {
    place.host = place.host.substr(1, place.host.size() - 2);
  }
  if (place.host == "*") place.host.clear();
  return place;
}

std::string why_not_reached(const HostPort& place) {
  std::string why = "no address";
  return connect_to(place, {}, why).good() ? "" : why;
}

Expected<Meeting, std::string> read_call(std::string_view line) { return read_talk(line, true); }

Meeting await_call(const HostPort& listen, const MeetingOptions& options) {
  check_name(options.name);
  const Socket listening = listen_at(listen);
  const double deadline = monotonic_now() + options.patience_s;
  std::string strangers;
  while (wait_for(listening, POLLIN, deadline, options)) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const Socket socket(::accept4(listening.get(), reinterpret_cast<sockaddr*>(&from), &size,
                                  SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.good()) continue;
    const std::string line =
        read_line(socket, std::min(deadline, monotonic_now() + kTalkS), options);
    auto meeting = read_call(line);
    if (!meeting) {
      strangers = fmt::format("; someone at {} called, but {}", numeric_host_of(from, size),
                              meeting.error());
      continue;
    }
    meeting->host = numeric_host_of(from, size);
    if (write_line(socket, fmt::format("{}{} {}", kGreeting, meeting->token, options.name))) {
      return *meeting;
    }
  }
  throw PeerError(fmt::format(
      "nobody called at {}:{} for {:.0f} s{}; start `isthmus bench link --to` at the other machine",
      listen.host, listen.port, options.patience_s, strangers));
}

Meeting call(const HostPort& to, const std::string& token, int port,
             const MeetingOptions& options) {
  check_name(options.name);
  const double deadline = monotonic_now() + options.patience_s;
  std::string why = "not tried";
  bool told = false;
  while (monotonic_now() < deadline) {
    const double again = monotonic_now() + 1;
    const Socket socket = connect_to(to, options, why);
    if (why.starts_with(kUnresolved) && !std::exchange(told, true)) {
      log_warning("{}; trying on for {:.0f} s", why, options.patience_s);
    }
    if (socket.good() &&
        write_line(socket, fmt::format("{}{} {} {}", kGreeting, token, port, options.name))) {
      auto meeting = read_talk(read_line(socket, monotonic_now() + kTalkS, options), false);
      if (meeting && meeting->token == token) {
        sockaddr_storage from{};
        socklen_t size = sizeof from;
        if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&from), &size) == 0) {
          meeting->host = numeric_host_of(from, size);
        }
        meeting->port = to.port;
        return *meeting;
      }
      why = "the process at that address is not `isthmus bench link --listen`: " +
            (meeting ? std::string("it speaks of another measurement") : meeting.error());
    }
    if (options.check) options.check();
    while (monotonic_now() < std::min(again, deadline)) {
      if (options.check) options.check();
      (void)::poll(nullptr, 0, kLookMs);
    }
  }
  throw PeerError(
      fmt::format("{}:{} cannot be reached: {}; start `isthmus bench link --listen` there", to.host,
                  to.port, why));
}

}  // namespace isthmus::app
