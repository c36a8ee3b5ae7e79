// SPDX-License-Identifier: Apache-2.0
// The choice between two paths to one peer: direct to its address, or a detour over a relaying
// third member (relayed_links.h). Decides from observations, for each direction separately; knows
// no sockets, so tests can feed it anything.
//
// The other path is tried with one extra connection, and taken only once that connection is open,
// so a dead peer costs one attempt. LinkEngine decides when the peer counts as lost, and does not
// wait for this.
#pragma once

#include <optional>

#include "isthmus/types.h"

namespace isthmus {

/// Observations of the connections dialled to a peer.
struct LinkSigns {
  bool joined = false;
  TimePoint answered{};                              // last heard on one of them, or dialled
  std::optional<TimePoint> stalled_since = {};       // the peer is heard, but no values get through
  std::optional<TimePoint> down_since = {};          // joined, and no connection is open
  std::optional<TimePoint> other_stands_since = {};  // the extra connection on the other path
};

class LinkWay {
 public:
  enum class Act {
    kNone,
    kTryOther,    // dial one extra connection on the other path
    kTakeOther,   // move all connections to the other path, now the current one
    kLeaveOther,  // end the extra connection
    kDialAnew,    // redial all on the current path, the detour; end the extra one
  };
  /// `dead_after`: of the links. The current path gets half of that timeout, the other path the
  /// rest.
  explicit LinkWay(Duration dead_after);

  /// Call often; the caller performs the returned act at once, so that the next signs reflect it.
  [[nodiscard]] Act observe(TimePoint now, const LinkSigns& signs);
  /// The connections are redialled on the current path; the extra connection is gone.
  void begin() { tries_ = false; }
  [[nodiscard]] bool around() const { return around_; }
  /// How long the direct path must work before it is taken again.
  [[nodiscard]] Duration direct_trial() const { return trial_; }

 private:
  void turn(TimePoint now);

  const Duration patience_, first_trial_;
  bool around_ = false;
  bool tries_ = false;
  std::optional<TimePoint> turned_ = {};    // to the current path
  std::optional<TimePoint> returned_ = {};  // to the direct path
  Duration trial_;
};

}  // namespace isthmus
