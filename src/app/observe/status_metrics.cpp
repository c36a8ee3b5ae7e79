// SPDX-License-Identifier: Apache-2.0
// A run's status as Prometheus metrics. Base units, counters end in _total;
// docs/how-to/observing.md explains each one. Families are made anew for each look, so there is one
// source for all pages.
#include "app/observe/status_metrics.h"

#include "app/observe/metric_families.h"
#include "record/wall_clock.h"

namespace isthmus::app {
namespace {

using Labels = MetricFamilies::Labels;
using Families = MetricFamilies;

Labels label(const std::string& name, const std::string& value) { return {{name, value}}; }

void add_run(Families& out, const RunStatus& status, double now) {
  out.gauge("run_info", "The run that is told of; always 1.");
  out.value(1, {{"run_id", status.run_id},
                {"name", status.name},
                {"command", status.command},
                {"method", status.method},
                {"clock", status.simulated ? "virtual" : "real"},
                {"device", status.device},
                {"version", status.version}});
  out.gauge("healthy", "1 while /healthz answers 200, else 0.", status.healthy ? 1 : 0);
  out.gauge("parameters", "Parameters of the model.", status.parameters);
  out.gauge("workers", "Workers of the run.", status.workers);
  out.gauge("members", "Workers that take part now.", status.members);
  out.gauge("last_advance_timestamp_seconds",
            "When a step, evaluation or checkpoint was completed last, in Unix time.",
            now - status.advanced_s);
}

/// Before, the sums of earlier sessions are not known: a counter must not begin at zero again.
bool begun(const RunStatus& status) {
  return status.state != "starting" && status.state != "waiting";
}

void add_sums(Families& out, const RunStatus& status) {
  out.counter("steps_total", "Inner steps taken, earlier sessions of the run included.",
              status.step);
  out.counter("tokens_total", "Tokens trained on, by all workers.", status.tokens);
  out.counter("elapsed_seconds_total", "Real time of the run, earlier sessions included.",
              status.elapsed_s);
}

void add_training(Families& out, const RunStatus& status) {
  out.gauge("planned_steps", "Inner steps of the whole run.", status.steps);
  out.gauge("tokens_per_second", "Tokens a second over the last ten seconds or so, real time.",
            status.tokens_per_s);
  out.gauge("train_loss", "Mean loss of the last step, nats a token.", status.loss);
  out.gauge("eval_loss", "Loss of the last evaluation, nats a token.", status.eval_loss);
  if (status.eval_loss) {
    out.gauge("eval_step", "Step after which it was evaluated.", status.eval_step);
  }
  out.gauge("learning_rate", "Learning rate of the last step.", status.learning_rate);
  out.gauge("gradient_norm", "Norm of the last step's gradient before clipping, mean of workers.",
            status.gradient_norm);
  out.gauge("eta_seconds", "Real time to the last step at the pace of this session.", status.eta_s);
  out.counter("simulated_seconds_total", "Time on the simulated clock.", status.simulated_s);
  out.counter("checkpoints_total", "Checkpoints written by this process.", status.checkpoints);
  if (status.checkpoints > 0) {
    out.gauge("checkpoint_step", "Step of the newest checkpoint.", status.checkpoint_step);
    out.gauge("checkpoint_bytes", "Size of the newest checkpoint.", status.checkpoint_bytes);
    out.gauge("checkpoint_duration_seconds", "Time it took to write the newest checkpoint.",
              status.checkpoint_s);
  }
}

void add_rounds(Families& out, const RunStatus& status) {
  const auto each = [&](const auto& value) {
    for (const auto& [id, fragment] : status.fragments) {
      out.value(value(fragment), label("fragment", std::to_string(id)));
    }
  };
  out.counter("rounds_total", "Rounds applied, by fragment, by this process.");
  each([](const FragmentStatus& f) { return f.rounds; });
  out.counter("round_payload_bytes_total",
              "Encoded values sent by one worker for the rounds of a fragment.");
  each([](const FragmentStatus& f) { return f.payload_bytes; });
  out.counter("round_wire_bytes_total", "The same with headers and protocol messages.");
  each([](const FragmentStatus& f) { return f.wire_bytes; });
  out.counter("round_wait_seconds_total",
              "Time on the run's clock that this site, or the first worker, stood still for them.");
  each([](const FragmentStatus& f) { return f.wait_s; });
  out.gauge("round_last_wait_seconds", "The same, of the last round.");
  each([](const FragmentStatus& f) { return f.last_wait_s; });
  out.gauge("round_last_step", "Step at which the last round was applied.");
  each([](const FragmentStatus& f) { return f.last_step; });
  out.gauge("round_members", "Members whose contributions the last mean holds.");
  each([](const FragmentStatus& f) { return f.members; });
}

void add_late(Families& out, const LateStatus& late) {
  out.counter("late_rounds_total",
              "Rounds that went on without this site's work, for which it was late (net.deadline).",
              late.rounds);
  out.counter("late_skipped_steps_total",
              "Inner steps that this site did not take, to be where the others are.",
              late.steps_skipped);
}

void add_workers(Families& out, const RunStatus& status) {
  const auto each = [&](const auto& value) {
    for (const WorkerStatus& site : status.sites)
      out.value(value(site), label("worker", site.name));
  };
  out.counter("worker_compute_seconds_total", "Time spent computing, on the run's clock.");
  each([](const WorkerStatus& w) { return w.compute_s; });
  out.counter("worker_payload_bytes_total", "Encoded values that a worker has sent to others.");
  each([](const WorkerStatus& w) { return w.payload_bytes; });
  out.counter("worker_wire_bytes_total", "All that a worker has sent to others.");
  each([](const WorkerStatus& w) { return w.wire_bytes; });
}

void add_links(Families& out, const RunStatus& status, double now) {
  const auto each = [&](const auto& value) {
    for (const PeerStatus& peer : status.peers) out.value(value(peer), label("peer", peer.name));
  };
  const auto troubles = [&](const std::vector<LinkTrouble>& kinds) {
    for (const PeerStatus& peer : status.peers) {
      for (const LinkTrouble kind : kinds) {
        const std::string name(trouble_name(kind));
        const auto found = peer.troubles.find(name);
        out.value(found == peer.troubles.end() ? 0 : found->second,
                  {{"peer", peer.name}, {"kind", name}});
      }
    }
  };
  out.gauge("peer_connected", "1 while a connection to the peer stands, else 0.");
  each([](const PeerStatus& p) { return p.connected ? 1 : 0; });
  out.counter("peer_sent_bytes_total", "Bytes of frames handed to the link to the peer.");
  each([](const PeerStatus& p) { return p.sent_bytes; });
  out.counter("peer_received_bytes_total", "Bytes of frames that came from the peer.");
  each([](const PeerStatus& p) { return p.received_bytes; });
  out.gauge("peer_last_heard_timestamp_seconds", "When its last frame came, in Unix time.");
  for (const PeerStatus& peer : status.peers) {
    if (peer.heard_s >= 0) out.value(now - peer.heard_s, label("peer", peer.name));
  }
  const auto tcp = [&](const auto& value) {
    for (const PeerStatus& peer : status.peers) {
      if (!peer.tcp) continue;
      if (const auto number = value(*peer.tcp)) out.value(*number, label("peer", peer.name));
    }
  };
  out.gauge("peer_detour", "1 while what goes to the peer goes by way of a relay, else 0.");
  tcp([](const LinkHealth& h) { return std::optional(h.around ? 1 : 0); });
  out.gauge("peer_connections", "Connections to the peer, dialled here, that stand.");
  tcp([](const LinkHealth& h) { return std::optional(h.connections); });
  out.gauge("peer_rtt_seconds", "TCP's smoothed round trip to the peer, mean of the connections.");
  tcp([](const LinkHealth& h) { return h.rtt_s; });
  out.counter("peer_segments_total", "TCP segments with data sent to the peer, repeated ones too.");
  tcp([](const LinkHealth& h) { return std::optional(h.segments); });
  out.counter("peer_retransmitted_segments_total", "TCP segments sent to the peer again.");
  tcp([](const LinkHealth& h) { return std::optional(h.resent_segments); });
  out.gauge("peer_goodput_bits_per_second",
            "What the peer has acknowledged, over the time in which something was under way.");
  tcp([](const LinkHealth& h) { return h.goodput_bits_per_s; });
  out.counter("link_drops_total", "Connections that broke, and peers that were lost or left.");
  troubles({LinkTrouble::kDisconnected, LinkTrouble::kLost, LinkTrouble::kLeft});
  out.counter("link_refusals_total",
              "Connections that were refused or did not speak the protocol, as far as logged.");
  troubles({LinkTrouble::kHandshakeFailed, LinkTrouble::kRefused});
  if (!status.peers.empty()) {
    out.counter("link_strangers_total", "Connections from outside the run.", status.strangers);
  }
}

}  // namespace

std::string status_metrics(const RunStatus& status) {
  const double now = unix_now();
  Families out;
  add_run(out, status, now);
  if (begun(status)) add_sums(out, status);
  add_training(out, status);
  add_rounds(out, status);
  if (status.late) add_late(out, *status.late);
  if (begun(status)) add_workers(out, status);
  add_links(out, status, now);
  return out.text();
}

}  // namespace isthmus::app
