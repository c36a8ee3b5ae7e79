// SPDX-License-Identifier: Apache-2.0
// The rounds a worker has under way: launched, settled oldest first, and carried through a
// checkpoint by their encoded bytes. Also the windows they close: what was trained on since each
// fragment was last sent, which is what a contribution weighs. One thread.
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

/// What a contribution was trained on.
struct Window {
  std::int64_t tokens = 0;
  std::int64_t steps = 0;  // what counts where the inner loop counts no tokens
  bool partial = false;    // began before this worker forgot its work: a regular round withholds it
  [[nodiscard]] double weight() const { return static_cast<double>(tokens > 0 ? tokens : steps); }
};

/// A round that is over.
struct Settled {
  RoundReport report;                  // `applied` is for the caller to say
  std::vector<float> mean;             // empty: nobody contributed, or what came is not finite
  std::vector<Encoded> contributions;  // of a collect, which leaves `mean` empty: everyone's
  Encoded own;    // this worker's contribution; empty where a mean ends within its step
  Window window;  // of this worker's contribution
  ContributionSample sample;
  /// Its work is in no anchor yet: it was given and not counted, or its window is a partial one.
  /// Not set for one that is withheld since it is not fit.
  bool lost = false;
};

class Rounds {
 public:
  /// Rounds are due `lag` steps after their send. Borrows both.
  Rounds(const FragmentedSettings& settings, Exchange& exchange, std::int64_t lag);
  [[nodiscard]] Exchange& exchange() const { return exchange_; }

  /// The inner step's tokens belong to every fragment's open window.
  void count(const InnerStep& step);
  /// What fragment `id` was trained on since it was last sent.
  [[nodiscard]] const Window& window(FragmentId id) const;

  /// Under which this worker encodes the fragment's round sent after step `sent`.
  [[nodiscard]] EncodeKey key(FragmentId id, StepIndex sent) const;
  /// Closes the fragment's window and begins its round. A delta that is not `fit` takes part with
  /// weight 0: the worker receives, and its window is gone. That of a partial window does so too,
  /// but its work is lost, as if it had not come.
  void launch(const Sync& sync, OuterGradient delta, double weight);
  /// Waits for the oldest round. THROWS: PeerError when it fails. REQUIRES: !empty().
  [[nodiscard]] Settled settle_oldest();
  /// The oldest of those due by `step`, waited for; where late ones slip, the oldest whose result
  /// is here. Nothing: there is none. THROWS: as settle_oldest.
  [[nodiscard]] std::optional<Settled> settle_due(StepIndex step, LateRound late);
  /// Takes in the results of rounds due by `step` that are here, so that settling them takes no
  /// time; what has failed is said there. RETURNS: the oldest one's fragment and its mean, which
  /// stays where it is until its Settled ends; nothing: none is here, or its mean is of no use.
  struct Arrived {
    FragmentId fragment;
    std::span<const float> mean;
  };
  [[nodiscard]] std::optional<Arrived> take_in(StepIndex step);
  /// That of the fragment, waited for; nothing: it has none. THROWS: as settle_oldest.
  [[nodiscard]] std::optional<Settled> settle_of(FragmentId id);
  /// What fragments were trained on, in open windows and in those under way, is gone from their
  /// local values.
  void give_up_windows();
  /// Open windows begin anew, and what is under way gives nothing and loses nothing. A fragment
  /// that was not sent after step `now` has a partial window from here on.
  void forget_own_work(StepIndex now);
  /// Before a closing round: no whole window will follow, so a partial one counts by what it holds.
  void count_partial_windows();
  /// After the last round of a run under final_sync = "full": warns of a closing round to which
  /// nobody has contributed, and of windows of this worker that are still open.
  void warn_of_losses(std::span<const RoundReport> last) const;
  /// A lost window becomes part of the open one.
  void carry_window(const Settled& lost);
  /// What was trained on before becomes part of the fragment's open window.
  void take_up(FragmentId id, std::int64_t tokens, std::int64_t steps);
  /// What a round of the fragment was given whose end is not known here: it is under way, or has
  /// failed. Nothing: all that was given has come back.
  [[nodiscard]] std::optional<Window> unknown(FragmentId id) const;
  /// Forgets what is under way.
  void drop() { in_flight_.clear(); }
  [[nodiscard]] bool empty() const { return in_flight_.empty(); }
  [[nodiscard]] bool in_flight(FragmentId id) const;
  [[nodiscard]] StepIndex last_sent(FragmentId id) const;
  /// When the first of those under way is due; nothing: none is.
  [[nodiscard]] std::optional<StepIndex> next_due() const;

  void save(StateWriter& writer) const;
  /// Begins the saved rounds again under their ids; `now`: the step of the checkpoint.
  /// THROWS: RunError naming a number that no run can have saved.
  void load(StateReader& reader, StepIndex now);
  /// After `load` of a reader in which saved rounds are not under way, where their work is still in
  /// the local values: their windows are part of the open ones again.
  void take_up_dropped(StateReader& reader);

 private:
  /// What came back, and what is said of it.
  struct Result {
    Expected<Reduced, ExchangeError> mean;
    double norm = 0;
    bool counted = false;
    std::optional<double> cosine;
  };
  struct InFlight {
    Sync sync;
    Ticket ticket;
    Encoded encoded;  // for a checkpoint, for its own part, to be taken back; else empty
    Window window;
    double weight = 1;
    ContributionSample sample = {};
    std::optional<Result> result = {};  // once it has been taken in
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
