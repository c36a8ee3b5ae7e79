// SPDX-License-Identifier: Apache-2.0
// A run's folder: rules of its creation, manifest, configuration files and JSON-lines streams. The
// layout is a contract with `report` and with outside tools; see README.md of this module.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/disk_patience.h"
#include "core/base/storage.h"
#include "isthmus/config.h"
#include "isthmus/data_file.h"
#include "record/json_line.h"
#include "record/run_lock.h"
#include "record/wall_clock.h"

namespace isthmus::app {

/// A change of a run's configuration at a resume.
struct ConfigChange {
  std::int64_t after_step = 0;
  std::string change;  // "train.steps = 60 (40 before)"
};

/// manifest.json: the program, machine, configuration and data of a run. Filled by the caller;
/// `make_manifest` fills the facts about program and machine.
struct Manifest {
  std::string run_id;
  std::string name;
  std::string command;  // "train", "simulate", ...
  std::vector<std::string> argv;
  std::string config_hash;
  std::string started, ended;      // UTC, "2026-11-20T15:30:00Z"; ended empty while running
  std::string status = "running";  // running | ok | failed | interrupted | checkpointed
  std::string version, git, compiler, flags, cpu, os;
  int cores = 0;
  std::string kernels;  // instruction set of this process's kernels, as train.kernels spells it
  std::vector<DataFile> data;
  bool simulated = false;
  std::optional<SurrogateConfig> surrogate;
  std::string method;
  std::string final_sync;  // outer.final_sync in effect; empty: the method has no such key
  int workers = 1;
  std::string model = "{}";  // the trained model, as a JSON object
  std::int64_t parameters = 0;
  std::vector<ConfigChange> changes;  // by resumes (--change), in order
  std::string parent;                 // run id of the continued or initial run, or empty
  std::string device = "cpu";         // of the inner loops in this process, as from device_text
};

/// A new run id, the start time, version, compiler, CPU and so on; method, workers, name and hash
/// from `config`.
[[nodiscard]] Manifest make_manifest(const Config& config, std::string command,
                                     std::vector<std::string> argv);

/// The files as JSON: path, bytes and SHA-256 of each.
[[nodiscard]] std::string data_files_json(std::span<const DataFile> files);

/// manifest.json's text.
[[nodiscard]] std::string manifest_json(const Manifest& manifest);

/// A file of JSON lines, one write a line, while the folder is held. One thread at a time calls
/// `append`.
class JsonLinesFile {
 public:
  /// Borrowed, both may be null. `patience`: retries when the disk is full; `lock`: of the folder.
  explicit JsonLinesFile(std::unique_ptr<WritableFile> file, const DiskPatience* patience = nullptr,
                         const RunLock* lock = nullptr)
      : file_(std::move(file)), patience_(patience), lock_(lock) {}
  /// THROWS: SystemError when the disk refuses, or another process has taken the folder.
  void append(const JsonLine& line);
  /// Blocks until all lines are on the disk.
  void sync() { file_->sync(); }

 private:
  std::unique_ptr<WritableFile> file_;
  const DiskPatience* patience_;
  const RunLock* lock_;
};

enum class ExistingRun {
  kRefuse,  // a non-empty folder is an error that names --resume and --force
  kResume,  // keep everything
  kForce,   // remove a run's files; other files stay
};

struct RunDirectoryOptions {
  std::filesystem::path out;  // empty: runs/<name>-<stamp>-<id>
  std::string name = "run";
  std::string run_id;  // its first digits end the default folder's name
  ExistingRun existing = ExistingRun::kRefuse;
};

/// Tags that users have given to a run (`runs tag`): a JSON list.
inline constexpr std::string_view kTagsFile = "tags.json";
/// Results that a site retains while it trains (transport/exchange/catch_up/retained_results.h).
inline constexpr std::string_view kResultsFile = "retained.results";
/// Copies of the links' traces (link.trace).
inline constexpr std::string_view kTracesFolder = "link_traces";
struct FileCopy {
  /// Of the bytes, so that one name always has one content: equal files are stored once, and a
  /// resumed run with another file keeps the copy of its earlier part.
  std::string digest;          // the first 16 digits of their SHA-256
  std::filesystem::path name;  // link_traces/<digest>.csv, in the run's folder
  std::string text;
};
using FileCopies = std::map<std::filesystem::path, FileCopy>;  // by the files' paths
/// Reads the files. THROWS: SystemError for an unreadable one.
[[nodiscard]] FileCopies file_copies(const Storage& storage, const Config& config);
/// The text of a run's config.resolved.toml: `config`, with links naming the copies.
[[nodiscard]] std::string resolved_as_kept(const Config& config, const FileCopies& copies);
/// Removes a run's files, and its folder if nothing else is in it. RETURNS: the other files.
[[nodiscard]] std::vector<std::string> remove_run(Storage& storage,
                                                  const std::filesystem::path& run);

/// The run's folder for `options`: `out`, or a new folder below runs/.
[[nodiscard]] std::filesystem::path run_folder(const RunDirectoryOptions& options);

/// The checks of RunDirectory's constructor. THROWS: as it.
void check_folder(const RunDirectoryOptions& options);

class RunDirectory {
 public:
  /// In the folder that `lock` holds, for this object's life. THROWS: ConfigError when the folder
  /// is not empty and may not be used, SystemError when it cannot be created.
  RunDirectory(Storage& storage, const RunDirectoryOptions& options, const RunLock& lock);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path checkpoints() const { return path_ / "ckpt"; }

  /// Writes config.toml (the file's bytes), config.resolved.toml, and copies of the links'
  /// traces, whose names config.resolved.toml holds: so the folder is complete wherever it is
  /// moved.
  void write_config(const Config& config);
  /// Digest of the trace's file, as read by `write_config`.
  [[nodiscard]] const std::string& trace_digest(const std::filesystem::path& trace) const {
    return digests_.at(trace);
  }
  /// Writes manifest.json atomically; called at the start and at the end.
  void write_manifest(const Manifest& manifest) {
    write_json("manifest.json", manifest_json(manifest));
  }
  /// Writes `json` (an object) to `name` atomically: links.json, summary.json. THROWS: SystemError
  /// when the disk refuses, or another process has taken the folder.
  void write_json(const std::string& name, std::string_view json);

  /// Removes from `name` (metrics.jsonl, events.jsonl) the lines that a resume from `step` will
  /// write again: lines with a larger step, the "end" line, a torn last line. Atomic; a missing
  /// file is no error.
  void truncate_after(const std::string& name, std::int64_t step);
  /// Moves checkpoints, metrics and events to a subfolder, since the run begins anew. RETURNS: that
  /// folder, or nothing if there were none.
  std::filesystem::path set_aside();
  /// Opens `name` for appending. Borrows `patience`, which may be null.
  [[nodiscard]] JsonLinesFile open_lines(const std::string& name,
                                         const DiskPatience* patience = nullptr);

 private:
  Storage& storage_;
  const RunLock* lock_;
  std::filesystem::path path_;
  std::map<std::filesystem::path, std::string> digests_;  // of the copied files
};

}  // namespace isthmus::app
