// SPDX-License-Identifier: Apache-2.0
#include "app/compare/cell_program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <string_view>
#include <utility>

#include "app/common/child_process.h"
#include "app/common/signals.h"
#include "app/train/comparison_retimer.h"
#include "core/base/hash.h"
#include "core/base/json_input.h"
#include "isthmus/errors.h"
#include "record/json_values.h"
#include "report/data/run_data.h"
#include "session/run/config_difference.h"
#include "session/run/diverged.h"
#include "session/run/run_settings.h"
#include "session/run_checks.h"

namespace isthmus::app {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr int kLookMs = 500;                             // for a signal, and how far the run is
constexpr std::uintmax_t kLargestScript = 64ULL << 20U;  // larger files are data or programs
constexpr std::size_t kLastLines = 3;                    // of a program that failed

/// The words of a command, as far as quotes are around whole words.
Words words_of(const std::string& command) {
  Words words;
  std::string word;
  char quote = 0;
  for (const char c : command + " ") {
    if (quote != 0) {
      c == quote ? static_cast<void>(quote = 0) : word.push_back(c);
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (std::string_view(" \t\n;|&()<>").find(c) == std::string_view::npos) {
      word.push_back(c);
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  return words;
}

/// The newest step in the lines of a run, read as they come.
class StepsSoFar {
 public:
  explicit StepsSoFar(fs::path file) : file_(std::move(file)) {}
  [[nodiscard]] std::int64_t newest() {
    std::ifstream in(file_, std::ios::binary);
    in.seekg(read_);
    for (std::string line; std::getline(in, line) && !in.eof();) {
      read_ += static_cast<std::streamoff>(line.size()) + 1;
      const auto json = read_json(line);
      if (!json.is_object()) continue;
      const auto step = json.find("step");
      if (step != json.end() && step->is_number_integer()) {
        step_ = std::max(step_, step->get<std::int64_t>());
      }
    }
    return step_;
  }

 private:
  fs::path file_;
  std::streamoff read_ = 0;
  std::int64_t step_ = 0;
};

/// One start of the program for one cell.
class ProgramRun {
 public:
  explicit ProgramRun(const ProgramCell& cell)
      : cell_(cell), folder_(fs::absolute(cell.folder)), run_(folder_of_run()) {}

  bool run(report::CellResult& result) {
    prepare();
    const int exit_code = wait();
    report::RunData found;
    report::read_manifest(run_ / "manifest.json", found);
    report::read_metrics(run_ / "metrics.jsonl", found);
    const std::string status = word(found, "status");
    if (told_ && status != "ok") return false;
    if (const std::string cause = why_diverged(); !cause.empty()) {
      result.status = report::CellStatus::kFailed;
      result.cause = cause;
      return true;
    }
    if (exit_code != 0) {
      fail(exit_code > kSignalled ? fmt::format("was ended by signal {}", exit_code - kSignalled)
                                  : fmt::format("ended with exit code {}", exit_code),
           " and a cell needs a whole run");
    }
    report::read_summary(run_ / "summary.json", found);
    check(found, status);
    take(found, result);
    const auto summary = read_json(read_text(storage_, run_ / "summary.json"));
    result.parameters = report::integer_at(summary, "parameters", 0);
    if (!cell_.checkpoint) remove_checkpoints();
    return true;
  }

  /// The run's folder, of the first site where each site has its own.
  [[nodiscard]] fs::path folder_of_run() const {
    return cell_.program.each_site ? folder_ / cell_.config.sites.front().name : folder_;
  }

 private:
  static constexpr int kSignalled = 128;

  void prepare() {
    storage_.create_directories(folder_);
    // For an unfinished cell: files that the program does not write must not pass for its run.
    for (const fs::path& site : folders()) {
      for (const char* name : {"manifest.json", "metrics.jsonl", "summary.json", "cell.json"}) {
        storage_.remove_all(site / name);
      }
    }
    write_atomically(storage_, config_beside(folder_), cell_.config.text);
  }

  [[nodiscard]] std::vector<fs::path> folders() const {
    if (!cell_.program.each_site) return {folder_};
    std::vector<fs::path> all;
    for (const SiteConfig& site : cell_.config.sites) all.push_back(folder_ / site.name);
    return all;
  }

  [[nodiscard]] Words command() const {
    const std::string file = config_beside(folder_).string();
    Words words = {"env"};
    for (const char* name :
         {"ISTHMUS_SITE", "ISTHMUS_RESUME", "ISTHMUS_FORCE", "ISTHMUS_OVERRIDES", "ISTHMUS_CHANGES",
          "ISTHMUS_ADDRESSES", "ISTHMUS_LINKS", "ISTHMUS_CELL", "ISTHMUS_OUT"}) {
      words.insert(words.end(), {"-u", name});
    }
    words.push_back("ISTHMUS_CONFIG=" + file);
    if (std::getenv("OMP_NUM_THREADS") == nullptr) {
      words.push_back(fmt::format("OMP_NUM_THREADS={}", cell_.threads));
    }
    if (cell_.program.each_site) {
      words.insert(words.end(), {own_program(), "launch", file, "--program", cell_.program.command,
                                 "--out", folder_.string(), "--force", "--progress", "none",
                                 // All sites are on this machine.
                                 "--set", "net.plaintext=true"});
      return words;
    }
    words.insert(words.end(),
                 {"ISTHMUS_LAUNCHED=1", "ISTHMUS_OUT=" + folder_.string(),
                  fmt::format("ISTHMUS_CELL={}", cell_.simulated ? "simulated" : "real"), "sh",
                  "-c", cell_.program.command});
    return words;
  }

  /// RETURNS: the program's exit code, 128 + N for signal N.
  int wait() {
    std::ofstream log(log_beside(folder_), std::ios::binary);
    StepsSoFar steps(run_ / "metrics.jsonl");
    std::vector<ChildProcess> child;
    child.emplace_back(command());
    while (!child.front().exit_code()) {
      read_lines(child, kLookMs, [&](std::size_t, const std::string& line) {
        log << line << '\n' << std::flush;
        if (line.find_first_not_of(" \t") == std::string::npos) return;
        last_.push_back(line);
        if (last_.size() > kLastLines) last_.pop_front();
      });
      if (const StopWish wish = SignalScope::wish(); wish != StopWish::kNone && !told_) {
        told_ = true;
        child.front().send(wish == StopWish::kRequeue ? ChildProcess::Signal::kTerminate
                                                      : ChildProcess::Signal::kInterrupt);
      }
      cell_.on_step(steps.newest());
    }
    return *child.front().exit_code();
  }

  static std::string word(const report::RunData& run, const char* key) {
    const auto found = run.manifest.words.find(key);
    return found == run.manifest.words.end() ? std::string() : found->second;
  }

  /// Of the site that found it; empty: the run has not diverged.
  [[nodiscard]] std::string why_diverged() const {
    for (const fs::path& site : folders()) {
      std::ifstream in(site / "metrics.jsonl", std::ios::binary);
      for (std::string line; std::getline(in, line);) {
        if (line.find("\"end\"") == std::string::npos) continue;
        const auto json = read_json(line);
        const std::string cause = report::text_at(json, "cause");
        if (report::text_at(json, "k") == "end" && has_diverged(cause)) return cause;
      }
    }
    return "";
  }

  [[noreturn]] void fail(const std::string& what, const std::string& remedy) const {
    std::string said;
    for (const std::string& line : last_)
      said += fmt::format("{}{}", said.empty() ? "" : " / ", line);
    throw RunError(fmt::format("'{}' {},{}; its output is in {}{}{}", cell_.program.command, what,
                               remedy, log_beside(cell_.folder).string(),
                               said.empty() ? "" : ", and ends: ", said));
  }

  void check(const report::RunData& run, const std::string& status) const {
    const std::string place = run_.string();
    if (status.empty()) {
      fail(fmt::format("has left no run in '{}'", place),
           cell_.program.each_site ? " the program has to call isthmus.join"
                                   : " the program has to call isthmus.run or isthmus.simulate");
    }
    if (status != "ok") {
      fail(fmt::format("has left a run with status \"{}\" in '{}'", status, place),
           " and a cell needs a whole run");
    }
    const std::int64_t steps = total_steps(cell_.config);
    if (run.summary.steps != static_cast<double>(steps)) {
      fail(fmt::format("has trained {} steps in '{}', the comparison's file says {}",
                       run.summary.steps, place, steps),
           " train.steps is for the file to say");
    }
    if (run.manifest.simulated.value_or(false) != cell_.simulated) {
      fail(fmt::format("has run {} in '{}'",
                       cell_.simulated ? "on the real clock" : "in virtual time", place),
           cell_.simulated ? " and the file has links: let isthmus.simulate run the body"
                           : " and the file has no links: leave isthmus.simulate out");
    }
    const Config trained = config_of_run(run_);
    if (outcome_digest(trained) != outcome_digest(cell_.config)) {
      const auto unlike = config_differences(resolved_toml(trained), resolved_toml(cell_.config));
      fail(fmt::format("has trained another configuration in '{}' ({})", place,
                       unlike.empty() ? "another program" : unlike.front()),
           " keys are for the comparison's file to say: leave `overrides` and `link` out");
    }
    if (run.evals.empty()) {
      fail(fmt::format("has evaluated nothing in '{}'", place),
           " and losses of the outer parameters are what is compared: give `evaluate` and "
           "`evaluation_parts`");
    }
  }

  void remove_checkpoints() {
    for (const fs::path& site : folders()) storage_.remove_all(site / "ckpt");
  }

  static void take(const report::RunData& run, report::CellResult& result) {
    result.steps = static_cast<std::int64_t>(run.summary.steps);
    result.tokens = static_cast<std::int64_t>(run.summary.tokens);
    result.wall_s = run.summary.wall_s;
    result.utilisation = run.summary.compute_utilisation;
    for (const report::EvalPoint& eval : run.evals) {
      result.evals.push_back({.step = eval.step,
                              .loss = eval.loss,
                              .clock_s = eval.simulated_s,
                              .payload_bytes = eval.payload_bytes,
                              .wire_bytes = eval.wire_bytes});
    }
  }

  const ProgramCell& cell_;
  const fs::path folder_;
  const fs::path run_;
  SystemStorage storage_;
  std::deque<std::string> last_;  // lines of its output
  bool told_ = false;             // to stop
};

}  // namespace

void check_program(const CellProgram& program, const Config& config, bool simulated,
                   const std::string& variant) {
  const auto refuse = [&](const std::string& key, const std::string& why) {
    throw ConfigError(
        fmt::format("variant '{}': {} together with --program: {}", variant, key, why));
  };
  for (const SiteConfig& site : config.sites) {
    if (site.tp * site.pp * site.dp > 1) {
      refuse(fmt::format("{} of site {}",
                         site.tp > 1   ? fmt::format("tp = {}", site.tp)
                         : site.pp > 1 ? fmt::format("pp = {}", site.pp)
                                       : fmt::format("dp = {}", site.dp),
                         site.name),
             "ranks of a site are the built-in trainer's; leave it out");
    }
  }
  if (takes_adam_moments(config) || forward_only(config)) {
    refuse(fmt::format("outer.method = \"{}\"", config.method),
           "the method takes the inner update over, which only the built-in trainer lets it");
  }
  if (!config.train.offload.empty()) {
    refuse("train.offload", "it is the built-in trainer's; leave it out");
  }
  if (program.each_site && simulated) {
    refuse("[[link]]",
           "--each-site starts a process for each site, and a simulation has all of them in one; "
           "leave out --each-site, or the links");
  }
  check_run(config, {.simulated = simulated, .emulated = false, .site = std::nullopt});
}

std::vector<std::string> keys_of_own_trainer(const Config& config) {
  constexpr std::array<std::string_view, 6> kOwn = {"train.kernels",   "train.attention",
                                                    "train.precision", "train.recompute",
                                                    "train.device",    "train.pin"};
  std::vector<std::string> given;
  for (const std::string_view key : kOwn) {
    if (!by_default(config, std::string(key))) given.emplace_back(key);
  }
  return given;
}

std::string program_digest(const Storage& storage, const CellProgram& program) {
  std::string text =
      fmt::format("program {}{}", program.each_site ? "at each site " : "", program.command);
  for (const std::string& word : words_of(program.command)) {
    std::error_code error;
    if (!fs::is_regular_file(word, error) || fs::file_size(word, error) > kLargestScript) continue;
    text += fmt::format(" {}", sha256_hex(storage.read(word)));
  }
  return text;
}

bool run_program_cell(const ProgramCell& cell, report::CellResult& result) {
  ProgramRun run(cell);
  if (!run.run(result)) return false;
  if (cell.program.each_site) {
    result.directory = fmt::format("{}/{}", result.directory, cell.config.sites.front().name);
  }
  return true;
}

fs::path config_beside(const fs::path& folder) { return folder.string() + ".toml"; }
fs::path log_beside(const fs::path& folder) { return folder.string() + ".log"; }

}  // namespace isthmus::app
