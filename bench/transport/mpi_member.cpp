// SPDX-License-Identifier: Apache-2.0
// One process of an MPI all-reduce, the peer that wan.py and loopback.py measure beside
// bench_exchange_member (open_mpi.py starts it). Process 0 prints a JSON line a trial and member,
// with the fields of gloo_member.py: seconds from a barrier to the return of the sum, and where
// they lie on the clock that all processes of this machine share.
//   mpirun -n 2 bench_mpi_member --bytes 64000000 --trials 9
#include <fmt/format.h>
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "core/base/system_runtime.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

using Seconds = std::chrono::duration<double>;

struct Options {
  std::size_t bytes = 25'000'000;
  int trials = 20;
  int warm_ups = 1;
  double pause_s = 0;
};

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw SystemError(
      fmt::format("{}: {}", call, std::string(text.data(), static_cast<std::size_t>(length))));
}

double machine_seconds() {
  return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Of the sum of every member's number, at both ends.
void check_sum(const std::vector<float>& values, int member, int members) {
  const float want = static_cast<float>(members * (members - 1)) / 2;
  for (const float value : {values.front(), values.back()}) {
    if (value != want) {
      throw Error(ExitCode::kRunFailed,
                  fmt::format("member {}: the sum is {}, want {}: MPI_Allreduce is broken", member,
                              value, want));
    }
  }
}

/// After the trial, so the line costs it nothing.
void tell(const Options& options, int trial, int member, int members, double begin, double end) {
  const std::array<double, 2> own = {begin, end};
  std::vector<double> all(2 * static_cast<std::size_t>(members));
  check(MPI_Gather(own.data(), 2, MPI_DOUBLE, all.data(), 2, MPI_DOUBLE, 0, MPI_COMM_WORLD),
        "MPI_Gather");
  if (member != 0 || trial < 0) return;
  for (std::size_t m = 0; m < all.size() / 2; ++m) {
    fmt::print(R"({{"bench":"exchange","member":{},"members":{},"trial":{},"codec":"fp32",)"
               R"("bytes":{},"seconds":{:.4f},"begin_s":{:.4f},"end_s":{:.4f}}})"
               "\n",
               m, members, trial, options.bytes, all[2 * m + 1] - all[2 * m], all[2 * m],
               all[2 * m + 1]);
  }
  std::fflush(stdout);
}

void run(const Options& options) {
  int member = 0;
  int members = 0;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &member), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &members), "MPI_Comm_size");
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  SystemRuntime runtime;
  std::vector<float> values(options.bytes / sizeof(float));
  for (int trial = -options.warm_ups; trial < options.trials; ++trial) {
    values.assign(values.size(), static_cast<float>(member));
    if (options.pause_s > 0) {
      runtime.sleep_until(runtime.clock().now() +
                          std::chrono::duration_cast<Duration>(Seconds(options.pause_s)));
    }
    check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    const double begin = machine_seconds();
    check(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                        MPI_SUM, MPI_COMM_WORLD),
          "MPI_Allreduce");
    const double end = machine_seconds();
    check_sum(values, member, members);
    tell(options, trial, member, members, begin, end);
  }
}

}  // namespace
}  // namespace isthmus

int main(int argc, char** argv) {
  using namespace isthmus;
  Options options;
  CLI::App app("one process of an MPI all-reduce of fp32 values, in place");
  app.add_option("--bytes", options.bytes, "of the vector")
      ->check(CLI::Range(std::size_t{4096}, std::size_t{1} << 32));  // MPI counts values in an int
  app.add_option("--trials", options.trials)->check(CLI::Range(1, 100'000));
  app.add_option("--warm-ups", options.warm_ups)->check(CLI::Range(0, 1000));
  app.add_option("--pause", options.pause_s, "seconds of silence before each trial")
      ->check(CLI::NonNegativeNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  }
  MPI_Init(&argc, &argv);
  try {
    run(options);
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(error.exit_code()));
  }
  return MPI_Finalize() == MPI_SUCCESS ? 0 : static_cast<int>(ExitCode::kRunFailed);
}
