// SPDX-License-Identifier: Apache-2.0
#include "transport/links/relay/relayed_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <span>
#include <string_view>
#include <utility>

#include "core/base/check.h"
#include "core/base/log.h"
#include "transport/links/relay/relay.h"
#include "transport/links/tcp/tcp_connection.h"

namespace isthmus {
namespace {

constexpr const char* kHere = "127.0.0.1";
constexpr std::size_t kMostEarly = 4096;  // bytes of a connection that leads nowhere yet
constexpr int kSpareRelayed = 8;          // beyond two processes' of a member
constexpr int kRelayedPerTurn = 64;
constexpr int kAnswersPerTurn = 16;
// A relay that greets and comes to nothing; of a dial less than ZeroMQ waits for its handshake, so
// that another relay has its turn.
constexpr Duration kCallTakes = std::chrono::seconds(6), kDialTakes = std::chrono::seconds(3);
constexpr Duration kOutgoingTakes = std::chrono::seconds(10);
constexpr Duration kNameTakes = std::chrono::seconds(1);  // of it, while there is another relay
constexpr Duration kNoRoomForRelayed =
    std::chrono::milliseconds(100);  // after the machine refused one
// Between lookups of a name; where none has found anything, nothing is lost by another one.
constexpr Duration kLookUpEvery = std::chrono::minutes(1);
constexpr Duration kLookUpFirst = std::chrono::seconds(10);
constexpr Duration kFirstBackoff = std::chrono::milliseconds(100);
constexpr Duration kLongestBackoff = std::chrono::seconds(2);
constexpr Duration kLastWordsOfRelays = std::chrono::milliseconds(500);
constexpr std::uint64_t kWorthSaying = 16;
constexpr double kLookAtRelayedS = 0.1;

}  // namespace

long passed_on_files(const MemberOptions& options) {
  const long others = options.members - 1L, hidden = static_cast<long>(options.relayed.size());
  const long to_here = is_relayed(options, options.self) ? others - 1 : 0;
  const long ways = options.detours ? 2 * others : hidden + to_here;
  return 2 * ways * options.streams * (options.readmits ? 2 : 1);
}

RelayedLinks::RelayedLinks(Runtime& runtime, const MemberOptions& options, Routes routes,
                           std::shared_ptr<const AnnouncedKeys> told)
    : runtime_(runtime),
      options_(options),
      told_(std::move(told)),
      routes_(std::move(routes)),
      most_from_each_(static_cast<std::size_t>(2 * most_streams(options) + kSpareRelayed)),
      queue_(runtime.make_wait_queue()),
      names_(runtime, routes_.look_up),
      addresses_(routes_.relays.size()) {
  ISTHMUS_CHECK(!routes_.relays.empty());
  if (options_.keys) {
    for (const RelayPlace& relay : routes_.relays) {  // THROWS here rather than when it is called
      const std::string& key = options_.member_keys[static_cast<std::size_t>(relay.member.value())];
      if (!key.empty()) (void)share_key(*options_.keys, key);
    }
  }
  const TimePoint now = runtime.clock().now();
  std::vector<WorkerId> reached = routes_.hidden;
  reached.insert(reached.end(), routes_.detours.begin(), routes_.detours.end());
  for (const WorkerId member : reached) {
    if (member != options_.self) {
      const auto [door, fresh] = doors_.emplace(
          member.value(), Door{.listener = TcpSocket::listen_at(kHere, 0),
                               .relay = relay_after(routes_.relays.size() - 1, member)});
      receive_little(door->second.listener.descriptor());
      continue;
    }
    for (std::size_t relay = 0; relay < routes_.relays.size(); ++relay) {
      if (routes_.relays[relay].member == options_.self) continue;
      listening_.push_back({.relay = relay, .again = now, .backoff = kFirstBackoff});
    }
  }
  task_ = runtime_.spawn("relayed links", [this] { serve(); });
}

RelayedLinks::~RelayedLinks() {
  stop_.ring();
  task_.reset();
}

std::string RelayedLinks::endpoint(WorkerId hidden) const {
  return fmt::format("tcp://{}:{}", kHere, doors_.at(hidden.value()).listener.port());
}

std::string RelayedLinks::trouble(WorkerId hidden) const {
  std::string why;
  queue_->update([&] {
    if (const auto found = trouble_.find(hidden.value()); found != trouble_.end()) {
      why = found->second;
    }
  });
  return why;
}

void RelayedLinks::serve() {
  try {
    while (!stopping_) turn();
    // Passes on the last bytes of the transport.
    const TimePoint end = runtime_.clock().now() + kLastWordsOfRelays;
    while (!(joined_.empty() && accepted_.empty()) && runtime_.clock().now() < end) turn();
  } catch (const std::exception& error) {
    log_warning("links by way of a relay are gone: {}", error.what());
  }
  doors_.clear();
  outgoing_.clear();
  listening_.clear();
  accepting_.clear();
  joined_.clear();
  accepted_.clear();
}

void RelayedLinks::turn() {
  // Rung once and for all.
  std::vector<Waited> all = {{.descriptor = stop_.descriptor(), .to_read = !stopping_}};
  const bool takes = !stopping_ && runtime_.clock().now() >= take_again_;
  for (auto& [to, door] : doors_) {
    door.place = all.size();
    all.push_back(
        {.descriptor = door.listener.descriptor(), .to_read = takes && takes_more(WorkerId(to))});
  }
  for (TcpSplice& each : joined_) each.add_to(all);
  for (TcpSplice& each : accepted_) each.add_to(all);
  for (RelayCall& each : accepting_) each.add_to(all);
  for (Outgoing& each : outgoing_) {
    each.place = all.size();
    all.push_back({.descriptor = each.local.descriptor(), .to_read = true});
    if (each.call) each.call->add_to(all);
  }
  for (Listening& each : listening_) {
    each.place = all.size();
    if (each.socket) all.push_back({.descriptor = each.socket->descriptor(), .to_read = true});
    if (each.call) each.call->add_to(all);
  }
  wait_for_any(all, kLookAtRelayedS);
  stopping_ = stopping_ || all[0].ready;
  const TimePoint now = runtime_.clock().now();
  joined_.remove_if([&](TcpSplice& each) { return !each.advance(all, now); });
  accepted_.remove_if([&](TcpSplice& each) { return !each.advance(all, now); });
  accepting_.remove_if([&](RelayCall& each) { return !advance(each, all, now); });
  outgoing_.remove_if([&](Outgoing& each) { return !advance(each, all, now); });
  for (Listening& each : listening_) advance(each, all, now);
  for (auto& [to, door] : doors_) {
    if (all[door.place].ready && !stopping_) take_connections(WorkerId(to), door, now);
  }
}

bool RelayedLinks::takes_more(WorkerId to) const {
  const auto many = std::ranges::count(outgoing_, to, &Outgoing::to);
  return static_cast<std::size_t>(many) < most_from_each_;
}

void RelayedLinks::take_connections(WorkerId to, Door& door, TimePoint now) {
  for (int taken = 0; taken < kRelayedPerTurn && takes_more(to); ++taken) {
    bool failed = false;
    std::optional<TcpSocket> socket = door.listener.accept(failed);
    if (failed) take_again_ = now + kNoRoomForRelayed;
    if (!socket) return;
    outgoing_.push_back({.to = to,
                         .local = *std::move(socket),
                         .given_up_at = now + kOutgoingTakes,
                         .again = now,
                         .backoff = kFirstBackoff,
                         .relay = door.relay});
  }
}

const RelayedLinks::Addresses& RelayedLinks::addresses(std::size_t relay, TimePoint now) {
  Addresses& known = addresses_[relay];
  const auto take = [&] {
    const auto found = names_.take(relay);
    if (!found) return;
    if (*found) {
      known.found = **found;
      known.doubted = false;
    } else {
      if (known.why.empty()) {
        log_warning("relay {}:{}: its name has no address: {}; trying on",
                    routes_.relays[relay].host, routes_.relays[relay].port, found->error());
      }
      known.why = "its name: " + found->error();
    }
  };
  take();
  if (known.doubted && now >= known.look_up_at) {
    names_.ask(relay, routes_.relays[relay].host, routes_.relays[relay].port);
    // A question that concerns detours alone is not worth asking every few seconds.
    const bool urgent = known.found.empty() && !routes_.hidden.empty();
    known.look_up_at = now + (urgent ? kLookUpFirst : kLookUpEvery);
  }
  take();  // an address in numbers
  return known;
}

std::optional<RelayCall> RelayedLinks::call(std::size_t relay, const RelayRequest& request,
                                            TimePoint now) {
  const Addresses& known = addresses(relay, now);
  if (known.found.empty()) {
    const bool looks = names_.under_way(relay) || known.why.empty();
    failed(request.to, relay, looks ? "its name is being looked up" : known.why);
    return std::nullopt;
  }
  return std::make_optional<RelayCall>(
      options_, routes_.relays[relay], known.found, request, runtime_.clock().now(),
      request.verb == RelayVerb::kDial ? kDialTakes : kCallTakes, told_.get());
}

std::size_t RelayedLinks::relay_after(std::size_t relay, WorkerId to) const {
  const std::size_t all = routes_.relays.size();
  std::size_t next = (relay + 1) % all;
  while (routes_.relays[next].member == to && next != relay) next = (next + 1) % all;
  return next;
}

void RelayedLinks::turn_from(std::size_t relay, WorkerId to) {
  std::size_t& first = doors_.at(to.value()).relay;
  if (first == relay) first = relay_after(relay, to);
}

bool RelayedLinks::advance(Outgoing& outgoing, const std::vector<Waited>& all, TimePoint now) {
  if (all[outgoing.place].ready) {
    std::array<char, kMostEarly> buffer;
    const Transfer got =
        outgoing.local.read_some(std::span(buffer).first(kMostEarly - outgoing.early.size()));
    outgoing.early.append(buffer.data(), got.bytes);
    if (got.closed && outgoing.call && !outgoing.call->reached()) {
      turn_from(outgoing.relay, outgoing.to);
    }
    // A link says little before it is answered.
    if (got.closed || outgoing.early.size() >= kMostEarly) return false;
  }
  if (now >= outgoing.given_up_at) return false;
  if (!outgoing.call) {
    if (now < outgoing.again) return true;
    if (addresses(outgoing.relay, now).found.empty() && names_.under_way(outgoing.relay) &&
        now < outgoing.given_up_at - kOutgoingTakes + kNameTakes) {
      return true;
    }
    outgoing.again = now + outgoing.backoff;
    outgoing.backoff = std::min(2 * outgoing.backoff, kLongestBackoff);
    outgoing.call =
        call(outgoing.relay,
             {.verb = RelayVerb::kDial, .from = options_.self, .to = outgoing.to, .run = {}}, now);
    if (!outgoing.call) {
      turn_from(outgoing.relay, outgoing.to);
      outgoing.relay = relay_after(outgoing.relay, outgoing.to);
    }
    return true;  // the call is waited for from the next turn on
  }
  const RelayCall::State state = outgoing.call->advance(all, now);
  if (state == RelayCall::State::kDone) {
    succeeded(outgoing.to);
    doors_.at(outgoing.to.value()).relay = outgoing.relay;
    joined_.emplace_back(std::move(outgoing.local), outgoing.call->take_socket(), "",
                         std::move(outgoing.early), options_.dead_after);
    return false;
  }
  if (state == RelayCall::State::kFailed) {
    if (!outgoing.call->reached()) addresses_[outgoing.relay].doubted = true;
    failed(outgoing.to, outgoing.relay, outgoing.call->why());
    outgoing.call.reset();
    turn_from(outgoing.relay, outgoing.to);
    outgoing.again = std::max(outgoing.again, now);
    outgoing.relay = relay_after(outgoing.relay, outgoing.to);
  }
  return true;
}

void RelayedLinks::advance(Listening& listening, const std::vector<Waited>& all, TimePoint now) {
  if (listening.socket) {
    const bool said = now < listening.next_beat || [&] {
      listening.next_beat = now + kRelayBeat;
      const RelayWordBytes beat = write_relay_word({.kind = RelayWordKind::kBeat});
      return listening.socket->write_some({reinterpret_cast<const char*>(beat.data()), beat.size()})
                 .bytes == beat.size();
    }();
    if (said && (!all[listening.place].ready || hear(listening, now)) &&
        now - listening.heard < kRelaySilence) {
      return;
    }
    listening.socket.reset();
    listening.again = now;
    listening.backoff = kFirstBackoff;
    failed(options_.self, listening.relay, "the connection broke");
    return;
  }
  if (!listening.call) {
    if (now < listening.again) return;
    listening.again = now + listening.backoff;
    listening.backoff = std::min(2 * listening.backoff, kLongestBackoff);
    listening.call = call(
        listening.relay,
        {.verb = RelayVerb::kListen, .from = options_.self, .to = options_.self, .run = {}}, now);
    return;
  }
  const RelayCall::State state = listening.call->advance(all, now);
  if (state == RelayCall::State::kDone) {
    succeeded(options_.self);
    listening.socket = listening.call->take_socket();
    listening.input.clear();
    listening.heard = listening.next_beat = now;
    const RelayPlace& relay = routes_.relays[listening.relay];
    log_info("this site can be reached by way of the relay at {}:{}", relay.host, relay.port);
  } else if (state == RelayCall::State::kFailed) {
    if (!listening.call->reached()) addresses_[listening.relay].doubted = true;
    failed(options_.self, listening.relay, listening.call->why());
  }
  if (state != RelayCall::State::kGoing) listening.call.reset();
}

bool RelayedLinks::hear(Listening& listening, TimePoint now) {
  for (int words = 0; words < kAnswersPerTurn;) {
    std::array<char, kRelayWordBytes> buffer{};
    const std::size_t missing = kRelayWordBytes - listening.input.size();
    const Transfer got = listening.socket->read_some(std::span(buffer).first(missing));
    if (got.closed) return false;
    if (got.bytes == 0) return true;
    listening.heard = now;
    listening.input.append(buffer.data(), got.bytes);
    if (listening.input.size() < kRelayWordBytes) continue;
    const auto word =
        read_relay_word(std::as_bytes(std::span(listening.input)).first<kRelayWordBytes>());
    listening.input.clear();
    if (!word) return false;
    if (word->kind == RelayWordKind::kCall) answer_call(listening.relay, word->token, now);
    ++words;
  }
  return true;
}

void RelayedLinks::answer_call(std::size_t relay, const Digest128& token, TimePoint now) {
  const std::size_t most = static_cast<std::size_t>(options_.members - 1) * most_from_each_;
  if (accepted_.size() + accepting_.size() >= most) return;  // the caller's patience ends
  auto accepting = call(relay,
                        {.verb = RelayVerb::kAccept,
                         .from = options_.self,
                         .to = options_.self,
                         .run = {},
                         .token = token},
                        now);
  if (accepting) accepting_.push_back(*std::move(accepting));
}

bool RelayedLinks::advance(RelayCall& accepting, const std::vector<Waited>& all, TimePoint now) {
  const RelayCall::State state = accepting.advance(all, now);
  if (state != RelayCall::State::kDone) return state == RelayCall::State::kGoing;
  const auto here = resolve_tcp(routes_.own_host, routes_.own_port);
  auto local = here ? TcpSocket::start_connect(here->front())
                    : Expected<TcpSocket, std::string>(Unexpected<std::string>(here.error()));
  if (local) {
    accepted_.emplace_back(accepting.take_socket(), *std::move(local), "", "", options_.dead_after);
  } else {
    log_warning("a call that a relay has passed on cannot be taken: {}", local.error());
  }
  return false;
}

void RelayedLinks::failed(WorkerId hidden, std::size_t relay, const std::string& why) {
  const RelayPlace& place = routes_.relays[relay];
  const std::string text = fmt::format("relay {}:{}: {}", place.host, place.port, why);
  queue_->update([&] { trouble_[hidden.value()] = text; });
  const std::uint64_t times = ++failures_[hidden.value()];
  // While the sites come together it is no news.
  if (times >= kWorthSaying && (times & (times - 1)) == 0) {
    const auto rank = static_cast<std::size_t>(hidden.value());
    const std::string who = rank < options_.expected_names.size()
                                ? "site " + options_.expected_names[rank]
                                : fmt::format("member {}", rank);
    const std::string said = fmt::format(
        "{} by way of {} (time {})",
        hidden == options_.self ? "this site cannot be reached" : "no way to " + who, text, times);
    const bool needed = std::ranges::find(routes_.hidden, hidden) != routes_.hidden.end();
    needed ? log_warning("{}", said) : log_info("{}", said);
  }
}

void RelayedLinks::succeeded(WorkerId hidden) {
  queue_->update([&] { trouble_.erase(hidden.value()); });
  failures_.erase(hidden.value());
}

}  // namespace isthmus
