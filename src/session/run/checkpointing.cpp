// SPDX-License-Identifier: Apache-2.0
#include "session/run/checkpointing.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/state/checkpoint_names.h"
#include "data/data_split.h"
#include "isthmus/errors.h"
#include "outer/parts/shared_state.h"
#include "record/wall_clock.h"
#include "session/run/begun_run.h"
#include "session/run/worker_change.h"
#include "session/run/worker_state.h"

namespace isthmus::app {
namespace {

/// The reader for a run with another number of workers: no sync is in flight. A newcomer reads
/// another worker's state, and has lost nothing in an encoding yet.
class OtherWorkersReader final : public StateReader {
 public:
  OtherWorkersReader(StateReader& from, bool newcomer) : from_(from), newcomer_(newcomer) {}
  [[nodiscard]] bool contains(std::string_view name) const override { return from_.contains(name); }
  void tensor(std::string_view name, std::span<float> values) override {
    from_.tensor(name, values);
    if (newcomer_ && name.starts_with("outer/residual")) {
      std::ranges::fill(values, 0.0f);
    }
  }
  [[nodiscard]] std::vector<std::byte> bytes(std::string_view name) override {
    return from_.bytes(name);
  }
  [[nodiscard]] std::int64_t integer(std::string_view name) override {
    return name == "outer/in_flight" ? 0 : from_.integer(name);
  }
  [[nodiscard]] double real(std::string_view name) override { return from_.real(name); }
  [[nodiscard]] std::string text(std::string_view name) override { return from_.text(name); }

 private:
  StateReader& from_;
  bool newcomer_;
};

/// Ends the reading of a file in checkpoints of data that have grown. A program that knows no such
/// history takes them for other data, instead of reading other samples.
constexpr std::string_view kGrownState = ", grown";

bool has_grown(const StateSnapshot& worker) {
  return worker.scalars()["integers"].contains(fmt::format("inner/{}", kGrowthsEntry));
}

void save_data(StateWriter& writer, std::span<const DataFile> files, bool grown) {
  writer.integer("data/files", static_cast<std::int64_t>(files.size()));
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string prefix = fmt::format("data/{}/", i);
    writer.text(prefix + "path", files[i].path);
    writer.integer(prefix + "bytes", static_cast<std::int64_t>(files[i].bytes));
    writer.text(prefix + "sha256", files[i].sha256);
    if (files[i].reading.empty()) continue;
    writer.text(prefix + "reading", files[i].reading + std::string(grown ? kGrownState : ""));
  }
}

std::uint64_t tensor_bytes(const StateSnapshot& state) {
  std::uint64_t bytes = 0;
  for (const TensorToWrite& tensor : state.tensors()) {
    bytes += tensor.bytes.size();
  }
  return bytes;
}

}  // namespace

Checkpointing::Checkpointing(Options options, std::optional<Checkpoint> resume, RunTotals& totals,
                             MetricsLog& log)
    : options_(std::move(options)),
      resume_(std::move(resume)),
      totals_(totals),
      log_(log),
      // Apart, the newest of one site may not have reached another: the one before is everywhere.
      store_(options_.storage, options_.folder,
             options_.only ? std::max(2, options_.config.ckpt.keep) : options_.config.ckpt.keep),
      last_due_s_(monotonic_now()),
      anchor_mean_(options_.config.workers()) {
  if (resume_) former_ = former_workers(resume_->info(), options_.config);
  store_.recover();
}

bool Checkpointing::due_by_time() {
  const double every_s = in_seconds(options_.config.ckpt.every);
  const double now_s = monotonic_now();
  if (every_s <= 0 || now_s - last_due_s_ < every_s) {
    return false;
  }
  last_due_s_ = now_s;
  return true;
}

std::optional<int> Checkpointing::former(WorkerId rank) const {
  return former_[static_cast<std::size_t>(rank.value())];
}

std::unique_ptr<StateReader> Checkpointing::reader_of(WorkerId rank) const {
  return resume_->worker(former(rank).value_or(0));
}

void Checkpointing::restore_parameters(WorkerId rank, InnerLoop& inner) const {
  if (!resume_) {
    return;
  }
  restore_worker_parameters(*reader_of(rank), inner);
}

void Checkpointing::restore_state(WorkerId rank, InnerLoop& inner, OuterStrategy& strategy) const {
  if (!resume_) {
    return;
  }
  const std::unique_ptr<StateReader> reader = reader_of(rank);
  if (resume_->info().workers == options_.config.workers()) {
    restore_worker_state(*reader, inner, strategy);
  } else {
    const bool newcomer = !former(rank);
    OtherWorkersReader others(*reader, newcomer);
    restore_worker_state(others, inner, strategy);
    if (newcomer && strategy.shared_anchors()) strategy.forget_own_work();
  }
}

std::unique_ptr<StateReader> Checkpointing::written(WorkerId rank, StepIndex t) const {
  return Checkpoint::open(options_.storage, options_.folder / step_name(t.value()))
      .worker(rank.value());
}

void Checkpointing::lay_down(WorkerId rank, StepIndex t, InnerLoop& inner,
                             const OuterStrategy& strategy) {
  const bool last = is_last(t);
  const std::span<const Parameter> parameters = inner.parameters();
  StateSnapshot state = worker_snapshot(inner, strategy, last);
  const bool shared = strategy.shared_anchors();
  // Apart, a site writes its own anchors, whether all have the same or not.
  const bool own = shared || options_.only.has_value();
  const std::optional<OuterCopy> mean =
      own ? std::nullopt : anchor_mean_.lay_down(rank, t, strategy, parameters.size());
  const ParameterSource* model = nullptr;  // set on the one worker that writes it
  if (mean) {
    model = &*mean;
  } else if (own && rank == options_.only.value_or(WorkerId(0))) {
    model = &strategy;
  }
  const auto workers = static_cast<std::size_t>(options_.config.workers());
  const auto place = static_cast<std::size_t>(rank.value());
  Pending complete;
  {
    const std::lock_guard lock(mutex_);
    Pending& pending = pending_[t.value()];
    pending.states.resize(workers);
    pending.states[place] = std::move(state);
    if (shared && !options_.only) {  // apart, they have compared before (Board::outer_agrees)
      pending.anchors.resize(workers);
      pending.anchors[place] = outer::shared_digest(strategy, parameters.size());
    }
    if (rank == options_.only.value_or(WorkerId(0))) {
      pending.method_log.assign(strategy.log().begin(), strategy.log().end());
    }
    if (model != nullptr) {
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const std::span<const float> values = model->values(i);
        pending.shapes.push_back(parameters[i].shape);
        ModelValues& entry = pending.model.emplace_back();
        entry.name = parameters[i].name;
        entry.values = values;
        if (values.data() == parameters[i].values.data()) {
          entry.values = pending.states[place].view("local/" + parameters[i].name);
        } else if (!last) {
          entry.owned = StateArray(values);
          entry.values = entry.owned.span();
        }
      }
    }
    if (++pending.laid_down < workers_here()) {
      return;
    }
    complete = std::move(pending);
    pending_.erase(t.value());
  }
  check_agreement(t, complete);
  if (options_.await_lines) {
    options_.await_lines(t);
  }
  write(t, complete);
}

bool Checkpointing::is_last(StepIndex t) {
  const std::lock_guard lock(mutex_);
  const auto pending = pending_.find(t.value());
  const int others = pending == pending_.end() ? 0 : pending->second.laid_down;
  return others + 1 == workers_here();
}

// The exchange compares results; this check finds a replica that has applied a result wrongly.
// Before step 1 local values and anchors are the same.
void Checkpointing::check_agreement(StepIndex t, const Pending& pending) const {
  for (std::size_t m = 1; m < pending.anchors.size(); ++m) {
    if (pending.anchors[m] == pending.anchors[0]) continue;
    if (t == StepIndex(0)) {
      const auto unlike = std::ranges::find_if(pending.model, [&](const ModelValues& each) {
        const auto values = [&](std::size_t worker) {
          return xxh3_128(std::as_bytes(pending.states[worker].view("local/" + each.name)));
        };
        return values(0) != values(m);
      });
      throw ConfigError(fmt::format(
          "workers 0 and {} start from unlike values, and '{}' is the first tensor that differs: "
          "give all workers the same ones, or net.start = \"first\", with which those of the "
          "first worker count",
          m, unlike == pending.model.end() ? std::string() : unlike->name));
    }
    throw RunError(fmt::format(
        "step {}: the outer parameters of workers 0 and {} differ ({} and {}), so no checkpoint "
        "was written: resume from the one before; if it comes again, the machine's memory or "
        "processor is in doubt",
        t.value(), m, pending.anchors[0].hex(), pending.anchors[m].hex()));
  }
}

void Checkpointing::write(StepIndex t, const Pending& pending) {
  if (!options_.writes) {
    return;
  }
  const double begin_s = monotonic_now();
  CheckpointContents contents;
  contents.info.step = t.value();
  contents.info.workers = options_.config.workers();
  contents.info.run_id = options_.run_id;
  contents.info.config_hash = options_.config_hash;
  contents.info.settings = lasting_settings(options_.config);
  contents.info.settings.insert(options_.trainer.begin(), options_.trainer.end());
  contents.info.settings[kWorkerNames] = worker_names(options_.config);
  contents.files = options_.files;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < pending.model.size(); ++i) {
    const std::span<const float> values = pending.model[i].values;
    contents.model.push_back(
        {.name = pending.model[i].name, .shape = pending.shapes[i], .values = values});
    bytes += values.size() * sizeof(float);
  }
  if (options_.only) {
    contents.info.only_worker = options_.only->value();
    contents.of_all_sites = options_.of_all_sites && options_.of_all_sites(t);
  }
  StateSnapshot shared;
  PrefixedStateWriter totals(shared, "totals/");
  totals_.save(totals);
  const WorkerId own = options_.only.value_or(WorkerId(0));
  save_data(shared, options_.data,
            has_grown(pending.states[static_cast<std::size_t>(own.value())]));
  contents.shared = &shared;
  for (std::size_t m = 0; m < pending.states.size(); ++m) {
    const bool here = !options_.only || static_cast<std::size_t>(options_.only->value()) == m;
    contents.workers.push_back(here ? &pending.states[m] : nullptr);
    bytes += tensor_bytes(pending.states[m]);
  }
  const auto save_all = [&] {
    if (options_.held) options_.held();
    save(contents, pending);
  };
  if (options_.patience != nullptr) {
    options_.patience->write(fmt::format("the checkpoint of step {}", t.value()), save_all);
  } else {
    save_all();
  }
  log_.checkpoint(t, bytes, monotonic_now() - begin_s);
}

void Checkpointing::save(const CheckpointContents& contents, const Pending& pending) {
  log_.sync();  // a checkpoint never outlives the lines it follows
  // Before the checkpoint: a process that is killed between the two begins again before this point,
  // and writes both.
  if (!pending.method_log.empty()) {
    write_atomically(options_.storage, options_.folder.parent_path() / "method.log",
                     pending.method_log);
  }
  store_.save(contents);
}

std::vector<DataFile> data_of(const Checkpoint& checkpoint) {
  const std::unique_ptr<StateReader> shared = checkpoint.shared();
  std::vector<DataFile> files;
  if (!shared->contains("data/files")) {
    return files;
  }
  files.resize(static_cast<std::size_t>(shared->integer("data/files")));
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string prefix = fmt::format("data/{}/", i);
    files[i] = {.path = shared->text(prefix + "path"),
                .bytes = static_cast<std::uint64_t>(shared->integer(prefix + "bytes")),
                .sha256 = shared->text(prefix + "sha256")};
    if (!shared->contains(prefix + "reading")) continue;
    std::string& reading = files[i].reading = shared->text(prefix + "reading");
    if (reading.ends_with(kGrownState)) reading.resize(reading.size() - kGrownState.size());
  }
  return files;
}

}  // namespace isthmus::app
