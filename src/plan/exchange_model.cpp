// SPDX-License-Identifier: Apache-2.0
#include "plan/exchange_model.h"

#include <algorithm>
#include <chrono>

#include "core/check.h"
#include "core/hash.h"
#include "transport/frame.h"
#include "transport/reduction.h"

namespace isthmus::plan {
namespace {

constexpr double kDoneBytes = kFrameOverheadBytes + sizeof(Digest128::bytes);
constexpr double kCommitBytes = kFrameOverheadBytes;

double in_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

ExchangeModel::ExchangeModel(const PredictionInput& input)
    : input_(input),
      workers_(static_cast<std::size_t>(input.workers)),
      link_free_(workers_ * workers_) {
  ISTHMUS_CHECK(input.links.size() == link_free_.size(), input.links.size(), input.workers);
}

double ExchangeModel::seconds(std::size_t link, double bytes) const {
  const double rate = input_.links[link].bits_per_s;
  return rate > 0 ? bytes * input_.byte_scale * 8 / rate : 0;
}

PathTime ExchangeModel::send_data(std::size_t from, std::size_t to, const PathTime& ready,
                                  double payload_bytes, double header_bytes) {
  const std::size_t link = pair(from, to);
  PathTime time = later(ready, link_free_[link]);
  const double payload_s = seconds(link, payload_bytes);
  const double header_s = seconds(link, header_bytes);
  time.at += payload_s + header_s;
  time.payload_s += payload_s;
  time.payload_bytes += payload_bytes;
  time.header_s += header_s;
  time.header_bytes += header_bytes;
  link_free_[link] = time;
  payload_bytes_ += payload_bytes;
  wire_bytes_ += payload_bytes + header_bytes;
  const double one_way = in_seconds(input_.links[link].one_way);
  time.at += one_way;
  time.propagation_s += one_way;
  ++time.hops;
  return time;
}

PathTime ExchangeModel::send_word(std::size_t from, std::size_t to, const PathTime& ready,
                                  double bytes) {
  const std::size_t link = pair(from, to);
  PathTime time = later(ready, link_free_[link]);
  const double word_s = seconds(link, bytes) + in_seconds(input_.links[link].one_way);
  time.at += word_s;
  time.commit_s += word_s;
  ++time.commit_hops;
  wire_bytes_ += bytes;
  return time;
}

std::vector<PathTime> ExchangeModel::exchange(std::int64_t elements,
                                              std::span<const PathTime> begin) {
  const ReductionKind kind = resolve_reduction(input_.exchange, *input_.codec, input_.workers);
  const ReductionPlan plan =
      make_reduction_plan(*input_.codec, static_cast<std::size_t>(elements), input_.workers, kind);
  std::vector<PathTime> whole(begin.begin(), begin.end());
  if (kind == ReductionKind::kGather) {
    std::vector<std::size_t> part_bytes;
    for (const Part& part : plan.parts) {
      part_bytes.push_back(part.bytes);
    }
    gather(part_bytes, begin, whole);
    return whole;
  }
  // All contributions are queued when a worker begins, before any of its results.
  std::vector<PathTime> reduced(plan.parts.size());
  for (std::size_t k = 0; k < plan.parts.size(); ++k) {
    const auto owner = static_cast<std::size_t>(plan.parts[k].owner.value());
    reduced[k] = begin[owner];
    for (std::size_t from = 0; from < workers_; ++from) {
      if (from != owner) {
        reduced[k] = later(
            reduced[k], send_data(from, owner, begin[from],
                                  static_cast<double>(plan.parts[k].bytes), kFrameOverheadBytes));
      }
    }
  }
  const std::size_t bitmap = (workers_ + 7) / 8;
  for (std::size_t k = 0; k < plan.parts.size(); ++k) {
    const auto owner = static_cast<std::size_t>(plan.parts[k].owner.value());
    whole[owner] = later(whole[owner], reduced[k]);
    for (std::size_t to = 0; to < workers_; ++to) {
      if (to != owner) {
        whole[to] = later(whole[to],
                          send_data(owner, to, reduced[k], static_cast<double>(plan.parts[k].bytes),
                                    static_cast<double>(kFrameOverheadBytes + bitmap)));
      }
    }
  }
  return whole;
}

void ExchangeModel::gather(const std::vector<std::size_t>& part_bytes,
                           std::span<const PathTime> begin, std::vector<PathTime>& whole) {
  double payload = 0;
  for (const std::size_t bytes : part_bytes) {
    payload += static_cast<double>(bytes);
  }
  const double headers = static_cast<double>(part_bytes.size() * kFrameOverheadBytes);
  for (std::size_t from = 0; from < workers_ && !part_bytes.empty(); ++from) {
    for (std::size_t to = 0; to < workers_; ++to) {
      if (to != from) {
        whole[to] = later(whole[to], send_data(from, to, begin[from], payload, headers));
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
