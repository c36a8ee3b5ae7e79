// SPDX-License-Identifier: Apache-2.0
#include "session/site/state_server.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "core/base/log.h"

namespace isthmus::app {
namespace {

/// The end of a round is not announced: while parts wait for it, the server polls for it.
constexpr Duration kLookForEnd = std::chrono::milliseconds(5);

}  // namespace

StateServer::StateServer(Runtime& runtime, StateSource& source,
                         std::function<void(WorkerId to, const Note&)> send,
                         std::function<bool()> round_open)
    : runtime_(runtime),
      source_(source),
      send_(std::move(send)),
      round_open_(std::move(round_open)),
      queue_(runtime.make_wait_queue()),
      task_(runtime.spawn("state server", [this] { run(); })) {}

StateServer::~StateServer() {
  queue_->update([&] { ends_ = true; });
  task_.reset();
}

void StateServer::wake() {
  queue_->update([&] { woken_ = true; });
}

void StateServer::run() {
  while (true) {
    try {
      while (const auto part = source_.next(runtime_.clock().now(), round_open_())) {
        send_(part->first, part->second);
      }
    } catch (const std::exception& error) {  // the joiner asks other sites, or asks again
      log_warning("the joining site does not get what it asked for: {}", error.what());
      source_.forget_asked();
    }
    const std::optional<TimePoint> due = source_.due();
    const TimePoint now = runtime_.clock().now();
    // A rate opens by itself; the end of a round, or a slot within one, is looked for.
    const TimePoint until = due ? std::min(std::max(*due, now), now + kLookForEnd) : kNever;
    bool ends = false;
    (void)queue_->wait(
        [&] {
          ends = ends_;
          return ends_ || std::exchange(woken_, false);
        },
        until);
    if (ends) return;
  }
}

}  // namespace isthmus::app
