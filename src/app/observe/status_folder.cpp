// SPDX-License-Identifier: Apache-2.0
#include "app/observe/status_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/common/commands.h"
#include "app/observe/run_watch.h"
#include "core/base/json_input.h"
#include "core/base/units.h"
#include "isthmus/config.h"
#include "isthmus/errors.h"
#include "record/json_values.h"
#include "record/wall_clock.h"

namespace isthmus::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using report::kNothing;
using report::list_at;
using report::object_at;
using report::text_at;

/// 0 if absent. NaN if it is there and no number, also for the texts of numbers that are not
/// finite: a damaged loss is unknown, and not a perfect one.
double status_number(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return 0;
  return found->is_number() ? found->get<double>() : kNothing;
}

/// 0 if absent or no integer.
std::int64_t status_integer(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

Json json_in(const Storage& storage, const fs::path& file) {
  return storage.kind(file) == FileKind::kFile ? read_json(read_text(storage, file)) : Json();
}

/// The lines of metrics.jsonl, one after another.
class MetricsReader {
 public:
  explicit MetricsReader(RunStatus& status) : status_(status) {}

  /// Looks at every line, parsing those that are few; of the train lines, some.
  void read(std::string_view text) {
    const auto steps = static_cast<std::size_t>(count_train(text));
    const std::size_t every = std::max<std::size_t>(1, steps / ThinCurve::kMostPoints);
    std::string_view last_train;
    std::size_t seen = 0;
    for_lines(text, [&](std::string_view kind, std::string_view line) {
      if (kind == "train") {
        last_train = line;
        if (seen++ % every == 0) take(line, [this](const Json& json) { point(json); });
      } else if (kind != "worker") {
        take(line, [&](const Json& json) { other(kind, json); });
      }
    });
    take(last_train, [this](const Json& json) { train(json); });
  }

  double first_t = 0;  // of the last session
  double last_t = 0;
  bool ended = false;
  std::string cause;

 private:
  template <typename Visit>
  static void for_lines(std::string_view text, const Visit& visit) {
    constexpr std::string_view kKind = "\"k\":\"";
    constexpr std::size_t kNear = 32;  // MetricsLog writes it first of all
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      if (end == std::string_view::npos) {
        return;  // a torn last line
      }
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(end + 1);
      if (const std::size_t at = line.substr(0, kNear).find(kKind); at != std::string_view::npos) {
        const std::string_view rest = line.substr(at + kKind.size());
        visit(rest.substr(0, rest.find('"')), line);
      }
    }
  }

  static std::int64_t count_train(std::string_view text) {
    std::int64_t count = 0;
    for_lines(text, [&](std::string_view kind, std::string_view) { count += kind == "train"; });
    return count;
  }

  template <typename Use>
  void take(std::string_view line, const Use& use) {
    const Json json = read_json(line);
    if (json.is_object()) {
      last_t = std::max(last_t, status_number(json, "t"));
      use(json);
    }
  }

  void point(const Json& json) {
    status_.loss_curve.emplace_back(status_integer(json, "step"), status_number(json, "loss"));
    status_.speed_curve.emplace_back(status_integer(json, "step"), status_number(json, "tok_s"));
  }

  void train(const Json& json) {
    status_.step = status_integer(json, "step");
    status_.tokens = status_integer(json, "tokens");
    status_.loss = status_number(json, "loss");
    status_.learning_rate = status_number(json, "lr");
    status_.gradient_norm = status_number(json, "grad_norm");
    status_.tokens_per_s = status_number(json, "tok_s");
    if (status_.simulated) status_.simulated_s = status_number(json, "ts");
  }

  void round(const Json& json) {
    FragmentStatus& fragment = status_.fragments[status_integer(json, "frag")];
    ++fragment.rounds;
    fragment.last_step = status_integer(json, "step_apply");
    fragment.members = static_cast<int>(status_integer(json, "members"));
    fragment.payload_bytes += static_cast<std::uint64_t>(status_integer(json, "bytes_payload"));
    fragment.wire_bytes += static_cast<std::uint64_t>(status_integer(json, "bytes_wire"));
    fragment.last_wait_s = status_number(json, "wait_s");
    fragment.wait_s += fragment.last_wait_s;
  }

  void other(std::string_view kind, const Json& json) {
    if (kind == "meta") {
      first_t = status_number(json, "t");
      status_.resumed_after = status_integer(json, "resumed_after");
      status_.members = status_.workers;
      ended = false;
    } else if (kind == "round") {
      round(json);
    } else if (kind == "eval") {
      status_.eval_loss = status_number(json, "loss");
      status_.eval_step = status_integer(json, "step");
      status_.eval_curve.emplace_back(status_.eval_step, *status_.eval_loss);
    } else if (kind == "ckpt") {
      ++status_.checkpoints;
      status_.checkpoint_step = status_integer(json, "step");
      status_.checkpoint_bytes = static_cast<std::uint64_t>(status_integer(json, "bytes"));
      status_.checkpoint_s = status_number(json, "s");
      status_.checkpoint_ago_s = unix_now() - status_number(json, "t");
    } else if (kind == "event") {
      status_.members = static_cast<int>(status_integer(json, "sites"));
    } else if (kind == "end") {
      ended = true;
      cause = text_at(json, "cause");
      if (json.contains("late_rounds")) {
        status_.late = {status_integer(json, "late_rounds"),
                        status_integer(json, "late_steps_skipped")};
      }
    }
  }

  RunStatus& status_;
};

void take_manifest(const Json& manifest, RunStatus& status) {
  status.run_id = text_at(manifest, "run_id");
  status.name = text_at(manifest, "name");
  status.command = text_at(manifest, "command");
  status.method = text_at(manifest, "method");
  status.version = text_at(manifest, "version");
  status.device = text_at(manifest, "device");
  status.state = text_at(manifest, "status");
  status.workers = static_cast<int>(status_integer(manifest, "workers"));
  status.members = status.workers;
  status.simulated = text_at(manifest, "clock") == "virtual";
  status.parameters = status_integer(object_at(manifest, "model"), "parameters");
}

/// Steps and names of the sites, where this build understands the run's configuration.
void take_config(const fs::path& run, RunStatus& status) {
  status.stalled_after_s = in_seconds(LogConfig().stalled_after);
  try {
    const Config config = load_config(run / "config.resolved.toml", {}, schema_context());
    status.steps = total_steps(config);
    status.stalled_after_s = in_seconds(config.log.stalled_after);
    for (const SiteConfig& site : config.sites) status.sites.push_back({.name = site.name});
  } catch (const Error&) {
    status.steps = 0;  // another version's; the rest is told all the same
  }
}

void take_summary(const Json& summary, RunStatus& status) {
  const auto list = [&](const char* key) {
    const Json& found = list_at(summary, key);
    return found.size() == status.sites.size() ? found : Json::array();
  };
  const Json payload = list("bytes_payload");
  const Json wire = list("bytes_wire");
  const auto bytes = [](const Json& json) {
    return json.is_number_unsigned() ? json.get<std::uint64_t>() : std::uint64_t{0};
  };
  for (std::size_t m = 0; m < std::min(payload.size(), wire.size()); ++m) {
    status.sites[m].payload_bytes = bytes(payload[m]);
    status.sites[m].wire_bytes = bytes(wire[m]);
  }
}

void judge(const MetricsReader& metrics, RunStatus& status) {
  const std::string where =
      status.steps > 0
          ? fmt::format("step {} of {}", with_commas(status.step), with_commas(status.steps))
          : fmt::format("step {}", with_commas(status.step));
  if (status.state == "running") {
    status.healthy = status.advanced_s <= status.stalled_after_s;
    status.word =
        status.healthy
            ? fmt::format("{}, written {} ago", where, human_time(status.advanced_s))
            : fmt::format(
                  "nothing written for {}, {} allowed: it was killed, or stands "
                  "still: {}",
                  human_time(status.advanced_s), human_time(status.stalled_after_s), where);
    return;
  }
  status.healthy = status.state != "failed";
  status.word = fmt::format("{}: {}", where, metrics.cause.empty() ? status.state : metrics.cause);
}

}  // namespace

RunStatus folder_status(const Storage& storage, const fs::path& run) {
  const Json manifest = json_in(storage, run / "manifest.json");
  if (!manifest.is_object()) {
    throw ConfigError(
        fmt::format("'{}' is no run's folder: there is no manifest.json", run.string()));
  }
  if (!manifest.contains("method")) {
    throw ConfigError(
        fmt::format("'{}' is a comparison's folder: name one of its runs", run.string()));
  }
  RunStatus status;
  status.directory = run.string();
  take_manifest(manifest, status);
  take_config(run, status);
  MetricsReader metrics(status);
  if (storage.kind(run / "metrics.jsonl") == FileKind::kFile) {
    const MappedFile file = storage.map(run / "metrics.jsonl");
    const std::span<const std::byte> bytes = file.bytes();
    metrics.read({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  if (metrics.ended) {
    if (const Json summary = json_in(storage, run / "summary.json"); summary.is_object()) {
      take_summary(summary, status);
    }
  }
  status.elapsed_s = std::max(0.0, metrics.last_t - metrics.first_t);
  status.advanced_s = std::max(0.0, unix_now() - metrics.last_t);
  const std::int64_t taken = status.step - status.resumed_after;
  if (status.state == "running" && status.steps > status.step && taken > 0) {
    status.eta_s = status.elapsed_s / static_cast<double>(taken) *
                   static_cast<double>(status.steps - status.step);
  }
  judge(metrics, status);
  return status;
}

std::optional<LiveFile> live_file(const Storage& storage, const fs::path& run) {
  const Json json = json_in(storage, run / kLiveFile);
  if (!json.is_object()) {
    return std::nullopt;
  }
  LiveFile file{text_at(json, "url"), text_at(json, "run_id")};
  return file.url.empty() ? std::nullopt : std::optional(file);
}

fs::path find_run(const fs::path& given) {
  const auto is_run = [](const fs::path& folder) {
    std::error_code error;
    return fs::exists(folder / "manifest.json", error);
  };
  const fs::path folder = given.empty() ? fs::path("runs") : given;
  if (is_run(folder)) {
    return folder;
  }
  std::vector<std::pair<fs::file_time_type, fs::path>> runs;
  std::error_code error;
  for (const fs::directory_entry& each : fs::directory_iterator(folder, error)) {
    if (is_run(each.path())) {
      std::error_code no_time;
      runs.emplace_back(fs::last_write_time(each.path() / "manifest.json", no_time), each.path());
    }
  }
  if (runs.empty()) {
    throw ConfigError(
        given.empty()
            ? std::string("no run below runs/: name the run's folder or its URL")
            : fmt::format("'{}' is no run's folder: there is no manifest.json", given.string()));
  }
  std::ranges::sort(runs);
  if (given.empty()) {
    return runs.back().second;
  }
  std::vector<std::string> names;
  for (const auto& [time, path] : runs) names.push_back(path.filename().string());
  std::ranges::sort(names);
  throw ConfigError(fmt::format("'{}' holds {} run{}: name one of {}", given.string(), names.size(),
                                names.size() == 1 ? "" : "s", fmt::join(names, ", ")));
}

}  // namespace isthmus::app
