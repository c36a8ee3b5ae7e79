// SPDX-License-Identifier: Apache-2.0
// `train` and `simulate`: one file, real threads or virtual time.
#include <fmt/format.h>

#include "app/commands.h"
#include "app/run_estimate.h"
#include "app/run_summary.h"
#include "app/training.h"
#include "core/units.h"
#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

int run(const Config& config, const TrainArguments& arguments, bool simulated, Session& session) {
  if (arguments.dry_run) {
    const RunEstimate estimate = estimate_run(config, simulated);
    session.out.write(session.json ? estimate_json(estimate) + "\n"
                                   : render_estimate(config, estimate));
    return 0;
  }
  const TrainingOutcome outcome = run_training(config,
                                               {.command = simulated ? "simulate" : "train",
                                                .out = arguments.out,
                                                .resume = arguments.resume,
                                                .force = arguments.force,
                                                .simulated = simulated},
                                               session);
  if (session.json) {
    session.out.write(outcome_json(outcome) + "\n");
  } else if (!session.quiet) {
    session.out.write(render_outcome(config, outcome));
    if (outcome.prediction) {
      session.out.write("\n" + render_prediction(*outcome.prediction, outcome.totals.clock_s));
    }
  }
  if (outcome.exit_code != ExitCode::kOk) {
    session.err.write(
        fmt::format("stopped after step {}, checkpoint written; go on with --out {} "
                    "--resume auto\n",
                    outcome.totals.steps, outcome.directory.string()));
  }
  return static_cast<int>(outcome.exit_code);
}

}  // namespace

int command_train(const TrainArguments& arguments, Session& session) {
  const Config config = load_config(arguments.config, arguments.overrides, schema_context());
  return run(config, arguments, false, session);
}

int command_simulate(const SimulateArguments& arguments, Session& session) {
  Config config = load_config(arguments.config, arguments.overrides, schema_context());
  if (!arguments.links.empty()) {
    replace_links(config, arguments.links, "--link");
  }
  if (config.workers() > 1 && config.links.empty()) {
    throw ConfigError(
        fmt::format("{}: simulate needs a link between the {} workers: add [[link]] or give --link "
                    "100Mbit/s,80ms",
                    arguments.config.string(), config.workers()));
  }
  return run(config, arguments, true, session);
}

}  // namespace isthmus::app
