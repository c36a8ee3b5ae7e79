// SPDX-License-Identifier: Apache-2.0
// `plan mesh`: which tensor x pipeline x data mesh trains a model fastest, and why.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "app/commands/plan/command_plan.h"
#include "app/commands/plan/plan_mesh_request.h"
#include "app/common/text_table.h"
#include "config/schema/recompute.h"
#include "core/base/units.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {
using plan::MeshCandidate;
using plan::MeshChoice;
using plan::MeshDimension;
using plan::MeshOrder;
using plan::MeshRanking;

std::string_view recomputes(Recompute recompute) {
  constexpr std::array<std::string_view, 3> kTexts = {"", "; recomputes what is elementwise",
                                                      "; recomputes"};
  return kTexts[static_cast<std::size_t>(recompute)];
}

std::string schedule_text(const MeshChoice& c) {
  if (c.pp == 1) return "none";
  return c.virtual_stages > 1 ? fmt::format("1f1b x{}", c.virtual_stages)
                              : std::string(pipeline_name(c.schedule));
}

/// Steps of a second or more with two digits behind the point, so that rows can be told apart.
std::string step_text(double seconds) {
  constexpr double kMinute = 60;
  return seconds >= 1 && seconds < kMinute ? fmt::format("{:.2f} s", seconds) : human_time(seconds);
}

/// "8.03B", with the letter of parameters.
std::string values_text(std::int64_t values) {
  std::string text = human_count(static_cast<double>(values));
  std::replace(text.begin(), text.end(), 'G', 'B');
  return text;
}

double tokens_of(const PlanMeshRequest& q) {
  return static_cast<double>(q.workload.sequences * q.workload.context);
}

/// Step times of the best mesh with its dimensions in all orders, innermost first.
std::vector<std::pair<std::string, double>> all_orders(const PlanMeshRequest& q,
                                                       const MeshCandidate& best) {
  const auto costs = plan::rank_costs(ModelLayout(q.workload.shape), q.workload, best.choice);
  MeshOrder order = {MeshDimension::kTensor, MeshDimension::kPipeline, MeshDimension::kData};
  std::vector<std::pair<std::string, double>> times;
  do {
    const double step = plan::mesh_time(best.choice, costs, q.machine, order).step;
    times.emplace_back(plan::order_text(order), step);
  } while (std::next_permutation(order.begin(), order.end()));
  return times;
}

/// Ranks of the mesh by node, where it is placed best.
std::vector<std::vector<std::int64_t>> ranks_of_nodes(const PlanMeshRequest& q,
                                                      const MeshCandidate& best) {
  const std::vector<std::int64_t> ranks = plan::ranks_by_slot(best.choice, best.order);
  const auto of_node = static_cast<std::ptrdiff_t>(q.search.ranks / q.nodes);
  std::vector<std::vector<std::int64_t>> nodes;
  for (auto slot = ranks.begin(); slot != ranks.end(); slot += of_node) {
    nodes.emplace_back(slot, slot + of_node);
  }
  return nodes;
}

JsonLine memory_json(const plan::RankMemory& m) {
  return JsonLine()
      .add("parameters", m.parameters)
      .add("gradients", m.gradients)
      .add("moments", m.moments)
      .add("update", m.update)
      .add("activations", m.activations)
      .add("logits", m.logits)
      .add("buffers", m.buffers)
      .add("outer", m.outer)
      .add("total", m.total());
}

JsonLine volume_json(const plan::Volume& v) {
  return JsonLine()
      .add("operations", v.operations)
      .add("payload_bytes", v.payload_bytes)
      .add("sent_bytes", v.sent_bytes);
}

std::string candidate_json(const PlanMeshRequest& q, const MeshCandidate& candidate) {
  const MeshChoice& c = candidate.choice;
  const plan::MeshTime& t = candidate.time;
  const plan::RankCost cost = plan::rank_cost(q.workload, c, candidate.fullest);
  JsonLine time;
  time.add("compute", t.compute)
      .add("tensor", t.tensor)
      .add("bubble", t.bubble)
      .add("data", t.data)
      .add("update", t.update);
  JsonLine traffic;
  traffic.add("tensor", volume_json(cost.volumes.tensor))
      .add("pipeline", volume_json(cost.volumes.pipeline))
      .add("data", volume_json(cost.volumes.data))
      .add("embeddings", volume_json(cost.volumes.embeddings))
      .add("site", volume_json(cost.volumes.site));
  JsonLine links;
  for (std::size_t i = 0; i < plan::kMeshDimensionNames.size(); ++i) {
    links.add(plan::kMeshDimensionNames[i], q.machine.links[t.links[i]].name);
  }
  const std::vector<std::string> warnings = plan::mesh_warnings(q.workload, q.machine, candidate);
  JsonLine line;
  line.add("tp", c.tp).add("pp", c.pp).add("dp", c.dp);
  line.add("micro_batches", c.micro_batches)
      .add("schedule", pipeline_name(c.schedule))
      .add("virtual_stages", c.virtual_stages)
      .add("zero", c.zero)
      .add("recompute", recompute_name(c.recompute))
      .add("sequence_parallel", c.sequence_parallel)
      .add("fits", candidate.fits)
      .add("step_s", t.step)
      .add("tok_s", tokens_of(q) / t.step)
      .add("time_s", time)
      .add("bubble_share", t.bubble_share)
      .add("fullest_stage", candidate.fullest)
      .add("memory_bytes", memory_json(candidate.memory))
      .add("traffic", traffic)
      .add("links", links)
      .add("innermost_first", plan::order_text(candidate.order))
      .add("rank_order_step_s", candidate.rank_order_s)
      .add("why", candidate.why)
      .add("warnings", warnings);
  return line.str();
}

void print_json(const PlanMeshRequest& q, const MeshRanking& ranking, Session& session) {
  const auto refusal_json = [](const plan::MeshRefusal& refusal) {
    return JsonLine()
        .add("tp", refusal.choice.tp)
        .add("pp", refusal.choice.pp)
        .add("dp", refusal.choice.dp)
        .add("reason", refusal.text);
  };
  std::vector<std::string> orders, placed;
  if (ranking.fits()) {
    for (const auto& [order, step] : all_orders(q, ranking.candidates.front())) {
      orders.push_back(JsonLine().add("innermost_first", order).add("step_s", step).str());
    }
    for (const std::vector<std::int64_t>& ranks : ranks_of_nodes(q, ranking.candidates.front())) {
      placed.push_back(fmt::format("[{}]", fmt::join(ranks, ",")));
    }
  }
  JsonLine line;
  line.add("model", q.name)
      .add("params", ModelLayout(q.workload.shape).elements())
      .add("ranks", q.search.ranks)
      .add("nodes", q.nodes)
      .add("tokens", q.workload.sequences * q.workload.context)
      .add_list("meshes", ranking.candidates,
                [&](const MeshCandidate& candidate) { return candidate_json(q, candidate); })
      .add_list("refused", ranking.refused, refusal_json)
      .add_raw("orders", json_array(orders))
      .add_raw("ranks_of_nodes", json_array(placed));
  if (ranking.enough_ranks > 0) line.add("enough_ranks", ranking.enough_ranks);
  session.answer(line);
}

std::string bytes_text(double bytes) { return human_bytes(bytes); }

void print_head(const PlanMeshRequest& q, Session& session) {
  const ModelShape& s = q.workload.shape;
  std::string text = fmt::format(
      "{}: {} parameters, {} layers; a step of {} x {} tokens in {}; {} ranks", q.name,
      values_text(ModelLayout(s).elements()), s.layers, with_commas(q.workload.sequences),
      with_commas(q.workload.context), q.search.bf16 ? "bf16" : "fp32", q.search.ranks);
  if (q.nodes > 1) text += fmt::format(" on {} nodes", q.nodes);
  if (q.machine.memory_bytes > 0) {
    text += fmt::format(", {} each", bytes_text(static_cast<double>(q.machine.memory_bytes)));
  }
  std::string assumed = fmt::format("Assumed: {:g} TFLOP/s a rank", q.machine.flops_per_s / 1e12);
  if (q.machine.attention_flops_per_s > 0) {
    assumed += fmt::format(", {:g} in attention", q.machine.attention_flops_per_s / 1e12);
  }
  if (q.machine.memory_bytes_per_s > 0) {
    assumed += fmt::format(", {}/s of memory", bytes_text(q.machine.memory_bytes_per_s));
  }
  for (const plan::LinkClass& link : q.machine.links) {
    assumed += fmt::format("; {}/s and {} in {}", bytes_text(link.bytes_per_s),
                           human_time(link.latency_s), link.name);
  }
  session.out.write(wrapped(text, 0, session.out.width()) +
                    wrapped(assumed + ".", 0, session.out.width()) + "\n");
}

void print_table(const MeshRanking& ranking, std::int64_t top, Session& session) {
  TextTable table({"tp", "pp", "dp", "micro", "schedule", "ZeRO", "memory", "step", "why"});
  std::int64_t left = top;
  for (const MeshCandidate& candidate : ranking.candidates) {
    if (left-- == 0) break;
    const MeshChoice& c = candidate.choice;
    table.add(
        {fmt::format("{}", c.tp), fmt::format("{}", c.pp), fmt::format("{}", c.dp),
         fmt::format("{}", c.micro_batches), schedule_text(c),
         c.dp > 1 ? fmt::format("{}", c.zero) : "-",
         bytes_text(static_cast<double>(candidate.memory.total())),
         candidate.fits ? step_text(candidate.time.step) : "-",
         candidate.why + std::string(candidate.fits ? recomputes(c.recompute) : "") +
             (candidate.order != plan::kMeshOrder && candidate.fits ? "; ranks placed" : "")});
  }
  session.out.write(table.text(session.out));
  const auto all = static_cast<std::int64_t>(ranking.candidates.size());
  if (all > top) {
    session.out.write(session.out.paint(Style::kDim, fmt::format("and {} more; --top {} shows all",
                                                                 all - top, all)) +
                      "\n");
  }
}

/// A heading, and lines below it.
void print_part(Session& session, Style style, std::string_view heading,
                const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  session.out.write("\n" + session.out.paint(style, heading) + "\n");
  for (const std::string& line : lines) {
    session.out.write(wrapped(line, 2, session.out.width()));
  }
}

/// Where ranks go that are better placed otherwise than in their order.
std::string placement_line(const PlanMeshRequest& q, const MeshCandidate& best) {
  constexpr std::size_t kShown = 4;  // nodes; --json has all
  const auto nodes = ranks_of_nodes(q, best);
  std::string text = "place the ranks of this site";
  for (std::size_t node = 0; node < std::min(kShown, nodes.size()); ++node) {
    text +=
        fmt::format("{} {} on node {}", node == 0 ? "" : ",", fmt::join(nodes[node], " "), node);
  }
  if (nodes.size() > kShown) text += ", and so on (--json has all)";
  return text + fmt::format(
                    " (a rankfile does): {} from the innermost; in rank order a step would take "
                    "{}, {:.2f} times as long",
                    plan::order_text(best.order), step_text(best.rank_order_s),
                    best.rank_order_s / best.time.step);
}

std::vector<std::string> best_lines(const PlanMeshRequest& q, const MeshCandidate& best) {
  const MeshChoice& c = best.choice;
  const plan::MeshTime& t = best.time;
  const plan::RankMemory& m = best.memory;
  const auto size = [](std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
  std::vector<std::string> lines;
  std::string step = fmt::format("step {}, {} tok/s: computing {}", step_text(t.step),
                                 human_count(tokens_of(q) / t.step), step_text(t.compute));
  if (t.tensor > 0) step += fmt::format(", tensor-parallel sums {}", step_text(t.tensor));
  if (c.pp > 1) {
    step += fmt::format(", bubble {} ({:.1f} % of the pipeline's time)", step_text(t.bubble),
                        100 * t.bubble_share);
  }
  if (c.dp > 1) {
    step += fmt::format(", gradients and weights that nothing hides {}", step_text(t.data));
  }
  if (t.update > 0) step += fmt::format(", the update {}", step_text(t.update));
  lines.push_back(step);
  std::string memory = fmt::format(
      "memory of stage {}, the fullest: parameters {}, gradients {}, moments {}, activations {}, "
      "logits {}, buffers {}",
      best.fullest, size(m.parameters), size(m.gradients), size(m.moments + m.update),
      size(m.activations), size(m.logits), size(m.buffers));
  if (m.outer > 0) {
    memory += fmt::format(", for {} {} ({})", q.workload.outer.method, size(m.outer),
                          q.workload.outer.lanes ? "on each rank" : "on its first rank");
  }
  lines.push_back(memory);
  const plan::RankCost cost = plan::rank_cost(q.workload, c, best.fullest);
  std::string traffic = "a rank sends in a step:";
  std::size_t parts = 0;
  for (const auto& [dimension, volume] :
       {std::pair{MeshDimension::kTensor, &cost.volumes.tensor},
        std::pair{MeshDimension::kPipeline, &cost.volumes.pipeline},
        std::pair{MeshDimension::kData, &cost.volumes.data}}) {
    if (volume->operations == 0) continue;
    const auto index = static_cast<std::size_t>(dimension);
    traffic += fmt::format("{} {} {} in {} {} on {}", parts++ == 0 ? "" : ";",
                           plan::kMeshDimensionNames[index], bytes_text(volume->sent_bytes),
                           with_commas(volume->operations),
                           dimension == MeshDimension::kPipeline ? "messages" : "operations",
                           q.machine.links[t.links[index]].name);
  }
  if (parts > 0) lines.push_back(traffic);
  lines.push_back(
      fmt::format("rank of this site = (stage x {} + data) x {} + tensor: neighbours share layers, "
                  "then samples, then the pipeline",
                  c.dp, c.tp));
  if (best.order != plan::kMeshOrder) lines.push_back(placement_line(q, best));
  const auto orders = all_orders(q, best);
  const auto worst = std::max_element(orders.begin(), orders.end(),
                                      [](auto& a, auto& b) { return a.second < b.second; });
  if (worst->second > 1.01 * t.step) {
    lines.push_back(fmt::format("in the order {} a step would take {}, {:.2f} times as long",
                                worst->first, step_text(worst->second), worst->second / t.step));
  }
  if (c.sequence_parallel) {
    lines.push_back(
        "with the sequence split between tensor-parallel products (parallel.sequence_parallel)");
  }
  return lines;
}

/// Each reason once, with how many meshes it stops.
std::vector<std::string> refused_lines(const MeshRanking& ranking) {
  std::map<std::string, int> reasons;
  for (const plan::MeshRefusal& refusal : ranking.refused) ++reasons[refusal.text];
  std::vector<std::string> lines;
  constexpr std::size_t kShown = 6;
  for (const auto& [reason, count] : reasons) {
    if (lines.size() == kShown && reasons.size() > kShown + 1) {
      lines.push_back(fmt::format("and {} more reasons; --json has all", reasons.size() - kShown));
      break;
    }
    lines.push_back(count == 1 ? reason : fmt::format("{} ({} meshes)", reason, count));
  }
  return lines;
}

std::string too_large_text(const PlanMeshRequest& q, const MeshRanking& ranking) {
  const MeshCandidate& smallest = ranking.candidates.front();
  return fmt::format(
      "plan mesh: no mesh of {} ranks fits in {} a rank: the smallest, {}, needs {}; {}",
      q.search.ranks, bytes_text(static_cast<double>(q.machine.memory_bytes)),
      plan::mesh_text(smallest.choice), bytes_text(static_cast<double>(smallest.memory.total())),
      ranking.enough_ranks > 0
          ? fmt::format("{} ranks would do", ranking.enough_ranks)
          : std::string("a smaller --batch, shorter context or smaller model would need less"));
}

}  // namespace

int command_plan_mesh(const PlanMeshArguments& arguments, Session& session) {
  if (arguments.top < 1) {
    throw UsageError(fmt::format("--top {}: must be at least 1", arguments.top));
  }
  const PlanMeshRequest q = plan_mesh_request(arguments);
  const MeshRanking ranking = plan::rank_meshes(q.workload, q.machine, q.search);
  if (session.json) {
    print_json(q, ranking, session);
  } else if (!ranking.candidates.empty()) {
    print_head(q, session);
    print_table(ranking, arguments.top, session);
    if (ranking.fits()) {
      const MeshCandidate& best = ranking.candidates.front();
      print_part(session, Style::kGood, "Best: " + plan::mesh_text(best.choice),
                 best_lines(q, best));
      print_part(session, Style::kWarn, "Awkward",
                 plan::mesh_warnings(q.workload, q.machine, best));
    }
    print_part(session, Style::kDim, "Not possible", refused_lines(ranking));
  }
  if (ranking.candidates.empty()) {
    throw ConfigError(fmt::format(
        "plan mesh: no mesh of {} ranks works: {}", q.search.ranks,
        ranking.refused.empty() ? "tp x pp x dp is another number" : ranking.refused.front().text));
  }
  if (!ranking.fits()) throw ConfigError(too_large_text(q, ranking));
  return 0;
}

}  // namespace isthmus::app
