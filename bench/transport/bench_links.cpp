// SPDX-License-Identifier: Apache-2.0
// Links over ZeroMQ on loopback, all members in this process; a JSON line a measurement:
//   bulk       frames one way, GB/s by frame size and number of connections; beside it what a bare
//              DEALER to ROUTER gave with frames lent, not copied (0: not measured)
//   allreduce  the mean of 64 MB of fp32, seconds and bus GB/s, over ZeroMQ and in memory; beside
//   it
//              gloo on loopback, one process a member
// The figures beside are of a quiet machine with 2 cores; `load` is this one's when it began.
//   bench_links [--curve] [repetitions [MiB of bulk]]
// --curve: with keys, so everything over ZeroMQ is encrypted.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/freed_memory.h"
#include "core/base/system_runtime.h"
#include "transport/exchange/run_in_process.h"
#include "transport/links/zmq/zmq_transport.h"
#include "transport/wire/in_process_transport.h"

namespace isthmus {

bool curve = false;  // links with keys

namespace {

using Seconds = std::chrono::duration<double>;

double load() {
  double value = -1;
  std::ifstream("/proc/loadavg") >> value;
  return value;
}

std::vector<std::unique_ptr<Transport>> joined(Runtime& runtime, int members, int streams) {
  std::vector<std::unique_ptr<NetworkTransport>> bound;
  std::vector<std::string> endpoints;
  std::vector<LinkKeys> keys;
  std::vector<std::string> public_keys;
  for (int rank = 0; curve && rank < members; ++rank) {
    keys.push_back(make_link_keys());
    public_keys.push_back(keys.back().public_key);
  }
  for (int rank = 0; rank < members; ++rank) {
    MemberOptions options;
    options.self = WorkerId(rank);
    options.members = members;
    options.streams = streams;
    if (curve) {
      options.keys = keys[static_cast<std::size_t>(rank)];
      options.member_keys = public_keys;
    }
    bound.push_back(make_zmq_transport(runtime, options));
    endpoints.push_back(bound.back()->endpoint());
  }
  for (const auto& end : bound) end->join(endpoints);
  std::vector<std::unique_ptr<Transport>> ends;
  for (auto& end : bound) {
    if (const auto all = end->await_members(runtime.clock().now() + std::chrono::minutes(1));
        !all) {
      fmt::print(stderr, "{}\n", all.error().what);
      std::exit(5);
    }
    ends.push_back(std::move(end));
  }
  return ends;
}

void bulk(std::size_t frame_bytes, int streams, int repetitions, std::size_t total) {
  SystemRuntime runtime;
  const auto ends = joined(runtime, 2, streams);
  const auto frame = std::make_shared<const std::vector<std::byte>>(frame_bytes, std::byte{1});
  const std::size_t frames = std::max<std::size_t>(1, total / frame_bytes);
  std::vector<double> gb_s;
  for (int repetition = 0; repetition <= repetitions; ++repetition) {  // the first one warms up
    const TimePoint begin = runtime.clock().now();
    for (std::size_t i = 0; i < frames; ++i) ends[0]->send(WorkerId(1), frame);
    for (std::size_t i = 0; i < frames; ++i) {
      if (const auto got = ends[1]->receive(kNever); !got) {
        fmt::print(stderr, "{}\n", got.error().what);
        std::exit(5);
      }
    }
    const double seconds = Seconds(runtime.clock().now() - begin).count();
    gb_s.push_back(static_cast<double>(frames * frame_bytes) / seconds / 1e9);
  }
  std::sort(gb_s.begin() + 1, gb_s.end());
  const double bare = frame_bytes == 65536 ? 1.17 : frame_bytes == (1 << 20) ? 3.49 : 0;
  fmt::print(
      R"({{"bench":"bulk","curve":{},"frame_bytes":{},"streams":{},"mib":{},"repetitions":{},)"
      R"("best_gb_s":{:.2f},"median_gb_s":{:.2f},"bare_zmq_gb_s":{},"load":{}}})"
      "\n",
      curve, frame_bytes, streams, total >> 20, repetitions, gb_s.back(), gb_s[gb_s.size() / 2],
      bare, load());
  std::fflush(stdout);
}

void all_reduce(int members, const std::string& spelling, bool zmq, int repetitions) {
  constexpr std::size_t kValues = 16'000'000;
  SystemRuntime runtime;
  const std::shared_ptr<const Codec> codec = make_codec(spelling);
  const std::vector<float> values(kValues, 0.5f);
  std::vector<double> seconds;
  const auto body = [&](WorkerContext& context) {
    std::int64_t step = 0;
    const auto round = [&](const std::vector<float>& mine, ReductionKind kind) {
      const SyncId id{FragmentId(0), StepIndex(++step)};
      Contribution contribution{.id = id,
                                .encoded = encode(*codec, mine, context.exchange.key(id)),
                                .codec = codec,
                                .kind = kind};
      const TimePoint begin = context.runtime.clock().now();
      const auto result = context.exchange.wait(context.exchange.begin(std::move(contribution)),
                                                std::chrono::minutes(5));
      if (!result) {
        fmt::print(stderr, "{}\n", result.error().what);
        std::exit(5);
      }
      return Seconds(context.runtime.clock().now() - begin).count();
    };
    for (int repetition = 0; repetition <= repetitions; ++repetition) {
      round({}, ReductionKind::kGather);  // all begin together
      const double took = round(values, ReductionKind::kReduce);
      if (context.rank == WorkerId(0) && repetition > 0) seconds.push_back(took);
    }
  };
  const auto ends =
      zmq ? joined(runtime, members, 4) : make_in_process_transports(runtime, members);
  run_over(runtime, ends, PeerExchangeOptions{}, body);
  std::ranges::sort(seconds);
  const double bus =
      2.0 * (members - 1) / members * kValues * sizeof(float) / seconds.front() / 1e9;
  const double gloo = members == 2 ? 0.045 : 0.129;
  fmt::print(
      R"({{"bench":"allreduce","transport":"{}","members":{},"codec":"{}","mb":{},)"
      R"("repetitions":{},"best_s":{:.4f},"median_s":{:.4f},"bus_gb_s":{:.2f},"gloo_fp32_s":{},)"
      R"("load":{}}})"
      "\n",
      !zmq    ? "inproc"
      : curve ? "zmq+curve"
              : "zmq",
      members, spelling, kValues * sizeof(float) / 1000000, repetitions, seconds.front(),
      seconds[seconds.size() / 2], bus, gloo, load());
  std::fflush(stdout);
}

}  // namespace
}  // namespace isthmus

int main(int argc, char** argv) {
  isthmus::keep_freed_memory();  // as the program does
  if (argc > 1 && std::string_view(argv[1]) == "--curve") {
    isthmus::curve = true;
    --argc;
    ++argv;
  }
  const int repetitions = argc > 1 ? std::stoi(argv[1]) : 5;
  const std::size_t total = (argc > 2 ? std::stoull(argv[2]) : 1024) << 20;
  if (isthmus::zmq_version().empty()) {
    fmt::print(stderr, "this build has no ZeroMQ: apt install libzmq3-dev cppzmq-dev\n");
    return 4;
  }
  for (const int streams : {1, 2, 4}) {
    for (const std::size_t frame :
         {std::size_t{65536}, std::size_t{1} << 19, std::size_t{1} << 20}) {
      isthmus::bulk(frame, streams, repetitions, total);
    }
  }
  for (const int members : {2, 4}) {
    for (const char* codec : {"fp32", "int8"}) {
      isthmus::all_reduce(members, codec, true, repetitions);
      isthmus::all_reduce(members, codec, false, repetitions);
    }
  }
}
