// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/perturbed_source.h"

#include <algorithm>

#include "core/base/check.h"

namespace isthmus::outer {
namespace {

std::span<float> floats(const kernels::AlignedBuffer& buffer, std::size_t begin, std::size_t n) {
  return {static_cast<float*>(buffer.data()) + begin, n};
}

}  // namespace

PerturbedSource::PerturbedSource(std::span<const Parameter> parameters, std::uint64_t run_key,
                                 kernels::ThreadTeam& team)
    : parameters_(parameters),
      run_key_(run_key),
      team_(team),
      places_(parameters.size()),
      outside_(parameters.size()),
      outside_valid_(parameters.size()) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].layer == kNoLayer) {
      continue;
    }
    const auto layer = static_cast<std::size_t>(parameters[i].layer);
    layer_values_.resize(std::max(layer_values_.size(), layer + 1));
    places_[i] = layer_values_[layer];
    layer_values_[layer] += parameters[i].values.size();
  }
}

void PerturbedSource::set(const kernels::SpsaDirection& z, float eps) {
  z_ = z;
  eps_ = eps;
  copied_layer_ = kNothing;
  outside_valid_.assign(outside_valid_.size(), false);
}

void PerturbedSource::fill_layer(int layer) const {
  layer_copy_.grow(layer_values_[static_cast<std::size_t>(layer)] * sizeof(float));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    if (p.layer == layer) {
      kernels::spsa_perturb(team_, run_key_, z_, eps_, p.elements.begin, p.values,
                            floats(layer_copy_, places_[i], p.values.size()));
    }
  }
  copied_layer_ = layer;
}

std::span<const float> PerturbedSource::values(std::size_t parameter) const {
  const Parameter& p = parameters_[parameter];
  if (p.layer != kNoLayer) {
    if (copied_layer_ != p.layer) {
      fill_layer(p.layer);
    }
    return floats(layer_copy_, places_[parameter], p.values.size());
  }
  outside_[parameter].grow(p.values.size() * sizeof(float));
  const std::span<float> copy = floats(outside_[parameter], 0, p.values.size());
  if (!outside_valid_[parameter]) {
    kernels::spsa_perturb(team_, run_key_, z_, eps_, p.elements.begin, p.values, copy);
    outside_valid_[parameter] = true;
  }
  return copy;
}

std::span<const float> PerturbedSource::rows(std::size_t parameter, std::int64_t columns,
                                             std::int64_t first, std::int64_t count) const {
  const Parameter& p = parameters_[parameter];
  const auto begin = static_cast<std::size_t>(first * columns);
  const auto n = static_cast<std::size_t>(count * columns);
  ISTHMUS_CHECK(begin + n <= p.values.size(), first, count, columns);
  rows_copy_.grow(n * sizeof(float));
  const std::span<float> copy = floats(rows_copy_, 0, n);
  kernels::spsa_perturb(team_, run_key_, z_, eps_, p.elements.begin + first * columns,
                        p.values.subspan(begin, n), copy);
  return copy;
}

std::size_t PerturbedSource::scratch_bytes() const {
  std::size_t bytes = layer_copy_.bytes() + rows_copy_.bytes();
  for (const kernels::AlignedBuffer& buffer : outside_) {
    bytes += buffer.bytes();
  }
  return bytes;
}

}  // namespace isthmus::outer
