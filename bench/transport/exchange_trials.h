// SPDX-License-Identifier: Apache-2.0
// What one member of an exchange does and prints, wherever its links are: over real ones
// (bench_exchange_member) or in virtual time (bench_exchange_simulated). A JSON line a trial, and a
// summary:
//   seconds   from the start of the encoding to the committed result; all begin after a barrier
//   begin_s, end_s  the same on the monotonic clock, which processes of one machine share
//   bound_s   the least time any schedule of direct links needs for the encoded bytes (--line-mbit)
//   fraction  bound / seconds
//   user_s, system_s, switches, faults  of this process (getrusage), from begin_s to end_s:
//   processor
//             seconds, changes of context, pages touched for the first time
//   cpu_s_per_gb  those seconds by 1e9 bytes of the vector in fp32, whatever the codec makes of
//   them
//   beside_mib  anonymous memory of this process at the end beyond what it had with the vector
//               alone, its encoding and the mean: what rounds held at most, as freed memory is kept
#pragma once

#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/errors.h"
#include "isthmus/runtime.h"
#include "isthmus/transport.h"

namespace isthmus {

using Seconds = std::chrono::duration<double>;

struct TrialOptions {
  int member = 0;
  int members = 0;
  int streams = 4;                 // for the line it prints; 0: auto
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
  std::string along;  // "ring": in the place of the exchange of runs
};

/// The least seconds of a mean of `bytes`: member i, owner of the share f_i, has to send and to
/// receive bytes (1 + (M - 2) f_i), so the shares are those that let all finish together and, where
/// a line is too slow for any, leave it with none. 2 (M - 1) / M bytes / rate for equal lines.
inline double least_seconds(double bytes, const std::vector<double>& mbit) {
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

inline double machine_seconds() {
  return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// `q` of the sorted values, by nearest rank.
inline double quantile(const std::vector<double>& sorted, double q) {
  const double rank = std::ceil(q * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::max(1.0, rank)) - 1];
}

/// What this process has used of the processors.
struct ProcessUse {
  double user_s = 0;
  double system_s = 0;
  long switches = 0;
  long faults = 0;
};

inline ProcessUse process_use() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return {.user_s = seconds(use.ru_utime),
          .system_s = seconds(use.ru_stime),
          .switches = use.ru_nvcsw + use.ru_nivcsw,
          .faults = use.ru_minflt};
}

/// Anonymous memory of this process, in MiB; 0 where the system does not tell.
inline double anonymous_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stod(line.substr(8)) / 1024;
  }
  return 0;
}

inline std::vector<float> values_of(int member, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(i % 1024) / 1024 + static_cast<float>(member);
  }
  return values;
}

/// THROWS: Error when the mean is not that of values_of, within what int4 may lose.
inline void check_mean(const std::vector<float>& mean, int members) {
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
  Trials(const TrialOptions& bench, Runtime& runtime, Exchange& exchange, bool prints = true)
      : bench_(bench),
        prints_(prints),
        runtime_(runtime),
        exchange_(exchange),
        codec_(make_codec(bench.codec)),
        values_(values_of(bench.member, bench.bytes / sizeof(float))) {
    std::vector<double> mbit = bench.line_mbit;
    if (mbit.size() == 1) mbit.assign(static_cast<std::size_t>(bench.members), mbit.front());
    if (!mbit.empty()) {
      bound_s_ = least_seconds(static_cast<double>(encoded_bytes(*codec_, values_.size())), mbit);
    }
    expected_mib_ = anonymous_mib() + static_cast<double>(encoded_bytes(*codec_, values_.size()) +
                                                          values_.size() * sizeof(float)) /
                                          (1 << 20);
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
    if (!prints_) return;
    std::ranges::sort(seconds_);
    const double median = quantile(seconds_, 0.5);
    const double p95 = quantile(seconds_, 0.95);
    fmt::print(R"({{"bench":"exchange_summary","member":{},"members":{},"codec":"{}","bytes":{},)"
               R"("streams":{},"commit":{},"trials":{},"bound_s":{:.4f},"best_s":{:.4f},)"
               R"("median_s":{:.4f},"p95_s":{:.4f},"fraction_median":{:.3f},"fraction_p95":{:.3f},)"
               R"("cpu_s_per_gb":{:.3f},"beside_mib":{:.1f}}})"
               "\n",
               bench_.member, bench_.members, bench_.codec, bench_.bytes, bench_.streams,
               bench_.commit, bench_.trials, bound_s_, seconds_.front(), median, p95,
               bound_s_ / median, bound_s_ / p95,
               processor_s_ / bench_.trials / static_cast<double>(bench_.bytes) * 1e9,
               anonymous_mib() - expected_mib_);
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
    const ProcessUse before = process_use();
    const double begin_s = machine_seconds();
    const TimePoint begin = runtime_.clock().now();
    const Reduced result = round(values_, bench_.kind, bench_.commit);
    const TimePoint end = runtime_.clock().now();
    const ProcessUse after = process_use();
    check_mean(result.values, exchange_.members());
    if (trial < 0) return;
    const double seconds = Seconds(end - begin).count();
    seconds_.push_back(seconds);
    const double user_s = after.user_s - before.user_s;
    const double system_s = after.system_s - before.system_s;
    processor_s_ += user_s + system_s;
    if (!prints_) return;
    fmt::print(R"({{"bench":"exchange","member":{},"members":{},"trial":{},"codec":"{}",)"
               R"("bytes":{},"seconds":{:.4f},"bound_s":{:.4f},"fraction":{:.3f},)"
               R"("payload_bytes":{},"wire_bytes":{},"begin_s":{:.4f},"end_s":{:.4f},)"
               R"("user_s":{:.4f},"system_s":{:.4f},"switches":{},"faults":{}}})"
               "\n",
               bench_.member, bench_.members, trial, bench_.codec, bench_.bytes, seconds, bound_s_,
               bound_s_ / seconds, result.payload_bytes, result.wire_bytes, begin_s,
               begin_s + seconds, user_s, system_s, after.switches - before.switches,
               after.faults - before.faults);
    std::fflush(stdout);
  }

  const TrialOptions& bench_;
  const bool prints_;
  Runtime& runtime_;
  Exchange& exchange_;
  std::shared_ptr<const Codec> codec_;  // shared with the rounds
  std::vector<float> values_;
  double bound_s_ = 0;
  double expected_mib_ = 0;  // of anonymous memory, without what rounds hold
  std::int64_t step_ = 0;
  std::vector<double> seconds_;
  double processor_s_ = 0;  // of the trials, all threads
};

/// The options of the trials; `app` checks them when it parses.
inline void add_trial_options(CLI::App& app, TrialOptions& bench) {
  static const std::map<std::string, ReductionKind> kKinds = {{"auto", ReductionKind::kAuto},
                                                              {"reduce", ReductionKind::kReduce},
                                                              {"gather", ReductionKind::kGather}};
  app.add_option("--streams", bench.streams, "TCP connections of a directed link, or auto")
      ->transform(CLI::Transformer(std::map<std::string, int>{{"auto", 0}}));
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
  app.add_option("--along", bench.along, "a ring of all, in member order")
      ->check(CLI::IsMember({"ring"}));
  app.add_option("--patience", bench.patience_s, "seconds a trial may take");
}

}  // namespace isthmus
