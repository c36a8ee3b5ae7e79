// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/cuda_chunk.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "kernels/cuda/activation.h"

namespace isthmus {
namespace {

CudaModelOptions model_options(CudaModelOptions model, const RankLayout& layout, CudaGroup* tensor,
                               int tensor_ranks) {
  model.tensor = tensor;
  model.tensor_ranks = tensor_ranks;
  model.vocabulary = layout.vocabulary();
  return model;
}

/// Of a tied table that lies in two stages.
CanonicalRange table_of(const RankLayout& layout) {
  const ModelLayout& local = layout.local();
  const ModelPart& part = local.part();
  if (!local.shape().tied || part.embedding == part.head) return {0, 0};
  return local.tensors()[part.embedding ? local.embedding() : local.head()].elements;
}

std::size_t in_array(const RankLayout& layout) {
  return static_cast<std::size_t>(CudaModel::array_elements(layout.local()));
}

/// The tensors that are updated here, each cut into parts, of which squares are summed.
std::vector<cuda::ParameterRun> squared_parts(const RankLayout& layout, std::size_t tensor) {
  const CanonicalRange elements = layout.local().tensors()[tensor].elements;
  if (elements == layout.tied_embedding()) return {};
  const cuda::ParameterRun run{.begin = elements.begin, .n = elements.size()};
  return cuda::parts_of({&run, 1});
}

std::size_t count_of_parts(const RankLayout& layout) {
  std::size_t parts = 0;
  for (std::size_t t = 0; t < layout.local().tensors().size(); ++t) {
    parts += squared_parts(layout, t).size();
  }
  return parts;
}

/// Values of a table whose embedding's gradient another stage adds.
std::size_t added_values(const RankLayout& layout) {
  const bool adds = layout.local().part().head;
  return adds ? static_cast<std::size_t>(table_of(layout).size()) : 0;
}

}  // namespace

// All memory first, so that none is given back while work on it is queued.
CudaChunk::CudaChunk(RankLayout layout, const CudaChunkOptions& options, CudaGroup* tensor,
                     cuda::Blas& blas, cuda::Stream& stream)
    : layout_(std::move(layout)),
      stream_(stream),
      blas_(blas),
      table_(table_of(layout_)),
      mirror_(elements()),
      values_(in_array(layout_)),
      gradients_(in_array(layout_)),
      added_(added_values(layout_)),
      working_(options.model.bf16 ? in_array(layout_) : 0),
      optimizer_(options.inner, layout_.local(), stream),
      no_clip_(1),
      parts_(count_of_parts(layout_)),
      part_squares_(parts_.size()),
      host_part_squares_(parts_.size()),
      slots_(options.slots) {
  CudaModelOptions model =
      model_options(options.model, layout_, tensor, tensor != nullptr ? tensor->size() : 1);
  head_ = cuda::DeviceArray<std::byte>(
      static_cast<std::size_t>(CudaModel::bytes(layout_.local(), model).logits));
  model.head = head_.data();
  for (Slot& slot : slots_) slot.model = make_cuda_model(layout_.local(), model, blas);

  std::vector<cuda::ParameterRun> parts;
  for (std::size_t t = 0; t < layout_.local().tensors().size(); ++t) {
    const std::vector<cuda::ParameterRun> of_tensor = squared_parts(layout_, t);
    parts.insert(parts.end(), of_tensor.begin(), of_tensor.end());
    part_of_.resize(parts.size(), {layout_.canonical_tensor(t), layout_.answers_for(t)});
  }
  cuda::copy(stream, parts_.data(), parts.data(), parts.size());
  cuda::fill_zero(stream, values_.data(), values_.size());  // the values behind the layout too
  cuda::fill_zero(stream, gradients_.data(), gradients_.size());
  cuda::fill_zero(stream, working_.data(), working_.size());
  cuda::fill_zero(stream, no_clip_.data(), 1);
  stream.synchronize();  // `parts` ends here
}

MemoryEstimate CudaChunk::memory(const RankLayout& layout, const CudaChunkOptions& options,
                                 int tensor_ranks) {
  constexpr auto kMaster = static_cast<std::int64_t>(sizeof(float));
  constexpr auto kRounded = static_cast<std::int64_t>(sizeof(kernels::Bf16));
  const auto values = static_cast<std::int64_t>(in_array(layout));
  const CudaModel::Bytes model =
      CudaModel::bytes(layout.local(), model_options(options.model, layout, nullptr, tensor_ranks));
  MemoryEstimate memory;
  memory.parameters = values * (kMaster + (options.model.bf16 ? kRounded : 0));
  memory.gradients = (values + static_cast<std::int64_t>(added_values(layout))) * kMaster;
  memory.moments = CudaOptimizer::moment_bytes(options.inner, layout.local());
  memory.update =
      CudaOptimizer::other_bytes(options.inner, layout.local()) +
      static_cast<std::int64_t>(sizeof(double) + count_of_parts(layout) *
                                                     (sizeof(cuda::ParameterRun) + sizeof(double)));
  memory.activations = static_cast<std::int64_t>(options.slots) * model.activations;
  memory.logits = model.logits;
  return memory;
}

CudaChunk::Slot& CudaChunk::slot_of(int micro_batch) {
  for (Slot& slot : slots_) {
    if (slot.micro_batch == micro_batch) return slot;
  }
  for (Slot& slot : slots_) {
    if (slot.micro_batch != -1) continue;
    slot.micro_batch = micro_batch;
    return slot;
  }
  ISTHMUS_CHECK(false, micro_batch, slots_.size());
  return slots_.front();
}

void CudaChunk::round(const float* masters, CanonicalRange range) {
  if (working_.empty() || range.size() == 0) return;
  cuda::convert<float, kernels::Bf16>(stream_, range.size(), masters + range.begin,
                                      working_.data() + range.begin);
}

CudaValues CudaChunk::values() {
  const CanonicalRange all{0, layout_.local().elements()};
  const float* const masters = others_ ? gradients_.data() : values_.data();
  if (!others_ && !working_is_own_) {
    round(masters, all);
    working_is_own_ = true;
  }
  if (working_.empty()) return {masters, masters};
  return {masters, static_cast<const kernels::Bf16*>(working_.data())};
}

void CudaChunk::use(const float* canonical) {
  const CanonicalRange all{0, layout_.local().elements()};
  layout_.take(canonical, all, mirror_.data());
  cuda::copy<float>(stream_, gradients_.data(), mirror_.data(), elements());
  round(gradients_.data(), all);
  stream_.synchronize();  // the mirror is for others
  others_ = true;
  working_is_own_ = false;
}

void CudaChunk::clear_gradients() {
  cuda::fill_zero(stream_, gradients_.data(), gradients_.size());
}

float* CudaChunk::on_device(RankValues what) const {
  switch (what) {
    case RankValues::kWeights:
      return values_.data();
    case RankValues::kGradients:
      return gradients_.data();
    case RankValues::kMoment1:
      return optimizer_.moment(0);
    case RankValues::kMoment2:
      return optimizer_.moment(1);
  }
  ISTHMUS_CHECK(false, static_cast<int>(what));
  return nullptr;
}

void CudaChunk::read_table(RankValues what) {
  cuda::copy<float>(stream_, host_table(), on_device(what) + table_.begin,
                    static_cast<std::size_t>(table_.size()));
  stream_.synchronize();
}

void CudaChunk::take_table() {
  cuda::copy<float>(stream_, values_.data() + table_.begin, host_table(),
                    static_cast<std::size_t>(table_.size()));
  if (working_is_own_) round(values_.data(), table_);
  stream_.synchronize();
}

void CudaChunk::add_table_gradients() {
  float* const sums = gradients_.data() + table_.begin;
  cuda::copy<float>(stream_, added_.data(), host_table(), added_.size());
  cuda::add<float>(stream_, table_.size(), sums, added_.data(), sums);
  stream_.synchronize();
}

std::vector<CanonicalRange> CudaChunk::places(TensorRange tensors, bool with_table) const {
  std::vector<CanonicalRange> ranges;
  const CanonicalRange tied = layout_.tied_embedding();
  if (with_table && tied.size() > 0 && tensors.begin <= layout_.canonical_tensor(0) &&
      layout_.canonical_tensor(0) < tensors.end) {
    ranges.push_back(tied);
  }
  const CanonicalRange others = layout_.places(tensors.begin, tensors.end);
  if (others.size() > 0) ranges.push_back(others);
  return ranges;
}

void CudaChunk::collect(RankValues what, TensorRange tensors, float* canonical) {
  const float* const from = on_device(what);
  ISTHMUS_CHECK(from != nullptr, static_cast<int>(what));
  for (const CanonicalRange& range : places(tensors, false)) {
    float* const to = mirror_.data() + range.begin;
    cuda::copy<float>(stream_, to, from + range.begin, static_cast<std::size_t>(range.size()));
    stream_.synchronize();
    layout_.give(to, range, canonical);
  }
}

void CudaChunk::hand_out(RankValues what, TensorRange tensors, const float* canonical) {
  float* const to = on_device(what);
  ISTHMUS_CHECK(to != nullptr, static_cast<int>(what));
  for (const CanonicalRange& range : places(tensors, what == RankValues::kWeights)) {
    float* const from = mirror_.data() + range.begin;
    layout_.take(canonical, range, from);
    cuda::copy<float>(stream_, to + range.begin, from, static_cast<std::size_t>(range.size()));
    if (what == RankValues::kWeights && working_is_own_) round(to, range);
    stream_.synchronize();
  }
}

void CudaChunk::write_squares(TensorSquares& squares) {
  const auto parts = static_cast<std::int64_t>(parts_.size());
  cuda::part_squares(stream_, {parts_.data(), parts}, gradients_.data(), part_squares_.data());
  cuda::copy<double>(stream_, host_part_squares_.data(), part_squares_.data(), parts_.size());
  stream_.synchronize();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto& [tensor, answers] = part_of_[i];
    double& sum = (answers ? squares.own : squares.copies)[tensor];
    sum = (sum < 0 ? 0 : sum) + host_part_squares_.data()[i];
  }
}

void CudaChunk::update(double lr, double gradient_scale) {
  static_cast<void>(values());  // the optimizer writes the rounded ones along
  optimizer_.prepare(stream_, lr, gradient_scale);
  optimizer_.queue(stream_, blas_, values_.data(), gradients_.data(), working_.data(),
                   no_clip_.data());
  stream_.synchronize();  // then the next update's numbers may be written
  optimizer_.count();
}

std::size_t CudaChunk::pinned_bytes() const { return mirror_.bytes() + host_part_squares_.bytes(); }

}  // namespace isthmus
