// SPDX-License-Identifier: Apache-2.0
#include "session/run/signals.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

// SIGHUP: the terminal or ssh connection is gone.
constexpr std::array<int, 5> kSignals = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP};
std::atomic<int> g_wish{static_cast<int>(StopWish::kNone)};
std::atomic<bool> g_leave{false};    // not seen yet
std::atomic<bool> g_leaving{false};  // not refused
std::array<struct sigaction, kSignals.size()> g_previous;

void on_signal(int number) {
  if (number == SIGUSR2) {
    g_leave = true;
    g_leaving = true;
    return;
  }
  if (number != SIGINT) {
    int none = static_cast<int>(StopWish::kNone);
    g_wish.compare_exchange_strong(none, static_cast<int>(StopWish::kRequeue));
    return;
  }
  constexpr int kInterrupted = static_cast<int>(ExitCode::kInterrupted);
  if (g_wish.exchange(static_cast<int>(StopWish::kInterrupt)) ==
      static_cast<int>(StopWish::kInterrupt)) {
    constexpr char kText[] = "\nstopped at once; the last finished checkpoint is intact\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
    ::_exit(kInterrupted);
  }
}

}  // namespace

SignalScope::SignalScope() {
  g_wish = static_cast<int>(StopWish::kNone);
  g_leave = false;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &g_previous[i]);
    if (kSignals[i] != SIGHUP || g_previous[i].sa_handler != SIG_IGN) {  // nohup ignores it
      ::sigaction(kSignals[i], &action, nullptr);
    }
  }
}

SignalScope::~SignalScope() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &g_previous[i], nullptr);
  }
}

StopWish SignalScope::wish() { return static_cast<StopWish>(g_wish.load()); }

bool SignalScope::take_leave() { return g_leave.exchange(false); }

bool SignalScope::leaving() { return g_leaving; }

void SignalScope::refuse_leave() { g_leaving = false; }

void stop_at_signal() {
  if (const StopWish wish = SignalScope::wish(); wish != StopWish::kNone) {
    throw Error(exit_code_of(wish), "stopped by a signal; nothing has been written");
  }
}

}  // namespace isthmus::app
