// SPDX-License-Identifier: Apache-2.0
#include "app/commands/bench/exchange_cost.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/system_runtime.h"
#include "isthmus/codec.h"
#include "isthmus/errors.h"
#include "transport/exchange/run_in_process.h"
#include "transport/links/zmq/zmq_transport.h"

namespace isthmus::app {
namespace {

constexpr Duration kLoopbackPatience = std::chrono::minutes(1);
constexpr int kLoopbackWarmUps = 2;
constexpr int kFewestRounds = 3, kMostRounds = 20;

std::vector<std::unique_ptr<Transport>> loopback_links(Runtime& runtime, int members) {
  std::vector<std::unique_ptr<NetworkTransport>> bound;
  std::vector<std::string> endpoints;
  for (int member = 0; member < members; ++member) {
    MemberOptions options;
    options.self = WorkerId(member);
    options.members = members;
    bound.push_back(make_zmq_transport(runtime, options));
    endpoints.push_back(bound.back()->endpoint());
  }
  for (const auto& end : bound) end->join(endpoints);
  std::vector<std::unique_ptr<Transport>> links;
  for (auto& end : bound) {
    if (const auto all = end->await_members(runtime.clock().now() + kLoopbackPatience); !all) {
      throw PeerError("links over loopback: " + all.error().what);
    }
    links.push_back(std::move(end));
  }
  return links;
}

/// Values of which each codec keeps all.
std::vector<float> some_values(std::size_t count) {
  constexpr std::size_t kPeriod = 1021;
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(i % kPeriod) / kPeriod - 0.5f;
  }
  return values;
}

/// The rounds of one member, whose ids follow one another.
class LoopbackRounds {
 public:
  LoopbackRounds(Exchange& exchange, std::shared_ptr<const Codec> codec, ReductionKind kind)
      : exchange_(exchange), codec_(std::move(codec)), kind_(kind) {}

  void exchange(const std::vector<float>& values) { round(values, kind_); }
  void barrier() { round({}, ReductionKind::kGather); }

 private:
  void round(const std::vector<float>& values, ReductionKind kind) {
    const SyncId id{FragmentId(0), StepIndex(++step_)};
    const auto result =
        exchange_.wait(exchange_.begin({.id = id,
                                        .encoded = encode(*codec_, values, exchange_.key(id)),
                                        .codec = codec_,
                                        .kind = kind}),
                       kLoopbackPatience);
    if (!result) throw PeerError("an exchange over loopback: " + result.error().what);
  }

  Exchange& exchange_;
  std::shared_ptr<const Codec> codec_;  // shared with the rounds
  ReductionKind kind_;
  std::int64_t step_ = 0;
};

/// Encoded vectors that a member sends in a round.
double vectors_sent(ReductionKind kind, int members) {
  const double others = members - 1;
  return kind == ReductionKind::kGather ? others : 2 * others / members;
}

}  // namespace

double ExchangeCost::site_s() const {
  return round_s * std::min(1.0, static_cast<double>(cores) / members);
}

double ExchangeCost::line_bits_per_s() const {
  return vectors_sent(kind, members) * 8 * static_cast<double>(encoded_bytes) / site_s();
}

double ExchangeCost::round_of(double all_bytes, int of_members) const {
  const double more = vectors_sent(kind, of_members) / vectors_sent(kind, members);
  return more * 8 * all_bytes / bits_per_s();
}

ExchangeCost measure_exchange(const ExchangeTrial& trial, Duration budget) {
  const int members = trial.members;
  ISTHMUS_CHECK(members >= 2, members);
  ISTHMUS_CHECK(trial.bytes >= sizeof(float), trial.bytes);
  const std::shared_ptr<const Codec> shared = make_codec(trial.codec);
  const std::vector<float> values = some_values(trial.bytes / sizeof(float));
  ExchangeCost cost{.codec = trial.codec,
                    .kind = trial.kind,
                    .members = members,
                    .bytes = values.size() * sizeof(float),
                    .encoded_bytes = encoded_bytes(*shared, values.size()),
                    .cores = trial.cores};
  std::vector<double> took_s;
  SystemRuntime runtime;
  std::atomic<int> rounds{1};  // set by member 0 before a barrier, read by all after it
  run_over(runtime, loopback_links(runtime, members), PeerExchangeOptions{},
           [&](WorkerContext& context) {
             LoopbackRounds own(context.exchange, shared, trial.kind);
             const bool first = context.rank == WorkerId(0);
             own.barrier();
             const TimePoint begin = runtime.clock().now();
             for (int i = 0; i < kLoopbackWarmUps; ++i) own.exchange(values);
             if (first) {
               const Duration each = (runtime.clock().now() - begin) / kLoopbackWarmUps;
               const auto fit = budget / std::max<Duration>(each, Duration{1});
               rounds = static_cast<int>(std::clamp<std::int64_t>(fit, kFewestRounds, kMostRounds));
             }
             own.barrier();
             const double before_s = processor_seconds();
             for (int i = 0; i < rounds; ++i) {
               const TimePoint round_begin = runtime.clock().now();
               own.exchange(values);
               if (first) took_s.push_back(in_seconds(runtime.clock().now() - round_begin));
             }
             own.barrier();
             if (first) cost.processor_s = processor_seconds() - before_s;
           });
  cost.rounds = rounds;
  cost.processor_s /= static_cast<double>(cost.rounds) * members;
  std::ranges::sort(took_s);
  cost.round_s = took_s[took_s.size() / 2];
  return cost;
}

double processor_seconds() {
  rusage use{};
  (void)::getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

}  // namespace isthmus::app
