// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/cuda_optimizer.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

#include "inner/model/optimizer.h"
#include "kernels/optimizer.h"

namespace isthmus {
namespace {

/// AdamW updates the tensors that Muon does not.
bool adamw(const InnerConfig& config) { return config.optimizer != "sgd"; }

/// Neighbouring tensors of one weight decay, cut into the sizes that blocks of a kernel take.
std::vector<cuda::ParameterRun> parts_of(const InnerConfig& config, const ModelLayout& layout) {
  std::vector<cuda::ParameterRun> runs;
  std::int64_t left_out = 0;
  for (const TensorInfo& tensor : layout.tensors()) {
    if (muon_matrix(config, layout, tensor)) {
      left_out += tensor.elements.size();
      continue;
    }
    const double decay = tensor.decay() ? config.weight_decay : 0.0;
    if (runs.empty() || runs.back().weight_decay != decay || runs.back().left_out != left_out) {
      runs.push_back(
          {.begin = tensor.elements.begin, .n = 0, .weight_decay = decay, .left_out = left_out});
    }
    runs.back().n += tensor.elements.size();
  }
  return cuda::parts_of(runs);
}

std::vector<cuda::MuonMatrix> matrices_of(const InnerConfig& config, const ModelLayout& layout) {
  std::vector<cuda::MuonMatrix> matrices;
  for (const TensorInfo& tensor : layout.tensors()) {
    const std::optional<MuonMatrix> matrix = muon_matrix(config, layout, tensor);
    if (!matrix) continue;
    matrices.push_back({.begin = tensor.elements.begin,
                        .rows = matrix->rows,
                        .cols = matrix->cols,
                        .weight_decay = tensor.decay() ? config.weight_decay : 0.0,
                        .update_scale = matrix->update_scale});
  }
  return matrices;
}

std::int64_t scratch_bytes(std::span<const cuda::MuonMatrix> matrices) {
  std::int64_t bytes = 0;
  for (const cuda::MuonMatrix& each : matrices) {
    bytes = std::max(bytes, cuda::muon_scratch_bytes(each.rows, each.cols));
  }
  return bytes;
}

}  // namespace

std::int64_t CudaOptimizer::moment_bytes(const InnerConfig& config, const ModelLayout& layout) {
  return InnerOptimizer::moment_values(config, layout) * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t CudaOptimizer::other_bytes(const InnerConfig& config, const ModelLayout& layout) {
  return static_cast<std::int64_t>(sizeof(cuda::StepNumbers) +
                                   sizeof(cuda::ParameterRun) * parts_of(config, layout).size()) +
         scratch_bytes(matrices_of(config, layout));
}

CudaOptimizer::CudaOptimizer(const InnerConfig& config, const ModelLayout& layout,
                             cuda::Stream& stream)
    : config_(config),
      elements_(layout.elements()),
      moments_(static_cast<std::size_t>(moment_bytes(config, layout)) / sizeof(float)),
      matrices_(matrices_of(config, layout)),
      scratch_(static_cast<std::size_t>(scratch_bytes(matrices_))),
      numbers_(1),
      host_numbers_(1) {
  const std::vector<cuda::ParameterRun> parts = parts_of(config, layout);
  parts_ = cuda::DeviceArray<cuda::ParameterRun>(parts.size());
  cuda::copy(stream, parts_.data(), parts.data(), parts.size());
  reset(stream);
  stream.synchronize();  // `parts` ends here
}

std::size_t CudaOptimizer::size_of_moment(int index) const {
  const std::size_t first = std::min(moments_.size(), static_cast<std::size_t>(elements_));
  return index == 0 ? first : moments_.size() - first;
}

float* CudaOptimizer::moment(int index) const {
  return size_of_moment(index) == 0 ? nullptr : moments_.data() + index * elements_;
}

void CudaOptimizer::prepare(cuda::Stream& stream, double lr, std::optional<double> factor) {
  const std::int64_t update = updates_ + 1;
  *host_numbers_.data() = adamw(config_) ? cuda::adamw_numbers({.lr = lr,
                                                                .beta1 = config_.beta1,
                                                                .beta2 = config_.beta2,
                                                                .eps = config_.eps,
                                                                .step = update},
                                                               config_.clip)
                                         : cuda::sgd_numbers({.lr = lr,
                                                              .momentum = config_.momentum,
                                                              .nesterov = config_.nesterov,
                                                              .first_step = update == 1},
                                                             update, config_.clip);
  if (factor) {
    host_numbers_.data()->clip = 0;
    host_numbers_.data()->factor = static_cast<float>(*factor);
  }
  cuda::copy(stream, numbers_.data(), host_numbers_.data(), 1);
}

void CudaOptimizer::queue(cuda::Stream& stream, cuda::Blas& blas, float* values,
                          const float* gradients, kernels::Bf16* working,
                          const double* squares) const {
  const cuda::OptimizerArrays arrays{.values = values,
                                     .gradients = gradients,
                                     .first = moment(0),
                                     .second = moment(1),
                                     .working = working};
  const cuda::ParameterParts parts{parts_.data(), static_cast<std::int64_t>(parts_.size())};
  if (adamw(config_)) {
    cuda::adamw_step(stream, parts, arrays, numbers_.data(), squares);
  } else {
    cuda::sgd_step(stream, parts, arrays, config_.nesterov, numbers_.data(), squares);
  }
  for (const cuda::MuonMatrix& matrix : matrices_) {
    cuda::muon_step(stream, blas, {.momentum = config_.momentum, .nesterov = config_.nesterov},
                    matrix, arrays, numbers_.data(), squares, scratch_.data());
  }
}

void CudaOptimizer::reset(cuda::Stream& stream, std::int64_t updates) {
  updates_ = updates;
  cuda::fill_zero(stream, moments_.data(), moments_.size());
}

void CudaOptimizer::save(cuda::Stream& stream, StateWriter& writer) const {
  save_updates(writer, config_, updates_);
  for (const int i : {0, 1}) {
    std::vector<float> host(size_of_moment(i));
    if (host.empty()) continue;
    cuda::copy(stream, host.data(), moment(i), host.size());
    stream.synchronize();
    save_moment(writer, i, host);
  }
}

void CudaOptimizer::load(cuda::Stream& stream, StateReader& reader) {
  updates_ = load_updates(reader, config_);
  for (const int i : {0, 1}) {
    std::vector<float> host(size_of_moment(i));
    if (host.empty()) continue;
    load_moment(reader, i, host);
    cuda::copy(stream, moment(i), host.data(), host.size());
    stream.synchronize();
  }
}

void CudaOptimizer::take(cuda::Stream& stream, const CudaOptimizer& other) {
  updates_ = other.updates_;
  cuda::copy<float>(stream, moments_.data(), other.moments_.data(), moments_.size());
  stream.synchronize();
}

}  // namespace isthmus
