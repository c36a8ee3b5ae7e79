// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/cuda_group.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cuda/device_errors.h"

namespace isthmus {
namespace {
constexpr std::size_t kPiece = std::size_t{1} << 24;  // bytes of pinned memory, a group and rank
}

CudaGroup::CudaGroup(std::unique_ptr<Communicator> ranks, int device, const DeviceSums& over)
    : on_device_(static_cast<bool>(over)),
      ranks_(over ? over(std::move(ranks), device) : std::move(ranks)),
      staged_(over ? 0 : kPiece) {}

// A device that fails shows as an error of NCCL; the error reported is the device's.
template <typename Body>
void CudaGroup::over_ranks(const Body& body) {
  try {
    body();
  } catch (const CommunicatorError&) {
    cuda::check_alive();
    throw;
  }
}

void CudaGroup::sum(std::span<const CudaBucket> buckets) {
  if (!on_device_) {
    for (const CudaBucket& bucket : buckets) {
      bucket.final_->synchronize();
      sum(bucket.values.data(), std::ssize(bucket.values));
    }
    return;
  }
  std::vector<DeviceValues> sums;
  for (const CudaBucket& bucket : buckets) {
    sums.push_back({.values = {bucket.values.data(), std::ssize(bucket.values), Dtype::kF32},
                    .ready = bucket.final_->handle()});
  }
  over_ranks([&] { ranks_->all_reduce_behind(sums); });
}

void CudaGroup::all_reduce(Values values) {
  if (on_device_) {
    over_ranks([&] { ranks_->all_reduce(values, Reduce::kSum); });
    return;
  }
  const std::size_t each = dtype_bytes(values.dtype);
  auto* const all = static_cast<std::byte*>(values.data);
  const std::size_t bytes = static_cast<std::size_t>(values.count) * each;
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    const std::size_t part = std::min(kPiece, bytes - at);
    cuda::copy<std::byte>(copies_, staged_.data(), all + at, part);
    copies_.synchronize();
    ranks_->all_reduce({staged_.data(), static_cast<std::int64_t>(part / each), values.dtype},
                       Reduce::kSum);
    cuda::copy<std::byte>(copies_, all + at, staged_.data(), part);
    copies_.synchronize();
  }
}

void CudaGroup::gather(const double* own, std::int64_t n, double* all) {
  const auto ranks = static_cast<std::size_t>(size());
  const auto gather = [&](const double* from, std::int64_t count, double* to) {
    const std::vector<std::int64_t> counts(ranks, count);
    ranks_->all_gather({from, count, Dtype::kF64}, counts, {to, count * size(), Dtype::kF64});
  };
  if (on_device_) {
    over_ranks([&] { gather(own, n, all); });
    return;
  }
  const auto most = static_cast<std::int64_t>(kPiece / sizeof(double)) / (size() + 1);
  auto* const from = reinterpret_cast<double*>(staged_.data());
  for (std::int64_t at = 0; at < n; at += most) {
    const std::int64_t part = std::min(most, n - at);
    const auto count = static_cast<std::size_t>(part);
    double* const gathered = from + part;
    cuda::copy<double>(copies_, from, own + at, count);
    copies_.synchronize();
    gather(from, part, gathered);
    for (std::size_t r = 0; r < ranks; ++r) {
      cuda::copy<double>(copies_, all + static_cast<std::int64_t>(r) * n + at,
                         gathered + static_cast<std::int64_t>(r) * part, count);
    }
    copies_.synchronize();
  }
}

}  // namespace isthmus
