// SPDX-License-Identifier: Apache-2.0
#include "session/run/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/log.h"
#include "data/data_report.h"
#include "isthmus/errors.h"
#include "record/run_directory.h"
#include "session/run/checkpointing.h"
#include "session/run/config_difference.h"
#include "session/run/run_settings.h"
#include "session/run/worker_change.h"

namespace isthmus::app {
namespace {

/// The keys that differ, if the checkpoint lies in its run's folder; else a remark about digests.
std::string what_differs(const Storage& storage, const Checkpoint& checkpoint,
                         const Config& config) {
  const std::filesystem::path file =
      std::filesystem::weakly_canonical(checkpoint.folder()).parent_path().parent_path() /
      "config.resolved.toml";
  if (storage.kind(file) != FileKind::kFile) {
    return "the digests differ";
  }
  std::string text;
  for (const std::string& line : config_differences(
           read_text(storage, file), resolved_as_kept(config, file_copies(storage, config)))) {
    text += (text.empty() ? "" : "; ") + line;
  }
  // The file is of a session that was killed before it wrote a checkpoint.
  return text.empty() ? "the digests differ" : text;
}

/// Sites are numbered in the order of the file, and only numbers are kept.
void check_same_worker(const Checkpoint& checkpoint, const Config& config, WorkerId rank) {
  const CheckpointInfo& info = checkpoint.info();
  const int of = info.only_worker.value_or(rank.value());
  if (former_workers(info, config)[static_cast<std::size_t>(rank.value())] == of) return;
  const auto place = [&](int worker) {
    const auto index = static_cast<std::size_t>(worker);
    const bool known = info.workers == config.workers() && index < config.sites.size();
    return fmt::format("site {} of {}{}", worker + 1, info.workers,
                       known ? fmt::format(", {}", config.sites[index].name) : "");
  };
  throw ConfigError(fmt::format(
      "checkpoint {} holds the state of {}, and this is {}: give the folder of this site's own run "
      "(--out), and the sites in the order that they had",
      checkpoint.folder().string(), place(of),
      info.workers == config.workers()
          ? place(rank.value())
          : fmt::format("site {} of {}", rank.value() + 1, config.workers())));
}

}  // namespace

bool lies_within(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const auto inner = std::filesystem::weakly_canonical(path);
  const auto outer = std::filesystem::weakly_canonical(folder);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

bool is_same_place(const std::filesystem::path& a, const std::filesystem::path& b) {
  return std::filesystem::weakly_canonical(a) == std::filesystem::weakly_canonical(b);
}

std::optional<Checkpoint> find_resume(const Storage& storage, const std::filesystem::path& out,
                                      const std::string& resume) {
  if (resume == "never") {
    return std::nullopt;
  }
  if (resume != "auto") {
    return Checkpoint::open(storage, find_checkpoint(storage, resume));
  }
  if (out.empty()) {
    throw ConfigError("--resume auto: which run? give its folder with --out or run.out");
  }
  if (list_checkpoints(storage, out / "ckpt").empty()) {
    return std::nullopt;
  }
  std::vector<std::string> refused;
  Checkpoint newest = open_newest_checkpoint(storage, out / "ckpt", refused);
  for (const std::string& line : refused) {
    log_warning("{}", line);
  }
  return newest;
}

HeldCheckpoints held_checkpoints(const Storage& storage, const std::filesystem::path& out,
                                 const ResumedRun& run, WorkerId rank) {
  if (out.empty()) {
    throw ConfigError("--resume auto: which run? give its folder with --out or run.out");
  }
  HeldCheckpoints all;
  std::optional<ConfigError> unlike;  // of a checkpoint from before the file was edited, maybe
  for (const std::filesystem::path& folder : list_checkpoints(storage, out / "ckpt")) {
    try {
      const Checkpoint checkpoint = Checkpoint::open(storage, folder);
      const CheckpointInfo& info = checkpoint.info();
      try {
        static_cast<void>(
            check_same_configuration(storage, checkpoint, run.config, run.digest, run.changes));
        static_cast<void>(check_data(checkpoint, run));
      } catch (const ConfigError& error) {
        if (!unlike) unlike = error;
        continue;
      }
      check_same_worker(checkpoint, run.config, rank);
      const auto has_its_step = [&](const HeldCheckpoint& each) { return each.step == info.step; };
      if (std::ranges::any_of(all.held, has_its_step))
        continue;  // this checkpoint has been replaced
      // Sites with anchors of their own hold unlike ones after one step.
      const bool alike = info_of(run.config.method).shared_anchors;
      all.held.push_back({.step = info.step,
                          .run_id = info.run_id,
                          .model = alike ? checkpoint.model_digest() : std::string()});
    } catch (const SystemError& error) {
      log_warning("{}", error.what());
      all.unreadable = true;
    }
  }
  if (unlike && all.held.empty()) throw ConfigError(*unlike);
  return all;
}

const Config* check_same_configuration(const Storage& storage, const Checkpoint& checkpoint,
                                       const Config& config, const std::string& digest,
                                       const RunChanges& changes) {
  const std::string& own = checkpoint.info().config_hash;
  if (own == digest) return nullptr;
  if (const Config* const before = before_changes(changes, own)) return before;
  throw ConfigError(fmt::format(
      "checkpoint {} was made with another configuration ({}): resume with its own "
      "config.resolved.toml, name what is to change with {}, or start a new run from {}",
      checkpoint.folder().string(), what_differs(storage, checkpoint, config),
      way_to_change(changes.by_argument, "KEY=VALUE"),
      changes.by_argument ? "its weights" : "its model with model.init"));
}

ResumeFindings check_resume(const Storage& storage, const Checkpoint& checkpoint,
                            const ResumedRun& run) {
  ResumeFindings findings{
      .before = check_same_configuration(storage, checkpoint, run.config, run.digest, run.changes),
      .growth = {}};
  if (findings.before != nullptr) {
    run.changes.check(*findings.before, run.config, checkpoint.info().step);
  }
  check_workers(checkpoint, run.config);
  findings.growth = check_data(checkpoint, run);
  if (checkpoint.info().only_worker && !run.is_site && run.workers > 1) {
    throw ConfigError(fmt::format(
        "checkpoint {} holds one site's state alone: go on at all sites with train --site NAME "
        "--resume auto, or start a new run from its model with model.init",
        checkpoint.folder().string()));
  }
  return findings;
}

std::optional<std::vector<DataFile>> data_begun_with(const Storage& storage,
                                                     const std::filesystem::path& out,
                                                     const std::string& resume) {
  if (resume != "auto") {
    const std::optional<Checkpoint> checkpoint = find_resume(storage, out, resume);
    return checkpoint ? std::optional(data_of(*checkpoint)) : std::nullopt;
  }
  const std::vector<std::filesystem::path> there =
      out.empty() ? std::vector<std::filesystem::path>() : list_checkpoints(storage, out / "ckpt");
  for (const std::filesystem::path& folder : there) {
    try {
      return data_of(Checkpoint::open(storage, folder));
    } catch (const SystemError&) {
      // The caller that resumes from it reports the damage.
    }
  }
  return there.empty() ? std::nullopt : std::optional(std::vector<DataFile>());
}

std::optional<DataGrowth> check_data(const Checkpoint& checkpoint, const ResumedRun& run) {
  // The same bytes in the same order are the same data, wherever they lie.
  const auto by_name = [](std::span<const DataFile> files) {
    std::vector<DataFile> named(files.begin(), files.end());
    for (DataFile& file : named) {
      file.path = std::filesystem::path(file.path).filename().string();
    }
    return named;
  };
  const std::vector<DataFile> before = data_of(checkpoint);
  const auto same_bytes = [](const DataFile& a, const DataFile& b) {
    return a.bytes == b.bytes && a.sha256 == b.sha256 && is_same_reading(a.reading, b.reading);
  };
  if (before.empty() || std::ranges::equal(before, run.data, same_bytes)) return std::nullopt;
  const Expected<std::int64_t, std::string> tokens =
      run.tokens_of_beginning
          ? run.tokens_of_beginning(before)
          : Unexpected<std::string>(std::string("data of this trainer cannot grow"));
  const std::int64_t step = checkpoint.info().step;
  if (names_appended_data(run.changes)) {
    if (tokens) return DataGrowth{.after_step = step, .tokens = *tokens};
    throw ConfigError(fmt::format(
        "{} {} = \"{}\": the run has taken {} steps with data that are not the beginning of "
        "these: {}; bring the former data back{}, or start a new run from its model with "
        "model.init",
        change_flag(run.changes.by_argument), kAppendedKey, run.config.data.source, step,
        tokens.error(), run.config.train.objective == "sft" ? "" : " and append to them"));
  }
  std::vector<std::string> changes = data_changes(by_name(before), by_name(run.data));
  if (changes.empty()) {
    changes.emplace_back("its files come in another order");
  }
  const std::string append =
      tokens
          ? fmt::format("they are the beginning of these: go on with {}, or ",
                        way_to_change(run.changes.by_argument,
                                      fmt::format("{}='{}'", kAppendedKey, run.config.data.source)))
          : "";
  throw ConfigError(fmt::format(
      "checkpoint {} was made with other data ({}): {}bring the data back, or start a new run from "
      "its model with model.init",
      checkpoint.folder().string(), fmt::join(changes, "; "), append));
}

std::vector<std::string> changes_at(const Checkpoint& checkpoint, const ResumedRun& run,
                                    const ResumeFindings& findings) {
  std::vector<std::string> lines;
  if (findings.before != nullptr) {
    std::vector<std::string> keys = run.changes.keys;
    std::erase(keys, kAppendedKey);
    std::erase(keys, "run.workers");
    lines = changes_text(*findings.before, run.config, keys);
  }
  if (std::string line = workers_text(checkpoint, run.config); !line.empty()) {
    lines.push_back(std::move(line));
  }
  if (findings.growth) {
    const std::vector<DataFile> before = data_of(checkpoint);
    const std::string& source = run.changes.before.front().data.source;
    lines.push_back(
        growth_text({source, before}, {run.config.data.source, run.data}, findings.growth->tokens));
  }
  return lines;
}

}  // namespace isthmus::app
