// SPDX-License-Identifier: Apache-2.0
// Repair of lost frames, driven by the receiver. After a timeout a member probes the silent peer,
// whose echo queues behind all frames that it has sent; a frame that is still missing when the echo
// arrives was lost, and is requested. So a slow link never causes a repeat. The class also tells,
// for people and for probes, what a round waits for. Pure.
#pragma once

#include <string>
#include <vector>

#include "isthmus/transport.h"
#include "transport/exchange/commit_protocol.h"
#include "transport/exchange/control_sender.h"
#include "transport/exchange/member_view.h"
#include "transport/exchange/peer_exchange_options.h"
#include "transport/exchange/round_table.h"
#include "transport/wire/frame.h"

namespace isthmus {

class RoundRepair {
 public:
  /// Borrows all.
  RoundRepair(const EngineOptions& options, MemberView& members, RoundTable& rounds,
              const CommitProtocol& commit, ControlSender& sender)
      : options_(options), members_(members), rounds_(rounds), commit_(commit), sender_(sender) {}

  /// A round is about to begin: restarts the timeout of silence if no round was open.
  void begins(TimePoint now);
  /// The time of the next useful `probe_silent`; kNever while no round is open.
  [[nodiscard]] TimePoint due() const;
  /// Sends PROBE to peers that owe frames and have been silent for the timeout.
  void probe_silent(TimePoint now, Outbox& out);
  /// Sends PROBE to all members that this round waits for; no answer is required.
  void ask(const OpenRound& open, Outbox& out);
  /// Frames PROBE, ECHO and REQUEST.
  void answer_probe(WorkerId from, Outbox& out);
  void take_echo(WorkerId from, std::uint32_t echo, Outbox& out);
  void answer_request(WorkerId from, const Frame& frame, Outbox& out);
  /// The members and frames that a round waits for, for people.
  [[nodiscard]] std::string describe(const OpenRound& open) const;

 private:
  [[nodiscard]] std::vector<WorkerId> waits_for(const OpenRound& open) const;

  const EngineOptions& options_;
  MemberView& members_;
  RoundTable& rounds_;
  const CommitProtocol& commit_;
  ControlSender& sender_;
  TimePoint last_;  // when the peers were last checked
};

}  // namespace isthmus
