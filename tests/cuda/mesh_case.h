// SPDX-License-Identifier: Apache-2.0
// Meshes of devices over the tiny models of training_case.h. Where there are fewer devices than
// ranks some share one.
#pragma once

#include <vector>

#include "cuda/training_case.h"
#include "inner/cuda/cuda_mesh.h"

namespace isthmus {

inline constexpr std::int64_t kMeshSequences = 4;

[[nodiscard]] inline CudaMeshOptions on_devices(int ranks) {
  CudaMeshOptions mesh;
  const std::size_t devices = cuda::devices().size();
  for (int i = 0; i < ranks; ++i) {
    mesh.devices.push_back(static_cast<int>(static_cast<std::size_t>(i) % devices));
  }
  return mesh;
}

/// `options` of a mesh of as many data-parallel ranks, with kMeshSequences samples a step.
[[nodiscard]] inline LanguageModelOptions with_ranks(LanguageModelOptions options, int ranks) {
  options.sequences = kMeshSequences;
  options.mesh.dp = ranks;
  return options;
}

/// Of every rank, as they are now.
[[nodiscard]] inline std::vector<std::vector<float>> values_of_ranks(CudaMesh& mesh, int ranks) {
  std::vector<std::vector<float>> values;
  for (int i = 0; i < ranks; ++i) values.push_back(values_now(mesh.loop_of(i)));
  return values;
}

}  // namespace isthmus
