// SPDX-License-Identifier: Apache-2.0
// Bytes moved an element: forward 8 (12 with positions, less what the cache has), backward 4 for dy
// and 8 for each row of the table that is met.
#include <vector>

#include "kernels/cuda/embedding.h"
#include "kernels/cuda/pack.h"

namespace isthmus::cuda {
namespace {

constexpr int kMostThreads = 256;
constexpr int kAhead = 8;  // rows whose loads are under way while one is added

// A block a row.
template <int kPack>
__global__ void forward_kernel(Embedding e, const float* table, const float* positions, float* y) {
  const std::int64_t r = blockIdx.x;
  const std::int64_t row = e.ids[r] - e.first;
  const bool held = row >= 0 && row < e.vocab;
  const float* const from = table + row * e.channels;
  const float* const position = positions == nullptr ? nullptr : positions + r % e.seq * e.channels;
  for (std::int64_t c = std::int64_t{threadIdx.x} * kPack; c < e.channels;
       c += std::int64_t{blockDim.x} * kPack) {
    float v[kPack] = {};
    if (held) load_pack<kPack>(from + c, v);
    if (position != nullptr) {
      float added[kPack];
      load_pack<kPack>(position + c, added);
      for (int i = 0; i < kPack; ++i) v[i] += added[i];
    }
    store_pack<kPack>(y + r * e.channels + c, v);
  }
}

/// Adds dy's rows row_of(0), row_of(1), ... row_of(count - 1) to `sum` in this order.
template <int kPack, typename RowOf>
__device__ inline void add_rows(std::int64_t count, std::int64_t channels, const float* dy,
                                RowOf row_of, float (&sum)[kPack]) {
  for (std::int64_t first = 0; first < count; first += kAhead) {
    float v[kAhead][kPack] = {};
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (first + j < count) load_pack<kPack>(dy + row_of(first + j) * channels, v[j]);
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (first + j >= count) continue;
      for (int i = 0; i < kPack; ++i) sum[i] += v[j][i];
    }
  }
}

// Block (p, tile): if the p-th row of `order` is the first of its id, adds all rows of that id.
template <int kPack>
__global__ void table_kernel(Embedding e, const std::int32_t* order, const float* dy,
                             float* d_table) {
  const std::int64_t p = blockIdx.x;
  const std::int32_t id = e.ids[order[p]];
  if (p > 0 && e.ids[order[p - 1]] == id) return;
  const std::int64_t row = id - e.first;
  if (row < 0 || row >= e.vocab) return;
  const std::int64_t c = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kPack;
  if (c >= e.channels) return;
  // The run's end, in steps that double and halve: runs are short, or long and few.
  std::int64_t step = 1, end = p + 1;
  while (end - 1 + step < e.rows && e.ids[order[end - 1 + step]] == id) end += step, step *= 2;
  for (; step > 0; step /= 2) {
    if (end - 1 + step < e.rows && e.ids[order[end - 1 + step]] == id) end += step;
  }
  float sum[kPack];
  float* const to = d_table + row * e.channels + c;
  load_pack<kPack>(to, sum);
  add_rows<kPack>(
      end - p, e.channels, dy + c,
      [=](std::int64_t i) { return static_cast<std::int64_t>(order[p + i]); }, sum);
  store_pack<kPack>(to, sum);
}

// Block (t, tile): the rows of position t.
template <int kPack>
__global__ void positions_kernel(Embedding e, const float* dy, float* d_positions) {
  const std::int64_t t = blockIdx.x;
  const std::int64_t c = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kPack;
  if (c >= e.channels) return;
  float sum[kPack];
  load_pack<kPack>(d_positions + t * e.channels + c, sum);
  const std::int64_t seq = e.seq;
  add_rows<kPack>((e.rows - t + seq - 1) / seq, e.channels, dy + c,
                  [=](std::int64_t i) { return i * seq + t; }, sum);
  store_pack<kPack>(d_positions + t * e.channels + c, sum);
}

LaunchShape tiles_shape(std::int64_t rows, std::int64_t packs) {
  constexpr std::int64_t kTileThreads = 64;  // small, so that runs of frequent ids spread out
  return {.blocks = dim3(static_cast<unsigned>(rows),
                         static_cast<unsigned>((packs + kTileThreads - 1) / kTileThreads)),
          .threads = dim3(kTileThreads)};
}

template <int kPack>
void launch_backward(Stream& stream, const Embedding& e, const std::int32_t* order, const float* dy,
                     float* d_table, float* d_positions) {
  const std::int64_t packs = e.channels / kPack;
  launch(stream, tiles_shape(e.rows, packs), table_kernel<kPack>, e, order, dy, d_table);
  if (d_positions == nullptr) return;
  const std::int64_t met = e.rows < e.seq ? e.rows : e.seq;
  launch(stream, tiles_shape(met, packs), positions_kernel<kPack>, e, dy, d_positions);
}

template <int kPack>
void launch_forward(Stream& stream, const Embedding& e, const float* table, const float* positions,
                    float* y) {
  const std::int64_t packs = (e.channels / kPack + kWarp - 1) / kWarp * kWarp;
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(e.rows)),
          .threads = dim3(static_cast<unsigned>(packs < kMostThreads ? packs : kMostThreads))},
         forward_kernel<kPack>, e, table, positions, y);
}

}  // namespace

void embedding_forward(Stream& stream, const Embedding& e, const float* table,
                       const float* positions, float* y) {
  if (e.rows == 0) return;
  const bool packs = fits_packs(4, table, e.channels) && fits_packs(4, positions, e.channels) &&
                     fits_packs(4, y, e.channels);
  if (packs) {
    launch_forward<4>(stream, e, table, positions, y);
  } else {
    launch_forward<1>(stream, e, table, positions, y);
  }
}

void embedding_backward(Stream& stream, const Embedding& e, const std::int32_t* order,
                        const float* dy, float* d_table, float* d_positions) {
  if (e.rows == 0) return;
  const bool packs = fits_packs(4, dy, e.channels) && fits_packs(4, d_table, e.channels) &&
                     fits_packs(4, d_positions, e.channels);
  if (packs) {
    launch_backward<4>(stream, e, order, dy, d_table, d_positions);
  } else {
    launch_backward<1>(stream, e, order, dy, d_table, d_positions);
  }
}

void embedding_order(std::int64_t rows, std::int64_t vocab, const std::int32_t* ids,
                     std::int32_t* order) {
  std::vector<std::int32_t> next(static_cast<std::size_t>(vocab) + 1);  // place of an id's next row
  for (std::int64_t r = 0; r < rows; ++r) ++next[static_cast<std::size_t>(ids[r]) + 1];
  for (std::size_t id = 1; id < next.size(); ++id) next[id] += next[id - 1];
  for (std::int64_t r = 0; r < rows; ++r) {
    order[next[static_cast<std::size_t>(ids[r])]++] = static_cast<std::int32_t>(r);
  }
}

}  // namespace isthmus::cuda
