// SPDX-License-Identifier: Apache-2.0
// Joins the board of a site to the site's session: the board sends its notes through the session,
// and hears what the session hears.
#pragma once

#include <cstdint>
#include <memory>

#include "session/site/site_board.h"
#include "session/site/site_session.h"

namespace isthmus::app {

class StatusBoard;

/// The board of this session's site. Borrows session, log and status, which may be null.
[[nodiscard]] std::unique_ptr<SiteBoard> make_site_board(SiteSession& session, const Config& config,
                                                         std::int64_t total_steps,
                                                         std::int64_t taken, RunLog& log,
                                                         StatusBoard* status);

/// Notes of `session` go to `board` while this lives. Borrows both; null: nothing to do.
class SiteConnection {
 public:
  SiteConnection(SiteSession* session, SiteBoard* board);
  ~SiteConnection();
  SiteConnection(const SiteConnection&) = delete;
  SiteConnection& operator=(const SiteConnection&) = delete;

 private:
  SiteSession* session_;
};

}  // namespace isthmus::app
