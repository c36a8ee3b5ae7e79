// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace isthmus {
namespace {

std::string streams_text(const Hello& hello) {
  return hello.most_streams == 0 ? std::to_string(hello.streams)
                                 : fmt::format("auto, {} to {}", hello.streams, hello.most_streams);
}

}  // namespace

void LinkAdmission::take_hello(const ConnectionId& id, const LinkHeader& header,
                               std::span<const std::byte> body, TimePoint now,
                               std::optional<WorkerId> owner) {
  const auto hello = read_hello(body);
  if (!hello) {
    connections_.refuse(id, {RefusedField::kMalformed, hello.error().what});
    strangers_.sent(hello.error().what);
    return;
  }
  if (!speaks_for(hello->from, owner, id) || !fits(id, header, *hello, now)) {
    return;
  }
  LinkPeer& peer = all_.at(hello->from);
  const bool replaces = peer.process.incarnation && *peer.process.incarnation != hello->incarnation;
  if (peer.process.incarnation == hello->incarnation &&
      header.number < peer.accepted.next_greeting[header.stream]) {
    // A recorded greeting is said again, or a connection that broke brings one late.
    strangers_.count(
        LinkEvent::Kind::kStranger,
        fmt::format("{}, connection {}: a greeting of before has come again (a replay?), "
                    "and changes nothing",
                    all_.describe(hello->from), header.stream));
    return;
  }
  if (all_.options.readmits && (peer.lost || replaces)) {
    if (peer.joined) {
      presence_.lose(hello->from, LinkEvent::Kind::kLost, "another process has taken its place");
    }
    keys_.begin_anew(hello->from);
    presence_.begin_anew(hello->from);
  } else if (replaces) {
    peer.process.superseded.push_back(*peer.process.incarnation);
    connections_.forget_all(hello->from);
    std::ranges::fill(peer.accepted.next_greeting, 0);
  }
  peer.process.incarnation = hello->incarnation;
  peer.process.name = hello->name;
  peer.life.heard = now;
  peer.life.spoke = now;
  connections_.accept(id, hello->from, header.stream);
  peer.accepted.next_greeting[header.stream] = header.number + 1;
  all_.port.to_connection(
      id,
      {.kind = LinkKind::kWelcome,
       .stream = header.stream,
       .number = header.number,
       .amount = all_.options.window_bytes},
      std::make_shared<const std::vector<std::byte>>(write_incarnation(all_.hello.incarnation)));
  keys_.say(hello->from);
  presence_.settle_joined(hello->from);
}

bool LinkAdmission::fits(const ConnectionId& id, const LinkHeader& header, const Hello& hello,
                         TimePoint now) {
  const int self = all_.options.self.value();
  if (const auto fits = accept(all_.hello, hello); !fits) {
    Refusal told = fits.error();
    if (told.field == RefusedField::kRun) {  // the dialler may be a stranger
      told.what = fmt::format("{}: member {} is of another run", name_of(told.field), self);
    }
    refuse_and_tell(id, told, header.stream, fits.error().what);
    differs(hello, fits.error());
    return false;
  }
  const LinkPeer& peer = all_.at(hello.from);
  const bool replaces = peer.process.incarnation && *peer.process.incarnation != hello.incarnation;
  if (all_.closing && replaces && peer.joined && may_replace(peer, now)) {
    // A new process would lose a member that ends a moment after they have met.
    presence_.lose(hello.from, LinkEvent::Kind::kLost, "another process has taken its place");
  }
  const bool returns =
      all_.options.readmits && !all_.closing && peer.process.incarnation != hello.incarnation;
  if (peer.lost && !returns) {
    refuse_and_tell(
        id, {RefusedField::kGivenUp, fmt::format("member {} has counted this one as lost", self)},
        header.stream,
        fmt::format("{} greets, and has been counted as lost", all_.describe(hello.from)));
    return false;
  }
  if ((replaces && !may_replace(peer, now)) || peer.is_former(hello.incarnation)) {
    const std::string why = fmt::format("another process is member {} already", hello.from.value());
    refuse_and_tell(id, {RefusedField::kIncarnation, why}, header.stream, why);
    return false;
  }
  if (hello.streams != all_.options.streams || hello.most_streams != all_.options.most_streams ||
      header.stream >= peer.accepted.ids.size()) {
    const std::string why =
        fmt::format("net.streams: member {} has {}, member {} has {}", self,
                    streams_text(all_.hello), hello.from.value(), streams_text(hello));
    refuse_and_tell(id, {RefusedField::kConfiguration, why},
                    header.stream < static_cast<std::uint32_t>(hello.streams) ? header.stream : 0,
                    why);
    differs(hello, {RefusedField::kConfiguration, why});
    return false;
  }
  return true;
}

// A new process has to wait until the process before it is lost or has been silent for a while: two
// that run at once must not take turns. Where members may not come back, the new process gets in
// only until frames have passed.
bool LinkAdmission::may_replace(const LinkPeer& peer, TimePoint now) const {
  constexpr int kSilence = 3;  // heartbeats
  const bool passed = peer.in.arrived() > 0 || peer.in.bytes_held() > 0 || peer.out.numbered() > 0;
  return (all_.options.readmits || !passed) &&
         (peer.lost || now - peer.life.spoke >= kSilence * all_.options.heartbeat);
}

// The other process ends as soon as it has read the refusal, perhaps before it answers where this
// member dials it. So the difference is recorded here too, if the greeting is surely the peer's: by
// its key, or within this machine of the same run.
void LinkAdmission::differs(const Hello& theirs, const Refusal& refusal) {
  const MemberOptions& options = all_.options;
  const bool member = theirs.from != options.self && theirs.from.value() >= 0 &&
                      theirs.from.value() < options.members;
  const bool same_run = theirs.protocol == all_.hello.protocol && theirs.run == all_.hello.run;
  if (!member || !(all_.with_keys() || (same_run && !options.plaintext))) return;
  const LinkPeer& peer = all_.at(theirs.from);
  if (peer.joined || peer.lost) return;
  presence_.cannot_join(theirs.from, refusal.field,
                        fmt::format("{} differs: {}", all_.describe(theirs.from), refusal.what));
}

bool LinkAdmission::speaks_for(WorkerId claimed, std::optional<WorkerId> owner,
                               const ConnectionId& id) {
  if (!all_.with_keys() || owner == claimed) {
    return true;
  }
  const std::string what = fmt::format(
      "{}: a connection opened with the key of {} says it is member {}; give all members the same "
      "keys in the same order",
      name_of(RefusedField::kKey), owner ? fmt::format("member {}", owner->value()) : "no member",
      claimed.value());
  refuse_and_tell(id, {RefusedField::kKey, what}, 0, what);
  return false;
}

void LinkAdmission::refuse_and_tell(const ConnectionId& id, const Refusal& refusal,
                                    std::uint32_t stream, const std::string& what) {
  connections_.refuse(id, refusal, stream);
  strangers_.count(LinkEvent::Kind::kRefused, fmt::format("refused: {}", what));
}

}  // namespace isthmus
