// SPDX-License-Identifier: Apache-2.0
// Engines of several members joined by connections that a test moves, breaks and listens to.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "transport/links/link_engine.h"

namespace isthmus::link_test {

struct Message {
  LinkHeaderBytes header;
  FrameBytes body;
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return body == nullptr ? std::span<const std::byte>{} : std::span<const std::byte>(*body);
  }
};
inline Message message_of(const LinkHeader& header, FrameBytes body) {
  const std::span<const std::byte> bytes =
      body == nullptr ? std::span<const std::byte>{} : std::span<const std::byte>(*body);
  return {write_link_header(header, bytes), std::move(body)};
}

inline LinkKind kind_of(const Message& message) {
  return parse_link_message(message.header, message.bytes()).value().kind;
}

inline FrameBytes frame_of(std::uint32_t number, std::size_t bytes) {
  std::vector<std::byte> frame(bytes + 4);
  for (std::size_t i = 0; i < 4; ++i) frame[i] = static_cast<std::byte>(number >> (8 * i));
  return std::make_shared<const std::vector<std::byte>>(std::move(frame));
}
inline std::uint32_t number_of(const FrameBytes& frame) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    number |= std::to_integer<std::uint32_t>((*frame)[i]) << (8 * i);
  }
  return number;
}

inline std::vector<std::uint32_t> up_to(std::uint32_t n) {
  std::vector<std::uint32_t> numbers(n);
  for (std::uint32_t i = 0; i < n; ++i) numbers[i] = i;
  return numbers;
}

/// One dialled connection: messages on their way in both directions.
struct Connection {
  bool up = false;
  bool dialled = true;
  ConnectionId id;
  std::deque<Message> forward, backward;
  std::deque<bool> news;  // up or down, not yet told to the dialler
};

class Net {
 public:
  struct Node final : LinkPort {
    Net* net = nullptr;
    WorkerId self;
    int process = 0;
    std::unique_ptr<LinkEngine> engine;
    std::vector<std::uint32_t> delivered;
    struct Held {  // delivered and not taken
      WorkerId from;
      std::size_t bytes = 0;
      std::uint64_t returns = 0;
      std::string line;
    };
    std::deque<Held> held;
    std::map<int, std::uint64_t> returns;           // of the peers: as delivered, and
    std::map<int, std::uint64_t> known;             // ... as the owner has seen
    std::map<int, std::vector<std::string>> story;  // by peer, as the owner has seen it
    std::vector<LinkEvent> events;
    std::map<int, std::string> gone;
    std::map<int, LossCause> causes;

    bool to_stream(WorkerId peer, int stream, const LinkHeader& header, FrameBytes body) override {
      Connection& connection = net->at(self, peer, stream);
      if (!connection.up || connection.forward.size() >= 4) return false;
      connection.forward.push_back(message_of(header, std::move(body)));
      return true;
    }
    void to_connection(const ConnectionId& id, const LinkHeader& header, FrameBytes body) override {
      for (auto& [place, connection] : net->connections) {
        if (connection.up && connection.id == id) {
          connection.backward.push_back(message_of(header, std::move(body)));
          return;
        }
      }
      if (id == "stranger") net->to_stranger.push_back(message_of(header, std::move(body)));
    }
    void deliver(WorkerId from, FrameBytes frame) override {
      delivered.push_back(number_of(frame));
      held.push_back(
          {from, frame->size(), returns[from.value()], std::to_string(delivered.back())});
    }
    void lost(WorkerId peer, LossCause cause, const std::string& why) override {
      gone[peer.value()] = why;
      causes[peer.value()] = cause;
      held.push_back({.from = peer, .line = "lost"});
    }
    void back(WorkerId peer) override {
      ++returns[peer.value()];
      held.push_back({.from = peer, .line = "back"});
    }
    void hang_up(WorkerId peer) override { net->dial(self, peer, false); }
    void dial_again(WorkerId peer) override { net->dial(self, peer, true); }
    void dial_more(WorkerId peer, int wanted) override {
      for (int k = 0; k < wanted; ++k) {
        Connection& connection = net->at(self, peer, k);
        if (connection.id.empty() || !connection.dialled) {
          connection.dialled = true;
          net->set_up(self.value(), peer.value(), k, net->lives(peer.value()));
        }
      }
    }
    void event(const LinkEvent& event) override { events.push_back(event); }
    void take_all() {
      for (; !held.empty(); held.pop_front()) {
        const Held& next = held.front();
        story[next.from.value()].push_back(next.line);
        if (next.bytes > 0) engine->taken(next.from, next.bytes, next.returns);
        if (next.line == "back") ++known[next.from.value()];
      }
    }
    void send(WorkerId to, FrameBytes frame) {
      engine->submit(to, std::move(frame), known[to.value()]);
    }
  };
  using Tweak = std::function<void(MemberOptions&)>;

  /// `ahead`: by member, how far its clock is before the others'.
  explicit Net(int members, const Tweak& tweak = {}, std::map<int, Duration> ahead = {})
      : clocks_ahead(std::move(ahead)) {
    for (int rank = 0; rank < members; ++rank) {
      MemberOptions options{.self = WorkerId(rank),
                            .members = members,
                            .streams = 3,
                            .window_bytes = kSmallestWindow,
                            .gone_after = std::chrono::hours(1)};
      options.dead_after = std::chrono::hours(1);
      if (tweak) tweak(options);
      streams = options.streams;
      most = most_streams(options);
      all.push_back(WorkerId(rank));
      all_options.push_back(options);
      nodes.emplace_back();
      make_process(rank);
    }
    for (int a = 0; a < members; ++a) {
      for (int b = 0; b < members; ++b) {
        for (int k = 0; a != b && k < streams; ++k) set_up(a, b, k, true);
      }
    }
  }

  /// What that member's clock shows.
  [[nodiscard]] TimePoint now_of(int rank) const {
    const auto ahead = clocks_ahead.find(rank);
    return ahead == clocks_ahead.end() ? now : now + ahead->second;
  }
  [[nodiscard]] Connection& at(WorkerId from, WorkerId to, int stream) {
    return connections[{from.value(), to.value(), stream}];
  }
  Node& node(int rank) { return *nodes[static_cast<std::size_t>(rank)]; }
  LinkEngine& engine(int rank) { return *node(rank).engine; }
  [[nodiscard]] bool all_joined(int rank) { return engine(rank).have_joined(all); }
  [[nodiscard]] std::optional<JoinError> join_error(int rank) {
    return engine(rank).join_error(all);
  }
  [[nodiscard]] std::string missing(int rank, std::span<const std::string> endpoints) {
    return engine(rank).describe_missing(all, endpoints);
  }

  /// The process of this member ends without a word, and what it has said and not heard is gone.
  void kill(int rank) {
    nodes[static_cast<std::size_t>(rank)].reset();
    for (auto& [place, connection] : connections) {
      const auto& [from, to, stream] = place;
      if (from == rank) {
        connection.up = false;
        connection.forward.clear();
        connection.backward.clear();
        connection.news.clear();
      } else if (to == rank && connection.up) {
        set_up(from, to, stream, false);
      }
    }
  }
  [[nodiscard]] bool lives(int rank) const {
    return nodes[static_cast<std::size_t>(rank)] != nullptr;
  }
  /// A new process of this member, at the same address.
  void start(int rank) {
    make_process(rank);
    for (const WorkerId other : all) {
      if (other == WorkerId(rank)) continue;
      dial(WorkerId(rank), other, true);
      for (int k = 0; k < most; ++k) {
        const Connection& connection = at(other, WorkerId(rank), k);
        if (connection.dialled && !connection.id.empty() && lives(other.value())) {
          set_up(other.value(), rank, k, true);
        }
      }
    }
  }

  /// What was on its way over a connection that breaks is gone.
  void set_up(int from, int to, int stream, bool up) {
    Connection& connection = at(WorkerId(from), WorkerId(to), stream);
    connection.up = up;
    connection.forward.clear();
    connection.backward.clear();
    connection.id = fmt::format("connection {}", ++opened);
    connection.news.push_back(up);
  }
  /// Moves one message or piece of news of this connection. RETURNS: false when there is none.
  bool move(int from, int to, int stream, std::uint32_t which) {
    Connection& connection = at(WorkerId(from), WorkerId(to), stream);
    if (which % 3 == 0 && !connection.news.empty()) {
      const bool up = connection.news.front();
      connection.news.pop_front();
      if (up) {
        engine(from).stream_up(WorkerId(to), stream, now_of(from));
      } else {
        engine(from).stream_down(WorkerId(to), stream, now_of(from), "cut");
      }
    } else if (which % 3 == 1 && !connection.forward.empty()) {
      const Message message = connection.forward.front();
      connection.forward.pop_front();
      engine(to).from_connection(connection.id, message.header, message.bytes(), now_of(to),
                                 WorkerId(opened_with.contains(from) ? opened_with[from] : from));
      if (engine(from).wants_write(WorkerId(to), stream))
        engine(from).writable(WorkerId(to), stream);
    } else if (which % 3 == 2 && !connection.backward.empty()) {
      const Message message = connection.backward.front();
      connection.backward.pop_front();
      engine(from).from_stream(WorkerId(to), message.header, message.bytes(), now_of(from));
    } else {
      return false;
    }
    return true;
  }
  /// Until nothing moves.
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& [place, connection] : connections) {
        const auto& [from, to, stream] = place;
        for (std::uint32_t which = 0; which < 3; ++which) {
          moved = move(from, to, stream, which) || moved;
        }
      }
    }
  }
  void pass(Duration time) {
    now += time;
    for (const auto& node : nodes) {
      if (node) node->engine->tick(now_of(node->self.value()));
    }
    settle();
  }
  /// What a stranger says to member `rank` over a connection of its own.
  void say(int rank, const LinkHeader& header, FrameBytes body = nullptr) {
    const Message message = message_of(header, std::move(body));
    engine(rank).from_connection("stranger", message.header, message.bytes(), now_of(rank));
  }

  void make_process(int rank) {
    auto& node = nodes[static_cast<std::size_t>(rank)];
    node = std::make_unique<Node>();
    node->net = this;
    node->self = WorkerId(rank);
    node->process = processes++;
    node->engine = std::make_unique<LinkEngine>(all_options[static_cast<std::size_t>(rank)],
                                                incarnation_of(node->process), *node, now_of(rank));
  }
  /// Of the processes, which are counted from 0.
  [[nodiscard]] static Digest128 incarnation_of(int process) {
    Digest128 incarnation;
    incarnation.bytes[0] = static_cast<std::uint8_t>(process + 1);
    return incarnation;
  }
  void dial(WorkerId from, WorkerId to, bool again) {
    for (int k = 0; k < most; ++k) {
      Connection& connection = at(from, to, k);
      connection.dialled = again && k < streams;
      connection.up = false;
      connection.forward.clear();
      connection.backward.clear();
      connection.news.clear();
      if (connection.dialled && lives(to.value())) set_up(from.value(), to.value(), k, true);
    }
  }

  TimePoint now{};
  std::map<int, Duration> clocks_ahead;
  int streams = 0;  // at first
  int most = 0;
  int processes = 0;
  std::vector<WorkerId> all;
  std::vector<MemberOptions> all_options;
  int opened = 0;
  std::vector<std::unique_ptr<Node>> nodes;
  std::map<std::tuple<int, int, int>, Connection> connections;
  std::vector<Message> to_stranger;
  std::map<int, int> opened_with;  // whose key a member's connections have, where not its own
};

}  // namespace isthmus::link_test
