// SPDX-License-Identifier: Apache-2.0
// A reduce in two levels on links (transport/exchange/reduction.h). A part goes four ways: to its
// group's collector, as the group's mean to the owner, as the result back to the collectors and to
// their groups. Frames get onto a link as they become ready, whichever way they go.
#include <cstdint>
#include <map>
#include <utility>

#include "plan/exchange_model.h"
#include "transport/wire/frame.h"

namespace isthmus::plan {

class ExchangeModel::GroupedReduce {
 public:
  GroupedReduce(ExchangeModel& model, const ReductionPlan& plan, std::span<const PathTime> begin,
                std::vector<PathTime>& whole)
      : model_(model),
        plan_(plan),
        begin_(begin),
        whole_(whole),
        of_group_(plan.parts.size() * plan.groups.size()),
        of_all_(plan.parts.size()) {}

  void run() {
    for (std::size_t k = 0; k < plan_.parts.size(); ++k) {
      of_all_[k] = {plan_.groups.size(), begin_[number(plan_.parts[k].owner)]};
    }
    for (const bool stays : {false, true}) {  // a member sends what goes further first
      for (std::size_t k = 0; k < plan_.parts.size(); ++k) {
        for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
          if (stays == (plan_.collector(k, g) == plan_.parts[k].owner)) contribute(k, g);
        }
      }
    }
    while (!waiting_.empty()) {
      pass(waiting_.extract(waiting_.begin()).mapped());
    }
  }

 private:
  enum class Way : std::uint8_t { kToCollector, kToOwner, kToOtherCollector, kToMember };
  struct Frame {
    Way way = Way::kToCollector;
    std::size_t part = 0, group = 0, from = 0, to = 0;
    PathTime ready;
  };
  struct Sum {
    std::size_t missing = 0;
    PathTime ready;
  };

  static std::size_t number(WorkerId rank) { return static_cast<std::size_t>(rank.value()); }
  std::size_t collector(std::size_t k, std::size_t g) const {
    return number(plan_.collector(k, g));
  }

  void queue(Frame frame) {
    const double at = frame.ready.at;
    waiting_.emplace(at, std::move(frame));
  }

  void contribute(std::size_t k, std::size_t g) {
    const std::size_t to = collector(k, g);
    of_group_[k * plan_.groups.size() + g] = {plan_.groups[g].size(), begin_[to]};
    for (const WorkerId member : plan_.groups[g]) {
      if (number(member) != to) {
        queue({Way::kToCollector, k, g, number(member), to, begin_[number(member)]});
      }
    }
    take(k, g, begin_[to]);  // its own
  }

  /// A contribution is at its collector.
  void take(std::size_t k, std::size_t g, const PathTime& at) {
    Sum& sum = of_group_[k * plan_.groups.size() + g];
    sum.ready = later(sum.ready, at);
    if (--sum.missing > 0) return;
    const std::size_t owner = number(plan_.parts[k].owner);
    if (collector(k, g) == owner) {
      take_partial(k, sum.ready);
    } else {
      queue({Way::kToOwner, k, g, collector(k, g), owner, sum.ready});
    }
  }

  /// A group's mean is at the part's owner.
  void take_partial(std::size_t k, const PathTime& at) {
    of_all_[k].ready = later(of_all_[k].ready, at);
    if (--of_all_[k].missing > 0) return;
    const std::size_t owner = number(plan_.parts[k].owner);
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
      if (collector(k, g) == owner) {
        give_to_group(k, g, of_all_[k].ready);
      } else {
        queue({Way::kToOtherCollector, k, g, owner, collector(k, g), of_all_[k].ready});
      }
    }
  }

  void give_to_group(std::size_t k, std::size_t g, const PathTime& at) {
    const std::size_t from = collector(k, g);
    whole_[from] = later(whole_[from], at);
    for (const WorkerId member : plan_.groups[g]) {
      if (number(member) != from) queue({Way::kToMember, k, g, from, number(member), at});
    }
  }

  void pass(const Frame& frame) {
    const std::size_t bits = frame.way == Way::kToCollector ? 0 : (model_.workers_ + 7) / 8;
    const PathTime at = model_.send_data(frame.from, frame.to, frame.ready,
                                         plan_.parts[frame.part].bytes, kFrameOverheadBytes + bits);
    switch (frame.way) {
      case Way::kToCollector:
        return take(frame.part, frame.group, at);
      case Way::kToOwner:
        return take_partial(frame.part, at);
      case Way::kToOtherCollector:
        return give_to_group(frame.part, frame.group, at);
      case Way::kToMember:
        whole_[frame.to] = later(whole_[frame.to], at);
        return;
    }
  }

  ExchangeModel& model_;
  const ReductionPlan& plan_;
  const std::span<const PathTime> begin_;
  std::vector<PathTime>& whole_;
  std::vector<Sum> of_group_;             // [part][group]
  std::vector<Sum> of_all_;               // [part]
  std::multimap<double, Frame> waiting_;  // of equal times in the order in which they came
};

void ExchangeModel::reduce_in_groups(const ReductionPlan& plan, std::span<const PathTime> begin,
                                     std::vector<PathTime>& whole) {
  GroupedReduce(*this, plan, begin, whole).run();
}

}  // namespace isthmus::plan
