// SPDX-License-Identifier: Apache-2.0
// How a site's session begins: the sites find one another, say what they bring, and agree where the
// run starts; or this site finds that the run goes on already. Part of SiteSession; the task that
// gathers calls it, but for the greetings.
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
  /// What else this site does while it looks for the others.
  struct Meanwhile {
    std::function<bool()> goes_on;  // net.gather counts from when it does no more
    std::function<void()> end;      // they are found. Blocks
  };
  /// Borrows both. `open_exchange`: opens that of the session.
  SiteMeeting(SessionState& all, SessionLinks& links, std::function<void()> open_exchange)
      : all_(all), links_(links), open_exchange_(std::move(open_exchange)) {}

  /// Blocks until all sites are together, or it is known that the run goes on. RETURNS: whether it
  /// does. THROWS: as SiteSession::gather.
  [[nodiscard]] bool gather(const std::function<void(const std::string&)>& say,
                            Meanwhile meanwhile);
  /// Where the run that gather found is over before it was joined, and the hub begins anew. As
  /// gather.
  [[nodiscard]] bool gather_again(const std::function<void(const std::string&)>& say);
  /// After a gather that found all.
  [[nodiscard]] SiteStart start_together();
  /// Until when the others are looked for, as it stands now.
  [[nodiscard]] TimePoint gather_end();

  /// What this site brings. Any task.
  [[nodiscard]] HelloNote hello() const;
  /// To a site that has not been told, this process, since it came. Any task.
  void say_hello(WorkerId to);

 private:
  /// Blocks until all are linked, or site 0 has said that the run goes on.
  void meet(const std::function<void(const std::string&)>& say);
  /// Blocks until all have said what they bring, or it is known that the run goes on. RETURNS:
  /// whether it does.
  [[nodiscard]] bool await_words(const std::function<void(const std::string&)>& say);
  void say_hellos();
  /// Under the lock: whether all that a start needs has been said.
  [[nodiscard]] bool may_start() const;
  /// While the sites meet. THROWS: ConfigError as agree_on_start, once all who have to hear of it
  /// have been told what this site brings; TryAgainError where site 0 has gone, of whose next
  /// process this session knows nothing.
  void check_meeting();
  [[nodiscard]] std::optional<std::size_t> enough() const;
  /// For people: what keeps the run from beginning.
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
