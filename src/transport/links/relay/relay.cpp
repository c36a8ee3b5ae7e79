// SPDX-License-Identifier: Apache-2.0
#include "transport/links/relay/relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <span>
#include <string_view>
#include <utility>

#include "core/base/fresh_id.h"
#include "core/base/log.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr std::size_t kMostVisitors = 64;  // connections that have not proved to be a member's
constexpr int kAcceptsPerTurn = 64;
constexpr int kWordsPerTurn = 16;
constexpr Duration kPatience = std::chrono::seconds(5);  // for a request, or a call's answer
constexpr Duration kDrain = std::chrono::seconds(1);
constexpr std::size_t kMostDrained = std::size_t{64} << 10;
constexpr Duration kNoRoom = std::chrono::milliseconds(200);  // after the machine refused one
constexpr double kLookS = 0.2;
/// Of each pair of members beyond two processes' connections.
constexpr int kSpareConnections = 8;

std::string text_of(const RelayWord& word) {
  const RelayWordBytes bytes = write_relay_word(word);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Whether the whole word was sent. It is smaller than any socket's buffer, so otherwise the other
/// end does not read.
bool say(const TcpSocket& socket, const RelayWord& word) {
  const std::string text = text_of(word);
  return socket.write_some(text).bytes == text.size();
}

}  // namespace

long relay_files(const MemberOptions& options) {
  const auto hidden = static_cast<long>(options.relayed.size());
  if (!options.relays || hidden == 0) return 0;
  // Ways to members that cannot be dialled, from all others: bytes to members that can be dialled
  // do not pass here.
  const long ways = hidden * (options.members - 1L);
  return 2 * ways * options.streams + hidden + static_cast<long>(kMostVisitors);
}

Relay::Relay(Runtime& runtime, const MemberOptions& options, const std::string& host, int port,
             std::shared_ptr<const AnnouncedKeys> told)
    : runtime_(runtime),
      options_(options),
      queue_(runtime.make_wait_queue()),
      told_(std::move(told)),
      listener_(TcpSocket::listen_at(host, port)),
      listen_again_(runtime.clock().now()) {
  if (options_.keys) {
    keys_ = options_.member_keys;
    for (const std::string& key : keys_) {
      shared_.push_back(key.empty() ? std::nullopt
                                    : std::make_optional(share_key(*options_.keys, key)));
    }
  }
  task_ = runtime_.spawn("relay", [this] { serve(); });
}

Relay::~Relay() {
  stop_.ring();
  task_.reset();
}

std::string Relay::name(WorkerId member) const {
  const auto place = static_cast<std::size_t>(member.value());
  return place < options_.expected_names.size() ? "site " + options_.expected_names[place]
                                                : fmt::format("member {}", place);
}

void Relay::serve() {
  try {
    while (!stopping_) turn();
    const TimePoint end = runtime_.clock().now() + (lingers_ ? options_.linger : Duration{0});
    while (!joined_.empty() && runtime_.clock().now() < end) turn();
  } catch (const std::exception& error) {
    gone_ = true;
    log_warning("the relay is gone, and the links that it carried: {}", error.what());
  }
  visitors_.clear();
  listening_.clear();
  callers_.clear();
  joined_.clear();
}

void Relay::listen_to(std::shared_ptr<const AnnouncedKeys> told) {
  queue_->update([&] {
    told_ = std::move(told);
    tells_anew_ = true;
  });
}

void Relay::look_at_keys() {
  std::shared_ptr<const AnnouncedKeys> tells;
  queue_->update([&] {
    tells = told_;
    if (std::exchange(tells_anew_, false)) told_version_ = 0;  // reports from before still count
  });
  if (!options_.keys || tells == nullptr || tells->version() == told_version_) return;
  const AnnouncedKeys::Told told = tells->told();
  told_version_ = told.version;
  for (std::size_t m = 0; m < keys_.size(); ++m) {
    if (told.members.at(m) == keys_[m]) continue;
    keys_[m] = told.members[m];
    shared_[m].reset();
    try {
      if (!keys_[m].empty()) shared_[m] = share_key(*options_.keys, keys_[m]);
    } catch (const ConfigError& error) {  // no member has its private half
      log_warning("relay: {}", error.what());
    }
    const WorkerId member(static_cast<int>(m));
    const auto its = [member](const auto& each) {
      return each.from == member || each.to == member;
    };
    listening_.erase(member.value());
    callers_.remove_if(its);
    joined_.remove_if(its);
  }
}

void Relay::turn() {
  look_at_keys();
  const bool takes = !stopping_ && runtime_.clock().now() >= listen_again_;
  // Rung once and for all.
  std::vector<Waited> all = {{.descriptor = stop_.descriptor(), .to_read = !stopping_},
                             {.descriptor = listener_.descriptor(), .to_read = takes}};
  const auto add = [&all](auto& each) {
    each.place = all.size();
    all.push_back({.descriptor = each.socket.descriptor(), .to_read = true});
  };
  for (Joined& each : joined_) each.splice.add_to(all);
  for (Caller& each : callers_) add(each);
  for (auto& [member, each] : listening_) add(each);
  for (Visitor& each : visitors_) add(each);
  wait_for_any(all, kLookS);
  stopping_ = stopping_ || all[0].ready;
  const TimePoint now = runtime_.clock().now();
  joined_.remove_if([&](Joined& each) { return !each.splice.advance(all, now); });
  // A caller has nothing to say before it is answered: it has gone.
  callers_.remove_if([&](const Caller& each) {
    if (now >= each.deadline) {
      (void)say(each.socket, {.kind = RelayWordKind::kNoAnswer});
      complain(RelayWordKind::kNoAnswer,
               fmt::format("{} called {}, which did not answer", name(each.from), name(each.to)));
    }
    return now >= each.deadline || all[each.place].ready;
  });
  for (auto each = listening_.begin(); each != listening_.end();) {
    const bool over = !advance(each->second, all[each->second.place].ready, now);
    if (over) log_info("relay: {} no longer listens", name(WorkerId(each->first)));
    each = over ? listening_.erase(each) : std::next(each);
  }
  for (auto each = visitors_.begin(); each != visitors_.end();) {
    const bool late = now >= each->deadline;
    if (late && !each->refused) {
      complain(RelayWordKind::kGreeting,
               fmt::format("{} has connected and asked for nothing", each->peer));
    }
    const bool over = late || (all[each->place].ready && !advance(*each, now));
    each = over ? visitors_.erase(each) : std::next(each);
  }
  if (takes && all[1].ready && !stopping_) take_connections(now);
}

void Relay::take_connections(TimePoint now) {
  for (int taken = 0; taken < kAcceptsPerTurn; ++taken) {
    bool failed = false;
    std::optional<TcpSocket> socket = listener_.accept(failed);
    if (failed) listen_again_ = now + kNoRoom;
    if (!socket) return;
    if (visitors_.size() >= kMostVisitors) end_a_visitor();
    const RelayWord greeting{
        .kind = options_.keys ? RelayWordKind::kGreetingKeys : RelayWordKind::kGreeting,
        .token = fresh_id()};
    if (!say(*socket, greeting)) continue;
    std::string peer = socket->peer();
    visitors_.push_back({.socket = *std::move(socket),
                         .peer = std::move(peer),
                         .challenge = greeting.token,
                         .deadline = now + kPatience});
  }
}

void Relay::end_a_visitor() {
  std::map<std::string, int> many;
  for (const Visitor& each : visitors_) ++many[each.peer];
  // The first of several that have as many: the oldest.
  const auto ended = std::ranges::max_element(
      visitors_, {}, [&many](const Visitor& each) { return many[each.peer]; });
  complain(RelayWordKind::kFull,
           fmt::format("{} connections that have asked for nothing yet; of {} from {} the oldest "
                       "is ended",
                       visitors_.size(), many[ended->peer], ended->peer));
  visitors_.erase(ended);
}

bool Relay::advance(Visitor& visitor, TimePoint now) {
  std::array<char, 4096> buffer;
  if (visitor.refused) {
    const Transfer got = visitor.socket.read_some(buffer);
    visitor.drained += got.bytes;
    return !got.closed && visitor.drained <= kMostDrained;
  }
  const std::size_t missing = kRelayRequestBytes - visitor.input.size();
  const Transfer got = visitor.socket.read_some(std::span(buffer).first(missing));
  if (got.closed) return false;
  visitor.input.append(buffer.data(), got.bytes);
  if (visitor.input.size() < kRelayRequestBytes) return true;
  const auto refusal = fulfil(visitor, now);
  if (refusal) refuse(visitor, *refusal, now);
  return refusal.has_value();
}

std::optional<RelayWordKind> Relay::fulfil(Visitor& visitor, TimePoint now) {
  const auto request =
      read_relay_request(std::as_bytes(std::span(visitor.input)).first<kRelayRequestBytes>());
  if (!request) return request.error();
  if (const auto refusal = check(visitor, *request)) return refusal;
  switch (request->verb) {
    case RelayVerb::kListen:
      return listen(visitor, *request, now);
    case RelayVerb::kDial:
      return dial(visitor, *request, now);
    case RelayVerb::kAccept:
      return accept(visitor, *request);
  }
  return RelayWordKind::kMalformed;
}

std::optional<RelayWordKind> Relay::check(const Visitor& visitor,
                                          const RelayRequest& request) const {
  if (request.run != options_.identity.run) return RelayWordKind::kRun;
  if (request.from.value() >= options_.members || request.to.value() >= options_.members) {
    return RelayWordKind::kPlace;
  }
  if (options_.keys) {
    const auto& shared = shared_[static_cast<std::size_t>(request.from.value())];
    if (!shared) return why_no_key(request.from);
    if (!same_proof(request.proof, prove_request(*shared, request, visitor.challenge))) {
      return RelayWordKind::kKey;
    }
  }
  return std::nullopt;
}

// The hub cannot replace a key of the file: once it has said whose keys count, none is on its way.
RelayWordKind Relay::why_no_key(WorkerId member) const {
  const bool barred =
      told_version_ > 0 && !options_.member_keys[static_cast<std::size_t>(member.value())].empty();
  return barred ? RelayWordKind::kKey : RelayWordKind::kNotYet;
}

std::optional<RelayWordKind> Relay::listen(Visitor& visitor, const RelayRequest& request,
                                           TimePoint now) {
  if (listening_.contains(request.from.value())) return RelayWordKind::kTaken;
  if (!say(visitor.socket, {.kind = RelayWordKind::kDone})) return std::nullopt;
  log_info("relay: {} listens, from {}", name(request.from), visitor.peer);
  listening_.emplace(
      request.from.value(),
      Listening{.socket = std::move(visitor.socket), .heard = now, .next_beat = now});
  return std::nullopt;
}

std::optional<RelayWordKind> Relay::dial(Visitor& visitor, const RelayRequest& request,
                                         TimePoint now) {
  const auto called = listening_.find(request.to.value());
  if (called == listening_.end()) return RelayWordKind::kNobody;
  const auto same = [&](const auto& each) {
    return each.from == request.from && each.to == request.to;
  };
  const auto many = std::ranges::count_if(callers_, same) + std::ranges::count_if(joined_, same);
  if (many >= 2 * most_streams(options_) + kSpareConnections) return RelayWordKind::kFull;
  const Digest128 token = fresh_id();
  if (!say(called->second.socket, {.kind = RelayWordKind::kCall, .token = token})) {
    listening_.erase(called);
    return RelayWordKind::kNobody;
  }
  callers_.push_back({.socket = std::move(visitor.socket),
                      .from = request.from,
                      .to = request.to,
                      .token = token,
                      .deadline = now + kPatience});
  return std::nullopt;
}

std::optional<RelayWordKind> Relay::accept(Visitor& visitor, const RelayRequest& request) {
  const auto caller = std::ranges::find_if(callers_, [&](const Caller& each) {
    return each.token == request.token && each.to == request.from;
  });
  if (caller == callers_.end()) return RelayWordKind::kNoAnswer;  // it was no longer waited for
  const std::string done = text_of({.kind = RelayWordKind::kDone});
  joined_.push_back({.splice = TcpSplice(std::move(caller->socket), std::move(visitor.socket), done,
                                         done, options_.dead_after),
                     .from = caller->from,
                     .to = caller->to});
  callers_.erase(caller);
  return std::nullopt;
}

void Relay::refuse(Visitor& visitor, RelayWordKind why, TimePoint now) {
  // That a site is not there, or a caller no longer, is no news.
  if (why != RelayWordKind::kNobody && why != RelayWordKind::kNoAnswer) {
    complain(why, fmt::format("refused a connection from {}: to them it says: {}", visitor.peer,
                              relay_words(why)));
  }
  (void)say(visitor.socket, {.kind = why});
  // An immediate close could take the word back from a visitor that is still sending.
  visitor.socket.finish_writing();
  visitor.refused = true;
  visitor.deadline = now + kDrain;
}

bool Relay::advance(Listening& listening, bool ready, TimePoint now) {
  for (int words = 0; ready && words < kWordsPerTurn;) {
    std::array<char, kRelayWordBytes> buffer{};
    const std::size_t missing = kRelayWordBytes - listening.input.size();
    const Transfer got = listening.socket.read_some(std::span(buffer).first(missing));
    if (got.closed) return false;
    if (got.bytes == 0) break;
    listening.input.append(buffer.data(), got.bytes);
    if (listening.input.size() < kRelayWordBytes) continue;
    const auto word =
        read_relay_word(std::as_bytes(std::span(listening.input)).first<kRelayWordBytes>());
    if (!word || word->kind != RelayWordKind::kBeat) return false;
    listening.input.clear();
    listening.heard = now;
    ++words;
  }
  if (now - listening.heard >= kRelaySilence) return false;
  if (now < listening.next_beat) return true;
  listening.next_beat = now + kRelayBeat;
  return say(listening.socket, {.kind = RelayWordKind::kBeat});
}

void Relay::complain(RelayWordKind about, const std::string& text) {
  const std::uint64_t times = ++complaints_[about];
  if ((times & (times - 1)) == 0) log_warning("relay: {} (time {})", text, times);
}

}  // namespace isthmus
