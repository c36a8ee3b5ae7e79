// SPDX-License-Identifier: Apache-2.0
#include "transport/fake_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "transport/fake_nccl.h"

struct CUstream_st {
  int device = 0;
  std::deque<std::function<bool()>> steps;
};
struct CUevent_st {
  cudaStream_t stream = nullptr;
  std::shared_ptr<bool> reached = std::make_shared<bool>(false);  // shared with the stream's step
};

namespace isthmus::testing_support {
namespace {

struct Block {
  std::unique_ptr<std::byte[]> bytes;
  std::size_t size = 0;
  bool pinned = false;
  int device = 0;
};
struct State {
  std::map<const std::byte*, Block> memory;
  std::function<int(const void*)> lent;  // or none
  Block lent_block;                      // what was found there last
  int streams = 0;
  int events = 0;
  std::int64_t copies = 0;
  std::set<cudaEvent_t> own_events;
  std::function<std::function<bool()>(void*)> lent_events;  // or none
  std::size_t queue_length = 0;
};
State& state() {  // under fake_cuda_mutex()
  static State the;
  return the;
}

thread_local int current = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t not_ready() { return last_error = cudaErrorNotReady; }
cudaError_t get_last_error() { return std::exchange(last_error, cudaSuccess); }

const Block* block_of(const void* data, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  if (const int device = state().lent ? state().lent(data) : -1; device >= 0) {
    state().lent_block.device = device;
    return &state().lent_block;
  }
  auto after = state().memory.upper_bound(begin);
  if (after == state().memory.begin()) return nullptr;
  const auto& [start, block] = *--after;
  return begin + bytes <= start + block.size ? &block : nullptr;
}

void advance(cudaStream_t stream) {
  while (!stream->steps.empty() && stream->steps.front()()) stream->steps.pop_front();
}

cudaError_t get_device_count(int* count) {
  *count = kFakeDevices;
  return cudaSuccess;
}
cudaError_t set_device(int device) {
  EXPECT_EQ(last_error, cudaSuccess) << "an earlier error of this thread has been left";
  current = device;
  return cudaSuccess;
}
const char* error_string(cudaError_t) { return "the fake has failed"; }

cudaError_t pointer_get_attributes(cudaPointerAttributes* attributes, const void* data) {
  const std::scoped_lock lock(fake_cuda_mutex());
  const Block* block = block_of(data, 1);
  *attributes = {};
  attributes->type = cudaMemoryTypeUnregistered;
  if (block == nullptr) return cudaSuccess;
  attributes->type = block->pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = block->device;
  return cudaSuccess;
}

cudaError_t allocate(void** data, std::size_t bytes, bool pinned) {
  const std::scoped_lock lock(fake_cuda_mutex());
  Block block{std::make_unique<std::byte[]>(bytes), bytes, pinned, current};
  *data = block.bytes.get();
  state().memory.emplace(block.bytes.get(), std::move(block));
  return cudaSuccess;
}
cudaError_t malloc_device(void** data, std::size_t bytes) { return allocate(data, bytes, false); }
cudaError_t malloc_pinned(void** data, std::size_t bytes, unsigned int) {
  return allocate(data, bytes, true);
}
cudaError_t release(void* data) {
  const std::scoped_lock lock(fake_cuda_mutex());
  EXPECT_EQ(state().memory.erase(static_cast<const std::byte*>(data)), 1u);
  return cudaSuccess;
}

cudaError_t memcpy_async(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                         cudaStream_t stream) {
  const std::scoped_lock lock(fake_cuda_mutex());
  EXPECT_EQ(stream->device, current);
  const bool up = kind == cudaMemcpyHostToDevice;
  EXPECT_TRUE(up || kind == cudaMemcpyDeviceToHost);
  expect_fake_memory(up ? to : from, bytes, stream->device);
  const Block* host = block_of(up ? from : to, bytes);
  EXPECT_TRUE(host != nullptr && host->pinned) << "a copy that pageable memory would hold up";
  ++state().copies;
  queue_on_fake_stream(stream, [to, from, bytes] {
    std::memcpy(to, from, bytes);
    return true;
  });
  return cudaSuccess;
}

constexpr int kHighest = -3;
cudaError_t stream_priorities(int* lowest, int* highest) {
  *lowest = 0, *highest = kHighest;
  return cudaSuccess;
}
cudaError_t stream_create(cudaStream_t* stream, unsigned int flags, int priority) {
  const std::scoped_lock lock(fake_cuda_mutex());
  EXPECT_EQ(flags, static_cast<unsigned int>(cudaStreamNonBlocking));
  EXPECT_EQ(priority, kHighest);
  *stream = new CUstream_st{current, {}};
  ++state().streams;
  return cudaSuccess;
}
cudaError_t stream_destroy(cudaStream_t stream) {
  const std::scoped_lock lock(fake_cuda_mutex());
  EXPECT_TRUE(stream->steps.empty());
  delete stream;
  --state().streams;
  return cudaSuccess;
}
cudaError_t stream_query(cudaStream_t stream) {
  const std::scoped_lock lock(fake_cuda_mutex());
  advance(stream);
  return stream->steps.empty() ? cudaSuccess : not_ready();
}

cudaError_t event_create(cudaEvent_t* event, unsigned int) {
  const std::scoped_lock lock(fake_cuda_mutex());
  *event = new CUevent_st;
  state().own_events.insert(*event);
  ++state().events;
  return cudaSuccess;
}
cudaError_t event_destroy(cudaEvent_t event) {
  const std::scoped_lock lock(fake_cuda_mutex());
  state().own_events.erase(event);
  delete event;
  --state().events;
  return cudaSuccess;
}
cudaError_t event_record(cudaEvent_t event, cudaStream_t stream) {
  const std::scoped_lock lock(fake_cuda_mutex());
  EXPECT_EQ(stream->device, current);
  event->stream = stream;
  event->reached = std::make_shared<bool>(false);
  queue_on_fake_stream(stream, [reached = event->reached] { return *reached = true; });
  return cudaSuccess;
}
cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  const std::scoped_lock lock(fake_cuda_mutex());
  EXPECT_EQ(stream->device, current);
  if (!state().own_events.contains(event)) {
    queue_on_fake_stream(stream, state().lent_events(event));
    return cudaSuccess;
  }
  // An event that is destroyed is waited for no more.
  queue_on_fake_stream(stream, [event, reached = event->reached] {
    if (!state().own_events.contains(event) || event->reached != reached) return true;
    advance(event->stream);
    return *reached;
  });
  return cudaSuccess;
}
cudaError_t event_query(cudaEvent_t event) {
  const std::scoped_lock lock(fake_cuda_mutex());
  if (!state().own_events.contains(event)) {
    return state().lent_events(event)() ? cudaSuccess : not_ready();
  }
  advance(event->stream);
  return *event->reached ? cudaSuccess : not_ready();
}

}  // namespace

std::mutex& fake_cuda_mutex() {
  static std::mutex mutex;
  return mutex;
}

void expect_fake_memory(const void* data, std::size_t bytes, int device) {
  const Block* block = block_of(data, bytes);
  EXPECT_TRUE(block != nullptr && !block->pinned && block->device == device)
      << "not memory of device " << device;
}

void lend_fake_memory(std::function<int(const void*)> device_of) {
  const std::scoped_lock lock(fake_cuda_mutex());
  state().lent = std::move(device_of);
}

void lend_fake_events(std::function<std::function<bool()>(void*)> wait_for) {
  const std::scoped_lock lock(fake_cuda_mutex());
  state().lent_events = std::move(wait_for);
}

std::size_t take_fake_queue_length() {
  const std::scoped_lock lock(fake_cuda_mutex());
  return std::exchange(state().queue_length, 0);
}

void queue_on_fake_stream(cudaStream_t stream, std::function<bool()> step) {
  stream->steps.push_back(std::move(step));
  state().queue_length = std::max(state().queue_length, stream->steps.size());
}

int fake_stream_device(cudaStream_t stream) { return stream->device; }
int fake_current_device() { return current; }

void expect_fake_cuda_clean() {
  const std::scoped_lock lock(fake_cuda_mutex());
  EXPECT_EQ(state().memory.size(), 0u) << "blocks of memory";
  EXPECT_EQ(state().streams, 0);
  EXPECT_EQ(state().events, 0);
  state() = {};
}

int forget_fake_cuda() {
  const std::scoped_lock lock(fake_cuda_mutex());
  return std::exchange(state(), {}).streams;
}

std::int64_t take_fake_copies() {
  const std::scoped_lock lock(fake_cuda_mutex());
  return std::exchange(state().copies, 0);
}

NcclCalls fake_cuda() {
  NcclCalls made;
  made.get_device_count = &get_device_count;
  made.set_device = &set_device;
  made.cuda_get_last_error = &get_last_error;
  made.cuda_error_string = &error_string;
  made.pointer_get_attributes = &pointer_get_attributes;
  made.malloc_device = &malloc_device;
  made.free_device = &release;
  made.malloc_pinned = &malloc_pinned;
  made.free_pinned = &release;
  made.memcpy_async = &memcpy_async;
  made.stream_priorities = &stream_priorities;
  made.stream_create = &stream_create;
  made.stream_destroy = &stream_destroy;
  made.stream_query = &stream_query;
  made.stream_wait_event = &stream_wait_event;
  made.event_create = &event_create;
  made.event_destroy = &event_destroy;
  made.event_record = &event_record;
  made.event_query = &event_query;
  return made;
}

}  // namespace isthmus::testing_support
