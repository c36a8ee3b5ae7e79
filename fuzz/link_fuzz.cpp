// SPDX-License-Identifier: Apache-2.0
// A member whose links are dialled, greeted and talked to by whoever likes: the input says who says
// what, on which connection, and when; lengths and checksums are put right, so that fields reach
// the links. What the links must never do is in link_peers.h: deliver before a greeting, out of
// order, twice or after a loss, send before a welcome or to who is lost, take in a former process
// or another run's, hold more than a window.
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "choices.h"
#include "link_peers.h"
#include "transport/wire/frame.h"

namespace {

using namespace isthmus;
using namespace isthmus::fuzzing;
using std::chrono::milliseconds;

constexpr std::size_t kMostSteps = 400, kMostFrames = 60;

class Talk {
 public:
  explicit Talk(std::span<const std::byte> bytes)
      : in_(bytes), options_(options_of(in_)), own_(process_of(options_.self.value(), 200)) {
    port_.options = options_;
    port_.incarnation = own_;
    engine_ = std::make_unique<LinkEngine>(options_, own_, port_, now_);
    port_.engine = engine_.get();
    if (options_.keys_from == options_.self) engine_->set_keys(table(true));
  }

  void run() {
    for (std::size_t i = 0; i < kMostSteps && !in_.over(); ++i) {
      step();
      port_.check_bounds();
    }
    // Whatever has been said, it comes to an end.
    if (!port_.closed) close();
    now_ += std::chrono::hours(1);
    engine_->tick(now_);
    port_.check_bounds();
    (void)engine_->all_told();
  }

 private:
  WorkerId peer() {
    const int other = in_.below(options_.members - 1);
    return WorkerId(other < options_.self.value() ? other : other + 1);
  }
  int stream_of(WorkerId peer) { return in_.below(engine_->streams_dialled(peer)); }
  [[nodiscard]] bool has_key(WorkerId rank) const { return port_.has_key(rank); }

  void step() {
    switch (in_.below(20)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return from_connection();
      case 4:
      case 5:
        return from_stream();
      case 6:
        return meet(peer(), 0);
      case 7:
        return connection_news();
      case 8:
        now_ += milliseconds(in_.below(256) * in_.below(256));
        return engine_->tick(now_);
      case 9:
        return take();
      case 10:
        return submit();
      case 11:
        return engine_->use_streams(peer(), 1 + in_.below(most_streams(options_)));
      case 12: {
        const WorkerId to = peer();
        const int stream = stream_of(to);
        port_.at(to, stream).full = false;
        return engine_->writable(to, stream);
      }
      case 13: {
        const WorkerId to = peer();
        port_.at(to, stream_of(to)).full = true;
        return;
      }
      case 14:
        return absent();
      case 15:
        return strangers();
      case 16:
        if (options_.keys_from == options_.self) engine_->set_keys(table(true));
        return;
      case 17:
        now_ += milliseconds(in_.below(256));
        return engine_->see(now_);
      case 18:
        return meet(peer(), in_.below(3));
      default:
        if (in_.one_in(8) && !port_.closed) close();
        return;
    }
  }

  void close() {
    port_.closed = true;
    engine_->close(now_);
  }

  /// A peer's process greets on all its connections and welcomes all that it was greeted on.
  void meet(WorkerId from, int life) {
    for (int k = 0; k < options_.streams; ++k) {
      const auto body = write_hello(hello_of(from, life));
      say(connection_of(from, k),
          {.kind = LinkKind::kHello,
           .stream = static_cast<std::uint32_t>(k),
           .number = ++greetings_[{from.value(), life}]},
          body, from);
    }
    for (int k = 0; k < engine_->streams_dialled(from); ++k) {
      if (!has_key(from)) return;
      if (!port_.at(from, k).greeting) engine_->stream_up(from, k, now_);
      answer(from,
             {.kind = LinkKind::kWelcome,
              .stream = static_cast<std::uint32_t>(k),
              .number = port_.at(from, k).attempt,
              .amount = kSmallestWindow},
             write_incarnation(process_of(from.value(), life)));
    }
  }
  static ConnectionId connection_of(WorkerId from, int stream) {
    return fmt::format("{} {}", from.value(), stream);
  }
  [[nodiscard]] Hello hello_of(WorkerId from, int life) const {
    return {.protocol = kFrameVersion,
            .members = options_.members,
            .from = from,
            .to = options_.self,
            .streams = options_.streams,
            .most_streams = options_.most_streams,
            .run = options_.identity.run,
            .configuration = options_.identity.configuration,
            .layout = options_.identity.layout,
            .incarnation = process_of(from.value(), life),
            .name = "peer"};
  }

  std::vector<std::byte> hello_body(WorkerId from, int life) {
    Hello hello = hello_of(from, life);
    switch (in_.below(24)) {
      case 1:
        hello.protocol = in_.byte();
        break;
      case 2:
        hello.members = in_.byte();
        break;
      case 3:
        hello.from = WorkerId(in_.byte());
        break;
      case 4:
        hello.to = WorkerId(in_.byte());
        break;
      case 5:
        hello.streams = in_.byte();
        break;
      case 6:
        hello.most_streams = in_.byte();
        break;
      case 7:
        hello.run.bytes[15] = in_.byte();
        break;
      case 8:
        hello.configuration[63] = "0123456789abcdef"[in_.below(16)];
        break;
      case 9:
        hello.layout.bytes[0] = in_.byte();
        break;
      case 10:
        for (const std::byte each : in_.some()) hello.name += static_cast<char>(each);
        hello.name.resize(std::min(hello.name.size(), kMaxMemberName));
        break;
      default:
        break;
    }
    return write_hello(hello);
  }

  /// `own`: as this member says it of itself, of whose key there is no doubt.
  KeyTable table(bool own) {
    KeyTable table{.version = in_.number(), .members = {}, .guests = {}};
    for (int member = 0; member < options_.members; ++member) {
      const int which = in_.below(4);
      const bool sure = own && WorkerId(member) == options_.self;
      table.members.push_back(
          which == 1 && !sure ? "" : key_of(which == 2 && !sure ? member + 50 : member));
    }
    return table;
  }

  std::vector<std::byte> body_of(LinkKind kind, WorkerId from, int life, std::uint64_t number) {
    if (kind == LinkKind::kData) {  // frames of a link are what the links are asked about
      return numbered_frame(number, std::size_t{in_.byte()} * (in_.one_in(4) ? 8 : 0));
    }
    if (in_.one_in(16)) return in_.some();
    switch (kind) {
      case LinkKind::kHello:
        return hello_body(from, life);
      case LinkKind::kWelcome:
        return write_incarnation(process_of(from.value(), life));
      case LinkKind::kRefuse:
        return write_refusal({static_cast<RefusedField>(1 + in_.below(10)), "because"});
      case LinkKind::kKeys:
        return write_key_table(table(false));
      default:
        return {};
    }
  }

  /// A header that may be damaged; a frame's body is not, which has a checksum of its own.
  LinkHeaderBytes header_of(const LinkHeader& header, std::span<const std::byte> body) {
    LinkHeaderBytes bytes = write_link_header(header, body);
    if (in_.one_in(32)) bytes[in_.byte() % bytes.size()] ^= std::byte{1};
    return bytes;
  }

  void from_connection() {
    const WorkerId from = peer();
    const int life = in_.below(3), stream = in_.below(kMostStreamsHere + 1);
    LinkHeader header{.kind = static_cast<LinkKind>(1 + in_.below(11)),
                      .stream = static_cast<std::uint32_t>(stream)};
    // What would come next, mostly: otherwise hardly anything gets far.
    Said& said = said_[connection_of(from, stream)];
    const bool fits = !in_.one_in(4);
    switch (header.kind) {
      case LinkKind::kHello:
        header.number = fits ? ++greetings_[{from.value(), life}] : in_.number();
        said = {};
        break;
      case LinkKind::kData:
        header.number = fits ? port_.at(from).came + in_.number() % 3 : in_.number();
        header.amount = fits ? said.carried : in_.number();
        ++said.carried;
        break;
      case LinkKind::kHeartbeat:
        header.number = fits ? said.carried : in_.number();
        break;
      case LinkKind::kClose:
        header.number = fits ? port_.at(from).came + in_.number() : in_.number();
        break;
      default:
        header.number = in_.number();
    }
    const auto body = body_of(header.kind, from, life, header.number);
    // A connection that another one has opened, now and then.
    const WorkerId owner = in_.one_in(16) ? peer() : from;
    say(connection_of(from, stream), header, body,
        has_key(owner) ? std::optional(owner) : std::nullopt);
  }

  void say(const ConnectionId& id, const LinkHeader& header, std::span<const std::byte> body,
           std::optional<WorkerId> owner) {
    if (owner && !has_key(*owner)) owner.reset();
    const LinkHeaderBytes bytes = header_of(header, body);
    port_.comes_from_connection(id, bytes, body, owner);
    engine_->from_connection(id, bytes, body, now_, owner);
    port_.has_spoken();
  }

  void from_stream() {
    const WorkerId from = peer();
    if (!has_key(from)) return;
    const int stream = in_.below(kMostStreamsHere + 1);
    LinkHeader header{.kind = static_cast<LinkKind>(1 + in_.below(11)),
                      .stream = static_cast<std::uint32_t>(stream)};
    const bool fits = !in_.one_in(4) && stream < kMostStreamsHere;
    header.number = in_.number();
    if (fits && header.kind == LinkKind::kWelcome) header.number = port_.at(from, stream).attempt;
    if (fits && header.kind == LinkKind::kAck) header.number = port_.at(from).gone.size();
    header.amount = in_.one_in(8) ? in_.number() : kSmallestWindow;
    const auto body = body_of(header.kind, from, in_.below(3), header.number);
    answer(from, header, body);
  }

  void answer(WorkerId from, const LinkHeader& header, std::span<const std::byte> body) {
    const LinkHeaderBytes bytes = header_of(header, body);
    port_.comes_from_stream(from, bytes, body);
    engine_->from_stream(from, bytes, body, now_);
  }

  void connection_news() {
    const WorkerId to = peer();
    if (!has_key(to)) return;
    const int stream = stream_of(to), what = in_.below(8);
    const auto fault = static_cast<HandshakeFault>(in_.below(5));
    port_.broke(to, stream);
    if (what < 3) {
      port_.at(to, stream).full = false;
      engine_->stream_up(to, stream, now_);
    } else if (what < 5) {
      engine_->stream_down(to, stream, now_, "cut");
    } else if (what == 5) {  // as it is said of one that does not stand
      engine_->stream_down(to, stream, now_, "cut");
      engine_->stream_trouble(to, stream, LinkEvent::Kind::kRetried, "no connection");
    } else if (what == 6) {
      engine_->stream_down(to, stream, now_, "cut");
      engine_->handshake_failed(to, stream, fault);
    } else {
      for (int k = 0; k < kMostStreamsHere; ++k) port_.broke(to, k);
      engine_->rerouted(to, in_.one_in(2), now_);
    }
  }

  void take() {
    const WorkerId from = peer();
    CheckedPort::Link& link = port_.at(from);
    for (int n = in_.below(8); n >= 0 && !link.held.empty() && !port_.closed; --n) {
      const CheckedPort::Delivered next = link.held.front();
      link.held.pop_front();
      engine_->taken(from, next.bytes, next.returns);
    }
  }

  void submit() {
    const WorkerId to = peer();
    if (port_.closed || frames_ >= kMostFrames) return;
    const CheckedPort::Link& link = port_.at(to);
    const bool late = link.returns > 0 && in_.one_in(4);  // of the time before it came back
    engine_->submit(
        to, std::make_shared<const std::vector<std::byte>>(numbered_frame(frames_++, in_.byte())),
        link.returns - (late ? 1 : 0));
  }

  /// What whoever waits for the members asks and does.
  void absent() {
    const std::vector<WorkerId> these = {peer()};
    const std::vector<std::string> endpoints(static_cast<std::size_t>(options_.members), "x");
    (void)engine_->describe_missing(these, endpoints);
    (void)engine_->join_error(these);
    if (!options_.readmits || port_.closed) return;
    for (const WorkerId rank : engine_->begin_without_absent()) port_.at(rank).away = true;
  }

  void strangers() {
    const auto fault = static_cast<HandshakeFault>(in_.below(5));
    if (options_.member_keys.empty() && fault == HandshakeFault::kWrongAddress) return;
    engine_->stranger_handshake(fault, "here");
    if (!options_.member_keys.empty()) engine_->stranger_key(key_of(in_.byte()));
    const auto header = in_.some(), body = in_.some();
    const auto parsed = parse_link_message(header, body);
    if (parsed && parsed->kind == LinkKind::kData) return;  // whose frame has no number
    port_.comes_from_connection("stranger", header, body, std::nullopt);
    engine_->from_connection("stranger", header, body, now_, std::nullopt);
    port_.has_spoken();
  }

  struct Said {
    std::uint64_t carried = 0;
  };
  Choices in_;
  const MemberOptions options_;
  const Digest128 own_;
  CheckedPort port_;
  TimePoint now_{};
  std::unique_ptr<LinkEngine> engine_;
  std::map<ConnectionId, Said> said_;
  std::map<std::pair<int, int>, std::uint64_t> greetings_;  // by member and process
  std::uint64_t frames_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Talk(std::as_bytes(std::span(data, size))).run();
  return 0;
}
