// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/repeated_work.h"

#include <algorithm>
#include <utility>

#include "core/base/log.h"
#include "isthmus/errors.h"
#include "kernels/cuda/device_errors.h"

namespace isthmus {
namespace {
constexpr std::size_t kMostShapes = 2;
}  // namespace

void RepeatedWork::by_hand(cuda::Stream& stream, const Queue& queue) {
  queue([&](cuda::Event& event) { event.record(stream); });
}

// Work that fails while it is recorded may succeed when it is queued, unless the device is lost.
bool RepeatedWork::record(cuda::Stream& stream, const Queue& queue) {
  try {
    seen_.front().graph = std::make_unique<cuda::Graph>(stream, queue);
    return true;
  } catch (const cuda::DeviceLost&) {
    throw;
  } catch (const SystemError& error) {
    log_warning("the device takes no graph of the {} ({}): its kernels are queued one by one",
                name_, error.what());
    refused_ = true;
    seen_.clear();
    return false;
  }
}

void RepeatedWork::run(cuda::Stream& stream, std::int64_t shape, const Queue& queue) {
  if (refused_) return by_hand(stream, queue);
  const auto found = std::ranges::find(seen_, shape, &Seen::shape);
  if (found == seen_.end()) {
    if (seen_.size() == kMostShapes) seen_.pop_back();
    seen_.insert(seen_.begin(), Seen{.shape = shape, .graph = nullptr});
    return by_hand(stream, queue);
  }
  std::rotate(seen_.begin(), found, found + 1);
  if (seen_.front().graph == nullptr && !record(stream, queue)) return by_hand(stream, queue);
  seen_.front().graph->launch(stream);
}

}  // namespace isthmus
