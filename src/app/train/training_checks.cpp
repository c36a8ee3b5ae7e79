// SPDX-License-Identifier: Apache-2.0
// What a run is checked for before it writes anything, and whom it meets.
#include <fmt/format.h>

#include "app/train/memory_check.h"
#include "app/train/model_json.h"
#include "app/train/offload.h"
#include "app/train/rank_communicators.h"
#include "app/train/run_parts.h"
#include "app/train/training_run.h"
#include "config/schema/device_request.h"
#include "core/base/log.h"
#include "core/state/checkpoint_names.h"
#include "data/batch_source.h"
#include "inner/hf/hf_weights.h"
#include "inner/model/schedule.h"
#include "kernels/isa.h"
#include "session/run/owner_shares.h"
#include "session/run/run_worlds.h"
#include "session/site/site_links.h"
#include "transport/exchange/reduction.h"

namespace isthmus::app {
namespace {

/// The run's data, not yet hashed, unless they are open already.
std::optional<OpenData> open_own(const Storage& storage, const Config& config,
                                 const TrainingRequest& request) {
  if (request.side_by_side && request.side_by_side->data != nullptr) {
    return std::nullopt;
  }
  return OpenData{Dataset::open(storage, config.data, config.file.parent_path()), {}};
}

}  // namespace

std::optional<WorkerId> own_rank(const Config& config, const TrainingRequest& request) {
  return request.site ? std::optional(site_of(config, *request.site)) : std::nullopt;
}

Training::Training(const Config& config, const TrainingRequest& request, Session& session)
    : config_(config),
      request_(request),
      session_(session),
      layout_(model_shape(config.model, config.train.context)),
      plan_(make_training_plan(config, kernels::usable_cores(), own_rank(config, request))),
      own_data_(open_own(storage_, config, request)),
      data_(own_data_ ? own_data_->data : request.side_by_side->data->data),
      eval_tokens_(app::eval_tokens(config, data_)),
      digest_(config_digest(config)),
      out_(request.out.empty() ? config.run.out : request.out),
      resume_(request.site ? std::nullopt : find_resume(storage_, out_, request.resume)),
      goes_on_(request.resume == "auto" ||
               (resume_ && !out_.empty() &&
                is_same_place(resume_->folder().parent_path(), out_ / "ckpt"))) {
  plan_.processes = request.mesh;
  plan_.json = session.json;
  if (!request.side_by_side) {
    plan_.device = choose_device(config, plan_, layout_, request.simulated);
  } else if (asks_for_cuda(config)) {
    throw ConfigError(
        fmt::format("train.device = \"{}\": runs side by side compute on the CPU; leave it out",
                    config.train.device));
  } else if (config.train.attention == "cudnn" && !request.simulated) {
    throw ConfigError(
        "train.attention = \"cudnn\": runs side by side compute on the CPU; set it to \"own\"");
  } else if (outer_is_on_device(config) && !request.simulated) {
    throw ConfigError(
        "outer.placement = \"device\": runs side by side compute on the CPU; set it to \"host\"");
  }
  if (!request.side_by_side) {
    kernels::use_isa(kernels::isa_named(config.train.kernels));
  }
  check();
  if (own_data_) {
    own_data_->fingerprint = data_.fingerprint();
  }
  fingerprint_ = own_data_ ? own_data_->fingerprint : request.side_by_side->data->fingerprint;
  check_resume();
}
void Training::check() const {
  data_.check_vocabulary(config_.model.vocab);
  for (int m = 0; m < plan_.workers; ++m) {
    const BatchSource source(data_, batch_plan(config_, plan_), m);
  }
  if (eval_tokens_ >= 0) {
    const ValidationSource windows(data_, config_.train.context, eval_tokens_, config_.model.vocab,
                                   parse_validation_part(config_.eval.part));
  }
  const std::vector<Parameter> parameters = parameters_without_values(layout_);
  const PredictionInput exchange =
      prediction_input(config_.method, config_.outer, parameters, plan_.workers, plan_.total_steps);
  if (config_.net.reduction == "groups" &&
      resolve_reduction(exchange.exchange, *exchange.codec, plan_.workers) !=
          ReductionKind::kReduce) {
    throw ConfigError(fmt::format(
        "net.reduction = \"groups\": with outer.codec = {} and {} workers all would be sent to "
        "all, "
        "where groups have nothing to sum; remove it, or set outer.exchange = \"reduce\"",
        exchange.codec->name(), plan_.workers));
  }
  (void)owner_shares(config_);
  check_measuring_links(config_, request_.site && request_.site->mpi,
                        request_.site && is_elastic(config_, *request_.site));
  if (config_.net.deadline && request_.site && request_.site->mpi) {
    throw ConfigError(
        "net.deadline over MPI: there all sites take part in every round, as none may be lost; "
        "remove it");
  }
  (void)LearningRateSchedule(config_.inner, plan_.total_steps);
  check_offload(config_, plan_, layout_, own_rank(config_, request_));
  check_memory(config_, plan_, layout_, memory_limit(), request_.command == "train");
  check_rank_communicators(config_, plan_);
  if (!config_.model.init.empty()) {
    check_hf_weights(storage_, config_.locate(config_.model.init), parameters);
  }
  if (request_.simulated || request_.emulated) {
    check_links(config_);
  }
  if (!config_.faults.empty() && !request_.simulated) {
    throw ConfigError(fmt::format(
        "[[fault]] is what goes wrong in virtual time, and {}: remove the {}, or use `simulate`",
        request_.emulated ? "--emulate takes real time" : "this run takes real time",
        config_.faults.size() == 1 ? "entry" : "entries"));
  }
  if (!request_.simulated) {
    for (const LinkConfig& link : config_.links) {
      if (link.trace.empty()) continue;
      throw ConfigError(fmt::format(
          "[[link]] {} - {}: trace = \"{}\" says rates in virtual time, and {}: give it a rate, or "
          "use `simulate`",
          link.a, link.b, link.trace.string(),
          request_.emulated ? "--emulate takes real time" : "this run takes real time"));
    }
  }
  if (!config_.log.http.empty()) {
    (void)parse_http_address("log.http", config_.log.http);
  }
  check_force();
}

void Training::check_force() const {
  if (!request_.force || goes_on_ || out_.empty()) {
    return;
  }
  if (!config_.model.init.empty() &&
      lies_within(config_.locate(config_.model.init), out_ / "ckpt")) {
    throw ConfigError(
        fmt::format("--force would remove model.init = \"{}\" with the run in '{}': choose another "
                    "--out, or export the model first",
                    config_.model.init.string(), out_.string()));
  }
  const auto check_file = [&](const char* key, const std::filesystem::path& file,
                              std::string_view folder) {
    if (file.empty() || !lies_within(file, out_ / folder)) return;
    throw ConfigError(fmt::format(
        "--force would remove {} = \"{}\" with the run in '{}': choose another --out, or "
        "copy the file first",
        key, file.string(), out_.string()));
  };
  for (const LinkConfig& link : config_.links) check_file("link.trace", link.trace, kTracesFolder);
  check_file("net.table", config_.net.table, kWaysFolder);
}

void Training::check_resume() const {
  if (resume_) {
    check_same_configuration(storage_, *resume_, config_, digest_);
    check_same_data(*resume_, fingerprint_);
    if (resume_->info().only_worker && !request_.site && plan_.workers > 1) {
      throw ConfigError(fmt::format(
          "checkpoint {} holds one site's state alone: go on at all sites with train --site NAME "
          "--resume auto, or start a new run from its model with model.init",
          resume_->folder().string()));
    }
  }
}

void Training::let_watch() {
  if (request_.side_by_side || config_.log.http.empty()) {
    return;
  }
  HttpAddress address = parse_http_address("log.http", config_.log.http);
  if (address.port > 0 && request_.site && request_.site->mpi) {
    address.port += own_rank(config_, request_)->value();  // several may be on one machine
  }
  StatusBoard::Options options;
  options.total_steps = plan_.total_steps;
  options.simulated = request_.simulated;
  options.stalled_after = config_.log.stalled_after;
  for (const SiteConfig& site : config_.sites) options.sites.push_back(site.name);
  options.self = own_rank(config_, request_);
  options.hub = request_.site && has_hub(config_, *request_.site);
  options.links_tell = !(request_.site && request_.site->mpi);
  watch_.emplace(storage_, address, std::move(options));
  if (request_.site) watch_->board().waiting("all of them");
}

void Training::tell_device() const {
  if (request_.side_by_side) return;
  log_info("the inner loop computes on {}{}", device_text(plan_.device, plan_),
           plan_.device.note.empty() ? "" : ": " + plan_.device.note);
}

void Training::join_sites() {
  SiteFacts facts{.run_id = random_id(),
                  .layout = layout_digest(layout_),
                  .common = common_values(config_),
                  .resumes = request_.resume == "auto",
                  .folder = out_,
                  .held = {},
                  .late = request_.in_hand != nullptr ? request_.in_hand->late : LateStatus()};
  append_shares(config_, facts.common);
  facts.common.emplace_back("outer.commit, given where sites may be lost",
                            takes_steps_back(config_, *request_.site) ? "yes" : "no");
  facts.common.emplace_back("layout of the model", facts.layout.hex());
  append_data(fingerprint_, facts.common);
  if (facts.resumes) {
    HeldCheckpoints here =
        held_checkpoints(storage_, out_, config_, digest_, site_of(config_, *request_.site));
    facts.held = std::move(here.held);
    facts.unreadable = here.unreadable;
  }
  site_.emplace(config_, *request_.site, facts, status(), request_.recording);
  const auto say = [&](const std::string& what) {
    if (watch_) watch_->board().waiting(what);
    session_.err.write(fmt::format("isthmus: waiting for the other sites: {}\n", what));
  };
  InHand none;
  InHand& hand = request_.in_hand != nullptr ? *request_.in_hand : none;
  const SiteStart start =
      site_->gather(say, {.goes_on = [&] { return hand.training && hand.training->trains(); },
                          .end = [&] { hand.end_training(); }});
  run_id_ = start.run_id;
  joins_ = start.joins;
  for (const HeldCheckpoint& held : facts.held) {
    if (joins_ && held.run_id != run_id_) {
      throw ConfigError(fmt::format(
          "'{}' holds checkpoints of run {}, and the others are in run {}: give another --out, or "
          "--force",
          out_.string(), held.run_id, run_id_));
    }
  }
  given_up_ = start.given_up;
  if (start.resume_after) {
    CheckpointStore(storage_, out_ / "ckpt", config_.ckpt.keep).recover();
    resume_ = Checkpoint::open(storage_, out_ / "ckpt" / step_name(*start.resume_after));
    check_resume();
  }
}

double Training::byte_scale() const {
  return request_.simulated ? surrogate_byte_scale(config_, layout_) : 1.0;
}

Manifest Training::manifest() const {
  Manifest manifest = make_manifest(config_, request_.command, session_.argv);
  manifest.config_hash = digest_;
  manifest.simulated = request_.simulated;
  manifest.surrogate = request_.simulated ? config_.surrogate : std::nullopt;
  manifest.parameters = layout_.elements();
  manifest.model = model_json(config_, layout_.elements());
  manifest.device = device_text(plan_.device, plan_);
  for (const DataFile& file : fingerprint_) {
    manifest.data.push_back({file.path, file.bytes, file.sha256});
  }
  if (resume_) {
    if (goes_on_) {
      manifest.run_id = resume_->info().run_id;  // the same run goes on
    } else {
      manifest.parent = resume_->info().run_id;
    }
  } else if (!run_id_.empty()) {
    manifest.run_id = run_id_;
  }
  return manifest;
}

}  // namespace isthmus::app
