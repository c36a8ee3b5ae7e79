// SPDX-License-Identifier: Apache-2.0
// A run's status as one JSON object, and back.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <type_traits>

#include "core/base/json_input.h"
#include "isthmus/errors.h"
#include "record/json_line.h"
#include "record/run_status.h"

namespace isthmus::app {
namespace {

using Json = nlohmann::json;

void add_optional(JsonLine& line, std::string_view key, const std::optional<double>& value) {
  if (value) {
    line.add(key, *value);
  } else {
    line.add_null(key);
  }
}

std::string curve_json(const std::vector<ThinCurve::Point>& curve) {
  std::vector<std::uint64_t> steps;
  std::vector<double> values;
  for (const auto& [step, value] : curve) {
    steps.push_back(static_cast<std::uint64_t>(step));
    values.push_back(value);
  }
  return JsonLine()
      .add("step", std::span<const std::uint64_t>(steps))
      .add("value", std::span<const double>(values))
      .str();
}

std::string fragments_json(const RunStatus& status) {
  std::vector<std::string> parts;
  for (const auto& [id, fragment] : status.fragments) {
    parts.push_back(JsonLine()
                        .add("fragment", id)
                        .add("rounds", fragment.rounds)
                        .add("last_step", fragment.last_step)
                        .add("members", fragment.members)
                        .add("bytes_payload", fragment.payload_bytes)
                        .add("bytes_wire", fragment.wire_bytes)
                        .add("wait_s", fragment.wait_s)
                        .add("last_wait_s", fragment.last_wait_s)
                        .str());
  }
  return json_array(parts);
}

std::string sites_json(const RunStatus& status) {
  std::vector<std::string> parts;
  for (const WorkerStatus& site : status.sites) {
    parts.push_back(JsonLine()
                        .add("name", site.name)
                        .add("compute_s", site.compute_s)
                        .add("bytes_payload", site.payload_bytes)
                        .add("bytes_wire", site.wire_bytes)
                        .str());
  }
  return json_array(parts);
}

std::string peers_json(const RunStatus& status) {
  std::vector<std::string> parts;
  for (const PeerStatus& peer : status.peers) {
    JsonLine line;
    line.add("name", peer.name).add("connected", peer.connected).add("lost", peer.lost);
    line.add("cause", peer.cause);
    line.add("bytes_sent", peer.sent_bytes).add("bytes_received", peer.received_bytes);
    if (peer.heard_s < 0) {
      line.add_null("heard_ago_s");
    } else {
      line.add("heard_ago_s", peer.heard_s);
    }
    if (peer.tcp) {
      JsonLine tcp;
      tcp.add("connections", peer.tcp->connections).add("detour", peer.tcp->around);
      add_optional(tcp, "rtt_s", peer.tcp->rtt_s);
      tcp.add("segments", peer.tcp->segments).add("segments_resent", peer.tcp->resent_segments);
      add_optional(tcp, "goodput_bits_per_s", peer.tcp->goodput_bits_per_s);
      line.add_raw("tcp", tcp.str());
    }
    JsonLine troubles;
    for (const auto& [kind, count] : peer.troubles) troubles.add(kind, count);
    parts.push_back(line.add_raw("troubles", troubles.str()).str());
  }
  return json_array(parts);
}

std::string drops_json(const RunStatus& status) {
  std::vector<std::string> parts;
  for (const LinkDrop& drop : status.drops) {
    parts.push_back(JsonLine()
                        .add("ago_s", drop.ago_s)
                        .add("peer", drop.peer)
                        .add("kind", drop.kind)
                        .add("cause", drop.cause)
                        .str());
  }
  return json_array(parts);
}

std::string slow_ranks_json(const RunStatus& status) {
  std::vector<std::string> parts;
  for (const SlowRank& each : status.slow_ranks) {
    parts.push_back(JsonLine()
                        .add("rank", each.rank)
                        .add("what", each.what)
                        .add("factor", each.factor)
                        .add("since", each.since)
                        .str());
  }
  return json_array(parts);
}

/// Sizes that several names share, with the unit that they have everywhere.
void add_progress(JsonLine& line, const RunStatus& status) {
  line.add("step", status.step).add("steps", status.steps);
  line.add("resumed_after", status.resumed_after).add("tokens", status.tokens);
  add_optional(line, "loss", status.loss);
  add_optional(line, "learning_rate", status.learning_rate);
  add_optional(line, "grad_norm", status.gradient_norm);
  add_optional(line, "tokens_per_s", status.tokens_per_s);
  add_optional(line, "eval_loss", status.eval_loss);
  line.add("eval_step", status.eval_step).add("elapsed_s", status.elapsed_s);
  add_optional(line, "eta_s", status.eta_s);
  add_optional(line, "simulated_s", status.simulated_s);
  line.add("advanced_ago_s", status.advanced_s).add("stalled_after_s", status.stalled_after_s);
}

/// A number as JsonLine writes it.
double number(const Json& json) {
  if (json.is_string()) {
    const double infinity = std::numeric_limits<double>::infinity();
    return json == "inf" ? infinity : json == "-inf" ? -infinity : std::nan("");
  }
  return json.get<double>();
}

std::optional<double> optional_number(const Json& json, const char* key) {
  const Json& value = json.at(key);
  return value.is_null() ? std::nullopt : std::optional(number(value));
}

/// Without characters that make a terminal do something: C0, DEL, and C1 (U+0080 to U+009F).
std::string plain(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) {
      text[i] = ' ';
    } else if (byte == 0xc2 && i + 1 < text.size() &&
               static_cast<unsigned char>(text[i + 1]) < 0xa0) {
      text.replace(i, 2, " ");
    }
  }
  return text;
}

template <typename T>
void take(const Json& object, const char* key, T& into) {
  const Json& json = object.at(key);
  if constexpr (std::is_same_v<T, std::string>) {
    into = plain(json.get<std::string>());
  } else if constexpr (std::is_same_v<T, bool>) {
    into = json.get<bool>();
  } else {
    into = whole_number<T>(json);
  }
}

std::vector<ThinCurve::Point> curve_of(const Json& json) {
  std::vector<ThinCurve::Point> curve;
  const Json& values = json.at("value");
  for (std::size_t i = 0; i < values.size(); ++i) {
    curve.emplace_back(whole_number<std::int64_t>(json.at("step").at(i)), number(values[i]));
  }
  return curve;
}

void read_progress(const Json& json, RunStatus& status) {
  take(json, "step", status.step);
  take(json, "steps", status.steps);
  take(json, "resumed_after", status.resumed_after);
  take(json, "tokens", status.tokens);
  status.loss = optional_number(json, "loss");
  status.learning_rate = optional_number(json, "learning_rate");
  status.gradient_norm = optional_number(json, "grad_norm");
  status.tokens_per_s = optional_number(json, "tokens_per_s");
  status.eval_loss = optional_number(json, "eval_loss");
  take(json, "eval_step", status.eval_step);
  status.elapsed_s = number(json.at("elapsed_s"));
  status.eta_s = optional_number(json, "eta_s");
  status.simulated_s = optional_number(json, "simulated_s");
  status.advanced_s = number(json.at("advanced_ago_s"));
  status.stalled_after_s = number(json.at("stalled_after_s"));
}

void read_lists(const Json& json, RunStatus& status) {
  for (const Json& each : json.at("fragments")) {
    FragmentStatus& fragment = status.fragments[whole_number<std::int64_t>(each.at("fragment"))];
    take(each, "rounds", fragment.rounds);
    take(each, "last_step", fragment.last_step);
    take(each, "members", fragment.members);
    take(each, "bytes_payload", fragment.payload_bytes);
    take(each, "bytes_wire", fragment.wire_bytes);
    fragment.wait_s = number(each.at("wait_s"));
    fragment.last_wait_s = number(each.at("last_wait_s"));
  }
  for (const Json& each : json.at("sites")) {
    WorkerStatus& site = status.sites.emplace_back();
    take(each, "name", site.name);
    site.compute_s = number(each.at("compute_s"));
    take(each, "bytes_payload", site.payload_bytes);
    take(each, "bytes_wire", site.wire_bytes);
  }
  for (const Json& each : json.at("peers")) {
    PeerStatus& peer = status.peers.emplace_back();
    take(each, "name", peer.name);
    take(each, "connected", peer.connected);
    take(each, "lost", peer.lost);
    take(each, "cause", peer.cause);
    take(each, "bytes_sent", peer.sent_bytes);
    take(each, "bytes_received", peer.received_bytes);
    peer.heard_s = optional_number(each, "heard_ago_s").value_or(-1);
    if (const auto tcp = each.find("tcp"); tcp != each.end()) {
      LinkHealth& health = peer.tcp.emplace();
      take(*tcp, "connections", health.connections);
      take(*tcp, "detour", health.around);
      health.rtt_s = optional_number(*tcp, "rtt_s");
      take(*tcp, "segments", health.segments);
      take(*tcp, "segments_resent", health.resent_segments);
      health.goodput_bits_per_s = optional_number(*tcp, "goodput_bits_per_s");
    }
    for (const auto& [kind, count] : each.at("troubles").items()) {
      peer.troubles[plain(kind)] = whole_number<std::int64_t>(count);
    }
  }
  for (const Json& each : json.at("drops")) {
    LinkDrop& drop = status.drops.emplace_back();
    drop.ago_s = number(each.at("ago_s"));
    take(each, "peer", drop.peer);
    take(each, "kind", drop.kind);
    take(each, "cause", drop.cause);
  }
  if (!json.contains("slow_ranks")) return;  // written before there were any
  for (const Json& each : json.at("slow_ranks")) {
    SlowRank& slow = status.slow_ranks.emplace_back();
    take(each, "rank", slow.rank);
    take(each, "what", slow.what);
    slow.factor = number(each.at("factor"));
    take(each, "since", slow.since);
  }
}

RunStatus read_status(const Json& json) {
  RunStatus status;
  take(json, "run_id", status.run_id);
  take(json, "name", status.name);
  take(json, "command", status.command);
  take(json, "method", status.method);
  take(json, "version", status.version);
  take(json, "directory", status.directory);
  take(json, "state", status.state);
  take(json, "healthy", status.healthy);
  take(json, "word", status.word);
  take(json, "live", status.live);
  status.simulated = json.at("clock") == "virtual";
  take(json, "workers", status.workers);
  take(json, "members", status.members);
  take(json, "parameters", status.parameters);
  if (json.contains("device")) take(json, "device", status.device);
  if (const auto late = json.find("late"); late != json.end()) {
    take(*late, "rounds", status.late.emplace().rounds);
    take(*late, "steps_skipped", status.late->steps_skipped);
  }
  read_progress(json, status);
  const Json& checkpoint = json.at("checkpoint");
  take(checkpoint, "count", status.checkpoints);
  take(checkpoint, "step", status.checkpoint_step);
  take(checkpoint, "bytes", status.checkpoint_bytes);
  status.checkpoint_s = number(checkpoint.at("s"));
  status.checkpoint_ago_s = number(checkpoint.at("ago_s"));
  take(json, "strangers", status.strangers);
  read_lists(json, status);
  const Json& curves = json.at("curves");
  status.loss_curve = curve_of(curves.at("loss"));
  status.eval_curve = curve_of(curves.at("eval_loss"));
  status.speed_curve = curve_of(curves.at("tokens_per_s"));
  status.wait_curve = curve_of(curves.at("round_wait_s"));
  return status;
}

}  // namespace

std::string status_json(const RunStatus& status) {
  JsonLine line;
  line.add("v", 1).add("run_id", status.run_id).add("name", status.name);
  line.add("command", status.command).add("method", status.method);
  line.add("version", status.version).add("directory", status.directory);
  line.add("state", status.state).add("healthy", status.healthy).add("word", status.word);
  line.add("live", status.live).add("clock", status.simulated ? "virtual" : "real");
  line.add("workers", status.workers)
      .add("members", status.members)
      .add("parameters", status.parameters)
      .add("device", status.device);
  add_progress(line, status);
  line.add("rounds", status.rounds()).add("bytes_wire", status.sent_bytes());
  line.add("wait_s", status.wait_s());
  line.add_raw("checkpoint", JsonLine()
                                 .add("count", status.checkpoints)
                                 .add("step", status.checkpoint_step)
                                 .add("bytes", status.checkpoint_bytes)
                                 .add("s", status.checkpoint_s)
                                 .add("ago_s", status.checkpoint_ago_s)
                                 .str());
  line.add_raw("fragments", fragments_json(status)).add_raw("sites", sites_json(status));
  line.add_raw("peers", peers_json(status)).add("strangers", status.strangers);
  line.add_raw("drops", drops_json(status));
  line.add_raw("slow_ranks", slow_ranks_json(status));
  if (status.late) {
    line.add_raw("late", JsonLine()
                             .add("rounds", status.late->rounds)
                             .add("steps_skipped", status.late->steps_skipped)
                             .str());
  }
  line.add_raw("curves", JsonLine()
                             .add_raw("loss", curve_json(status.loss_curve))
                             .add_raw("eval_loss", curve_json(status.eval_curve))
                             .add_raw("tokens_per_s", curve_json(status.speed_curve))
                             .add_raw("round_wait_s", curve_json(status.wait_curve))
                             .str());
  return line.str();
}

RunStatus parse_status(const std::string& text) {
  try {
    return read_status(Json::parse(text));
  } catch (const Json::exception& error) {
    constexpr std::size_t kEnough = 200;  // the cited text may be as long as the document
    throw ConfigError(fmt::format("this is no run's status: {:.{}}", plain(error.what()), kEnough));
  } catch (const std::out_of_range& error) {
    throw ConfigError(fmt::format("this is no run's status: {}", error.what()));
  }
}

}  // namespace isthmus::app
