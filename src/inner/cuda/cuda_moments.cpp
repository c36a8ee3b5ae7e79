// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/cuda_moments.h"

#include <fmt/format.h>

#include <cstddef>

#include "inner/model/optimizer.h"
#include "isthmus/errors.h"

namespace isthmus {

CudaMoments::CudaMoments(const InnerConfig& config, const ModelLayout& layout,
                         const CudaOptimizer& optimizer)
    : optimizer_(optimizer), all_{0, layout.elements()} {
  check_adamw(config);
  const auto size = static_cast<std::size_t>(all_.size());
  try {
    first_ = cuda::PinnedArray<float>(size);
    second_ = cuda::PinnedArray<float>(size);
  } catch (const SystemError& error) {
    throw SystemError(
        fmt::format("outer.method takes Adam's update over: Adam's moments on the host need {} "
                    "bytes of pinned memory ({}); take another outer.method, such as \"ddp\" or "
                    "\"diloco\", or set train.device = \"cpu\"",
                    2 * size * sizeof(float), error.what()));
  }
}

AdamMoments CudaMoments::of(CanonicalRange elements) const {
  const auto size = static_cast<std::size_t>(elements.size());
  return {{first_.data() + elements.begin, size}, {second_.data() + elements.begin, size}};
}

void CudaMoments::read(cuda::Stream& stream, CanonicalRange elements) {
  if (newer_ != Newer::kDevice || elements.size() == 0) return;
  const auto size = static_cast<std::size_t>(elements.size());
  const auto copy = [&](const cuda::PinnedArray<float>& mirror, const float* moment) {
    cuda::copy(stream, mirror.data() + elements.begin, moment + elements.begin, size);
  };
  copy(first_, optimizer_.moment(0));
  copy(second_, optimizer_.moment(1));
  stream.synchronize();
  if (elements.size() == all_.size()) newer_ = Newer::kNeither;
}

// Mirrors of which only some elements are right go nowhere as a whole.
void CudaMoments::wrote(cuda::Stream& stream, CanonicalRange elements) {
  if (elements.size() == all_.size() || newer_ != Newer::kDevice) {
    newer_ = Newer::kMirror;
  } else if (elements.size() > 0) {
    to_device(stream, elements);
  }
}

void CudaMoments::settle(cuda::Stream& stream) {
  if (newer_ != Newer::kMirror) return;
  to_device(stream, all_);
  newer_ = Newer::kNeither;
}

void CudaMoments::to_device(cuda::Stream& stream, CanonicalRange elements) const {
  const auto size = static_cast<std::size_t>(elements.size());
  const auto copy = [&](float* moment, const cuda::PinnedArray<float>& mirror) {
    cuda::copy<float>(stream, moment + elements.begin, mirror.data() + elements.begin, size);
  };
  copy(optimizer_.moment(0), first_);
  copy(optimizer_.moment(1), second_);
}

}  // namespace isthmus
