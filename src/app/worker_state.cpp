// SPDX-License-Identifier: Apache-2.0
#include "app/worker_state.h"

#include "core/all_elements.h"

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

}  // namespace isthmus::app
