// SPDX-License-Identifier: Apache-2.0
// A block walks through a part, a thread an element at a time, so bound by memory at the bytes that
// the header gives where parts are long; masked lanes leave short ones.
#include <algorithm>

#include "kernels/cuda/adam_step.h"
#include "kernels/cuda/grid.h"

namespace isthmus::cuda {
namespace {

constexpr std::int64_t kPartValues = 16384;

LaunchShape shape_of(std::int64_t parts) {
  return {.blocks = dim3(static_cast<unsigned>(parts)), .threads = dim3(kThreads)};
}

__global__ void gather_kernel(const LaneRun* parts, float keep, const float* first, float own,
                              const float* gradients, float* vector) {
  const LaneRun run = parts[blockIdx.x];
  for (std::int64_t i = threadIdx.x; i < run.n; i += blockDim.x) {
    vector[run.at + i] =
        kernels::own_momentum(keep, first[run.begin + i], own, gradients[run.begin + i]);
  }
}

__global__ void scatter_kernel(const LaneRun* parts, const float* vector, float* first) {
  const LaneRun run = parts[blockIdx.x];
  for (std::int64_t i = threadIdx.x; i < run.n; i += blockDim.x) {
    first[run.begin + i] = vector[run.at + i];
  }
}

__global__ void step_kernel(kernels::AdamStep step, const ParameterRun* parts, float* values,
                            const float* first, const float* second) {
  const ParameterRun run = parts[blockIdx.x];
  if (run.weight_decay == 0) step.weight_decay = 0;
  for (std::int64_t i = threadIdx.x; i < run.n; i += blockDim.x) {
    const std::int64_t e = run.begin + i;
    kernels::adam_step_element(step, values[e], first[e], second[e]);
  }
}

}  // namespace

std::vector<LaneRun> parts_of(std::span<const LaneRun> runs) {
  std::vector<LaneRun> parts;
  for (const LaneRun& run : runs) {
    for (std::int64_t done = 0; done < run.n; done += kPartValues) {
      parts.push_back({run.begin + done, run.at + done, std::min(kPartValues, run.n - done)});
    }
  }
  return parts;
}

void gather_momentum(Stream& stream, const LaneParts& parts, float keep, const float* first,
                     float own, const float* gradients, float* vector) {
  if (parts.count == 0) return;
  launch(stream, shape_of(parts.count), gather_kernel, parts.data, keep, first, own, gradients,
         vector);
}

void scatter_momentum(Stream& stream, const LaneParts& parts, const float* vector, float* first) {
  if (parts.count == 0) return;
  launch(stream, shape_of(parts.count), scatter_kernel, parts.data, vector, first);
}

void adam_step(Stream& stream, const kernels::AdamStep& step, const ParameterParts& parts,
               float* values, const float* first, const float* second) {
  if (parts.count == 0) return;
  launch(stream, shape_of(parts.count), step_kernel, step, parts.data, values, first, second);
}

}  // namespace isthmus::cuda
