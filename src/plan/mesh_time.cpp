// SPDX-License-Identifier: Apache-2.0
#include "plan/mesh_time.h"

#include <algorithm>

#include "core/base/check.h"
#include "inner/mesh/pipeline_schedule_check.h"

namespace isthmus::plan {
namespace {

std::int64_t size_of(const MeshChoice& choice, MeshDimension dimension) {
  switch (dimension) {
    case MeshDimension::kTensor:
      return choice.tp;
    case MeshDimension::kPipeline:
      return choice.pp;
    case MeshDimension::kData:
      return choice.dp;
  }
  return 1;
}

/// Neighbours of a dimension's group are so many ranks apart.
std::int64_t stride_of(const MeshChoice& choice, const MeshOrder& order, MeshDimension dimension) {
  std::int64_t stride = 1;
  for (const MeshDimension inner : order) {
    if (inner == dimension) break;
    stride *= size_of(choice, inner);
  }
  return stride;
}

/// The innermost class that joins both.
std::size_t link_between(std::int64_t a, std::int64_t b, const std::vector<LinkClass>& links) {
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (links[i].ranks == 0 || a / links[i].ranks == b / links[i].ranks) return i;
  }
  return links.size() - 1;
}

/// What computing alone takes of a micro-batch in a stage.
StageTimes computing(const StageWork& work, const MeshMachine& machine) {
  const double in_attention =
      machine.attention_flops_per_s > 0 ? machine.attention_flops_per_s : machine.flops_per_s;
  const auto seconds = [&](double flops, double attention_flops) {
    return (flops - attention_flops) / machine.flops_per_s + attention_flops / in_attention;
  };
  const auto through = [&](double bytes) {
    return machine.memory_bytes_per_s > 0 ? bytes / machine.memory_bytes_per_s : 0;
  };
  const double forward = seconds(work.forward_flops, work.attention_flops);
  const double attention = work.attention_flops / in_attention;
  return {.forward = forward + through(work.forward_bytes),
          .backward_input = forward + attention +
                            seconds(work.again_flops, work.again_attention_flops) +
                            through(work.backward_bytes),
          .backward_weight = forward - attention};
}

/// The same of a rank's step.
double computing(const MeshChoice& choice, const RankCost& cost, const MeshMachine& machine) {
  double seconds = 0;
  for (const StageWork& work : cost.stages) {
    const StageTimes t = computing(work, machine);
    seconds += t.forward + t.backward_input + t.backward_weight;
  }
  return static_cast<double>(choice.micro_batches) * seconds;
}

std::vector<StageTimes> stage_times(const MeshChoice& choice, const std::vector<RankCost>& costs,
                                    const MeshMachine& machine, const LinkClass& tensor) {
  std::vector<StageTimes> times(static_cast<std::size_t>(choice.pp * choice.virtual_stages));
  for (const RankCost& cost : costs) {
    for (std::size_t chunk = 0; chunk < cost.stages.size(); ++chunk) {
      const StageWork& work = cost.stages[chunk];
      const std::size_t stage = chunk * static_cast<std::size_t>(choice.pp) +
                                static_cast<std::size_t>(cost.pipeline_rank);
      times[stage] = computing(work, machine);
      times[stage].forward += seconds_of(work.forward, tensor);
      times[stage].backward_input += seconds_of(work.backward, tensor);
      times[stage].backward_weight += seconds_of(work.weight, tensor);
    }
  }
  return times;
}

/// The passes as a rank runs them: the head's gradients come with its forward pass.
std::vector<StageTimes> played_times(std::vector<StageTimes> times, const MeshChoice& choice,
                                     const std::vector<RankCost>& costs,
                                     const MeshMachine& machine) {
  for (const RankCost& cost : costs) {
    for (std::size_t chunk = 0; chunk < cost.stages.size(); ++chunk) {
      StageTimes& t = times[chunk * static_cast<std::size_t>(choice.pp) +
                            static_cast<std::size_t>(cost.pipeline_rank)];
      const double head = cost.stages[chunk].head_flops / machine.flops_per_s;
      t.forward += 2 * head;
      t.backward_input -= head;
      t.backward_weight -= head;
    }
  }
  return times;
}

/// A played pipeline. The steady part of a long step repeats every p micro-batches, so it is
/// played for a few rounds only.
struct Played {
  double makespan = 0, busy = 0;
  int busiest = 0;
};

Played play(const MeshChoice& choice, std::int64_t micro_batches, const PipelineTiming& timing) {
  const PipelineSchedule schedule = make_pipeline_schedule(
      choice.schedule, choice.pp, static_cast<int>(micro_batches), choice.virtual_stages);
  const auto report = play_pipeline(schedule, timing);
  ISTHMUS_CHECK(report.has_value(), choice.pp, micro_batches);
  Played played{.makespan = report->makespan, .busy = 0, .busiest = 0};
  for (std::size_t rank = 0; rank < report->ranks.size(); ++rank) {
    if (report->ranks[rank].busy <= played.busy) continue;
    played.busy = report->ranks[rank].busy;
    played.busiest = static_cast<int>(rank);
  }
  return played;
}

Played play_long(const MeshChoice& choice, const PipelineTiming& timing) {
  constexpr std::int64_t kRounds = 6;
  const std::int64_t p = choice.pp, m = choice.micro_batches;
  const std::int64_t skipped = std::max<std::int64_t>(m / p - kRounds, 0);
  if (skipped == 0) return play(choice, m, timing);
  Played played = play(choice, m - skipped * p, timing);
  const Played before = play(choice, m - (skipped + 1) * p, timing);
  played.makespan += static_cast<double>(skipped) * (played.makespan - before.makespan);
  played.busy += static_cast<double>(skipped) * (played.busy - before.busy);
  return played;
}

/// What data-parallel communication adds to a step of one pipeline rank.
double exposed_data(const MeshChoice& choice, const RankCost& cost,
                    const std::vector<StageTimes>& times, const LinkClass& link) {
  if (choice.dp == 1) return 0;
  double forward = 0, backward = 0;  // of one micro-batch in all of the rank's chunks
  for (std::size_t chunk = 0; chunk < cost.stages.size(); ++chunk) {
    const StageTimes& t = times[chunk * static_cast<std::size_t>(choice.pp) +
                                static_cast<std::size_t>(cost.pipeline_rank)];
    forward += t.forward;
    backward += t.backward_input + t.backward_weight;
  }
  const auto sums = [&](Volume volume, double busiest_bytes) {
    volume.sent_bytes = busiest_bytes;
    return seconds_of(volume, link);
  };
  const double reduce = sums(cost.data.reduce, cost.data.busiest_bytes);
  const double last = sums(cost.data.last, cost.data.last_busiest);
  const double gather = seconds_of(cost.data.gather, link);
  const auto beyond = [](double time, double hidden_by) { return std::max(0.0, time - hidden_by); };
  const auto passes = static_cast<double>(choice.micro_batches);
  switch (choice.zero) {
    case 0:
    case 1:
      return std::max(beyond(reduce, backward), last) + gather;
    case 2:
      return passes * std::max(beyond(reduce, backward), last) + gather;
    default: {
      // What a pass finds in a buffer still is gathered by none: each gets its part of the step's.
      const double part = seconds_of(cost.data.gathered, link) / (2 * passes);
      return passes * (beyond(part, forward) + std::max(beyond(part + reduce, backward), last));
    }
  }
}

}  // namespace

double seconds_of(const Volume& volume, const LinkClass& link) {
  return static_cast<double>(volume.hops) * link.latency_s + volume.sent_bytes / link.bytes_per_s;
}

std::size_t slowest_link(const MeshChoice& choice, const MeshOrder& order, MeshDimension dimension,
                         const std::vector<LinkClass>& links) {
  ISTHMUS_CHECK(!links.empty(), choice.pp);
  const std::int64_t size = size_of(choice, dimension);
  const std::int64_t stride = stride_of(choice, order, dimension);
  const bool ring = dimension != MeshDimension::kPipeline || choice.virtual_stages > 1;
  std::size_t slowest = 0;
  for (std::int64_t rank = 0; rank < choice.ranks(); ++rank) {
    const std::int64_t at = rank / stride % size;
    if (at + 1 == size && !(ring && size > 1)) continue;
    const std::int64_t next = at + 1 < size ? rank + stride : rank - at * stride;
    slowest = std::max(slowest, link_between(rank, next, links));
  }
  return slowest;
}

MeshTime mesh_time(const MeshChoice& choice, const std::vector<RankCost>& costs,
                   const MeshMachine& machine, const MeshOrder& order) {
  ISTHMUS_CHECK(static_cast<int>(costs.size()) == choice.pp, costs.size(), choice.pp);
  MeshTime time;
  for (const MeshDimension dimension :
       {MeshDimension::kTensor, MeshDimension::kPipeline, MeshDimension::kData}) {
    time.links[static_cast<std::size_t>(dimension)] =
        slowest_link(choice, order, dimension, machine.links);
  }
  const auto link = [&](MeshDimension dimension) -> const LinkClass& {
    return machine.links[time.links[static_cast<std::size_t>(dimension)]];
  };
  const LinkClass& tensor = link(MeshDimension::kTensor);
  PipelineTiming timing;
  const std::vector<StageTimes> times = stage_times(choice, costs, machine, tensor);
  timing.stages = played_times(times, choice, costs, machine);
  const LinkClass& between = link(MeshDimension::kPipeline);
  timing.message =
      between.latency_s + static_cast<double>(costs.front().message_bytes) / between.bytes_per_s;
  const Played played = play_long(choice, timing);
  const RankCost& busiest = costs[static_cast<std::size_t>(played.busiest)];
  time.busiest = played.busiest;
  time.compute = choice.tp == 1 ? played.busy : computing(choice, busiest, machine);
  time.tensor = played.busy - time.compute;
  time.bubble = played.makespan - played.busy;
  time.bubble_share = played.makespan > 0 ? time.bubble / played.makespan : 0;
  for (const RankCost& cost : costs) {
    double exposed = exposed_data(choice, cost, times, link(MeshDimension::kData));
    exposed += seconds_of(cost.volumes.embeddings, between);
    time.data = std::max(time.data, exposed);
    if (machine.memory_bytes_per_s > 0) {
      time.update = std::max(time.update, cost.update_bytes / machine.memory_bytes_per_s);
    }
  }
  time.step = played.makespan + time.data + time.update;
  return time;
}

}  // namespace isthmus::plan
