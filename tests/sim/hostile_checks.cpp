// SPDX-License-Identifier: Apache-2.0
// What is held against the promises.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "hostile_run.h"
#include "transport/naive_mean.h"

namespace isthmus::testing_support {
namespace {

std::vector<int> numbers(const std::vector<WorkerId>& ranks) {
  std::vector<int> result;
  for (const WorkerId rank : ranks) result.push_back(rank.value());
  return result;
}

Digest128 digest_of(const std::vector<float>& values) {
  return xxh3_128(std::as_bytes(std::span(values)));
}

}  // namespace

void HostileRun::blame(const std::string& what) {
  blamed_.push_back(fmt::format(
      "at {:.3f} s: {}", std::chrono::duration<double>(now().time_since_epoch()).count(), what));
}

void HostileRun::take_result(int m, int round, Reduced reduced) {
  const auto wrong = [&](const std::string& what) {
    blame(fmt::format("site {} round {}, contributors {}: {}", m, round,
                      fmt::join(numbers(reduced.contributors), ","), what));
  };
  for (std::size_t i = 1; i < reduced.contributors.size(); ++i) {
    if (reduced.contributors[i - 1] >= reduced.contributors[i]) wrong("counted twice");
  }
  const bool counted = std::ranges::count(reduced.contributors, WorkerId(m)) > 0;
  if (counted == may_be_without(m, round)) {
    wrong(counted ? "it was late, and is counted" : "its own contribution is lost");
  }
  const std::vector<float> values = result_of(*codec_, reduced);
  const Digest128 digest = digest_of(values);
  const std::vector<double> weights = weights_of(round, reduced.contributors);
  Digest128& mean = means_[{reduced.contributors, size_of(round), weights}];
  if (mean == Digest128{}) {
    mean = digest_of(naive_mean(*codec_, reduced.contributors, size_of(round), schedule_.kind,
                                id_of(round), weights));
  }
  if (digest != mean) wrong("not the mean");
  const auto [known, first] = results_.try_emplace(round, Result{reduced.contributors, digest, {}});
  Result& result = known->second;
  if (result.contributors != reduced.contributors || result.digest != digest) {
    wrong(fmt::format("others have that of {}", fmt::join(numbers(result.contributors), ",")));
  }
  if (!of(m).applied.emplace(round, digest).second) wrong("applied twice");
  if (round > 0 && !of(m).applied.contains(round - 1)) wrong("applied before the one before");
  tally_.rounds += first ? 1 : 0;
  result.payload[m] = reduced.payload_bytes;
  result.lives[m] = of(m).life;
  settle(m, round, counted);
  if (result.payload.size() == result.contributors.size()) check_payload(round);
  changed_->update([] {});
}

/// A reduce: each value goes to its owner from all others, and its mean back to them. Else from
/// each to all others. A process that comes back while a round is open is sent its part anew.
void HostileRun::check_payload(int round) {
  const Result& result = results_.at(round);
  for (const auto& [m, life] : result.lives) {
    if (of(m).life != life) return;
  }
  // Who takes part without giving is sent the means, and sends them.
  for (int m = 0; m < schedule_.members; ++m) {
    if (may_be_without(m, round)) return;
  }
  const std::uint64_t vector = encoded_bytes(*codec_, size_of(round));
  const std::uint64_t n = result.contributors.size();
  const std::uint64_t predicted =
      schedule_.kind == ReductionKind::kReduce ? 2 * (n - 1) * vector : n * (n - 1) * vector;
  std::uint64_t sent = 0;
  for (const auto& [m, bytes] : result.payload) sent += bytes;
  if (sent != predicted) {
    blame(fmt::format("round {}: {} sent {} bytes of values, not {}", round,
                      fmt::join(numbers(result.contributors), ","), sent, predicted));
  }
  ++tally_.priced;
}

void HostileRun::check_end() {
  if (!blamed_.empty() || tally_.nobody_left) return;
  for (int m = 0; m < schedule_.members; ++m) {
    const Site& site = of(m);
    if (site.taken < last_round_) blame(fmt::format("site {} is not through", m));
    for (int round = 0; round < last_round_; ++round) {
      const auto applied = site.applied.find(round);
      if (applied == site.applied.end()) {
        blame(fmt::format("site {} has lost round {}", m, round));
      } else if (applied->second != results_.at(round).digest) {
        blame(fmt::format("site {} has another result of round {}", m, round));
      }
    }
    const bool all = results_.at(last_round_ - 1).contributors.size() == sites_.size();
    if (!all && !schedule_.has_deadline()) blame("somebody is missing in the last round");
  }
  if (schedule_.has_deadline()) {
    check_masses();
    check_last_contributions();
  }
  if (schedule_.hub) check_log();
}

/// What the hub has written down is what all have applied, once each.
void HostileRun::check_log() {
  std::map<SyncId, Digest128> committed;
  for (const HubRecord& record : hub_.written) {
    if (record.kind != HubRecord::Kind::kCommit) continue;
    const auto commit = read_commit(record);
    if (!commit) {
      blame("a record of the log is none");
    } else if (!committed.emplace(*commit).second) {
      blame(fmt::format("fragment {} of step {} was committed twice",
                        commit->first.fragment.value(), commit->first.sent.value()));
    }
  }
  for (int round = 0; round < last_round_; ++round) {
    if (committed.erase(id_of(round)) == 0) {
      blame(fmt::format("round {} was applied, and is not in the hub's log", round));
    }
  }
  if (!committed.empty()) blame("the hub's log has rounds that nobody has applied");
}

/// Who lives is counted as gone only where links were down for long, or a hub was away.
bool HostileRun::may_be_left_out() const {
  return tally_.hub_crashes > 0 || schedule_.parts_in(TimePoint{}, now());
}

std::string HostileRun::state() const {
  std::string text = fmt::format("hub {}, joiner {}, leaver {}",
                                 !schedule_.hub ? "none"
                                 : hub_.alive   ? "alive"
                                                : "dead",
                                 joiner_, leaver_);
  for (std::size_t m = 0; m < sites_.size(); ++m) {
    const Site& site = sites_[m];
    text += fmt::format("; site {}:{}{}{}{}{} member {} begun {} taken {} last {}", m,
                        site.alive ? " alive" : " dead", site.aside ? " aside" : "",
                        site.out ? " out" : "", met_by_all(static_cast<int>(m)) ? " met" : "",
                        site.entered ? "" : " held", hub_.live[m] ? 1 : 0, site.begun, site.taken,
                        site.last);
    if (!site.why.empty()) text += fmt::format(" was out at life {}: {}", site.life, site.why);
  }
  return text;
}

}  // namespace isthmus::testing_support
