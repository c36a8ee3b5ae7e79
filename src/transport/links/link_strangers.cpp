// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_strangers.h"

#include <fmt/format.h>

#include <bit>

namespace isthmus {
namespace {

constexpr std::size_t kMostTexts = 64;  // strangers may bring any number of keys

}  // namespace

void LinkStrangers::sent(const std::string& what) {
  if (std::has_single_bit(++messages_)) {
    all_.port.event({LinkEvent::Kind::kStranger, WorkerId{-1}, -1,
                     fmt::format("a stranger sent {} ({} such message{} so far)", what, messages_,
                                 messages_ == 1 ? "" : "s")});
  }
}

void LinkStrangers::count(LinkEvent::Kind kind, const std::string& what) {
  const bool room = times_by_text_.size() < kMostTexts || times_by_text_.contains(what);
  const std::uint64_t times = ++times_by_text_[room ? what : std::string()];
  if (std::has_single_bit(times)) {
    all_.port.event({kind, WorkerId{-1}, -1,
                     fmt::format("{}, {} {}", what, times,
                                 !room        ? "times with others"
                                 : times == 1 ? "time"
                                              : "times")});
  }
}

void LinkStrangers::failed_handshake(HandshakeFault fault, const std::string& endpoint) {
  switch (fault) {
    case HandshakeFault::kMechanism:
      hint_ = all_.with_keys()
                  ? fmt::format(
                        "someone connected to {} in plain text, and links here have keys: "
                        "{}",
                        endpoint, kKeysAllOrNone)
                  : fmt::format("someone connected to {} with a key, and this member has none: {}",
                                endpoint, kKeysAllOrNone);
      count(LinkEvent::Kind::kStranger, hint_);
      return;
    case HandshakeFault::kWrongAddress:
      count(
          LinkEvent::Kind::kStranger,
          fmt::format(
              "someone connected to {} for a key other than this member's {}, or with what was "
              "recorded of another connection (a replay); if it is a site, write the public key of "
              "member {}'s key file into the configuration of all sites",
              endpoint,
              key_label(
                  all_.options.member_keys.at(static_cast<std::size_t>(all_.options.self.value()))),
              all_.options.self.value()));
      return;
    case HandshakeFault::kKeyRefused:
      return;  // `brought_key` is told which key
    case HandshakeFault::kHungUp:
    case HandshakeFault::kOther:
      count(LinkEvent::Kind::kStranger,
            fmt::format("someone connected to {} and does not speak the protocol", endpoint));
      return;
  }
}

void LinkStrangers::brought_key(const std::string& public_key) {
  foreign_key_ = all_.now;
  hint_ =
      fmt::format("a connection with key {} was refused: it is no member's", key_label(public_key));
  count(LinkEvent::Kind::kStranger,
        hint_ +
            "; if it is a site's, write its public key into the configuration of all "
            "sites");
}

}  // namespace isthmus
