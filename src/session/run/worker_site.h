// SPDX-License-Identifier: Apache-2.0
// What a worker asks of its site, where that is a process of its own (session/site/site_session.h).
#pragma once

#include <memory>

#include "core/state/state_snapshot.h"
#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "isthmus/runtime.h"
#include "isthmus/state.h"
#include "isthmus/transport.h"
#include "record/round_times.h"
#include "transport/exchange/peer_exchange.h"

namespace isthmus::app {

/// Everything is called from the worker, between two steps, but for `skips`: before one.
class WorkerSite {
 public:
  [[nodiscard]] virtual WorkerId self() const = 0;
  [[nodiscard]] virtual Runtime& runtime() = 0;
  [[nodiscard]] virtual Exchange& exchange() = 0;
  /// How long rounds took here, from the session's start.
  [[nodiscard]] virtual RoundTimes rounds() const = 0;

  /// The state that this site joins a running run with, once; null: it starts with the others.
  [[nodiscard]] virtual std::unique_ptr<StateReader> take_state() = 0;
  /// After `take_state`. The worker is about to replay step t; blocks until it can. RETURNS: false
  /// when t is the first step to be trained on. THROWS: PeerError when the donor is gone.
  [[nodiscard]] virtual bool may_replay(StepIndex t, Duration patience) = 0;

  /// As PeerExchange has it.
  [[nodiscard]] virtual ResultOrigin origin_of(const SyncId& id) const = 0;
  /// Whether rounds may be taken back.
  [[nodiscard]] virtual bool takes_back() const = 0;
  /// After a step beyond which the trainer has not gone. `stands`: all sites stand after step t,
  /// for now; called again while they do.
  virtual void after_step(StepIndex t, InnerLoop& inner, const OuterStrategy& strategy,
                          bool stands = false) = 0;
  /// The worker goes on after step t: what it has taken since does not count.
  virtual void gone_back(StepIndex t) = 0;
  /// Whether training step t is late for a round that has been begun without it.
  [[nodiscard]] virtual bool skips(StepIndex t) = 0;

 protected:
  ~WorkerSite() = default;
};

}  // namespace isthmus::app
