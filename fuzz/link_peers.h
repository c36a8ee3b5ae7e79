// SPDX-License-Identifier: Apache-2.0
// What `link_fuzz` holds the links of a member to: a port that is told everything the member does
// and knows, from what has been said to it alone, what it may do. A breach ends the process.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "choices.h"
#include "transport/links/link_engine.h"

namespace isthmus::fuzzing {

/// Ends the process, with the line of the caller.
inline void require(bool condition, int line = __builtin_LINE()) {
  if (condition) return;
  std::fprintf(stderr, "a promise of the links is broken: line %d\n", line);
  std::abort();
}

inline constexpr int kMostMembers = 4, kMostStreamsHere = 4;

/// A frame that says its place on a link.
inline std::vector<std::byte> numbered_frame(std::uint64_t number, std::size_t extra) {
  std::vector<std::byte> frame(8 + extra);
  for (std::size_t i = 0; i < 8; ++i) frame[i] = static_cast<std::byte>(number >> (8 * i));
  return frame;
}
inline std::uint64_t number_in(std::span<const std::byte> frame) {
  require(frame.size() >= 8);
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < 8; ++i) number |= std::to_integer<std::uint64_t>(frame[i]) << (8 * i);
  return number;
}

/// 40 characters, as a key has them. Nobody's proofs depend on it here.
inline std::string key_of(int who) { return fmt::format("{:040}", who); }

inline Digest128 process_of(int who, int life) {
  Digest128 digest;
  digest.bytes[0] = static_cast<std::uint8_t>(who + 1);
  digest.bytes[1] = static_cast<std::uint8_t>(life);
  return digest;
}

inline MemberOptions options_of(Choices& in) {
  MemberOptions options;
  options.members = 2 + in.below(kMostMembers - 1);
  options.self = WorkerId(in.below(options.members));
  options.streams = 1 + in.below(2);
  options.most_streams = in.one_in(3) ? kMostStreamsHere : 0;
  options.window_bytes = 4096;
  options.identity.run = process_of(100, 0);
  options.identity.configuration = std::string(64, 'c');
  const int kind = in.below(6);
  options.readmits = kind >= 2;
  const bool keys = kind == 1 || kind >= 4;
  for (int member = 0; keys && member < options.members; ++member) {
    options.member_keys.push_back(key_of(member));
  }
  if (kind >= 4) {
    options.keys_from = WorkerId(in.below(options.members));
    options.keys_come = kind == 5;
    if (options.keys_come && options.members > 2) {  // one who comes with an invitation
      const int invited = (options.keys_from->value() + 1) % options.members;
      if (WorkerId(invited) != options.self)
        options.member_keys[static_cast<std::size_t>(invited)] = "";
    }
  }
  if (in.one_in(8)) options.send_bits_per_s = [] { return 1e5; };
  return options;
}

class CheckedPort final : public LinkPort {
 public:
  struct Delivered {
    std::size_t bytes = 0;
    std::uint64_t returns = 0;
  };
  struct Way {  // one connection that is dialled
    std::uint64_t attempt = 0;
    bool greeting = false, welcomed = false, full = false;
    std::uint64_t carried = 0;  // frames since the greeting
  };
  struct Link {
    std::array<Way, kMostStreamsHere> ways;
    std::vector<FrameBytes> gone;  // by number, as they went first
    std::uint64_t widest = 0;      // window that it was ever given
    std::uint64_t came = 0;        // frames delivered from it
    std::deque<Delivered> held;    // ... and not taken
    std::uint64_t returns = 0;
    bool away = false, ever_lost = false;
    std::optional<Digest128> process;                // that was welcomed last
    std::set<std::string> former;                    // processes that another one has followed
    std::map<std::uint32_t, std::uint64_t> greeted;  // by stream: the next number
  };

  Link& at(WorkerId peer) { return links[static_cast<std::size_t>(peer.value())]; }
  Way& at(WorkerId peer, int stream) { return at(peer).ways[static_cast<std::size_t>(stream)]; }

  /// Those who have no key are neither dialled nor let in.
  [[nodiscard]] bool has_key(WorkerId rank) const {
    const auto& keys = engine->keys();
    return keys.empty() || !keys[static_cast<std::size_t>(rank.value())].empty();
  }
  /// A connection that was dialled is another one from now on, or none.
  void broke(WorkerId peer, int stream) {
    at(peer, stream).greeting = at(peer, stream).welcomed = false;
  }

  // What is said to the member, before it hears it.
  void comes_from_stream(WorkerId peer, std::span<const std::byte> header,
                         std::span<const std::byte> body) {
    const auto parsed = parse_link_message(header, body);
    if (!parsed || parsed->kind != LinkKind::kWelcome || parsed->stream >= kMostStreamsHere) return;
    Way& way = at(peer, static_cast<int>(parsed->stream));
    if (way.greeting && parsed->number == way.attempt) {
      way.welcomed = true;
      at(peer).widest = std::max(at(peer).widest, parsed->amount);
    }
  }
  void comes_from_connection(const ConnectionId& id, std::span<const std::byte> header,
                             std::span<const std::byte> body, std::optional<WorkerId> owner) {
    speaking = id;
    const auto parsed = parse_link_message(header, body);
    if (!parsed || parsed->kind != LinkKind::kHello) return;
    const auto hello = read_hello(body);
    if (!hello || hello->members != options.members || hello->to != options.self ||
        hello->from == options.self || hello->from.value() >= options.members ||
        hello->run != options.identity.run || hello->layout != options.identity.layout ||
        hello->configuration != options.identity.configuration ||
        hello->streams != options.streams || hello->most_streams != options.most_streams ||
        (!options.member_keys.empty() && owner != hello->from)) {
      return;
    }
    said[id].insert(hello->from);
    fitting = {hello->from, hello->incarnation, parsed->stream, parsed->number};
  }
  void has_spoken() {
    speaking.reset();
    fitting.reset();
  }

  bool to_stream(WorkerId peer, int stream, const LinkHeader& header, FrameBytes body) override {
    require(peer != options.self && stream >= 0 && stream < most_streams(options));
    require(header.stream == static_cast<std::uint32_t>(stream));
    require(!engine->is_lost(peer));
    if (!has_key(peer)) return false;
    Link& link = at(peer);
    Way& way = at(peer, stream);
    if (header.kind == LinkKind::kHello) {
      require(header.number > way.attempt);
      const auto hello = read_hello(*body);
      require(hello && hello->from == options.self && hello->to == peer &&
              hello->incarnation == incarnation);
      if (way.full) return false;
      way.attempt = header.number;
      way.greeting = true;
      way.welcomed = false;
      way.carried = 0;
      return true;
    }
    require(way.welcomed);  // nothing but a greeting goes before that
    if (way.full) return false;
    if (header.kind == LinkKind::kHeartbeat) {
      require(header.number == way.carried);
    } else if (header.kind == LinkKind::kClose) {
      require(closed);
    } else {
      require(header.kind == LinkKind::kData && header.amount == way.carried);
      require(header.number <= link.gone.size());
      if (header.number == link.gone.size()) {
        link.gone.push_back(std::move(body));
      } else {
        require(link.gone[header.number] == body);
      }
      ++way.carried;
    }
    return true;
  }

  void to_connection(const ConnectionId& id, const LinkHeader& header, FrameBytes body) override {
    if (header.kind != LinkKind::kWelcome) return;
    require(speaking == id && fitting.has_value());
    require(header.amount == options.window_bytes && *read_incarnation(*body) == incarnation);
    Link& link = at(fitting->from);
    require(!link.former.contains(fitting->process.hex()));
    if (link.process && *link.process != fitting->process) {
      link.former.insert(link.process->hex());
      link.greeted.clear();
    }
    link.process = fitting->process;
    std::uint64_t& next = link.greeted[fitting->stream];  // of greetings, each counts once
    require(fitting->number >= next);
    next = fitting->number + 1;
  }

  void deliver(WorkerId from, FrameBytes frame) override {
    Link& link = at(from);
    require(!closed && !link.away && !engine->is_lost(from));
    if (speaking && said.contains(*speaking)) {
      require(said[*speaking].contains(from));
    } else {
      require(
          std::ranges::any_of(said, [&](const auto& each) { return each.second.contains(from); }));
    }
    if (options.readmits) require(engine->have_joined(std::span(&from, 1)));
    require(number_in(*frame) == link.came++);
    link.held.push_back({frame->size(), link.returns});
  }
  void lost(WorkerId peer, LossCause /*cause*/, const std::string& why) override {
    Link& link = at(peer);
    require(!link.away && !why.empty());
    link.away = link.ever_lost = true;
  }
  void back(WorkerId peer) override {
    Link& link = at(peer);
    require(options.readmits && link.away);
    link.away = false;
    ++link.returns;
  }
  void hang_up(WorkerId peer) override { require(peer != options.self); }
  void dial_again(WorkerId peer) override {
    require(options.readmits);
    // What went to the process before counts no more; of a greeting the number goes on.
    Link& link = at(peer);
    for (Way& way : link.ways) way.greeting = way.welcomed = false;
    link.gone.clear();
    link.came = 0;
    link.greeted.clear();
  }
  void dial_more(WorkerId peer, int streams) override {
    require(peer != options.self && streams <= most_streams(options));
  }
  void keys_changed(const std::vector<std::string>& members) override {
    require(members.size() == static_cast<std::size_t>(options.members));
  }
  void event(const LinkEvent& event) override { require(!event.text.empty()); }

  /// After every step: what the windows allow.
  void check_bounds() {
    for (int member = 0; member < options.members; ++member) {
      const WorkerId rank(member);
      if (rank == options.self) continue;
      require(engine->bytes_held(rank) <= options.window_bytes);
      require(engine->bytes_in_flight(rank) <= at(rank).widest);
      if (at(rank).ever_lost && !options.readmits) require(engine->is_lost(rank));
    }
  }

  const LinkEngine* engine = nullptr;
  MemberOptions options;
  Digest128 incarnation;
  std::array<Link, kMostMembers> links;
  std::map<ConnectionId, std::set<WorkerId>> said;  // who each says to be, where that could be
  std::optional<ConnectionId> speaking;
  struct Greeting {
    WorkerId from;
    Digest128 process;
    std::uint32_t stream = 0;
    std::uint64_t number = 0;
  };
  std::optional<Greeting> fitting;  // what it says now
  bool closed = false;
};

}  // namespace isthmus::fuzzing
