// SPDX-License-Identifier: Apache-2.0
#include "record/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "record/status_board.h"
#include "record/wall_clock.h"

namespace isthmus::app {
namespace {

/// Mean of a member over the workers that have it, in rank order; null where none has.
void add_mean(JsonLine& record, const char* key, const std::map<int, RoundReport>& reports,
              std::optional<double> RoundReport::*member) {
  double sum = 0;
  int workers = 0;
  for (const auto& [rank, report] : reports) {
    const std::optional<double> value = report.*member;
    sum += value.value_or(0);
    workers += value ? 1 : 0;
  }
  if (workers == 0) {
    record.add_null(key);
  } else {
    record.add(key, sum / workers);
  }
}

}  // namespace

std::vector<Duration> RunTotals::mean_steps() const {
  std::vector<Duration> means;
  for (const double each : compute_s) {
    means.emplace_back(static_cast<Duration::rep>(each / static_cast<double>(steps) * 1e9));
  }
  return means;
}

void RunTotals::save(StateWriter& writer) const {
  writer.integer("steps", steps);
  writer.integer("tokens", tokens);
  writer.integer("rounds", rounds);
  if (closing.rounds > 0) {
    writer.integer("closing_rounds", closing.rounds);
    writer.integer("closing_payload_bytes", static_cast<std::int64_t>(closing.payload_bytes));
    writer.integer("closing_wire_bytes", static_cast<std::int64_t>(closing.wire_bytes));
    writer.real("closing_wait_s", closing.wait_s);
  }
  writer.real("clock_s", clock_s);
  writer.real("wall_s", wall_s);
  writer.integer("measured_step_ns", measured_step.count());
  writer.real("train_loss", train_loss);
  if (eval_loss) {
    writer.real("eval_loss", *eval_loss);
    writer.integer("eval_step", eval_step);
  }
  for (std::size_t m = 0; m < payload_bytes.size(); ++m) {
    const std::string prefix = "worker-" + std::to_string(m) + ".";
    writer.integer(prefix + "payload_bytes", static_cast<std::int64_t>(payload_bytes[m]));
    writer.integer(prefix + "wire_bytes", static_cast<std::int64_t>(wire_bytes[m]));
    writer.real(prefix + "compute_s", compute_s[m]);
  }
}

void RunTotals::load(StateReader& reader) {
  steps = reader.integer("steps");
  tokens = reader.integer("tokens");
  rounds = reader.integer("rounds");
  if (reader.contains("closing_rounds")) {
    closing = {.rounds = reader.integer("closing_rounds"),
               .payload_bytes = static_cast<std::uint64_t>(reader.integer("closing_payload_bytes")),
               .wire_bytes = static_cast<std::uint64_t>(reader.integer("closing_wire_bytes")),
               .wait_s = reader.real("closing_wait_s")};
  }
  clock_s = reader.real("clock_s");
  wall_s = reader.real("wall_s");
  measured_step = Duration(reader.integer("measured_step_ns"));
  train_loss = reader.real("train_loss");
  if (reader.contains("eval_loss")) {
    eval_loss = reader.real("eval_loss");
    eval_step = reader.integer("eval_step");
  }
  for (std::size_t m = 0; m < payload_bytes.size(); ++m) {
    const std::string prefix = "worker-" + std::to_string(m) + ".";
    if (reader.contains(prefix + "payload_bytes")) {
      payload_bytes[m] = static_cast<std::uint64_t>(reader.integer(prefix + "payload_bytes"));
      wire_bytes[m] = static_cast<std::uint64_t>(reader.integer(prefix + "wire_bytes"));
      compute_s[m] = reader.real(prefix + "compute_s");
    }
  }
}

MetricsLog::MetricsLog(Options options, JsonLinesFile& metrics, ProgressView* progress,
                       RunTotals& totals)
    : options_(std::move(options)),
      metrics_(metrics),
      progress_(progress),
      totals_(totals),
      before_(totals),
      started_(monotonic_now()),
      last_step_(options_.simulated ? started_ : 0) {}

JsonLine MetricsLog::line(const char* kind) const {
  JsonLine line;
  line.add("v", 1).add("k", kind);
  return line;
}

void MetricsLog::sync() {
  const std::scoped_lock lock(lines_);
  metrics_.sync();
}

void MetricsLog::append(const JsonLine& line) {
  const std::scoped_lock lock(lines_);
  metrics_.append(line);
  if (options_.tensorboard) {
    options_.tensorboard->take(line.str());
  }
}

void MetricsLog::add_clock(JsonLine& line, TimePoint now) const {
  line.add("t", unix_now());
  if (options_.simulated) {
    line.add("ts", before_.clock_s + in_seconds(now.time_since_epoch()));
  } else {
    line.add_null("ts");
  }
}

void MetricsLog::begin(const Manifest& manifest) {
  JsonLine meta = line("meta");
  meta.add("run_id", manifest.run_id)
      .add("config_hash", manifest.config_hash)
      .add("method", manifest.method)
      .add("workers", manifest.workers)
      .add("parameters", manifest.parameters)
      .add("device", manifest.device)
      .add("kernels", manifest.kernels)
      .add("resumed_after", totals_.steps)
      .add("surrogate", manifest.surrogate.has_value())
      .add("t", unix_now());
  append(meta);
}

void MetricsLog::step(StepIndex t, const std::vector<StepPost>& posts) {
  double loss_sum = 0;
  double norm_sum = 0;
  int trained = 0;
  std::int64_t tokens = 0;
  TimePoint now{};
  for (const StepPost& post : posts) {
    const auto m = static_cast<std::size_t>(post.rank.value());
    const InnerStep& inner = post.report.inner;
    totals_.payload_bytes[m] = before_.payload_bytes[m] + scaled(post.sent.payload);
    totals_.wire_bytes[m] = before_.wire_bytes[m] + scaled(post.sent.wire);
    totals_.compute_s[m] = before_.compute_s[m] + in_seconds(post.computed);
    loss_sum += inner.loss * static_cast<double>(inner.tokens);
    norm_sum += inner.grad_norm;
    trained += inner.idle ? 0 : 1;
    tokens += inner.tokens;
    now = std::max(now, post.now);
  }
  const double wall = monotonic_now();
  // Lines of several processes come in batches, so a real run goes by when the steps were taken.
  const double at = options_.simulated ? wall : in_seconds(now.time_since_epoch());
  const double tokens_per_s = static_cast<double>(tokens) / std::max(at - last_step_, 1e-9);
  last_step_ = at;
  totals_.steps = t.value();
  totals_.tokens += tokens;
  // Where only sites that skip the step are left, the last one's values stay.
  if (tokens > 0) {
    totals_.train_loss = loss_sum / static_cast<double>(tokens);
    gradient_norm_ = norm_sum / static_cast<double>(trained);
  }
  totals_.clock_s = before_.clock_s + in_seconds(now.time_since_epoch());
  totals_.wall_s = before_.wall_s + wall - started_;

  JsonLine train = line("train");
  train.add("step", t.value())
      .add("loss", totals_.train_loss)
      .add("lr", posts.front().learning_rate)
      .add("grad_norm", gradient_norm_)
      .add("tok_s", tokens_per_s)
      .add("tokens", totals_.tokens);
  add_clock(train, now);
  append(train);
  if (totals_.compute_s.size() > 1) {
    for (const StepPost& post : posts) {
      const InnerStep& inner = post.report.inner;
      if (inner.idle) continue;
      append(line("worker")
                 .add("w", post.rank.value())
                 .add("step", t.value())
                 .add("loss", inner.loss)
                 .add("grad_norm", inner.grad_norm)
                 .add("tokens", inner.tokens));
    }
  }
  const bool by_arrival = std::ranges::any_of(posts, [](const StepPost& post) {
    return !post.report.rounds.empty() && post.report.rounds.front().merge > 0;
  });
  if (by_arrival) {
    merges(t, posts);
  } else if (options_.config.outer.late == LateRound::kSlip || !slipping_.empty()) {
    rounds_that_slip(t, posts);
  } else {
    rounds(t, posts);
  }
  if (options_.status != nullptr) {
    options_.status->step({.step = t.value(),
                           .learning_rate = posts.front().learning_rate,
                           .gradient_norm = gradient_norm_,
                           .tokens_per_s = tokens_per_s},
                          totals_);
  }
  if (options_.on_step) {
    options_.on_step(t.value());
  }
  show(t, posts, tokens_per_s);
}

std::uint64_t MetricsLog::scaled(std::uint64_t bytes) const {
  return static_cast<std::uint64_t>(std::llround(static_cast<double>(bytes) * options_.byte_scale));
}

// All workers apply the same rounds in the same order; a worker that dies may miss the last.
void MetricsLog::rounds(StepIndex t, const std::vector<StepPost>& posts) {
  for (std::size_t i = 0; i < posts.front().report.rounds.size(); ++i) {
    std::map<int, RoundReport> reports;
    for (const StepPost& post : posts) {
      if (post.report.rounds.size() <= i) continue;
      reports.emplace(post.rank.value(), post.report.rounds[i]);
    }
    round(t, reports);
  }
}

// Each worker applies a round after its own step, so the round's line comes with the last of them.
// A worker that has gone is not waited for, nor, after two windows, a worker that came after the
// round.
void MetricsLog::rounds_that_slip(StepIndex t, const std::vector<StepPost>& posts) {
  for (const StepPost& post : posts) {
    for (const RoundReport& report : post.report.rounds) {
      slipping_[{report.sent, report.fragment}].emplace(post.rank.value(), report);
    }
  }
  for (auto entry = slipping_.begin(); entry != slipping_.end();) {
    const std::map<int, RoundReport>& reports = entry->second;
    const bool over = entry->first.first.value() + 2 * options_.config.outer.H < t.value() ||
                      std::ranges::all_of(posts, [&](const StepPost& post) {
                        return reports.contains(post.rank.value());
                      });
    if (over && reports.contains(static_cast<int>(options_.self))) round(t, reports);
    entry = over ? slipping_.erase(entry) : std::next(entry);
  }
}

// All workers apply the same merges in the same order, each after some step. The line comes with
// the first of these steps, of which a checkpoint holds the merge: a run that goes on from there
// keeps the line, and the workers that had not applied the merge take it over without a report.
void MetricsLog::merges(StepIndex t, const std::vector<StepPost>& posts) {
  std::map<std::int64_t, std::map<int, RoundReport>> applied;
  for (const StepPost& post : posts) {
    for (const RoundReport& report : post.report.rounds) {
      if (report.merge > last_merge_) applied[report.merge].emplace(post.rank.value(), report);
    }
  }
  for (const auto& [merge, reports] : applied) {
    round(t, reports);
    last_merge_ = merge;
  }
}

void MetricsLog::round(StepIndex t, const std::map<int, RoundReport>& reports) {
  RoundReport round = reports.begin()->second;
  const auto own = reports.find(static_cast<int>(options_.self));
  const auto self = own == reports.end() ? reports.begin() : own;
  ISTHMUS_CHECK(own != reports.end() || round.merge > 0, options_.self, t.value());
  round.applied = self->second.applied;
  round.waited = self->second.waited;
  ++totals_.rounds;
  if (round.closing) {
    ++totals_.closing.rounds;
    totals_.closing.payload_bytes += scaled(round.payload_bytes);
    totals_.closing.wire_bytes += scaled(round.wire_bytes);
    totals_.closing.wait_s += in_seconds(round.waited);
  }
  JsonLine record = line("round");
  record.add("step", t.value())
      .add("frag", round.fragment.value())
      .add("step_send", round.sent.value())
      .add("step_apply", round.applied.value())
      .add("bytes_payload", scaled(round.payload_bytes))
      .add("bytes_wire", scaled(round.wire_bytes))
      .add("members", round.members)
      .add("codec", options_.config.outer.codec)
      .add("delta_norm", round.delta_norm)
      .add("wait_s", in_seconds(round.waited));
  add_mean(record, "err", reports, &RoundReport::codec_error);
  add_mean(record, "cos", reports, &RoundReport::cosine);
  if (round.closing) record.add("closing", true);
  if (round.merge > 0) record.add("merge", round.merge).add("tokens", round.tokens);
  append(record);
  if (options_.status != nullptr) {
    options_.status->round(round, scaled(round.payload_bytes), scaled(round.wire_bytes));
  }
}

namespace {

/// Mean loss and targets of each source, as a JSON object.
std::string losses_by_source(const EvalResult& result,
                             const std::vector<EvaluationSource>& sources) {
  JsonLine all;
  for (std::size_t k = 0; k < sources.size(); ++k) {
    const bool last = k + 1 == sources.size();
    double loss = 0;
    std::int64_t tokens = 0;
    for (const EvalPart& part : result.parts) {
      if (part.batch < sources[k].first_part) continue;
      if (!last && part.batch >= sources[k + 1].first_part) continue;
      loss += part.loss_sum;
      tokens += part.tokens;
    }
    JsonLine one;
    one.add("loss", tokens > 0 ? loss / static_cast<double>(tokens) : 0).add("n_tokens", tokens);
    all.add_raw(sources[k].name, one.str());
  }
  return all.str();
}

}  // namespace

void MetricsLog::eval(const EvalResult& result) {
  totals_.eval_loss = result.loss;
  totals_.eval_step = result.step.value();
  // Every worker has posted the step by now and none the next one, so the totals are those of it.
  if (!options_.keeps_evals) evals_.clear();
  evals_.push_back({.step = totals_.eval_step,
                    .loss = result.loss,
                    .clock_s = totals_.clock_s,
                    .payload_bytes = std::ranges::max(totals_.payload_bytes),
                    .wire_bytes = std::ranges::max(totals_.wire_bytes)});
  JsonLine eval = line("eval");
  eval.add("step", result.step.value())
      .add("loss", result.loss)
      .add("ppl", std::exp(result.loss))
      .add("n_tokens", result.tokens);
  if (!options_.sources.empty()) {
    eval.add_raw("sources", losses_by_source(result, options_.sources));
  }
  eval.add("bytes_payload", evals_.back().payload_bytes)
      .add("bytes_wire", evals_.back().wire_bytes);
  add_clock(eval, result.now);
  append(eval);
  if (options_.status != nullptr) options_.status->eval(evals_.back());
}

void MetricsLog::event(const RunEvent& event) {
  const auto worker = static_cast<std::size_t>(event.who.value());
  JsonLine record = line("event");
  constexpr const char* kWhat[] = {"site left", "site joined", "evaluation incomplete",
                                   "site came back", "site healed"};
  static_assert(std::size(kWhat) == static_cast<std::size_t>(RunEvent::Kind::kHealed) + 1);
  record.add("what", kWhat[static_cast<int>(event.kind)]);
  if (event.kind == RunEvent::Kind::kJoined) {  // it is a new process, which counts from zero
    before_.payload_bytes[worker] = totals_.payload_bytes[worker];
    before_.wire_bytes[worker] = totals_.wire_bytes[worker];
    before_.compute_s[worker] = totals_.compute_s[worker];
  }
  record.add("step", event.step.value()).add("sites", event.present);
  if (event.kind == RunEvent::Kind::kEvalIncomplete) {
    record.add("batches", event.of).add("missing", event.missing);
    log_warning("no evaluation after step {}: {} of its {} batches are missing; {}",
                event.step.value(), event.missing, event.of, event.why);
  } else {
    record.add("site", options_.config.sites.at(worker).name);
    if (event.kind == RunEvent::Kind::kCameBack) {
      record.add("tokens_kept", event.work.kept_tokens).add("tokens_lost", event.work.lost_tokens);
      record.add("steps_alone", event.work.alone_steps)
          .add("tokens_alone", event.work.alone_tokens);
    } else if (event.kind != RunEvent::Kind::kHealed && options_.status != nullptr) {
      options_.status->membership(event.who, event.kind == RunEvent::Kind::kJoined);
    }
  }
  if (!event.why.empty()) record.add("why", event.why);
  append(record.add("t", unix_now()));
}

void MetricsLog::checkpoint(StepIndex t, std::uint64_t bytes, double duration_s) {
  last_checkpoint_ = monotonic_now();
  append(line("ckpt")
             .add("step", t.value())
             .add("bytes", bytes)
             .add("s", duration_s)
             .add("t", unix_now()));
  if (options_.status != nullptr) options_.status->checkpoint(t.value(), bytes, duration_s);
}

void MetricsLog::end(const std::string& status, const std::string& cause,
                     const std::optional<LateStatus>& late) {
  JsonLine end = line("end");
  end.add("status", status).add("step", totals_.steps).add("t", unix_now());
  if (!cause.empty()) end.add("cause", cause);
  if (late) end.add("late_rounds", late->rounds).add("late_steps_skipped", late->steps_skipped);
  append(end);
  metrics_.sync();
  if (options_.tensorboard) {
    options_.tensorboard->finish();
  }
}

void MetricsLog::show(StepIndex t, const std::vector<StepPost>& posts, double tokens_per_s) {
  if (progress_ == nullptr || !progress_->due()) {
    return;
  }
  const double elapsed = std::max(totals_.wall_s - before_.wall_s, 1e-9);
  ProgressUpdate update{.done = t.value(),
                        .total = options_.total_steps,
                        .loss = totals_.train_loss,
                        .eval_loss = totals_.eval_loss,
                        .eval_step = totals_.eval_step,
                        .tokens_per_s = tokens_per_s,
                        .rounds = static_cast<int>(totals_.rounds)};
  if (options_.simulated) {
    update.simulated_s = totals_.clock_s;
  }
  for (const std::uint64_t bytes : totals_.wire_bytes) {
    update.bytes_sent += bytes;
  }
  update.checkpoint_age_s = last_checkpoint_ < 0 ? -1 : monotonic_now() - last_checkpoint_;
  for (std::size_t i = 0; totals_.compute_s.size() > 1 && i < posts.size(); ++i) {
    const auto m = static_cast<std::size_t>(posts[i].rank.value());
    update.workers.push_back({.name = options_.config.sites[m].name,
                              .step = t.value(),
                              .compute_share = options_.simulated
                                                   ? totals_.compute_s[m] / totals_.clock_s
                                                   : totals_.compute_s[m] / elapsed,
                              .tokens_per_s = tokens_per_s / static_cast<double>(posts.size())});
  }
  if (!options_.lane.empty()) {
    update.lanes = options_.finished_lanes;
    update.lanes.push_back(
        {.name = options_.lane,
         .fraction = static_cast<double>(t.value()) / static_cast<double>(options_.total_steps),
         .text = fmt::format("loss {:.3f}   {} simulated", totals_.train_loss,
                             human_time(totals_.clock_s))});
  }
  progress_->update(update);
}

void MetricsLog::rank(StepIndex t, const RankFinding& finding) {
  const MeshPosition& at = finding.at;
  const std::string who =
      fmt::format("rank {} (tp {}, pp {}, dp {})", finding.rank, at.tp, at.pp, at.dp);
  const std::string_view verb = trouble_verb(finding.trouble);
  if (finding.over) {
    log_warning("{} {} as fast as its peers again, since step {} it did not", who, verb,
                finding.since);
  } else {
    log_warning("{} {} {:.1f} times slower than its peers since step {}", who, verb, finding.factor,
                finding.since);
  }
  append(line("rank")
             .add("step", t.value())
             .add("rank", finding.rank)
             .add("tp", at.tp)
             .add("pp", at.pp)
             .add("dp", at.dp)
             .add("what", verb)
             .add("over", finding.over)
             .add("factor", finding.factor)
             .add("since", finding.since)
             .add("t", unix_now()));
  if (options_.status != nullptr) options_.status->rank(finding);
}

}  // namespace isthmus::app
