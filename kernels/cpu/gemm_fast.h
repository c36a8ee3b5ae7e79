// SPDX-License-Identifier: Apache-2.0
// Blocked matrix product in float or bfloat16 (product.h). B is packed into panels one tile wide
// unless it is narrow; A is used in place if possible. One parallel loop packs, a second one runs
// tasks of C blocks. A task owns its block of C for all of k, so sums over k have one order for any
// number of threads (the blocking is that of Goto & van de Geijn 2008, with A in place of B kept
// near). Include after one of simd_*.h.
#pragma once

#include <algorithm>

#include "kernels/cpu/gemm_epilogue.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/tile.h"

namespace isthmus::kernels {
namespace {

// Steps of a block of k: a panel of B (kDepth x one tile) stays in L2 while A passes by it, and C
// is read and written once per kDepth steps.
inline constexpr std::int64_t kDepth = 384;
/// Rows in a unit of tasks: whole tiles, 48 or 64.
template <typename Product>
inline constexpr std::int64_t kPanelRows =
    TilesOf<Product>::kRows < 8 ? 8 * TilesOf<Product>::kRows : 2 * TilesOf<Product>::kRows;
inline constexpr std::int64_t kPackSteps = 64;  // steps of k per packing task
inline constexpr std::int64_t kTaskPanels = 4;  // largest number of such units in a task
inline constexpr std::int64_t kMinTasks = 16;   // tasks are made smaller until there are this many
inline constexpr std::int64_t kPackLimit = std::int64_t{16} << 20;  // floats packed at a time

/// Steps of k with those that pad a block.
template <typename Product>
std::int64_t whole_steps(std::int64_t steps) {
  return blocks_of(steps, TilesOf<Product>::kSteps) * TilesOf<Product>::kSteps;
}

/// The blocking of a product; a function of the shape alone.
struct GemmPlan {
  std::int64_t depth = 0;           // steps of k in a block
  std::int64_t blocks = 0;          // blocks of k
  std::int64_t blocks_at_once = 0;  // packed together
  std::int64_t column_panels = 0;   // tiles across n
  std::int64_t row_panels = 0;      // kPanelRows across m
  std::int64_t task_rows = 0;       // row panels in a task
  std::int64_t task_columns = 0;    // column panels in a task
};

template <typename Product>
GemmPlan plan_gemm(const Gemm<float>& g, std::int64_t steps, bool packs_a) {
  GemmPlan plan;
  plan.blocks = steps > kDepth ? blocks_of(steps, kDepth) : 1;
  plan.depth = whole_steps<Product>(blocks_of(steps, plan.blocks));
  plan.column_panels = blocks_of(g.n, kTileColumns);
  plan.row_panels = blocks_of(g.m, kPanelRows<Product>);
  const std::int64_t packed_width =
      plan.column_panels * kTileColumns + (packs_a ? plan.row_panels * kPanelRows<Product> : 0);
  const std::int64_t fit = kPackLimit / (packed_width * (plan.depth > 0 ? plan.depth : 1));
  plan.blocks_at_once = at_most(fit > 1 ? fit : 1, plan.blocks);
  if (g.c.is_bf16())
    plan.blocks_at_once = plan.blocks;  // the tiles of a Bf16 C are rounded only
                                        // once
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

/// Operands of one block of k.
struct GemmBlock {
  std::int64_t depth = 0;  // steps of k
  TileA a;                 // of row 0; tiles are `a_tile` values apart
  std::int64_t a_tile = 0;
  TileB b;  // of panel 0; panels are `b_panel` values apart
  std::int64_t b_panel = 0;
};

/// Tile of C at row i from the operands of one block of k.
template <typename Product>
void multiply_block(const GemmBlock& block, std::int64_t panel, std::int64_t i, std::int64_t rows,
                    std::int64_t columns, const TileC& c) {
  TileA a = block.a;
  a.data += i / TilesOf<Product>::kRows * block.a_tile;
  TileB b = block.b;
  b.data += panel * block.b_panel;
  TilesOf<Product>::run(a, b, block.depth, rows, blocks_of(columns, Simd::kWidth), c);
}

/// True if A is packed. A row of pairs can be used in place if it consists of whole lanes, and
/// rows of padded blocks or tiles if nothing is to be padded.
template <typename Product>
bool packs_a(const Gemm<float>& g) {
  if (g.a_transposed) return !Product::kColumnsInPlace;
  const bool in_place =
      g.a.is_bf16() ? Product::template kInPlace<Bf16> : Product::template kInPlace<float>;
  constexpr std::int64_t kSteps = TilesOf<Product>::kSteps;
  return !in_place || g.lda % Product::kFold != 0 || g.k % (Product::kFold * kSteps) != 0 ||
         g.m % kSteps != 0;
}

/// Whole tiles of a narrow B are used in place, which saves a tenth of a weight gradient with 128
/// to 512 columns. Rows further apart miss the cache; packing them gains up to a tenth.
template <typename Product>
bool packs_b(const Gemm<float>& g) {
  constexpr std::int64_t kNarrow = 512;
  return !Product::kColumnsInPlace || g.b_transposed || g.n % kTileColumns != 0 || g.ldb > kNarrow;
}

/// One product in progress: the plan, and the panels of the packed k blocks [first, end).
template <typename Product>
class GemmRun {
 public:
  GemmRun(ThreadTeam& team, const Gemm<float>& g)
      : team_(team),
        g_(g),
        packs_a_(packs_a<Product>(g)),
        packs_b_(packs_b<Product>(g)),
        plan_(plan_gemm<Product>(g, blocks_of(g.k, kFold), packs_a_)) {
    const std::int64_t steps = plan_.blocks_at_once * plan_.depth;
    if (packs_b_) packed_b_ = team.scratch<float>(Scratch::kPanelB, steps * padded_n());
    if (packs_a_) packed_a_ = team.scratch<float>(Scratch::kPanelA, steps * padded_m());
    if (g.column_sum != nullptr) {
      column_sums_ = team.scratch<float>(Scratch::kPartial, blocks_of(steps, kPackSteps) * g.n);
    }
  }

  void run() {
    for (first_ = 0; first_ < plan_.blocks; first_ = end_) {
      end_ = at_most(plan_.blocks, first_ + plan_.blocks_at_once);
      pack();
      multiply();
    }
  }

 private:
  using Tiles = TilesOf<Product>;
  static constexpr std::int64_t kFold = Product::kFold;
  static constexpr std::int64_t kPanelRows = kernels::kPanelRows<Product>;

  std::int64_t padded_n() const { return plan_.column_panels * kTileColumns; }
  std::int64_t padded_m() const { return plan_.row_panels * kPanelRows; }
  std::int64_t total_steps() const { return blocks_of(g_.k, kFold); }
  std::int64_t step_begin() const { return first_ * plan_.depth; }
  std::int64_t step_end() const { return at_most(total_steps(), end_ * plan_.depth); }
  /// Steps of block q, padded ones among them.
  std::int64_t depth_of(std::int64_t q) const {
    return at_most(whole_steps<Product>(total_steps()) - q * plan_.depth, plan_.depth);
  }
  /// Number of values of k in block q.
  std::int64_t values_of(std::int64_t q) const {
    return at_most(g_.k - q * plan_.depth * kFold, depth_of(q) * kFold);
  }
  float* block_a(std::int64_t q) const {
    return packed_a_ + (q - first_) * plan_.depth * padded_m();
  }
  float* block_b(std::int64_t q) const {
    return packed_b_ + (q - first_) * plan_.depth * padded_n();
  }

  /// Whether the packed A has its rows one after the other.
  bool rows_of_a() const { return !g_.a_transposed || Tiles::kPacksRowsOfA; }

  /// Packing tasks of the four kinds, in order: steps of operands with k as the outer dimension,
  /// panels of a transposed B, row panels of an A that is packed by rows, steps that pad.
  std::int64_t step_tasks() const {
    const bool b = !g_.b_transposed && (packs_b_ || column_sums_ != nullptr);
    const bool a = packs_a_ && !rows_of_a();
    return a || b ? blocks_of(step_end() - step_begin(), kPackSteps) : 0;
  }
  std::int64_t panel_tasks() const { return g_.b_transposed ? plan_.column_panels : 0; }
  std::int64_t row_tasks() const { return packs_a_ && rows_of_a() ? plan_.row_panels : 0; }
  std::int64_t padding_tasks() const {
    return packs_b_ && end_ == plan_.blocks && total_steps() % Tiles::kSteps != 0 ? 1 : 0;
  }

  void pack() {
    const std::int64_t tasks = step_tasks() + panel_tasks() + row_tasks();
    team_.for_each(tasks + padding_tasks(), [&](std::int64_t task, int) {
      if (task < step_tasks()) {
        pack_steps(task);
      } else if (task < step_tasks() + panel_tasks()) {
        pack_panel(task - step_tasks());
      } else if (task == tasks) {
        pad_last_block();
      } else {
        const std::int64_t panel = task - step_tasks() - panel_tasks();
        g_.a_transposed ? pack_columns_of_a(panel) : pack_rows_of_a(panel);
      }
    });
  }

  /// Zeros in the steps of the last block that are beyond k.
  void pad_last_block() {
    const std::int64_t q = plan_.blocks - 1;
    const std::int64_t depth = depth_of(q);
    const std::int64_t used = total_steps() - q * plan_.depth;
    for (std::int64_t panel = 0; panel < plan_.column_panels; ++panel) {
      float* const steps = block_b(q) + panel * kTileColumns * depth;
      std::fill(steps + used * kTileColumns, steps + depth * kTileColumns, 0.0f);
    }
    if (!packs_a_ || g_.a_transposed) return;  // pack_columns_of_a pads
    for (std::int64_t i = 0; i < g_.m; ++i) {
      std::fill(block_a(q) + i * depth + used, block_a(q) + (i + 1) * depth, 0.0f);
    }
  }

  /// Rows of a packed A from one that is transposed, 16 steps of 16 rows at a time.
  void pack_columns_of_a(std::int64_t panel) {
    constexpr std::int64_t kW = Simd::kWidth;
    const std::int64_t end = at_most(g_.m, (panel + 1) * kPanelRows);
    for (std::int64_t q = first_; q < end_; ++q) {
      const std::int64_t depth = depth_of(q);
      for (std::int64_t p = 0; p < depth; p += kW) {
        for (std::int64_t i = panel * kPanelRows; i < end; i += kW) {
          g_.a.visit([&](const auto* a) {
            const auto step = [&](std::int64_t s) {
              const std::int64_t row = (q * plan_.depth + p + s) * kFold;
              if (row >= g_.k) return Simd::zero();
              return Product::across(a + row * g_.lda + i, g_.lda, at_most(g_.k - row, kFold),
                                     Simd::first(end - i));
            };
            transpose_block(step, block_a(q) + i * depth + p, depth);
          });
        }
      }
    }
  }

  void pack_panel(std::int64_t panel) {
    const std::int64_t column = panel * kTileColumns;
    for (std::int64_t q = first_; q < end_; ++q) {
      g_.b.visit([&](const auto* b) {
        pack_transposed<Product>(b + column * g_.ldb + q * plan_.depth * kFold, g_.ldb,
                                 g_.n - column, values_of(q),
                                 block_b(q) + panel * kTileColumns * depth_of(q));
      });
    }
  }

  void pack_rows_of_a(std::int64_t panel) {
    const std::int64_t end = at_most(g_.m, (panel + 1) * kPanelRows);
    for (std::int64_t q = first_; q < end_; ++q) {
      for (std::int64_t i = panel * kPanelRows; i < end; ++i) {
        g_.a.visit([&](const auto* a) {
          pack_row<Product>(a + i * g_.lda + q * plan_.depth * kFold, values_of(q),
                            block_a(q) + i * depth_of(q));
        });
      }
    }
  }

  /// Packs steps of the operands with k as the outer dimension, in memory order.
  void pack_steps(std::int64_t task) {
    const std::int64_t begin = step_begin() + task * kPackSteps;
    const std::int64_t end = at_most(step_end(), begin + kPackSteps);
    float* column_sum = column_sums_ == nullptr ? nullptr : column_sums_ + task * g_.n;
    if (column_sum != nullptr) {
      for (std::int64_t j = 0; j < g_.n; ++j) column_sum[j] = 0.0f;
    }
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t q = p / plan_.depth;
      const std::int64_t within = p - q * plan_.depth;
      const std::int64_t depth = depth_of(q);
      const std::int64_t row = p * kFold;
      const std::int64_t rows = at_most(g_.k - row, kFold);
      if (!g_.b_transposed) {
        g_.b.visit([&](const auto* b) {
          if (packs_b_) {
            scatter_to_panels<Product>(b + row * g_.ldb, g_.ldb, rows, g_.n,
                                       block_b(q) + within * kTileColumns, kTileColumns * depth);
          }
          for (std::int64_t r = 0; r < rows && column_sum != nullptr; ++r) {
            add_row(b + (row + r) * g_.ldb, g_.n, column_sum);
          }
        });
      }
      if (packs_a_ && !rows_of_a()) {
        g_.a.visit([&](const auto* a) {
          scatter_to_tiles<Product>(a + row * g_.lda, g_.lda, rows, g_.m,
                                    block_a(q) + within * Simd::kTileRows, Simd::kTileRows * depth);
        });
      }
    }
  }

  /// Operands of block q for tiles: in place, or packed.
  GemmBlock operands(std::int64_t q) const {
    GemmBlock block{.depth = depth_of(q)};
    if (packs_a_) {
      block.a =
          rows_of_a() ? TileA{block_a(q), depth_of(q), 1} : TileA{block_a(q), 1, Simd::kTileRows};
      block.a_tile = Tiles::kRows * depth_of(q);
    } else if (g_.a_transposed) {
      block.a = {g_.a.as<float>() + q * plan_.depth * g_.lda, 1, g_.lda};
      block.a_tile = Tiles::kRows;
    } else {
      const std::int64_t row = g_.lda / kFold;
      block.a = {g_.a.visit(lanes_of) + q * plan_.depth, row, 1};
      block.a_tile = Tiles::kRows * row;
    }
    block.b =
        packs_b_ ? TileB{block_b(q)} : TileB{g_.b.as<float>() + q * plan_.depth * g_.ldb, g_.ldb};
    block.b_panel = packs_b_ ? kTileColumns * depth_of(q) : kTileColumns;
    return block;
  }

  void multiply() {
    const std::int64_t across = blocks_of(plan_.column_panels, plan_.task_columns);
    const std::int64_t down = blocks_of(plan_.row_panels, plan_.task_rows);
    team_.for_each(down * across, [&](std::int64_t task, int) {
      [[maybe_unused]] const typename Tiles::Held held;
      const std::int64_t row = task / across * plan_.task_rows * kPanelRows;
      const std::int64_t row_end = at_most(g_.m, row + plan_.task_rows * kPanelRows);
      const std::int64_t panel = task % across * plan_.task_columns;
      const std::int64_t panel_end = at_most(plan_.column_panels, panel + plan_.task_columns);
      if (g_.c.is_bf16()) {
        for (std::int64_t p = panel; p < panel_end; ++p) sum_panel_to_bf16(row, row_end, p);
      } else {
        for (std::int64_t q = first_; q < end_; ++q) {
          for (std::int64_t p = panel; p < panel_end; ++p) add_block_to_panel(q, row, row_end, p);
        }
      }
      if (column_sums_ != nullptr && row == 0) {
        add_column_sums(panel * kTileColumns, at_most(g_.n, panel_end * kTileColumns));
      }
    });
  }

  /// Adds a block of k to rows [row, end) of a panel of C; epilogues after the last block.
  void add_block_to_panel(std::int64_t q, std::int64_t row, std::int64_t end,
                          std::int64_t panel) const {
    const GemmBlock here = operands(q);
    const std::int64_t column = panel * kTileColumns;
    const std::int64_t columns = at_most(g_.n - column, kTileColumns);
    const Simd::Mask last =
        Simd::first(columns - (blocks_of(columns, Simd::kWidth) - 1) * Simd::kWidth);
    const bool finishes = q + 1 == plan_.blocks && epilogue_of(g_) != 0;
    const FinishFunction finish = finish_function<float>(g_);
    for (std::int64_t i = row; i < end; i += Tiles::kRows) {
      const std::int64_t rows = at_most(end - i, Tiles::kRows);
      float* c = g_.c.as<float>() + i * g_.ldc + column;
      multiply_block<Product>(here, panel, i, rows, columns,
                              {c, g_.ldc, g_.accumulate || q > 0, last});
      if (finishes) finish(g_, c, g_.ldc, i, rows, column, columns);
    }
  }

  /// The same for a C in bfloat16 and all of k: a tile is summed in float and rounded once.
  void sum_panel_to_bf16(std::int64_t row, std::int64_t end, std::int64_t panel) const {
    const std::int64_t column = panel * kTileColumns;
    const std::int64_t columns = at_most(g_.n - column, kTileColumns);
    const FinishFunction finish = finish_function<Bf16>(g_);
    alignas(64) float tile[Tiles::kRows * kTileColumns];
    for (std::int64_t i = row; i < end; i += Tiles::kRows) {
      const std::int64_t rows = at_most(end - i, Tiles::kRows);
      for (std::int64_t q = 0; q < plan_.blocks; ++q) {
        multiply_block<Product>(operands(q), panel, i, rows, columns,
                                {tile, kTileColumns, q > 0, Simd::first(Simd::kWidth)});
      }
      finish(g_, tile, kTileColumns, i, rows, column, columns);
    }
  }

  /// Adds columns [begin, end) of the packing tasks' sums, in order of the tasks.
  void add_column_sums(std::int64_t begin, std::int64_t end) const {
    for (std::int64_t task = 0; task < step_tasks(); ++task) {
      add_row(column_sums_ + task * g_.n + begin, end - begin, g_.column_sum + begin);
    }
  }

  ThreadTeam& team_;
  const Gemm<float>& g_;
  const bool packs_a_, packs_b_;
  const GemmPlan plan_;
  float* packed_a_ = nullptr;
  float* packed_b_ = nullptr;
  float* column_sums_ = nullptr;  // n floats per packing task; null: not requested
  std::int64_t first_ = 0;
  std::int64_t end_ = 0;
};

template <typename Product>
void gemm_with(ThreadTeam& team, const Gemm<float>& g) {
  if (g.m == 0 || g.n == 0) return;
  GemmRun<Product>(team, g).run();
}

}  // namespace
}  // namespace isthmus::kernels
