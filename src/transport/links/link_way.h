// SPDX-License-Identifier: Apache-2.0
// Which of two ways the connections dialled to one peer take: to its address, or by way of a third
// member that relays (relayed_links.h). Decides from what was seen, for each direction by itself;
// knows no sockets, so tests can feed it anything.
//
// The other way is tried with one connection beside those that are in use, and taken only once that
// stands, so a peer that is dead costs an attempt and nothing else: when it counts as lost is
// LinkEngine's, and does not wait for this.
#pragma once

#include <optional>

#include "isthmus/types.h"

namespace isthmus {

/// What is known of the connections dialled to a peer.
struct LinkSigns {
  bool joined = false;
  TimePoint answered{};                              // heard last on one of them, or begun
  std::optional<TimePoint> stalled_since = {};       // it is heard, but no values get through
  std::optional<TimePoint> down_since = {};          // joined, and none stands
  std::optional<TimePoint> other_stands_since = {};  // the one that tries the other way
};

class LinkWay {
 public:
  enum class Act {
    kNone,
    kTryOther,    // one connection over the other way
    kTakeOther,   // all over the other way, which is the current one from now on
    kLeaveOther,  // end that one connection
    kDialAnew,    // all over the current way, the detour; that one connection ends
  };
  /// `dead_after`: of the links. The current way is given half of it, so the other way has the
  /// rest.
  explicit LinkWay(Duration dead_after);

  /// Call often; what is returned is done at once, so the next signs are of what follows it.
  [[nodiscard]] Act observe(TimePoint now, const LinkSigns& signs);
  /// The connections are dialled anew, the current way; none tries the other any more.
  void begin() { tries_ = false; }
  [[nodiscard]] bool around() const { return around_; }
  /// The direct way is to be good for so long before it is taken again.
  [[nodiscard]] Duration direct_trial() const { return trial_; }

 private:
  void turn(TimePoint now);

  const Duration patience_, first_trial_;
  bool around_ = false;
  bool tries_ = false;
  std::optional<TimePoint> turned_ = {};    // onto the current way
  std::optional<TimePoint> returned_ = {};  // to the direct way
  Duration trial_;
};

}  // namespace isthmus
