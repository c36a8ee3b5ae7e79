// SPDX-License-Identifier: Apache-2.0
#include "transport/links/probe/link_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <span>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr Duration kAround = std::chrono::milliseconds(1500);  // a pair's echoes and words

class Surveyor {
 public:
  Surveyor(Transport& transport, Runtime& runtime, const SurveyOptions& options)
      : options_(options),
        mailbox_(transport, runtime, {.names = options.names, .check = options.check}),
        pairs_(survey_pairs(transport.size())) {
    if (options.names.empty()) mailbox_.set_name(self(), options.name);
  }

  Survey run() {
    try {
      greet();
      Survey survey;
      for (std::size_t i = 0; i < pairs_.size(); ++i) {
        release(i);
        survey.pairs.push_back(measure(static_cast<std::uint32_t>(i)));
        if (options_.on_result) options_.on_result(survey.pairs.back(), i + 1, pairs_.size());
      }
      for (int member = 0; member < mailbox_.size(); ++member) {
        survey.names.push_back(mailbox_.name(WorkerId(member)));
      }
      return survey;
    } catch (const std::exception& error) {
      mailbox_.stop(error.what());
      throw;
    }
  }

 private:
  [[nodiscard]] WorkerId self() const { return mailbox_.self(); }

  void greet() {
    const ProbePlan& plan = options_.plan;
    for (int member = 0; member < mailbox_.size(); ++member) {
      if (WorkerId(member) == self()) continue;
      mailbox_.send(
          WorkerId(member),
          ProbeHello{.budget = plan.budget, .streams = plan.streams, .name = options_.name});
    }
    const TimePoint deadline = mailbox_.now() + options_.patience;
    for (int member = 0; member < mailbox_.size(); ++member) {
      const WorkerId peer(member);
      if (peer == self()) continue;
      const auto received = mailbox_.receive(peer, deadline);
      const auto* hello = received ? std::get_if<ProbeHello>(&received->message) : nullptr;
      if (hello == nullptr) {
        throw PeerError(fmt::format("site {} {}: is it measuring too?", mailbox_.name(peer),
                                    received
                                        ? fmt::format("begins with {}", name_of(received->message))
                                        : "does not say how it wants to measure"));
      }
      if (options_.names.empty()) mailbox_.set_name(peer, hello->name);
      if (hello->budget != plan.budget || hello->streams != plan.streams) {
        throw PeerError(fmt::format(
            "sites want to measure differently: --seconds is {:g} here and {:g} at {}, --streams "
            "is {} here and {} there; give the same at all sites",
            in_seconds(plan.budget), in_seconds(hello->budget), mailbox_.name(peer), plan.streams,
            hello->streams));
      }
    }
  }

  /// Until this member has measured after the i-th pair, no member has all results: a member that
  /// has gone has failed, and is missed if it still has a pair to measure. Later, other members may
  /// have the results that this one still waits for, and leave. Then only the members that owe it a
  /// result must be there: the first of each pair, which gives the reason when the second has gone.
  void release(std::size_t i) {
    const std::span rest(pairs_.begin() + static_cast<std::ptrdiff_t>(i), pairs_.end());
    const auto has_a_pair = [](const auto& pairs, WorkerId member) {
      return std::ranges::any_of(
          pairs, [&](const auto& pair) { return pair.first == member || pair.second == member; });
    };
    const bool measures_later = has_a_pair(rest.subspan(1), self());
    for (int member = 0; member < mailbox_.size(); ++member) {
      if (!measures_later || !has_a_pair(rest, WorkerId(member)))
        mailbox_.not_needed(WorkerId(member));
    }
  }

  PairMeasurement measure(std::uint32_t number) {
    const auto [a, b] = pairs_[number];
    const auto say = [this](const std::string& words) {
      if (options_.say) options_.say(words);
    };
    if (self() != a && self() != b) {
      say(fmt::format("{} <-> {}: being measured", mailbox_.name(a), mailbox_.name(b)));
      return hear(number, a, b);
    }
    LinkProbe probe(mailbox_, options_.gauge, options_.plan, number, say);
    if (self() == b) {
      return probe.follow(a);
    }
    PairMeasurement result = probe.lead(b);
    for (int member = 0; member < mailbox_.size(); ++member) {
      if (WorkerId(member) == self()) continue;
      mailbox_.send(WorkerId(member), ProbeResult{.pair = number, .result = result});
    }
    return result;
  }

  PairMeasurement hear(std::uint32_t number, WorkerId a, WorkerId b) {
    const Duration patience = longest_pair(options_.plan) + options_.patience;
    const auto received = mailbox_.receive(a, mailbox_.now() + patience);
    if (!received) {
      throw PeerError(fmt::format("site {} has not told of its link to {} within {:.0f} s",
                                  mailbox_.name(a), mailbox_.name(b), in_seconds(patience)));
    }
    const auto* told = std::get_if<ProbeResult>(&received->message);
    if (told == nullptr || told->pair != number || told->result.a != a || told->result.b != b) {
      throw PeerError(fmt::format("site {} sends {} for the result of its link to {}",
                                  mailbox_.name(a), name_of(received->message), mailbox_.name(b)));
    }
    return told->result;
  }

  const SurveyOptions& options_;
  ProbeMailbox mailbox_;
  const std::vector<std::pair<WorkerId, WorkerId>> pairs_;
};

}  // namespace

// The circle method: member n - 1 stays, the others go round.
std::vector<std::pair<WorkerId, WorkerId>> survey_pairs(int members) {
  ISTHMUS_CHECK(members >= 0, members);
  const int places = members + members % 2;  // with an empty one for odd numbers
  std::vector<std::pair<WorkerId, WorkerId>> pairs;
  for (int round = 0; round < places - 1; ++round) {
    for (int i = 0; i < places / 2; ++i) {
      const int one = i == 0 ? places - 1 : (round + i) % (places - 1);
      const int other = (round + places - 1 - i) % (places - 1);
      if (std::max(one, other) < members) {
        pairs.emplace_back(WorkerId(std::min(one, other)), WorkerId(std::max(one, other)));
      }
    }
  }
  return pairs;
}

Duration survey_time(int members, const ProbePlan& plan) {
  const auto pairs = static_cast<int>(survey_pairs(members).size());
  return pairs * (2 * plan.budget + kAround);
}

Survey survey_links(Transport& transport, Runtime& runtime, const SurveyOptions& options) {
  return Surveyor(transport, runtime, options).run();
}

}  // namespace isthmus
