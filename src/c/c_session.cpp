// SPDX-License-Identifier: Apache-2.0
// Runs, pulled: a session's threads ask, the caller's threads answer.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c/c_errors.h"
#include "c/c_tables.h"
#include "c/handed_ranks.h"
#include "c/handed_trainer.h"
#include "config/links_file.h"
#include "core/base/deadline.h"
#include "core/base/fault_point.h"
#include "core/base/log.h"
#include "core/base/storage.h"
#include "core/state/checkpoint.h"
#include "isthmus/config.h"
#include "isthmus/errors.h"
#include "isthmus/session.h"
#include "session/checks/data_notes.h"
#include "session/run/run_samples.h"
#include "session/site/site_links.h"
#include "session/site/site_start.h"

namespace isthmus::c {
namespace {

/// How long a freed session waits for its run, which ends at once unless it waits for other sites.
constexpr Duration kEndsWithin = std::chrono::seconds(5);

struct Worker {
  std::unique_ptr<Channel> channel;
  std::vector<Parameter> parameters;
  std::vector<std::span<float>> gradients;  // of a run under ddp
  bool copies = false;                      // the caller's parameters live elsewhere
  std::vector<std::uint8_t> found;          // the last entry that isthmus_state_bytes has read
  std::string found_name;
  std::vector<std::int64_t> parts;
  std::unique_ptr<app::RunSamples> samples;  // made at the first question
  std::optional<Checkpoint> last;            // of a run that has ended, likewise
};

}  // namespace
}  // namespace isthmus::c

struct isthmus_session {
  isthmus::SystemRuntime runtime;
  isthmus::SystemStorage storage;
  isthmus::Config config;
  isthmus::RunArguments arguments;
  isthmus::TrainerFacts facts;
  std::int64_t evaluation_parts = 0;
  std::string config_json;
  int first = 0;
  std::vector<isthmus::c::Worker> workers;       // of this process
  std::optional<isthmus::c::HandedRanks> ranks;  // that hold the outer state of this site
  std::atomic<bool> told_of_data{false};         // whether the notes about the data have been told
  isthmus::Wishes wishes;
  std::unique_ptr<isthmus::WaitQueue> queue = runtime.make_wait_queue();
  std::optional<isthmus::RunEnd> end;  // under the lock of queue
  bool over = false;                   // likewise
  std::unique_ptr<isthmus::Task> run;  // last: its end needs all of the above
};

namespace isthmus::c {
namespace {

std::string text_or(const char* text, const char* otherwise) {
  return text != nullptr ? text : otherwise;
}

std::vector<std::pair<std::string, std::string>> common_of(const char* json) {
  if (json == nullptr) return {};
  const auto object = nlohmann::json::parse(json, nullptr, false);
  if (!object.is_object())
    throw ConfigError("isthmus_session_options.common: must be a JSON object of texts");
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_string())
      throw ConfigError(fmt::format("isthmus_session_options.common: \"{}\" must be a text", name));
    pairs.emplace_back(name, value.get<std::string>());
  }
  return pairs;
}

Worker& worker_of(isthmus_session* session, std::int32_t worker, const char* function) {
  require(session, function, "session");
  if (worker < 0 || worker >= std::ssize(session->workers))
    throw ConfigError(fmt::format("{}: worker = {}: this process has workers 0 to {}", function,
                                  worker, session->workers.size() - 1));
  return session->workers[static_cast<std::size_t>(worker)];
}

/// Opens the data at the first question.
app::RunSamples& samples_of(isthmus_session* session, std::int32_t worker, const char* what) {
  Worker& own = worker_of(session, worker, what);
  if (!own.samples) {
    own.samples = std::make_unique<app::RunSamples>(SystemStorage(), session->config,
                                                    WorkerId(session->first + worker));
  }
  return *own.samples;
}

std::unique_ptr<isthmus_session> made(const isthmus_session_options* given) {
  const isthmus_session_options options = taken(given, "isthmus_session_options");
  require(options.config, "isthmus_session_new", "config");
  std::vector<std::string> overrides = {"train.trainer=\"external\""};
  for (std::string& each :
       texts_of(options.overrides, options.override_count, "isthmus_session_new"))
    overrides.push_back(std::move(each));
  auto session = std::make_unique<isthmus_session>();
  ChangedRun loaded =
      load_changed_run(options.config, overrides,
                       texts_of(options.changes, options.change_count, "isthmus_session_new"));
  session->config = std::move(loaded.config);
  check_handed(session->config);
  if (options.link != nullptr)
    replace_links(session->config, {parse_link(options.link)},
                  fmt::format("link {}", options.link));
  if (options.links != nullptr) use_links_file(session->config, options.links);
  app::set_addresses(session->config,
                     texts_of(options.addresses, options.address_count, "isthmus_session_new"),
                     "address");
  session->config_json = json_of_toml(resolved_toml(session->config), options.config);
  session->arguments = {.site = text_or(options.site, ""),
                        .listen = text_or(options.listen, ""),
                        .key_file = text_or(options.key_file, ""),
                        .simulated = options.simulated != 0,
                        .out = text_or(options.out, ""),
                        .resume = text_or(options.resume, "never"),
                        .force = options.force != 0,
                        .argv = {"libisthmus"},
                        .changes = std::move(loaded.changes)};
  session->facts = {.parameters = {},
                    .kind = text_or(options.kind, "external"),
                    .common = common_of(options.common)};
  constexpr std::int64_t kMostParts = 1'000'000;
  if (options.evaluation_parts < -1 || options.evaluation_parts > kMostParts)
    throw ConfigError(
        fmt::format("isthmus_session_options.evaluation_parts = {}: must be in -1 .. {}",
                    options.evaluation_parts, kMostParts));
  if (session->arguments.resume.empty())
    throw ConfigError(
        "isthmus_session_options.resume = \"\": must be \"never\", \"auto\", or a run's folder or "
        "checkpoint");
  session->evaluation_parts = options.evaluation_parts;
  int local = session->config.workers();
  if (!session->arguments.site.empty()) {
    local = 1;
    const std::string& site = session->arguments.site;
    session->first =
        app::place_of_site(session->config, site, fmt::format("site \"{}\"", site)).value();
  }
  for (int worker = 0; worker < local; ++worker) {
    session->workers.emplace_back().channel = std::make_unique<Channel>(session->runtime);
  }
  if (options.evaluation_parts < 0) {
    const app::RunSamples& samples = samples_of(session.get(), 0, "isthmus_session_new");
    session->evaluation_parts = samples.parts();
    session->facts.evaluation_sources = samples.sources();
    session->facts.data = samples.fingerprint();  // sites and checkpoints compare it
  }
  session->facts.evaluation_parts = session->evaluation_parts;
  return session;
}

/// The outer parameters of a run that has ended, which its last checkpoint holds.
void copy_last_values(const isthmus_session& session, const RunEnd& end, Worker& own,
                      const Parameter& parameter, std::span<float> values) {
  if (!own.last) {
    own.last = Checkpoint::open(session.storage, find_checkpoint(session.storage, end.directory));
  }
  if (own.last->info().step != end.steps) {
    throw RunError(fmt::format(
        "isthmus_outer_values: the run has ended after step {}, and its last checkpoint, '{}', is "
        "of step {}: read that one",
        end.steps, own.last->folder().string(), own.last->info().step));
  }
  own.last->read_model(parameter.name, parameter.shape, values);
}

/// The parameter of a worker's that isthmus_outer_values is asked for.
const Parameter& parameter_of(const Worker& own, std::size_t parameter, const float* values,
                              std::size_t count) {
  if (parameter >= own.parameters.size())
    throw ConfigError(fmt::format(
        "isthmus_outer_values: parameter = {}: must be below {}, the number of parameters",
        parameter, own.parameters.size()));
  const Parameter& found = own.parameters[parameter];
  if (found.values.size() != count)
    throw ConfigError(
        fmt::format("isthmus_outer_values: count = {}: must be {}, the values of parameter '{}'",
                    count, found.values.size(), found.name));
  if (count > 0) require(values, "isthmus_outer_values", "values");
  return found;
}

/// The elements of a caller's array, whose header may have another size for them.
std::vector<isthmus_parameter> array_of(const isthmus_parameter* given, std::size_t count) {
  std::vector<isthmus_parameter> own;
  const auto* at = reinterpret_cast<const char*>(given);
  for (std::size_t p = 0; p < count; ++p) {
    own.push_back(taken(reinterpret_cast<const isthmus_parameter*>(at), "isthmus_parameter"));
    if (own.back().size != own.front().size)
      throw ConfigError(fmt::format(
          "isthmus_parameter.size = {}: must be {}, as in the first element of the array",
          own.back().size, own.front().size));
    at += own.back().size;
  }
  return own;
}

/// `empty`: without values, at a rank that has no run.
std::vector<Parameter> parameters_of(const isthmus_parameter* array, std::size_t count,
                                     bool empty) {
  std::vector<Parameter> parameters;
  const std::vector<isthmus_parameter> given = array_of(array, count);
  std::int64_t begin = 0;
  for (std::size_t p = 0; p < count; ++p) {
    require(given[p].name, "isthmus_session_worker", "a parameter's name");
    std::int64_t values = 1;
    Parameter made{.name = given[p].name,
                   .layer = given[p].layer,
                   .shape = {},
                   .elements = {},
                   .values = {},
                   .decay = given[p].dimensions >= 2};
    for (std::size_t d = 0; d < given[p].dimensions; ++d) {
      made.shape.push_back(given[p].shape[d]);
      values *= given[p].shape[d];
    }
    if (values > 0 && given[p].values == nullptr && !empty)
      throw ConfigError(
          fmt::format("isthmus_session_worker: parameter '{}' has no values", made.name));
    made.elements = {begin, begin + values};
    if (!empty) made.values = {given[p].values, static_cast<std::size_t>(values)};
    begin += values;
    parameters.push_back(std::move(made));
  }
  return parameters;
}

/// THROWS: ConfigError for a parameter that has none.
std::vector<std::span<float>> gradients_of(const isthmus_parameter* array,
                                           const std::vector<Parameter>& parameters) {
  const std::vector<isthmus_parameter> given = array_of(array, parameters.size());
  std::vector<std::span<float>> gradients;
  for (std::size_t p = 0; p < given.size(); ++p) {
    const std::size_t values = parameters[p].values.size();
    if (values > 0 && given[p].gradient == nullptr)
      throw ConfigError(
          fmt::format("isthmus_session_worker: parameter '{}' has no gradient: outer.method = "
                      "\"ddp\" exchanges "
                      "gradients, isthmus_parameter.gradient says where they are",
                      parameters[p].name));
    gradients.emplace_back(given[p].gradient, values);
  }
  return gradients;
}

/// Where a batch goes that a caller asks for.
struct BatchArrays {
  std::int32_t* inputs = nullptr;
  std::int32_t* targets = nullptr;
  std::int32_t* positions = nullptr;  // of isthmus_packed_...
  std::size_t count = 0;
  bool packed = false;
};

void copy_batch(const TokenBatch& batch, const BatchArrays& to, const char* what) {
  const auto& [inputs, targets, positions, count, packed] = to;
  if (count < batch.inputs.size())
    throw ConfigError(fmt::format("{}: count = {}: the batch has {} token ids ({} sequences of {})",
                                  what, count, batch.inputs.size(), batch.sequences, batch.length));
  require(inputs, what, "inputs");
  require(targets, what, "targets");
  if (!batch.document_starts.empty() && !packed)
    throw ConfigError(
        fmt::format("{}: data.pack = \"documents\": a trainer needs each token's position in its "
                    "document; call isthmus_packed_batch and isthmus_packed_validation (Python: "
                    "site.batch(positions=True), site.validation(part, positions=True)), or set "
                    "data.pack to \"stream\"",
                    what));
  std::ranges::copy(batch.inputs, inputs);
  std::ranges::copy(batch.targets, targets);
  if (!packed) return;
  require(positions, what, "positions");
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    const auto place = static_cast<std::int32_t>(i % static_cast<std::size_t>(batch.length));
    positions[i] = place - (batch.document_starts.empty() ? 0 : batch.document_starts[i]);
  }
}

void hand_batch(isthmus_session* session, std::int32_t worker, std::int64_t step,
                const BatchArrays& to, const char* what) {
  app::RunSamples& own = samples_of(session, worker, what);
  if (step < 1) throw ConfigError(fmt::format("{}: step = {}: steps begin at 1", what, step));
  if (!session->told_of_data.exchange(true)) {
    for (const std::string& each : app::notes_on_data(session->config, own.data()))
      log_warning("{}", each);
  }
  copy_batch(own.batch(StepIndex(step)), to, what);
}

void hand_validation(isthmus_session* session, std::int32_t worker, std::int64_t part,
                     const BatchArrays& to, std::int64_t* sequences, const char* what) {
  app::RunSamples& own = samples_of(session, worker, what);
  require(sequences, what, "sequences");
  if (part < 0 || part >= own.parts())
    throw ConfigError(
        fmt::format("{}: part = {}: the evaluation has {} parts", what, part, own.parts()));
  const TokenBatch batch = own.part(part);
  copy_batch(batch, to, what);
  *sequences = batch.sequences;
}

std::unique_ptr<Trainer> trainer_of(isthmus_session& session, const WorkerContext& context) {
  const int place = session.arguments.site.empty() ? context.rank.value() : 0;
  Worker& worker = session.workers[static_cast<std::size_t>(place)];
  return std::make_unique<HandedTrainer>(*worker.channel, worker.parameters, worker.copies,
                                         worker.gradients, session.evaluation_parts,
                                         session.ranks ? &*session.ranks : nullptr);
}

void run(isthmus_session& session) {
  std::exception_ptr failure;
  std::optional<RunEnd> end;
  try {
    end = run_session(
        session.config, session.arguments, session.facts,
        [&](const WorkerContext& context) { return trainer_of(session, context); }, session.wishes);
  } catch (...) {
    failure = std::current_exception();
  }
  session.queue->update([&] { session.end = end; });  // before anybody hears that it is there
  for (Worker& each : session.workers) each.channel->finish(failure);
  session.queue->update([&] { session.over = true; });
}

constexpr Asked::Kind kTrained[] = {Asked::Kind::kTrain, Asked::Kind::kGradients,
                                    Asked::Kind::kApply, Asked::Kind::kReplay};
constexpr Asked::Kind kEvaluated[] = {Asked::Kind::kEvaluate};
constexpr Asked::Kind kDone[] = {Asked::Kind::kSave, Asked::Kind::kLoad,  Asked::Kind::kRestart,
                                 Asked::Kind::kRead, Asked::Kind::kWrote, Asked::Kind::kRanks};

std::int32_t number_of(Asked::Kind kind) {
  switch (kind) {
    case Asked::Kind::kTrain:
      return ISTHMUS_TRAIN;
    case Asked::Kind::kSave:
      return ISTHMUS_SAVE;
    case Asked::Kind::kLoad:
      return ISTHMUS_LOAD;
    case Asked::Kind::kRestart:
      return ISTHMUS_RESTART;
    case Asked::Kind::kEvaluate:
      return ISTHMUS_EVALUATE;
    case Asked::Kind::kRead:
      return ISTHMUS_READ;
    case Asked::Kind::kWrote:
      return ISTHMUS_WROTE;
    case Asked::Kind::kGradients:
      return ISTHMUS_GRADIENTS;
    case Asked::Kind::kApply:
      return ISTHMUS_APPLY;
    case Asked::Kind::kReplay:
      return ISTHMUS_REPLAY;
    case Asked::Kind::kRanks:
      return ISTHMUS_RANKS;
  }
  return ISTHMUS_NOTHING;
}

/// Where the call `function` puts what it finds. THROWS: ConfigError.
isthmus_request checked_request(const isthmus_request* request, const char* function) {
  require(request, function, "request");
  return taken(request, "isthmus_request");
}

void wait_for_next(isthmus_session* session, std::int32_t worker, std::int64_t timeout_ns,
                   isthmus_request* request, const char* function) {
  Worker& own = worker_of(session, worker, function);
  isthmus_request found_request = checked_request(request, function);
  if (!session->run)
    throw ConfigError(
        fmt::format("{}: the run has not begun: call isthmus_session_start first", function));
  Asked asked;
  const TimePoint deadline =
      deadline_after(session->runtime.clock().now(), std::chrono::nanoseconds(timeout_ns));
  const Channel::Next found = own.channel->next(deadline, asked);
  found_request.kind = found == Channel::Next::kEnd       ? ISTHMUS_END
                       : found == Channel::Next::kNothing ? ISTHMUS_NOTHING
                                                          : number_of(asked.kind);
  found_request.step = asked.step.value();
  found_request.wrote = asked.wrote ? 1 : 0;
  found_request.first = asked.elements.begin;
  found_request.end = asked.elements.end;
  found_request.until = std::max(asked.until, asked.step).value();
  found_request.log_lines = isthmus_log_waiting();
  own.parts = std::move(asked.parts);
  found_request.parts = own.parts.data();
  found_request.part_count = own.parts.size();
  give(found_request, request);
  own.found_name.clear();
}

void give_answer(isthmus_session* session, std::int32_t worker, const isthmus_step* given,
                 const char* function) {
  Worker& own = worker_of(session, worker, function);
  if (given == nullptr) {
    own.channel->answer({}, kDone);
    return;
  }
  const isthmus_step step = taken(given, "isthmus_step");
  if (step.tokens < 0)
    throw ConfigError(fmt::format("isthmus_step.tokens = {}: must be >= 0", step.tokens));
  own.channel->answer({.step = {.loss = step.loss,
                                .grad_norm = step.grad_norm,
                                .tokens = step.tokens,
                                .idle = step.skipped != 0},
                       .learning_rate = step.learning_rate,
                       .losses = {}},
                      kTrained);
}

}  // namespace
}  // namespace isthmus::c

using isthmus::c::Answer;
using isthmus::c::Asked;
using isthmus::c::Channel;
using isthmus::c::guarded;
using isthmus::c::owned_text;
using isthmus::c::require;
using isthmus::c::Worker;
using isthmus::c::worker_of;

isthmus_error* isthmus_session_new(const isthmus_session_options* options,
                                   isthmus_session** session) {
  return guarded([&] {
    require(options, "isthmus_session_new", "options");
    require(session, "isthmus_session_new", "session");
    *session = isthmus::c::made(options).release();
  });
}

const char* isthmus_session_config(const isthmus_session* session) {
  return session->config_json.c_str();
}
const char* isthmus_session_placement(const isthmus_session* session) {
  return session->config.outer_placement.c_str();
}
int32_t isthmus_session_workers(const isthmus_session* session) {
  return session->config.workers();
}
int32_t isthmus_session_local(const isthmus_session* session) {
  return static_cast<int32_t>(session->workers.size());
}
int32_t isthmus_session_first(const isthmus_session* session) { return session->first; }
int64_t isthmus_session_steps(const isthmus_session* session) {
  return isthmus::total_steps(session->config);
}

isthmus_error* isthmus_session_ranks(isthmus_session* session, int32_t rank, int32_t ranks,
                                     isthmus_ranks_call call, void* context) {
  return guarded([&] {
    require(session, "isthmus_session_ranks", "session");
    if (session->arguments.site.empty())
      throw isthmus::ConfigError(
          "isthmus_session_ranks: the ranks of a site need isthmus_session_options.site");
    if (session->run || !session->workers.front().parameters.empty())
      throw isthmus::ConfigError("isthmus_session_ranks: say so before isthmus_session_worker");
    session->ranks = isthmus::c::handed_ranks(rank, ranks, call, context);
  });
}

isthmus_error* isthmus_ranks(isthmus_session* session, int32_t worker) {
  return guarded([&] {
    Worker& own = worker_of(session, worker, "isthmus_ranks");
    if (!session->ranks)
      throw isthmus::ConfigError("isthmus_ranks: this session has no isthmus_session_ranks");
    isthmus::c::HandedRanks& ranks = *session->ranks;
    if (ranks.rank != 0) {
      if (!ranks.served)
        throw isthmus::ConfigError("isthmus_ranks: isthmus_session_worker comes first");
      ranks.served(*ranks.all);
      return;
    }
    own.channel->run_part(ranks);
  });
}

int64_t isthmus_ranks_calls(const isthmus_session* session) {
  return session->ranks ? *session->ranks->calls : 0;
}

isthmus_error* isthmus_session_worker(isthmus_session* session, int32_t worker,
                                      const isthmus_parameter* parameters, size_t count) {
  return guarded([&] {
    Worker& own = worker_of(session, worker, "isthmus_session_worker");
    if (count > 0) require(parameters, "isthmus_session_worker", "parameters");
    if (session->run)
      throw isthmus::ConfigError(
          "isthmus_session_worker: the run has begun: call it before isthmus_session_start");
    const bool empty = session->ranks && session->ranks->rank != 0;
    own.parameters = isthmus::c::parameters_of(parameters, count, empty);
    if (empty) session->ranks->served = isthmus::c::share_of_rank(session->config, own.parameters);
    if (session->config.method == "ddp" && !empty)
      own.gradients = isthmus::c::gradients_of(parameters, own.parameters);
  });
}

isthmus_error* isthmus_session_copies(isthmus_session* session, int32_t worker) {
  return guarded([&] {
    Worker& own = worker_of(session, worker, "isthmus_session_copies");
    if (session->run)
      throw isthmus::ConfigError(
          "isthmus_session_copies: the run has begun: call it before isthmus_session_start");
    own.copies = true;
  });
}

isthmus_error* isthmus_session_start(isthmus_session* session) {
  return guarded([&] {
    require(session, "isthmus_session_start", "session");
    if (session->run)
      throw isthmus::ConfigError("isthmus_session_start: the run has begun: call it once");
    if (session->ranks && session->ranks->rank != 0)
      throw isthmus::ConfigError("isthmus_session_start: rank 0 of a site has its run");
    for (size_t w = 0; w < session->workers.size(); ++w) {
      if (session->workers[w].parameters.empty())
        throw isthmus::ConfigError(
            fmt::format("isthmus_session_start: worker {} has no parameters: give them by "
                        "isthmus_session_worker",
                        w));
    }
    session->facts.parameters = session->workers.front().parameters;
    for (isthmus::Parameter& each : session->facts.parameters) each.values = {};
    session->run = session->runtime.spawn("isthmus run", [session] { isthmus::c::run(*session); });
  });
}

isthmus_error* isthmus_next(isthmus_session* session, int32_t worker, int64_t timeout_ns,
                            isthmus_request* request) {
  return guarded(
      [&] { isthmus::c::wait_for_next(session, worker, timeout_ns, request, "isthmus_next"); });
}

isthmus_error* isthmus_answer(isthmus_session* session, int32_t worker, const isthmus_step* step) {
  return guarded([&] { isthmus::c::give_answer(session, worker, step, "isthmus_answer"); });
}

isthmus_error* isthmus_answer_next(isthmus_session* session, int32_t worker,
                                   const isthmus_step* step, int64_t timeout_ns,
                                   isthmus_request* request) {
  return guarded([&] {
    (void)isthmus::c::checked_request(request,
                                      "isthmus_answer_next");  // else the step counts twice
    isthmus::c::give_answer(session, worker, step, "isthmus_answer_next");
    isthmus::c::wait_for_next(session, worker, timeout_ns, request, "isthmus_answer_next");
  });
}

isthmus_error* isthmus_answer_losses(isthmus_session* session, int32_t worker,
                                     const double* loss_sums, const int64_t* tokens, size_t count) {
  return guarded([&] {
    Worker& own = worker_of(session, worker, "isthmus_answer_losses");
    if (count != own.parts.size())
      throw isthmus::ConfigError(fmt::format(
          "isthmus_answer_losses: count = {}: must be {}, the parts that were asked for", count,
          own.parts.size()));
    if (count > 0) {
      require(loss_sums, "isthmus_answer_losses", "loss_sums");
      require(tokens, "isthmus_answer_losses", "tokens");
    }
    Answer answer;
    for (size_t i = 0; i < count; ++i) {
      if (tokens[i] < 0)
        throw isthmus::ConfigError(
            fmt::format("isthmus_answer_losses: tokens[{}] = {}: must be 0 or more", i, tokens[i]));
      answer.losses.push_back(
          {.batch = own.parts[i], .loss_sum = loss_sums[i], .tokens = tokens[i]});
    }
    own.channel->answer(std::move(answer), isthmus::c::kEvaluated);
  });
}

isthmus_error* isthmus_outer_values(isthmus_session* session, int32_t worker, size_t parameter,
                                    float* values, size_t count) {
  return guarded([&] {
    Worker& own = worker_of(session, worker, "isthmus_outer_values");
    std::optional<isthmus::RunEnd> end;
    session->queue->update([&] { end = session->end; });
    if (end) {
      const isthmus::Parameter& found = isthmus::c::parameter_of(own, parameter, values, count);
      isthmus::c::copy_last_values(*session, *end, own, found, {values, count});
      return;
    }
    own.channel->with_open([&](const Asked& open) {
      if (open.kind != Asked::Kind::kTrain)
        throw isthmus::ConfigError(
            "isthmus_outer_values: only while ISTHMUS_TRAIN is open and after ISTHMUS_END (under "
            "ddp the parameters are the outer ones)");
      if (open.outer == nullptr)
        throw isthmus::RunError(
            "isthmus_outer_values: this step has no outer parameters: the site is cut off, catches "
            "up, "
            "or its run has failed");
      static_cast<void>(isthmus::c::parameter_of(own, parameter, values, count));
      std::ranges::copy(open.outer->values(parameter), values);
    });
  });
}

isthmus_error* isthmus_samples(isthmus_session* session, int32_t worker, int64_t* samples,
                               int64_t* context, int64_t* parts) {
  return guarded([&] {
    const isthmus::app::RunSamples& own =
        isthmus::c::samples_of(session, worker, "isthmus_samples");
    require(samples, "isthmus_samples", "samples");
    require(context, "isthmus_samples", "context");
    require(parts, "isthmus_samples", "parts");
    *samples = own.samples();
    *context = own.context();
    *parts = own.parts();
  });
}

isthmus_error* isthmus_batch(isthmus_session* session, int32_t worker, int64_t step,
                             int32_t* inputs, int32_t* targets, size_t count) {
  return guarded([&] {
    isthmus::c::hand_batch(session, worker, step,
                           {.inputs = inputs, .targets = targets, .count = count}, "isthmus_batch");
  });
}

isthmus_error* isthmus_packed_batch(isthmus_session* session, int32_t worker, int64_t step,
                                    int32_t* inputs, int32_t* targets, int32_t* positions,
                                    size_t count) {
  return guarded([&] {
    isthmus::c::hand_batch(session, worker, step, {inputs, targets, positions, count, true},
                           "isthmus_packed_batch");
  });
}

isthmus_error* isthmus_validation(isthmus_session* session, int32_t worker, int64_t part,
                                  int32_t* inputs, int32_t* targets, size_t count,
                                  int64_t* sequences) {
  return guarded([&] {
    isthmus::c::hand_validation(session, worker, part,
                                {.inputs = inputs, .targets = targets, .count = count}, sequences,
                                "isthmus_validation");
  });
}

isthmus_error* isthmus_packed_validation(isthmus_session* session, int32_t worker, int64_t part,
                                         int32_t* inputs, int32_t* targets, int32_t* positions,
                                         size_t count, int64_t* sequences) {
  return guarded([&] {
    isthmus::c::hand_validation(session, worker, part, {inputs, targets, positions, count, true},
                                sequences, "isthmus_packed_validation");
  });
}

isthmus_error* isthmus_session_fail(isthmus_session* session, int32_t worker, const char* text) {
  return guarded([&] {
    Worker& own = worker_of(session, worker, "isthmus_session_fail");
    require(text, "isthmus_session_fail", "text");
    own.channel->fail(text);
  });
}

isthmus_error* isthmus_state_put(isthmus_session* session, int32_t worker, const char* name,
                                 const uint8_t* data, size_t bytes) {
  return guarded([&] {
    Worker& own = worker_of(session, worker, "isthmus_state_put");
    require(name, "isthmus_state_put", "name");
    if (bytes > 0) require(data, "isthmus_state_put", "data");
    own.channel->with_open([&](const Asked& open) {
      if (open.writer == nullptr)
        throw isthmus::ConfigError("isthmus_state_put: only while ISTHMUS_SAVE is open");
      open.writer->bytes(name, {reinterpret_cast<const std::byte*>(data), bytes});
    });
  });
}

int64_t isthmus_state_bytes(isthmus_session* session, int32_t worker, const char* name) {
  int64_t found = -1;
  isthmus_error* const error = guarded([&] {
    Worker& own = worker_of(session, worker, "isthmus_state_bytes");
    own.channel->with_open([&](const Asked& open) {
      if (open.reader == nullptr) return;
      if (own.found_name == name) {  // asked for in this request already
        found = std::ssize(own.found);
        return;
      }
      if (!open.reader->contains(name)) return;
      const std::vector<std::byte> bytes = open.reader->bytes(name);
      const auto* const begin = reinterpret_cast<const uint8_t*>(bytes.data());
      own.found.assign(begin, begin + bytes.size());
      own.found_name = name;
      found = std::ssize(own.found);
    });
  });
  isthmus_error_free(error);
  return found;
}

isthmus_error* isthmus_state_get(isthmus_session* session, int32_t worker, const char* name,
                                 uint8_t* data, size_t bytes) {
  return guarded([&] {
    Worker& own = worker_of(session, worker, "isthmus_state_get");
    require(name, "isthmus_state_get", "name");
    if (own.found_name != name && isthmus_state_bytes(session, worker, name) < 0)
      throw isthmus::RunError(fmt::format("the trainer's state has no entry '{}'", name));
    if (own.found.size() != bytes)
      throw isthmus::RunError(fmt::format("the trainer's state '{}' has {} bytes, {} are asked for",
                                          name, own.found.size(), bytes));
    if (bytes > 0) {
      require(data, "isthmus_state_get", "data");
      std::memcpy(data, own.found.data(), bytes);
    }
  });
}

isthmus_error* isthmus_session_wish(isthmus_session* session, int32_t wish) {
  return guarded([&] {
    require(session, "isthmus_session_wish", "session");
    switch (wish) {
      case 1:
        (void)session->wishes.interrupt();
        return;
      case 2:
        session->wishes.requeue();
        return;
      case 3:
        session->wishes.checkpoint();
        return;
      case 4:
        session->wishes.leave();
        return;
      default:
        throw isthmus::ConfigError(
            fmt::format("isthmus_session_wish: wish = {}: must be 1, 2, 3 or 4", wish));
    }
  });
}

isthmus_error* isthmus_kill_at(const char* fault) {
  return guarded([&] {
    require(fault, "isthmus_kill_at", "fault");
    const isthmus::Fault parsed = isthmus::parse_fault(fault);
    if (isthmus::is_armed())
      throw isthmus::ConfigError(
          "isthmus_kill_at: the process has a fault already: give one at most");
    isthmus::arm(parsed);
    isthmus::log_warning("{}: this process will be killed there", fault);
  });
}

isthmus_error* isthmus_session_end(const isthmus_session* session, char** json) {
  return guarded([&] {
    require(session, "isthmus_session_end", "session");
    require(json, "isthmus_session_end", "json");
    std::optional<isthmus::RunEnd> end;
    session->queue->update([&] { end = session->end; });
    if (!end)
      throw isthmus::ConfigError(
          "isthmus_session_end: the run has not ended in order: call it after ISTHMUS_END");
    *json = owned_text(nlohmann::ordered_json{
        {"exit_code", static_cast<int>(end->exit_code)},
        {"status", end->status},
        {"directory", end->directory.string()},
        {"steps", end->steps},
        {"clock_s",
         end->clock_s}}.dump());
  });
}

int32_t isthmus_session_free(isthmus_session* session) {
  if (session == nullptr) return 1;
  if (session->run) {
    for (Worker& each : session->workers)
      each.channel->fail("the trainer's process has ended the run");
    (void)session->wishes.interrupt();
    const bool over = session->queue->wait(
        [&] { return session->over; }, session->runtime.clock().now() + isthmus::c::kEndsWithin);
    // It waits for sites that are gone: it and its threads stay until the process ends.
    if (!over) return 0;
  }
  delete session;
  return 1;
}
