// SPDX-License-Identifier: Apache-2.0
#include "plan/mesh_traffic.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "inner/mesh/gradient_buckets.h"
#include "inner/model/local_values.h"
#include "isthmus/codec.h"

namespace isthmus::plan {
namespace {

constexpr std::int64_t kDoubleBytes = 8;
constexpr std::int64_t kIndexBytes = 4;     // of a row
constexpr std::int64_t kSoftmaxBytes = 24;  // top, sum and target's logit of a token, as doubles

std::int64_t stream_values(const MeshWorkload& workload, const MeshChoice& choice) {
  return micro_batch_rows(workload, choice) * workload.shape.d_model;
}

/// The pair of conjugate operations at the ends of attention or feed-forward: an all-reduce, or
/// with a split sequence a gather and a reduce-scatter of the same array.
Volume conjugate(const MeshChoice& choice, std::int64_t gathered, std::int64_t reduced,
                 std::int64_t count) {
  if (!choice.sequence_parallel) return all_reduce(choice.tp, reduced, count);
  Volume both = half_all_reduce(choice.tp, gathered, count);
  both += half_all_reduce(choice.tp, reduced, count);
  return both;
}

/// A forward pass of `layers`: inputs are gathered as what products read, outputs added as the
/// stream.
Volume layers_forward(const MeshWorkload& workload, const MeshChoice& choice, std::int64_t layers) {
  const std::int64_t values = stream_values(workload, choice);
  return conjugate(choice, values * wide_bytes(choice), values * kFloatBytes, 2 * layers);
}

/// A stage's values in the order in which their gradients become final, and with those of them
/// last whose pass ends the backward pass.
struct StageBuckets {
  std::vector<CanonicalRange> ranges;
  std::int64_t values = 0;
  std::int64_t ends = 0;  // values below are final last
};

/// `others`: values of a table whose gradient another stage has.
StageBuckets buckets_of(const MeshChoice& choice, const StageShare& stage, std::int64_t others) {
  StageBuckets all;
  std::vector<CanonicalRange> parts;  // before the layers, each layer, after
  int layer = 0;
  for (const TensorShare& tensor : stage.tensors) {
    if (parts.empty() || tensor.tensor->layer != layer) parts.push_back({all.values, all.values});
    layer = tensor.tensor->layer;
    parts.back().end = all.values += tensor.elements;
  }
  // A table that is its head too waits for the pass to end, and so does the sum of its first layer.
  const bool waits = stage.last && !stage.first && parts.size() > 1 &&
                     stage.tensors.front().tensor->layer == kNoLayer;
  all.ends = parts[waits ? 1 : 0].end;
  if (choice.zero >= 2) {
    for (std::size_t part = parts.size(); part-- > 0;) {
      const CanonicalRange summed = common(parts[part], {others, all.values});
      if (summed.size() > 0) all.ranges.push_back(summed);
    }
    return all;
  }
  const GradientBuckets buckets(all.values,
                                {.ranks = choice.dp, .slices = choice.zero == 1, .begin = others});
  for (std::size_t b = 0; b < buckets.size(); ++b) all.ranges.push_back(buckets[b]);
  return all;
}

/// Most that one rank is left with of a bucket.
std::int64_t largest_share(const MeshChoice& choice, std::int64_t values, CanonicalRange bucket) {
  if (choice.zero == 0) return (bucket.size() + choice.dp - 1) / choice.dp;
  std::int64_t most = 0;
  for (int rank = 0; rank < choice.dp; ++rank) {
    most = std::max(most, common(slice_of(values, choice.dp, rank), bucket).size());
  }
  return most;
}

}  // namespace

Volume scaled(Volume one, std::int64_t count) {
  one.operations *= count;
  one.payload_bytes *= count;
  one.sent_bytes *= static_cast<double>(count);
  one.hops *= count;
  return one;
}

Volume all_reduce(std::int64_t n, std::int64_t bytes, std::int64_t count) {
  if (n == 1) return {};
  Volume volume = half_all_reduce(n, bytes, count);
  volume.sent_bytes *= 2;
  volume.hops *= 2;
  return volume;
}

Volume half_all_reduce(std::int64_t n, std::int64_t bytes, std::int64_t count) {
  if (n == 1) return {};
  Volume volume;
  volume.operations = 1;
  volume.payload_bytes = bytes;
  volume.sent_bytes =
      static_cast<double>(bytes) * static_cast<double>(n - 1) / static_cast<double>(n);
  volume.hops = n - 1;
  return scaled(volume, count);
}

Volume tensor_forward(const MeshWorkload& workload, const MeshChoice& choice,
                      const StageShare& stage) {
  const std::int64_t stream = stream_values(workload, choice) * kFloatBytes;
  Volume volume = layers_forward(workload, choice, stage.layers.size());
  if (stage.first) {
    volume += choice.sequence_parallel ? half_all_reduce(choice.tp, stream)
                                       : all_reduce(choice.tp, stream);
  }
  if (stage.last) {
    if (choice.sequence_parallel) volume += half_all_reduce(choice.tp, stream);
    const std::int64_t rows = micro_batch_rows(workload, choice);
    volume += half_all_reduce(choice.tp, choice.tp * rows * kSoftmaxBytes);
  }
  return volume;
}

Volume tensor_backward(const MeshWorkload& workload, const MeshChoice& choice,
                       const StageShare& stage) {
  const std::int64_t values = stream_values(workload, choice);
  const std::int64_t stream = values * kFloatBytes;
  const std::int64_t wide = values * wide_bytes(choice);
  const std::int64_t pairs = 2 * stage.layers.size();
  Volume volume = conjugate(choice, stream, wide, pairs);
  // What products read is gathered again for the weights' gradients, not kept.
  if (choice.sequence_parallel && choice.schedule != PipelineKind::kZbH1) {
    volume += half_all_reduce(choice.tp, wide, pairs);
  }
  // What the stage's last layer has kept is still there.
  if (choice.recompute == Recompute::kFull)
    volume += layers_forward(workload, choice, stage.layers.size() - 1);
  if (stage.last) {
    volume += choice.sequence_parallel ? half_all_reduce(choice.tp, stream)
                                       : all_reduce(choice.tp, stream);
  }
  if (stage.first && choice.sequence_parallel) volume += half_all_reduce(choice.tp, stream);
  return volume;
}

Volume tensor_weight(const MeshWorkload& workload, const MeshChoice& choice,
                     const StageShare& stage) {
  Volume volume;
  if (!choice.sequence_parallel || choice.schedule != PipelineKind::kZbH1) return volume;
  // Inputs of the products that open a pair, and gradients of those that close it.
  const std::int64_t values = stream_values(workload, choice);
  const std::int64_t pairs = 2 * stage.layers.size();
  volume += half_all_reduce(choice.tp, values * wide_bytes(choice), pairs);
  volume += half_all_reduce(choice.tp, values * kFloatBytes, pairs);
  return volume;
}

std::int64_t message_bytes(const MeshWorkload& workload, const MeshChoice& choice) {
  const std::int64_t bytes = stream_values(workload, choice) * kFloatBytes;
  return choice.sequence_parallel ? bytes / choice.tp : bytes;
}

namespace {

/// Values of the parts in which gradients and weights come and go (inner/mesh/parameter_buckets.h).
struct Parts {
  std::int64_t before = 0, layer = 0, after = 0;
  std::int64_t layers = 0;
};

Parts parts_of(const StageShare& stage) {
  Parts parts;
  parts.layers = stage.layers.size();
  std::int64_t in_layers = 0;
  for (const TensorShare& tensor : stage.tensors) {
    if (tensor.tensor->layer != kNoLayer)
      in_layers += tensor.elements;
    else
      (in_layers == 0 ? parts.before : parts.after) += tensor.elements;
  }
  parts.layer = in_layers / std::max<std::int64_t>(parts.layers, 1);
  return parts;
}

/// Of a pass that goes through `layers` layers, `outside` with what lies before and after them.
Volume of_parts(std::int64_t n, const Parts& parts, std::int64_t layers, bool outside) {
  Volume volume = half_all_reduce(n, parts.layer * kFloatBytes, layers);
  if (!outside) return volume;
  for (const std::int64_t part : {parts.before, parts.after}) {
    if (part > 0) volume += half_all_reduce(n, part * kFloatBytes);
  }
  return volume;
}

/// Layers that passes of a chunk gather one after another, of so many micro-batches: what lies in
/// one of two buffers still, by turns theirs, is not gathered again.
std::int64_t layers_gathered(const MeshChoice& choice, std::int64_t micro_batches,
                             int pipeline_rank, int chunk, std::int64_t layers) {
  const PipelineSchedule schedule = make_pipeline_schedule(
      choice.schedule, choice.pp, static_cast<int>(micro_batches), choice.virtual_stages);
  std::array<std::int64_t, 2> held = {-1, -1};
  std::int64_t gathered = 0;
  for (const PipelineOp& op : schedule.operations[static_cast<std::size_t>(pipeline_rank)]) {
    if (op.chunk != chunk || !is_compute(op.kind)) continue;
    for (std::int64_t i = 0; i < layers; ++i) {
      const std::int64_t layer = op.kind == PipelineOpKind::kForward ? i : layers - 1 - i;
      if (std::exchange(held[static_cast<std::size_t>(layer % 2)], layer) != layer) ++gathered;
    }
  }
  return gathered;
}

/// Weights that ZeRO 3 gathers in a step. What is before and after the layers shares a buffer,
/// unless the table is tied; a stage that has but one of them gathers it once.
Volume gathered_in_step(const MeshWorkload& workload, const MeshChoice& choice, const Parts& parts,
                        int pipeline_rank, int chunk) {
  if (choice.dp == 1) return {};
  const auto layers = [&](std::int64_t micro_batches) {
    return layers_gathered(choice, micro_batches, pipeline_rank, chunk, parts.layers);
  };
  // Rounds in the middle are alike.
  constexpr std::int64_t kRounds = 6;
  const std::int64_t skipped =
      std::max<std::int64_t>(choice.micro_batches / choice.pp - kRounds, 0);
  const std::int64_t played = choice.micro_batches - skipped * choice.pp;
  std::int64_t count = layers(played);
  if (skipped > 0) count += skipped * (count - layers(played - choice.pp));
  Volume volume = of_parts(choice.dp, parts, count, true);
  if (parts.before > 0 && parts.after > 0 && !workload.shape.tied) {
    volume += scaled(of_parts(choice.dp, parts, 0, true), choice.micro_batches - 1);
  }
  return volume;
}

/// What the ranks give one another after an update: the `values` of their slices, or codes of what
/// it has changed in them; a table that the last stage updates is given by that one.
Volume given_after_update(const MeshChoice& choice, std::int64_t values, std::int64_t others) {
  if (choice.codec_state == "fp32") return half_all_reduce(choice.dp, values * kFloatBytes);
  const std::unique_ptr<const Codec> codec = make_codec(choice.codec_state);
  std::int64_t bytes = 0;
  for (int rank = 0; rank < choice.dp; ++rank) {
    const CanonicalRange own = common(slice_of(values, choice.dp, rank), {others, values});
    bytes += static_cast<std::int64_t>(encoded_bytes(*codec, static_cast<std::size_t>(own.size())));
  }
  return half_all_reduce(choice.dp, bytes);
}

/// Sums over tensor-parallel ranks of gradients of which each has a summand: as doubles all at
/// once, or where data-parallel ranks wait for them those of half a layer; of a layer after each
/// micro-batch where gradients are not held whole.
Volume partial_sums(const ModelShape& shape, const MeshChoice& choice, const StageShare& stage) {
  Volume volume;
  std::int64_t partial = 0;
  const auto end = [&] {
    if (partial > 0) volume += all_reduce(choice.tp, partial * kDoubleBytes);
    partial = 0;
  };
  const bool by_layer = choice.dp > 1;
  for (std::size_t i = 0; i < stage.tensors.size(); ++i) {
    const TensorShare& tensor = stage.tensors[i];
    const bool new_layer = i > 0 && tensor.tensor->layer != stage.tensors[i - 1].tensor->layer;
    const bool new_half = choice.zero < 2 && opens_upper_half(shape, tensor.tensor->name);
    if (by_layer && (new_layer || new_half)) end();
    if (tensor.partial) partial += tensor.elements;
    volume += all_reduce(tensor.copies, tensor.elements * kFloatBytes);
  }
  end();
  return scaled(volume, by_layer && choice.zero >= 2 ? choice.micro_batches : 1);
}

Volume message_of(std::int64_t bytes) {
  Volume message;
  message.operations = message.hops = 1;
  message.payload_bytes = bytes;
  message.sent_bytes = static_cast<double>(bytes);
  return message;
}

/// The first stage sends the rows of a tied table's gradient that a step can touch, and which they
/// are, whatever the tokens. The last one, which updates the table, sends its weights back; where
/// passes gather them (ZeRO 3) its first rank those of its slice, to the ranks whose slices they
/// are.
Volume table_messages(const ModelLayout& layout, const MeshWorkload& workload,
                      const MeshChoice& choice, const MeshShare& share) {
  if (share.stages.front().first) {
    const EmbeddingRowsSize rows = embedding_rows_of(workload, choice);
    Volume volume = message_of(rows.most() * kIndexBytes);
    volume += message_of(rows.most() * rows.channels * kFloatBytes);
    return volume;
  }
  Volume volume;
  if (choice.zero == 0 || choice.dp == 1) return volume;
  if (choice.zero < 3) return message_of(share.tied_copy * kFloatBytes);
  const std::int64_t last = elements_of(share.stages.back());
  const std::int64_t first = elements_of(mesh_share(layout, choice, 0).stages.front());
  const CanonicalRange own = common(slice_of(last, choice.dp, 0), {0, share.tied_copy});
  for (int rank = 0; rank < choice.dp; ++rank) {
    const std::int64_t both = common(slice_of(first, choice.dp, rank), own).size();
    if (both > 0) volume += message_of(both * kFloatBytes);
  }
  return volume;
}

}  // namespace

DataVolumes data_volumes(const MeshWorkload& workload, const MeshChoice& choice,
                         const MeshShare& share, int pipeline_rank) {
  DataVolumes volumes;
  for (std::size_t chunk = 0; chunk < share.stages.size(); ++chunk) {
    const StageShare& stage = share.stages[chunk];
    const std::int64_t others = stage.first && !stage.last ? share.tied_copy : 0;
    const StageBuckets all = buckets_of(choice, stage, others);
    for (const CanonicalRange& bucket : all.ranges) {
      const Volume sum = half_all_reduce(choice.dp, bucket.size() * kFloatBytes);
      const double busiest = static_cast<double>((choice.dp - 1) * kFloatBytes *
                                                 largest_share(choice, all.values, bucket));
      volumes.reduce += sum;
      volumes.busiest_bytes += busiest;
      // Of later chunks it hides behind the passes of earlier ones, unless each pass waits for its
      // own.
      if (bucket.begin >= all.ends || (chunk > 0 && choice.zero < 2)) continue;
      volumes.last += sum;
      volumes.last_busiest += busiest;
    }
    const Volume whole = half_all_reduce(choice.dp, all.values * kFloatBytes);
    if (choice.zero == 0) {
      volumes.gather += whole;
      volumes.gathered += whole;
    } else if (choice.zero == 3) {
      const Parts parts = parts_of(stage);
      volumes.gather += of_parts(choice.dp, parts, parts.layers, true);
      volumes.gathered +=
          gathered_in_step(workload, choice, parts, pipeline_rank, static_cast<int>(chunk));
    } else {
      const Volume given = given_after_update(choice, all.values, others);
      volumes.gather += given;
      volumes.gathered += given;
    }
  }
  if (choice.zero >= 2) volumes.reduces = choice.micro_batches;
  return volumes;
}

void add_step_volumes(const ModelLayout& layout, const MeshWorkload& workload,
                      const MeshChoice& choice, const MeshShare& share, RankVolumes& volumes) {
  const Volume message = message_of(message_bytes(workload, choice));
  for (const StageShare& stage : share.stages) {
    const std::int64_t sides = choice.pp == 1 ? 0 : (stage.first ? 0 : 1) + (stage.last ? 0 : 1);
    volumes.pipeline += scaled(message, sides * choice.micro_batches);
    volumes.tensor += partial_sums(workload.shape, choice, stage);
  }
  if (choice.pp > 1 && share.tied_copy > 0) {
    volumes.embeddings += table_messages(layout, workload, choice, share);
  }
}

}  // namespace isthmus::plan
