// SPDX-License-Identifier: Apache-2.0
// The hub inside a site's process ([hub] site): its own task with its own links and log, so that it
// treats this site like the others. It dies with the process and returns with its next one; the
// others wait for it, as for any hub.
#pragma once

#include <atomic>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>

#include "core/base/system_runtime.h"
#include "isthmus/config.h"
#include "isthmus/errors.h"
#include "isthmus/session.h"
#include "session/hub/hub_supervisor.h"

namespace isthmus::app {

/// The folder of that hub's log: next to the site's run folder.
[[nodiscard]] std::filesystem::path site_hub_folder(const Config& config,
                                                    const std::filesystem::path& out);

class SiteHub {
 public:
  /// A run in the log: is an error, is continued, or is discarded.
  enum class Former { kRefused, kResumed, kForgotten };
  /// Listens, and serves from now on. Borrows `config` and `wishes`. THROWS: as HubSupervisor.
  SiteHub(const Config& config, std::filesystem::path folder, Former former, const Wishes& wishes);
  /// Ends the hub at once: the sites wait for its next process.
  ~SiteHub();
  SiteHub(const SiteHub&) = delete;
  SiteHub& operator=(const SiteHub&) = delete;

  /// THROWS: the error that has ended the hub for good, if there is one.
  void check() const;
  /// This site has ended its part. Blocks until all sites have, or until a wish to stop. RETURNS:
  /// kOk when they have, else the wish's code. THROWS: as check.
  [[nodiscard]] ExitCode serve_to_the_end(const std::string& site);

 private:
  void serve();

  const Wishes& wishes_;
  std::atomic<bool> stopped_{false};
  SystemRuntime runtime_;
  HubSupervisor lives_;
  std::unique_ptr<WaitQueue> queue_;
  // Under queue_'s lock:
  bool over_ = false;           // all have left, or it has failed or was stopped
  std::exception_ptr failure_;  // that ended it for good
  std::unique_ptr<Task> task_;
};

}  // namespace isthmus::app
