// SPDX-License-Identifier: Apache-2.0
// A hub's lives, one after another, over one folder: whichever way one ends, the next goes on from
// the log. Of `isthmus hub`, and of a site's process that is the hub as well.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "core/base/storage.h"
#include "core/base/system_runtime.h"
#include "isthmus/config.h"
#include "isthmus/session.h"
#include "record/run_lock.h"
#include "session/hub/hub_keys.h"
#include "session/hub/hub_log.h"
#include "session/hub/hub_run.h"
#include "session/run/site_arguments.h"

namespace isthmus::app {

class HubLives {
 public:
  struct Options {
    const Config& config;
    SiteArguments links;           // listen, key_file
    std::filesystem::path folder;  // made where it is not there
    bool resumes = false;          // a run in the log is gone on with
    bool forgets = false;          // ... or is over, whatever the log says
    Duration wait{0};              // for a former process that holds the folder to end
    HubBoard* board = nullptr;     // is told how it goes
    std::function<bool()> stopped;
    const Wishes& wishes;  // to stop before it serves
  };
  /// Listens. Holds the folder. THROWS: ConfigError for a log of a run that is not to be gone on
  /// with, and as HubRun; SystemError for what cannot be used, another hub in the folder included.
  explicit HubLives(Options options);

  /// Blocks until all sites have left in order (true), or `stopped` (false): then they wait.
  /// THROWS: as HubRun::run; may be called again, and goes on from the log.
  [[nodiscard]] bool serve();

 private:
  void begin();
  /// THROWS: Error with exit code 4 once another process has taken the folder over.
  void check_held() const;

  Options options_;
  SystemStorage storage_;
  RunLock lock_;
  SystemRuntime runtime_;
  std::optional<HubKeys> keys_;
  std::optional<HubLog> log_;     // outlives the life
  std::unique_ptr<Relay> relay_;  // between lives
  std::optional<HubRun> life_;
};

}  // namespace isthmus::app
