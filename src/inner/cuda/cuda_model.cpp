// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/cuda_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/check.h"
#include "inner/cuda/cuda_arena.h"
#include "inner/cuda/cuda_attention.h"
#include "inner/cuda/cuda_products.h"
#include "isthmus/errors.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/norm.h"

namespace isthmus {
namespace {

template <typename T>
std::unique_ptr<const CudaBlock<T>> make_block(const ModelShape& shape) {
  return shape.architecture == Architecture::kGpt2 ? make_cuda_gpt2_block<T>(shape)
                                                   : make_cuda_llama_block<T>(shape);
}

constexpr std::size_t kWorkspaceShare = 8;  // of cuDNN, of the device's memory, unless asked for

/// cuDNN's attention. THROWS: ConfigError where it is asked for and cannot be.
std::unique_ptr<cuda::CudnnAttention> cudnn_as_asked(const ModelShape& s,
                                                     const CudaModelOptions& options) {
  const auto refuse = [](const std::string& why) {
    return ConfigError(fmt::format("train.attention = \"cudnn\": {}; set it to \"own\"", why));
  };
  if (!options.bf16) throw refuse("it is of bf16, and the run's train.precision is \"fp32\"");
  if (const std::string why = cuda::cudnn_missing(); !why.empty()) throw refuse(why);
  const cuda::AttentionLayout layout = cuda_attention_layout(s, options.sequences, options.length);
  if (const std::string why = cuda::cudnn_refusal_here(layout.shape); !why.empty()) {
    throw refuse(why);
  }
  using Passes = cuda::CudnnAttention::Passes;
  const bool forward = options.purpose == CudaModelOptions::Purpose::kInference;
  try {
    return std::make_unique<cuda::CudnnAttention>(layout,
                                                  forward ? Passes::kForward : Passes::kBoth);
  } catch (const cuda::OutOfDeviceMemory&) {
    throw;
  } catch (const SystemError& error) {  // the library's own refusal, which knows no key
    throw refuse(error.what());
  }
}

/// As options.attention says; null: the own kernels. THROWS: as above.
std::unique_ptr<cuda::CudnnAttention> make_cudnn(const ModelShape& s,
                                                 const CudaModelOptions& options) {
  if (options.attention == DeviceAttention::kOwn) return nullptr;
  if (options.attention == DeviceAttention::kCudnn) return cudnn_as_asked(s, options);
  if (!options.bf16 || !cuda::cudnn_missing().empty()) return nullptr;
  try {
    auto cudnn = cudnn_as_asked(s, options);
    const std::size_t most = cuda::device_memory().total_bytes / kWorkspaceShare;
    return cudnn->workspace_bytes() <= most ? std::move(cudnn) : nullptr;
  } catch (const ConfigError&) {
    return nullptr;
  }
}

std::size_t workspace_of(const std::unique_ptr<cuda::CudnnAttention>& cudnn) {
  return cudnn == nullptr ? 0 : cudnn->workspace_bytes();
}

template <typename T>
CudaModel::Bytes bytes_of(const ModelLayout& layout, const CudaModelOptions& options,
                          std::size_t workspace) {
  const auto block = make_block<T>(layout.shape());
  ArenaLayout activations, head;
  static_cast<void>(CudaArena<T>(activations, head, layout, *block, options, workspace));
  return {activations.bytes(), head.bytes()};
}

template <typename T>
class CudaModelOf final : public CudaModel {
  using Purpose = CudaModelOptions::Purpose;
  using Memory = cuda::DeviceArray<std::byte>;

 public:
  CudaModelOf(const ModelLayout& layout, const CudaModelOptions& options, cuda::Blas& blas)
      : layout_(layout),
        options_(options),
        block_(make_block<T>(layout.shape())),
        cudnn_(make_cudnn(layout.shape(), options)),
        blas_(blas) {
    const std::size_t workspace = workspace_of(cudnn_);
    const Bytes bytes = bytes_of<T>(layout, options, workspace);
    activations_ = Memory(static_cast<std::size_t>(bytes.activations));
    if (options.head == nullptr) head_ = Memory(static_cast<std::size_t>(bytes.logits));
    ArenaLayout activations(activations_.data());
    ArenaLayout head(options.head == nullptr ? head_.data() : options.head);
    arena_.emplace(activations, head, layout, *block_, options, workspace);
    std::vector<float> tables(static_cast<std::size_t>(block_->table_floats()));
    block_->make_tables(tables.data());
    cuda::Stream stream;
    cuda::copy(stream, arena().tables, tables.data(), tables.size());
    stream.synchronize();
  }

  void loss(cuda::Stream& stream, const CudaValues& values, const CudaTokens& tokens,
            cuda::LossTotals* totals) override {
    stage_forward(stream, values, tokens, false);
    stage_head(stream, values, tokens, nullptr, totals);
  }

  void loss_and_gradients(cuda::Stream& stream, const CudaValues& values, const CudaTokens& tokens,
                          const CudaGradients& gradients, cuda::LossTotals* totals) override {
    stage_forward(stream, values, tokens, true);
    stage_head(stream, values, tokens, &gradients, totals);
    stage_backward(stream, values, tokens, gradients);
  }

  [[nodiscard]] float* stage_input() const override { return arena().stream.front(); }
  [[nodiscard]] const float* stage_output() const override { return arena().stream.back(); }
  [[nodiscard]] float* stage_gradient() const override { return arena().d_stream; }

  void stage_forward(cuda::Stream& stream, const CudaValues& values, const CudaTokens& tokens,
                     bool keep) override {
    const CudaPass pass = begin(stream, tokens);
    if (layout_.part().embedding) embed(pass, values, tokens);
    last_ = forward(pass, values, keep);
    if (layout_.part().head) return;  // the head's norm adds the branch
    cuda::add<T>(stream, pass.rows() * layout_.shape().d_model, last_, arena().branch,
                 arena().stream.back());
  }

  void stage_head(cuda::Stream& stream, const CudaValues& values, const CudaTokens& tokens,
                  const CudaGradients* gradients, cuda::LossTotals* totals) override {
    const CudaPass pass = begin(stream, tokens);
    final_norm(pass, values, last_);
    head(pass, values, tokens, gradients, totals);
  }

  void stage_backward(cuda::Stream& stream, const CudaValues& values, const CudaTokens& tokens,
                      const CudaGradients& gradients) override {
    ISTHMUS_CHECK(options_.purpose != Purpose::kInference);
    const CudaPass pass = begin(stream, tokens);
    float* const flat = gradients.flat;
    if (layout_.part().head) {
      final_norm_backward(pass, values, flat);
    } else if (d_branch() != nullptr) {
      cuda::convert<float, T>(stream, pass.rows() * layout_.shape().d_model, arena().d_stream,
                              d_branch());
    }
    backward(pass, values, gradients);
    if (layout_.part().embedding) {
      cuda::embedding_backward(stream, embedding(pass, tokens), tokens.order, arena().d_stream,
                               flat + place(layout_.embedding()),
                               gpt2() ? flat + place(layout_.positions()) : nullptr);
    }
    if (gradients.final_from) gradients.final_from(0);
  }

 private:
  [[nodiscard]] const CudaArena<T>& arena() const { return *arena_; }
  [[nodiscard]] std::int64_t place(std::size_t tensor) const {
    return layout_.tensors()[tensor].elements.begin;
  }
  [[nodiscard]] bool gpt2() const { return layout_.shape().architecture == Architecture::kGpt2; }

  CudaPass begin(cuda::Stream& stream, const CudaTokens& tokens) {
    ISTHMUS_CHECK(tokens.sequences >= 1 && tokens.length >= 1, tokens.sequences, tokens.length);
    ISTHMUS_CHECK(tokens.length <= layout_.shape().longest, tokens.length);
    ISTHMUS_CHECK(tokens.sequences * tokens.length <= options_.sequences * options_.length,
                  tokens.sequences, tokens.length);
    return {.stream = stream,
            .blas = blas_,
            .sequences = tokens.sequences,
            .length = tokens.length,
            .tables = arena().tables,
            .scratch = arena().kernel_scratch,
            .cudnn = cudnn_.get(),
            .tensor = options_.tensor};
  }

  [[nodiscard]] cuda::Embedding embedding(const CudaPass& pass, const CudaTokens& tokens) const {
    return {.rows = pass.rows(),
            .seq = pass.length,
            .channels = layout_.shape().d_model,
            .vocab = layout_.shape().vocab,
            .ids = tokens.ids,
            .first = options_.vocabulary.first_row};
  }

  /// For each value at most one summand is a table's and one a position's, so that sums over ranks
  /// have the bits of a rank that holds the whole vocabulary.
  void embed(const CudaPass& pass, const CudaValues& values, const CudaTokens& tokens) {
    const bool adds = gpt2() && pass.adds_biases();
    cuda::embedding_forward(
        pass.stream, embedding(pass, tokens), values.masters + place(layout_.embedding()),
        adds ? values.masters + place(layout_.positions()) : nullptr, arena().stream.front());
    pass.sum_over_ranks(arena().stream.front(), layout_.shape().d_model);
  }

  [[nodiscard]] CudaValues layer(const CudaValues& values, std::int64_t index) const {
    return values.from(layout_.layer_elements(index).begin);
  }

  /// keep: for a backward pass. RETURNS: x, so that x + arena().branch is the last layer's output.
  const float* forward(const CudaPass& pass, const CudaValues& values, bool keep) {
    const float* x = arena().stream[0];
    for (std::int64_t l = 0; l < layout_.shape().layers; ++l) {
      const auto slot = static_cast<std::size_t>(keep ? l : 0);
      x = block_->forward(pass, layer(values, l),
                          {.x = x,
                           .sum = l == 0 ? nullptr : arena().stream[slot],
                           .branch = arena().branch,
                           .memory = memory(slot)});
    }
    return x;
  }

  [[nodiscard]] void* memory(std::size_t slot) const {
    return arena().memory[arena().memory.size() > 1 ? slot : 0];
  }

  void final_norm(const CudaPass& pass, const CudaValues& values, const float* x) {
    const ModelShape& s = layout_.shape();
    cuda::norm_forward<T>(
        pass.stream, {.rows = pass.rows(),
                      .channels = s.d_model,
                      .eps = s.norm_eps,
                      .centred = gpt2(),
                      .x = x,
                      .branch = arena().branch,
                      .s = arena().stream.back(),
                      .weight = values.masters + place(layout_.final_norm_weight()),
                      .bias = gpt2() ? values.masters + place(layout_.final_norm_bias()) : nullptr,
                      .y = arena().hidden,
                      .mean = gpt2() ? arena().mean : nullptr,
                      .rstd = arena().rstd});
  }

  /// Losses, a chunk of rows at a time; with gradients that of `hidden` takes its place.
  void head(const CudaPass& pass, const CudaValues& values, const CudaTokens& tokens,
            const CudaGradients* gradients, cuda::LossTotals* totals) {
    const ModelShape& s = layout_.shape();
    const std::int64_t first = place(layout_.head());
    const T* const weight = values.working.template as<T>() + first;
    for (std::int64_t at = 0; at < pass.rows(); at += arena().chunk) {
      const CudaLinear shape{std::min(arena().chunk, pass.rows() - at), s.d_model, arena().padded};
      T* const hidden = arena().hidden + at * s.d_model;
      pass.blas.matmul(pass.stream, cuda_linear(shape, hidden, weight, arena().logits));
      cuda::CrossEntropy<T> losses{
          .rows = shape.rows,
          .vocab = s.vocab,
          .ld = arena().padded,
          .first = options_.vocabulary.first_row,
          .logits = arena().logits,
          .targets = tokens.targets + at,
          .gradient = gradients != nullptr,
          .gradient_scale = gradients != nullptr ? gradients->scale : nullptr,
          .z_loss = s.z_loss,
          .row_losses = arena().row_losses,
          .totals = totals};
      if (pass.tensor != nullptr) tell_row_shares(pass, losses);
      cuda::cross_entropy<T>(pass.stream, losses);
      if (gradients == nullptr) continue;
      pass.blas.matmul(pass.stream, cuda_linear_weight_gradient(shape, hidden, arena().logits,
                                                                gradients->flat + first));
      pass.blas.matmul(pass.stream,
                       cuda_linear_input_gradient(shape, arena().logits, weight, hidden));
    }
    if (gradients != nullptr) pass.sum_over_ranks(arena().hidden, s.d_model);
  }

  /// Ranks that hold some columns of the logits each tell one another of their rows.
  void tell_row_shares(const CudaPass& pass, cuda::CrossEntropy<T>& losses) {
    constexpr std::int64_t kDoubles = sizeof(cuda::RowShare) / sizeof(double);
    cuda::RowShare* const own = arena().row_shares;
    cuda::RowShare* const all = own + arena().chunk;
    cuda::row_shares<T>(pass.stream, losses, own);
    pass.stream.synchronize();
    pass.tensor->gather(&own->top, losses.rows * kDoubles, &all->top);
    losses.shares = all;
    losses.ranks = pass.tensor->size();
  }

  /// The gradient of the stream as products read it; null where that is the stream's own.
  [[nodiscard]] T* d_branch() const {
    return std::is_same_v<T, float> ? nullptr : arena().d_branch;
  }

  void final_norm_backward(const CudaPass& pass, const CudaValues& values, float* flat) {
    const ModelShape& s = layout_.shape();
    cuda::fill_zero(pass.stream, arena().d_stream,
                    static_cast<std::size_t>(pass.rows() * s.d_model));
    cuda::norm_backward<T>(pass.stream,
                           {.rows = pass.rows(),
                            .channels = s.d_model,
                            .centred = gpt2(),
                            .dy = arena().hidden,
                            .s = arena().stream.back(),
                            .weight = values.masters + place(layout_.final_norm_weight()),
                            .mean = gpt2() ? arena().mean : nullptr,
                            .rstd = arena().rstd,
                            .d_stream = arena().d_stream,
                            .d_branch = d_branch(),
                            .d_weight = flat + place(layout_.final_norm_weight()),
                            .d_bias = gpt2() ? flat + place(layout_.final_norm_bias()) : nullptr,
                            .scratch = pass.scratch});
  }

  void backward(const CudaPass& pass, const CudaValues& values, const CudaGradients& gradients) {
    const ModelShape& s = layout_.shape();
    const auto final_from = [&](std::int64_t first) {
      if (gradients.final_from) gradients.final_from(first);
    };
    final_from(layout_.layer_elements(s.layers - 1).end);
    for (std::int64_t l = s.layers - 1; l >= 0; --l) {
      const auto slot = static_cast<std::size_t>(l);
      const bool shared = options_.purpose == Purpose::kRecompute;
      if (shared && l + 1 != s.layers) {  // the last layer's is still there
        block_->forward(pass, layer(values, l),
                        {.x = arena().stream[slot],
                         .branch = arena().branch,
                         .memory = memory(slot),
                         .for_backward = true});
      }
      block_->backward(pass, layer(values, l),
                       {.sum = arena().stream[slot],
                        .memory = memory(slot),
                        .scratch = arena().scratch,
                        .other = arena().branch,
                        .d_stream = arena().d_stream,
                        .d_branch = d_branch(),
                        .lowest = l == 0,
                        .first = gradients.first,
                        .gradients = gradients.flat + layout_.layer_elements(l).begin});
      final_from(layout_.layer_elements(l).begin);
    }
  }

  const ModelLayout& layout_;
  CudaModelOptions options_;
  std::unique_ptr<const CudaBlock<T>> block_;
  std::unique_ptr<cuda::CudnnAttention> cudnn_;  // or none
  cuda::Blas& blas_;
  Memory activations_, head_;
  const float* last_ = nullptr;  // of stage_forward: this + the branch is the last layer's output
  std::optional<const CudaArena<T>> arena_;
};

}  // namespace

CudaModel::Bytes CudaModel::bytes(const ModelLayout& layout, const CudaModelOptions& options) {
  const auto cudnn = make_cudnn(layout.shape(), options);
  Bytes bytes = options.bf16 ? bytes_of<kernels::Bf16>(layout, options, workspace_of(cudnn))
                             : bytes_of<float>(layout, options, workspace_of(cudnn));
  bytes.cudnn = cudnn != nullptr;
  return bytes;
}

std::vector<std::int64_t> CudaModel::final_points(const ModelLayout& layout) {
  std::vector<std::int64_t> points{layout.layer_elements(layout.shape().layers - 1).end};
  for (std::int64_t l = layout.shape().layers - 1; l >= 0; --l) {
    points.push_back(layout.layer_elements(l).begin);
  }
  points.push_back(0);
  return points;
}

std::vector<CanonicalRange> CudaModel::added_ranges(const ModelLayout& layout) {
  std::vector<CanonicalRange> ranges;
  for (const TensorInfo& tensor : layout.tensors()) {
    if (tensor.layer != kNoLayer && tensor.shape.size() == 2) continue;
    if (!ranges.empty() && ranges.back().end == tensor.elements.begin) {
      ranges.back().end = tensor.elements.end;
    } else {
      ranges.push_back(tensor.elements);
    }
  }
  return ranges;
}

std::int64_t CudaModel::array_elements(const ModelLayout& layout) {
  if (!layout.part().head) return layout.elements();
  const ModelShape& s = layout.shape();
  const std::int64_t head = layout.tensors()[layout.head()].elements.begin;
  return std::max(layout.elements(), head + padded_vocab(s.vocab) * s.d_model);
}

std::unique_ptr<CudaModel> make_cuda_model(const ModelLayout& layout,
                                           const CudaModelOptions& options, cuda::Blas& blas) {
  if (options.bf16) return std::make_unique<CudaModelOf<kernels::Bf16>>(layout, options, blas);
  return std::make_unique<CudaModelOf<float>>(layout, options, blas);
}

}  // namespace isthmus
