// SPDX-License-Identifier: Apache-2.0
#include "app/largest_round.h"

#include <algorithm>
#include <string>
#include <vector>

#include "app/run_parts.h"
#include "inner/model_layout.h"
#include "sim/topology.h"

namespace isthmus::app {

LargestRound largest_round(const Config& config) {
  const ModelLayout layout(model_shape(config.model, config.train.context));
  LargestRound round{.input =
                         prediction_input(config.method, config.outer,
                                          parameters_without_values(layout), config.workers(), 1)};
  for (const PlannedFragment& fragment : round.input.fragments) {
    round.values = std::max(round.values, fragment.elements);
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 24;  // times are of sizes, not of values
  const std::int64_t few = std::min(round.values, kMost);
  PredictionInput& input = round.input;
  input.fragments = {{.elements = few}};
  input.H = 1;
  input.overlap = 0;
  input.round_behind = false;
  input.commit_every = 0;
  input.step_time = [](Rank, StepIndex) { return Duration(0); };
  std::vector<std::string> sites;
  for (const SiteConfig& site : config.sites) sites.push_back(site.name);
  input.links = link_matrix(config.links, sites);
  input.link = {.model = config.sim.link_model == "ideal" ? LinkModel::kPlain : LinkModel::kTcp,
                .byte_scale = surrogate_byte_scale(config, layout) *
                              static_cast<double>(round.values) / static_cast<double>(few)};
  return round;
}

}  // namespace isthmus::app
