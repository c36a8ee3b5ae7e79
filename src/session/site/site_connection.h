// SPDX-License-Identifier: Apache-2.0
// Connects a site's board to its session: the board sends its notes through the session, and
// receives the session's news.
#pragma once

#include <cstdint>
#include <memory>

#include "session/site/site_session.h"
#include "session/site/site_step_coordinator.h"

namespace isthmus::app {

class StatusBoard;

/// The board of this session's site. Borrows session, log and status, which may be null.
[[nodiscard]] std::unique_ptr<SiteStepCoordinator> make_site_step_coordinator(
    SiteSession& session, const Config& config, std::int64_t total_steps, std::int64_t taken,
    RunLog& log, StatusBoard* status);

/// Passes notes of `session` to `board` while this object lives. Borrows both; null: does nothing.
class SiteConnection {
 public:
  SiteConnection(SiteSession* session, SiteStepCoordinator* board);
  ~SiteConnection();
  SiteConnection(const SiteConnection&) = delete;
  SiteConnection& operator=(const SiteConnection&) = delete;

 private:
  SiteSession* session_;
};

}  // namespace isthmus::app
