// SPDX-License-Identifier: Apache-2.0
#include "plan/mesh_passes.h"

#include "inner/mesh/rank_layout.h"

namespace isthmus::plan {
namespace {
constexpr double kFloatTraffic = 4;
constexpr double kBf16Traffic = 2;

/// Widths of a rank's part of a layer, in values of a token.
struct Widths {
  double d, query, key, ff, wide;  // wide: bytes of a value outside the stream

  Widths(const ModelShape& s, const MeshChoice& choice)
      : d(static_cast<double>(s.d_model)),
        query(static_cast<double>(s.query_width() / choice.tp)),
        key(static_cast<double>(s.key_width() / (choice.tp / key_copies(s, choice.tp)))),
        ff(static_cast<double>(s.d_ff / choice.tp)),
        wide(choice.bf16 ? kBf16Traffic : kFloatTraffic) {}
  [[nodiscard]] double norm_forward() const { return d * (kFloatTraffic + wide); }
  [[nodiscard]] double norm_backward() const { return d * (wide + 3 * kFloatTraffic); }
};

/// Of a token: `own` where ranks split the sequence, `all` where each has every token.
struct TokenBytes {
  double own = 0, all = 0;
};

/// Whether a layer keeps what GELU takes: in bf16 that is rounded, and would give other bits.
bool makes_gelu_again(const ModelShape& s, const MeshChoice& choice) {
  return s.architecture == Architecture::kGpt2 && choice.recompute == Recompute::kSelective &&
         !choice.bf16;
}

TokenBytes layer_forward(const ModelShape& s, const Widths& w, bool gelu_alone) {
  if (s.architecture == Architecture::kGpt2) {
    return {2 * w.norm_forward(), (gelu_alone ? 2 : 1) * w.ff * w.wide};
  }
  // A norm of heads copies them first.
  const double heads = s.qk_norm ? 4 * (w.query + w.key) : 0;
  const double after = s.norms_after() ? 2 * w.norm_forward() : 0;
  return {2 * w.norm_forward() + after,
          (heads + 2 * (w.query + w.key) + (s.gated() ? 3 : 2) * w.ff) * w.wide};
}

/// Of a selective recomputation: the norms, and the activation where it is made again: SwiGLU from
/// gate and up, or GELU and its slope from one sum.
TokenBytes layer_again(const ModelShape& s, const Widths& w, bool gelu_again) {
  const bool again = s.architecture == Architecture::kLlama || gelu_again;
  return {2 * w.norm_forward(), again ? 3 * w.ff * w.wide : 0};
}

TokenBytes layer_backward(const ModelShape& s, const Widths& w, bool split) {
  TokenBytes bytes{2 * w.norm_backward(), w.ff * w.wide};
  if (s.architecture == Architecture::kLlama) {
    const double heads = s.qk_norm ? 7 * (w.query + w.key) : 0;
    bytes.all = (heads + 2 * (w.query + w.key) + (s.gated() ? 5 : 3) * w.ff) * w.wide;
    if (s.norms_after()) bytes.own += 2 * w.norm_backward();
  }
  if (!split) return bytes;
  const double qkv = w.query + 2 * w.key;
  bytes.own += 2 * 2 * w.d * kFloatTraffic;
  bytes.all += 2 * (s.architecture == Architecture::kGpt2 ? w.ff + qkv : qkv) * w.wide;
  return bytes;
}

}  // namespace

PassBytes pass_bytes(const MeshWorkload& workload, const MeshChoice& choice,
                     const StageShare& stage) {
  const ModelShape& s = workload.shape;
  const Widths w(s, choice);
  const auto rows = static_cast<double>(micro_batch_rows(workload, choice));
  const double own = choice.sequence_parallel ? rows / choice.tp : rows;
  const auto of = [&](const TokenBytes& token) { return own * token.own + rows * token.all; };
  const auto layers = static_cast<double>(stage.layers.size());
  PassBytes bytes;
  const bool gelu_again = makes_gelu_again(s, choice);
  const double layer = of(layer_forward(s, w, gelu_again));
  bytes.forward = layers * layer;
  bytes.backward = layers * of(layer_backward(s, w, choice.schedule == PipelineKind::kZbH1));
  if (choice.recompute == Recompute::kFull && layers > 0) bytes.again = (layers - 1) * layer;
  if (choice.recompute == Recompute::kSelective) {
    bytes.again = layers * of(layer_again(s, w, gelu_again));
  }
  if (stage.first) {
    bytes.forward += rows * 2 * w.d * kFloatTraffic;
    bytes.backward += rows * 3 * w.d * kFloatTraffic;
  }
  if (stage.last) {
    const double vocab = static_cast<double>((s.vocab + choice.tp - 1) / choice.tp);
    bytes.forward +=
        own * (w.norm_forward() + w.norm_backward()) + rows * 3 * vocab * kFloatTraffic;
  }
  return bytes;
}

double update_bytes(double values, double moments) {
  return kFloatTraffic * (4 * values + 2 * moments);
}

}  // namespace isthmus::plan
