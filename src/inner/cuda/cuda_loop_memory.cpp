// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/cuda_loop_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "core/base/units.h"
#include "inner/cuda/cuda_mesh_model.h"
#include "isthmus/errors.h"
#include "kernels/cuda/optimizer.h"

namespace isthmus {
namespace {
std::string text_of(std::int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

/// Settings that lower the need and are not used yet, the cheapest first.
std::string remedies(const LanguageModelOptions& options) {
  std::string text;
  if (options.attention == DeviceAttention::kCudnn) {
    text +=
        "set train.attention = \"own\" (cuDNN's workspace grows with the square of the context), ";
  }
  const bool keeps = !options.forward_only && options.recompute == Recompute::kNone;
  if (keeps) text += "set train.recompute = true, ";
  if (options.micro_batches < options.sequences) {
    text += fmt::format("make parallel.micro_batches larger ({} of at most {}), ",
                        options.micro_batches, options.sequences);
  }
  if (options.mesh.pp > 1 && options.schedule == PipelineKind::kGpipe) {
    text += "set parallel.schedule = \"1f1b\", ";
  }
  if (options.mesh.tp * options.mesh.pp > 1) text += "make parallel.tp or pp larger, ";
  if (!options.bf16) text += "set train.precision = \"bf16\" for smaller activations, ";
  return text + "make train.context or the model smaller, or train with --device cpu";
}

void check_ranks(const LanguageModelOptions& options) {
  const auto refuse = [](const std::string& setting, const char* why) {
    throw ConfigError(fmt::format("{}: {}, or train with --device cpu", setting, why));
  };
  const MeshShape& mesh = options.mesh;
  if (options.forward_only) {
    refuse(fmt::format("a mesh of {} x {} x {} ranks", mesh.tp, mesh.pp, mesh.dp),
           "a device takes all forward passes of a worker that has no backward passes; leave it "
           "out");
  }
  if (mesh.sequence_parallel && mesh.tp > 1) {
    refuse("parallel.sequence_parallel = true",
           "ranks on devices have all tokens of their layers; leave it out");
  }
  if (mesh.tp * mesh.pp > 1 && options.inner.optimizer == "muon") {
    refuse(fmt::format("inner.optimizer = \"muon\" with a mesh of {} x {} x {} ranks", mesh.tp,
                       mesh.pp, mesh.dp),
           "devices that share the layers have moments of all values alike; leave tp and pp at 1");
  }
  if (mesh.pp == 1 && mesh.tp > 1 && options.virtual_stages > 1) {
    refuse(fmt::format("parallel.virtual_stages = {} with pp = 1", options.virtual_stages),
           "stages of one rank send one another nothing; set it to 1");
  }
  if (mesh.tp * mesh.pp > 1 && options.schedule == PipelineKind::kZbH1) {
    refuse("parallel.schedule = \"zb-h1\"",
           "a device computes gradients of inputs and weights together; choose 1f1b");
  }
  if (options.zero > 0 && mesh.dp > 1) {
    refuse(fmt::format("parallel.zero = {}", options.zero),
           "ranks on devices share nothing out but layers and samples; set it to 0");
  }
  const CodecByDimension& codecs = options.rank_codecs;
  const std::tuple<const char*, const std::string&, int> all[] = {
      {"codec_data", codecs.data, mesh.dp},
      {"codec_tensor", codecs.tensor, mesh.tp},
      {"codec_pipeline", codecs.pipeline, mesh.pp}};
  for (const auto& [key, codec, ranks] : all) {
    if (codec == "fp32" || ranks == 1) continue;
    refuse(fmt::format("parallel.{} = \"{}\"", key, codec),
           "between devices values go as they are; set it to \"fp32\"");
  }
  if (options.processes != nullptr) {
    refuse("ranks that are processes", "those on devices are threads of one; leave mpirun out");
  }
}
}  // namespace

void check_cuda_options(const LanguageModelOptions& options) {
  if (options.mesh.ranks() > 1) check_ranks(options);
  if (options.recompute == Recompute::kSelective && !options.forward_only) {
    throw ConfigError(
        "train.recompute = \"selective\": a device's layers keep all of their activations, or "
        "none; "
        "set it to \"full\" or \"none\", or train with --device cpu");
  }
}

LanguageModelOptions cuda_rank_options(const LanguageModelOptions& options) {
  LanguageModelOptions rank = options;
  const int ranks = options.mesh.dp;
  rank.mesh = {};
  rank.sequences /= ranks;
  if (ranks > 1) {
    rank.threads = std::max(1, options.threads / ranks);
    rank.cores.clear();
  }
  return rank;
}

CudaModelOptions cuda_model_options(const LanguageModelOptions& options,
                                    const CudaLoopSettings& settings) {
  using Purpose = CudaModelOptions::Purpose;
  return {.sequences = options.sequences / options.micro_batches,
          .length = options.context,
          .purpose = options.forward_only                    ? Purpose::kInference
                     : options.recompute == Recompute::kFull ? Purpose::kRecompute
                                                             : Purpose::kTraining,
          .bf16 = options.bf16,
          .attention = options.attention,
          .logits_bytes = settings.logits_bytes};
}

CudaBatches::Shape cuda_batches_shape(const ModelLayout& layout,
                                      const LanguageModelOptions& options) {
  return {.sequences = options.sequences,
          .micro_batches = options.micro_batches,
          .context = options.context,
          .vocab = layout.shape().vocab,
          .last_step = options.total_steps};
}

MemoryEstimate cuda_loop_memory(const ModelLayout& layout, const LanguageModelOptions& whole,
                                const CudaLoopSettings& settings, int of_rank) {
  check_cuda_options(whole);
  if (whole.mesh.tp * whole.mesh.pp > 1) {
    return CudaMeshRank::memory(layout, cuda_mesh_rank_options(whole, settings), of_rank);
  }
  const LanguageModelOptions options = cuda_rank_options(whole);
  constexpr auto kMaster = static_cast<std::int64_t>(sizeof(float));
  constexpr auto kRounded = static_cast<std::int64_t>(sizeof(kernels::Bf16));
  const CudaModel::Bytes model = CudaModel::bytes(layout, cuda_model_options(options, settings));
  MemoryEstimate memory;
  const std::int64_t in_array = CudaModel::array_elements(layout);
  memory.parameters = in_array * (kMaster + (options.bf16 ? kRounded : 0));
  memory.update = CudaBatches::device_bytes(cuda_batches_shape(layout, options)) +
                  static_cast<std::int64_t>(sizeof(CudaStepTotals));
  memory.gradients = in_array * kMaster;  // forward only: values of a source
  if (!options.forward_only) {
    memory.moments = CudaOptimizer::moment_bytes(options.inner, layout);
    memory.update +=
        CudaOptimizer::other_bytes(options.inner, layout) +
        static_cast<std::int64_t>(sizeof(double) * cuda::squared_norm_scratch(layout.elements()));
  }
  memory.activations = model.activations;
  memory.logits = model.logits;
  return memory;
}

bool attention_is_cudnn(const ModelLayout& layout, const LanguageModelOptions& whole) {
  if (whole.mesh.tp * whole.mesh.pp > 1) return whole.attention == DeviceAttention::kCudnn;
  return CudaModel::bytes(layout, cuda_model_options(cuda_rank_options(whole), {})).cudnn;
}

std::string cuda_memory_error(const LanguageModelOptions& options, const CudaLoopSettings& settings,
                              const std::string& cause, int rank) {
  const ModelLayout layout(model_shape(options.model, options.context));
  MemoryEstimate memory;
  try {
    memory = cuda_loop_memory(layout, options, settings, rank);
  } catch (const Error&) {  // cuDNN itself wants memory to say how much it needs
    return fmt::format("the device's memory does not suffice: {} ({})", remedies(options), cause);
  }
  const cuda::DeviceMemory device = cuda::device_memory();
  return fmt::format(
      "model of {} parameters: the device's memory does not suffice: a worker needs {} (weights "
      "{}, gradients {}, optimizer {}, activations {}, logits {}, batches, sums and scratch {}), "
      "{} of {} are free: {} ({})",
      layout.elements(), text_of(memory.total()), text_of(memory.parameters),
      text_of(memory.gradients), text_of(memory.moments), text_of(memory.activations),
      text_of(memory.logits), text_of(memory.update),
      human_bytes(static_cast<double>(device.free_bytes)),
      human_bytes(static_cast<double>(device.total_bytes)), remedies(options), cause);
}

std::string cuda_step_memory_error(const LanguageModelOptions& options, const std::string& cause) {
  return fmt::format(
      "the device's memory does not suffice in the middle of a run: {}; end these or {}; the same "
      "command with --resume auto goes on from the newest checkpoint",
      cause, remedies(options));
}

}  // namespace isthmus
