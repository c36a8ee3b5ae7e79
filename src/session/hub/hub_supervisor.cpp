// SPDX-License-Identifier: Apache-2.0
#include "session/hub/hub_supervisor.h"

#include <fmt/format.h>

#include <utility>

#include "core/base/log.h"
#include "isthmus/errors.h"
#include "session/run/run_settings.h"
#include "session/run/wishes.h"

namespace isthmus::app {

HubSupervisor::HubSupervisor(Options options)
    : options_(std::move(options)),
      lock_(options_.folder, {.file = kHubLockFile,
                              .remedy = "end that hub first, or give another --out",
                              .wait = options_.wait,
                              .stop = [&wishes = options_.wishes] { check_stop(wishes); }}) {
  if (!options_.config.hub.key.empty()) {
    keys_.emplace(storage_, runtime_, options_.config, options_.folder);
  }
  begin();
}

// No time mends it, so it is no SystemError, which a hub beside a site tries again after.
void HubSupervisor::check_held() const {
  if (!lock_.is_lost()) return;
  try {
    lock_.check();
  } catch (const SystemError& error) {
    throw Error(ExitCode::kEnvironment, error.what());
  }
}

void HubSupervisor::begin() {
  check_held();
  const Config& config = options_.config;
  life_.reset();
  log_.emplace(storage_, options_.folder);
  if (log_->contents().session && std::exchange(options_.forgets, false)) {
    log_->end();
    log_.emplace(storage_, options_.folder);
  }
  if (log_->contents().session && !options_.resumes) {
    throw ConfigError(fmt::format(
        "{} holds the log of run {}: go on with it by --resume auto, or give another --out",
        (options_.folder / "hub.log").string(), log_->contents().session->run_id));
  }
  if (goes_by_arrival(config)) {
    const std::optional<HubLogContents::Session>& session = log_->contents().session;
    merges_.emplace(storage_, options_.folder, session ? session->id : std::string());
  }
  log_info("hub of {} sites at {}, log in {}", config.workers(), config.hub.address,
           options_.folder.string());
  life_.emplace(HubRun::Options{.config = config,
                                .links = options_.links,
                                .keys = keys_ ? &*keys_ : nullptr,
                                .board = options_.board,
                                .merges = merges_ ? &*merges_ : nullptr,
                                .stopped =
                                    [this] {
                                      check_held();
                                      return options_.stopped();
                                    },
                                .runtime = runtime_,
                                .relay = std::move(relay_)},
                *log_);
  options_.resumes = true;
}

bool HubSupervisor::serve() {
  while (true) {
    if (!life_) begin();
    std::optional<HubRun::End> end;
    try {
      end = life_->run();
    } catch (...) {
      life_.reset();
      throw;
    }
    if (*end == HubRun::End::kAnew) relay_ = life_->take_relay();
    if (relay_ != nullptr && relay_->gone()) relay_.reset();  // the next life has another
    life_.reset();
    if (*end == HubRun::End::kAllLeft) log_info("all sites have left in order");
    if (*end != HubRun::End::kAnew) return *end == HubRun::End::kAllLeft;
  }
}

}  // namespace isthmus::app
