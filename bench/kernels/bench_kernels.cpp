// SPDX-License-Identifier: Apache-2.0
// Speed of the kernels at training shapes, one JSON object a line, next to a small product's on the
// same threads: bench_kernels [--threads N] [--isa NAME] [--only OP]
// [--dtype fp32|bf16] [--clock wall|cpu] [--operands warm|cold].
// With bf16 activations and their gradients are stored as such, weights and their gradients as
// float. Cold operands are not in any cache when a product begins, as most are not in a step.
// Times are the best of several runs; run it on an idle machine.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/gemm.h"
#include "kernels/isa.h"
#include "kernels/spsa.h"
#include "kernels/thread_team.h"

namespace isthmus::kernels {
namespace {

struct Options {
  int threads = 2;
  std::string only;
  bool bf16 = false;
  bool cold = false;
};

constexpr std::int64_t kColdBytes = std::int64_t{160} << 20;  // more than the caches hold

// Set by --clock cpu: processor time of this process, which on a busy machine says more than the
// wall clock as long as there is one thread.
bool processor_clock = false;

double seconds() {
  if (processor_clock) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Best time of one call, over runs that take about half a second together.
double best_of(const std::function<void()>& call) {
  call();
  double best = 1e9;
  const double start = seconds();
  for (int run = 0; run < 400 && (run < 5 || seconds() - start < 0.5); ++run) {
    const double begin = seconds();
    call();
    best = std::min(best, seconds() - begin);
  }
  return best;
}

std::vector<float> test_values(std::int64_t n, unsigned salt) {
  std::vector<float> x(static_cast<std::size_t>(n));
  unsigned state = salt;
  for (float& value : x) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
  }
  return x;
}

/// A product of 96 x 64 x 64, its operands in L1, packing included: no peak, but a speed to know a
/// slow moment of the machine by.
double small_product_gflops(const Options& options) {
  std::vector<std::vector<float>> x;
  for (int i = 0; i < options.threads; ++i) x.push_back(test_values(3 * 96 * 64, 1));
  ThreadTeam team(options.threads);
  constexpr int kRepeats = 20;
  const double time = best_of([&] {
    team.for_each(options.threads, [&](std::int64_t index, int) {
      ThreadTeam alone(1);
      float* data = x[static_cast<std::size_t>(index)].data();
      for (int i = 0; i < kRepeats; ++i) {
        gemm<float>(alone, {.m = 96,
                            .n = 64,
                            .k = 64,
                            .a = data,
                            .lda = 64,
                            .b = data + 96 * 64,
                            .ldb = 64,
                            .c = data + 2 * 96 * 64,
                            .ldc = 64,
                            .bf16 = options.bf16});
      }
    });
  });
  return 2.0 * 96 * 64 * 64 * kRepeats * options.threads / time / 1e9;
}

struct Shape {
  const char* name;
  std::int64_t m, n, k;
};

constexpr Shape kShapes[] = {
    {"d128 qkv", 2048, 384, 128},       {"d128 out", 2048, 128, 128},
    {"d128 ffn", 2048, 512, 128},       {"d128 down", 2048, 128, 512},
    {"d256 ffn", 2048, 1024, 256},      {"d384 qkv", 2048, 1152, 384},
    {"d384 out", 2048, 384, 384},       {"d384 ffn", 2048, 1536, 384},
    {"d384 down", 2048, 384, 1536},     {"d512 ffn", 2048, 2048, 512},
    {"d512 gate up", 2048, 2752, 512},  {"d512 swiglu down", 2048, 512, 1376},
    {"d768 ffn up", 1024, 3072, 768},   {"d768 ffn down", 1024, 768, 3072},
    {"d768 head 1/8", 1024, 6272, 768}, {"2k cube", 2048, 2048, 2048},
};

/// An activation or its gradient: with bf16 it is stored as such.
struct Activation {
  Activation(std::int64_t n, unsigned salt, bool bf16) : wide(test_values(n, salt)) {
    if (!bf16) return;
    for (const float value : wide) narrow.emplace_back(value);
    wide.clear();
    wide.shrink_to_fit();
  }
  Stored<float> data() {
    return narrow.empty() ? Stored<float>(wide.data()) : Stored<float>(narrow.data());
  }
  [[nodiscard]] std::size_t bytes() const {
    return wide.size() * sizeof(float) + narrow.size() * sizeof(Bf16);
  }
  std::vector<float> wide;
  std::vector<Bf16> narrow;
};

/// Operands of the products of y = x W^T.
struct Operands {
  Operands(const Shape& s, bool bf16)
      : x(s.m * s.k, 1, bf16),
        y(s.m * s.n, 3, bf16),
        dx(s.m * s.k, 4, bf16),
        w(test_values(s.n * s.k, 2)),
        dw(test_values(s.n * s.k, 5)) {}
  Activation x, y, dx;
  std::vector<float> w, dw;

  [[nodiscard]] std::int64_t bytes() const {
    return static_cast<std::int64_t>(x.bytes() + y.bytes() + dx.bytes() +
                                     (w.size() + dw.size()) * sizeof(float));
  }
};

Gemm<float> forward(const Shape& s, Operands& o) {
  return {.m = s.m,
          .n = s.n,
          .k = s.k,
          .a = o.x.data(),
          .lda = s.k,
          .b = o.w.data(),
          .ldb = s.k,
          .b_transposed = true,
          .c = o.y.data(),
          .ldc = s.n};
}

Gemm<float> to_input(const Shape& s, Operands& o) {
  return {.m = s.m,
          .n = s.k,
          .k = s.n,
          .a = o.y.data(),
          .lda = s.n,
          .b = o.w.data(),
          .ldb = s.k,
          .c = o.dx.data(),
          .ldc = s.k};
}

Gemm<float> to_weight(const Shape& s, Operands& o) {
  return {.m = s.n,
          .n = s.k,
          .k = s.m,
          .a = o.y.data(),
          .lda = s.n,
          .a_transposed = true,
          .b = o.x.data(),
          .ldb = s.k,
          .c = o.dw.data(),
          .ldc = s.k,
          .accumulate = true};
}

/// The other storage order of weights: dW (in, out) += x^T dy.
Gemm<float> to_weight_in_out(const Shape& s, Operands& o) {
  return {.m = s.k,
          .n = s.n,
          .k = s.m,
          .a = o.x.data(),
          .lda = s.k,
          .a_transposed = true,
          .b = o.y.data(),
          .ldb = s.n,
          .c = o.dw.data(),
          .ldc = s.n,
          .accumulate = true};
}

void bench_gemm(ThreadTeam& team, const Shape& s, const Options& options) {
  std::vector<Operands> sets(1, Operands(s, options.bf16));
  while (options.cold && static_cast<std::int64_t>(sets.size()) * sets[0].bytes() < kColdBytes) {
    sets.push_back(sets[0]);
  }
  const double flop =
      2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k) / 1e9;
  std::size_t next = 0;
  const auto gflops = [&](Gemm<float> (*request)(const Shape&, Operands&)) {
    return flop / best_of([&] {
             Gemm<float> g = request(s, sets[next++ % sets.size()]);
             g.bf16 = options.bf16;
             gemm(team, g);
           });
  };
  fmt::print(
      "{{\"op\":\"gemm\",\"shape\":\"{}\",\"m\":{},\"n\":{},\"k\":{},\"threads\":{},\"isa\":\"{}\","
      "\"dtype\":\"{}\",\"operands\":\"{}\","
      "\"fwd_gflops\":{:.1f},\"dx_gflops\":{:.1f},\"dw_gflops\":{:.1f},\"dw_in_out_gflops\":{:.1f}}"
      "}\n",
      s.name, s.m, s.n, s.k, team.size(), name_of(active_isa()), options.bf16 ? "bf16" : "fp32",
      options.cold ? "cold" : "warm", gflops(forward), gflops(to_input), gflops(to_weight),
      gflops(to_weight_in_out));
}

void bench_fork(ThreadTeam& team) {
  constexpr int kRepeats = 1000;
  const double time = best_of([&] {
    for (int i = 0; i < kRepeats; ++i) team.for_each(team.size(), [](std::int64_t, int) {});
  });
  fmt::print("{{\"op\":\"empty loop\",\"threads\":{},\"microseconds\":{:.2f}}}\n", team.size(),
             time / kRepeats * 1e6);
}

/// GB/s of fp32 weights, one entry a step: perturb and replay next to what reads and writes as
/// much.
void bench_spsa(ThreadTeam& team, const char* where, std::int64_t n, int repeats) {
  std::vector<float> w = test_values(n, 1);
  std::vector<float> out(w.size());
  constexpr std::uint64_t kRun = 99;
  constexpr std::int64_t kBlock = std::int64_t{1} << 16;
  const double gb = static_cast<double>(n) * sizeof(float) * repeats / 1e9;
  const auto rate = [&](const std::function<void()>& call) {
    return gb / best_of([&] {
             for (int i = 0; i < repeats; ++i) call();
           });
  };
  const double copy = rate([&] {
    team.for_blocks(n, kBlock, [&](std::int64_t begin, std::int64_t end) {
      std::copy(w.begin() + begin, w.begin() + end, out.begin() + begin);
    });
  });
  const double negate = rate([&] {  // read, change, write in place
    team.for_blocks(n, kBlock, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        w[i] = -w[i];
      }
    });
  });
  const double perturb = rate([&] { spsa_perturb(team, kRun, {.step = 7}, 1e-3f, 0, w, out); });
  // As a forward pass has it: one scratch of a layer's size, again and again.
  const std::int64_t layer = std::min(n, std::int64_t{1} << 17);
  const double to_scratch = rate([&] {
    for (std::int64_t begin = 0; begin < n; begin += layer) {
      spsa_perturb(
          team, kRun, {.step = 7}, 1e-3f, begin,
          std::span(w).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(layer)),
          std::span(out).first(static_cast<std::size_t>(layer)));
    }
  });
  const std::vector<SpsaEntry> entries(8, {.machine = 1, .sample = 2, .d = std::int64_t{1} << 31});
  const auto replay = [&](std::size_t count, std::size_t steps) {
    const SpsaStep step{.step = 7, .entries = std::span(entries).first(count), .c = 1e-20f};
    const std::vector<SpsaStep> all(steps, step);
    return rate([&] { spsa_apply(team, kRun, all, 0, w); });
  };
  fmt::print(
      "{{\"op\":\"spsa\",\"where\":\"{}\",\"n\":{},\"threads\":{},\"isa\":\"{}\",\"memcpy_gb_s\":{:"
      ".1f},"
      "\"negate_in_place_gb_s\":{:.1f},\"perturb_gb_s\":{:.1f},\"perturb_to_scratch_gb_s\":{:.1f},"
      "\"replay_gb_s\":{:.1f},"
      "\"replay_8_entries_gb_s\":{:.1f},\"replay_16_steps_gb_s\":{:.1f}}}\n",
      where, n, team.size(), name_of(active_isa()), copy, negate, perturb, to_scratch, replay(1, 1),
      replay(8, 1), replay(1, 16));
}

bool wanted(const Options& options, std::string_view op) {
  return options.only.empty() || options.only == op;
}

int run(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view key = argv[i];
    if (key == "--threads") options.threads = std::atoi(argv[i + 1]);
    if (key == "--clock") processor_clock = std::string_view(argv[i + 1]) == "cpu";
    if (key == "--only") options.only = argv[i + 1];
    if (key == "--dtype") options.bf16 = std::string_view(argv[i + 1]) == "bf16";
    if (key == "--operands") options.cold = std::string_view(argv[i + 1]) == "cold";
    if (key == "--isa") {
      for (const Isa isa : available_isas()) {
        if (name_of(isa) == argv[i + 1]) use_isa(isa);
      }
    }
  }
  ThreadTeam team(options.threads);
  fmt::print("{{\"op\":\"product in L1\",\"threads\":{},\"isa\":\"{}\",\"gflops\":{:.1f}}}\n",
             options.threads, name_of(active_isa()), small_product_gflops(options));
  if (wanted(options, "fork")) bench_fork(team);
  if (wanted(options, "spsa")) {
    bench_spsa(team, "cache", std::int64_t{1} << 17, 64);
    bench_spsa(team, "memory", std::int64_t{1} << 26, 1);
  }
  if (wanted(options, "gemm")) {
    for (const Shape& shape : kShapes) {
      bench_gemm(team, shape, options);
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace isthmus::kernels

int main(int argc, char** argv) { return isthmus::kernels::run(argc, argv); }
