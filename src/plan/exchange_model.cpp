// SPDX-License-Identifier: Apache-2.0
#include "plan/exchange_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "transport/wire/frame.h"

namespace isthmus::plan {
namespace {

constexpr std::size_t kDoneBytes = kFrameOverheadBytes + sizeof(Digest128::bytes);
constexpr std::size_t kCommitBytes = kFrameOverheadBytes;

TimePoint to_time(double seconds) { return TimePoint(Duration(std::llround(seconds * 1e9))); }

/// A frame of b bytes takes b * 8 / rate, whatever went before.
bool leaves_at_line_rate(const DirectedLink& link, const LinkOptions& options) {
  return link.bits_per_s == 0 || (options.model == LinkModel::kPlain && !options.slow_start &&
                                  steady_goodput(link, LinkModel::kPlain) == link.bits_per_s);
}

}  // namespace

ExchangeModel::ExchangeModel(const PredictionInput& input)
    : input_(input), workers_(static_cast<std::size_t>(input.workers)), processors_(workers_) {
  ISTHMUS_CHECK(input.links.size() == workers_ * workers_, input.links.size(), input.workers);
  for (const DirectedLink& directed : input.links) {
    Link link{.line_bits_per_s = static_cast<double>(directed.bits_per_s),
              .one_way_s = in_seconds(directed.one_way)};
    if (!leaves_at_line_rate(directed, input.link)) {
      DirectedLink steady = directed;
      steady.jitter = Duration{0};
      link.curve.emplace(steady, input.link, std::uint64_t{0}, std::uint32_t{0});
    }
    links_.push_back(std::move(link));
  }
}

PathTime ExchangeModel::send_data(std::size_t from, std::size_t to, const PathTime& ready,
                                  std::size_t payload_bytes, std::size_t header_bytes) {
  Link& way = link(from, to);
  const auto payload = static_cast<double>(payload_bytes);
  const auto headers = static_cast<double>(header_bytes);
  const double s_per_byte =
      way.line_bits_per_s > 0 ? input_.link.byte_scale * 8 / way.line_bits_per_s : 0;
  PathTime time = later(ready, way.free);
  const double begin = time.at;
  time.at += (payload + headers) * s_per_byte;
  time.payload_s += payload * s_per_byte;
  time.payload_bytes += payload;
  time.header_s += headers * s_per_byte;
  time.header_bytes += headers;
  if (way.curve) {
    const Passage passage = way.curve->send(to_time(begin), payload_bytes + header_bytes);
    const double left = in_seconds(passage.departure.time_since_epoch());
    time.below_line_s += left - time.at;
    time.at = left;
  }
  way.free = time;
  payload_bytes_ += payload;
  wire_bytes_ += payload + headers;
  time.at += way.one_way_s;
  time.propagation_s += way.one_way_s;
  ++time.hops;
  return time;
}

PathTime ExchangeModel::send_word(std::size_t from, std::size_t to, const PathTime& ready,
                                  std::size_t bytes) {
  Link& way = link(from, to);
  PathTime time = later(ready, way.free);
  double word_s = way.one_way_s;
  if (way.curve) {  // it may open or close the windows, so it takes its place there
    const Passage passage = way.curve->send(to_time(time.at), bytes);
    word_s += in_seconds(passage.departure.time_since_epoch()) - time.at;
  } else if (way.line_bits_per_s > 0) {
    word_s += static_cast<double>(bytes) * input_.link.byte_scale * 8 / way.line_bits_per_s;
  }
  time.at += word_s;
  time.commit_s += word_s;
  ++time.commit_hops;
  wire_bytes_ += static_cast<double>(bytes);
  return time;
}

ReductionPlan ExchangeModel::plan_of(std::int64_t elements) const {
  const ReductionKind kind = resolve_reduction(input_.exchange, *input_.codec, input_.workers);
  const auto values = static_cast<std::size_t>(elements);
  ReductionPlan plan = make_reduction_plan(*input_.codec, values, input_.workers, kind,
                                           input_.shares, input_.chunk_bytes);
  if (!input_.groups.empty()) add_groups(plan, input_.groups, {}, input_.shares);
  return plan;
}

std::vector<PathTime> ExchangeModel::play(const ReductionPlan& plan,
                                          std::span<const PathTime> begin) {
  std::vector<PathTime> whole(begin.begin(), begin.end());
  if (plan.all_to_all()) {
    gather(plan, begin, whole);
  } else if (plan.two_levels()) {
    reduce_in_groups(plan, begin, whole);
  } else {
    reduce(plan, begin, whole);
  }
  if (input_.processor_bits_per_s > 0) bound_by_processors(plan, begin, whole);
  return whole;
}

void ExchangeModel::bound_by_processors(const ReductionPlan& plan, std::span<const PathTime> begin,
                                        std::vector<PathTime>& whole) {
  constexpr double kValueBits = 32;
  double values = 0;
  for (const Part& part : plan.parts) values += static_cast<double>(part.values);
  const double seconds = values * kValueBits * input_.link.byte_scale / input_.processor_bits_per_s;
  PathTime last;
  for (std::size_t w = 0; w < workers_; ++w) {
    PathTime time = later(begin[w], processors_[w]);
    time.at += seconds;
    time.processor_s += seconds;
    processors_[w] = time;
    last = later(last, time);
  }
  for (PathTime& each : whole) each = later(each, last);
}

std::vector<PathTime> ExchangeModel::exchange(std::int64_t elements,
                                              std::span<const PathTime> begin) {
  return play(plan_of(elements), begin);
}

// Without groups parts are alike whatever round they are of: those of all rounds make one plan.
std::vector<PathTime> ExchangeModel::exchange_together(std::span<const std::int64_t> elements,
                                                       std::span<const PathTime> begin) {
  std::vector<ReductionPlan> plans;
  for (const std::int64_t each : elements) {
    ReductionPlan plan = plan_of(each);
    if (plans.empty() || plan.two_levels()) {
      plans.push_back(std::move(plan));
    } else {
      std::vector<Part>& parts = plans.front().parts;
      parts.insert(parts.end(), plan.parts.begin(), plan.parts.end());
    }
  }
  std::vector<PathTime> whole(begin.begin(), begin.end());
  for (const ReductionPlan& plan : plans) {
    const std::vector<PathTime> of_plan = play(plan, begin);
    for (std::size_t w = 0; w < workers_; ++w) whole[w] = later(whole[w], of_plan[w]);
  }
  return whole;
}

// The parts of a vector follow each other on a link without a gap: one transfer.
void ExchangeModel::gather(const ReductionPlan& plan, std::span<const PathTime> begin,
                           std::vector<PathTime>& whole) {
  std::size_t payload = 0;
  for (const Part& part : plan.parts) {
    payload += part.bytes;
  }
  const std::size_t headers = plan.parts.size() * kFrameOverheadBytes;
  for (std::size_t from = 0; from < workers_ && headers > 0; ++from) {
    for (std::size_t to = 0; to < workers_; ++to) {
      if (to != from) {
        whole[to] = later(whole[to], send_data(from, to, begin[from], payload, headers));
      }
    }
  }
}

// All contributions are queued when a worker begins, before any of its results; an owner answers
// part by part.
void ExchangeModel::reduce(const ReductionPlan& plan, std::span<const PathTime> begin,
                           std::vector<PathTime>& whole) {
  std::vector<PathTime> reduced;
  for (const Part& part : plan.parts) {
    const auto owner = static_cast<std::size_t>(part.owner.value());
    PathTime ready = begin[owner];
    for (std::size_t from = 0; from < workers_; ++from) {
      if (from != owner) {
        ready = later(ready, send_data(from, owner, begin[from], part.bytes, kFrameOverheadBytes));
      }
    }
    reduced.push_back(ready);
  }
  const std::size_t contributor_bits = (workers_ + 7) / 8;
  for (std::size_t k = 0; k < plan.parts.size(); ++k) {
    const auto owner = static_cast<std::size_t>(plan.parts[k].owner.value());
    whole[owner] = later(whole[owner], reduced[k]);
    for (std::size_t to = 0; to < workers_; ++to) {
      if (to != owner) {
        whole[to] = later(whole[to], send_data(owner, to, reduced[k], plan.parts[k].bytes,
                                               kFrameOverheadBytes + contributor_bits));
      }
    }
  }
}

std::vector<PathTime> ExchangeModel::commit(std::span<const PathTime> whole) {
  PathTime verdict = whole[0];
  for (std::size_t from = 1; from < workers_; ++from) {
    verdict = later(verdict, send_word(from, 0, whole[from], kDoneBytes));
  }
  std::vector<PathTime> known{verdict};
  for (std::size_t to = 1; to < workers_; ++to) {
    known.push_back(send_word(0, to, verdict, kCommitBytes));
  }
  return known;
}

}  // namespace isthmus::plan
