// SPDX-License-Identifier: Apache-2.0
// A run's status as one JSON object, and back. The fields are listed once, for both ways.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>

#include "isthmus/errors.h"
#include "record/json_fields.h"
#include "record/run_status.h"

namespace isthmus::app {
namespace {

using Json = nlohmann::json;

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

/// {"step": [...], "value": [...]}
constexpr auto kCurve = [](auto& io, auto& curve) {
  if constexpr (kReads<decltype(io)>) {
    const Json& values = io.json().at("value");
    for (std::size_t i = 0; i < values.size(); ++i) {
      curve.emplace_back(whole_number<std::int64_t>(io.json().at("step").at(i)),
                         JsonFieldReader::real(values[i]));
    }
  } else {
    std::vector<std::uint64_t> steps;
    std::vector<double> numbers;
    for (const auto& [step, value] : curve) {
      steps.push_back(static_cast<std::uint64_t>(step));
      numbers.push_back(value);
    }
    io("step", std::span<const std::uint64_t>(steps));
    io("value", std::span<const double>(numbers));
  }
};

constexpr auto kFragment = [](auto& io, auto& fragment) {
  io("rounds", fragment.rounds);
  io("last_step", fragment.last_step);
  io("members", fragment.members);
  io("bytes_payload", fragment.payload_bytes);
  io("bytes_wire", fragment.wire_bytes);
  io("wait_s", fragment.wait_s);
  io("last_wait_s", fragment.last_wait_s);
};

constexpr auto kSite = [](auto& io, auto& site) {
  io("name", site.name);
  io("compute_s", site.compute_s);
  io("bytes_payload", site.payload_bytes);
  io("bytes_wire", site.wire_bytes);
};

constexpr auto kTcp = [](auto& io, auto& tcp) {
  io("connections", tcp.connections);
  io("detour", tcp.around);
  io("rtt_s", tcp.rtt_s);
  io("segments", tcp.segments);
  io("segments_resent", tcp.resent_segments);
  io("goodput_bits_per_s", tcp.goodput_bits_per_s);
};

/// Counts by kind of failure.
constexpr auto kTroubles = [](auto& io, auto& troubles) {
  if constexpr (kReads<decltype(io)>) {
    for (const auto& [kind, count] : io.json().items()) {
      troubles[io.text(kind)] = whole_number<std::int64_t>(count);
    }
  } else {
    for (const auto& [kind, count] : troubles) io(kind.c_str(), count);
  }
};

constexpr auto kPeer = [](auto& io, auto& peer) {
  io("name", peer.name);
  io("connected", peer.connected);
  io("lost", peer.lost);
  io("cause", peer.cause);
  io("bytes_sent", peer.sent_bytes);
  io("bytes_received", peer.received_bytes);
  auto heard = peer.heard_s < 0 ? std::nullopt : std::optional(peer.heard_s);
  io("heard_ago_s", heard);
  if constexpr (kReads<decltype(io)>) peer.heard_s = heard.value_or(-1);
  io.object("tcp", peer.tcp, kTcp);
  io.object("troubles", peer.troubles, kTroubles);
};

constexpr auto kDrop = [](auto& io, auto& drop) {
  io("ago_s", drop.ago_s);
  io("peer", drop.peer);
  io("kind", drop.kind);
  io("cause", drop.cause);
};

constexpr auto kSlowRank = [](auto& io, auto& slow) {
  io("rank", slow.rank);
  io("what", slow.what);
  io("factor", slow.factor);
  io("since", slow.since);
};

constexpr auto kLate = [](auto& io, auto& late) {
  io("rounds", late.rounds);
  io("steps_skipped", late.steps_skipped);
};

/// Sizes that several names share, with the unit that they have everywhere.
constexpr auto kProgress = [](auto& io, auto& status) {
  io("step", status.step);
  io("steps", status.steps);
  io("resumed_after", status.resumed_after);
  io("tokens", status.tokens);
  io("loss", status.loss);
  io("learning_rate", status.learning_rate);
  io("grad_norm", status.gradient_norm);
  io("tokens_per_s", status.tokens_per_s);
  io("eval_loss", status.eval_loss);
  io("eval_step", status.eval_step);
  io("elapsed_s", status.elapsed_s);
  io("eta_s", status.eta_s);
  io("simulated_s", status.simulated_s);
  io("advanced_ago_s", status.advanced_s);
  io("stalled_after_s", status.stalled_after_s);
};

constexpr auto kCheckpoint = [](auto& io, auto& status) {
  io("count", status.checkpoints);
  io("step", status.checkpoint_step);
  io("bytes", status.checkpoint_bytes);
  io("s", status.checkpoint_s);
  io("ago_s", status.checkpoint_ago_s);
};

constexpr auto kCurves = [](auto& io, auto& status) {
  io.object("loss", status.loss_curve, kCurve);
  io.object("eval_loss", status.eval_curve, kCurve);
  io.object("tokens_per_s", status.speed_curve, kCurve);
  io.object("round_wait_s", status.wait_curve, kCurve);
};

constexpr auto kStatus = [](auto& io, auto& status) {
  io.derived("v", 1);
  io("run_id", status.run_id);
  io("name", status.name);
  io("command", status.command);
  io("method", status.method);
  io("version", status.version);
  io("directory", status.directory);
  io("state", status.state);
  io("healthy", status.healthy);
  io("word", status.word);
  io("live", status.live);
  std::string clock = status.simulated ? "virtual" : "real";
  io("clock", clock);
  if constexpr (kReads<decltype(io)>) status.simulated = clock == "virtual";
  io("workers", status.workers);
  io("members", status.members);
  io("parameters", status.parameters);
  if (io.has("device")) io("device", status.device);
  kProgress(io, status);
  io.derived("rounds", status.rounds());
  io.derived("bytes_wire", status.sent_bytes());
  io.derived("wait_s", status.wait_s());
  io.object("checkpoint", status, kCheckpoint);
  io.numbered("fragments", "fragment", status.fragments, kFragment);
  io.list("sites", status.sites, kSite);
  io.list("peers", status.peers, kPeer);
  io("strangers", status.strangers);
  io.list("drops", status.drops, kDrop);
  if (io.has("slow_ranks")) io.list("slow_ranks", status.slow_ranks, kSlowRank);
  io.object("late", status.late, kLate);
  io.object("curves", status, kCurves);
};

}  // namespace

std::string status_json(const RunStatus& status) {
  JsonFieldWriter writer;
  kStatus(writer, status);
  return writer.line().str();
}

RunStatus parse_status(const std::string& text) {
  try {
    RunStatus status;
    const Json json = Json::parse(text);
    const JsonFieldReader reader(json, plain);
    kStatus(reader, status);
    return status;
  } catch (const Json::exception& error) {
    constexpr std::size_t kEnough = 200;  // the cited text may be as long as the document
    throw ConfigError(fmt::format("this is no run's status: {:.{}}", plain(error.what()), kEnough));
  } catch (const std::out_of_range& error) {
    throw ConfigError(fmt::format("this is no run's status: {}", error.what()));
  }
}

}  // namespace isthmus::app
