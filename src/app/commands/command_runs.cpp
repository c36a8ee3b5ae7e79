// SPDX-License-Identifier: Apache-2.0
// `runs`: the runs below a folder, their tags, and taking them away. Their folders are the truth;
// there is no index that could differ from them.
#include "app/commands/command_runs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/commands/inspect.h"
#include "app/common/text_table.h"
#include "app/observe/status_folder.h"
#include "core/base/json_input.h"
#include "core/base/units.h"
#include "isthmus/errors.h"
#include "record/json_line.h"
#include "record/run_directory.h"

namespace isthmus::app {
namespace {

namespace fs = std::filesystem;

constexpr int kDepth = 3;  // runs/NAME, runs/NAME/SITE, runs/COMPARISON/VARIANT/seed-K
constexpr std::size_t kLongestTag = 64;

bool is_run(const Storage& storage, const fs::path& folder) {
  return storage.kind(folder / "manifest.json") == FileKind::kFile;
}

void runs_below(const Storage& storage, const fs::path& folder, int depth,
                std::vector<fs::path>& runs) {
  if (is_run(storage, folder)) {
    runs.push_back(folder);
    return;
  }
  if (depth == 0) return;
  for (const std::string& name : storage.list(folder)) {
    if (storage.kind(folder / name) == FileKind::kDirectory) {
      runs_below(storage, folder / name, depth - 1, runs);
    }
  }
}

/// In order. THROWS: ConfigError when they cannot be read.
std::vector<std::string> tags_of(const Storage& storage, const fs::path& run) {
  const fs::path file = run / kTagsFile;
  if (storage.kind(file) != FileKind::kFile) {
    return {};
  }
  const auto json = read_json(read_text(storage, file));
  std::vector<std::string> tags;
  for (const auto& each : json) {
    if (each.is_string()) tags.push_back(each.get<std::string>());
  }
  if (!json.is_array() || tags.size() != json.size()) {
    throw ConfigError(
        fmt::format("{}: must be a JSON list of texts; remove it, or put it right", file.string()));
  }
  return tags;
}

void check_tag(const std::string& tag) {
  const bool plain = std::ranges::all_of(tag, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._+-=/").find(c) != std::string_view::npos;
  });
  if (tag.empty() || tag.size() > kLongestTag || !plain) {
    throw UsageError(fmt::format("tag '{}': must be of 1 to {} letters, digits and . _ + - = /",
                                 tag, kLongestTag));
  }
}

struct RunRow {
  fs::path run;
  std::vector<std::string> tags;
  RunStatus status;
  std::string word;  // in the place of the status, where there is none
};

/// A folder that cannot be understood is a row that says why, not the end of the list.
RunRow look(const Storage& storage, const fs::path& run) {
  RunRow row;
  row.run = run;
  try {
    row.tags = tags_of(storage, run);
    row.status = folder_status(storage, run);
  } catch (const Error& error) {
    row.word = storage.kind(run / "cells.jsonl") == FileKind::kFile ? "comparison" : error.what();
  }
  return row;
}

std::string row_json(const RunRow& row) {
  JsonLine line;
  line.add("run", row.run.string()).add("tags", row.tags);
  if (row.word.empty()) {
    const RunStatus& status = row.status;
    line.add("id", status.run_id)
        .add("name", status.name)
        .add("state", status.state)
        .add("healthy", status.healthy)
        .add("method", status.method)
        .add("workers", status.workers)
        .add("step", status.step)
        .add("steps", status.steps);
    if (status.eval_loss) line.add("eval_loss", *status.eval_loss);
  } else {
    line.add("word", row.word);
  }
  return line.str();
}

/// RUN of the command line, which must be a run's folder.
void require_run(const Storage& storage, const fs::path& run) {
  if (!is_run(storage, run)) {
    throw ConfigError(
        fmt::format("'{}' is no run's folder: there is no manifest.json", run.string()));
  }
}

}  // namespace

int command_runs_list(const RunsArguments& arguments, Session& session) {
  const SystemStorage storage;
  if (storage.kind(arguments.folder) != FileKind::kDirectory) {
    throw ConfigError(fmt::format("'{}' is no folder: name the one that holds the runs",
                                  arguments.folder.string()));
  }
  std::vector<fs::path> runs;
  runs_below(storage, arguments.folder, kDepth, runs);
  std::ranges::sort(runs);
  TextTable table({"run", "state", "method", "workers", "step", "of", "eval loss", "tags"});
  std::size_t shown = 0;
  for (const fs::path& run : runs) {
    const RunRow row = look(storage, run);
    const bool wanted = std::ranges::all_of(arguments.tags, [&](const std::string& tag) {
      return std::ranges::find(row.tags, tag) != row.tags.end();
    });
    if (!wanted) continue;
    ++shown;
    if (session.json) {
      session.out.write(row_json(row) + "\n");
      continue;
    }
    const std::string name = run.lexically_relative(arguments.folder).string();
    const std::string tags = fmt::format("{}", fmt::join(row.tags, " "));
    if (!row.word.empty()) {
      table.add({name, row.word, "", "", "", "", "", tags});
      continue;
    }
    const RunStatus& status = row.status;
    table.add({name, status.healthy ? status.state : status.state + ", not well", status.method,
               fmt::format("{}", status.workers), with_commas(status.step),
               status.steps > 0 ? with_commas(status.steps) : "",
               status.eval_loss ? fmt::format("{:.4f}", *status.eval_loss) : "", tags});
  }
  if (!session.json) {
    session.out.write(shown > 0 ? table.text(session.out)
                                : fmt::format("no run below {}{}\n", arguments.folder.string(),
                                              arguments.tags.empty() ? "" : " has these tags"));
  }
  return 0;
}

int command_runs_show(const RunsArguments& arguments, Session& session) {
  const SystemStorage storage;
  require_run(storage, arguments.runs.front());
  return inspect_folder(storage, arguments.runs.front(), false, session);
}

int command_runs_remove(const RunsArguments& arguments, Session& session) {
  SystemStorage storage;
  for (const fs::path& run : arguments.runs) {  // all are looked at before any is touched
    require_run(storage, run);
    if (const std::optional<FolderOwner> owner = living_owner(run, kRunLockFile)) {
      throw SystemError(fmt::format("'{}' is in use: {}; wait until it ends, or stop it",
                                    run.string(), owner_text(*owner)));
    }
    const RunStatus status = folder_status(storage, run);
    if (status.state == "running" && !arguments.force) {
      throw ConfigError(
          fmt::format("'{}' goes on, or was killed ({}): stop it first; if no process "
                      "of it is left, say --force",
                      run.string(), status.word));
    }
  }
  for (const fs::path& run : arguments.runs) {
    const std::vector<std::string> left = remove_run(storage, run);
    if (!session.quiet) {
      session.err.write(left.empty() ? fmt::format("removed {}\n", run.string())
                                     : fmt::format("removed the run in {}; what is no run's stays: "
                                                   "{}\n",
                                                   run.string(), fmt::join(left, ", ")));
    }
  }
  return 0;
}

int command_runs_tag(const RunsArguments& arguments, Session& session) {
  SystemStorage storage;
  const fs::path& run = arguments.runs.front();
  require_run(storage, run);
  std::vector<std::string> tags = tags_of(storage, run);
  for (const std::string& tag : arguments.unwanted) {
    if (std::erase(tags, tag) == 0) {
      throw UsageError(
          fmt::format("'{}' has no tag '{}'; it has {}", run.string(), tag,
                      tags.empty() ? "none" : fmt::format("{}", fmt::join(tags, " "))));
    }
  }
  for (const std::string& tag : arguments.tags) {
    check_tag(tag);
    if (std::ranges::find(tags, tag) == tags.end()) tags.push_back(tag);
  }
  write_atomically(storage, run / kTagsFile, nlohmann::json(tags).dump() + "\n");
  if (session.json) {
    session.answer(JsonLine().add("run", run.string()).add("tags", tags));
  } else {
    session.out.write(fmt::format("{}: {}\n", run.string(), fmt::join(tags, " ")));
  }
  return 0;
}

}  // namespace isthmus::app
