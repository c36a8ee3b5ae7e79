// SPDX-License-Identifier: Apache-2.0
// A run's folder: its creation rules, manifest, configuration files and JSON-lines streams.
// The layout is a contract with `report` and with outside tools; see README.md of this module.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/disk_patience.h"
#include "core/base/storage.h"
#include "isthmus/config.h"
#include "record/json_line.h"
#include "record/run_lock.h"
#include "record/wall_clock.h"

namespace isthmus::app {

struct ManifestData {
  std::string path;
  std::uint64_t bytes = 0;
  std::string sha256;
};

/// A change of a run's configuration where it went on.
struct ConfigChange {
  std::int64_t after_step = 0;
  std::string change;  // "train.steps = 60 (40 before)"
};

/// manifest.json: what ran, where, on what. Filled by the caller; `make_manifest` fills what the
/// program knows of itself and of the machine.
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
  std::vector<ManifestData> data;
  bool simulated = false;
  std::optional<SurrogateConfig> surrogate;
  std::string method;
  std::string final_sync;  // outer.final_sync in effect; empty: the method has no such key
  int workers = 1;
  std::string model = "{}";  // what is trained, as a JSON object
  std::int64_t parameters = 0;
  std::vector<ConfigChange> changes;  // by resumes (--change), in order
  std::string parent;                 // run id that this one continues or starts from, or empty
  std::string device = "cpu";         // of the inner loops in this process, as device_text has it
};

/// A new run id, the start time, version, compiler, CPU and so on; method, workers, name and hash
/// from `config`.
[[nodiscard]] Manifest make_manifest(const Config& config, std::string command,
                                     std::vector<std::string> argv);

/// manifest.json's text.
[[nodiscard]] std::string manifest_json(const Manifest& manifest);

/// A file of JSON lines, one write a line, for as long as the folder is held. One thread at a time
/// calls `append`.
class JsonLinesFile {
 public:
  /// Borrowed, both may be null. `patience`: for a disk that is full; `lock`: of the folder.
  explicit JsonLinesFile(std::unique_ptr<WritableFile> file, const DiskPatience* patience = nullptr,
                         const RunLock* lock = nullptr)
      : file_(std::move(file)), patience_(patience), lock_(lock) {}
  /// THROWS: SystemError when the disk refuses, or the folder is another process's.
  void append(const JsonLine& line);
  /// Blocks until everything is on the disk.
  void sync() { file_->sync(); }

 private:
  std::unique_ptr<WritableFile> file_;
  const DiskPatience* patience_;
  const RunLock* lock_;
};

enum class ExistingRun {
  kRefuse,  // a non-empty folder is an error that names --resume and --force
  kResume,  // keep everything
  kForce,   // remove what a run left there; what is no run's stays
};

struct RunDirectoryOptions {
  std::filesystem::path out;  // empty: runs/<name>-<stamp>-<id>
  std::string name = "run";
  std::string run_id;  // its first digits end the default folder's name
  ExistingRun existing = ExistingRun::kRefuse;
};

/// Texts that people have put to a run (`runs tag`): a JSON list.
inline constexpr std::string_view kTagsFile = "tags.json";
/// Of results that the site retains while it trains
/// (transport/exchange/catch_up/retained_results.h).
inline constexpr std::string_view kResultsFile = "retained.results";
/// Copies of the files of rates over time that the links name (link.trace), and of net.table.
inline constexpr std::string_view kTracesFolder = "link_traces";
inline constexpr std::string_view kWaysFolder = "ways";
struct FileCopy {
  /// Of the bytes, so that one name always has one content: equal files are kept once, and a run
  /// that goes on with another one leaves the copy of its earlier part.
  std::string digest;  // the first 16 digits of their SHA-256
  std::filesystem::path
      name;  // link_traces/<digest>.csv or ways/<digest>.toml, in the run's folder
  std::string text;
};
using FileCopies = std::map<std::filesystem::path, FileCopy>;  // by where the files lie
/// Reads the files. THROWS: SystemError for one that cannot be read any more.
[[nodiscard]] FileCopies file_copies(const Storage& storage, const Config& config);
/// What a run's config.resolved.toml says: `config`, whose links and net.table name the copies.
[[nodiscard]] std::string resolved_as_kept(const Config& config, const FileCopies& copies);
/// Removes what a run writes, and its folder when nothing else is in it. RETURNS: what else is.
[[nodiscard]] std::vector<std::string> remove_run(Storage& storage,
                                                  const std::filesystem::path& run);

/// Where the run of `options` writes: `out`, or a new folder below runs/.
[[nodiscard]] std::filesystem::path run_folder(const RunDirectoryOptions& options);

/// What making a RunDirectory would refuse. THROWS: as it.
void check_folder(const RunDirectoryOptions& options);

class RunDirectory {
 public:
  /// In the folder that `lock` holds, for as long as this object lives.
  /// THROWS: ConfigError when the folder is not empty and may not be used, SystemError when it
  /// cannot be made.
  RunDirectory(Storage& storage, const RunDirectoryOptions& options, const RunLock& lock);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path checkpoints() const { return path_ / "ckpt"; }

  /// Writes config.toml (the file's bytes), config.resolved.toml, the traces of links and the table
  /// of ways, of which config.resolved.toml names the copies: the folder says what was played,
  /// wherever it lies.
  void write_config(const Config& config);
  /// Digest of the trace that lies there, as `write_config` found it.
  [[nodiscard]] const std::string& trace_digest(const std::filesystem::path& trace) const {
    return digests_.at(trace);
  }
  /// Writes manifest.json atomically; called at the start and at the end.
  void write_manifest(const Manifest& manifest) {
    write_json("manifest.json", manifest_json(manifest));
  }
  /// Writes `json` (an object) to `name` atomically: links.json, summary.json. THROWS: SystemError
  /// when the disk refuses, or the folder is another process's.
  void write_json(const std::string& name, std::string_view json);

  /// Drops from `name` (metrics.jsonl, events.jsonl) what a resume from `step` will write again:
  /// lines with a larger step, the "end" line, a torn last line. Atomic; an absent file is no
  /// error.
  void truncate_after(const std::string& name, std::int64_t step);
  /// Moves checkpoints, metrics and events to a folder of their own in the run's: it begins anew.
  /// RETURNS: that folder, or nothing where there were none.
  std::filesystem::path set_aside();
  /// Opens `name` for appending. Borrows `patience`, which may be null.
  [[nodiscard]] JsonLinesFile open_lines(const std::string& name,
                                         const DiskPatience* patience = nullptr);

 private:
  Storage& storage_;
  const RunLock* lock_;
  std::filesystem::path path_;
  std::map<std::filesystem::path, std::string> digests_;  // of the files copied
};

}  // namespace isthmus::app
