// SPDX-License-Identifier: Apache-2.0
// Makes the table that runs read (kernels/cuda/matmul_table.h): the products of a training step as
// `isthmus bench compute` takes it, each with every algorithm that cuBLASLt names, on one device.
// One JSON object a line and time; --out gets the table. Another model, batch or precision has
// other products, and may have a table of its own.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "core/base/storage.h"
#include "inner/cuda/product_timing.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

struct Arguments {
  std::string config = "gpt2-124m-1k", precision = "bf16", attention = "own", out;
  std::int64_t batch = 0, micro_batches = 1;
  int device = 0, repetitions = 5;
};

void print(const ProductTime& time) {
  const cuda::MatmulShape& s = time.shape;
  const double flop = 2.0 * static_cast<double>(s.m * s.n) * static_cast<double>(s.k);
  fmt::print(
      "{{\"bench\":\"matmul_table\",\"product\":\"{}{}x{}{} {}\",\"operands\":\"{}\",\"result\":"
      "\"{}\",\"accumulate\":{},\"epilogue\":{},\"fused\":{},\"choice\":{},\"ms\":{:.4f},"
      "\"tflops\":"
      "{:.1f}}}\n",
      s.m, s.a_transposed ? "^T" : "", s.n, s.b_transposed ? "^T" : "", s.k,
      s.bf16_operands ? "bf16" : "fp32", s.bf16_result ? "bf16" : "fp32", s.accumulate,
      static_cast<int>(s.epilogue), time.fused, time.choice, time.ms,
      time.ms > 0 ? flop / time.ms / 1e9 : 0.0);
  std::fflush(stdout);
}

void run(const Arguments& arguments) {
  if (const std::string why = cuda::unavailable(); !why.empty()) throw SystemError(why);
  const std::vector<cuda::DeviceInfo> devices = cuda::devices();
  if (arguments.device < 0 || arguments.device >= std::ssize(devices)) {
    throw ConfigError(fmt::format("--device {}: this machine has devices 0 to {}", arguments.device,
                                  devices.size() - 1));
  }
  const cuda::DeviceInfo& device = devices[static_cast<std::size_t>(arguments.device)];
  cuda::use_device(arguments.device);
  ModelTimingOptions options;
  options.sequences = arguments.batch;
  options.micro_batches = arguments.micro_batches;
  options.bf16 = arguments.precision == "bf16";
  options.attention = parse_device_attention(arguments.attention);
  const cuda::MatmulTable table =
      time_products(find_workload(arguments.config), options, device, arguments.repetitions, print);
  if (arguments.out.empty()) return;
  SystemStorage storage;
  write_atomically(storage, arguments.out, table.text());
  fmt::print("{{\"bench\":\"matmul_table\",\"table\":\"{}\",\"products\":{}}}\n", arguments.out,
             table.size());
}

}  // namespace
}  // namespace isthmus

int main(int argc, char** argv) {
  isthmus::Arguments arguments;
  CLI::App app("times the products of a training step, and writes the table of the fastest");
  app.add_option("--config", arguments.config, "as of isthmus bench compute")
      ->capture_default_str();
  app.add_option("--batch", arguments.batch, "sequences of a step; 0: the workload's");
  app.add_option("--micro-batches", arguments.micro_batches, "parts of a step");
  app.add_option("--precision", arguments.precision)->check(CLI::IsMember({"bf16", "fp32"}));
  app.add_option("--attention", arguments.attention)
      ->check(CLI::IsMember({"own", "cudnn", "auto"}));
  app.add_option("--device", arguments.device, "ordinal");
  app.add_option("--repetitions", arguments.repetitions, "of each time")
      ->check(CLI::Range(1, 1000));
  app.add_option("--out", arguments.out, "the table");
  CLI11_PARSE(app, argc, argv);
  try {
    isthmus::run(arguments);
    return 0;
  } catch (const isthmus::Error& error) {
    fmt::print(stderr, "bench_cuda_matmul_table: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_cuda_matmul_table: {}\n", error.what());
    return 1;
  }
}
