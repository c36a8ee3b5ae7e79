// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/spsa_replay.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/check.h"
#include "kernels/spsa_code.h"

namespace isthmus::outer {
namespace {

void apply(const SpsaLogHeader& header, std::span<const SpsaUpdate> updates,
           std::span<const Parameter> parameters, kernels::ThreadTeam& team) {
  std::vector<kernels::SpsaStep> steps;
  for (const Parameter& parameter : parameters) {
    steps.clear();
    for (const SpsaUpdate& update : updates) {
      steps.push_back(update.on(parameter.decay));
    }
    kernels::spsa_apply(team, header.run_key, steps, parameter.elements.begin, parameter.values);
  }
}

}  // namespace

SpsaUpdate spsa_update(const SpsaLogHeader& header, const SpsaRecord& record) {
  SpsaUpdate update{.entries = {}, .step = static_cast<std::uint32_t>(record.step.value())};
  std::size_t at = 0;
  for (std::size_t k = 0; k < record.machines.size(); ++k) {
    for (std::uint32_t sample = 0; sample < record.counts[k]; ++sample) {
      update.entries.push_back(
          {record.machines[k], sample, kernels::spsa_decode_q31(record.codes[at++])});
    }
  }
  if (update.entries.empty()) {
    return update;  // no worker contributed: the weights stay, their decay included
  }
  const double lr = record.lr;
  const auto n = static_cast<double>(update.entries.size());
  const double divisor = header.divide_by_sqrt ? std::sqrt(n) : n;
  update.c = static_cast<float>(std::ldexp(lr, header.scale_log2 - 31) / divisor);
  update.decay = static_cast<float>(1 - lr * static_cast<double>(header.weight_decay));
  return update;
}

Digest128 layout_digest(std::span<const Parameter> parameters) {
  std::string text;
  for (const Parameter& p : parameters) {
    text += fmt::format("{} {} {} {}\n", p.name, p.elements.begin, p.elements.end, p.decay ? 1 : 0);
  }
  return xxh3_128(std::as_bytes(std::span(text)));
}

Digest128 weights_digest(std::span<const Parameter> parameters) {
  Xxh3Stream stream;
  for (const Parameter& p : parameters) {
    stream.update(std::as_bytes(p.values));
  }
  return stream.digest();
}

void apply_record(const SpsaLogHeader& header, const SpsaRecord& record,
                  std::span<const Parameter> parameters, kernels::ThreadTeam& team) {
  const SpsaUpdate update = spsa_update(header, record);
  apply(header, {&update, 1}, parameters, team);
}

Expected<void, SpsaLogError> replay(const SpsaLog& log, StepIndex from, StepIndex to,
                                    std::span<const Parameter> parameters,
                                    kernels::ThreadTeam& team, std::size_t at_once) {
  ISTHMUS_CHECK(at_once >= 1, at_once);
  const auto bad = [](const std::string& what) {
    return Unexpected<SpsaLogError>(SpsaLogError{what});
  };
  const SpsaLogHeader& header = log.header();
  if (header.layout != layout_digest(parameters)) {
    return bad("the log is of another model: names, sizes or decay of the tensors differ");
  }
  if (from < header.base_step || to > log.last() || from > to) {
    return bad(fmt::format("steps {} to {} are wanted, the log has those after {} to {}",
                           from.value(), to.value(), header.base_step.value(), log.last().value()));
  }
  if (from == header.base_step && header.base_weights != weights_digest(parameters)) {
    return bad(
        fmt::format("the weights are not those the log starts from, after step {}", from.value()));
  }
  for (StepIndex t = from; t < to;) {
    std::vector<SpsaUpdate> updates;
    SpsaRecord last;
    // A pass ends where there is a digest to compare with.
    do {
      ++t;
      last = log.record(t);
      updates.push_back(spsa_update(header, last));
    } while (t < to && updates.size() < at_once && !last.weights);
    apply(header, updates, parameters, team);
    if (last.weights && *last.weights != weights_digest(parameters)) {
      return bad(fmt::format("after step {} the weights differ from the log's digest", t.value()));
    }
  }
  return {};
}

}  // namespace isthmus::outer
