// SPDX-License-Identifier: Apache-2.0
// matmul.h on the CPU: sums in float over k in order, in tiles so that tests of a model take
// seconds. Epilogues see the sum before it is rounded.
#include "kernels/cuda/matmul.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <vector>

#include "core/base/check.h"
#include "cuda/emulated/faults.h"
#include "cuda/emulated/runtime.h"
#include "cuda/emulated/simt.h"
#include "kernels/activation_math.h"
#include "kernels/cuda/matmul_table.h"

namespace isthmus::cuda {
namespace {

/// op(x) (rows, columns) as floats, rows contiguous.
std::vector<float> plain(ConstMatrixData x, bool transposed, std::int64_t rows,
                         std::int64_t columns, std::int64_t ld) {
  std::vector<float> y(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      y[static_cast<std::size_t>(i * columns + j)] = x[transposed ? j * ld + i : i * ld + j];
    }
  }
  return y;
}

void finish(const Matmul& p, std::int64_t at, std::int64_t column, float sum) {
  const auto bias = [&] { return p.bias[column]; };
  switch (p.epilogue) {
    case Epilogue::kNone:
      p.c.set(at, p.accumulate ? p.c[at] + sum : sum);
      break;
    case Epilogue::kBias:
      p.c.set(at, sum + bias());
      break;
    case Epilogue::kGeluBias:
      p.aux.set(at, sum + bias());
      p.c.set(at, kernels::gelu(sum + bias()));
      break;
    case Epilogue::kGeluGradient:
      p.c.set(at, sum * kernels::gelu_derivative(p.aux[at]));
      break;
  }
}

std::atomic<float> product_factor = 1;
std::atomic<int> products_of_table = 0;

void multiply(const Matmul& p) {
  constexpr std::int64_t kTile = 256;  // columns whose sums stay in the cache
  const std::vector<float> a = plain(p.a, p.a_transposed, p.m, p.k, p.lda);
  const std::vector<float> b = plain(p.b, p.b_transposed, p.k, p.n, p.ldb);
  float sums[kTile];
  for (std::int64_t first = 0; first < p.n; first += kTile) {
    const std::int64_t width = std::min(kTile, p.n - first);
    for (std::int64_t i = 0; i < p.m; ++i) {
      std::fill(sums, sums + width, 0.f);
      for (std::int64_t l = 0; l < p.k; ++l) {
        const float factor = a[static_cast<std::size_t>(i * p.k + l)];
        const float* const row = b.data() + l * p.n + first;
        for (std::int64_t j = 0; j < width; ++j) sums[j] += factor * row[j];
      }
      for (std::int64_t j = 0; j < width; ++j) {
        finish(p, i * p.ldc + first + j, first + j, product_factor * sums[j]);
      }
    }
  }
}

}  // namespace

void emulated::set_product_factor(float factor) { product_factor = factor; }
int emulated::take_products_of_table() { return products_of_table.exchange(0); }

std::string products_missing() { return emulated::products_fault(); }
std::string products_version() { return "emulated"; }

struct Blas::Impl {
  std::shared_ptr<const MatmulTable> table;
  std::set<MatmulShape> shapes;
};
Blas::Blas(const BlasOptions& options)
    : impl_(new Impl{.table = options.table != nullptr ? options.table : matmul_table_in_use(),
                     .shapes = {}}) {}
Blas::~Blas() = default;

bool Blas::fuses(const Matmul&) { return true; }

std::vector<MatmulShape> Blas::shapes() const {
  return {impl_->shapes.begin(), impl_->shapes.end()};
}

void Blas::matmul(Stream& stream, const Matmul& p) {
  ISTHMUS_CHECK(p.m >= 0 && p.n >= 0 && p.k >= 1, p.m, p.n, p.k);
  ISTHMUS_CHECK(p.a.is_bf16() == p.b.is_bf16(), p.m, p.n, p.k);
  ISTHMUS_CHECK(p.a.is_bf16() || !p.c.is_bf16(), p.m, p.n, p.k);
  ISTHMUS_CHECK(!p.accumulate || (p.epilogue == Epilogue::kNone && !p.c.is_bf16()), p.m, p.n, p.k);
  const bool adds_bias = p.epilogue == Epilogue::kBias || p.epilogue == Epilogue::kGeluBias;
  ISTHMUS_CHECK(!adds_bias || p.bias.is_bf16() == p.c.is_bf16(), p.m, p.n, p.k);
  const MatmulShape shape = shape_of(p);
  impl_->shapes.insert(shape);
  if (impl_->table != nullptr && impl_->table->choice(shape)) ++products_of_table;
  emulated::queue(stream, [p] { multiply(p); });
}

}  // namespace isthmus::cuda
