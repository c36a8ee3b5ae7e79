// SPDX-License-Identifier: Apache-2.0
#include "app/checkpointing.h"

#include <utility>

#include "app/run_directory.h"
#include "core/check.h"
#include "core/log.h"

namespace isthmus::app {
namespace {

/// A reader in which no sync is in flight: what a run with another number of workers reads.
class SettledReader final : public StateReader {
 public:
  explicit SettledReader(StateReader& from) : from_(from) {}
  [[nodiscard]] bool contains(std::string_view name) const override { return from_.contains(name); }
  void tensor(std::string_view name, std::span<float> values) override {
    from_.tensor(name, values);
  }
  [[nodiscard]] std::vector<std::byte> bytes(std::string_view name) override {
    return from_.bytes(name);
  }
  [[nodiscard]] std::int64_t integer(std::string_view name) override {
    return name == "in_flight" ? 0 : from_.integer(name);
  }
  [[nodiscard]] double real(std::string_view name) override { return from_.real(name); }
  [[nodiscard]] std::string text(std::string_view name) override { return from_.text(name); }

 private:
  StateReader& from_;
};

}  // namespace

Checkpointing::Checkpointing(Options options, std::optional<Checkpoint> resume, RunTotals& totals,
                             MetricsLog& log)
    : options_(std::move(options)),
      resume_(std::move(resume)),
      totals_(totals),
      log_(log),
      store_(options_.storage, options_.folder, options_.config.ckpt.keep),
      states_(static_cast<std::size_t>(options_.config.workers())),
      last_written_(unix_now()) {
  store_.recover();
}

bool Checkpointing::due_by_time() const {
  const double every_s = std::chrono::duration<double>(options_.config.ckpt.every).count();
  return every_s > 0 && unix_now() - last_written_ >= every_s;
}

std::unique_ptr<StateReader> Checkpointing::reader_of(Rank rank) const {
  return resume_->worker(rank.value() < resume_->info().workers ? rank.value() : 0);
}

void Checkpointing::restore_parameters(Rank rank, InnerLoop& inner) const {
  if (!resume_) {
    return;
  }
  const std::unique_ptr<StateReader> reader = reader_of(rank);
  PrefixedStateReader local(*reader, "local/");
  for (const Parameter& parameter : inner.parameters()) {
    local.tensor(parameter.name, parameter.values);
  }
}

void Checkpointing::restore_state(Rank rank, InnerLoop& inner, OuterStrategy& strategy) const {
  if (!resume_) {
    return;
  }
  const std::unique_ptr<StateReader> reader = reader_of(rank);
  PrefixedStateReader inner_state(*reader, "inner/");
  inner.load(inner_state);
  PrefixedStateReader outer_state(*reader, "outer/");
  if (resume_->info().workers == options_.config.workers()) {
    strategy.load(outer_state);
  } else {
    SettledReader settled(outer_state);
    strategy.load(settled);
  }
}

void Checkpointing::lay_down(Rank rank, const InnerLoop& inner, const OuterStrategy& strategy) {
  StateSnapshot state;
  PrefixedStateWriter local(state, "local/");
  for (const Parameter& parameter : inner.parameters()) {
    local.tensor(parameter.name, parameter.values);
  }
  PrefixedStateWriter inner_state(state, "inner/");
  inner.save(inner_state);
  PrefixedStateWriter outer_state(state, "outer/");
  strategy.save(outer_state);
  states_[static_cast<std::size_t>(rank.value())] = std::move(state);
  if (rank == Rank(0)) {
    inner_ = &inner;
    strategy_ = &strategy;
  }
}

void Checkpointing::commit(StepIndex t) {
  ISTHMUS_CHECK(strategy_ != nullptr, t.value());
  const double begin = unix_now();
  CheckpointContents contents{.info = {.step = t.value(),
                                       .workers = options_.config.workers(),
                                       .run_id = options_.run_id,
                                       .config_hash = options_.config_hash},
                              .files = options_.files};
  const std::span<const Parameter> parameters = inner_->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    contents.model.push_back(
        {.name = parameters[i].name, .shape = parameters[i].shape, .values = strategy_->values(i)});
  }
  StateSnapshot shared;
  PrefixedStateWriter totals(shared, "totals/");
  totals_.save(totals);
  contents.shared = &shared;
  for (const StateSnapshot& state : states_) {
    contents.workers.push_back(&state);
  }
  const std::filesystem::path folder = store_.save(contents);
  for (StateSnapshot& state : states_) {
    state = {};
  }
  inner_ = nullptr;
  strategy_ = nullptr;
  last_written_ = unix_now();
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    bytes += entry.is_regular_file() ? entry.file_size() : 0;
  }
  log_.checkpoint(t, bytes, last_written_ - begin);
}

}  // namespace isthmus::app
