// SPDX-License-Identifier: Apache-2.0
#include "inner/model/model_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/check.h"
#include "inner/model/gpt2.h"
#include "inner/model/llama.h"

namespace isthmus {

bool opens_upper_half(const ModelShape& shape, std::string_view name) {
  if (shape.architecture == Architecture::kGpt2) return name.ends_with("ln_2.weight");
  switch (shape.family.norms) {
    case LayerNorms::kAfter:
      return name.ends_with("mlp.gate_proj.weight");
    case LayerNorms::kAround:
      return name.ends_with("pre_feedforward_layernorm.weight");
    case LayerNorms::kBefore:
      break;
  }
  return name.ends_with("post_attention_layernorm.weight");
}

ModelNames model_names(const ModelShape& shape) {
  if (shape.architecture == Architecture::kGpt2) {
    return {"transformer.wte.weight", "transformer.h", "transformer.ln_f", "lm_head.weight"};
  }
  if (shape.family.interleaved_heads) {  // GPT-NeoX
    return {"gpt_neox.embed_in.weight", "gpt_neox.layers", "gpt_neox.final_layer_norm",
            "embed_out.weight"};
  }
  return {"model.embed_tokens.weight", "model.layers", "model.norm", "lm_head.weight"};
}

ModelLayout::ModelLayout(const ModelShape& shape, const ModelPart& part)
    : shape_(shape), part_(part) {
  if (shape.lora.rank > 0) {
    append_adapters();
    return;
  }
  const bool gpt2 = shape.architecture == Architecture::kGpt2;
  const ModelNames names = model_names(shape);
  const std::vector<std::int64_t> table = {shape.vocab, shape.d_model};
  if (part.embedding || (part.head && shape.tied)) {
    append(names.embedding, kNoLayer, table, TensorInit::kNormal);
  }
  if (part.embedding && gpt2) {
    append("transformer.wpe.weight", kNoLayer, {shape.positions, shape.d_model},
           TensorInit::kNormal);
  }
  first_in_layers_ = tensors_.size();
  const std::vector<LayerTensor> in_layer =
      gpt2 ? gpt2_layer_tensors(shape) : llama_layer_tensors(shape);
  tensors_per_layer_ = in_layer.size();
  upper_half_ =
      static_cast<std::size_t>(std::ranges::find_if(in_layer,
                                                    [&](const LayerTensor& tensor) {
                                                      return opens_upper_half(shape, tensor.name);
                                                    }) -
                               in_layer.begin());
  ISTHMUS_CHECK(upper_half_ < tensors_per_layer_, tensors_per_layer_);
  const auto first_layer = static_cast<int>(part.first_layer);
  for (int layer = first_layer; layer < first_layer + shape.layers; ++layer) {
    const std::string prefix = fmt::format("{}.{}.", names.layers, layer);
    for (const LayerTensor& tensor : in_layer) {
      append(prefix + tensor.name, layer, tensor.shape, tensor.init);
    }
  }
  first_after_layers_ = tensors_.size();
  if (!part.head) return;
  append(names.final_norm + ".weight", kNoLayer, {shape.d_model}, norm_init(shape));
  if (shape.layer_norm()) {
    append(names.final_norm + ".bias", kNoLayer, {shape.d_model}, TensorInit::kZero);
  }
  if (!shape.tied) append(names.head, kNoLayer, table, TensorInit::kNormal);
}

void ModelLayout::append_adapters() {
  ISTHMUS_CHECK(shape_.architecture == Architecture::kLlama);
  const LoraShape& lora = shape_.lora;
  const std::string layers = "base_model.model." + model_names(shape_).layers;
  const std::vector<LoraProduct> products = lora_products(shape_);
  for (int layer = 0; layer < shape_.layers; ++layer) {
    for (const LoraProduct& product : products) {
      if (!lora.targets[static_cast<std::size_t>(product.target)]) continue;
      if (layer == 0) {
        tensors_per_layer_ += 2;
        if (product.target < LoraTarget::kGate) upper_half_ += 2;
      }
      const std::string name = fmt::format("{}.{}.{}", layers, layer, product.name);
      append(name + ".lora_A.weight", layer, {lora.rank, product.in}, TensorInit::kUniform);
      append(name + ".lora_B.weight", layer, {product.out, lora.rank}, TensorInit::kZero);
    }
  }
  first_after_layers_ = tensors_.size();
}

std::size_t ModelLayout::first_tensor(std::int64_t layer) const {
  return first_in_layers_ + static_cast<std::size_t>(layer) * tensors_per_layer_;
}

CanonicalRange ModelLayout::layer_elements(std::int64_t layer) const {
  const std::size_t first = first_tensor(layer);
  return {tensors_[first].elements.begin, tensors_[first + tensors_per_layer_ - 1].elements.end};
}

std::size_t ModelLayout::positions() const {
  ISTHMUS_CHECK(shape_.architecture == Architecture::kGpt2);
  ISTHMUS_CHECK(part_.embedding);
  return 1;
}

std::size_t ModelLayout::final_norm_bias() const {
  ISTHMUS_CHECK(shape_.layer_norm());
  return first_after_layers_ + 1;
}

std::size_t ModelLayout::head() const { return shape_.tied ? 0 : tensors_.size() - 1; }

void ModelLayout::append(std::string name, int layer, std::vector<std::int64_t> shape,
                         TensorInit init) {
  std::int64_t size = 1;
  for (const std::int64_t extent : shape) size *= extent;
  const std::int64_t begin = tensors_.empty() ? 0 : tensors_.back().elements.end;
  tensors_.push_back({std::move(name), layer, std::move(shape), {begin, begin + size}, init});
}

std::vector<Parameter> layout_parameters(const ModelLayout& layout, std::span<float> values) {
  std::vector<Parameter> parameters;
  for (const TensorInfo& tensor : layout.tensors()) {
    parameters.push_back({.name = tensor.name,
                          .layer = tensor.layer,
                          .shape = tensor.shape,
                          .elements = tensor.elements,
                          .values = {},
                          .decay = tensor.decay()});
    if (values.empty()) continue;
    parameters.back().values = values.subspan(static_cast<std::size_t>(tensor.elements.begin),
                                              static_cast<std::size_t>(tensor.elements.size()));
  }
  return parameters;
}

}  // namespace isthmus
