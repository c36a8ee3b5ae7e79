// SPDX-License-Identifier: Apache-2.0
// The lives of a hub, one after another, over one folder: after each one ends, the next continues
// from the log. For `isthmus hub`, and for a site's process that contains the hub.
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
#include "session/hub/merge_log.h"
#include "session/run/site_arguments.h"

namespace isthmus::app {

class HubSupervisor {
 public:
  struct Options {
    const Config& config;
    SiteArguments links;           // listen, key_file
    std::filesystem::path folder;  // created if missing
    bool resumes = false;          // a run in the log is continued
    bool forgets = false;          // a run in the log is discarded
    Duration wait{0};              // for an earlier process that holds the folder to end
    HubBoard* board = nullptr;     // receives the hub's status
    std::function<bool()> stopped;
    const Wishes& wishes;  // to stop before it serves
  };
  /// Listens. Holds the folder. THROWS: ConfigError for a log with a run when neither resumes nor
  /// forgets is set, and as HubRun; SystemError for unusable files or addresses, or another hub in
  /// the folder.
  explicit HubSupervisor(Options options);

  /// Blocks until all sites have left in order (true), or `stopped` (false): the sites then wait.
  /// THROWS: as HubRun::run; may be called again, and continues from the log.
  [[nodiscard]] bool serve();

 private:
  void begin();
  /// THROWS: Error with exit code 4 once another process has taken over the folder.
  void check_held() const;

  Options options_;
  SystemStorage storage_;
  RunLock lock_;
  SystemRuntime runtime_;
  std::optional<HubKeys> keys_;
  // These two outlive the life:
  std::optional<HubLog> log_;
  std::optional<MergeLog> merges_;
  std::unique_ptr<Relay> relay_;  // between lives
  std::optional<HubRun> life_;
};

}  // namespace isthmus::app
