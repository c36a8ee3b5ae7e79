// SPDX-License-Identifier: Apache-2.0
// Runs a grid: one block after another, a block's threads as fibers that change at barriers and
// exchanges. A fiber whose thread has returned goes on with the next thread that has not begun, so
// that threads which never wait share one fiber and cost no change of stacks.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "cuda/emulated/fiber.h"
#include "cuda/emulated/simt.h"

namespace isthmus::cuda::emulated {
namespace {

// The tops of stacks lie 13 cache lines apart beside a power of two: at a distance of 128 KiB alone
// they would share a few sets of the first and second cache.
constexpr std::size_t kStackBytes = (128 << 10) + 13 * 64;
constexpr unsigned kMostThreads = 1024;
constexpr unsigned kLanes = 32;
constexpr std::size_t kSharedAlignment = 128;  // room for it is part of dynamic shared memory here

struct Warp {
  std::uint64_t generation = 0;
  unsigned arrived = 0, live = 0;
  alignas(kSlotBytes) Slot slots[2][kLanes];
};

struct Copy {
  void* to;
  const void* from;
  bool inside;
};

/// A thread's asynchronous copies.
struct Copies {
  std::vector<Copy> queued;            // and not done, oldest first
  std::vector<std::size_t> committed;  // by group: how many of them it and those before it have
};

/// No fiber, or no thread.
constexpr unsigned kNone = ~0u;

/// What the scheduler reads of each thread, over and over.
struct Waiting {
  const std::uint64_t* on = nullptr;  // runs again once this is no longer `value`; null: runs
  std::uint64_t value = 0;
};
/// What a thread that has returned waits on.
constexpr std::uint64_t kForEver = 0;

struct Machine {
  dim3 indices[kMostThreads];            // threadIdx by thread, of the grid's shape
  Waiting waiting[kMostThreads];         // by thread
  unsigned fiber_of[kMostThreads] = {};  // by thread; kNone: it has not begun
  Copies copies[kMostThreads];           // by thread
  std::vector<FiberPlace> fibers;        // as many as were needed at once so far
  std::vector<unsigned> idle;            // fibers without a thread
  Warp warps[kMostThreads / kLanes];
  std::unique_ptr<std::byte[]> stacks;  // kMostThreads of kStackBytes; null: no fiber
  std::vector<std::byte> shared;
  std::size_t shared_bytes = 0;       // of the block, static and dynamic
  std::vector<std::uint64_t> blocks;  // of a grid in shuffled order: their numbers
  const std::function<void()>* kernel = nullptr;
  unsigned threads = 0, live = 0, arrived = 0, current = 0;
  std::uint64_t barrier = 0;
  std::uint64_t seed = 0;
  std::vector<unsigned> order;  // in which the block's threads take turns
  unsigned turn = 0;            // the next place of `order` to look at
  bool progress = false;        // some thread has run since turn 0
  bool again = false;           // in order: a lane of the warp that `turn` is in has run, or of the
                                // warp before it, whose lanes take turns until all of them wait
  FiberPlace block;             // who runs the block, once all threads have returned
};

Machine* const the_machine = new Machine;  // fibers may outlive static destructors
Machine& machine() { return *the_machine; }

[[noreturn]] void fail(const char* what) {
  const dim3 b = blockIdx, t = threadIdx;
  std::fprintf(stderr, "emulated kernel: %s, at block (%u, %u, %u), thread (%u, %u, %u)\n", what,
               b.x, b.y, b.z, t.x, t.y, t.z);
  std::abort();
}

/// Makes the next thread in turn that waits for nothing the current one. RETURNS: it; kNone: all
/// have returned.
unsigned next_in_turn() {
  Machine& m = machine();
  for (;;) {
    while (m.turn < m.threads || m.again) {
      if (m.again && m.turn % kLanes == 0) {
        m.turn -= kLanes;
        m.again = false;
      }
      const unsigned t = m.order[m.turn++];
      Waiting& waiting = m.waiting[t];
      if (waiting.on != nullptr && *waiting.on == waiting.value) continue;
      waiting.on = nullptr;
      m.current = t;
      threadIdx = m.indices[t];
      m.progress = true;
      m.again = m.seed == 0;
      return t;
    }
    if (m.live == 0) return kNone;
    if (!m.progress) fail("threads wait for a barrier or exchange that others never reach");
    m.progress = false;
    m.turn = 0;
  }
}

void fiber_main();

/// RETURNS: the place of a fiber without a thread, a new one where there is none.
unsigned idle_fiber() {
  Machine& m = machine();
  if (!m.idle.empty()) {
    const unsigned fiber = m.idle.back();
    m.idle.pop_back();
    return fiber;
  }
  if (!m.stacks) m.stacks.reset(new std::byte[kMostThreads * kStackBytes]);  // untouched until used
  const std::size_t made = m.fibers.size();
  m.fibers.push_back(new_fiber({m.stacks.get() + made * kStackBytes, kStackBytes}, fiber_main));
  return static_cast<unsigned>(made);
}

/// Where `thread` begins or goes on; kNone: who runs the block.
FiberPlace& place_of(unsigned thread) {
  Machine& m = machine();
  if (thread == kNone) return m.block;
  if (m.fiber_of[thread] == kNone) m.fiber_of[thread] = idle_fiber();
  return m.fibers[m.fiber_of[thread]];
}

void wait_while(const std::uint64_t& generation, std::uint64_t value) {
  Machine& m = machine();
  m.waiting[m.current] = {&generation, value};
  const unsigned fiber = m.fiber_of[m.current];
  const FiberPlace& next = place_of(next_in_turn());
  if (&next != &m.fibers[fiber]) change_fiber(m.fibers[fiber], next);
}

void fiber_main() {
  Machine& m = machine();
  const unsigned fiber = m.fiber_of[m.current];
  for (;;) {
    try {
      (*m.kernel)();
    } catch (...) {
      fail("an exception");
    }
    m.waiting[m.current] = {&kForEver, kForEver};
    --m.live;
    --m.warps[m.current / kLanes].live;
    const unsigned next = next_in_turn();
    if (next != kNone && m.fiber_of[next] == kNone) {
      m.fiber_of[next] = fiber;
      continue;
    }
    m.idle.push_back(fiber);
    change_fiber(m.fibers[fiber], place_of(next));  // comes back for a thread that has not begun
  }
}

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

/// The next order of the seed.
template <typename Number>
void shuffle(std::vector<Number>& order) {
  Machine& m = machine();
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    m.seed = mixed(m.seed);
    std::swap(order[i], order[i + m.seed % (order.size() - i)]);
  }
}

void run_block(std::uint64_t number) {
  Machine& m = machine();
  blockIdx.x = static_cast<unsigned>(number % gridDim.x);
  blockIdx.y = static_cast<unsigned>(number / gridDim.x % gridDim.y);
  blockIdx.z = static_cast<unsigned>(number / gridDim.x / gridDim.y);
  if (m.seed != 0) shuffle(m.order);
  ++blocks_begun;
  m.shared_bytes = 0;
  if (m.shared.size() > kSharedAlignment) begin_shared(m.shared.data(), m.shared.size());
  m.live = m.threads;
  m.arrived = 0;
  for (unsigned w = 0; w < m.threads / kLanes; ++w) {
    m.warps[w].arrived = 0;
    m.warps[w].live = kLanes;
  }
  for (unsigned t = 0; t < m.threads; ++t) {
    m.waiting[t].on = nullptr;
    m.fiber_of[t] = kNone;
    m.copies[t].queued.clear();
    m.copies[t].committed.clear();
  }
  m.turn = 0;
  m.progress = m.again = false;
  change_fiber(m.block, place_of(next_in_turn()));
}

}  // namespace

void set_thread_order(std::uint64_t seed) { machine().seed = seed; }

void begin_shared(void* data, std::size_t bytes) {
  std::memset(data, 0xFF, bytes);
  machine().shared_bytes += bytes;
  if (machine().shared_bytes > shared_bytes_of_block() + kSharedAlignment) {
    fail("more shared memory than a block may have, static and dynamic together");
  }
}

void run_grid(const LaunchShape& shape, const std::function<void()>& kernel) {
  Machine& m = machine();
  gridDim = shape.blocks;
  blockDim = shape.threads;
  m.kernel = &kernel;
  m.threads = blockDim.x * blockDim.y * blockDim.z;
  threadIdx = {};
  if (m.threads == 0 || m.threads % kLanes != 0 || m.threads > kMostThreads) {
    fail("a block must have 32 to 1024 threads, in full warps");
  }
  if (gridDim.x == 0 || gridDim.y == 0 || gridDim.z == 0 || gridDim.y > 65535 ||
      gridDim.z > 65535) {
    fail("a grid must have 1 to 65535 blocks in y and z, and one in x at least");
  }
  m.shared.resize(shape.shared_bytes + kSharedAlignment);
  m.order.resize(m.threads);
  std::iota(m.order.begin(), m.order.end(), 0u);
  for (unsigned t = 0; t < m.threads; ++t) {
    m.indices[t] = dim3(t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y));
  }
  const std::uint64_t blocks = std::uint64_t{gridDim.x} * gridDim.y * gridDim.z;
  if (m.seed == 0) {
    for (std::uint64_t number = 0; number < blocks; ++number) run_block(number);
    return;
  }
  m.blocks.resize(blocks);
  std::iota(m.blocks.begin(), m.blocks.end(), 0u);
  shuffle(m.blocks);
  for (const std::uint64_t number : m.blocks) run_block(number);
}

void* dynamic_shared() {
  std::vector<std::byte>& shared = machine().shared;
  void* start = shared.data();
  std::size_t space = shared.size();
  return std::align(kSharedAlignment, 0, start, space);
}

void sync_threads() {
  Machine& m = machine();
  if (m.live != m.threads) fail("__syncthreads after a thread has returned");
  if (++m.arrived == m.threads) {
    m.arrived = 0;
    ++m.barrier;
    return;
  }
  wait_while(m.barrier, m.barrier);
}

int lane() { return static_cast<int>(machine().current % kLanes); }

const Slot* exchange(const void* value, std::size_t bytes) {
  Machine& m = machine();
  Warp& warp = m.warps[m.current / kLanes];
  if (warp.live != kLanes) fail("an exchange in a warp of which lanes have returned");
  const std::uint64_t generation = warp.generation;
  const Slot* const slots = warp.slots[generation % 2];
  std::memcpy(warp.slots[generation % 2][m.current % kLanes], value, bytes);
  if (++warp.arrived == kLanes) {
    warp.arrived = 0;
    ++warp.generation;
  } else {
    wait_while(warp.generation, generation);
  }
  return slots;
}

void queue_copy(void* shared, const void* from, bool inside) {
  std::memset(shared, 0xFF, 16);
  machine().copies[machine().current].queued.push_back({shared, from, inside});
}

void commit_copies() {
  Copies& copies = machine().copies[machine().current];
  copies.committed.push_back(copies.queued.size());
}

void wait_copies(int pending) {
  Copies& copies = machine().copies[machine().current];
  const std::size_t groups = copies.committed.size();
  if (groups <= static_cast<std::size_t>(pending)) return;
  const std::size_t over = groups - static_cast<std::size_t>(pending);
  const std::size_t done = copies.committed[over - 1];
  for (std::size_t i = 0; i < done; ++i) {
    const Copy& copy = copies.queued[i];
    if (copy.inside) {
      std::memcpy(copy.to, copy.from, 16);
    } else {
      std::memset(copy.to, 0, 16);
    }
  }
  copies.queued.erase(copies.queued.begin(),
                      copies.queued.begin() + static_cast<std::ptrdiff_t>(done));
  copies.committed.erase(copies.committed.begin(),
                         copies.committed.begin() + static_cast<std::ptrdiff_t>(over));
  for (std::size_t& each : copies.committed) each -= done;
}

}  // namespace isthmus::cuda::emulated

namespace isthmus::cuda {
namespace {
float low(std::uint32_t pair) { return __uint_as_float(pair << 16); }
float high(std::uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000u); }

void matrices(std::uint32_t (&r)[4], const void* row, bool transposed) {
  const emulated::Slot* const rows = emulated::give(row);
  const int lane = emulated::lane();
  const int i = lane / 4, j = lane % 4 * 2;  // a lane holds (i, j) and (i, j + 1) of each matrix
  for (int matrix = 0; matrix < 4; ++matrix) {
    const auto value = [&](int at_row, int at_column) -> std::uint32_t {
      const auto* line = emulated::given<const std::uint16_t*>(rows, 8 * matrix + at_row);
      return line[at_column];
    };
    r[matrix] =
        transposed ? value(j, i) | value(j + 1, i) << 16 : value(i, j) | value(i, j + 1) << 16;
  }
}
}  // namespace

void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  struct Operands {
    std::uint32_t a[4], b[2];
  };
  Operands own;
  std::memcpy(own.a, a, sizeof a);
  std::memcpy(own.b, b, sizeof b);
  const emulated::Slot* const all = emulated::give(own);
  const int lane = emulated::lane();
  // A lane is 4 g + t. a[0]: row g, columns 2t, 2t+1; a[1]: row g+8; a[2], a[3]: the same rows,
  // columns + 8. b[0]: rows 2t, 2t+1 of column g; b[1]: rows + 8.
  float rows[2][16], columns[2][16];  // of a and b: what this lane's four sums need
  for (int t = 0; t < 4; ++t) {
    const auto of_rows = emulated::given<Operands>(all, lane / 4 * 4 + t);
    for (int i = 0; i < 4; ++i) {
      rows[i % 2][i / 2 * 8 + 2 * t] = low(of_rows.a[i]);
      rows[i % 2][i / 2 * 8 + 2 * t + 1] = high(of_rows.a[i]);
    }
    for (int column = 0; column < 2; ++column) {
      const auto of_column = emulated::given<Operands>(all, (lane % 4 * 2 + column) * 4 + t);
      for (int i = 0; i < 2; ++i) {
        columns[column][i * 8 + 2 * t] = low(of_column.b[i]);
        columns[column][i * 8 + 2 * t + 1] = high(of_column.b[i]);
      }
    }
  }
  for (int e = 0; e < 4; ++e) {
    float sum = d[e];
    for (int k = 0; k < 16; ++k) sum += rows[e / 2][k] * columns[e % 2][k];
    d[e] = sum;
  }
}

void check_aligned(const void* at, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(at) % bytes != 0) {
    emulated::fail("a vector access that is not aligned to its size");
  }
}

void load_matrices(std::uint32_t (&r)[4], const void* row) { matrices(r, row, false); }
void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) { matrices(r, row, true); }

}  // namespace isthmus::cuda
