// SPDX-License-Identifier: Apache-2.0
#include "app/mesh_job.h"

#include <chrono>
#include <memory>

#include "app/run_parts.h"
#include "app/signals.h"
#include "app/training_plan.h"
#include "inner/mesh_model.h"
#include "isthmus/errors.h"
#include "kernels/isa.h"
#include "transport/mpi_communicator.h"

namespace isthmus::app {
namespace {

// The first rank may be busy between two passes for as long as a round over the WAN takes.
constexpr std::chrono::hours kLongestWait{24};

void serve(const Config& config, Rank worker, Communicator& ranks) {
  const SignalScope noted;  // the first rank decides when the run stops
  kernels::use_isa(kernels::isa_named(config.train.kernels));
  TrainingPlan plan = make_training_plan(config, kernels::usable_cores(), worker);
  plan.processes = &ranks;
  const ModelLayout layout(model_shape(config.model, config.train.context));
  try {
    serve_mesh(layout, mesh_options(language_model_options(config, plan, worker)), ranks);
  } catch (const CommunicatorError& error) {
    throw PeerError(error.what());
  }
}

}  // namespace

int run_mesh_job(const Config& config, Rank worker,
                 const std::function<int(Communicator& ranks)>& train) {
  int code = 0;
  {
    const std::unique_ptr<Communicator> ranks = make_mpi_communicator(kLongestWait);
    if (ranks->rank() == 0) {
      try {
        code = train(*ranks);
      } catch (const std::exception& error) {
        ranks->abort(error.what());
        throw;
      }
    } else {
      serve(config, worker, *ranks);
    }
  }
  finish_mpi();
  return code;
}

}  // namespace isthmus::app
