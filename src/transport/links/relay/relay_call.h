// SPDX-License-Identifier: Apache-2.0
// A member's talk with a relay, up to the point where it listens there or has the other end:
// connects (every address of the name in turn, each for about a second), proves who it is, asks.
// Pure but for its socket; one task.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "transport/links/network_transport.h"
#include "transport/links/relay/relay_message.h"
#include "transport/links/tcp/tcp_socket.h"
#include "transport/links/told_keys.h"

namespace isthmus {

/// Where a relay is reached, and whose it is.
struct RelayPlace {
  WorkerId member;
  std::string host;  // without brackets
  int port = 0;
};

class RelayCall {
 public:
  enum class State { kGoing, kDone, kFailed };

  /// Begins. Borrows `options`: run, keys; and `told`, which may be null. Fails after `most`, and
  /// much sooner where no address says anything.
  RelayCall(const MemberOptions& options, const RelayPlace& relay,
            std::vector<TcpAddress> addresses, const RelayRequest& request, TimePoint now,
            Duration most, const ToldKeys* told);

  void add_to(std::vector<Waited>& all);
  /// `all`: of the last `add_to`, waited for since.
  State advance(const std::vector<Waited>& all, TimePoint now);
  /// Of a call that failed: in words. `reached`: something answered there.
  [[nodiscard]] const std::string& why() const { return why_; }
  [[nodiscard]] bool reached() const { return greeted_; }
  /// Of one that is done. Nothing that follows the relay's word has been read.
  [[nodiscard]] TcpSocket take_socket() { return *std::move(socket_); }

 private:
  State connect_next(TimePoint now);
  State fail(const std::string& why);
  State answer_greeting(const RelayWord& word);

  const MemberOptions* options_;
  const ToldKeys* told_;
  RelayPlace relay_;
  std::vector<TcpAddress> addresses_;
  RelayRequest request_;
  TimePoint deadline_;
  TimePoint greeted_by_;  // else the next address is tried
  std::size_t next_ = 0;  // address
  std::optional<TcpSocket> socket_;
  bool connected_ = false, greeted_ = false;
  std::string input_;
  std::string why_;
  std::size_t place_ = 0;  // in what was waited for
};

}  // namespace isthmus
