// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/product_timing.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/rng.h"
#include "inner/cuda/cuda_loop.h"
#include "inner/cuda/device_timing.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr double kWorthIt = 0.99;  // of the first answer's time
constexpr std::size_t kBestAlignment = 16;

/// Those of a step, as a training loop multiplies them.
std::vector<cuda::MatmulShape> products_of(const Workload& workload,
                                           const ModelTimingOptions& options) {
  const LanguageModelOptions loop_options = timed_loop_options(workload, options);
  const std::int64_t tokens = loop_options.sequences * workload.context;
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < tokens; ++i) {
    ids.push_back(static_cast<std::int32_t>(31 * i % workload.model.vocab));
  }
  const TokenBatch batch{ids, ids, loop_options.sequences, workload.context};
  CudaLoop loop(
      loop_options, [&](StepIndex) { return batch; }, {}, nullptr);
  static_cast<void>(loop.train_step(StepIndex(1)));
  return loop.products().shapes();
}

/// Values that are no zeros, with which a device would draw less power and run faster.
template <typename T>
cuda::DeviceArray<T> random_array(cuda::Stream& stream, std::int64_t n) {
  constexpr std::size_t kDrawn = (std::size_t{1} << 20) - 1;
  static const std::vector<T> drawn = [] {
    const Rng rng{0, Stream::kTestData};
    std::vector<T> values(kDrawn);
    for (std::size_t i = 0; i < kDrawn; ++i) {
      values[i] = T(static_cast<float>(rng.uniform(i) - 0.5));
    }
    return values;
  }();
  cuda::DeviceArray<T> array(static_cast<std::size_t>(n));
  for (std::size_t at = 0; at < array.size(); at += kDrawn) {
    cuda::copy(stream, array.data() + at, drawn.data(), std::min(kDrawn, array.size() - at));
  }
  return array;
}

/// n values of one of two types.
class Operand {
 public:
  Operand(cuda::Stream& stream, bool bf16, std::int64_t n) {
    if (bf16) {
      rounded_ = random_array<cuda::Bf16>(stream, n);
    } else {
      floats_ = random_array<float>(stream, n);
    }
  }
  /// skipped: bytes before the first value, fewer than kBestAlignment.
  [[nodiscard]] cuda::MatrixData data(std::size_t skipped) const {
    if (!rounded_.empty()) return rounded_.data() + skipped / sizeof(cuda::Bf16);
    return floats_.data() + skipped / sizeof(float);
  }

 private:
  cuda::DeviceArray<cuda::Bf16> rounded_;
  cuda::DeviceArray<float> floats_;
};

/// The operands of a product; the result is written over and over.
class Operands {
 public:
  Operands(cuda::Stream& stream, const cuda::MatmulShape& s)
      : shape_(s),
        a_(stream, s.bf16_operands, (s.a_transposed ? s.k : s.m) * s.lda + kSpare),
        b_(stream, s.bf16_operands, (s.b_transposed ? s.n : s.k) * s.ldb + kSpare),
        c_(stream, s.bf16_result, s.m * s.ldc + kSpare),
        aux_(stream, s.bf16_result, uses_aux() ? s.m * s.ldc + kSpare : kSpare),
        bias_(stream, s.bf16_result, s.n + kSpare) {
    stream.synchronize();
  }

  [[nodiscard]] cuda::Matmul product() const {
    const cuda::MatmulShape& s = shape_;
    const std::size_t skipped = s.alignment < kBestAlignment ? s.alignment : 0;
    const bool bias =
        s.epilogue == cuda::Epilogue::kBias || s.epilogue == cuda::Epilogue::kGeluBias;
    return {.m = s.m,
            .n = s.n,
            .k = s.k,
            .a = a_.data(skipped),
            .b = b_.data(0),
            .lda = s.lda,
            .ldb = s.ldb,
            .ldc = s.ldc,
            .a_transposed = s.a_transposed,
            .b_transposed = s.b_transposed,
            .c = c_.data(0),
            .accumulate = s.accumulate,
            .epilogue = s.epilogue,
            .bias = bias ? cuda::ConstMatrixData(bias_.data(0)) : cuda::ConstMatrixData(),
            .aux = uses_aux() ? aux_.data(0) : cuda::MatrixData()};
  }

 private:
  static constexpr std::int64_t kSpare = kBestAlignment;
  [[nodiscard]] bool uses_aux() const {
    return shape_.epilogue == cuda::Epilogue::kGeluBias ||
           shape_.epilogue == cuda::Epilogue::kGeluGradient;
  }

  cuda::MatmulShape shape_;
  Operand a_, b_, c_, aux_, bias_;
};

double median_ms(cuda::Stream& stream, cuda::Blas& blas, const cuda::Matmul& product,
                 int repetitions) {
  cuda::Event begin(cuda::Event::Timing::kOn), end(cuda::Event::Timing::kOn);
  blas.matmul(stream, product);
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    begin.record(stream);
    blas.matmul(stream, product);
    end.record(stream);
    end.synchronize();
    times.push_back(end.milliseconds_since(begin));
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

/// With this algorithm; nothing where the library names or runs no such one.
std::optional<ProductTime> time_choice(cuda::Stream& stream, const cuda::MatmulShape& shape,
                                       const cuda::Matmul& product, int choice, int repetitions) {
  cuda::Blas blas({.choice = choice});
  try {
    const bool fused = blas.fuses(product);
    return ProductTime{.shape = shape,
                       .choice = choice,
                       .ms = median_ms(stream, blas, product, repetitions),
                       .fused = fused};
  } catch (const cuda::OutOfDeviceMemory&) {
    throw;
  } catch (const SystemError&) {
    if (choice == 0) throw;
    return std::nullopt;
  }
}

int fastest(cuda::Stream& stream, const cuda::MatmulShape& shape, int repetitions,
            const std::function<void(const ProductTime&)>& on_time) {
  const Operands operands(stream, shape);
  const cuda::Matmul product = operands.product();
  std::optional<ProductTime> best;
  double enough = 0;
  for (int choice = 0; choice < cuda::kMatmulChoices; ++choice) {
    const auto time = time_choice(stream, shape, product, choice, repetitions);
    if (!time) continue;
    on_time(*time);
    if (choice == 0) enough = kWorthIt * time->ms;
    if (!best || (time->ms < best->ms && time->ms <= enough)) best = time;
  }
  return best->choice;
}

}  // namespace

cuda::MatmulTable time_products(const Workload& workload, const ModelTimingOptions& options,
                                const cuda::DeviceInfo& device, int repetitions,
                                const std::function<void(const ProductTime&)>& on_time) {
  cuda::MatmulTable table(cuda::MatmulTable::device_of(device), cuda::products_version());
  cuda::Stream stream;
  for (const cuda::MatmulShape& shape : products_of(workload, options)) {
    table.set(shape, fastest(stream, shape, repetitions, on_time));
  }
  return table;
}

}  // namespace isthmus
