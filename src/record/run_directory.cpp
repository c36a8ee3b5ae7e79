// SPDX-License-Identifier: Apache-2.0
#include "record/run_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/base/hash.h"
#include "core/base/json_input.h"
#include "isthmus/errors.h"
#include "record/run_files.h"

namespace isthmus::app {
namespace {

// The files that a run leaves in its folder; nothing else is ever removed. cell.json first: a
// folder that is half removed must not pass for a finished cell. manifest.json last: nor for no
// run.
constexpr std::array<std::string_view, 20> kRunFiles = {"cell.json",
                                                        "config.toml",
                                                        "config.resolved.toml",
                                                        "metrics.jsonl",
                                                        "events.jsonl",
                                                        "links.json",
                                                        "summary.json",
                                                        "live.json",
                                                        "report.html",
                                                        "method.log",
                                                        "cells.jsonl",
                                                        "ckpt",
                                                        "tb",
                                                        kTagsFile,
                                                        kPiecesFile,
                                                        kPiecesTemporaryFile,
                                                        kTracesFolder,
                                                        "ways",  // of earlier versions
                                                        kResultsFile,
                                                        "manifest.json"};

void remove_files(Storage& storage, const std::filesystem::path& run) {
  for (const std::string_view name : kRunFiles) {
    storage.remove_all(run / name);
  }
}

/// The step of a JSON line; none when the line is torn or not JSON.
struct LineFacts {
  bool valid = false;
  bool end = false;
  std::int64_t step = 0;
};
LineFacts facts_of(std::string_view line) {
  LineFacts facts;
  const auto json = read_json(line);
  if (!json.is_object()) {
    return facts;
  }
  facts.valid = true;
  const auto kind = json.find("k");
  facts.end = kind != json.end() && kind->is_string() && *kind == "end";
  // A round belongs to the step that applied it.
  for (const char* key : {"step", "step_apply"}) {
    const auto step = json.find(key);
    if (step != json.end() && step->is_number_integer()) {
      facts.step = std::max(facts.step, step->get<std::int64_t>());
    }
  }
  return facts;
}

// A site that died while it joined has left pieces of a state, and no run. A lock is no run either.
bool is_used(const std::filesystem::path& folder) {
  constexpr std::array<std::string_view, 3> kNoRun = {kPiecesFile, kPiecesTemporaryFile,
                                                      kRunLockFile};
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  while (!error && entry != std::filesystem::directory_iterator() &&
         std::ranges::find(kNoRun, entry->path().filename().string()) != kNoRun.end()) {
    entry.increment(error);
  }
  return !error && entry != std::filesystem::directory_iterator();
}

}  // namespace

void JsonLinesFile::append(const JsonLine& line) {
  append_patiently(*file_, as_bytes(line.str() + "\n"), patience_, "a line of the run", [&] {
    if (lock_ != nullptr) lock_->check();
  });
}

std::filesystem::path run_folder(const RunDirectoryOptions& options) {
  constexpr std::size_t kIdDigits = 6;
  if (!options.out.empty()) return options.out;
  return std::filesystem::path("runs") /
         fmt::format("{}-{}-{}", options.name, utc_stamp(), options.run_id.substr(0, kIdDigits));
}

void check_folder(const RunDirectoryOptions& options) {
  std::error_code error;
  const auto status = std::filesystem::status(options.out, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_directory(status)) {
    throw ConfigError(fmt::format("output folder '{}' is a file; choose another with --out",
                                  options.out.string()));
  }
  if (options.existing == ExistingRun::kRefuse && is_used(options.out)) {
    throw ConfigError(
        fmt::format("output folder '{}' is not empty: --resume goes on with the run in it, --force "
                    "replaces that run, --out names another folder",
                    options.out.string()));
  }
}

std::vector<std::string> remove_run(Storage& storage, const std::filesystem::path& run) {
  std::vector<std::string> left;
  {
    const RunLock lock(run, {.remedy = "wait until it ends, or stop it"});
    remove_files(storage, run);
    left = storage.list(run);
    std::erase(left, kRunLockFile);
  }
  if (storage.list(run).empty()) storage.remove(run);
  return left;
}

RunDirectory::RunDirectory(Storage& storage, const RunDirectoryOptions& options,
                           const RunLock& lock)
    : storage_(storage), lock_(&lock), path_(lock.folder()) {
  check_folder({.out = path_, .existing = options.existing});
  if (is_used(path_) && options.existing == ExistingRun::kForce) {
    remove_files(storage_, path_);
  }
  storage_.create_directories(path_);
  const std::filesystem::path parent = std::filesystem::absolute(path_).parent_path();
  storage_.sync_directory(parent);
}

FileCopies file_copies(const Storage& storage, const Config& config) {
  constexpr std::size_t kDigits = 16;
  FileCopies copies;
  const auto add = [&](const std::filesystem::path& file, std::string_view folder,
                       const char* suffix) {
    if (copies.contains(file)) return;
    FileCopy& copy = copies[file];
    copy.text = read_text(storage, file);
    copy.digest = sha256_hex(as_bytes(copy.text)).substr(0, kDigits);
    copy.name = std::filesystem::path(folder) / (copy.digest + suffix);
  };
  for (const LinkConfig& link : config.links) {
    if (!link.trace.empty()) add(link.trace, kTracesFolder, ".csv");
  }
  return copies;
}

std::string resolved_as_kept(const Config& config, const FileCopies& copies) {
  const auto kept = std::make_unique<Config>(config);  // large
  for (LinkConfig& link : kept->links) {
    if (!link.trace.empty()) link.trace = copies.at(link.trace).name;
  }
  return resolved_toml(*kept);
}

void RunDirectory::write_config(const Config& config) {
  // All are read before one is written: a run that is resumed may be given its own copies.
  const FileCopies copies = file_copies(storage_, config);
  for (const auto& [place, copy] : copies) {
    storage_.create_directories((path_ / copy.name).parent_path());
    write_atomically(storage_, path_ / copy.name, copy.text);
    digests_[place] = copy.digest;
  }
  write_atomically(storage_, path_ / "config.toml", config.text);
  write_atomically(storage_, path_ / "config.resolved.toml", resolved_as_kept(config, copies));
}

void RunDirectory::write_json(const std::string& name, std::string_view json) {
  lock_->check();
  write_atomically(storage_, path_ / name, fmt::format("{}\n", json));
}

void RunDirectory::truncate_after(const std::string& name, std::int64_t step) {
  if (storage_.kind(path_ / name) != FileKind::kFile) {
    return;
  }
  const MappedFile file = storage_.map(path_ / name);
  const std::span<const std::byte> bytes = file.bytes();
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  write_atomically(storage_, path_ / name, [&](WritableFile& kept) {
    // Lines that stay are copied in whole stretches, not one by one.
    std::string_view stretch = rest.substr(0, 0);
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      if (end == std::string_view::npos) {
        break;  // a torn last line
      }
      const std::string_view line = rest.substr(0, end);
      const LineFacts facts = facts_of(line);
      if (facts.valid && !facts.end && facts.step <= step) {
        stretch = std::string_view(stretch.data(), stretch.size() + end + 1);
      } else {
        kept.append(as_bytes(stretch));
        stretch = rest.substr(end + 1, 0);
      }
      rest.remove_prefix(end + 1);
    }
    kept.append(as_bytes(stretch));
  });
}

// The checkpoints go last: until then a run that begins once more finds them, and sets them aside.
std::filesystem::path RunDirectory::set_aside() {
  std::filesystem::path aside;
  for (const char* name : {"metrics.jsonl", "events.jsonl", "ckpt"}) {
    if (storage_.kind(path_ / name) == FileKind::kAbsent) continue;
    if (aside.empty()) {
      int number = 1;
      do {
        aside = path_ / fmt::format("before-{}", number++);
      } while (storage_.kind(aside) != FileKind::kAbsent);
      storage_.create_directories(aside);
    }
    storage_.rename(path_ / name, aside / name);
    storage_.sync_directory(aside);
    storage_.sync_directory(path_);
  }
  return aside;
}

JsonLinesFile RunDirectory::open_lines(const std::string& name, const DiskPatience* patience) {
  return JsonLinesFile(storage_.append(path_ / name), patience, lock_);
}

}  // namespace isthmus::app
