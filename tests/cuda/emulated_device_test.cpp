// SPDX-License-Identifier: Apache-2.0
// The emulated device does what a device does, and shows what a device hides.
#include <cmath>
#include <numeric>

#include "cuda/device_test.h"
#include "cuda/emulated/runtime.h"
#include "kernels/bf16.h"
#include "kernels/cuda/simt.h"

namespace isthmus::cuda::this_file {
namespace {

__global__ void sum_kernel(const float* x, float* sums) {
  ISTHMUS_SHARED(float, scratch, [kWarp]);
  const float total = block_sum(x[blockIdx.x * blockDim.x + threadIdx.x], scratch);
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

TEST(EmulatedDevice, SumsOverWarpsAndBlocksInAnyOrderOfThreads) {
  Stream stream;
  std::vector<float> x(3 * 256);
  std::iota(x.begin(), x.end(), 0.0f);
  const DeviceArray<float> x_device = on_device(stream, x);
  const DeviceArray<float> sums(3);
  for (const std::uint64_t seed : {0, 1, 2}) {
    emulated::set_thread_order(seed);
    launch(stream, {.blocks = dim3(3), .threads = dim3(256)}, sum_kernel, x_device.data(),
           sums.data());
    EXPECT_THAT(on_host(stream, sums), ::testing::ElementsAre(32640, 98176, 163712));
  }
  emulated::set_thread_order(0);
}

__global__ void reverse_kernel(float* x) {
  ISTHMUS_DYNAMIC_SHARED(float, values);
  values[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

TEST(EmulatedDevice, ThreadsMeetAtBarriers) {
  Stream stream;
  std::vector<float> x(64);
  std::iota(x.begin(), x.end(), 0.0f);
  const DeviceArray<float> x_device = on_device(stream, x);
  launch(stream, {.threads = dim3(64), .shared_bytes = 64 * sizeof(float)}, reverse_kernel,
         x_device.data());
  std::reverse(x.begin(), x.end());
  EXPECT_EQ(on_host(stream, x_device), x);
}

/// Each block adds up from what it takes for zero.
__global__ void unfilled_kernel(float* sums) {
  ISTHMUS_SHARED(float, sum);
  if (blockIdx.x == 0 && threadIdx.x == 0) sum = 0;
  __syncthreads();
  if (threadIdx.x == 0) sums[blockIdx.x] = sum += 1;
}

TEST(EmulatedDevice, StaticSharedMemoryHasNothingOfTheLastBlock) {
  Stream stream;
  const DeviceArray<float> sums(3);
  for (int again = 0; again < 2; ++again) {
    launch(stream, {.blocks = dim3(3), .threads = dim3(32)}, unfilled_kernel, sums.data());
    const std::vector<float> got = on_host(stream, sums);
    EXPECT_EQ(got[0], 1);
    EXPECT_TRUE(std::isnan(got[1]) && std::isnan(got[2])) << got[1] << ", " << got[2];
  }
}

__global__ void both_kinds_kernel(float* x) {
  ISTHMUS_SHARED(float, fixed, [64]);
  ISTHMUS_DYNAMIC_SHARED(float, values);
  fixed[threadIdx.x] = values[threadIdx.x] = x[threadIdx.x];
}
TEST(EmulatedDeviceDeathTest, StaticAndDynamicSharedMemoryMustFitABlockTogether) {
  constexpr std::size_t kStatic = 64 * sizeof(float), kDynamic = 1024;
  const auto run = [](std::size_t shared_bytes) {
    emulated::set_shared_bytes(shared_bytes);
    Stream stream;
    const DeviceArray<float> x(32);
    launch(stream, {.threads = dim3(32), .shared_bytes = kDynamic}, both_kinds_kernel, x.data());
    stream.synchronize();
    emulated::set_shared_bytes(kMostSharedBytes);
  };
  run(kStatic + kDynamic);
  EXPECT_DEATH(run(kStatic + kDynamic - 1), "static and dynamic together");
}

/// Counts each block's visits, and what stands there of the block before it.
__global__ void follow_kernel(float* visits, float* follows) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  if (threadIdx.x != 0) return;
  visits[block] += 1;
  follows[block] = block > 0 ? visits[block - 1] : 1.f;
}
TEST(EmulatedDevice, BlocksRunOnceEachInOrderOrInTheOrderOfASeed) {
  Stream stream;
  constexpr std::size_t kBlocks = 4 * 3 * 2;
  const auto follows = [&](std::uint64_t seed) {
    emulated::set_thread_order(seed);
    const DeviceArray<float> visits(kBlocks), follow(kBlocks);
    fill_zero(stream, visits.data(), kBlocks);
    launch(stream, {.blocks = dim3(4, 3, 2), .threads = dim3(32)}, follow_kernel, visits.data(),
           follow.data());
    EXPECT_THAT(on_host(stream, visits), ::testing::Each(1));
    emulated::set_thread_order(0);
    return on_host(stream, follow);
  };
  EXPECT_THAT(follows(0), ::testing::Each(1));
  const std::vector<float> one = follows(1);
  EXPECT_THAT(one, ::testing::Contains(0)) << "a block that ran before the one below it";
  EXPECT_EQ(one, follows(1));
  EXPECT_NE(one, follows(2));
}

__global__ void diverging_kernel() {
  if (threadIdx.x < 40) __syncthreads();
}
TEST(EmulatedDeviceDeathTest, ABarrierThatSomeNeverReachEndsTheProgram) {
  EXPECT_DEATH(
      {
        Stream stream;
        launch(stream, {.threads = dim3(64)}, diverging_kernel);
        stream.synchronize();
      },
      "__syncthreads after a thread has returned|threads wait for a barrier");
}

/// c (16, 8) := a (16, 16) b (16, 8), all row-major; b reaches shared memory by an asynchronous
/// copy.
__global__ void product_kernel(const kernels::Bf16* a, const kernels::Bf16* b, float* c) {
  ISTHMUS_DYNAMIC_SHARED(kernels::Bf16, shared);
  kernels::Bf16* const shared_a = shared;
  kernels::Bf16* const shared_b = shared + 256;
  const int lane = static_cast<int>(threadIdx.x);
  async_copy_16(shared_a + 8 * lane, a + 8 * lane);
  if (lane < 16) async_copy_16(shared_b + 8 * lane, b + 8 * lane);
  commit_async_copies();
  wait_async_copies<0>();
  __syncthreads();
  std::uint32_t a_parts[4], b_parts[4];
  load_matrices(a_parts, shared_a + lane % 16 * 16 + lane / 16 * 8);
  load_matrices_transposed(b_parts, shared_b + lane % 16 * 8);
  const std::uint32_t b_used[2] = {b_parts[0], b_parts[1]};
  float d[4] = {};
  mma_16x8x16(d, a_parts, b_used);
  for (int e = 0; e < 4; ++e) c[(lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2] = d[e];
}

class TensorCores : public DeviceTest {};

TEST_F(TensorCores, MultiplyWhatMatricesWereLoaded) {
  Stream stream;
  std::vector<kernels::Bf16> a(256), b(128);
  for (int i = 0; i < 256; ++i)
    a[static_cast<std::size_t>(i)] = kernels::Bf16(static_cast<float>(i % 17 - 8));
  for (int i = 0; i < 128; ++i)
    b[static_cast<std::size_t>(i)] = kernels::Bf16(static_cast<float>(i % 13 - 6));
  const auto a_device = on_device(stream, a);
  const auto b_device = on_device(stream, b);
  const DeviceArray<float> c(128);
  launch(stream, {.threads = dim3(32), .shared_bytes = 384 * sizeof(kernels::Bf16)}, product_kernel,
         a_device.data(), b_device.data(), c.data());
  const std::vector<float> product = on_host(stream, c);
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      float expected = 0;
      for (std::size_t k = 0; k < 16; ++k) {
        expected += static_cast<float>(a[i * 16 + k]) * static_cast<float>(b[k * 8 + j]);
      }
      EXPECT_EQ(product[i * 8 + j], expected) << i << ", " << j;
    }
  }
}

__global__ void add_one_kernel(float* x) { x[threadIdx.x] += 1; }

TEST(EmulatedDevice, WorkOfAStreamIsDoneWhenSomebodyWaits) {
  Stream first, second;
  const DeviceArray<float> x(32);
  fill_zero(first, x.data(), 32);
  launch(first, {.threads = dim3(32)}, add_one_kernel, x.data());
  Event done;
  done.record(first);
  EXPECT_FALSE(done.reached());
  second.wait(done);
  EXPECT_THAT(on_host(second, x), ::testing::Each(1));
  EXPECT_TRUE(done.reached());
}

TEST(EmulatedDevice, WithoutAWaitTheOtherStreamsWorkIsMissed) {
  Stream first, second;
  const DeviceArray<float> x(32);
  fill_zero(first, x.data(), 32);
  EXPECT_TRUE(std::isnan(on_host(second, x)[0]));
  first.synchronize();  // before the array ends
}

/// What a reader on its stream has seen of ones that a writer on another one zeroes: `waits` for
/// the reader, or not.
std::vector<float> seen_by_a_reader(bool waits) {
  Stream reader, writer;
  const DeviceArray<float> x = on_device(reader, std::vector<float>(8, 1)), seen(8);
  copy<float>(reader, seen.data(), x.data(), 8);
  Event read;
  read.record(reader);
  if (waits) writer.wait(read);
  fill_zero(writer, x.data(), 8);
  const std::vector<float> got = on_host(reader, seen);
  EXPECT_THAT(on_host(writer, x), ::testing::Each(0));
  return got;
}

TEST(EmulatedDevice, WhatIsWrittenTooEarlyShowsWhereTheWriterIsEarlyAndTheReaderLate) {
  EXPECT_THAT(seen_by_a_reader(false), ::testing::Each(1)) << "late streams hide it";
  emulated::set_streams_early();
  EXPECT_THAT(seen_by_a_reader(false), ::testing::Each(1)) << "so do early ones, in call order";
  emulated::set_streams_early(0);
  EXPECT_THAT(seen_by_a_reader(false), ::testing::Each(0));
  for (const int late : {-1, 0, 1}) {
    emulated::set_streams_early(late);
    EXPECT_THAT(seen_by_a_reader(true), ::testing::Each(1)) << late;
  }
  emulated::set_streams_late();
}

TEST(EmulatedDevice, AnEarlyStreamGoesOnAsSoonAsItsWaitAllows) {
  emulated::set_streams_early(0);
  Stream late, early;
  const DeviceArray<float> x(32), seen(32);
  Event zero, one;
  fill_zero(late, x.data(), 32);
  zero.record(late);
  launch(late, {.threads = dim3(32)}, add_one_kernel, x.data());
  early.wait(zero);
  copy<float>(early, seen.data(), x.data(), 32);
  one.record(early);
  EXPECT_FALSE(one.reached()) << "the late stream has not begun";
  late.synchronize();
  EXPECT_TRUE(one.reached());
  EXPECT_THAT(on_host(early, seen), ::testing::Each(0)) << "it went on before the addition";
  // Who waits for an early stream has the late one do what it waits for.
  launch(late, {.threads = dim3(32)}, add_one_kernel, x.data());
  one.record(late);
  launch(late, {.threads = dim3(32)}, add_one_kernel, x.data());
  early.wait(one);
  copy<float>(early, seen.data(), x.data(), 32);
  EXPECT_THAT(on_host(early, seen), ::testing::Each(2));
  EXPECT_THAT(on_host(late, x), ::testing::Each(3));
  emulated::set_streams_late();
}

TEST(EmulatedDevice, AGraphRepeatsItsWorkAlsoThatOfStreamsThatMetIt) {
  Stream stream, side;
  const DeviceArray<float> x(32);
  fill_zero(stream, x.data(), 32);
  Event fork, join;
  const Graph graph(stream, [&](const auto&) {
    launch(stream, {.threads = dim3(32)}, add_one_kernel, x.data());
    fork.record(stream);
    side.wait(fork);
    launch(side, {.threads = dim3(32)}, add_one_kernel, x.data());
    join.record(side);
    stream.wait(join);
  });
  EXPECT_THAT(on_host(stream, x), ::testing::Each(0));
  for (int i = 0; i < 3; ++i) graph.launch(stream);
  EXPECT_THAT(on_host(stream, x), ::testing::Each(6));
}

TEST(EmulatedDevice, AGraphIsCutWhereAnEventIsMarkedWhichOthersThenWaitFor) {
  Stream stream, other;
  const DeviceArray<float> x(32), seen(32);
  fill_zero(stream, x.data(), 32);
  Event half;
  const Graph graph(stream, [&](const Graph::Mark& mark) {
    launch(stream, {.threads = dim3(32)}, add_one_kernel, x.data());
    mark(half);
    launch(stream, {.threads = dim3(32)}, add_one_kernel, x.data());
  });
  for (int i = 0; i < 2; ++i) {
    graph.launch(stream);
    EXPECT_FALSE(half.reached());  // it is that of this launch
    other.wait(half);
    copy<float>(other, seen.data(), x.data(), 32);
    EXPECT_THAT(on_host(other, seen), ::testing::Each(2 * i + 1));
    EXPECT_THAT(on_host(stream, x), ::testing::Each(2 * i + 2));
  }
}

TEST(EmulatedDevice, StreamsAndEventsBelongToADevice) {
  use_device(1);
  Stream there;
  const DeviceArray<float> x(32);
  use_device(0);
  Event here;
  const auto refused = [](const auto& use) {
    EXPECT_THAT(use, ::testing::ThrowsMessage<SystemError>(
                         ::testing::HasSubstr("invalid resource handle")));
  };
  refused([&] { launch(there, {.threads = dim3(32)}, add_one_kernel, x.data()); });
  refused([&] { here.record(there); });
  EXPECT_EQ(emulated::device_of(x.data() + 31), 1);
  refused([&] { fill_zero(there, x.data(), 32); });
  use_device(1);
  refused([&] { here.record(there); });
  fill_zero(there, x.data(), 32);
  use_device(0);
  EXPECT_THAT(on_host(there, x), ::testing::Each(0));  // copies come from anywhere
  EXPECT_THROW(use_device(emulated::kDevices), SystemError);
}

TEST(EmulatedDevice, TimesLieBetweenEventsThatWereMadeForThem) {
  Stream stream;
  Event begin(Event::Timing::kOn), end(Event::Timing::kOn), plain;
  for (Event* event : {&begin, &end, &plain}) event->record(stream);
  stream.synchronize();
  EXPECT_EQ(end.milliseconds_since(begin), 0);
  EXPECT_THROW(static_cast<void>(end.milliseconds_since(plain)), SystemError);
  EXPECT_THROW(static_cast<void>(plain.milliseconds_since(begin)), SystemError);
}

TEST(EmulatedDevice, HostMemoryThatIsNotPinnedIsReadLateToo) {
  Stream stream;
  std::vector<float> x(8, 1.0f);
  const DeviceArray<float> x_device(8);
  copy(stream, x_device.data(), x.data(), 8);
  x.assign(8, 2.0f);  // too early
  EXPECT_THAT(on_host(stream, x_device), ::testing::Each(2));
}

TEST(EmulatedDeviceDeathTest, WhatNoGraphTakesEndsTheProgram) {
  const auto while_recording = [](const auto& use) {
    Stream stream;
    const Event event;
    const DeviceArray<float> x(8);
    float y[8] = {};
    const Graph graph(stream, [&](const auto&) { use(stream, event, x, y); });
  };
  using Array = DeviceArray<float>;
  EXPECT_DEATH(
      while_recording([](Stream& s, const Event&, const Array&, float*) { s.synchronize(); }),
      "a wait for a stream while a graph is recorded");
  EXPECT_DEATH(
      while_recording([](Stream&, const Event& e, const Array&, float*) { e.synchronize(); }),
      "a wait for an event while a graph is recorded");
  EXPECT_DEATH(
      while_recording([](Stream&, const Event&, const Array&, float*) { const Array more(1); }),
      "an allocation while a graph is recorded");
  EXPECT_DEATH(while_recording([](Stream& s, const Event&, const Array& x, float* y) {
                 copy<float>(s, y, x.data(), 8);
               }),
               "not pinned while a graph is recorded");
  EXPECT_DEATH(while_recording([](Stream& s, const Event& e, const Array&, float*) { s.wait(e); }),
               "waits for an event that was not recorded with it");
}

TEST(EmulatedDeviceDeathTest, EventsOfOneSideOfARecordingAreNoUseOnTheOther) {
  EXPECT_DEATH(
      {
        Stream stream;
        Stream other;
        Event outside;
        outside.record(other);
        const Graph graph(stream, [&](const auto&) { stream.wait(outside); });
      },
      "waits for an event that was not recorded with it");
  const auto recorded = [](Stream& stream, Event& event) {
    const Graph graph(stream, [&](const auto&) { event.record(stream); });
  };
  EXPECT_DEATH(
      {
        Stream stream;
        Event inside;
        recorded(stream, inside);
        inside.synchronize();
      },
      "a wait for an event that was recorded in a graph");
  EXPECT_DEATH(
      {
        Stream stream;
        Event inside;
        recorded(stream, inside);
        stream.wait(inside);
      },
      "a stream's wait for an event that was recorded in a graph");
}

TEST(EmulatedDevice, MemoryEnds) {
  emulated::set_device_memory(1 << 20);
  const DeviceArray<float> half(1 << 17);
  try {
    const DeviceArray<float> more(1 << 18);
    FAIL();
  } catch (const OutOfDeviceMemory& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("1048576 bytes of device memory asked for, "
                                                   "524288 of 1048576 are free"));
  }
  emulated::set_device_memory(std::size_t{4} << 30);
}

}  // namespace
}  // namespace isthmus::cuda::this_file
