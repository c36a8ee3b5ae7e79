// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "isthmus/errors.h"
#include "transport/links/probe/link_probe.h"
#include "transport/wire/frame.h"

namespace isthmus {
namespace {

constexpr Duration kProbeLook = std::chrono::milliseconds(200);
/// Members speak in turn, so the waiting messages are a hello, a question, and results of other
/// pairs.
std::size_t most_waiting(int members) { return 16 + 2 * static_cast<std::size_t>(members); }

}  // namespace

ProbeMailbox::ProbeMailbox(Transport& transport, Runtime& runtime, Options options)
    : transport_(transport),
      runtime_(runtime),
      options_(std::move(options)),
      waiting_(static_cast<std::size_t>(transport.size())),
      lost_(static_cast<std::size_t>(transport.size())),
      needed_(static_cast<std::size_t>(transport.size()), true) {
  for (std::size_t member = options_.names.size(); member < waiting_.size(); ++member) {
    options_.names.push_back(fmt::format("member {}", member));
  }
}

void ProbeMailbox::set_name(WorkerId member, const std::string& name) {
  if (!name.empty()) options_.names.at(static_cast<std::size_t>(member.value())) = name;
}

void ProbeMailbox::send(WorkerId to, const ProbeMessage& message) {
  transport_.send(to, probe_frame(message));
}

void ProbeMailbox::stop(const std::string& why) {
  for (int member = 0; member < size(); ++member) {
    if (WorkerId(member) != self()) send(WorkerId(member), ProbeStop{.why = why});
  }
}

void ProbeMailbox::take(const ReceivedFrame& received) {
  const auto refuse = [&](const std::string& what) {
    throw PeerError(
        fmt::format("site {} sends {}; start `isthmus bench link` of one version at "
                    "all sites, and no run beside it",
                    name(received.from), what));
  };
  const auto frame = parse_frame(*received.bytes);
  if (!frame) {
    refuse(frame.error().what);
  }
  if (frame->header.kind != FrameKind::kNote) {
    refuse("frames of a training run");
  }
  auto message = read_probe(frame->payload);
  if (!message) {
    refuse(message.error());
  }
  if (const auto* stopped = std::get_if<ProbeStop>(&*message)) {
    throw PeerError(fmt::format("site {} has stopped: {}", name(received.from), stopped->why));
  }
  auto& waiting = waiting_.at(static_cast<std::size_t>(received.from.value()));
  waiting.push_back({std::move(*message), frame->payload.size()});
  if (waiting.size() > most_waiting(size())) {
    refuse(fmt::format("more than {} messages out of turn, {} among them", most_waiting(size()),
                       name_of(waiting.back().message)));
  }
}

std::optional<ProbeMailbox::Received> ProbeMailbox::receive(WorkerId from, TimePoint deadline) {
  auto& waiting = waiting_.at(static_cast<std::size_t>(from.value()));
  while (waiting.empty()) {
    if (options_.check) options_.check();
    for (std::size_t member = 0; member < lost_.size(); ++member) {
      if (lost_[member] && (needed_[member] || WorkerId(static_cast<int>(member)) == from)) {
        throw PeerError(fmt::format("site {} is gone before the links were measured: {}",
                                    options_.names[member], *lost_[member]));
      }
    }
    const TimePoint now = runtime_.clock().now();
    if (now >= deadline) return std::nullopt;
    const auto received = transport_.receive(std::min(deadline, now + kProbeLook));
    if (received) {
      take(*received);
    } else if (received.error().kind == TransportError::Kind::kPeerLost) {
      const std::string& why = received.error().what;
      lost_.at(static_cast<std::size_t>(received.error().peer.value())) =
          why.empty() ? "it has left" : why;
    } else if (received.error().kind == TransportError::Kind::kClosed) {
      throw PeerError("the links of this site are closed");
    }
  }
  Received first = std::move(waiting.front());
  waiting.pop_front();
  return first;
}

}  // namespace isthmus
