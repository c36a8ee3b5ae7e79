// SPDX-License-Identifier: Apache-2.0
// Repair of frames that were lost, driven by the receiver: after silence a member probes the peer,
// whose echo queues behind everything it has sent; what is still missing when the echo arrives was
// lost and is requested. So a slow link never causes a repetition. Also tells, for people and for
// probes, what a round waits for. Pure.
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

  /// A round is about to begin.
  void begins(TimePoint now);
  /// When `probe_silent` has something to look at; kNever while nothing is open.
  [[nodiscard]] TimePoint due() const;
  /// Sends PROBE to peers that owe something and have been silent for long enough.
  void probe_silent(TimePoint now, Outbox& out);
  /// Sends PROBE to all that this round waits for, who need not answer.
  void ask(const OpenRound& open, Outbox& out);
  /// Frames PROBE, ECHO and REQUEST.
  void answer_probe(WorkerId from, Outbox& out);
  void take_echo(WorkerId from, std::uint32_t echo, Outbox& out);
  void answer_request(WorkerId from, const Frame& frame, Outbox& out);
  /// Who and what a round waits for, for people.
  [[nodiscard]] std::string describe(const OpenRound& open) const;

 private:
  [[nodiscard]] std::vector<WorkerId> waits_for(const OpenRound& open) const;

  const EngineOptions& options_;
  MemberView& members_;
  RoundTable& rounds_;
  const CommitProtocol& commit_;
  ControlSender& sender_;
  TimePoint last_;  // peers were looked at
};

}  // namespace isthmus
