// SPDX-License-Identifier: Apache-2.0
// Statistics of a recording of frames (transport/wire/frame_record.h): for each peer, frames, bytes
// and queueing times; for each round, its moments and the frames that it waited for, as this member
// saw them. A round ends with DONE from every member, then COMMIT or ABORT from the coordinator.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transport/wire/frame_record.h"

namespace isthmus::app {

/// One direction of a link. "Waited" is time in the queue: out, before a connection takes the
/// frame; in, before the exchange reads it. Zero if connections were not recorded.
struct FramesOfWay {
  std::uint64_t frames = 0;
  std::uint64_t bytes = 0;
  std::uint64_t again = 0;  // retransmitted after a connection broke
  std::set<int> streams;    // connections that carried frames
  double waited_median_s = 0, waited_longest_s = 0;
};
struct FramesOfPeer {
  FramesOfWay out, in;
};

/// Seconds since the recording began; nothing: there was no such frame.
using Moment = std::optional<double>;

/// A round's values from and to one peer.
struct RoundOfPeer {
  Moment first_in, last_in;  // values: contributions, partials and results
  Moment last_out;           // the last own value left (unrecorded: was queued)
  std::uint64_t bytes_in = 0, bytes_out = 0;
};
struct RecordedRound {
  SyncId id;
  std::uint32_t epoch = 0;  // the last membership number of its frames
  Moment begun;             // the own contribution was queued
  Moment done;              // DONE was sent: the whole result was here
  Moment verdict;           // the first COMMIT or ABORT was received or sent
  bool aborted = false;     // the verdict was ABORT
  /// Begun here, without a verdict, and none is expected: the fragment's next round has begun here,
  /// or its earlier rounds had no verdict either, since a later round's verdict covers them.
  bool through = false;
  std::set<std::uint32_t> epochs;         // more than one: the round was restarted
  std::map<std::size_t, RoundOfPeer> of;  // by peer
  double begin_s = 0, end_s = 0;          // of its known frames
  [[nodiscard]] double took_s() const { return end_s - begin_s; }
};

struct FrameReport {
  std::vector<FramesOfPeer> peers;    // by member; the own one is empty
  std::vector<RecordedRound> rounds;  // in order of their begin
  double begin_s = 0, end_s = 0;      // of the records
};

[[nodiscard]] FrameReport report_frames(const std::vector<FrameRecord>& records,
                                        std::size_t members);

/// The causes of the round's duration, for people, with the members' names.
[[nodiscard]] std::string words_of(const RecordedRound& round,
                                   const std::vector<std::string>& names);

/// "contribution", "commit", ...; "queued", "left", ...
[[nodiscard]] std::string_view name_of(FrameKind kind);
[[nodiscard]] std::string_view name_of(FrameEvent event);

}  // namespace isthmus::app
