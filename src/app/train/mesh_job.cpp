// SPDX-License-Identifier: Apache-2.0
#include "app/train/mesh_job.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/common/signals.h"
#include "app/train/config_to_options.h"
#include "app/train/memory_check.h"
#include "app/train/offload.h"
#include "app/train/rank_communicators.h"
#include "app/train/training_plan.h"
#include "config/schema/device_request.h"
#include "core/base/system_runtime.h"
#include "inner/mesh/mesh_model.h"
#include "isthmus/errors.h"
#include "kernels/isa.h"
#include "outer/place/outer_placement.h"
#include "transport/collectives/mpi_communicator.h"

namespace isthmus::app {
namespace {

// The first rank may be busy between two passes for as long as a round over the WAN takes.
constexpr std::chrono::hours kLongestWait{24};

/// This rank's service for the outer state of its site, on request of the first process.
RankService outer_service(const Config& config, const ModelLayout& layout) {
  if (outer_is_on_ranks(config)) {
    return outer::serve_outer_state(config.method, config.outer, parameters_without_values(layout));
  }
  return [place = config.outer_placement](Communicator&) {
    throw ConfigError(
        fmt::format("outer.placement = \"{}\" at this process, and the first one of its site has "
                    "\"ranks\": give the processes of a site one and the same",
                    place));
  };
}

/// The objects of a rank beside its mesh.
struct Serving {
  std::unique_ptr<StateMemory> files;  // the memory of files for its state, if the run has some
  RankService outer_state;
};

/// Once it is known to fit. A rank that cannot does not leave the others waiting for it.
Serving make_serving(const Config& config, const TrainingPlan& plan, const ModelLayout& layout,
                     WorkerId worker, RankProcesses& ranks) {
  try {
    check_rank_memory(config, plan, layout, worker, ranks.passes.rank(), memory_limit());
    return {.files = make_state_memory(config, worker, nullptr, nullptr),
            .outer_state = outer_service(config, layout)};
  } catch (const std::exception& error) {
    ranks.abort(error.what());
    throw;
  }
}

void serve(const Config& config, TrainingPlan plan, WorkerId worker, RankProcesses& ranks) {
  const SignalScope noted;  // the first rank decides when the run stops
  kernels::use_isa(kernels::isa_named(config.train.kernels));
  plan.processes = &ranks;
  const ModelLayout layout(model_shape(config.model, config.train.context));
  Serving serving = make_serving(config, plan, layout, worker, ranks);
  const StateMemoryScope scope(serving.files.get());
  try {
    serve_mesh(layout, mesh_options(language_model_options(config, plan, worker)), ranks,
               std::move(serving.outer_state));
  } catch (const CommunicatorError& error) {
    throw PeerError(error.what());
  }
}

}  // namespace

int run_mesh_job(const Config& config, WorkerId worker,
                 const std::function<int(RankProcesses& ranks)>& train) {
  using std::chrono::milliseconds;
  const milliseconds patience =
      std::chrono::ceil<milliseconds>(config.rank_patience.value_or(kRankPatience));
  int code = 0;
  {
    const TrainingPlan plan = make_training_plan(config, kernels::usable_cores(), worker);
    const std::vector<std::string> places = rank_places(plan.mesh(worker).shape);
    const auto passes = make_pass_communicator(config, patience, places);
    const bool first = passes->rank() == 0;
    const auto orders = make_mpi_communicator(first ? patience : kLongestWait, places);
    const auto roll_call = make_mpi_communicator(roll_call_wait(patience), places);
    const SystemRuntime runtime;
    RankProcesses ranks{
        .passes = *passes, .orders = *orders, .roll_call = *roll_call, .clock = runtime.clock()};
    if (first) {
      try {
        code = train(ranks);
      } catch (const CommunicatorError& error) {  // before there is a pass
        ranks.abort(error.what());
        throw PeerError(error.what());
      } catch (const std::exception& error) {
        ranks.abort(error.what());
        throw;
      }
    } else {
      serve(config, plan, worker, ranks);
    }
  }
  finish_mpi();
  return code;
}

}  // namespace isthmus::app
