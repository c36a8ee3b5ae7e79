// SPDX-License-Identifier: Apache-2.0
// A worker's rounds in flight: begun, settled oldest first, and saved in checkpoints by their
// encoded bytes. Also the fragments' windows: the training since a fragment was last sent, which is
// the weight of its contribution. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isthmus/outer.h"
#include "outer/parts/outer_fragment.h"
#include "outer/parts/schedule.h"
#include "outer/parts/settings.h"

namespace isthmus::outer {

/// The training that a contribution covers.
struct Window {
  std::int64_t tokens = 0;
  std::int64_t steps = 0;  // the weight if the inner loop counts no tokens
  bool partial = false;    // began before forget_own_work: a regular round withholds it
  [[nodiscard]] double weight() const { return static_cast<double>(tokens > 0 ? tokens : steps); }
};

/// The result of a round that has ended.
struct Settled {
  RoundReport report;                  // the caller sets `applied`
  std::vector<float> mean;             // empty: no contributors, or a result that is not finite
  std::vector<Encoded> contributions;  // of a collect, which leaves `mean` empty: all workers'
                                       // bytes
  Encoded own;    // this worker's contribution; empty for rounds applied in the step that sent them
  Window window;  // of this worker's contribution
  ContributionSample sample;
  /// True if this worker's work is in no anchor: the contribution was not counted, or its window is
  /// partial. False for a contribution that was withheld as not fit.
  bool lost = false;
};

class Rounds {
 public:
  /// Rounds are due `lag` steps after their send. Borrows both arguments.
  Rounds(const FragmentedSettings& settings, Exchange& exchange, std::int64_t lag);
  [[nodiscard]] Exchange& exchange() const { return exchange_; }

  /// Adds the inner step's tokens to every fragment's open window.
  void count(const InnerStep& step);
  /// The training of fragment `id` since it was last sent.
  [[nodiscard]] const Window& window(FragmentId id) const;

  /// The key under which this worker encodes the fragment's round sent after step `sent`.
  [[nodiscard]] EncodeKey key(FragmentId id, StepIndex sent) const;
  /// Closes the fragment's window and begins its round. A delta that is not `fit` takes part with
  /// weight 0: the worker receives the mean, and its window is dropped. A delta of a partial window
  /// takes part with weight 0 too, but its work is reported as lost (Settled::lost).
  void launch(const Sync& sync, OuterGradient delta, double weight);
  /// Waits for the oldest round. THROWS: PeerError when it fails. REQUIRES: !empty().
  [[nodiscard]] Settled settle_oldest();
  /// Waits for the oldest round due by `step`; with LateRound::kSlip, returns the oldest whose
  /// result has arrived, without waiting. Absent: there is none. THROWS: as settle_oldest.
  [[nodiscard]] std::optional<Settled> settle_due(StepIndex step, LateRound late);
  /// Collects the results that have arrived for rounds due by `step`, so that settling these rounds
  /// takes no time. Their errors are reported when they are settled. RETURNS: fragment and mean of
  /// the oldest collected result; the mean stays valid until its Settled is destroyed. Absent: no
  /// result has arrived, or no mean is usable.
  struct Arrived {
    FragmentId fragment;
    std::span<const float> mean;
  };
  [[nodiscard]] std::optional<Arrived> take_in(StepIndex step);
  /// Waits for the fragment's round. Absent: the fragment has none. THROWS: as settle_oldest.
  [[nodiscard]] std::optional<Settled> settle_of(FragmentId id);
  /// Drops the work of open windows and of windows in flight, which local values no longer hold.
  void give_up_windows();
  /// Starts open windows anew. Windows in flight neither count nor are lost. A fragment that was
  /// not sent after step `now` has a partial window from here on.
  void forget_own_work(StepIndex now);
  /// Called before a closing round: no whole window will follow, so a partial one counts with its
  /// content.
  void count_partial_windows();
  /// Called after the last round with final_sync = "full": warns of closing rounds without
  /// contributions, and of windows of this worker that are still open.
  void warn_of_losses(std::span<const RoundReport> last) const;
  /// Merges a lost window into the fragment's open window.
  void carry_window(const Settled& lost);
  /// Adds earlier training to the fragment's open window.
  void take_up(FragmentId id, std::int64_t tokens, std::int64_t steps);
  /// The window of the fragment's round whose end is unknown here: it is in flight or has failed.
  /// Absent: every round has returned.
  [[nodiscard]] std::optional<Window> unknown(FragmentId id) const;
  /// Forgets the rounds in flight.
  void drop() { in_flight_.clear(); }
  [[nodiscard]] bool empty() const { return in_flight_.empty(); }
  [[nodiscard]] bool in_flight(FragmentId id) const;
  [[nodiscard]] StepIndex last_sent(FragmentId id) const;
  /// Step at which the first round in flight is due; absent: none is in flight.
  [[nodiscard]] std::optional<StepIndex> next_due() const;

  void save(StateWriter& writer) const;
  /// Begins the saved rounds again under their ids; `now`: the step of the checkpoint.
  /// THROWS: RunError naming a number that no run can have saved.
  void load(StateReader& reader, StepIndex now);
  /// After `load` from a reader whose rounds in flight were not begun again while local values
  /// still hold their work: merges their windows into the open ones.
  void take_up_dropped(StateReader& reader);

 private:
  /// A round's result and its statistics.
  struct Result {
    Expected<Reduced, ExchangeError> mean;
    double norm = 0;
    bool counted = false;
    std::optional<double> cosine;
  };
  struct InFlight {
    Sync sync;
    Ticket ticket;
    Encoded encoded;  // for checkpoints, statistics and take_back; else empty
    Window window;
    double weight = 1;
    ContributionSample sample = {};
    std::optional<Result> result = {};  // set once the result has been collected
  };
  [[nodiscard]] Result result_of(const InFlight& round);
  void begin(InFlight round, Encoded encoded);
  [[nodiscard]] Settled settle(std::vector<InFlight>::iterator where);
  [[nodiscard]] Window load_window(StateReader& reader, const std::string& prefix) const;

  const FragmentedSettings& settings_;
  Exchange& exchange_;
  std::int64_t lag_;
  std::vector<Window> windows_;                // open ones, by fragment
  std::vector<StepIndex> last_sent_;           // by fragment
  std::vector<InFlight> in_flight_;            // in order of (send step, fragment)
  std::vector<std::optional<Window>> failed_;  // the last one's window, by fragment
};

}  // namespace isthmus::outer
