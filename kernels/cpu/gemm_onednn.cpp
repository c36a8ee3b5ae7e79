// SPDX-License-Identifier: Apache-2.0
// Products by oneDNN (2.x and 3.x) behind gemm.h. Rows of C are cut by shape alone and each block
// is one single-threaded primitive of the team's member that claims it, so bits do not depend on
// the team's size; epilogues are those of our own products. Operands that are to be rounded to
// bfloat16 but lie in memory as float are rounded into scratch first.
#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/base/check.h"
#include "kernels/fast_kernels.h"

namespace isthmus::kernels {
namespace {

using dnnl::memory;
using Type = memory::data_type;

constexpr std::int64_t kTasks = 8;            // blocks of rows, about
constexpr std::int64_t kFewestRows = 64;      // in a block
constexpr std::size_t kKeptPrimitives = 512;  // a model has a few dozen shapes
constexpr std::int64_t kSpan = 4096;          // values a conversion task takes
constexpr std::int64_t kColumns = 64;         // columns a task of column sums takes

/// A matrix as oneDNN sees it: element (i, j) at data[i * row + j * column].
struct Matrix {
  const void* data = nullptr;
  Type type = Type::f32;
  std::int64_t rows = 0, columns = 0, row = 0, column = 1;

  [[nodiscard]] memory::desc desc() const { return {{rows, columns}, type, {row, column}}; }
  [[nodiscard]] auto key() const { return std::tuple(type, rows, columns, row, column); }
};

/// One thread's objects of oneDNN; its primitives run on that thread alone.
class Worker {
 public:
  Worker() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) { omp_set_num_threads(1); }

  /// Whether this machine has such a product.
  bool offers(const Matrix& a, const Matrix& b, const Matrix& c, bool add) {
    return primitive(a, b, c, add) != nullptr;
  }

  /// c (+)= a b. REQUIRES: offers(a, b, c, add). THROWS: dnnl::error.
  void multiply(const Matrix& a, const Matrix& b, const Matrix& c, bool add) {
    const dnnl::matmul* product = primitive(a, b, c, add);
    ISTHMUS_CHECK(product != nullptr);
    product->execute(stream_, {{DNNL_ARG_SRC, argument(a)},
                               {DNNL_ARG_WEIGHTS, argument(b)},
                               {DNNL_ARG_DST, argument(c)}});
    stream_.wait();
  }

 private:
  using Key = std::tuple<decltype(Matrix{}.key()), decltype(Matrix{}.key()),
                         decltype(Matrix{}.key()), bool>;

  memory argument(const Matrix& x) { return {x.desc(), engine_, const_cast<void*>(x.data)}; }

  const dnnl::matmul* primitive(const Matrix& a, const Matrix& b, const Matrix& c, bool add) {
    if (primitives_.size() > kKeptPrimitives) primitives_.clear();
    const Key key{a.key(), b.key(), c.key(), add};
    if (const auto known = primitives_.find(key); known != primitives_.end()) {
      return known->second ? &*known->second : nullptr;
    }
    std::optional<dnnl::matmul> made;
    try {
      made = make(a, b, c, add);
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented) throw;  // else bfloat16, which needs AVX-512
    }
    const auto at = primitives_.emplace(key, std::move(made)).first;
    return at->second ? &*at->second : nullptr;
  }

  dnnl::matmul make(const Matrix& a, const Matrix& b, const Matrix& c, bool add) {
    dnnl::primitive_attr attributes;
    if (add) {
      dnnl::post_ops after;
      after.append_sum(1.0f);
      attributes.set_post_ops(after);
    }
    return describe(attributes, a, b, c);
  }

  /// A template so that of the two versions' interfaces only the one at hand is looked up.
  template <typename Matmul = dnnl::matmul>
  Matmul describe(const dnnl::primitive_attr& attributes, const Matrix& a, const Matrix& b,
                  const Matrix& c) {
    using Descriptor = typename Matmul::primitive_desc;
    using Desc = memory::desc;
    if constexpr (std::is_constructible_v<Descriptor, dnnl::engine, Desc, Desc, Desc,
                                          dnnl::primitive_attr>) {  // oneDNN 3
      return Matmul(Descriptor(engine_, a.desc(), b.desc(), c.desc(), attributes));
    } else {
      const typename Matmul::desc operation(a.desc(), b.desc(), c.desc());
      return Matmul(Descriptor(operation, attributes, engine_));
    }
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<Key, std::optional<dnnl::matmul>> primitives_;
};

Worker& worker() {
  thread_local Worker mine;
  return mine;
}

/// op(X) (rows, columns); rounded operands lie in `slot` of the team afterwards.
Matrix operand(ThreadTeam& team, Stored<const float> x, std::int64_t rows, std::int64_t columns,
               std::int64_t ld, bool transposed, bool bf16, Scratch slot) {
  Matrix matrix{nullptr, bf16 ? Type::bf16 : Type::f32, rows, columns, ld, 1};
  const std::int64_t values =
      ((transposed ? columns : rows) - 1) * ld + (transposed ? rows : columns);
  if (transposed) std::swap(matrix.row, matrix.column);
  x.visit([&](const auto* data) { matrix.data = data; });
  if (!bf16 || x.is_bf16()) return matrix;
  Bf16* rounded = team.scratch<Bf16>(slot, values);
  const float* const wide = x.as<float>();
  team.for_blocks(values, kSpan, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) rounded[i] = Bf16(wide[i]);
  });
  matrix.data = rounded;
  return matrix;
}

void add_column_sums(ThreadTeam& team, const Gemm<float>& g) {
  team.for_blocks(g.n, kColumns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = 0; p < g.k; ++p) {
      for (std::int64_t j = begin; j < end; ++j) g.column_sum[j] += g.b[p * g.ldb + j];
    }
  });
}

std::int64_t rows_of_a_task(std::int64_t m) {
  const std::int64_t even = ((m + kTasks - 1) / kTasks + 15) / 16 * 16;
  return even < kFewestRows ? kFewestRows : even;
}

void gemm_by_onednn(ThreadTeam& team, const Gemm<float>& g) {
  if (g.m == 0 || g.n == 0) return;
  const FastKernels& own = own_kernels();
  if (g.k == 0) return (g.bf16 ? own.gemm_bf16 : own.gemm)(team, g);
  const Matrix a = operand(team, g.a, g.m, g.k, g.lda, g.a_transposed, g.bf16, Scratch::kPanelA);
  const Matrix b = operand(team, g.b, g.k, g.n, g.ldb, g.b_transposed, g.bf16, Scratch::kPanelB);
  const std::int64_t step = rows_of_a_task(g.m);
  const std::size_t size = a.type == Type::bf16 ? sizeof(Bf16) : sizeof(float);
  const bool narrow = g.c.is_bf16();
  const std::int64_t ld = narrow ? g.n : g.ldc;
  const std::int64_t tasks = (g.m + step - 1) / step;
  const auto rows_of = [&](std::int64_t task) { return std::min(step, g.m - task * step); };
  const auto block_of = [&](std::int64_t task) {
    Matrix block = a;
    block.rows = rows_of(task);
    block.data = static_cast<const std::byte*>(a.data) +
                 static_cast<std::size_t>(task * step * a.row) * size;
    return block;
  };
  // Decided before anything is written: the first and the last block have the shapes there are.
  for (const std::int64_t task : {std::int64_t{0}, tasks - 1}) {
    const Matrix c{nullptr, Type::f32, rows_of(task), g.n, ld, 1};
    if (!worker().offers(block_of(task), b, c, g.accumulate)) {
      return (g.bf16 ? own.gemm_bf16 : own.gemm)(team, g);
    }
  }
  team.for_each(tasks, [&](std::int64_t task, int member) {
    const std::int64_t first = task * step;
    const std::int64_t rows = rows_of(task);
    float* const tile = narrow ? team.scratch<float>(Scratch::kPartial, rows * g.n, member)
                               : g.c.as<float>() + first * g.ldc;
    worker().multiply(block_of(task), b, {tile, Type::f32, rows, g.n, ld, 1}, g.accumulate);
    own.finish_rows(g, tile, ld, first, rows);
  });
  if (g.column_sum != nullptr) add_column_sums(team, g);
}

}  // namespace

const FastKernels* onednn_kernels() {
  static const FastKernels kTable = [] {
    FastKernels table = own_kernels();
    table.gemm = gemm_by_onednn;
    table.gemm_bf16 = gemm_by_onednn;
    return table;
  }();
  return &kTable;
}

}  // namespace isthmus::kernels
