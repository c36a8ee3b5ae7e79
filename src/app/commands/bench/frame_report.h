// SPDX-License-Identifier: Apache-2.0
// What a recording of frames says (transport/wire/frame_record.h): of each peer, how much went and
// came and how long frames waited; of each round, what it waited for, as this member saw it. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transport/wire/frame_record.h"

namespace isthmus::app {

/// One way of a link. "Waited": out, from the exchange until a connection took it; in, from a
/// connection until the exchange took it. Only where connections have been recorded.
struct FramesOfWay {
  std::uint64_t frames = 0;
  std::uint64_t bytes = 0;
  std::uint64_t again = 0;  // over a connection once more, since one broke
  std::set<int> streams;    // connections that carried any
  double waited_median_s = 0, waited_longest_s = 0;
};
struct FramesOfPeer {
  FramesOfWay out, in;
};

/// Seconds since the recording began; none: there was no such frame.
using Moment = std::optional<double>;

/// What a round got from a peer and gave to it.
struct RoundOfPeer {
  Moment first_in, last_in;  // values: contributions, partials and results
  Moment last_out;           // the last of the own values left, or was handed to the links
  std::uint64_t bytes_in = 0, bytes_out = 0;
};
struct RecordedRound {
  SyncId id;
  std::uint32_t epoch = 0;  // the last one
  Moment begun;             // the own contribution was handed to the links
  Moment done;              // its whole result was here: DONE was said
  Moment verdict;           // the first COMMIT or ABORT came, or went out
  bool aborted = false;     // that was ABORT
  /// It has no verdict and waits for none: its fragment's next round began here, or those before
  /// it had none either (a later round's stands for theirs).
  bool through = false;
  std::set<std::uint32_t> epochs;         // more than one: it began again
  std::map<std::size_t, RoundOfPeer> of;  // by peer
  double begin_s = 0, end_s = 0;          // of what is known of it
  [[nodiscard]] double took_s() const { return end_s - begin_s; }
};

struct FrameReport {
  std::vector<FramesOfPeer> peers;    // by member; the own one is empty
  std::vector<RecordedRound> rounds;  // in order of their begin
  double begin_s = 0, end_s = 0;      // of the records
};

[[nodiscard]] FrameReport report_frames(const std::vector<FrameRecord>& records,
                                        std::size_t members);

/// What took the time: for people, with the members' names.
[[nodiscard]] std::string words_of(const RecordedRound& round,
                                   const std::vector<std::string>& names);

/// "contribution", "commit", ...; "queued", "left", ...
[[nodiscard]] std::string_view name_of(FrameKind kind);
[[nodiscard]] std::string_view name_of(FrameEvent event);

}  // namespace isthmus::app
