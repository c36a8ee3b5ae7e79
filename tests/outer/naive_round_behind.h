// SPDX-License-Identifier: Apache-2.0
// delayed, eager and co2 written down once more, as plainly as can be: all workers in one loop, one
// vector each, every operation rounded once in fp32, nothing encoded. A reference for the methods.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "outer/toy_loops.h"

namespace isthmus::testing_support {

struct NaiveOptions {
  std::string method = "delayed";
  int workers = 3;
  int rounds = 4;
  int H = 3;
  float lr = 0.7f;
  float momentum = 0.9f;
  bool nesterov = true;
  float constant_penalty = 1;  // co2
  bool gap_aware = false;      // co2
  float clip = std::numeric_limits<float>::infinity();
  bool drain = true;
};

/// RETURNS: the anchors of every worker after every round, and after the drain: [round][worker].
inline std::vector<std::vector<std::vector<float>>> naive_round_behind(
    const NaiveOptions& o, const std::function<QuadraticLoop::Options(int)>& loop_of) {
  using Vector = std::vector<float>;
  const auto M = static_cast<std::size_t>(o.workers);
  std::vector<std::unique_ptr<QuadraticLoop>> loops;
  for (int w = 0; w < o.workers; ++w) loops.push_back(std::make_unique<QuadraticLoop>(loop_of(w)));
  const std::size_t n = loops[0]->all().size();
  std::vector<Vector> anchor(M, loops[0]->all());
  std::vector<Vector> b(M, Vector(n, 0.0f));
  std::vector<Vector> delta(M), before;  // of this round, of the one before
  double moved = 0;
  double highest_rate = 0;

  const auto mean_of = [&](const std::vector<Vector>& all) {
    Vector mean(n, 0.0f);
    for (std::size_t i = 0; i < n; ++i) {
      for (const Vector& each : all) mean[i] += each[i];
      mean[i] /= static_cast<float>(M);
    }
    return mean;
  };
  const auto norm_of = [&](const Vector& x) {
    double sum = 0;
    for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
    return std::sqrt(sum);
  };
  const auto outer_opt = [&](std::size_t w, const Vector& g) {
    for (std::size_t i = 0; i < n; ++i) {
      b[w][i] = o.momentum * b[w][i] + g[i];
      const float direction = o.nesterov ? g[i] + o.momentum * b[w][i] : b[w][i];
      anchor[w][i] = anchor[w][i] - o.lr * std::clamp(direction, -o.clip, o.clip);
    }
  };
  const auto apply_stale = [&](const Vector& mean_before, double rate) {
    Vector g = mean_before;
    float penalty = o.constant_penalty;
    const double excursion = norm_of(g);
    if (o.gap_aware && moved > 0 && excursion > 0) {
      penalty = static_cast<float>(1 + highest_rate / rate * moved / excursion);
    }
    for (float& each : g) each /= penalty;
    const Vector old = anchor[0];
    for (std::size_t w = 0; w < M; ++w) outer_opt(w, g);
    Vector move(n);
    for (std::size_t i = 0; i < n; ++i) move[i] = anchor[0][i] - old[i];
    moved = norm_of(move);
  };

  std::vector<std::vector<Vector>> history;
  int step = 0;
  double rate = 0;
  for (int round = 0; round < o.rounds; ++round) {
    for (int h = 0; h < o.H; ++h) {
      ++step;
      for (auto& loop : loops) (void)loop->train_step(StepIndex(step));
    }
    rate = loops[0]->learning_rate(StepIndex(step));
    highest_rate = std::max(highest_rate, rate);
    for (std::size_t w = 0; w < M; ++w) {
      delta[w] = loops[w]->all();
      for (std::size_t i = 0; i < n; ++i) delta[w][i] = anchor[w][i] - delta[w][i];
    }
    if (o.method == "eager") {
      const Vector stale_mean = before.empty() ? Vector(n, 0.0f) : mean_of(before);
      for (std::size_t w = 0; w < M; ++w) {
        Vector g = stale_mean;
        for (std::size_t i = 0; i < n; ++i) {
          if (!before.empty()) g[i] -= before[w][i] / static_cast<float>(M);
          g[i] += delta[w][i] / static_cast<float>(M);
        }
        outer_opt(w, g);
      }
    } else if (!before.empty()) {
      apply_stale(mean_of(before), rate);
    }
    before = delta;
    for (std::size_t w = 0; w < M; ++w) loops[w]->set(anchor[w]);
    history.push_back(anchor);
  }
  if (o.drain && o.method == "eager") {  // what the others did in the last round
    const Vector last_mean = mean_of(before);
    for (std::size_t w = 0; w < M && M > 1; ++w) {
      Vector g = last_mean;
      for (std::size_t i = 0; i < n; ++i) g[i] -= before[w][i] / static_cast<float>(M);
      outer_opt(w, g);
    }
    history.push_back(anchor);
  } else if (o.drain) {
    apply_stale(mean_of(before), rate);
    history.push_back(anchor);
  }
  return history;
}

}  // namespace isthmus::testing_support
