// SPDX-License-Identifier: Apache-2.0
// Blocked float matrix product. B is packed into panels one tile wide, A is read where it lies
// (packed into panels only when transposed); both in one parallel loop, then tasks of C blocks in a
// second one. A task owns its block of C for all of k, so sums over k run in one order whatever the
// number of threads (Goto & van de Geijn 2008 has the blocking, with A rather than B kept near).
// Include after one of simd_*.h.
#pragma once

#include <algorithm>

#include "kernels/gemm.h"
#include "kernels/simd_math.h"
#include "kernels/tile.h"

namespace isthmus::kernels {
namespace {

// Depth of a block of k: a panel of B (kDepth x one tile) stays in L2 while A passes by it, and C
// is read and written once per kDepth steps.
inline constexpr std::int64_t kDepth = 384;
inline constexpr std::int64_t kPanelRows = 48;  // rows in a packed panel of A: 8 tiles
inline constexpr std::int64_t kTaskPanels = 4;  // panels of A in a task, at most
inline constexpr std::int64_t kMinTasks = 32;   // tasks are made smaller until there are as many
inline constexpr std::int64_t kPackLimit = std::int64_t{16} << 20;  // floats packed at a time

inline std::int64_t blocks_of(std::int64_t n, std::int64_t block) {
  return (n + block - 1) / block;
}
inline std::int64_t at_most(std::int64_t n, std::int64_t limit) { return n < limit ? n : limit; }

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

/// Steps [begin, begin + depth) of column panel `panel` of op(B) as (depth, kTileColumns), zeros
/// beyond column n.
inline void pack_b(const Gemm<float>& g, std::int64_t panel, std::int64_t begin, std::int64_t depth,
                   float* to) {
  constexpr std::int64_t kW = Simd::kWidth;
  const std::int64_t first = panel * kTileColumns;
  const std::int64_t columns = at_most(g.n - first, kTileColumns);
  if (!g.b_transposed) {
    for (std::int64_t p = 0; p < depth; ++p) {
      const float* from = g.b + (begin + p) * g.ldb + first;
      for (std::int64_t j = 0; j < kTileColumns; j += kW) {
        Simd::store(to + p * kTileColumns + j, columns - j >= kW ? Simd::load(from + j)
                                               : columns > j
                                                   ? Simd::load(from + j, Simd::first(columns - j))
                                                   : Simd::zero());
      }
    }
    return;
  }
  for (std::int64_t j = 0; j < kTileColumns; j += kW) {
    std::int64_t p = 0;
    const float* from = g.b + (first + j) * g.ldb + begin;
    if (columns - j >= kW) {
      for (; p + kW <= depth; p += kW) {
        transpose_block(from + p, g.ldb, to + p * kTileColumns + j, kTileColumns);
      }
    }
    for (; p < depth; ++p) {
      for (std::int64_t i = 0; i < kW; ++i) {
        to[p * kTileColumns + j + i] = j + i < columns ? from[i * g.ldb + p] : 0.0f;
      }
    }
  }
}

/// The same steps of row panel `panel` of a transposed A as (depth, kPanelRows); adds their sums to
/// row_sum.
inline void pack_a(const Gemm<float>& g, std::int64_t panel, std::int64_t begin, std::int64_t depth,
                   float* to) {
  constexpr std::int64_t kW = Simd::kWidth;
  constexpr std::int64_t kVectors = kPanelRows / kW;
  const std::int64_t first = panel * kPanelRows;
  const std::int64_t rows = at_most(g.m - first, kPanelRows);
  Simd::V sum[kVectors];
  for (Simd::V& s : sum) s = Simd::zero();
  for (std::int64_t p = 0; p < depth; ++p) {
    const float* from = g.a + (begin + p) * g.lda + first;
    for (std::int64_t v = 0; v < kVectors; ++v) {
      const std::int64_t left = rows - v * kW;
      const Simd::V x = left >= kW ? Simd::load(from + v * kW)
                        : left > 0 ? Simd::load(from + v * kW, Simd::first(left))
                                   : Simd::zero();
      Simd::store(to + p * kPanelRows + v * kW, x);
      sum[v] = Simd::add(sum[v], x);
    }
  }
  if (g.row_sum == nullptr) return;
  for (std::int64_t v = 0; v * kW < rows; ++v) {
    const Simd::Mask mask = Simd::first(rows - v * kW);
    float* total = g.row_sum + first + v * kW;
    Simd::store(total, Simd::add(Simd::load(total, mask), sum[v]), mask);
  }
}

/// Where a tile of C lies, and how its last vector is masked.
struct TileC {
  float* data = nullptr;
  std::int64_t row = 0;
  bool add = false;  // C += tile rather than C = tile
  Simd::Mask last;
};

template <int R, int V>
void gemm_tile(const TileA& a, const float* b, std::int64_t depth, const TileC& c) {
  constexpr std::int64_t kW = Simd::kWidth;
  Simd::V acc[R][V];
  for (int i = 0; i < R; ++i) {
    for (int j = 0; j < V; ++j) {
      acc[i][j] = Simd::zero();
      __builtin_prefetch(c.data + i * c.row + j * kW, 1);
    }
  }
  multiply_tile<R, V>(a, b, kTileColumns, depth, acc);
  for (int i = 0; i < R; ++i) {
    float* row = c.data + i * c.row;
    for (int j = 0; j + 1 < V; ++j) {
      if (c.add) acc[i][j] = Simd::add(Simd::load(row + j * kW), acc[i][j]);
      Simd::store(row + j * kW, acc[i][j]);
    }
    float* end = row + (V - 1) * kW;
    if (c.add) acc[i][V - 1] = Simd::add(Simd::load(end, c.last), acc[i][V - 1]);
    Simd::store(end, acc[i][V - 1], c.last);
  }
}

using TileFunction = void (*)(const TileA&, const float*, std::int64_t, const TileC&);

template <int V>
TileFunction tile_function(std::int64_t rows) {
  static_assert(Simd::kTileRows == 6);
  constexpr TileFunction kByRows[6] = {gemm_tile<1, V>, gemm_tile<2, V>, gemm_tile<3, V>,
                                       gemm_tile<4, V>, gemm_tile<5, V>, gemm_tile<6, V>};
  return kByRows[rows - 1];
}

inline TileFunction tile_function(std::int64_t rows, std::int64_t vectors) {
  if (vectors == 1) return tile_function<1>(rows);
  if (vectors == 2) return tile_function<2>(rows);
  if constexpr (Simd::kTileVectors == 4) {
    if (vectors == 3) return tile_function<3>(rows);
    return tile_function<4>(rows);
  }
  return tile_function<2>(rows);
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
  std::int64_t row_begin = 0, row_end = 0;      // rows of C
  std::int64_t panel_begin = 0, panel_end = 0;  // column panels
  std::int64_t k_begin = 0, depth = 0;          // steps of k
  const float* a = nullptr;                     // packed, or null: read g.a
  const float* b = nullptr;                     // packed panels of this block of k
  bool add = false, last = false;               // not the first / the last block of k
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
      a = {block.a + i / kPanelRows * kPanelRows * block.depth + i % kPanelRows, 1, kPanelRows};
    }
    const TileC c{g.c + i * g.ldc + column, g.ldc, block.add,
                  Simd::first(columns - (vectors - 1) * Simd::kWidth)};
    tile_function(rows, vectors)(a, b, block.depth, c);
    if (!epilogue) continue;
    for (std::int64_t r = i; r < i + rows; ++r) finish_row(g, r, column, columns);
  }
}

/// Row sums of an A that is not packed.
inline void add_row_sums(ThreadTeam& team, const Gemm<float>& g) {
  team.for_blocks(g.m, kPanelRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      Simd::V sum = Simd::zero();
      for (std::int64_t p = 0; p < g.k; p += Simd::kWidth) {
        sum = Simd::add(sum, Simd::load(g.a + i * g.lda + p, Simd::first(g.k - p)));
      }
      g.row_sum[i] += Simd::sum(sum);
    }
  });
}

inline void gemm_fast(ThreadTeam& team, const Gemm<float>& g) {
  if (g.m == 0 || g.n == 0) return;
  const GemmPlan plan = plan_gemm(g);
  const std::int64_t padded_n = plan.column_panels * kTileColumns;
  const std::int64_t padded_m = plan.row_panels * kPanelRows;
  const std::int64_t steps_at_once = plan.blocks_at_once * plan.depth;
  float* packed_b = team.scratch<float>(Scratch::kPanelB, steps_at_once * padded_n);
  float* packed_a =
      g.a_transposed ? team.scratch<float>(Scratch::kPanelA, steps_at_once * padded_m) : nullptr;
  for (std::int64_t first = 0; first < plan.blocks; first += plan.blocks_at_once) {
    const std::int64_t end = at_most(plan.blocks, first + plan.blocks_at_once);
    // Block q of k: its steps, and their place in the packed panels (rows of all panels before it).
    const auto steps = [&](std::int64_t q) {
      const std::int64_t begin = q * plan.depth;
      return std::pair{begin, at_most(g.k - begin, plan.depth)};
    };
    const std::int64_t base = first * plan.depth;
    const std::int64_t pack_tasks = plan.column_panels + (g.a_transposed ? plan.row_panels : 0);
    team.for_each(pack_tasks, [&](std::int64_t task, int) {
      for (std::int64_t q = first; q < end; ++q) {
        const auto [begin, depth] = steps(q);
        if (task < plan.column_panels) {
          pack_b(g, task, begin, depth,
                 packed_b + (begin - base) * padded_n + task * kTileColumns * depth);
        } else {
          const std::int64_t panel = task - plan.column_panels;
          pack_a(g, panel, begin, depth,
                 packed_a + (begin - base) * padded_m + panel * kPanelRows * depth);
        }
      }
    });
    const std::int64_t across = blocks_of(plan.column_panels, plan.task_columns);
    team.for_each(blocks_of(plan.row_panels, plan.task_rows) * across, [&](std::int64_t task, int) {
      GemmBlock block;
      block.row_begin = task / across * plan.task_rows * kPanelRows;
      block.row_end = at_most(g.m, block.row_begin + plan.task_rows * kPanelRows);
      block.panel_begin = task % across * plan.task_columns;
      block.panel_end = at_most(plan.column_panels, block.panel_begin + plan.task_columns);
      for (std::int64_t q = first; q < end; ++q) {
        const auto [begin, depth] = steps(q);
        block.k_begin = begin;
        block.depth = depth;
        block.b = packed_b + (begin - base) * padded_n;
        block.a = g.a_transposed ? packed_a + (begin - base) * padded_m : nullptr;
        block.add = g.accumulate || q > 0;
        block.last = q + 1 == plan.blocks;
        for (std::int64_t panel = block.panel_begin; panel < block.panel_end; ++panel) {
          multiply_panel(g, block, panel);
        }
      }
    });
  }
  if (g.row_sum != nullptr && !g.a_transposed) add_row_sums(team, g);
}

}  // namespace
}  // namespace isthmus::kernels
