// SPDX-License-Identifier: Apache-2.0
// What is known of a run at one moment: what /status.json, /metrics, the live page and `isthmus
// status` show. Filled by a StatusBoard while the run goes on, or from its folder. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace isthmus::app {

/// A curve of at most kMostPoints points: when it is full, neighbours become their mean.
class ThinCurve {
 public:
  static constexpr std::size_t kMostPoints = 400;  // even
  using Point = std::pair<std::int64_t, double>;   // (step, mean value up to it)

  void add(std::int64_t step, double value);
  /// The last one holds what a whole point is not yet made of.
  [[nodiscard]] std::vector<Point> points() const;

 private:
  std::vector<Point> points_;
  std::int64_t per_point_ = 1;
  std::int64_t unfinished_ = 0;  // values since the last point
  double sum_ = 0;               // of these
  std::int64_t last_step_ = 0;
};

/// Rounds of one fragment. Bytes are those of the first worker, waits those of this process's
/// first.
struct FragmentStatus {
  std::int64_t rounds = 0;
  std::int64_t last_step = 0;  // at which the last one was applied
  int members = 0;             // of the last one
  std::uint64_t payload_bytes = 0;
  std::uint64_t wire_bytes = 0;
  double wait_s = 0;
  double last_wait_s = 0;
};

struct WorkerStatus {
  std::string name;
  double compute_s = 0;             // on the run's clock
  std::uint64_t payload_bytes = 0;  // sent, to all others together
  std::uint64_t wire_bytes = 0;
};

/// Ways in which a link fails: what LinkEvent tells, apart from good news.
enum class LinkTrouble { kDisconnected, kLost, kLeft, kHandshakeFailed, kRefused, kStranger };
inline constexpr std::size_t kLinkTroubles = 6;
/// "disconnected", "lost", ...
[[nodiscard]] std::string_view trouble_name(LinkTrouble trouble);

/// What TCP tells of the connections that this site has dialled to another one.
struct LinkHealth {
  int connections = 0;                       // that stand
  std::optional<double> rtt_s;               // smoothed round trip, mean over them
  std::uint64_t segments = 0;                // with data, sent so far
  std::uint64_t resent_segments = 0;         // of those, sent again
  std::optional<double> goodput_bits_per_s;  // last, while something was under way
  bool around = false;                       // by way of a relay; then the rest is of before
};

/// Another site, as this one sees it.
struct PeerStatus {
  std::string name;
  bool connected = false;
  bool lost = false;  // for good
  std::string cause;  // why it is not connected, in words
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  double heard_s = -1;                           // since its last frame; < 0: none yet
  std::optional<LinkHealth> tcp;                 // nothing where the system does not tell
  std::map<std::string, std::int64_t> troubles;  // by trouble_name
};

/// A rank of this process's mesh that is slow now (inner/mesh/rank_watch.h).
struct SlowRank {
  int rank = 0;
  std::string what;  // "computes", "answers"
  double factor = 1;
  std::int64_t since = 0;  // step
};

/// How late this process's site has been, where rounds have a deadline (net.deadline).
struct LateStatus {
  std::int64_t rounds = 0;         // that were begun in its name, without its work
  std::int64_t steps_skipped = 0;  // to be where the others are
  bool operator==(const LateStatus&) const = default;
};

struct LinkDrop {
  double ago_s = 0;
  std::string peer;  // empty: a stranger
  std::string kind;  // trouble_name
  std::string cause;
};

struct RunStatus {
  std::string run_id, name, command, method, version;
  std::string directory;
  std::string state = "starting";  // then waiting | running, and as in manifest.json
  bool healthy = true;
  std::string word;  // one line: how it goes, or what is wrong
  bool simulated = false;
  bool live = false;  // from a process that answers; false: from files
  int workers = 1;
  int members = 1;  // of the workers, those that take part now
  std::int64_t parameters = 0;

  std::int64_t step = 0, steps = 0;  // steps 0: not known
  std::int64_t resumed_after = 0;
  std::int64_t tokens = 0;
  std::optional<double> loss, learning_rate, gradient_norm, tokens_per_s;
  std::optional<double> eval_loss;
  std::int64_t eval_step = 0;
  double elapsed_s = 0;
  std::optional<double> eta_s, simulated_s;
  double advanced_s = 0;  // since a step, evaluation or checkpoint was completed
  double stalled_after_s = 0;
  std::int64_t checkpoints = 0, checkpoint_step = 0;
  std::uint64_t checkpoint_bytes = 0;
  double checkpoint_s = 0;      // it took
  double checkpoint_ago_s = 0;  // it was

  std::map<std::int64_t, FragmentStatus> fragments;
  std::vector<WorkerStatus> sites;
  std::vector<PeerStatus> peers;  // of a run whose sites are processes of their own
  std::vector<LinkDrop> drops;    // the newest last
  std::vector<SlowRank> slow_ranks;
  std::optional<LateStatus> late;  // of this session
  std::int64_t strangers = 0;
  std::vector<ThinCurve::Point> loss_curve, eval_curve, speed_curve, wait_curve;
  std::string device;  // of the inner loops in this process; empty: not known

  [[nodiscard]] std::int64_t rounds() const;
  [[nodiscard]] std::uint64_t sent_bytes() const;  // by all workers
  [[nodiscard]] double wait_s() const;
};

/// One JSON object, documented in docs/how-to/observing.md.
[[nodiscard]] std::string status_json(const RunStatus& status);
/// THROWS: ConfigError when it is not what status_json writes.
[[nodiscard]] RunStatus parse_status(const std::string& json);

}  // namespace isthmus::app
