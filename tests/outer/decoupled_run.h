// SPDX-License-Identifier: Apache-2.0
// Simulated runs of method decoupled, with a record of everything that was offered and merged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "isthmus/merges.h"
#include "outer/toy_loops.h"
#include "sim/run_simulated.h"

namespace isthmus::testing_support {

/// Merges that keep a copy of what passes.
class RecordedMerges final : public Merges {
 public:
  void record(Merges& of) { of_ = &of; }
  void follow(std::int64_t last) override { of_->follow(last); }
  void offer(Offer offer) override {
    offers.push_back(offer);
    of_->offer(std::move(offer));
  }
  std::vector<Merge> take() override {
    std::vector<Merge> taken = of_->take();
    merges.insert(merges.end(), taken.begin(), taken.end());
    return taken;
  }
  Duration wait(Duration patience) override {
    waits.push_back(of_->wait(patience));
    return waits.back();
  }
  void stop_training() override { of_->stop_training(); }
  void finish() override { of_->finish(); }
  bool ended() override { return of_->ended(); }

  std::vector<Offer> offers;
  std::vector<Merge> merges;
  std::vector<Duration> waits;

 private:
  Merges* of_ = nullptr;
};

/// An exchange that hands out recorded merges.
class RecordedExchange final : public Exchange {
 public:
  RecordedExchange(Exchange& of, RecordedMerges& merges) : of_(of), merges_(merges) {
    merges_.record(*of.merges());
  }
  [[nodiscard]] WorkerId self() const override { return of_.self(); }
  [[nodiscard]] int members() const override { return of_.members(); }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return of_.key(id); }
  Ticket begin(Contribution contribution) override { return of_.begin(std::move(contribution)); }
  bool poll(const Ticket& ticket) override { return of_.poll(ticket); }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override {
    return of_.wait(ticket, patience);
  }
  [[nodiscard]] ByteCounts bytes() const override { return of_.bytes(); }
  Merges* merges() override { return &merges_; }

 private:
  Exchange& of_;
  RecordedMerges& merges_;
};

/// What one worker did.
struct LearnerRecord {
  RecordedMerges merges;
  std::vector<float> anchors, local;
  std::vector<RoundReport> rounds;
  std::int64_t tokens = 0;             // trained
  std::int64_t idle_steps = 0;         // skipped
  Duration computed{0};                // in its steps
  Duration training{0};                // from its begin to the end of its last step
  std::size_t waits_in_training = 0;   // of merges.waits: made before the last step's end
  std::size_t offers_in_training = 0;  // of merges.offers
  Duration longest_wait{0};            // of a step, for merges
  // After step DecoupledRun::save_after:
  MemoryState saved;
  std::vector<float> saved_local;
  std::int64_t saved_tokens = 0;
};

struct DecoupledRun {
  int workers = 3;
  std::int64_t steps = 60;
  OuterOptions outer = {};
  std::function<QuadraticLoop::Options(int worker)> loop = {};
  /// How long a worker's step takes, and how long it stands still before the step.
  std::function<Duration(int worker, std::int64_t step)> step_time = {};
  std::function<Duration(int worker, std::int64_t step)> pause = {};
  std::function<Duration(int worker, std::int64_t step)> stall = {};  // in a step that is trained
  SimulationOptions simulation = {};
  float drift = 0;  // every value of worker m falls by drift (m + 1) a step, whatever it is
  std::string method = "decoupled";
  std::int64_t save_after = 0;                 // this step, and goes on; 0: nothing is saved
  std::vector<LearnerRecord>* from = nullptr;  // go on from what they saved
  bool forgets = false;                        // ... without their own work
};

/// A loop whose steps take virtual time.
class ClockedLoop final : public InnerLoop {
 public:
  ClockedLoop(QuadraticLoop& of, const DecoupledRun& run, WorkerContext& context,
              LearnerRecord& record)
      : of_(of), run_(run), context_(context), record_(record) {}
  [[nodiscard]] std::span<const Parameter> parameters() const override { return of_.parameters(); }
  InnerStep train_step(StepIndex t) override {
    const int worker = context_.rank.value();
    const Duration time = run_.step_time ? run_.step_time(worker, t.value()) : Duration{0};
    InnerStep step;
    const Duration stall = run_.stall ? run_.stall(worker, t.value()) : Duration{0};
    context_.runtime.compute(stall + time,
                             [&] { step = run_.drift > 0 ? drift() : of_.train_step(t); });
    record_.computed += time;
    record_.tokens += step.tokens;
    return step;
  }
  InnerStep drift() {
    std::vector<float> values = of_.all();
    for (float& value : values) value -= run_.drift * static_cast<float>(context_.rank.value() + 1);
    of_.set(values);
    return {.tokens = 1};
  }
  [[nodiscard]] double learning_rate(StepIndex t) const override { return of_.learning_rate(t); }
  void reset_optimizer() override { of_.reset_optimizer(); }

 private:
  QuadraticLoop& of_;
  const DecoupledRun& run_;
  WorkerContext& context_;
  LearnerRecord& record_;
};

inline std::vector<LearnerRecord> run_decoupled(DecoupledRun run,
                                                SimulationResult* result = nullptr) {
  std::vector<LearnerRecord> records(static_cast<std::size_t>(run.workers));
  run.simulation.workers = run.workers;
  const SimulationResult done = run_simulated(run.simulation, [&](WorkerContext& context) {
    const int worker = context.rank.value();
    LearnerRecord& record = records[static_cast<std::size_t>(worker)];
    QuadraticLoop loop(run.loop(worker));
    LearnerRecord* const before =
        run.from != nullptr ? &(*run.from)[static_cast<std::size_t>(worker)] : nullptr;
    if (before != nullptr) loop.set(before->saved_local);
    ClockedLoop inner(loop, run, context, record);
    RecordedExchange exchange(context.exchange, record.merges);
    Exchange& used =
        run.method == "decoupled" ? static_cast<Exchange&>(exchange) : context.exchange;
    const auto strategy = make_outer_strategy(run.method, run.outer, inner, used);
    if (before != nullptr) strategy->load(before->saved);
    if (run.forgets) strategy->forget_own_work();
    const TimePoint begun = context.runtime.clock().now();
    while (strategy->steps().value() < run.steps) {
      const std::int64_t t = strategy->steps().value() + 1;
      if (run.pause && run.pause(worker, t) > Duration{0}) {
        context.runtime.sleep_until(context.runtime.clock().now() + run.pause(worker, t));
      }
      const std::size_t waits = record.merges.waits.size();
      const StepReport report = strategy->step();
      record.longest_wait =
          std::max(record.longest_wait,
                   std::accumulate(record.merges.waits.begin() + static_cast<std::ptrdiff_t>(waits),
                                   record.merges.waits.end(), Duration{0}));
      record.idle_steps += report.inner.idle ? 1 : 0;
      record.rounds.insert(record.rounds.end(), report.rounds.begin(), report.rounds.end());
      if (t == run.save_after) {
        strategy->save(record.saved);
        record.saved_local = loop.all();
        record.saved_tokens = record.tokens;
      }
    }
    record.training = context.runtime.clock().now() - begun;
    record.waits_in_training = record.merges.waits.size();
    record.offers_in_training = record.merges.offers.size();
    const std::vector<RoundReport> rounds = strategy->finish();
    record.rounds.insert(record.rounds.end(), rounds.begin(), rounds.end());
    record.anchors = anchors_of(*strategy, loop);
    record.local = loop.all();
  });
  if (result != nullptr) *result = done;
  return records;
}

}  // namespace isthmus::testing_support
