// SPDX-License-Identifier: Apache-2.0
// How two machines meet for `bench link` without a file. One listens; the other calls and tells on
// which port it listens itself, since both ends dial each link. One line each way over plain TCP,
// before the links are opened. Blocking; waits are bounded.
//
//   caller:    isthmus-bench-link 1 TOKEN PORT NAME
//   listener:  isthmus-bench-link 1 TOKEN NAME
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "isthmus/expected.h"

namespace isthmus::app {

/// HOST:PORT, the host possibly in brackets or empty.
struct HostPort {
  std::string host;
  int port = 0;
};
/// THROWS: UsageError naming `flag`.
[[nodiscard]] HostPort parse_host_port(std::string_view flag, const std::string& text);

/// Facts that each end learns about the other.
struct Meeting {
  std::string token;  // 32 hexadecimal digits, drawn by the caller; identifies the measurement
  std::string host;   // of the other end: the address of the connection
  int port = 0;       // on which the other end listens
  std::string name;
};

/// Tries once to connect. RETURNS: the reason if that fails, in words; empty: it succeeded.
[[nodiscard]] std::string why_not_reached(const HostPort& place);

/// Parses one line of the protocol. RETURNS: the reason if it is malformed.
[[nodiscard]] Expected<Meeting, std::string> read_call(std::string_view line);

struct MeetingOptions {
  std::string name;             // of this end
  double patience_s = 600;      // timeout for the other end to arrive
  std::function<void()> check;  // called now and then; throws to end the wait
};
/// Waits for the caller; other connections are refused. THROWS: SystemError when the address cannot
/// be bound; PeerError when no caller arrives in time.
[[nodiscard]] Meeting await_call(const HostPort& listen, const MeetingOptions& options);
/// Calls until it is answered. `token`, `port`: sent to the other end. THROWS: PeerError with what
/// was tried.
[[nodiscard]] Meeting call(const HostPort& to, const std::string& token, int port,
                           const MeetingOptions& options);

}  // namespace isthmus::app
