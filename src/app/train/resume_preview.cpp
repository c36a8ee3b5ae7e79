// SPDX-License-Identifier: Apache-2.0
#include "app/train/resume_preview.h"

#include "app/train/config_to_options.h"
#include "core/state/checkpoint.h"
#include "core/state/checkpoint_names.h"
#include "session/run/resume.h"
#include "session/run/trainer_facts.h"

namespace isthmus::app {
namespace {

/// Of a site the newest that it could go on from: which one all sites have is known when they meet.
std::optional<Checkpoint> checkpoint_of(const Storage& storage, const ResumeQuestion& question,
                                        const ResumedRun& run) {
  if (!question.only) return find_resume(storage, question.out, question.resume);
  const HeldCheckpoints all = held_checkpoints(storage, question.out, run, *question.only);
  if (all.held.empty()) return std::nullopt;
  return Checkpoint::open(storage, question.out / "ckpt" / step_name(all.held.front().step));
}

}  // namespace

std::optional<ResumePreview> preview_resume(const Storage& storage, const Config& config,
                                            const ResumeQuestion& question) {
  if (question.resume == "never") return std::nullopt;
  const std::string digest = config_digest(config);
  const ResumedRun run{.config = config,
                       .digest = digest,
                       .changes = question.changes,
                       .data = question.data,
                       .tokens_of_beginning = question.tokens_of_beginning,
                       .is_site = question.only.has_value(),
                       .workers = config.workers()};
  const std::optional<Checkpoint> checkpoint = checkpoint_of(storage, question, run);
  if (!checkpoint) return ResumePreview{};
  TrainerFacts facts;
  if (!question.base_digest.empty()) {
    facts.common.emplace_back(kFrozenWeights, question.base_digest);
  }
  check_same_trainer(checkpoint->info().settings, facts, checkpoint->folder().string());
  const ResumeFindings findings = check_resume(storage, *checkpoint, run);
  return ResumePreview{.checkpoint = checkpoint->folder(),
                       .step = checkpoint->info().step,
                       .changes = changes_at(*checkpoint, run, findings)};
}

}  // namespace isthmus::app
