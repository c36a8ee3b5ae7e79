// SPDX-License-Identifier: Apache-2.0
// The beginning of a site's session: the sites find one another, exchange greetings, and agree
// where the run starts; or this site finds that the run is already running. Part of SiteSession;
// the task that gathers calls it, except for greetings.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "session/site/session_links.h"
#include "session/site/session_state.h"
#include "session/site/site_start.h"

namespace isthmus::app {

class SiteMeeting {
 public:
  /// Activity of this site while it looks for the others.
  struct Meanwhile {
    std::function<bool()> goes_on;  // whether it still runs: net.gather counts from its end
    std::function<void()> end;      // called once the sites are found; blocks until it has ended
  };
  /// Borrows both. `open_exchange` opens the session's exchange: called once at most, when all
  /// sites are linked, or earlier when site 0 alone is, which may tell that the run is running.
  SiteMeeting(SessionState& all, SessionLinks& links, std::function<void()> open_exchange)
      : all_(all), links_(links), open_exchange_(std::move(open_exchange)) {}

  /// Blocks until all sites have met, or the run is known to be running. RETURNS: whether it is
  /// running. THROWS: as SiteSession::gather.
  [[nodiscard]] bool gather(const std::function<void(const std::string&)>& say,
                            Meanwhile meanwhile);
  /// The running run ended before this site joined it, and the hub begins anew. As gather.
  [[nodiscard]] bool gather_again(const std::function<void(const std::string&)>& say);
  /// After a gather in which all sites met: their common start. THROWS: PeerError when a site has
  /// been lost since, ConfigError as agree_on_start, the links' error if they have failed.
  [[nodiscard]] SiteStart start_together();
  /// When the search for the other sites is given up: net.gather after `gather` began, or after the
  /// Meanwhile ended.
  [[nodiscard]] TimePoint gather_end();

  /// This site's greeting. Any task.
  [[nodiscard]] HelloNote hello() const;
  /// Greets a site unless this process of it was greeted already. Any task.
  void say_hello(WorkerId to);

 private:
  /// Blocks until all are linked, or site 0 has told that the run is running.
  void meet(const std::function<void(const std::string&)>& say);
  /// Blocks until all greetings are here, or the run is known to be running. RETURNS: whether it is
  /// running.
  [[nodiscard]] bool await_words(const std::function<void(const std::string&)>& say);
  void say_hellos();
  /// Under the lock: whether all greetings that a start needs are here.
  [[nodiscard]] bool may_start() const;
  /// Checks the meeting. THROWS: ConfigError as agree_on_start, once all affected sites have this
  /// site's greeting; TryAgainError when site 0 is lost, since this session does not know its next
  /// process.
  void check_meeting();
  [[nodiscard]] std::optional<std::size_t> enough() const;
  /// For people: why the run does not begin yet.
  [[nodiscard]] std::string awaits() const;
  [[nodiscard]] std::vector<WorkerId> awaited() const;
  void tell_start(const SiteStart& start);

  SessionState& all_;
  SessionLinks& links_;
  const std::function<void()> open_exchange_;
  Meanwhile meanwhile_;
  TimePoint gather_end_;
};

}  // namespace isthmus::app
