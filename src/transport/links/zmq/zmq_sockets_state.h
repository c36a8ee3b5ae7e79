// SPDX-License-Identifier: Apache-2.0
// The members of ZmqSockets. Only for its own files.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "transport/links/relay/link_allowance.h"
#include "transport/links/zmq/zmq_admission.h"
#include "transport/links/zmq/zmq_polled.h"
#include "transport/links/zmq/zmq_sockets.h"
#include "transport/links/zmq/zmq_watched.h"

namespace isthmus {

/// Events of a failed handshake.
inline constexpr int kHandshakeFailed = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                                        ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                        ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
inline constexpr Duration kRedialAfter = std::chrono::seconds(1);

struct ZmqSockets::State {
  explicit State(const MemberOptions& given) : options(given) {}

  /// `tries`: a connection that tries another path detects by itself whether the path still works.
  std::unique_ptr<Watched> dial(WorkerId peer, const std::string& address, bool tries = false);
  /// Replaces a connection that has ended; tries again later when files or sockets run out.
  void redial(std::unique_ptr<Watched>& link, WorkerId peer, const std::string& address, bool tries,
              TimePoint now);
  void dial_ended_again(TimePoint now);
  /// Tells the system, and notes, how far a connection that stands reaches.
  void tune(Watched& link, WorkerId peer) const;
  /// Gives the engine the DATA of a row. RETURNS: how many, at least 1.
  int take_row(LinkEngine& engine, std::vector<zmq::message_t>& parts, TimePoint now,
               std::optional<WorkerId> owner);
  std::unique_ptr<Watched> watch(zmq::socket_t socket) {
    return std::make_unique<Watched>(context, std::move(socket),
                                     fmt::format("inproc://monitor-{}", monitors++));
  }
  /// Events of a dialled connection.
  void take_news(LinkEngine& engine, WorkerId peer, int stream, Watched& link,
                 const std::function<TimePoint()>& now);
  /// Events of connections that peers, or strangers, have dialled.
  void take_news_of_accepted(LinkEngine& engine);
  /// Events of connections that try another path.
  void take_news_beside(TimePoint now);
  [[nodiscard]] Duration far_of(WorkerId peer) const {
    const bool passed_on = around[static_cast<std::size_t>(peer.value())];
    return passed_on || is_relayed(options, peer) ? Duration{0} : options.far;
  }
  template <typename Visit>
  void for_each_dialled(const Visit& visit) {
    for (std::size_t peer = 0; peer < dialled.size(); ++peer) {
      for (std::size_t k = 0; k < dialled[peer].size(); ++k) {
        visit(WorkerId(static_cast<int>(peer)), static_cast<int>(k), *dialled[peer][k]);
      }
    }
  }

  /// With announced keys: records the key of the connection of this message.
  void note_key(const std::string& key, zmq::message_t& message);
  /// Ends connections with invalid keys; ZeroMQ ends none by itself.
  void end_uncounted();
  [[nodiscard]] bool may_dial(WorkerId peer) const {
    return !options.keys || !keys[static_cast<std::size_t>(peer.value())].empty();
  }
  /// Takes a guest's request, unless it is another or too large a message.
  void hear_guest(const std::string& guest, const std::vector<zmq::message_t>& parts,
                  TimePoint now);

  const MemberOptions options;
  const LinkAllowance allowance = link_allowance(options);
  zmq::context_t context{1, allowance.sockets};  // destroyed after all sockets
  std::optional<ZmqAdmission> admission;         // with keys
  int monitors = 0;
  zmq::socket_t wake_in{context, zmq::socket_type::pair};
  zmq::socket_t wake_out{context, zmq::socket_type::pair};
  ZmqPolled woken{wake_out};
  std::unique_ptr<Watched> router;
  std::vector<std::vector<std::unique_ptr<Watched>>> dialled;  // by peer
  std::vector<std::string> addresses;                          // of those, by peer
  std::vector<bool> around;                                    // over a relay, by peer
  std::vector<std::string> keys;                               // of members that have one, by peer
  std::map<int, std::string> opened;                           // by file of a connection, its key
  /// The holder of an invitation, by its key: one request each, however many connections use it.
  struct Guest {
    std::string connection;
    std::vector<std::byte> request;  // not answered yet
    TimePoint next{};                // earliest next request
  };
  std::map<std::string, Guest> guests;
  struct Beside {
    std::string address;
    std::unique_ptr<Watched> link;
    std::optional<TimePoint> stands_since;
  };
  std::map<int, Beside> beside;  // by peer
  std::string endpoint;
};

}  // namespace isthmus
