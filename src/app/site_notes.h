// SPDX-License-Identifier: Apache-2.0
// What the processes of one run tell each other beside the rounds: what each site's worker has
// done, so that every site writes the whole run's lines; at which step to stop or to lay down a
// checkpoint; which checkpoints a site has. CBOR arrays [kind, fields...]; a NOTE frame carries one
// (transport/WIRE_FORMAT.md). Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "app/run_board.h"
#include "isthmus/expected.h"

namespace isthmus::app {

/// Bumped when a note changes its meaning: members of unlike versions refuse each other.
inline constexpr int kNotesVersion = 1;

/// A checkpoint a site could go on from.
struct HeldCheckpoint {
  std::int64_t step = 0;
  std::string run_id;
  std::string model;  // SHA-256 of model.safetensors: the outer parameters
  bool operator==(const HeldCheckpoint&) const = default;
};

/// First of all: who speaks, and where it could start.
struct HelloNote {
  std::string run_id;    // a fresh one; that of site 0 holds for a new run
  bool resumes = false;  // goes on where all can, instead of starting anew
  std::vector<HeldCheckpoint> held;
  std::vector<std::pair<std::string, std::string>> common;  // (what, value) alike at all sites
};
/// Steps the sender has taken, in order.
struct PostsNote {
  std::vector<StepPost> posts;  // `now` counts from the start of the sender's training
};
/// The sender's share of an evaluation.
struct EvalNote {
  StepIndex step;
  std::vector<EvalPart> parts;
  TimePoint now;
};
/// A checkpoint the sender has written, and the digest of the outer parameters in it.
struct WrittenNote {
  StepIndex step;
  std::string digest;
};

enum class Purpose : int { kInterrupt = 0, kRequeue = 1, kCheckpoint = 2 };

/// To site 0: the sender has been asked for it.
struct WishNote {
  Purpose purpose = Purpose::kCheckpoint;
};
/// From site 0: how far have you come?
struct AskNote {
  std::int64_t number = 0;
};
/// To site 0: the sender does not begin this step before it has been told.
struct HoldNote {
  std::int64_t number = 0;
  StepIndex step;
};
/// From site 0: it happens after this step, at every site.
struct AgreedNote {
  std::int64_t number = 0;
  Purpose purpose = Purpose::kCheckpoint;
  StepIndex step;
};

using Note = std::variant<HelloNote, PostsNote, EvalNote, WrittenNote, WishNote, AskNote, HoldNote,
                          AgreedNote>;

[[nodiscard]] std::vector<std::byte> write_note(const Note& note);
/// RETURNS: why the bytes are no note.
[[nodiscard]] Expected<Note, std::string> read_note(std::span<const std::byte> bytes);

}  // namespace isthmus::app
