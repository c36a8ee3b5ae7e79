// SPDX-License-Identifier: Apache-2.0
// Causal self-attention with grouped queries by NVIDIA's cuDNN, forward and backward, in Bf16: the
// formulas of kernels/attention.h, which attention.h implements with our own kernels. Three files
// define these names: cudnn_attention.cpp, over cuDNN's frontend; cudnn_attention_stub.cpp, chosen
// by CMake for a build without its headers; emulated/cudnn_attention.cpp for tests without a
// device.
//
// cuDNN is loaded at first use, so a program built with it also starts without it. All pointers are
// device memory. THROWS: SystemError naming cuDNN's call and its message.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/attention.h"
#include "kernels/cuda/cudnn/cudnn_layout.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

/// Why attention by cuDNN is unavailable: the build has none, or the library cannot be loaded or is
/// too old; empty if available. Needs no device.
[[nodiscard]] std::string cudnn_missing();

/// "9.19.0"; empty if cuDNN is missing.
[[nodiscard]] std::string cudnn_version();

/// cudnn_refusal on the calling thread's device.
[[nodiscard]] std::string cudnn_refusal_here(const AttentionShape& shape);

/// The objection of cuDNN's frontend to either pass over the layout on a device of this compute
/// capability (90 is 9.0), before it looks for a plan; empty: none. Needs no device. REQUIRES:
/// cuDNN is not missing.
[[nodiscard]] std::string cudnn_objection(const AttentionLayout& layout, int compute_capability);

/// Attention for one layout; its plans are made in the constructor. Driven by one thread, on the
/// device that was current when it was made. DETERMINISM: cuDNN's deterministic algorithm: the same
/// bits in every run on one device model with one version of cuDNN. On 9.x its workspace has at
/// least 2 batch q_heads seq^2 bytes.
class CudnnAttention {
 public:
  enum class Passes { kForward, kBoth };
  /// REQUIRES: no cudnn_refusal. THROWS: SystemError, also when cuDNN is missing or has no plan for
  /// the layout on this device. Blocks while it looks for plans: about a second on an H100.
  CudnnAttention(const AttentionLayout& layout, Passes passes);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Bytes of workspace: the larger of the two passes.
  [[nodiscard]] std::size_t workspace_bytes() const;
  /// True if it was made for these windows.
  [[nodiscard]] bool takes(const AttentionShape& shape) const;

  /// As kernels::attention_forward. Queues work on the stream; after one run outside a graph it may
  /// also be captured. REQUIRES: views with the layout it was made for.
  void forward(Stream& stream, HeadsView<const kernels::Bf16> q, HeadsView<const kernels::Bf16> k,
               HeadsView<const kernels::Bf16> v, HeadsView<kernels::Bf16> out, float* lse,
               void* workspace);
  /// As kernels::attention_backward. REQUIRES: also made for both passes.
  void backward(Stream& stream, const kernels::AttentionBackward<kernels::Bf16>& a,
                void* workspace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace isthmus::cuda
