// SPDX-License-Identifier: Apache-2.0
#include "plan/mesh_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "core/base/units.h"

namespace isthmus::plan {
namespace {
constexpr int kMostVirtualStages = 4;
constexpr int kMostZero = 3;

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d * d != n) high.push_back(n / d);
  }
  std::copy(high.rbegin(), high.rend(), std::back_inserter(low));
  return low;
}

class Search {
 public:
  Search(const MeshWorkload& workload, const MeshMachine& machine, const MeshSearch& search)
      : w_(workload), machine_(machine), search_(search), layout_(workload.shape) {}

  [[nodiscard]] MeshRanking run(std::int64_t ranks) {
    MeshRanking ranking;
    each_mesh(ranks, [&](const MeshChoice& choice) {
      consider(choice, ranking);
      return true;
    });
    std::stable_sort(ranking.candidates.begin(), ranking.candidates.end(), better);
    return ranking;
  }

  /// False: the weights alone, shared out over so many ranks, are larger than their memory.
  [[nodiscard]] bool may_fit_on(std::int64_t ranks) const {
    constexpr std::int64_t kValueBytes = 4;
    return layout_.elements() * kValueBytes / ranks <= machine_.memory_bytes;
  }

  /// Whether a mesh of so many ranks fits: no times, and the first that fits ends the search.
  [[nodiscard]] bool fits_on(std::int64_t ranks) {
    first_that_fits_ = true;
    MeshRanking ranking;
    each_mesh(ranks, [&](const MeshChoice& choice) {
      consider(choice, ranking);
      return ranking.candidates.empty() || !ranking.candidates.back().fits;
    });
    first_that_fits_ = false;
    return !ranking.candidates.empty() && ranking.candidates.back().fits;
  }

 private:
  /// Calls `take` with every tp x pp x dp of so many ranks, while it returns true.
  template <typename Take>
  void each_mesh(std::int64_t ranks, const Take& take) {
    for (const std::int64_t tp : divisors(ranks)) {
      if (search_.tp && *search_.tp != tp) continue;
      for (const std::int64_t pp : divisors(ranks / tp)) {
        if (search_.pp && *search_.pp != pp) continue;
        const std::int64_t dp = ranks / tp / pp;
        if (search_.dp && *search_.dp != dp) continue;
        MeshChoice choice;
        choice.tp = static_cast<int>(tp);
        choice.pp = static_cast<int>(pp);
        choice.dp = static_cast<int>(dp);
        if (!take(choice)) return;
      }
    }
  }

  static bool better(const MeshCandidate& a, const MeshCandidate& b) {
    if (a.fits != b.fits) return a.fits;
    if (!a.fits) return a.memory.total() < b.memory.total();
    if (a.time.step != b.time.step) return a.time.step < b.time.step;
    // What is elementwise takes no time unless memory has a rate, so it is made again only where
    // that helps.
    if (a.choice.recompute != b.choice.recompute) return a.choice.recompute < b.choice.recompute;
    return a.memory.total() < b.memory.total();
  }

  /// The best way to use one tp x pp x dp.
  void consider(MeshChoice choice, MeshRanking& ranking) {
    choice.bf16 = search_.bf16;
    if (choice.tp == 1) choice.codec_state = search_.codec_state;
    choice.sequence_parallel =
        search_.sequence_parallel.value_or(choice.tp > 1 && w_.context % choice.tp == 0) &&
        choice.tp > 1;
    choice.micro_batches = search_.micro_batches.value_or(1);
    choice.zero = search_.zero.value_or(choice.dp > 1 ? std::min(1, most_zero(w_, choice)) : 0);
    choice.recompute = search_.recompute.value_or(Recompute::kNone);
    const std::vector<std::string> problems = mesh_problems(w_, choice);
    std::optional<MeshCandidate> best;
    std::string refusal = problems.empty() ? "" : problems.front();
    orders_ = {};
    if (problems.empty()) best = hopeless(choice);
    if (problems.empty() && !best) {
      for (const std::int64_t micro_batches : divisors(w_.sequences / choice.dp)) {
        if (search_.micro_batches && *search_.micro_batches != micro_batches) continue;
        choice.micro_batches = micro_batches;
        for (const auto& [schedule, chunks] : schedules(choice)) {
          choice.schedule = schedule;
          choice.virtual_stages = chunks;
          const std::vector<std::string> found = mesh_problems(w_, choice);
          if (!found.empty()) {
            if (refusal.empty()) refusal = found.front();
            continue;
          }
          smallest_that_fits(choice, best);
          if (first_that_fits_ && best && best->fits) break;
        }
        if (first_that_fits_ && best && best->fits) break;
      }
    }
    if (best) {
      if (!best->fits && !first_that_fits_) place(*best);
      ranking.candidates.push_back(*std::move(best));
    } else {
      ranking.refused.push_back({choice, refusal});
    }
  }

  /// The way to use one tp x pp x dp that takes least memory, if that is far too much: then no
  /// other way fits, and all of them need not be timed.
  [[nodiscard]] std::optional<MeshCandidate> hopeless(MeshChoice choice) {
    constexpr double kFar = 1.05;
    if (machine_.memory_bytes == 0) return std::nullopt;
    choice.recompute = search_.recompute.value_or(Recompute::kFull);
    choice.schedule = search_.schedule.value_or(PipelineKind::k1F1B);
    choice.virtual_stages = search_.virtual_stages.value_or(1);
    choice.micro_batches = search_.micro_batches.value_or(w_.sequences / choice.dp);
    if (!mesh_problems(w_, choice).empty()) return std::nullopt;
    std::optional<MeshCandidate> least;
    const int most = choice.dp > 1 ? std::min(kMostZero, most_zero(w_, choice)) : 0;
    for (int zero = search_.zero.value_or(0); zero <= search_.zero.value_or(most); ++zero) {
      choice.zero = zero;
      MeshCandidate candidate = candidate_of(choice);
      if (candidate.fits) return std::nullopt;
      if (!least || better(candidate, *least)) least = std::move(candidate);
    }
    const bool far = static_cast<double>(least->memory.total()) >
                     kFar * static_cast<double>(machine_.memory_bytes);
    return far ? least : std::nullopt;
  }

  [[nodiscard]] std::vector<std::pair<PipelineKind, int>> schedules(
      const MeshChoice& choice) const {
    std::vector<std::pair<PipelineKind, int>> all;
    const auto add = [&](PipelineKind kind, int chunks) {
      if (search_.schedule && *search_.schedule != kind) return;
      if (search_.virtual_stages && *search_.virtual_stages != chunks) return;
      all.emplace_back(kind, chunks);
    };
    add(PipelineKind::k1F1B, 1);
    if (search_.schedule) add(PipelineKind::kGpipe, 1);  // holds more and is no faster
    if (choice.pp == 1 && !search_.schedule) return all;
    add(PipelineKind::kZbH1, 1);
    for (int chunks = 2; chunks <= kMostVirtualStages; ++chunks) {
      add(PipelineKind::kInterleaved, chunks);
    }
    return all;
  }

  /// Least ZeRO first, without recomputation and, where that takes more than ZeRO 1, with a
  /// selective one, then a full one.
  void smallest_that_fits(MeshChoice choice, std::optional<MeshCandidate>& best) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      if (search_.recompute && *search_.recompute != recompute) continue;
      const bool again = recompute != Recompute::kNone;
      if (again && choice.schedule == PipelineKind::kZbH1) break;  // keeps what it would save
      choice.recompute = recompute;
      bool easily = false;
      const int most = std::min(kMostZero, most_zero(w_, choice));
      for (int zero = choice.dp > 1 ? std::min(1, most) : 0; zero <= most; ++zero) {
        if (search_.zero) zero = *search_.zero;
        choice.zero = zero;
        MeshCandidate candidate = candidate_of(choice);
        const bool fits = candidate.fits;
        if (!best || better(candidate, *best)) best = std::move(candidate);
        easily = fits && zero <= 1;
        if (fits || search_.zero || choice.dp == 1) break;
      }
      if (easily) break;
    }
  }

  /// Of the tp x pp x dp that is considered.
  [[nodiscard]] const std::vector<MeshOrder>& orders_of(const MeshChoice& choice) {
    std::vector<MeshOrder>& orders = orders_[choice.virtual_stages > 1 ? 1 : 0];
    if (orders.empty()) orders = unlike_orders(choice, machine_.links);
    return orders;
  }

  [[nodiscard]] MeshCandidate candidate_of(const MeshChoice& choice) {
    MeshCandidate candidate;
    candidate.choice = choice;
    const std::vector<RankCost> costs = rank_costs(layout_, w_, choice);
    for (const RankCost& cost : costs) {
      if (cost.memory.total() <= candidate.memory.total()) continue;
      candidate.memory = cost.memory;
      candidate.fullest = cost.pipeline_rank;
    }
    candidate.fits =
        machine_.memory_bytes == 0 || candidate.memory.total() <= machine_.memory_bytes;
    if (candidate.fits && !first_that_fits_) place(candidate, costs);
    return candidate;
  }

  void place(MeshCandidate& candidate, const std::vector<RankCost>& costs) {
    const MeshPlacement placed =
        place_mesh(candidate.choice, costs, machine_, orders_of(candidate.choice));
    candidate.time = placed.time;
    candidate.order = placed.order;
    candidate.rank_order_s = placed.rank_order_s;
  }
  void place(MeshCandidate& candidate) {
    place(candidate, rank_costs(layout_, w_, candidate.choice));
  }

  const MeshWorkload& w_;
  const MeshMachine& machine_;
  const MeshSearch& search_;
  ModelLayout layout_;
  bool first_that_fits_ = false;
  std::array<std::vector<MeshOrder>, 2> orders_;  // without and with virtual stages
};

std::string percent(double part) { return fmt::format("{:.0f} %", 100 * part); }

/// Where a mesh loses most against the best one (itself: of all its time).
std::string why_of(const MeshCandidate& candidate, const MeshCandidate& best,
                   const MeshMachine& machine) {
  const MeshTime& t = candidate.time;
  const MeshChoice& c = candidate.choice;
  const auto link = [&](MeshDimension dimension) -> const std::string& {
    return machine.links[t.links[static_cast<std::size_t>(dimension)]].name;
  };
  if (!candidate.fits) {
    std::string with;
    if (c.dp > 1) with = fmt::format(" even with ZeRO {}", c.zero);
    if (c.recompute != Recompute::kNone) {
      with += with.empty() ? " even with recomputation" : " and recomputation";
    }
    return fmt::format(
        "{} too much{}",
        human_bytes(static_cast<double>(candidate.memory.total() - machine.memory_bytes)), with);
  }
  const std::array<double, 5> parts = {t.compute, t.tensor, t.bubble, t.data, t.update};
  const std::array<double, 5> least = {best.time.compute, best.time.tensor, best.time.bubble,
                                       best.time.data, best.time.update};
  const bool itself = &candidate == &best;
  std::size_t worst = itself ? 1 : 0;
  for (std::size_t i = worst + 1; i < parts.size(); ++i) {
    const double loss = parts[i] - (itself ? 0 : least[i]);
    if (loss > parts[worst] - (itself ? 0 : least[worst])) worst = i;
  }
  constexpr double kNothing = 0.005;
  if (itself && parts[worst] < kNothing * t.step) return "computes all of the time";
  std::string text;
  if (itself) text = fmt::format("computes {} of the time; then ", percent(t.compute / t.step));
  const std::string share = percent(parts[worst] / t.step);
  switch (worst) {
    case 0:
      return text + (c.recompute == Recompute::kFull && best.choice.recompute != Recompute::kFull
                         ? "computes layers twice to fit"
                         : fmt::format("its busiest stage ({}) computes longer", t.busiest));
    case 1:
      return text +
             fmt::format("tensor-parallel sums {} on {}", share, link(MeshDimension::kTensor));
    case 2:
      return text + fmt::format("bubble {}: {} micro-batches on {} stages", share, c.micro_batches,
                                c.pp * c.virtual_stages);
    case 3:
      return text + fmt::format("{} {} on {}", c.zero == 3 ? "weights and gradients" : "gradients",
                                share, link(MeshDimension::kData));
    default:
      return text + fmt::format("the update {} through memory", share);
  }
}

}  // namespace

MeshRanking rank_meshes(const MeshWorkload& workload, const MeshMachine& machine,
                        const MeshSearch& search) {
  constexpr std::int64_t kMostTimes = 64;
  Search meshes(workload, machine, search);
  MeshRanking ranking = meshes.run(search.ranks);
  for (MeshCandidate& candidate : ranking.candidates) {
    candidate.why = why_of(candidate, ranking.candidates.front(), machine);
  }
  if (ranking.fits() || ranking.candidates.empty()) return ranking;
  for (std::int64_t times = 2; times <= kMostTimes && ranking.enough_ranks == 0; times *= 2) {
    if (!meshes.may_fit_on(search.ranks * times)) continue;
    if (meshes.fits_on(search.ranks * times)) ranking.enough_ranks = search.ranks * times;
  }
  return ranking;
}

}  // namespace isthmus::plan
