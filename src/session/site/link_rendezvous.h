// SPDX-License-Identifier: Apache-2.0
// How two machines find together for `bench link` without a file: one listens, the other calls and
// says which port it listens on itself, since each link is dialled by both ends. One line each way
// over plain TCP, before the links are opened. Blocking; waits are bounded.
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

/// What each end learns of the other.
struct Meeting {
  std::string token;  // 32 hexadecimal digits, drawn by the caller: both mean the same measurement
  std::string host;   // the other's, as the address of the connection
  int port = 0;       // it listens there
  std::string name;
};

/// Tries once to connect. RETURNS: why that is not possible, in words; empty: it is.
[[nodiscard]] std::string why_not_reached(const HostPort& place);

/// One line of the talk. RETURNS: why it is none.
[[nodiscard]] Expected<Meeting, std::string> read_call(std::string_view line);

struct MeetingOptions {
  std::string name;             // of this end
  double patience_s = 600;      // for the other end to come
  std::function<void()> check;  // asked now and then; throws to end it
};
/// Waits for the caller. Strangers are sent away. THROWS: SystemError when the address cannot be
/// bound; PeerError when nobody comes.
[[nodiscard]] Meeting await_call(const HostPort& listen, const MeetingOptions& options);
/// Calls until it is answered. `token`, `port`: to be told. THROWS: PeerError with what was tried.
[[nodiscard]] Meeting call(const HostPort& to, const std::string& token, int port,
                           const MeetingOptions& options);

}  // namespace isthmus::app
