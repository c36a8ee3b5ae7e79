// SPDX-License-Identifier: Apache-2.0
// Perturbing and replaying. A block of threads has 1024 elements from a multiple of 1024 of the
// canonical layout on, a thread 4 of them; their signs are words of Philox counters in shared
// memory, each drawn by one thread. 8 bytes moved an element, at 16 a thread where the span lies
// so; beside them an entry of a step costs an element about four integer operations, and a counter
// of 128 elements some hundred, so from a few entries on replaying is bound by arithmetic.
#include <vector>

#include "kernels/cuda/simt.h"
#include "kernels/cuda/spsa.h"
#include "kernels/host_device.h"

namespace isthmus::cuda {
namespace {

constexpr unsigned kSpsaThreads = 256;
constexpr unsigned kElements = 4;  // of a thread
constexpr std::int64_t kBlockElements = std::int64_t{kSpsaThreads} * kElements;
constexpr unsigned kCounters = kBlockElements / kernels::kSpsaCounterElements;
constexpr unsigned kWords = 4 * kCounters;  // of one entry
constexpr unsigned kEntriesAtOnce = kSpsaThreads / kCounters;

/// This thread's part of a span.
struct Elements {
  std::int64_t at = 0;  // of the first one, in the span; may lie before it
  std::size_t n = 0;    // values of the span
  bool whole = false;   // all four, and aligned to 16 bytes

  __device__ Elements(std::int64_t first, std::size_t span, const float* a, const float* b) {
    const std::int64_t block = first / kBlockElements + blockIdx.x;
    at = block * kBlockElements - first + kElements * threadIdx.x;
    n = span;
    const auto aligned = [this](const float* x) {
      return (reinterpret_cast<std::uintptr_t>(x) + static_cast<std::uintptr_t>(at) * 4) % 16 == 0;
    };
    whole = at >= 0 && static_cast<std::size_t>(at) + kElements <= n && aligned(a) && aligned(b);
  }
  [[nodiscard]] __device__ bool has(unsigned k) const {
    const std::int64_t i = at + k;
    return i >= 0 && static_cast<std::size_t>(i) < n;
  }
  __device__ void load(const float* x, float (&v)[kElements]) const {
    if (whole) {
      const float4 four = *reinterpret_cast<const float4*>(x + at);
      v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
      return;
    }
    for (unsigned k = 0; k < kElements; ++k) v[k] = has(k) ? x[at + k] : 0.0f;
  }
  __device__ void store(float* x, const float (&v)[kElements]) const {
    if (whole) {
      *reinterpret_cast<float4*>(x + at) = make_float4(v[0], v[1], v[2], v[3]);
      return;
    }
    for (unsigned k = 0; k < kElements; ++k) {
      if (has(k)) x[at + k] = v[k];
    }
  }
};

/// Words of counter `counter` of the block under direction z.
__device__ void draw(std::uint64_t run_key, const kernels::SpsaDirection& z, std::int64_t first,
                     unsigned counter, std::uint32_t* words) {
  const std::int64_t block = first / kBlockElements + blockIdx.x;
  const auto drawn = kernels::philox4x32_10(
      kernels::spsa_counter(z, block * kBlockElements + counter * kernels::kSpsaCounterElements),
      {static_cast<std::uint32_t>(run_key), static_cast<std::uint32_t>(run_key >> 32)});
  for (unsigned i = 0; i < 4; ++i) words[4 * counter + i] = drawn[i];
}
/// The thread's four signs, lowest first.
__device__ std::uint32_t signs(const std::uint32_t* words) {
  const unsigned element = kElements * threadIdx.x;
  return words[element / kernels::kSpsaWordElements] >> element % kernels::kSpsaWordElements;
}

__global__ void perturb_kernel(std::uint64_t run_key, kernels::SpsaDirection z, float eps,
                               std::int64_t first, std::size_t n, const float* w, float* out) {
  ISTHMUS_SHARED(std::uint32_t, words, [kWords]);
  const Elements mine(first, n, w, out);
  float v[kElements];
  mine.load(w, v);
  if (threadIdx.x < kCounters) draw(run_key, z, first, threadIdx.x, words);
  __syncthreads();
  const std::uint32_t bits = signs(words);
  for (unsigned k = 0; k < kElements; ++k) {
    v[k] = kernels::add_rn(v[k], (bits >> k & 1u) != 0 ? -eps : eps);
  }
  mine.store(out, v);
}

__global__ void apply_kernel(std::uint64_t run_key, const SpsaSteps::Step* steps, std::size_t count,
                             const kernels::SpsaEntry* entries, std::int64_t first, std::size_t n,
                             float* w) {
  ISTHMUS_SHARED(std::uint32_t, words, [kEntriesAtOnce * kWords]);
  ISTHMUS_SHARED(std::uint64_t, scalars, [kEntriesAtOnce]);
  const Elements mine(first, n, w, w);
  float v[kElements];
  mine.load(w, v);
  for (std::size_t s = 0; s < count; ++s) {
    const SpsaSteps::Step step = steps[s];
    if (step.decay != 1.0f) {
      for (float& each : v) each = kernels::mul_rn(each, step.decay);
    }
    if (step.entries == 0) continue;
    // A = sum z d = (sum of all d) - 2 (sum of those with the bit), modulo 2^64.
    std::uint64_t with_bit[kElements] = {};
    for (std::uint32_t begin = 0; begin < step.entries; begin += kEntriesAtOnce) {
      const std::uint32_t left = step.entries - begin;
      const std::uint32_t some = left < kEntriesAtOnce ? left : kEntriesAtOnce;
      const std::uint32_t e = threadIdx.x / kCounters;
      if (e < some) {
        const kernels::SpsaEntry entry = entries[step.first_entry + begin + e];
        draw(run_key, {step.step, entry.machine, entry.sample}, first, threadIdx.x % kCounters,
             words + e * kWords);
        if (threadIdx.x % kCounters == 0) scalars[e] = static_cast<std::uint64_t>(entry.d);
      }
      __syncthreads();
      for (std::uint32_t i = 0; i < some; ++i) {
        const std::uint32_t bits = signs(words + i * kWords);
        const std::uint64_t d = scalars[i];
        for (unsigned k = 0; k < kElements; ++k) with_bit[k] += (bits >> k & 1u) != 0 ? d : 0;
      }
      __syncthreads();
    }
    for (unsigned k = 0; k < kElements; ++k) {
      const auto a = static_cast<std::int64_t>(step.total - 2 * with_bit[k]);
      v[k] = kernels::sub_rn(v[k], kernels::mul_rn(static_cast<float>(a), step.c));
    }
  }
  mine.store(w, v);
}

LaunchShape shape_of(std::int64_t first, std::size_t n) {
  const std::int64_t end = first + static_cast<std::int64_t>(n);
  const std::int64_t blocks = (end - 1) / kBlockElements - first / kBlockElements + 1;
  return {.blocks = dim3(static_cast<unsigned>(blocks)), .threads = dim3(kSpsaThreads)};
}

}  // namespace

void spsa_perturb(Stream& stream, std::uint64_t run_key, const kernels::SpsaDirection& z, float eps,
                  std::int64_t first, std::size_t n, const float* w, float* out) {
  if (n == 0) return;
  launch(stream, shape_of(first, n), perturb_kernel, run_key, z, eps, first, n, w, out);
}

void SpsaSteps::put(Stream& stream, std::span<const kernels::SpsaStep> steps) {
  std::vector<Step> packed;
  std::vector<kernels::SpsaEntry> entries;
  for (const kernels::SpsaStep& step : steps) {
    Step one;
    one.step = step.step;
    one.entries = static_cast<std::uint32_t>(step.entries.size());
    one.first_entry = entries.size();
    one.c = step.c;
    one.decay = step.decay;
    for (const kernels::SpsaEntry& entry : step.entries) {
      one.total += static_cast<std::uint64_t>(entry.d);
      entries.push_back(entry);
    }
    packed.push_back(one);
  }
  count_ = packed.size();
  const bool grows = steps_.size() < packed.size() || entries_.size() < entries.size();
  if (grows) stream.synchronize();  // queued work reads the earlier arrays
  if (steps_.size() < packed.size()) steps_ = DeviceArray<Step>(packed.size());
  if (entries_.size() < entries.size()) entries_ = DeviceArray<kernels::SpsaEntry>(entries.size());
  copy(stream, steps_.data(), packed.data(), packed.size());
  copy(stream, entries_.data(), entries.data(), entries.size());
  stream.synchronize();
}

void spsa_apply(Stream& stream, std::uint64_t run_key, const SpsaSteps& steps, std::int64_t first,
                std::size_t n, float* w) {
  if (n == 0 || steps.size() == 0) return;
  launch(stream, shape_of(first, n), apply_kernel, run_key, steps.steps(), steps.size(),
         steps.entries(), first, n, w);
}

}  // namespace isthmus::cuda
