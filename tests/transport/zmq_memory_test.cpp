// SPDX-License-Identifier: Apache-2.0
// What a round over ZeroMQ on loopback holds beside its contribution and its result: at most 8 MiB
// a link of a member, and one part.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/freed_memory.h"
#include "core/base/system_runtime.h"
#include "transport/exchange/reduction.h"
#include "transport/exchange/run_in_process.h"
#include "transport/links/link_flow.h"
#include "transport/naive_mean.h"
#include "zmq_members.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kValues = 8'000'000;
constexpr double kMib = 1 << 20;
/// What the process had already, and tasks and sockets.
constexpr double kSlackMib = 2;

/// Anonymous memory of this process, in MiB.
double anonymous_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stod(line.substr(8)) / 1024;
  }
  return 0;
}

/// What rounds have held at most beside vectors, in MiB. Freed blocks as large as vectors go back
/// to the system here, smaller ones stay: so what stays at the end is the most that frames have
/// taken.
double beside_mib(int members, const std::string& codec_name) {
  const std::shared_ptr<const Codec> codec = make_codec(codec_name);
  const std::vector<float> values = testing_support::test_vector(WorkerId(0), kValues);
  SystemRuntime runtime;
  std::vector<std::unique_ptr<Transport>> ends;
  const auto as_in_runs = [](MemberOptions& options) {
    set_streams(options, 0);
    options.far = 1min;  // a busy machine's handshakes are slow
  };
  for (auto& end : testing_support::joined_members(runtime, members, as_in_runs)) {
    ends.push_back(std::move(end));
  }
  keep_freed_small_blocks();
  const double before = anonymous_mib();
  run_over(runtime, ends, {}, [&](WorkerContext& context) {
    for (int step = 1; step <= 13; ++step) {
      // Each after one of no values: their words have all acknowledged the round before, whose
      // encoded vector is kept until then, and have gone over every link before values do.
      const auto x = std::span(values).first(step % 2 == 1 ? 0 : kValues);
      const SyncId id{FragmentId(0), StepIndex(step)};
      const auto result = context.exchange.wait(
          context.exchange.begin(
              {.id = id, .encoded = encode(*codec, x, encode_key(id, 0)), .codec = codec}),
          300s);
      ASSERT_TRUE(result.has_value()) << result.error().what;
    }
  });
  return anonymous_mib() - before;
}

TEST(ZmqMemory, ARoundHoldsEightMebibytesALinkBesideItsVectors) {
  if (zmq_version().empty()) GTEST_SKIP() << "this build has no ZeroMQ";
  if (anonymous_mib() == 0) GTEST_SKIP() << "the system does not tell";
  for (const int members : {2, 4}) {
    const int links = members * (members - 1);  // of each member, to all others
    const double bound =
        static_cast<double>(links) * 8 + members * static_cast<double>(kMaxPartBytes) / kMib;
    const double held = beside_mib(members, "fp32");
    EXPECT_LE(held, bound + kSlackMib) << members << " members";
    RecordProperty("held_mib_" + std::to_string(members), std::to_string(held));
  }
}

static_assert(2 * kNearWindow == 8 << 20, "both directions of a link");

}  // namespace
}  // namespace isthmus::this_file
