// SPDX-License-Identifier: Apache-2.0
// Speed of the device's attention, one JSON object a line for every shape and pass, by the own
// kernels and, in bf16 where cuDNN is there and takes the shape, by cuDNN:
// bench_cuda_attention [--dtype bf16|fp32] [--repeats N] [--peak TFLOPS].
// Operations are 4 B H T^2 D / 2 forward (two products below the diagonal) and 2.5 times that
// backward, whatever the kernels do beside. Milliseconds are medians of single calls, with the
// fastest and the slowest beside them; `peak_fraction` is of the peak that the caller names, for
// example 989 for dense bfloat16 on an H100 SXM or H200. q, k, v lie in one (B, T, ...) buffer.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "isthmus/errors.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"

namespace isthmus::cuda {
namespace {

struct Options {
  bool bf16 = true;
  int repeats = 30;
  double peak_tflops = 0;  // 0: not given
};

struct Shape {
  const char* model;
  std::int64_t batch, seq, q_heads, kv_heads, head_dim;
};
constexpr Shape kShapes[] = {
    {"GPT-2 124M", 32, 1024, 12, 12, 64},       {"GPT-2 1.3B", 8, 2048, 16, 16, 128},
    {"Llama 8B, grouped", 4, 2048, 32, 8, 128}, {"Llama 8B, grouped", 1, 8192, 32, 8, 128},
    {"long, small heads", 2, 8192, 12, 12, 64}, {"a single short sequence", 1, 512, 12, 12, 64}};
constexpr int kLeastRepeats = 20;
constexpr int kWarmUp = 3;

struct Times {
  double median = 0, least = 0, most = 0;
};
Times milliseconds(Stream& stream, int repeats, const std::function<void()>& call) {
  for (int i = 0; i < kWarmUp; ++i) call();
  std::vector<double> times;
  Event begin(Event::Timing::kOn), end(Event::Timing::kOn);
  for (int i = 0; i < repeats; ++i) {
    begin.record(stream);
    call();
    end.record(stream);
    end.synchronize();
    times.push_back(end.milliseconds_since(begin));
  }
  std::sort(times.begin(), times.end());
  const std::size_t middle = times.size() / 2;
  const double median =
      times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
  return {median, times.front(), times.back()};
}

/// Values of about unit size, the same in every run.
template <typename T>
DeviceArray<T> test_values(Stream& stream, std::int64_t n, unsigned salt) {
  std::vector<T> x(static_cast<std::size_t>(n));
  unsigned state = salt;
  for (T& value : x) {
    state = state * 1664525u + 1013904223u;
    value = T(static_cast<float>(state >> 8) / 4194304.0f - 2.0f);
  }
  DeviceArray<T> array(x.size());
  copy(stream, array.data(), x.data(), x.size());
  stream.synchronize();
  return array;
}

struct Machine {
  std::string name;      // of the device
  std::string no_cudnn;  // why cuDNN is missing; empty where it is there
};

void report(const Shape& shape, const Options& options, const Machine& machine,
            const char* attention, const char* pass, double flops, const Times& times) {
  const double tflops = flops / times.median * 1e-9;
  const std::string fraction = options.peak_tflops > 0
                                   ? fmt::format(",\"peak_tflops\":{},\"peak_fraction\":{:.3f}",
                                                 options.peak_tflops, tflops / options.peak_tflops)
                                   : "";
  fmt::print(
      "{{\"op\":\"attention\",\"attention\":\"{}\",\"pass\":\"{}\",\"device\":\"{}\",\"dtype\":\"{}"
      "\","
      "\"model\":\"{}\",\"batch\":{},\"seq\":{},\"q_heads\":{},\"kv_heads\":{},\"head_dim\":{},"
      "\"repeats\":{},"
      "\"ms_median\":{:.4f},\"ms_least\":{:.4f},\"ms_most\":{:.4f},\"tflops\":{:.1f}{}}}\n",
      attention, pass, machine.name, options.bf16 ? "bf16" : "fp32", shape.model, shape.batch,
      shape.seq, shape.q_heads, shape.kv_heads, shape.head_dim, options.repeats, times.median,
      times.least, times.most, tflops, fraction);
  std::fflush(stdout);
}

/// RETURNS: whether cuDNN, where it is there, has computed a shape that it takes.
template <typename T>
bool bench(const Shape& s, const Options& options, const Machine& machine) {
  Stream stream;
  const AttentionShape shape{s.batch,    s.seq,
                             s.q_heads,  s.kv_heads,
                             s.head_dim, 1 / std::sqrt(static_cast<double>(s.head_dim))};
  const std::int64_t row = (s.q_heads + 2 * s.kv_heads) * s.head_dim;
  const std::int64_t out_row = s.q_heads * s.head_dim;
  const std::int64_t tokens = s.batch * s.seq;
  const DeviceArray<T> qkv = test_values<T>(stream, tokens * row, 1);
  const DeviceArray<T> d_out = test_values<T>(stream, tokens * out_row, 2);
  const DeviceArray<T> d_qkv(qkv.size()), out(d_out.size());
  const DeviceArray<float> lse(static_cast<std::size_t>(tokens * s.q_heads));
  const DeviceArray<float> scratch(attention_backward_scratch(shape));
  const auto heads = [&]<typename U>(U* data, std::int64_t before) {
    return kernels::heads_in_rows<U>(data + before * s.head_dim, s.seq, row, s.head_dim);
  };
  const auto rows = [&]<typename U>(U* data) {
    return kernels::heads_in_rows<U>(data, s.seq, out_row, s.head_dim);
  };
  const T* const in = qkv.data();
  const std::int64_t k = s.q_heads, v = s.q_heads + s.kv_heads;
  const AttentionBackward<T> backward{.q = heads(in, 0),
                                      .k = heads(in, k),
                                      .v = heads(in, v),
                                      .out = rows(static_cast<const T*>(out.data())),
                                      .d_out = rows(static_cast<const T*>(d_out.data())),
                                      .lse = lse.data(),
                                      .d_q = heads(d_qkv.data(), 0),
                                      .d_k = heads(d_qkv.data(), k),
                                      .d_v = heads(d_qkv.data(), v)};
  const double flops = 4.0 * static_cast<double>(s.batch * s.q_heads) * static_cast<double>(s.seq) *
                       static_cast<double>(s.seq * s.head_dim) / 2;
  report(s, options, machine, "own", "forward", flops, milliseconds(stream, options.repeats, [&] {
           attention_forward<T>(stream, shape, backward.q, backward.k, backward.v, rows(out.data()),
                                lse.data());
         }));
  report(s, options, machine, "own", "backward", 2.5 * flops,
         milliseconds(stream, options.repeats,
                      [&] { attention_backward<T>(stream, shape, backward, scratch.data()); }));
  if constexpr (std::is_same_v<T, kernels::Bf16>) {
    if (!machine.no_cudnn.empty()) return true;
    if (const std::string why = cudnn_refusal_here(shape); !why.empty()) {
      fmt::print(stderr, "bench_cuda_attention: {}: {}\n", s.model, why);
      return true;
    }
    try {
      CudnnAttention cudnn({shape, backward.q, backward.k, backward.v, backward.out},
                           CudnnAttention::Passes::kBoth);
      const DeviceArray<std::byte> workspace(cudnn.workspace_bytes());
      report(s, options, machine, "cudnn", "forward", flops,
             milliseconds(stream, options.repeats, [&] {
               cudnn.forward(stream, backward.q, backward.k, backward.v, rows(out.data()),
                             lse.data(), workspace.data());
             }));
      report(s, options, machine, "cudnn", "backward", 2.5 * flops,
             milliseconds(stream, options.repeats,
                          [&] { cudnn.backward(stream, backward, workspace.data()); }));
    } catch (const SystemError& error) {
      fmt::print(stderr, "bench_cuda_attention: {}: {}\n", s.model, error.what());
      return false;
    }
  }
  return true;
}

/// RETURNS: nothing when an option is unknown or its value is no number in its range.
std::optional<Options> parsed(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view key = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    const auto number = [&](auto& to) {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), to);
      return error == std::errc() && end == value.data() + value.size();
    };
    bool good = false;
    if (key == "--dtype") {
      options.bf16 = value == "bf16";
      good = options.bf16 || value == "fp32";
    } else if (key == "--repeats") {
      good = number(options.repeats) && options.repeats >= kLeastRepeats;
    } else if (key == "--peak") {
      good = number(options.peak_tflops) && options.peak_tflops > 0;
    }
    if (!good) return std::nullopt;
  }
  return options;
}

int run(int argc, char** argv) {
  const std::optional<Options> options = parsed(argc, argv);
  if (!options) {
    fmt::print(stderr,
               "usage: bench_cuda_attention [--dtype bf16|fp32] [--repeats N >= {}] [--peak "
               "TFLOPS]\n",
               kLeastRepeats);
    return 2;
  }
  if (const std::string reason = unavailable(); !reason.empty()) {
    fmt::print(stderr, "bench_cuda_attention: {}\n", reason);
    return 1;
  }
  const Machine machine{devices().front().name, cudnn_missing()};
  if (options->bf16 && !machine.no_cudnn.empty()) {
    fmt::print(stderr, "bench_cuda_attention: own kernels alone: {}\n", machine.no_cudnn);
  }
  bool well = true;
  for (const Shape& shape : kShapes) {
    well &= options->bf16 ? bench<kernels::Bf16>(shape, *options, machine)
                          : bench<float>(shape, *options, machine);
  }
  return well ? 0 : 1;
}

}  // namespace
}  // namespace isthmus::cuda

int main(int argc, char** argv) { return isthmus::cuda::run(argc, argv); }
