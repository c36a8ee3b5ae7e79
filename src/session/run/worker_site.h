// SPDX-License-Identifier: Apache-2.0
// A worker's interface to its site, if that is a separate process (session/site/site_session.h).
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

/// The worker calls all functions between two steps, except `skips`: before a step.
class WorkerSite {
 public:
  [[nodiscard]] virtual WorkerId self() const = 0;
  [[nodiscard]] virtual Runtime& runtime() = 0;
  [[nodiscard]] virtual Exchange& exchange() = 0;
  /// How long rounds took here, from the session's start.
  [[nodiscard]] virtual RoundTimes rounds() const = 0;

  /// The state with which this site joins a running run, once; null: it starts with the others.
  [[nodiscard]] virtual std::unique_ptr<StateReader> take_state() = 0;
  /// Call after `take_state`. The worker is about to replay step t; blocks until its results are
  /// here. RETURNS: false when t is the first step to be trained. THROWS: PeerError when the donor
  /// is lost.
  [[nodiscard]] virtual bool may_replay(StepIndex t, Duration patience) = 0;

  /// As in PeerExchange.
  [[nodiscard]] virtual ResultOrigin origin_of(const SyncId& id) const = 0;
  /// Whether rounds may be rolled back.
  [[nodiscard]] virtual bool takes_back() const = 0;
  /// Call after each step that the trainer has completed. `stands`: all sites pause after step t;
  /// called again while they do.
  virtual void after_step(StepIndex t, InnerLoop& inner, const OuterStrategy& strategy,
                          bool stands = false) = 0;
  /// The worker continues after step t: later steps do not count.
  virtual void gone_back(StepIndex t) = 0;
  /// Whether training step t is late for a round begun by proxy.
  [[nodiscard]] virtual bool skips(StepIndex t) = 0;

 protected:
  ~WorkerSite() = default;
};

}  // namespace isthmus::app
