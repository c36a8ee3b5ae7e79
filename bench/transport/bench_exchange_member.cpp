// SPDX-License-Identifier: Apache-2.0
// One member of an exchange, a process of its own, for links that are no loopback (wan.py starts
// one in each of several network namespaces). All members are given the same endpoints and options.
// A JSON line a trial, and a summary:
//   seconds   from the start of the encoding to the committed result; all begin after a barrier
//   begin_s, end_s  the same on the monotonic clock, which processes of one machine share
//   bound_s   the least time any schedule of direct links needs for the encoded bytes (--line-mbit)
//   fraction  bound / seconds
//   bench_exchange_member --member 0 --endpoints tcp://10.0.0.1:4000,tcp://10.0.0.2:4000 ...
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/freed_memory.h"
#include "core/system_runtime.h"
#include "isthmus/errors.h"
#include "transport/peer_exchange.h"
#include "transport/zmq_transport.h"

namespace isthmus {
namespace {

using Seconds = std::chrono::duration<double>;

struct MemberBench {
  int member = 0;
  std::vector<std::string> endpoints;
  int streams = 4;
  std::size_t bytes = 25'000'000;  // of the vector in fp32
  std::string codec = "fp32";
  ReductionKind kind = ReductionKind::kAuto;
  bool commit = true;
  std::vector<std::uint32_t> shares;
  int trials = 20;
  int warm_ups = 1;
  double pause_s = 0;
  std::vector<double> line_mbit;  // one a member, or one for all; empty: no bound
  double patience_s = 300;
};

/// The least seconds of a mean of `bytes`: member i, owner of the share f_i, has to send and to
/// receive bytes (1 + (M - 2) f_i), so the shares are those that let all finish together and, where
/// a line is too slow for any, leave it with none. 2 (M - 1) / M bytes / rate for equal lines.
double least_seconds(double bytes, const std::vector<double>& mbit) {
  const double others = static_cast<double>(mbit.size()) - 2;
  const double slowest = *std::ranges::min_element(mbit);
  double low = bytes * 8 / (slowest * 1e6);  // everyone's own vector has to get out
  if (others <= 0) return low;
  const auto owned = [&](double seconds) {
    double sum = 0;
    for (const double rate : mbit) {
      sum += std::max(0.0, (seconds * rate * 1e6 / 8 / bytes - 1) / others);
    }
    return sum;
  };
  double high = 2 * low;  // then even the slowest could own its even share
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (owned(middle) < 1 ? low : high) = middle;
  }
  return high;
}

/// `q` of the sorted values, by nearest rank.
double quantile(const std::vector<double>& sorted, double q) {
  const double rank = std::ceil(q * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::max(1.0, rank)) - 1];
}

std::vector<float> values_of(int member, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(i % 1024) / 1024 + static_cast<float>(member);
  }
  return values;
}

/// THROWS: PeerError when the mean is not that of values_of, within what int4 may lose.
void check_mean(const std::vector<float>& mean, int members) {
  const float tolerance = 0.15f * static_cast<float>(members);
  for (std::size_t i = 0; i < mean.size(); i += 997) {
    const float want = static_cast<float>(i % 1024) / 1024 + static_cast<float>(members - 1) / 2;
    if (!(std::abs(mean[i] - want) <= tolerance)) {
      throw Error(ExitCode::kRunFailed, fmt::format("value {} of the mean is {}, want {}: the "
                                                    "exchange is broken",
                                                    i, mean[i], want));
    }
  }
}

class Trials {
 public:
  Trials(const MemberBench& bench, Runtime& runtime, PeerExchange& exchange)
      : bench_(bench),
        runtime_(runtime),
        exchange_(exchange),
        codec_(make_codec(bench.codec)),
        values_(values_of(bench.member, bench.bytes / sizeof(float))) {
    std::vector<double> mbit = bench.line_mbit;
    if (mbit.size() == 1) mbit.assign(bench.endpoints.size(), mbit.front());
    if (!mbit.empty()) {
      bound_s_ = least_seconds(static_cast<double>(encoded_bytes(*codec_, values_.size())), mbit);
    }
  }

  void run() {
    for (int trial = -bench_.warm_ups; trial < bench_.trials; ++trial) {
      if (bench_.pause_s > 0) {
        runtime_.sleep_until(runtime_.clock().now() +
                             std::chrono::duration_cast<Duration>(Seconds(bench_.pause_s)));
      }
      round({}, ReductionKind::kGather, true);  // a barrier: all begin together
      one(trial);
    }
    round({}, ReductionKind::kGather, true);  // commits what did not commit by itself
    std::ranges::sort(seconds_);
    const double median = quantile(seconds_, 0.5);
    const double p95 = quantile(seconds_, 0.95);
    fmt::print(
        R"({{"bench":"exchange_summary","member":{},"members":{},"codec":"{}","bytes":{},)"
        R"("streams":{},"commit":{},"trials":{},"bound_s":{:.4f},"best_s":{:.4f},)"
        R"("median_s":{:.4f},"p95_s":{:.4f},"fraction_median":{:.3f},"fraction_p95":{:.3f}}})"
        "\n",
        bench_.member, bench_.endpoints.size(), bench_.codec, bench_.bytes, bench_.streams,
        bench_.commit, bench_.trials, bound_s_, seconds_.front(), median, p95, bound_s_ / median,
        bound_s_ / p95);
  }

 private:
  Reduced round(const std::vector<float>& values, ReductionKind kind, bool commit) {
    const SyncId id{FragmentId(0), StepIndex(++step_)};
    auto result =
        exchange_.wait(exchange_.begin({.id = id,
                                        .encoded = encode(*codec_, values, exchange_.key(id)),
                                        .codec = codec_,
                                        .kind = kind,
                                        .commit = commit}),
                       std::chrono::duration_cast<Duration>(Seconds(bench_.patience_s)));
    if (!result) throw PeerError(result.error().what);
    return std::move(*result);
  }

  void one(int trial) {
    const auto begin = std::chrono::steady_clock::now();
    const Reduced result = round(values_, bench_.kind, bench_.commit);
    const auto end = std::chrono::steady_clock::now();
    check_mean(result.values, exchange_.members());
    if (trial < 0) return;
    const double seconds = Seconds(end - begin).count();
    seconds_.push_back(seconds);
    fmt::print(R"({{"bench":"exchange","member":{},"members":{},"trial":{},"codec":"{}",)"
               R"("bytes":{},"seconds":{:.4f},"bound_s":{:.4f},"fraction":{:.3f},)"
               R"("payload_bytes":{},"wire_bytes":{},"begin_s":{:.4f},"end_s":{:.4f}}})"
               "\n",
               bench_.member, bench_.endpoints.size(), trial, bench_.codec, bench_.bytes, seconds,
               bound_s_, bound_s_ / seconds, result.payload_bytes, result.wire_bytes,
               Seconds(begin.time_since_epoch()).count(), Seconds(end.time_since_epoch()).count());
    std::fflush(stdout);
  }

  const MemberBench& bench_;
  Runtime& runtime_;
  PeerExchange& exchange_;
  std::shared_ptr<const Codec> codec_;  // shared with the rounds
  std::vector<float> values_;
  double bound_s_ = 0;
  std::int64_t step_ = 0;
  std::vector<double> seconds_;
};

void run(const MemberBench& bench) {
  if (bench.member < 0 || bench.member >= static_cast<int>(bench.endpoints.size())) {
    throw ConfigError(fmt::format("--member {}: there are {} endpoints, numbered from 0",
                                  bench.member, bench.endpoints.size()));
  }
  if (bench.line_mbit.size() > 1 && bench.line_mbit.size() != bench.endpoints.size()) {
    throw ConfigError(
        fmt::format("--line-mbit has {} values for {} endpoints: want one, or one a "
                    "member",
                    bench.line_mbit.size(), bench.endpoints.size()));
  }
  SystemRuntime runtime;
  MemberOptions options;
  options.self = Rank(bench.member);
  options.members = static_cast<int>(bench.endpoints.size());
  options.bind = bench.endpoints[static_cast<std::size_t>(bench.member)];
  options.streams = bench.streams;
  options.plaintext = true;  // a private network of namespaces
  const auto transport = make_zmq_transport(runtime, options);
  transport->join(bench.endpoints);
  if (const auto all = transport->await_members(runtime.clock().now() + std::chrono::minutes(1));
      !all) {
    throw PeerError(all.error().what);
  }
  PeerExchange exchange(*transport, runtime, {.shares = bench.shares});
  Trials(bench, runtime, exchange).run();
  exchange.leave(std::chrono::minutes(1));
}

const std::map<std::string, ReductionKind> kKinds = {{"auto", ReductionKind::kAuto},
                                                     {"reduce", ReductionKind::kReduce},
                                                     {"gather", ReductionKind::kGather}};

}  // namespace
}  // namespace isthmus

int main(int argc, char** argv) {
  using namespace isthmus;
  keep_freed_memory();  // as the program does
  MemberBench bench;
  CLI::App app("one member of an exchange over ZeroMQ, a process of its own");
  app.add_option("--member", bench.member, "which of the endpoints is this one")->required();
  app.add_option("--endpoints", bench.endpoints, "tcp://HOST:PORT of all, in member order")
      ->required()
      ->delimiter(',');
  app.add_option("--streams", bench.streams, "TCP connections of a directed link");
  app.add_option("--bytes", bench.bytes, "of the vector in fp32")
      ->check(CLI::Range(std::size_t{4096}, std::size_t{1} << 34));
  app.add_option("--codec", bench.codec);
  app.add_option("--kind", bench.kind)->transform(CLI::CheckedTransformer(kKinds));
  app.add_flag("--commit,!--no-commit", bench.commit, "results once all are known to have them");
  app.add_option("--shares", bench.shares, "of the owners, one a member; even")->delimiter(',');
  app.add_option("--trials", bench.trials)->check(CLI::Range(1, 100'000));
  app.add_option("--warm-ups", bench.warm_ups)->check(CLI::Range(0, 1000));
  app.add_option("--pause", bench.pause_s, "seconds of silence before each trial");
  app.add_option("--line-mbit", bench.line_mbit, "for the bound: one, or one a member")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--patience", bench.patience_s, "seconds a trial may take");
  try {
    app.parse(argc, argv);
    run(bench);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  } catch (const Error& error) {
    fmt::print(stderr, "error: member {}: {}\n", bench.member, error.what());
    return static_cast<int>(error.exit_code());
  }
}
