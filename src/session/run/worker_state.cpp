// SPDX-License-Identifier: Apache-2.0
#include "session/run/worker_state.h"

#include <fmt/format.h>

#include <utility>

#include "core/base/all_elements.h"
#include "core/base/check.h"
#include "core/state/state_bytes.h"
#include "isthmus/errors.h"

namespace isthmus::app {

StateSnapshot worker_snapshot(InnerLoop& inner, const OuterStrategy& strategy, bool borrows) {
  StateSnapshot state(borrows);
  inner.read_values(all_elements(inner));
  for (const Parameter& parameter : inner.parameters()) {
    const std::string name = "local/" + parameter.name;
    if (borrows) {
      state.borrow(name, parameter.values);
    } else {
      state.tensor(name, parameter.values);
    }
  }
  PrefixedStateWriter inner_state(state, "inner/");
  inner.save(inner_state);
  PrefixedStateWriter outer_state(state, "outer/");
  strategy.save(outer_state);
  return state;
}

void restore_worker_parameters(StateReader& from, InnerLoop& inner) {
  PrefixedStateReader local(from, "local/");
  for (const Parameter& parameter : inner.parameters()) {
    if (!local.contains(parameter.name))
      throw RunError(fmt::format(
          "parameter '{}' is not in the state that this worker goes on from: the run was begun "
          "without it; give the parameters that it was begun with, or start a new run from its "
          "weights",
          parameter.name));
    local.tensor(parameter.name, parameter.values);
  }
  inner.wrote_values(all_elements(inner));
}

void restore_worker_state(StateReader& from, InnerLoop& inner, OuterStrategy& strategy) {
  PrefixedStateReader inner_state(from, "inner/");
  inner.load(inner_state);
  PrefixedStateReader outer_state(from, "outer/");
  strategy.load(outer_state);
}

void KeptState::keep(InnerLoop& inner, const OuterStrategy& strategy) {
  bytes_ = {};  // before there are two
  bytes_ = write_state(worker_snapshot(inner, strategy, true));
}

// A strategy that has thrown is of no use: it may hold half a step.
std::unique_ptr<OuterStrategy> KeptState::restore(
    InnerLoop& inner, const std::function<std::unique_ptr<OuterStrategy>()>& make) {
  const auto state = read_state(std::move(bytes_));
  ISTHMUS_CHECK(state.has_value());
  restore_worker_parameters(**state, inner);
  std::unique_ptr<OuterStrategy> strategy = make();
  restore_worker_state(**state, inner, *strategy);
  return strategy;
}

}  // namespace isthmus::app
