// SPDX-License-Identifier: Apache-2.0
#include "session/run/outer_healing.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "core/base/log.h"
#include "core/state/state_memory.h"
#include "isthmus/errors.h"
#include "outer/parts/late_rounds.h"
#include "outer/parts/shared_state.h"

namespace isthmus::app {

Digest128 OuterHealing::digest_of(const OuterStrategy& strategy) const {
  return outer::shared_digest(strategy, parts_.inner.parameters().size());
}

void OuterHealing::agreed(StepIndex t, const Digest128& digest) {
  agreed_ = {t, digest};
  parts_.results.restart();
}

OuterReplay OuterHealing::replay(std::unique_ptr<OuterStrategy>& strategy, const Digest128& held) {
  if (parts_.results.lack()) return {.digest = {}, .why = *parts_.results.lack()};
  if (StateMemory::current() != nullptr) {  // it would be as large as the model, and in memory
    return {.digest = {}, .why = "train.offload: there is no memory for a copy of the state"};
  }
  const StepIndex t = strategy->steps();
  OuterReplay told;
  KeptState as_it_was;
  try {
    as_it_was.keep(parts_.inner, *strategy);
  } catch (const std::exception& error) {  // for want of memory, or of the model's own ranks
    told.why = error.what();
    return told;
  }
  log_info("working out by replay what this site ought to hold after step {}", t.value());
  parts_.exchange.set_replaying(true);
  try {
    play(strategy, t);
    told.digest = digest_of(*strategy).hex();
  } catch (const std::exception& error) {
    told.why = error.what();
  }
  parts_.inner.set_idle(false);
  if (told.digest.empty() || told.digest == held.hex()) {
    strategy.reset();
    strategy = as_it_was.restore(parts_.inner, parts_.make);
  } else {
    strategy->forget_own_work();
  }
  parts_.exchange.set_replaying(false);
  return told;
}

void OuterHealing::play(std::unique_ptr<OuterStrategy>& strategy, StepIndex t) {
  strategy.reset();  // before there are two
  strategy = parts_.restore(agreed_->step);
  if (const Digest128 from = digest_of(*strategy); from != agreed_->digest) {
    throw RunError(
        fmt::format("this site's state of step {} is not the one that all had ({}, not {})",
                    agreed_->step.value(), from.hex(), agreed_->digest.hex()));
  }
  strategy->forget_own_work();
  parts_.inner.set_idle(true);
  while (strategy->steps() < t) static_cast<void>(strategy->step());
  static_cast<void>(t == parts_.last_step ? strategy->finish() : outer::apply_late(*strategy));
}

}  // namespace isthmus::app
