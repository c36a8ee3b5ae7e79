// SPDX-License-Identifier: Apache-2.0
// The status of a run at one moment: the content of /status.json, /metrics, the live page and
// `isthmus status`. Filled by a StatusBoard during the run, or from its folder. Plain data.
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
  /// The last point holds the values of an incomplete one.
  [[nodiscard]] std::vector<Point> points() const;

 private:
  std::vector<Point> points_;
  std::int64_t per_point_ = 1;
  std::int64_t unfinished_ = 0;  // values since the last point
  double sum_ = 0;               // of these
  std::int64_t last_step_ = 0;
};

/// Rounds of one fragment. Bytes are those of the first worker, waits those of this process's first
/// worker.
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

/// Kinds of link failures: the failures among LinkEvent's kinds.
enum class LinkTrouble { kDisconnected, kLost, kLeft, kHandshakeFailed, kRefused, kStranger };
inline constexpr std::size_t kLinkTroubles = 6;
/// "disconnected", "lost", ...
[[nodiscard]] std::string_view trouble_name(LinkTrouble trouble);

/// TCP's statistics of the connections that this site has dialled to another one.
struct LinkHealth {
  int connections = 0;                       // open ones
  std::optional<double> rtt_s;               // smoothed round trip, mean over them
  std::uint64_t segments = 0;                // with data, sent so far
  std::uint64_t resent_segments = 0;         // of those, retransmitted
  std::optional<double> goodput_bits_per_s;  // the last one while values were in flight
  bool around = false;                       // over a relay; the other fields are then older
};

/// Another site, as seen by this one.
struct PeerStatus {
  std::string name;
  bool connected = false;
  bool lost = false;  // for good
  std::string cause;  // why it is not connected, in words
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  double heard_s = -1;                           // since its last frame; < 0: none yet
  std::optional<LinkHealth> tcp;                 // nothing if the system does not report it
  std::map<std::string, std::int64_t> troubles;  // by trouble_name
};

/// A rank of this process's mesh that is slow now (inner/mesh/rank_watch.h).
struct SlowRank {
  int rank = 0;
  std::string what;  // "computes", "answers"
  double factor = 1;
  std::int64_t since = 0;  // step
};

/// The lateness of this process's site, if rounds have a deadline (net.deadline).
struct LateStatus {
  std::int64_t rounds = 0;         // rounds begun by proxy
  std::int64_t steps_skipped = 0;  // to catch up with the others
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
  std::string word;  // one line: the progress, or the fault
  bool simulated = false;
  bool live = false;  // from a responding process; false: from files
  int workers = 1;
  int members = 1;  // workers that take part now
  std::int64_t parameters = 0;

  std::int64_t step = 0, steps = 0;  // steps 0: unknown
  std::int64_t resumed_after = 0;
  std::int64_t tokens = 0;
  std::optional<double> loss, learning_rate, gradient_norm, tokens_per_s;
  std::optional<double> eval_loss;
  std::int64_t eval_step = 0;
  double elapsed_s = 0;
  std::optional<double> eta_s, simulated_s;
  double advanced_s = 0;  // since the last completed step, evaluation or checkpoint
  double stalled_after_s = 0;
  std::int64_t checkpoints = 0, checkpoint_step = 0;
  std::uint64_t checkpoint_bytes = 0;
  double checkpoint_s = 0;      // duration of the last one
  double checkpoint_ago_s = 0;  // age of the last one

  std::map<std::int64_t, FragmentStatus> fragments;
  std::vector<WorkerStatus> sites;
  std::vector<PeerStatus> peers;  // if sites are separate processes
  std::vector<LinkDrop> drops;    // the newest last
  std::vector<SlowRank> slow_ranks;
  std::optional<LateStatus> late;  // of this session
  std::int64_t strangers = 0;
  std::vector<ThinCurve::Point> loss_curve, eval_curve, speed_curve, wait_curve;
  std::string device;  // of the inner loops in this process; empty: unknown

  [[nodiscard]] std::int64_t rounds() const;
  [[nodiscard]] std::uint64_t sent_bytes() const;  // by all workers
  [[nodiscard]] double wait_s() const;
};

/// One JSON object, documented in docs/how-to/observing.md.
[[nodiscard]] std::string status_json(const RunStatus& status);
/// THROWS: ConfigError when `json` is no output of status_json.
[[nodiscard]] RunStatus parse_status(const std::string& json);

}  // namespace isthmus::app
