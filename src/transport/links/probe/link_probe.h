// SPDX-License-Identifier: Apache-2.0
// Measures one link from its two ends, over the transport that training uses: the same frames,
// connections and credits, so the rate is what an exchange will see. One end leads: it sends
// echoes, then transfers; the other serves. Then they swap, for the other direction.
//
// A transfer keeps the link full for a given time: what may be on its way grows with what arrives,
// as far as some round trips' worth, so that the end of a transfer is not long in coming on any
// link. Its receiver tells when the bytes came, by its own clock; the sender checks that against
// its own. Blocking; one task. All waits are bounded.
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
    std::vector<std::string> names;  // of all members, until they say theirs
    /// Asked now and then while waiting; throws to end it.
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
  /// a member that is still needed is lost, has stopped, or sends what cannot be.
  [[nodiscard]] std::optional<Received> receive(WorkerId from, TimePoint deadline);
  /// Tells everyone why this member goes no further.
  void stop(const std::string& why);
  /// Members that nothing more is expected of: they may leave.
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
  Duration budget = std::chrono::seconds(6);  // of each direction; longer where round trips are
  std::uint32_t streams = 16;                 // the most to be tried: a power of two
};
/// Numbers of streams that are tried: 1, 2, 4, ... and `most`.
[[nodiscard]] std::vector<std::uint32_t> streams_to_try(std::uint32_t most);
/// How long a pair takes at most while both ends do their part.
[[nodiscard]] Duration longest_pair(const ProbePlan& plan);

class LinkProbe {
 public:
  /// Borrows `mailbox`, and `gauge`, which may be null: then streams are not varied and TCP's
  /// counters not read. `say`: progress in words.
  LinkProbe(ProbeMailbox& mailbox, LinkGauge* gauge, const ProbePlan& plan, std::uint32_t pair,
            std::function<void(const std::string&)> say);

  /// The whole of the pair (self, b), led from here. THROWS: PeerError.
  [[nodiscard]] PairMeasurement lead(WorkerId b);
  /// The other end of it. RETURNS: the result as the leader tells it.
  [[nodiscard]] PairMeasurement follow(WorkerId a);

 private:
  [[nodiscard]] EchoSummary echo(WorkerId peer);
  [[nodiscard]] DirectionMeasurement drive(WorkerId peer, const EchoSummary& echo);
  /// RETURNS: the rate, or nothing when the transfer was too short to tell.
  [[nodiscard]] std::optional<double> transfer(WorkerId peer, Duration time, Duration rtt,
                                               DirectionMeasurement& into, bool watch);
  /// Answers until something else comes. RETURNS: that.
  [[nodiscard]] ProbeMessage serve(WorkerId peer);
  [[nodiscard]] ProbeMailbox::Received next(WorkerId peer);
  [[noreturn]] void refuse(WorkerId peer, const std::string& what) const;

  ProbeMailbox& mailbox_;
  LinkGauge* gauge_;
  const ProbePlan plan_;
  const std::uint32_t pair_;
  const std::function<void(const std::string&)> say_;
  const TimePoint end_;             // whatever the other end does, it is over by then
  std::uint32_t transfers_ = 0;     // sent
  std::vector<Duration> loaded_{};  // TCP's round trips of the transfer under way
};

}  // namespace isthmus
