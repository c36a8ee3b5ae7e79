// SPDX-License-Identifier: Apache-2.0
// A member's connection to a relay, up to the point where it listens there or is connected to the
// other end: connects (to every address of the name in turn, each for about a second),
// authenticates, sends its request. Pure, except for its socket; one task.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "transport/links/announced_keys.h"
#include "transport/links/network_transport.h"
#include "transport/links/relay/relay_message.h"
#include "transport/links/tcp/tcp_socket.h"

namespace isthmus {

/// The address of a relay, and its member.
struct RelayPlace {
  WorkerId member;
  std::string host;  // without brackets
  int port = 0;
};

class RelayCall {
 public:
  enum class State { kGoing, kDone, kFailed };

  /// Begins. Borrows `options` (run, keys), and `told`, which may be null. Fails after `most`, and
  /// much sooner if no address answers.
  RelayCall(const MemberOptions& options, const RelayPlace& relay,
            std::vector<TcpAddress> addresses, const RelayRequest& request, TimePoint now,
            Duration most, const AnnouncedKeys* told);

  void add_to(std::vector<Waited>& all);
  /// `all`: the list of the last `add_to`, after the wait.
  State advance(const std::vector<Waited>& all, TimePoint now);
  /// After a failure: the cause in words. `reached`: the relay answered.
  [[nodiscard]] const std::string& why() const { return why_; }
  [[nodiscard]] bool reached() const { return greeted_; }
  /// After success: the socket. No byte after the relay's word has been read.
  [[nodiscard]] TcpSocket take_socket() { return *std::move(socket_); }

 private:
  State connect_next(TimePoint now);
  State fail(const std::string& why);
  State answer_greeting(const RelayWord& word);

  const MemberOptions* options_;
  const AnnouncedKeys* told_;
  RelayPlace relay_;
  std::vector<TcpAddress> addresses_;
  RelayRequest request_;
  TimePoint deadline_;
  TimePoint greeted_by_;  // deadline of an address; then the next one is tried
  std::size_t next_ = 0;  // address
  std::optional<TcpSocket> socket_;
  bool connected_ = false, greeted_ = false;
  std::string input_;
  std::string why_;
  std::size_t place_ = 0;  // index in the list of the last wait
};

}  // namespace isthmus
