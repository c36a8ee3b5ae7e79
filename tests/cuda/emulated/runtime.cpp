// SPDX-License-Identifier: Apache-2.0
// device.h on the CPU. A stream's work is done as late as possible: when somebody waits for it, or
// for an event in it, so that a missing wait shows as a wrong result, copies of host memory that is
// not pinned among it. A test may have streams work as early as their waits allow instead, so that
// what is written before another stream has read it shows, too (runtime.h). Device memory is filled
// with NaNs and counted against a limit. What a device refuses while a graph is recorded ends the
// program. One lock for all: streams may be used from several threads. There are two devices, with
// their own memory: kernels and events on a stream of another device than the thread's are refused,
// as by a driver.
#include "cuda/emulated/runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "cuda/emulated/faults.h"
#include "cuda/emulated/simt.h"
#include "kernels/cuda/device_errors.h"

namespace isthmus::cuda {
namespace {

using Work = std::function<void()>;

struct Capture {
  std::vector<Work> work;
  bool open = true;  // being recorded
};

thread_local int current_device = 0;

struct Queue;

struct Point {
  bool reached = false;
  bool timed = false;
  int device = current_device;
  Queue* in = nullptr;  // good until it is reached: a stream's end does its work
  std::shared_ptr<Capture> capture;
  void reach() const;
};

/// Work of a stream, or a wait.
struct Entry {
  Work work;
  std::shared_ptr<const Point> wait;
  bool is_event = false;  // reached also where the device is lost
};

struct Queue {
  std::deque<Entry> entries;
  std::shared_ptr<Capture> capture;
  const int device = current_device;
  const Stream::Priority priority;
  bool early = false;

  void add(Work one) {
    if (capture != nullptr) {
      capture->work.push_back(std::move(one));
    } else {
      entries.push_back({std::move(one), nullptr});
      if (early) advance();
    }
  }
  /// REQUIRES: nothing is recorded.
  void add_event(Work one) {
    entries.push_back({std::move(one), nullptr, true});
    if (early) advance();
  }
  void wait(std::shared_ptr<const Point> point) {
    entries.push_back({{}, std::move(point)});
    if (early) advance();
  }
  /// Does the first entry. While it waits an early stream may do entries by itself, the first
  /// among them, since points that are reached let it go on.
  void run_one() {
    if (const std::shared_ptr<const Point> point = entries.front().wait) {
      point->reach();
      if (!entries.empty() && entries.front().wait == point) entries.pop_front();
      return;
    }
    const Entry one = std::move(entries.front());
    entries.pop_front();
    if (one.is_event || !emulated::is_lost(device)) one.work();
  }
  void finish() {
    while (!entries.empty()) run_one();
  }
  /// As far as no wait forbids.
  void advance() {
    while (!entries.empty()) {
      const std::shared_ptr<const Point>& point = entries.front().wait;
      if (point != nullptr && !point->reached) return;
      run_one();
    }
  }
};

void Point::reach() const {
  while (!reached) in->run_one();
}

struct Block {
  std::size_t bytes = 0;
  int device = 0;
};
using Blocks = std::map<const std::byte*, Block>;

struct State {
  std::recursive_mutex mutex;
  Blocks device, pinned;
  std::size_t limit = emulated::bytes_from_environment().value_or(std::size_t{4} << 30);
  std::size_t held[emulated::kDevices] = {};
  std::size_t largest_pinned = std::numeric_limits<std::size_t>::max();
  std::size_t shared_bytes = kMostSharedBytes;
  bool launches_fail = false;
  std::string skipped;
  std::string names[emulated::kDevices] = {"emulated on the CPU", "emulated on the CPU"};
  std::vector<Queue*> captured;
  std::vector<Queue*> early;  // streams
  bool makes_early = false;
  int late = -1, made = 0;  // of the streams made since `makes_early` was set
  bool graphs_fail = false;
  emulated::GraphCounts graphs;
};
State& state() {
  static State* const s = new State;
  return *s;
}
using Lock = std::lock_guard<std::recursive_mutex>;

Queue& of(const Stream& stream) { return *static_cast<Queue*>(stream.handle()); }
std::shared_ptr<Point>& of(const Event& event) {
  return *static_cast<std::shared_ptr<Point>*>(event.handle());
}

const Block* block_of(const Blocks& arrays, const void* data) {
  const auto* at = static_cast<const std::byte*>(data);
  auto next = arrays.upper_bound(at);
  if (next == arrays.begin()) return nullptr;
  --next;
  return at < next->first + next->second.bytes ? &next->second : nullptr;
}

[[noreturn]] void refuse(const char* what) {
  std::fprintf(stderr, "emulated device: %s\n", what);
  std::abort();
}

/// The lock is held while a graph is recorded, so whoever comes here then is the one who records.
void refuse_while_recording(const char* what) {
  if (!state().captured.empty()) refuse((std::string(what) + " while a graph is recorded").c_str());
}

void refuse_recorded(const Point& point, const char* what) {
  if (point.capture == nullptr) return;
  refuse((std::string(what) + " for an event that was recorded in a graph").c_str());
}

void arrive_at(Point& point) {
  point.reached = true;
  for (std::size_t i = 0; i < state().early.size(); ++i) state().early[i]->advance();
}

std::byte* allocate(Blocks& arrays, std::size_t bytes) {
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  std::memset(data, 0xFF, bytes);
  arrays[data] = {bytes, current_device};
  return data;
}

/// THROWS: DeviceLost; SystemError as a driver's answer to `call` on a stream of another device.
void check_device(const Queue& queue, const char* call) {
  emulated::refuse_lost(queue.device, call);
  if (queue.device == current_device) return;
  throw SystemError(
      "CUDA: " + std::string(call) + ": invalid resource handle: the stream is of device " +
      std::to_string(queue.device) + ", the thread's is " + std::to_string(current_device));
}

}  // namespace

namespace emulated {
void set_device_memory(std::size_t bytes) {
  const Lock lock(state().mutex);
  state().limit = bytes;
}
void set_largest_pinned(std::size_t bytes) {
  const Lock lock(state().mutex);
  state().largest_pinned = bytes;
}
void set_shared_bytes(std::size_t bytes) {
  const Lock lock(state().mutex);
  state().shared_bytes = bytes;
}
void set_device_name(int ordinal, const std::string& name) {
  const Lock lock(state().mutex);
  state().names[ordinal] = name;
}
void set_launches_fail(bool fail) {
  const Lock lock(state().mutex);
  state().launches_fail = fail;
}
void set_skipped_kernels(const std::string& parameter) {
  const Lock lock(state().mutex);
  state().skipped = parameter;
}
bool skips(const std::type_info& kernel) {
  const Lock lock(state().mutex);
  const std::string& skipped = state().skipped;
  return !skipped.empty() && std::string_view(kernel.name()).find(skipped) != std::string::npos;
}
void check_launch(const LaunchShape& shape) {
  const Lock lock(state().mutex);
  if (state().launches_fail) {
    throw SystemError(
        "CUDA: kernel launch: no kernel image is available for execution on the device");
  }
  refuse_launch(current_device, "kernel launch", device_memory());
  if (shape.shared_bytes <= shared_bytes_of_block()) return;
  throw SystemError("CUDA: kernel launch: invalid argument");
}
void set_streams_late() {
  const Lock lock(state().mutex);
  state().makes_early = false;
}
void set_streams_early(int late) {
  const Lock lock(state().mutex);
  state().makes_early = true;
  state().late = late;
  state().made = 0;
}
void set_graphs_fail(bool fail) {
  const Lock lock(state().mutex);
  state().graphs_fail = fail;
}
GraphCounts take_graph_counts() {
  const Lock lock(state().mutex);
  return std::exchange(state().graphs, {});
}
int device_of(const void* data) {
  const Lock lock(state().mutex);
  const Block* const block = block_of(state().device, data);
  return block != nullptr ? block->device : -1;
}
Stream::Priority priority_of(const Stream& stream) { return of(stream).priority; }
void queue(void* stream, std::function<void()> work) {
  const Lock lock(state().mutex);
  Queue& on = *static_cast<Queue*>(stream);
  check_device(on, "kernel launch");
  on.add([device = on.device, kernel = std::move(work)] {
    if (begins_kernel(device)) kernel();
  });
}
std::function<bool()> wait_for(void* event) {
  const Lock lock(state().mutex);
  return [point = *static_cast<std::shared_ptr<Point>*>(event)] {
    const Lock then(state().mutex);
    point->reach();
    return true;
  };
}
void queue(Stream& stream, std::function<void()> work) { queue(stream.handle(), std::move(work)); }
}  // namespace emulated

std::vector<DeviceInfo> devices() {
  const Lock lock(state().mutex);
  std::vector<DeviceInfo> all;
  if (!driver_fault().empty()) return all;
  for (int ordinal = 0; ordinal < emulated::kDevices; ++ordinal) {
    all.push_back({.ordinal = ordinal,
                   .name = state().names[ordinal],
                   .compute_major = 8,
                   .memory_bytes = device_memory().total_bytes});
  }
  return all;
}
std::string unavailable() { return driver_fault(); }
void check_alive() { emulated::refuse_lost(current_device, "cudaMemGetInfo"); }
std::string versions() { return "emulated"; }
void use_device(int ordinal) {
  if (ordinal < 0 || ordinal >= emulated::kDevices) {
    throw SystemError("CUDA: cudaSetDevice: invalid device ordinal");
  }
  emulated::refuse_lost(ordinal, "cudaSetDevice");
  current_device = ordinal;
}
std::size_t shared_bytes_of_block() {
  const Lock lock(state().mutex);
  return state().shared_bytes;
}
DeviceMemory device_memory() {
  const Lock lock(state().mutex);
  emulated::refuse_lost(current_device, "cudaMemGetInfo");
  return {state().limit - state().held[current_device], state().limit};
}

Stream::Stream(Priority priority) : handle_(new Queue{.priority = priority}) {
  const Lock lock(state().mutex);
  State& s = state();
  if (!s.makes_early || s.made++ == s.late) return;
  of(*this).early = true;
  s.early.push_back(&of(*this));
}
Stream::~Stream() {
  const Lock lock(state().mutex);
  refuse_while_recording("the end of a stream");
  of(*this).finish();
  std::erase(state().early, &of(*this));
  delete &of(*this);
}
void Stream::synchronize() {
  const Lock lock(state().mutex);
  refuse_while_recording("a wait for a stream");
  of(*this).finish();
  emulated::refuse_lost(of(*this).device, "cudaStreamSynchronize");
}
void Stream::wait(const Event& event) {
  const Lock lock(state().mutex);
  const std::shared_ptr<Point> point = of(event);
  Queue& queue = of(*this);
  if (point->capture != nullptr) {  // joins the recording, whose order is that of the calls
    if (!point->capture->open) refuse_recorded(*point, "a stream's wait");
    if (queue.capture == nullptr) {
      queue.capture = point->capture;
      state().captured.push_back(&queue);
    }
    return;
  }
  if (queue.capture != nullptr) {
    refuse("a stream that is recorded waits for an event that was not recorded with it");
  }
  if (!point->reached) queue.wait(point);
}

Event::Event(Timing timing)
    : handle_(
          new std::shared_ptr<Point>(new Point{.reached = true, .timed = timing == Timing::kOn})) {}
Event::~Event() { delete &of(*this); }
void Event::record(Stream& stream) {
  const Lock lock(state().mutex);
  Queue& queue = of(stream);
  check_device(queue, "cudaEventRecord");
  auto point = std::make_shared<Point>();
  point->device = of(*this)->device;
  point->timed = of(*this)->timed;
  if (point->device != queue.device) {
    throw SystemError("CUDA: cudaEventRecord: invalid resource handle: an event of another device");
  }
  point->in = &queue;
  point->capture = queue.capture;
  of(*this) = point;
  if (queue.capture == nullptr) queue.add_event([point] { arrive_at(*point); });
}
void Event::synchronize() const {
  const Lock lock(state().mutex);
  refuse_while_recording("a wait for an event");
  refuse_recorded(*of(*this), "a wait");
  of(*this)->reach();
  emulated::refuse_lost(of(*this)->device, "cudaEventSynchronize");
}
bool Event::reached() const {
  const Lock lock(state().mutex);
  refuse_while_recording("a question for an event");
  refuse_recorded(*of(*this), "a question");
  emulated::refuse_lost(of(*this)->device, "cudaEventQuery");
  return of(*this)->reached;
}
double Event::milliseconds_since(const Event& begin) const {
  if (!of(begin)->timed || !of(*this)->timed) {
    throw SystemError(
        "CUDA: cudaEventElapsedTime: invalid resource handle: an event without timing");
  }
  return 0;
}

namespace detail {

void* allocate_device(std::size_t bytes) {
  const Lock lock(state().mutex);
  refuse_while_recording("an allocation");
  emulated::refuse_lost(current_device, "cudaMalloc");
  State& s = state();
  std::size_t& held = s.held[current_device];
  if (bytes > s.limit - held) {
    throw OutOfDeviceMemory("CUDA: " + std::to_string(bytes) +
                            " bytes of device memory asked for, " + std::to_string(s.limit - held) +
                            " of " + std::to_string(s.limit) + " are free");
  }
  held += bytes;
  return allocate(s.device, bytes);
}
void free_device(void* data) noexcept {
  const Lock lock(state().mutex);
  refuse_while_recording("an end of memory");
  State& s = state();
  const auto at = s.device.find(static_cast<std::byte*>(data));
  s.held[at->second.device] -= at->second.bytes;
  s.device.erase(at);
  std::free(data);
}
void* allocate_pinned(std::size_t bytes) {
  const Lock lock(state().mutex);
  refuse_while_recording("an allocation of pinned memory");
  if (bytes > state().largest_pinned) {
    throw SystemError("CUDA: " + std::to_string(bytes) +
                      " bytes of pinned host memory asked for, which are not free");
  }
  return allocate(state().pinned, bytes);
}
void free_pinned(void* data) noexcept {
  const Lock lock(state().mutex);
  refuse_while_recording("an end of pinned memory");
  state().pinned.erase(static_cast<std::byte*>(data));
  std::free(data);
}

void copy(Stream& stream, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const Lock lock(state().mutex);
  emulated::refuse_lost(of(stream).device, "cudaMemcpyAsync");
  for (const void* const data : {static_cast<const void*>(to), from}) {
    const bool known =
        block_of(state().device, data) != nullptr || block_of(state().pinned, data) != nullptr;
    if (!known) refuse_while_recording("a copy of host memory that is not pinned");
  }
  of(stream).add([=] { std::memmove(to, from, bytes); });
}
void fill_zero(Stream& stream, void* data, std::size_t bytes) {
  if (bytes == 0) return;
  const Lock lock(state().mutex);
  check_device(of(stream), "cudaMemsetAsync");
  of(stream).add([=] { std::memset(data, 0, bytes); });
}

}  // namespace detail

struct Graph::Impl {
  struct Part {
    std::shared_ptr<Capture> recorded;
    Event* behind = nullptr;  // or none
  };
  std::vector<Part> parts;
};

Graph::Graph(Stream& stream, const std::function<void(const Mark&)>& queue) : impl_(new Impl) {
  const Lock lock(state().mutex);
  const auto begin = [&] {
    impl_->parts.push_back({.recorded = std::make_shared<Capture>()});
    of(stream).capture = impl_->parts.back().recorded;
    state().captured.push_back(&of(stream));
  };
  const auto end = [&] {
    for (Queue* const one : state().captured) one->capture.reset();
    state().captured.clear();
    impl_->parts.back().recorded->open = false;
  };
  begin();
  try {
    queue([&](Event& event) {
      end();
      impl_->parts.back().behind = &event;
      begin();
    });
  } catch (...) {
    end();
    throw;
  }
  end();
  if (state().graphs_fail) throw SystemError("CUDA: cudaGraphInstantiate: out of memory");
  ++state().graphs.recorded;
}
Graph::~Graph() = default;
void Graph::launch(Stream& stream) const {
  const Lock lock(state().mutex);
  check_device(of(stream), "cudaGraphLaunch");
  emulated::refuse_launch(current_device, "cudaGraphLaunch", device_memory());
  ++state().graphs.launched;
  for (const Impl::Part& part : impl_->parts) {
    for (const Work& one : part.recorded->work) of(stream).add(one);
    if (part.behind != nullptr) part.behind->record(stream);
  }
}

}  // namespace isthmus::cuda
