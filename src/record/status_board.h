// SPDX-License-Identifier: Apache-2.0
// The status of a run while it is running. MetricsLog writes the content of metrics.jsonl here, the
// links their events; any thread takes a snapshot. One lock, held for a few microseconds; a reader
// delays nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/rank_finding.h"
#include "isthmus/config.h"
#include "isthmus/outer.h"
#include "record/run_status.h"
#include "record/wall_clock.h"
#include "transport/links/network_transport.h"

namespace isthmus::app {

struct EvalRecord;
struct Manifest;
struct RunTotals;

class StatusBoard {
 public:
  struct Options {
    std::int64_t total_steps = 0;
    bool simulated = false;
    Duration stalled_after = std::chrono::minutes(5);
    std::vector<std::string> sites;  // names of the workers, in order
    std::optional<WorkerId> self;    // this process's worker; the others are peers
    bool hub = false;                // numbered after the workers; also a peer
    bool links_tell = true;          // false: a peer is connected once a frame from it has arrived
    std::function<double()> now = monotonic_now;
  };
  explicit StatusBoard(Options options);

  /// The other sites are not present yet.
  void waiting(const std::string& for_what);
  /// Too few sites are present, and the present ones pause; empty: they continue.
  void stands_still(const std::string& why);
  void begin(const Manifest& manifest, const RunTotals& totals, const std::string& directory);

  struct Step {
    std::int64_t step = 0;
    double learning_rate = 0;
    double gradient_norm = 0;
    double tokens_per_s = 0;  // of this step alone
  };
  void step(const Step& step, const RunTotals& totals);
  /// Shown together with the step that applied it, which is reported next. `payload_bytes`,
  /// `wire_bytes`: as in metrics.jsonl.
  void round(const RoundReport& round, std::uint64_t payload_bytes, std::uint64_t wire_bytes);
  void eval(const EvalRecord& eval);
  /// A worker has left, and the others continue, or it has rejoined.
  void membership(WorkerId worker, bool joined);
  void checkpoint(std::int64_t step, std::uint64_t bytes, double seconds);
  void rank(const RankFinding& finding);
  /// The lateness of this process's site so far. Any task.
  void late(const LateStatus& late);

  /// An event of a link of `self`. Any task.
  void link(WorkerId self, const LinkEvent& event);
  void reading(WorkerId peer, const LinkReading& reading);
  void sent(WorkerId to, std::size_t bytes);
  void received(WorkerId from, std::size_t bytes);
  /// The peer sends nothing more: for links without events.
  void gone(WorkerId peer, const std::string& why);

  /// Any thread.
  [[nodiscard]] RunStatus snapshot() const;

  static constexpr std::size_t kMostDrops = 50;

 private:
  struct Peer {
    PeerStatus status;
    std::vector<bool> streams;  // open ones
    double heard = -1;
  };
  struct Drop {
    double at = 0;
    LinkDrop drop;
  };
  /// Steps that arrived in one burst.
  struct Mark {
    double first = 0, last = 0;  // arrival times
    std::int64_t tokens = 0;     // after these steps
  };
  /// The reported facts.
  struct State {
    RunStatus status;  // fields that do not depend on the moment
    std::string waiting_for;
    ThinCurve loss, eval, speed, wait;
    std::map<int, Peer> peers;  // by rank
    std::set<int> gone;         // ranks without which the others continue
    std::deque<Drop> drops;
    std::deque<Mark> marks;  // of the last seconds
    double step_speed = 0;
    double begun = 0;  // time of status.elapsed_s
    double advanced = 0;
    double checkpoint_at = 0;
    std::optional<std::pair<double, std::int64_t>> first_step;  // (when, step) of this session
  };
  void advance() { state_.advanced = options_.now(); }
  void take(const RunTotals& totals);
  void note_drop(const std::string& peer, LinkTrouble trouble, const std::string& text);
  [[nodiscard]] const std::string& name(WorkerId site) const;
  [[nodiscard]] static std::optional<double> speed(const State& state, double now);
  static void judge(const State& state, RunStatus& status);

  const Options options_;
  mutable std::mutex mutex_;
  // Guarded by mutex_; a reader copies it and computes with the copy:
  State state_;
  std::map<std::int64_t, FragmentStatus> fragments_;  // with the rounds of the next step
};

}  // namespace isthmus::app
