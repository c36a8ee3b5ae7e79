// SPDX-License-Identifier: Apache-2.0
// Decoupled DiLoCo (arXiv:2604.21428): learners that do not wait for one another.
//   learner m, each inner step t:
//     theta_m <- InnerOpt(theta_m)
//     merges of a fragment p that have arrived, in their order:
//       anchor_p <- OuterOpt(anchor_p, mean)
//       theta_m,p <- anchor_p + what m has trained that no merge holds
//     fragments with t = offset_p (mod H) of which m has no offer on its way, or, where a merge is
//     there that m may not apply yet, after the step that applies it:
//       Delta = anchor_p - theta_m,p, offered with the weight tokens (tokens / steps)
//   coordinator, fragment p (transport/exchange/merges/merge_pool.h):
//     quorum and grace window reached:  mean = sum of w Delta / sum of w, to all learners
// The latest step of a merge's offers is the merge's step. A learner that is behind it skips steps
// up to it, then applies the merge. So a learner's state after step t holds no work that another
// learner did after its step t, and the states of all learners after one step are a checkpoint.
// Deviations: every learner steps the anchors, by the same merges in the same order, not the
// coordinator; work that is not merged yet stays in the local values, where the paper overwrites
// them; a learner has one offer of a fragment on its way; the mean is plain, not
// radial-directional.
// One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isthmus/merges.h"
#include "isthmus/outer.h"
#include "outer/parts/contribution_sample.h"
#include "outer/parts/fragment_state.h"
#include "outer/parts/norm_guard.h"
#include "outer/parts/rounds.h"
#include "outer/parts/settings.h"

namespace isthmus::outer {

class Decoupled final : public OuterStrategy {
 public:
  /// THROWS: ConfigError where the exchange has no merges, or the quorum exceeds the workers.
  Decoupled(FragmentedSettings settings, const MergeRule& rule, InnerLoop& inner,
            Exchange& exchange);

  StepReport step() override;
  std::vector<RoundReport> finish() override;
  [[nodiscard]] StepIndex steps() const override { return steps_; }
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override;
  [[nodiscard]] bool shared_anchors() const override { return false; }
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;
  void forget_own_work() override;

 private:
  /// What this worker has offered and no applied merge holds.
  struct OnItsWay {
    StepIndex sent;
    Window window;
    double weight = 1;
    Encoded encoded;
    std::vector<float> beyond;  // local - anchor when it was offered; empty: zeros
    ContributionSample sample;
    bool closing = false;
    Duration awaited{0};  // how long its merge has been waited for, with others or alone
    Duration waited{0};   // the part of it that this offer's round tells of
  };
  struct Learned {
    FragmentState state;
    Window window;     // since the last offer
    bool due = false;  // to be offered as soon as this worker is not behind a merge
    std::optional<OnItsWay> offered;
    std::vector<StepIndex> merged;  // by worker: its latest offer in an applied merge
  };

  /// Before the first step of a session.
  void begin(StepIndex t);
  /// After a resume: all go on from the state of a worker that has applied the most merges.
  void meet();
  void adopt(WorkerId ahead, bool own_is_behind);
  void collect();
  [[nodiscard]] bool behind() const;
  void apply_arrived(bool all, std::vector<RoundReport>& reports);
  [[nodiscard]] RoundReport apply(const Merge& merge);
  void offer(FragmentId id, bool closing);
  void give_up(FragmentId id, double norm);
  void send(FragmentId id, const OnItsWay& offer);
  void await_own(std::vector<RoundReport>& reports);
  [[nodiscard]] bool is_own(const MergedOffer& offer, const Learned& fragment) const;
  [[nodiscard]] bool on_its_way(const Learned& fragment) const;
  [[nodiscard]] Learned& at(FragmentId id) { return *fragments_.at(index(id)); }
  [[nodiscard]] std::vector<float> all_have(std::span<const float> own, WorkerId ahead, int place);
  [[nodiscard]] std::vector<std::int64_t> all_progress();
  [[nodiscard]] Reduced result_of(Contribution contribution);

  FragmentedSettings settings_;
  MergeRule rule_;
  InnerLoop& inner_;
  Exchange& exchange_;
  Merges& merges_;
  std::vector<std::unique_ptr<Learned>> fragments_;
  std::vector<std::pair<std::size_t, std::size_t>> places_;  // by parameter: fragment, begin
  NormGuard guard_;
  std::deque<Merge> arrived_;  // not applied
  std::int64_t applied_ = 0;   // merges, earlier sessions included
  bool meets_ = false;         // before the next step
  bool takes_part_ = false;    // of the merges
  StepIndex steps_;
};

}  // namespace isthmus::outer
