// SPDX-License-Identifier: Apache-2.0
// Method spsa with its arithmetic on the device: the weights, logs and reports of a run whose
// arithmetic is the CPU's, bit for bit.
#include <memory>

#include "core/base/all_elements.h"
#include "cuda/resident_loop.h"
#include "cuda/training_case.h"
#include "outer/place/outer_placement.h"
#include "outer/spsa_runs.h"

namespace isthmus::this_file {
namespace {

using testing_support::Finish;
using testing_support::MemoryState;
using testing_support::ResidentLoop;

class SpsaTraining : public CudaLoopTest {};

/// Two workers over toy loops, of which one goes on from the other's state in the middle.
std::vector<Finish> run_on_device(int steps, const OuterOptions& options) {
  constexpr int kWorkers = 2;
  std::vector<Finish> ends(kWorkers);
  std::vector<MemoryState> states(kWorkers);
  std::vector<std::vector<float>> weights(kWorkers);
  for (const int until : {steps / 2, steps}) {
    run_in_process(kWorkers, [&](WorkerContext& context) {
      const auto w = static_cast<std::size_t>(context.rank.value());
      testing_support::QuadraticLoop real(
          testing_support::odd_tensors(static_cast<int>(context.rank.value())));
      if (until == steps) real.set(weights[w]);
      ResidentLoop inner(real);
      const auto strategy =
          outer::make_outer_strategy_beside_device("spsa", options, inner, context.exchange, inner);
      if (until == steps) strategy->load(states[w]);
      while (strategy->steps().value() < until) ends[w].reports.push_back(strategy->step());
      if (until < steps) strategy->save(states[w]);
      inner.read_values(isthmus::all_elements(inner));
      weights[w].clear();
      for (const Parameter& parameter : inner.parameters()) {
        weights[w].insert(weights[w].end(), parameter.values.begin(), parameter.values.end());
      }
      ends[w].weights = weights[w];
      ends[w].log.assign(strategy->log().begin(), strategy->log().end());
    });
  }
  return ends;
}

// Past the first digest of the weights, which all compare and the log holds.
TEST_F(SpsaTraining, HasTheWeightsAndTheLogOfTheCpu) {
  constexpr int kSteps = 70;
  const OuterOptions options = testing_support::spsa_options(2);
  const std::vector<Finish> host = testing_support::run_workers(2, kSteps, options);
  const std::vector<Finish> device = run_on_device(kSteps, options);
  for (std::size_t w = 0; w < host.size(); ++w) {
    EXPECT_TRUE(cuda::same_bits(host[w].weights, device[w].weights)) << w;
    EXPECT_TRUE(host[w].log == device[w].log) << w;
    ASSERT_EQ(host[w].reports.size(), device[w].reports.size());
    for (std::size_t t = 0; t < host[w].reports.size(); ++t) {
      EXPECT_EQ(host[w].reports[t].inner.loss, device[w].reports[t].inner.loss) << t;
    }
  }
}

struct Outcome {
  std::vector<double> losses;
  std::vector<float> weights;
  std::vector<std::byte> log;
  bool operator==(const Outcome&) const = default;
};

/// Worker 0 of two on the built-in trainer's device loop.
Outcome train_with(bool on_device) {
  Outcome outcome;
  run_in_process(2, [&](WorkerContext& context) {
    LanguageModelOptions options = tiny_options("gpt2");
    options.bf16 = true;  // whose rounded copies must follow
    options.forward_only = true;
    options.inner.lr = 1e-3;
    RandomBatches batches(kVocab, kSequences, kLength);
    const std::int64_t shift = 100 * context.rank.value();
    CudaLoop loop(options, [&](StepIndex t) { return batches.at(StepIndex(t.value() + shift)); });
    OuterOptions outer = testing_support::spsa_options(2);
    const auto strategy = on_device ? outer::make_outer_strategy_beside_device(
                                          "spsa", outer, loop, context.exchange, loop)
                                    : make_outer_strategy("spsa", outer, loop, context.exchange);
    RandomBatches fixed(kVocab, kSequences, kLength);
    std::vector<double> losses;
    for (int t = 1; t <= 3; ++t) {
      losses.push_back(strategy->step().inner.loss);
      if (t == 2) losses.push_back(loop.loss(fixed.at(StepIndex(999)), *strategy));
    }
    if (context.rank != WorkerId(0)) return;
    outcome = {losses, values_now(loop), {strategy->log().begin(), strategy->log().end()}};
  });
  return outcome;
}

TEST_F(SpsaTraining, OfTheBuiltInTrainerHasThemToo) {
  const Outcome host = train_with(false);
  EXPECT_EQ(host, train_with(true));
  EXPECT_NE(host.losses.front(), host.losses.back());
}

}  // namespace
}  // namespace isthmus::this_file
