// SPDX-License-Identifier: Apache-2.0
#include "app/mesh_job.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "app/memory_check.h"
#include "app/offload.h"
#include "app/rank_communicators.h"
#include "app/run_parts.h"
#include "app/signals.h"
#include "app/training_plan.h"
#include "core/system_runtime.h"
#include "inner/mesh_model.h"
#include "isthmus/errors.h"
#include "kernels/isa.h"
#include "transport/mpi_communicator.h"

namespace isthmus::app {
namespace {

// The first rank may be busy between two passes for as long as a round over the WAN takes.
constexpr std::chrono::hours kLongestWait{24};

/// Files for what the rank holds, if the run has some, once it is known to fit. A rank that has
/// none does not leave the others waiting for it.
std::unique_ptr<StateMemory> files_of(const Config& config, const TrainingPlan& plan,
                                      const ModelLayout& layout, Rank worker,
                                      RankProcesses& ranks) {
  try {
    check_rank_memory(config, plan, layout, worker, ranks.passes.rank(), memory_limit());
    return make_state_memory(config, worker, nullptr, nullptr);
  } catch (const std::exception& error) {
    ranks.abort(error.what());
    throw;
  }
}

void serve(const Config& config, TrainingPlan plan, Rank worker, RankProcesses& ranks) {
  const SignalScope noted;  // the first rank decides when the run stops
  kernels::use_isa(kernels::isa_named(config.train.kernels));
  plan.processes = &ranks;
  const ModelLayout layout(model_shape(config.model, config.train.context));
  const auto files = files_of(config, plan, layout, worker, ranks);
  const StateMemoryScope scope(files.get());
  try {
    serve_mesh(layout, mesh_options(language_model_options(config, plan, worker)), ranks);
  } catch (const CommunicatorError& error) {
    throw PeerError(error.what());
  }
}

}  // namespace

int run_mesh_job(const Config& config, Rank worker,
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
