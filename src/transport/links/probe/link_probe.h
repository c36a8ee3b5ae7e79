// SPDX-License-Identifier: Apache-2.0
// Measures one link from both ends, over the transport of training: the same frames, connections
// and credits, so the rate is what an exchange will get. One end leads: it sends echoes, then
// transfers; the other end serves. Then they swap, for the other direction.
//
// A transfer keeps the link full for a given time: the bytes in flight grow with the arrival rate,
// up to the worth of some round trips, so that a transfer ends soon on any link. The receiver
// reports the arrival times by its own clock; the sender checks them against its own. Blocking; one
// task. All waits are bounded.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/links/link_gauge.h"
#include "transport/links/probe/link_measurement.h"
#include "transport/links/probe/probe_message.h"
#include "transport/wire/transport.h"

namespace isthmus {

/// Messages of several peers, taken one peer at a time.
class ProbeMailbox {
 public:
  struct Options {
    std::vector<std::string> names;  // of all members, until they send theirs
    /// Called now and then during waits; throws to end them.
    std::function<void()> check = {};
  };
  /// Borrows both.
  ProbeMailbox(Transport& transport, Runtime& runtime, Options options);

  void send(WorkerId to, const ProbeMessage& message);
  void send_frame(WorkerId to, FrameBytes frame) { transport_.send(to, std::move(frame)); }
  struct Received {
    ProbeMessage message;
    std::size_t payload_bytes = 0;
  };
  /// Blocks for the next message of `from`. RETURNS: nothing at `deadline`. THROWS: PeerError when
  /// a member that is still needed is lost, has stopped, or sends an invalid message.
  [[nodiscard]] std::optional<Received> receive(WorkerId from, TimePoint deadline);
  /// Tells all members why this one stops.
  void stop(const std::string& why);
  /// The member is needed no more: it may leave.
  void not_needed(WorkerId member) { needed_.at(static_cast<std::size_t>(member.value())) = false; }

  void set_name(WorkerId member, const std::string& name);
  [[nodiscard]] const std::string& name(WorkerId member) const {
    return options_.names.at(static_cast<std::size_t>(member.value()));
  }
  [[nodiscard]] WorkerId self() const { return transport_.self(); }
  [[nodiscard]] int size() const { return transport_.size(); }
  [[nodiscard]] TimePoint now() const { return runtime_.clock().now(); }

 private:
  void take(const ReceivedFrame& frame);

  Transport& transport_;
  Runtime& runtime_;
  Options options_;
  std::vector<std::deque<Received>> waiting_;  // by sender
  std::vector<std::optional<std::string>> lost_;
  std::vector<bool> needed_;
};

struct ProbePlan {
  Duration budget = std::chrono::seconds(6);  // of each direction; more for long round trips
  std::uint32_t streams = 16;                 // the most to try: a power of two
};
/// Numbers of streams that are tried: 1, 2, 4, ... and `most`.
[[nodiscard]] std::vector<std::uint32_t> streams_to_try(std::uint32_t most);
/// The longest time for a pair if both ends respond.
[[nodiscard]] Duration longest_pair(const ProbePlan& plan);

class LinkProbe {
 public:
  /// Borrows `mailbox`, and `gauge`, which may be null: then streams are not varied and TCP's
  /// counters not read. `say`: progress in words.
  LinkProbe(ProbeMailbox& mailbox, LinkGauge* gauge, const ProbePlan& plan, std::uint32_t pair,
            std::function<void(const std::string&)> say);

  /// Measures the whole pair (self, b), as its leader. Both calls block, for at most longest_pair.
  /// THROWS: PeerError when the other end is lost, silent or sends something else.
  [[nodiscard]] PairMeasurement lead(WorkerId b);
  /// The other end of a pair. RETURNS: the result as the leader reports it. THROWS: as `lead`.
  [[nodiscard]] PairMeasurement follow(WorkerId a);

 private:
  [[nodiscard]] EchoSummary echo(WorkerId peer);
  [[nodiscard]] DirectionMeasurement drive(WorkerId peer, const EchoSummary& echo);
  /// RETURNS: the rate, or nothing when the transfer was too short to tell.
  [[nodiscard]] std::optional<double> transfer(WorkerId peer, Duration time, Duration rtt,
                                               DirectionMeasurement& into, bool watch);
  /// Answers until another message arrives. RETURNS: that message.
  [[nodiscard]] ProbeMessage serve(WorkerId peer);
  [[nodiscard]] ProbeMailbox::Received next(WorkerId peer);
  [[noreturn]] void refuse(WorkerId peer, const std::string& what) const;

  ProbeMailbox& mailbox_;
  LinkGauge* gauge_;
  const ProbePlan plan_;
  const std::uint32_t pair_;
  const std::function<void(const std::string&)> say_;
  const TimePoint end_;             // the deadline, whatever the other end does
  std::uint32_t transfers_ = 0;     // sent
  std::vector<Duration> loaded_{};  // TCP's round trips during the current transfer
};

}  // namespace isthmus
