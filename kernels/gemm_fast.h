// SPDX-License-Identifier: Apache-2.0
// Blocked float matrix product. B is packed into panels one tile wide, A is read where it lies
// (packed into panels only when transposed); both in one parallel loop, then tasks of C blocks in a
// second one. A task owns its block of C for all of k, so sums over k run in one order whatever the
// number of threads (Goto & van de Geijn 2008 has the blocking, with A rather than B kept near).
// Include after one of simd_*.h.
#pragma once

#include "kernels/gemm.h"
#include "kernels/panel.h"
#include "kernels/simd_math.h"
#include "kernels/tile.h"

namespace isthmus::kernels {
namespace {

// Depth of a block of k: a panel of B (kDepth x one tile) stays in L2 while A passes by it, and C
// is read and written once per kDepth steps.
inline constexpr std::int64_t kDepth = 384;
inline constexpr std::int64_t kPanelRows = 48;  // unit of rows of tasks: 8 tiles
inline constexpr std::int64_t kPackRows = 64;   // steps of k a packing task takes
inline constexpr std::int64_t kTaskPanels = 4;  // such units in a task, at most
inline constexpr std::int64_t kMinTasks = 16;   // tasks are made smaller until there are as many
inline constexpr std::int64_t kPackLimit = std::int64_t{16} << 20;  // floats packed at a time

/// How a product is cut; a function of the shape alone.
struct GemmPlan {
  std::int64_t depth = 0;           // steps of k in a block
  std::int64_t blocks = 0;          // blocks of k
  std::int64_t blocks_at_once = 0;  // packed together
  std::int64_t column_panels = 0;   // tiles across n
  std::int64_t row_panels = 0;      // kPanelRows across m
  std::int64_t task_rows = 0;       // row panels in a task
  std::int64_t task_columns = 0;    // column panels in a task
};

inline GemmPlan plan_gemm(const Gemm<float>& g) {
  GemmPlan plan;
  plan.blocks = g.k > kDepth ? blocks_of(g.k, kDepth) : 1;
  plan.depth = blocks_of(g.k, plan.blocks);
  plan.column_panels = blocks_of(g.n, kTileColumns);
  plan.row_panels = blocks_of(g.m, kPanelRows);
  const std::int64_t packed_width =
      plan.column_panels * kTileColumns + (g.a_transposed ? plan.row_panels * kPanelRows : 0);
  const std::int64_t fit = kPackLimit / (packed_width * (plan.depth > 0 ? plan.depth : 1));
  plan.blocks_at_once = at_most(fit > 1 ? fit : 1, plan.blocks);
  plan.task_rows = at_most(kTaskPanels, plan.row_panels);
  plan.task_columns = plan.column_panels;
  const auto tasks = [&] {
    return blocks_of(plan.row_panels, plan.task_rows) *
           blocks_of(plan.column_panels, plan.task_columns);
  };
  while (tasks() < kMinTasks && plan.task_columns > 1) {
    plan.task_columns = (plan.task_columns + 1) / 2;
  }
  while (tasks() < kMinTasks && plan.task_rows > 1) plan.task_rows = (plan.task_rows + 1) / 2;
  return plan;
}

/// Epilogues on one row of a finished tile, while it is in L1.
inline void finish_row(const Gemm<float>& g, std::int64_t i, std::int64_t j, std::int64_t columns) {
  constexpr std::int64_t kW = Simd::kWidth;
  float* c = g.c + i * g.ldc;
  for (const std::int64_t end = j + columns; j < end; j += kW) {
    const Simd::Mask mask = Simd::first(end - j);
    Simd::V x = Simd::load(c + j, mask);
    if (g.bias != nullptr) x = Simd::add(x, Simd::load(g.bias + j, mask));
    if (g.residual != nullptr) x = Simd::add(x, Simd::load(g.residual + i * g.ldr + j, mask));
    if (g.gelu_gradient_of != nullptr) {
      x = Simd::mul(x, gelu_derivative(Simd::load(g.gelu_gradient_of + i * g.ldc + j, mask)));
    }
    Simd::store(c + j, x, mask);
    if (g.gelu_out != nullptr) Simd::store(g.gelu_out + i * g.ldc + j, gelu(x), mask);
  }
}

/// Block of C and block of k of one task.
struct GemmBlock {
  std::int64_t row_begin = 0, row_end = 0;  // rows of C
  std::int64_t k_begin = 0, depth = 0;      // steps of k
  const float* a = nullptr;                 // packed, or null: read g.a
  const float* b = nullptr;                 // packed panels of this block of k
  bool add = false, last = false;           // not the first / the last block of k
};

inline void multiply_panel(const Gemm<float>& g, const GemmBlock& block, std::int64_t panel) {
  const std::int64_t column = panel * kTileColumns;
  const std::int64_t columns = at_most(g.n - column, kTileColumns);
  const std::int64_t vectors = blocks_of(columns, Simd::kWidth);
  const float* b = block.b + panel * kTileColumns * block.depth;
  const bool epilogue = block.last && (g.bias != nullptr || g.residual != nullptr ||
                                       g.gelu_gradient_of != nullptr || g.gelu_out != nullptr);
  for (std::int64_t i = block.row_begin; i < block.row_end; i += Simd::kTileRows) {
    const std::int64_t rows = at_most(block.row_end - i, Simd::kTileRows);
    TileA a{g.a + i * g.lda + block.k_begin, g.lda, 1};
    if (block.a != nullptr) {
      a = {block.a + i * block.depth, 1, Simd::kTileRows};
    }
    const TileC c{g.c + i * g.ldc + column, g.ldc, block.add,
                  Simd::first(columns - (vectors - 1) * Simd::kWidth)};
    tile_function(rows, vectors)(a, b, block.depth, c);
    if (!epilogue) continue;
    for (std::int64_t r = i; r < i + rows; ++r) finish_row(g, r, column, columns);
  }
}

/// Sums asked for are taken while packing where k lies outermost, else by a pass of their own.
inline bool packs_column_sums(const Gemm<float>& g) {
  return g.column_sum != nullptr && !g.b_transposed;
}

/// sums[i] += sum of row i of x (rows, length).
inline void add_sums_of_rows(ThreadTeam& team, std::int64_t rows, std::int64_t length,
                             const float* x, std::int64_t ldx, float* sums) {
  team.for_blocks(rows, kPanelRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      Simd::V sum = Simd::zero();
      for (std::int64_t p = 0; p < length; p += Simd::kWidth) {
        sum = Simd::add(sum, Simd::load(x + i * ldx + p, Simd::first(length - p)));
      }
      sums[i] += Simd::sum(sum);
    }
  });
}

/// One product being computed: the plan, and the panels of the k blocks [first, end) at hand.
class GemmRun {
 public:
  GemmRun(ThreadTeam& team, const Gemm<float>& g) : team_(team), g_(g), plan_(plan_gemm(g)) {
    const std::int64_t steps = plan_.blocks_at_once * plan_.depth;
    packed_b_ = team.scratch<float>(Scratch::kPanelB, steps * padded_n());
    if (g.a_transposed) packed_a_ = team.scratch<float>(Scratch::kPanelA, steps * padded_m());
    if (!packs_column_sums(g)) return;
    column_sums_ = team.scratch<float>(Scratch::kPartial, blocks_of(steps, kPackRows) * g.n);
  }

  void run() {
    for (first_ = 0; first_ < plan_.blocks; first_ = end_) {
      end_ = at_most(plan_.blocks, first_ + plan_.blocks_at_once);
      pack();
      multiply();
    }
  }

 private:
  std::int64_t padded_n() const { return plan_.column_panels * kTileColumns; }
  std::int64_t padded_m() const { return plan_.row_panels * kPanelRows; }
  std::int64_t step_begin() const { return first_ * plan_.depth; }
  std::int64_t step_end() const { return at_most(g_.k, end_ * plan_.depth); }
  std::int64_t depth_of(std::int64_t q) const {
    return at_most(g_.k - q * plan_.depth, plan_.depth);
  }
  float* block_a(std::int64_t q) const {
    return packed_a_ + (q - first_) * plan_.depth * padded_m();
  }
  float* block_b(std::int64_t q) const {
    return packed_b_ + (q - first_) * plan_.depth * padded_n();
  }
  std::int64_t pack_row_tasks() const {
    const bool rows = !g_.b_transposed || g_.a_transposed;
    return rows ? blocks_of(step_end() - step_begin(), kPackRows) : 0;
  }

  void pack() {
    const std::int64_t row_tasks = pack_row_tasks();
    const std::int64_t panel_tasks = g_.b_transposed ? plan_.column_panels : 0;
    team_.for_each(row_tasks + panel_tasks, [&](std::int64_t task, int) {
      if (task < row_tasks) {
        pack_rows(task);
        return;
      }
      const std::int64_t panel = task - row_tasks;
      for (std::int64_t q = first_; q < end_; ++q) {
        const std::int64_t column = panel * kTileColumns;
        pack_transposed(g_.b + column * g_.ldb + q * plan_.depth, g_.ldb, g_.n - column,
                        depth_of(q), block_b(q) + panel * kTileColumns * depth_of(q));
      }
    });
  }

  /// Rows of the operands that lie with k outermost, read in the order of memory.
  void pack_rows(std::int64_t task) {
    const std::int64_t begin = step_begin() + task * kPackRows;
    const std::int64_t end = at_most(step_end(), begin + kPackRows);
    float* column_sum = cleared(column_sums_, task, g_.n);
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t q = p / plan_.depth;
      const std::int64_t within = p - q * plan_.depth;
      const std::int64_t depth = depth_of(q);
      if (!g_.b_transposed) {
        scatter_to_panels(g_.b + p * g_.ldb, g_.n, block_b(q) + within * kTileColumns,
                          kTileColumns * depth);
        if (column_sum != nullptr) add_row(g_.b + p * g_.ldb, g_.n, column_sum);
      }
      if (g_.a_transposed) {
        scatter_to_tiles(g_.a + p * g_.lda, g_.m, block_a(q) + within * Simd::kTileRows,
                         Simd::kTileRows * depth);
      }
    }
  }

  void multiply() {
    const std::int64_t across = blocks_of(plan_.column_panels, plan_.task_columns);
    const std::int64_t down = blocks_of(plan_.row_panels, plan_.task_rows);
    team_.for_each(down * across, [&](std::int64_t task, int) {
      GemmBlock block;
      block.row_begin = task / across * plan_.task_rows * kPanelRows;
      block.row_end = at_most(g_.m, block.row_begin + plan_.task_rows * kPanelRows);
      const std::int64_t panel_begin = task % across * plan_.task_columns;
      const std::int64_t panel_end = at_most(plan_.column_panels, panel_begin + plan_.task_columns);
      for (std::int64_t q = first_; q < end_; ++q) {
        block.k_begin = q * plan_.depth;
        block.depth = depth_of(q);
        block.a = packed_a_ == nullptr ? nullptr : block_a(q);
        block.b = block_b(q);
        block.add = g_.accumulate || q > 0;
        block.last = q + 1 == plan_.blocks;
        for (std::int64_t panel = panel_begin; panel < panel_end; ++panel) {
          multiply_panel(g_, block, panel);
        }
      }
      if (block.row_begin == 0) {
        add_partial(column_sums_, g_.n, panel_begin * kTileColumns,
                    at_most(g_.n, panel_end * kTileColumns), g_.column_sum);
      }
    });
  }

  /// The `width` zeros in which a packing task sums; null when `sums` is.
  static float* cleared(float* sums, std::int64_t task, std::int64_t width) {
    if (sums == nullptr) return nullptr;
    float* sum = sums + task * width;
    for (std::int64_t i = 0; i < width; ++i) sum[i] = 0.0f;
    return sum;
  }

  /// total[begin, end) += the packing tasks' sums, in order.
  void add_partial(const float* sums, std::int64_t width, std::int64_t begin, std::int64_t end,
                   float* total) const {
    if (sums == nullptr) return;
    for (std::int64_t task = 0; task < pack_row_tasks(); ++task) {
      add_row(sums + task * width + begin, end - begin, total + begin);
    }
  }

  ThreadTeam& team_;
  const Gemm<float>& g_;
  const GemmPlan plan_;
  float* packed_a_ = nullptr;
  float* packed_b_ = nullptr;
  float* column_sums_ = nullptr;  // of op(B), n of them a packing task; null when not wanted
  std::int64_t first_ = 0;
  std::int64_t end_ = 0;
};

inline void gemm_fast(ThreadTeam& team, const Gemm<float>& g) {
  if (g.m == 0 || g.n == 0) return;
  GemmRun(team, g).run();
  if (g.column_sum != nullptr && g.b_transposed) {
    add_sums_of_rows(team, g.n, g.k, g.b, g.ldb, g.column_sum);
  }
}

}  // namespace
}  // namespace isthmus::kernels
