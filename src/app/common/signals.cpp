// SPDX-License-Identifier: Apache-2.0
#include "app/common/signals.h"

#include <signal.h>
#include <unistd.h>

#include <array>

#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

// SIGHUP: the terminal or ssh connection is gone.
constexpr std::array<int, 5> kSignals = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP};
Wishes g_wishes;
std::array<struct sigaction, kSignals.size()> g_previous;

void on_signal(int number) {
  if (number == SIGUSR2) {
    g_wishes.leave();
    return;
  }
  if (number != SIGINT) {
    g_wishes.requeue();
    return;
  }
  if (g_wishes.interrupt() == StopWish::kInterrupt) {
    constexpr char kText[] = "\nstopped at once; the last finished checkpoint is intact\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
    ::_exit(static_cast<int>(ExitCode::kInterrupted));
  }
}

}  // namespace

SignalScope::SignalScope() {
  g_wishes.forget();
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

Wishes& SignalScope::wishes() { return g_wishes; }

}  // namespace isthmus::app
