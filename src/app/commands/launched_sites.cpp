// SPDX-License-Identifier: Apache-2.0
#include "app/commands/launched_sites.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/common/child_process.h"
#include "app/common/signals.h"
#include "isthmus/errors.h"
#include "record/wall_clock.h"

namespace isthmus::app {
namespace {

/// After one site has refused, the others notice by themselves; a site that does not is told, then
/// ended.
constexpr double kNoticeS = 30;
constexpr double kLastS = 15;
constexpr double kLongestDelayS = 30;
constexpr int kSignalled = 128;
constexpr int kLastSignal = 64;  // ssh ends with 255 when the program there did not end in order

std::string words_of(int exit_code) {
  const int signal = exit_code - kSignalled;
  return signal > 0 && signal <= kLastSignal ? fmt::format("signal {}", signal)
                                             : fmt::format("exit code {}", exit_code);
}

/// Of a run that has ended in its folder; empty: not to be read.
std::string status_of_run(const std::filesystem::path& folder) {
  std::ifstream file(folder / "manifest.json");
  const auto manifest = nlohmann::json::parse(file, nullptr, false);
  return manifest.is_object() ? manifest.value("status", std::string()) : std::string();
}

class Sites {
 public:
  Sites(std::span<const LaunchedSite> sites, int restarts, Terminal& err)
      : sites_(sites), restarts_(restarts), err_(err), states_(sites.size()) {
    for (const LaunchedSite& site : sites_) {
      widest_ = std::max(widest_, site.name.size());
      children_.emplace_back(site.command, site.network_space);
    }
  }

  std::optional<LaunchFailure> run() {
    while (!std::ranges::all_of(states_, [](const State& state) { return state.over; })) {
      read_lines(children_, 200,
                 [this](std::size_t site, const std::string& line) { say(site, line); });
      pass_on_signal();
      for (std::size_t site = 0; site < sites_.size(); ++site) settle(site);
      end_who_does_not_notice();
    }
    const bool requeue =
        !completed_ && first_to_leave_ && (!first_ || mends_by_restart(first_->exit_code));
    return requeue ? first_to_leave_ : first_;
  }

 private:
  struct State {
    int restarts = 0;
    int short_lives = 0;  // in a row
    double began = monotonic_now();
    std::optional<double> due;  // when it is started again
    bool over = false;          // for good
  };

  void say(std::size_t site, const std::string& line) {
    err_.write(fmt::format("{:<{}} | {}\n", sites_[site].name, widest_, line));
  }

  void tell(ChildProcess::Signal signal, bool hub_too) const {
    for (std::size_t site = 0; site < sites_.size(); ++site) {
      if (sites_[site].hub && !hub_too) continue;
      const bool stops = signal != ChildProcess::Signal::kKill;
      children_[site].send(sites_[site].job && stops ? ChildProcess::Signal::kUser1 : signal);
    }
  }

  void pass_on_signal() {
    const StopWish wish = SignalScope::wish();
    if (wish == StopWish::kNone || told_) return;
    told_ = true;
    ends_ = true;
    tell(wish == StopWish::kRequeue ? ChildProcess::Signal::kTerminate
                                    : ChildProcess::Signal::kInterrupt,
         false);
  }

  /// A program of the user's may end with 0 whatever its run came to: the run's folder knows.
  [[nodiscard]] int code_of(std::size_t site) const {
    const int code = *children_[site].exit_code();
    if (code != 0 || sites_[site].run.empty()) return code;
    const std::string status = status_of_run(sites_[site].run);
    if (status == "interrupted") return static_cast<int>(ExitCode::kInterrupted);
    if (status == "checkpointed") return static_cast<int>(ExitCode::kCheckpointedRequeue);
    return code;
  }

  void settle(std::size_t site) {
    State& state = states_[site];
    if (state.over || !children_[site].exit_code()) return;
    const int code = code_of(site);
    const bool last = !state.due && state.restarts == restarts_;
    const bool needed = is_needed(site);
    if (told_ && state.due && !needed) {
      state.over = true;  // it had ended before; how the others end counts
    } else if ((ends_ && !needed) || last || !mends_by_restart(code, sites_[site].program)) {
      end(site, code);
    } else if (!state.due) {
      ++state.restarts;
      state.short_lives = short_lives(state.short_lives, monotonic_now() - state.began);
      const double delay_s = restart_delay_s(state.short_lives);
      state.due = monotonic_now() + delay_s;
      say(site, fmt::format("ended by {}; starting it again in {:.0f} s (restart {} of {})",
                            words_of(code), delay_s, state.restarts, restarts_));
    } else if (monotonic_now() >= *state.due) {
      state.due.reset();
      state.began = monotonic_now();
      children_[site] = ChildProcess(sites_[site].command_again, sites_[site].network_space);
    }
  }

  /// A hub: sites that are told to stop agree by it.
  [[nodiscard]] bool is_needed(std::size_t site) const {
    if (!sites_[site].hub || stage_ > 0) return false;
    for (std::size_t other = 0; other < sites_.size(); ++other) {
      if (!sites_[other].hub && !states_[other].over) return true;
    }
    return false;
  }

  void end(std::size_t site, int code) {
    states_[site].over = true;
    const bool left = code == static_cast<int>(ExitCode::kCheckpointedRequeue);
    completed_ = completed_ || (code == 0 && !sites_[site].hub);
    std::optional<LaunchFailure>& first = left ? first_to_leave_ : first_;
    if (code != 0 && !first) first = LaunchFailure{sites_[site].name, code};
    if (left && nobody_runs())
      ends_ = true;  // all sites are told to stop: no site comes back alone
    if (left || mends_by_restart(code)) return;  // the others go on without it, or notice in time
    ends_ = true;
    if (code != 0 && !refused_s_) refused_s_ = monotonic_now();
  }

  /// No site is there; some may be about to be started again.
  [[nodiscard]] bool nobody_runs() const {
    for (std::size_t site = 0; site < sites_.size(); ++site) {
      if (!sites_[site].hub && !states_[site].over && !states_[site].due) return false;
    }
    return true;
  }

  void end_who_does_not_notice() {
    if (!refused_s_ || stage_ == 2 || monotonic_now() - *refused_s_ <= kNoticeS + stage_ * kLastS) {
      return;
    }
    tell(stage_ == 0 ? ChildProcess::Signal::kInterrupt : ChildProcess::Signal::kKill, true);
    ++stage_;
  }

  std::span<const LaunchedSite> sites_;
  const int restarts_;
  Terminal& err_;
  std::vector<ChildProcess> children_;  // by site
  std::vector<State> states_;
  std::size_t widest_ = 0;
  bool told_ = false;                // of a signal to this program
  bool ends_ = false;                // no site is restarted
  std::optional<double> refused_s_;  // when a site had ended as no restart mends
  int stage_ = 0;                    // stage of ending the sites that do not notice
  std::optional<LaunchFailure> first_;
  std::optional<LaunchFailure> first_to_leave_;  // no failure where others complete the run
  bool completed_ = false;
};

}  // namespace

bool mends_by_restart(int exit_code, bool program) {
  constexpr int kAnyFailure = 1;
  const bool killed =
      exit_code > kSignalled && exit_code != static_cast<int>(ExitCode::kInterrupted);
  return killed || exit_code == static_cast<int>(ExitCode::kPeer) ||
         (program && exit_code == kAnyFailure);
}

double restart_delay_s(int n) { return std::min(kLongestDelayS, std::exp2(n - 1)); }

int short_lives(int before, double lived_s) { return lived_s < kLongestDelayS ? before + 1 : 1; }

std::optional<LaunchFailure> run_sites(std::span<const LaunchedSite> sites, int restarts,
                                       Terminal& err) {
  const SignalScope signals;
  return Sites(sites, restarts, err).run();
}

}  // namespace isthmus::app
