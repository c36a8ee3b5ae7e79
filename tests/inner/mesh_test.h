// SPDX-License-Identifier: Apache-2.0
// What the tests of meshes share: small models, cases, one step's loss and gradients.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "inner/inner_test.h"
#include "inner/mesh/mesh.h"
#include "inner/model_families.h"
#include "inner/rank_threads.h"

namespace isthmus {

inline constexpr std::int64_t kVocab =
    67;  // no multiple of anything: shares of the vocabulary differ

struct Case {
  std::string name;
  MeshShape mesh;
  std::int64_t micro_batches = 1;
  PipelineKind schedule = PipelineKind::k1F1B;
  int virtual_stages = 1;
};

inline std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

inline LanguageModelOptions model_of(const std::string& name) {
  LanguageModelOptions o;
  o.model = {
      .arch = "gpt2", .layers = 4, .d_model = 32, .heads = 4, .vocab = kVocab, .context = 16};
  if (name != "gpt2") {
    o.model.arch = "llama";
    o.model.kv_heads = 4;
    o.model.tied = name == "llama-tied";
  }
  if (name == "llama-grouped") {
    o.model.heads = 8;
    o.model.kv_heads = 4;
    o.model.qk_norm = true;
    o.model.z_loss = 1e-3;
  }
  if (name == "llama-two-keys") {  // fewer than tensor-parallel ranks
    o.model.heads = 8;
    o.model.kv_heads = 2;
    o.model.qk_norm = true;
  }
  if (name == "llama-one-key") o.model.kv_heads = 1;
  for (const std::string& family : family_names()) {
    if (name == family) o.model = of_family(o.model, family);
  }
  o.inner.lr = 2e-3;
  o.inner.clip = 1;
  o.context = 12;
  o.sequences = 8;
  o.total_steps = 20;
  o.seed = 5;
  return o;
}

inline LanguageModelOptions on_mesh(LanguageModelOptions o, const Case& c) {
  o.mesh = c.mesh;
  o.micro_batches = c.micro_batches;
  o.schedule = c.schedule;
  o.virtual_stages = c.virtual_stages;
  return o;
}

struct Step {
  double loss = 0;
  std::vector<float> gradients;
  std::vector<std::size_t> begins;  // of each parameter's
};

inline Step first_step(const LanguageModelOptions& options) {
  RandomBatches batches(kVocab, options.sequences, options.context);
  LanguageModelLoop loop(options, batches.provider());
  Step step;
  step.loss = loop.gradients(StepIndex(1), {}).loss;
  for (std::size_t i = 0; i < loop.parameters().size(); ++i) {
    const auto gradient = loop.gradient(i);
    step.begins.push_back(step.gradients.size());
    step.gradients.insert(step.gradients.end(), gradient.begin(), gradient.end());
  }
  return step;
}

inline double largest(const std::vector<float>& values) {
  double top = 0;
  for (const float v : values) top = std::max(top, std::abs(static_cast<double>(v)));
  return top;
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double top = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    top = std::max(top, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return top;
}

/// What a rank does when the first one calls all: made anew for each of the others.
using MakeService = std::function<RankService(int rank)>;

/// What `first` does as the first rank of a mesh whose other ranks serve it.
template <typename First>
void with_processes(
    LanguageModelOptions options, const First& first,
    const MakeService& service = [](int) { return RankService(); }) {
  RankThreads ranks(options.mesh, std::chrono::minutes(2));
  const ModelLayout layout(model_shape(options.model, options.context));
  std::vector<std::jthread> others;
  for (int r = 1; r < options.mesh.ranks(); ++r) {
    others.emplace_back([&, r] {
      LanguageModelOptions own = options;
      own.processes = &ranks[r];
      serve_mesh(layout, mesh_options(own), ranks[r], service(r));
    });
  }
  options.processes = &ranks[0];
  first(options);
}

/// The largest difference of a parameter's gradients, relative to the largest of these in `one`.
inline double largest_difference_by_parameter(const Step& mesh, const Step& one) {
  EXPECT_EQ(mesh.gradients.size(), one.gradients.size());
  double worst = 0;
  for (std::size_t p = 0; p < one.begins.size(); ++p) {
    const std::size_t end = p + 1 < one.begins.size() ? one.begins[p + 1] : one.gradients.size();
    double top = 0, off = 0;
    for (std::size_t i = one.begins[p]; i < end; ++i) {
      const auto a = static_cast<double>(mesh.gradients[i]);
      const auto b = static_cast<double>(one.gradients[i]);
      top = std::max(top, std::abs(b));
      if (!(std::abs(a - b) <= off)) off = std::abs(a - b);  // NaN stays
    }
    if (!(off / top <= worst)) worst = off / top;
  }
  return worst;
}

}  // namespace isthmus
