// SPDX-License-Identifier: Apache-2.0
// Blocked float matrix product. B is packed into panels one tile wide unless it is narrow, A is
// read where it lies; with bfloat16 operands (product.h) both are packed. Packing is one parallel
// loop, tasks of C blocks are a second one. A task owns its block of C for all of k, so sums over k
// run in one order whatever the number of threads (Goto & van de Geijn 2008 has the blocking, with
// A rather than B kept near). Include after one of simd_*.h.
#pragma once

#include <utility>

#include "kernels/gemm.h"
#include "kernels/panel.h"
#include "kernels/simd_math.h"
#include "kernels/tile.h"

namespace isthmus::kernels {
namespace {

// Steps of a block of k: a panel of B (kDepth x one tile) stays in L2 while A passes by it, and C
// is read and written once per kDepth steps.
inline constexpr std::int64_t kDepth = 384;
inline constexpr std::int64_t kPanelRows = 48;  // unit of rows of tasks: 8 tiles
inline constexpr std::int64_t kPackSteps = 64;  // steps of k a packing task takes
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

inline GemmPlan plan_gemm(const Gemm<float>& g, std::int64_t steps, bool packs_a) {
  GemmPlan plan;
  plan.blocks = steps > kDepth ? blocks_of(steps, kDepth) : 1;
  plan.depth = blocks_of(steps, plan.blocks);
  plan.column_panels = blocks_of(g.n, kTileColumns);
  plan.row_panels = blocks_of(g.m, kPanelRows);
  const std::int64_t packed_width =
      plan.column_panels * kTileColumns + (packs_a ? plan.row_panels * kPanelRows : 0);
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

/// Which epilogues a product has.
enum Epilogue : unsigned { kBias = 1, kResidual = 2, kFactor = 4, kGelu = 8, kEpilogues = 16 };

inline unsigned epilogue_of(const Gemm<float>& g) {
  return (g.bias != nullptr ? kBias : 0u) | (g.residual != nullptr ? kResidual : 0u) |
         (g.factor != nullptr ? kFactor : 0u) | (g.gelu_out != nullptr ? kGelu : 0u);
}

/// Epilogues on one vector of C.
template <unsigned kWhich>
[[gnu::always_inline]] inline void finish_vector(const Gemm<float>& g, std::int64_t i,
                                                 std::int64_t j, Simd::Mask mask) {
  float* c = g.c + i * g.ldc + j;
  Simd::V x = Simd::load(c, mask);
  if constexpr ((kWhich & kBias) != 0) x = Simd::add(x, Simd::load(g.bias + j, mask));
  if constexpr ((kWhich & kResidual) != 0) {
    x = Simd::add(x, Simd::load(g.residual + i * g.ldr + j, mask));
  }
  if constexpr ((kWhich & kFactor) != 0) {
    x = Simd::mul(x, Simd::load(g.factor + i * g.ldc + j, mask));
  }
  if constexpr ((kWhich & kGelu) != 0) {
    const GeluPair gelu = gelu_pair(x);
    Simd::store(g.gelu_out + i * g.ldc + j, gelu.value, mask);
    x = gelu.slope;
  }
  Simd::store(c, x, mask);
}

/// Epilogues on rows of a finished tile, while it is in L1.
template <unsigned kWhich>
void finish_rows(const Gemm<float>& g, std::int64_t i, std::int64_t rows, std::int64_t j,
                 std::int64_t columns) {
  for (const std::int64_t end = i + rows; i < end; ++i) {
#pragma GCC unroll 4
    for (std::int64_t from = 0; from < columns; from += Simd::kWidth) {
      finish_vector<kWhich>(g, i, j + from, Simd::first(columns - from));
    }
  }
}

using FinishFunction = void (*)(const Gemm<float>&, std::int64_t, std::int64_t, std::int64_t,
                                std::int64_t);

template <std::size_t... kWhich>
FinishFunction finish_function(unsigned which, std::index_sequence<kWhich...> /*all*/) {
  constexpr FinishFunction kFunctions[] = {finish_rows<kWhich>...};
  return kFunctions[which];
}

/// Block of C and block of k of one task.
struct GemmBlock {
  std::int64_t row_begin = 0, row_end = 0;  // rows of C
  std::int64_t depth = 0;                   // steps of k
  TileA a;                                  // of row 0; its tiles are `a_tile` values apart
  std::int64_t a_tile = 0;
  TileB b;  // of panel 0; panels are `b_panel` values apart
  std::int64_t b_panel = 0;
  bool add = false, last = false;  // not the first / the last block of k
};

template <typename Product>
void multiply_panel(const Gemm<float>& g, const GemmBlock& block, std::int64_t panel) {
  const std::int64_t column = panel * kTileColumns;
  const std::int64_t columns = at_most(g.n - column, kTileColumns);
  const std::int64_t vectors = blocks_of(columns, Simd::kWidth);
  TileB b = block.b;
  b.data += panel * block.b_panel;
  const unsigned epilogue = block.last ? epilogue_of(g) : 0;
  const FinishFunction finish = finish_function(epilogue, std::make_index_sequence<kEpilogues>{});
  for (std::int64_t i = block.row_begin; i < block.row_end; i += Simd::kTileRows) {
    const std::int64_t rows = at_most(block.row_end - i, Simd::kTileRows);
    TileA a = block.a;
    a.data += i / Simd::kTileRows * block.a_tile;
    const TileC c{g.c + i * g.ldc + column, g.ldc, block.add,
                  Simd::first(columns - (vectors - 1) * Simd::kWidth)};
    tile_function<Product>(rows, vectors)(a, b, block.depth, c);
    if (epilogue != 0) finish(g, i, rows, column, columns);
  }
}

/// Whole tiles of a narrow B are read where they lie, which saves a tenth of a weight gradient of
/// 128 to 512 columns; rows further apart miss the cache, and packing them gains up to a tenth.
template <typename Product>
bool packs_b(const Gemm<float>& g) {
  constexpr std::int64_t kNarrow = 512;
  return Product::kPacksA || g.b_transposed || g.n % kTileColumns != 0 || g.ldb > kNarrow;
}

/// One product being computed: the plan, and the panels of the k blocks [first, end) at hand.
template <typename Product>
class GemmRun {
 public:
  GemmRun(ThreadTeam& team, const Gemm<float>& g)
      : team_(team),
        g_(g),
        packs_b_(packs_b<Product>(g)),
        plan_(plan_gemm(g, blocks_of(g.k, kFold), Product::kPacksA)) {
    const std::int64_t steps = plan_.blocks_at_once * plan_.depth;
    if (packs_b_) packed_b_ = team.scratch<float>(Scratch::kPanelB, steps * padded_n());
    if (Product::kPacksA) packed_a_ = team.scratch<float>(Scratch::kPanelA, steps * padded_m());
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
  static constexpr std::int64_t kFold = Product::kFold;

  std::int64_t padded_n() const { return plan_.column_panels * kTileColumns; }
  std::int64_t padded_m() const { return plan_.row_panels * kPanelRows; }
  std::int64_t total_steps() const { return blocks_of(g_.k, kFold); }
  std::int64_t step_begin() const { return first_ * plan_.depth; }
  std::int64_t step_end() const { return at_most(total_steps(), end_ * plan_.depth); }
  std::int64_t depth_of(std::int64_t q) const {
    return at_most(total_steps() - q * plan_.depth, plan_.depth);
  }
  /// Values of k in block q.
  std::int64_t values_of(std::int64_t q) const {
    return at_most(g_.k - q * plan_.depth * kFold, depth_of(q) * kFold);
  }
  float* block_a(std::int64_t q) const {
    return packed_a_ + (q - first_) * plan_.depth * padded_m();
  }
  float* block_b(std::int64_t q) const {
    return packed_b_ + (q - first_) * plan_.depth * padded_n();
  }

  /// Packing tasks of the three kinds, one kind after another: steps of operands that lie with k
  /// outermost, panels of a transposed B, row panels of an A that is not transposed.
  std::int64_t step_tasks() const {
    const bool b = !g_.b_transposed && (packs_b_ || column_sums_ != nullptr);
    const bool a = g_.a_transposed && Product::kPacksA;
    return a || b ? blocks_of(step_end() - step_begin(), kPackSteps) : 0;
  }
  std::int64_t panel_tasks() const { return g_.b_transposed ? plan_.column_panels : 0; }
  std::int64_t row_tasks() const {
    return Product::kPacksA && !g_.a_transposed ? plan_.row_panels : 0;
  }

  void pack() {
    team_.for_each(step_tasks() + panel_tasks() + row_tasks(), [&](std::int64_t task, int) {
      if (task < step_tasks()) {
        pack_steps(task);
      } else if (task < step_tasks() + panel_tasks()) {
        pack_panel(task - step_tasks());
      } else {
        pack_rows_of_a(task - step_tasks() - panel_tasks());
      }
    });
  }

  void pack_panel(std::int64_t panel) {
    const std::int64_t column = panel * kTileColumns;
    for (std::int64_t q = first_; q < end_; ++q) {
      pack_transposed<Product>(g_.b + column * g_.ldb + q * plan_.depth * kFold, g_.ldb,
                               g_.n - column, values_of(q),
                               block_b(q) + panel * kTileColumns * depth_of(q));
    }
  }

  void pack_rows_of_a(std::int64_t panel) {
    const std::int64_t end = at_most(g_.m, (panel + 1) * kPanelRows);
    for (std::int64_t q = first_; q < end_; ++q) {
      for (std::int64_t i = panel * kPanelRows; i < end; ++i) {
        pack_row<Product>(g_.a + i * g_.lda + q * plan_.depth * kFold, values_of(q),
                          block_a(q) + i * depth_of(q));
      }
    }
  }

  /// Steps of the operands that lie with k outermost, read in the order of memory.
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
        if (packs_b_)
          scatter_to_panels<Product>(g_.b + row * g_.ldb, g_.ldb, rows, g_.n,
                                     block_b(q) + within * kTileColumns, kTileColumns * depth);
        for (std::int64_t r = 0; r < rows && column_sum != nullptr; ++r) {
          add_row(g_.b + (row + r) * g_.ldb, g_.n, column_sum);
        }
      }
      if (g_.a_transposed && Product::kPacksA) {
        scatter_to_tiles<Product>(g_.a + row * g_.lda, g_.lda, rows, g_.m,
                                  block_a(q) + within * Simd::kTileRows, Simd::kTileRows * depth);
      }
    }
  }

  /// Where tiles find A in block q: in place, or in packed tiles or rows.
  void set_a(std::int64_t q, GemmBlock& block) const {
    if (Product::kPacksA) {
      block.a = g_.a_transposed ? TileA{block_a(q), 1, Simd::kTileRows}
                                : TileA{block_a(q), depth_of(q), 1};
      block.a_tile = Simd::kTileRows * depth_of(q);
    } else if (g_.a_transposed) {
      block.a = {g_.a + q * plan_.depth * g_.lda, 1, g_.lda};
      block.a_tile = Simd::kTileRows;
    } else {
      block.a = {g_.a + q * plan_.depth, g_.lda, 1};
      block.a_tile = Simd::kTileRows * g_.lda;
    }
  }

  void set_b(std::int64_t q, GemmBlock& block) const {
    block.b = packs_b_ ? TileB{block_b(q)} : TileB{g_.b + q * plan_.depth * g_.ldb, g_.ldb};
    block.b_panel = packs_b_ ? kTileColumns * depth_of(q) : kTileColumns;
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
        block.depth = depth_of(q);
        set_a(q, block);
        set_b(q, block);
        block.add = g_.accumulate || q > 0;
        block.last = q + 1 == plan_.blocks;
        for (std::int64_t panel = panel_begin; panel < panel_end; ++panel) {
          multiply_panel<Product>(g_, block, panel);
        }
      }
      if (column_sums_ != nullptr && block.row_begin == 0) {
        add_column_sums(panel_begin * kTileColumns, at_most(g_.n, panel_end * kTileColumns));
      }
    });
  }

  /// Columns [begin, end) of the packing tasks' sums, in order of the tasks.
  void add_column_sums(std::int64_t begin, std::int64_t end) const {
    for (std::int64_t task = 0; task < step_tasks(); ++task) {
      add_row(column_sums_ + task * g_.n + begin, end - begin, g_.column_sum + begin);
    }
  }

  ThreadTeam& team_;
  const Gemm<float>& g_;
  const bool packs_b_;
  const GemmPlan plan_;
  float* packed_a_ = nullptr;
  float* packed_b_ = nullptr;
  float* column_sums_ = nullptr;  // n of them a packing task; null when not wanted
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
