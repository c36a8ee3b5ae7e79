// SPDX-License-Identifier: Apache-2.0
#include "session/checks/checkpoint_room.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "core/base/open_files.h"
#include "core/base/units.h"
#include "core/state/checkpoint_names.h"
#include "isthmus/codec.h"
#include "isthmus/errors.h"
#include "isthmus/outer.h"
#include "outer/parts/settings.h"
#include "session/run/run_settings.h"

namespace isthmus::app {
namespace {

constexpr std::int64_t kValueBytes = 4;

std::filesystem::path folder_of(const std::filesystem::path& out) {
  return out.empty() ? std::filesystem::path("runs") : out;
}

std::uint64_t bytes_below(const std::filesystem::path& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;  // a file that cannot be read does not count
  for (std::filesystem::recursive_directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    const bool file = entry->is_regular_file(unknown) && !entry->is_symlink(unknown);
    const std::uintmax_t size = file ? entry->file_size(unknown) : 0;
    if (!unknown) bytes += size;
  }
  return bytes;
}

/// Whole checkpoints in `folder`, and the newest one's step.
struct Written {
  std::int64_t count = 0;
  std::int64_t newest = 0;
};
Written written_in(const Storage& storage, const std::filesystem::path& folder) {
  Written written;
  std::error_code absent;
  if (!std::filesystem::is_directory(folder, absent)) return written;
  for (const std::string& name : storage.list(folder)) {
    if (const std::optional<std::int64_t> step = parse_step_name(name)) {
      ++written.count;
      written.newest = std::max(written.newest, *step);
    }
  }
  return written;
}

/// That the run will write after step `done`; a time says nothing.
std::int64_t left_to_write(const Config& config, const RunPlan& plan, std::int64_t done) {
  const std::int64_t steps = std::max<std::int64_t>(plan.total_steps - done, 0);
  if (steps == 0 || config.ckpt.every > Duration{0}) return steps;
  const std::int64_t every = plan.checkpoint_every;
  return every > 0 ? (plan.total_steps + every - 1) / every - done / every : 1;
}

}  // namespace

std::uint64_t checkpoint_bytes(const Config& config, const RunPlan& plan, std::int64_t values,
                               std::int64_t moments, std::optional<WorkerId> only) {
  const auto codec = make_codec(outer::codec_of(info_of(config.method), config.outer));
  const std::int64_t outer_values =
      outer_state_values(config.method, config.outer) + (codec->error_feedback() ? 1 : 0);
  const std::int64_t worker = (1 + outer_values) * values + moments;
  const std::int64_t workers = only ? 1 : plan.workers;
  return static_cast<std::uint64_t>(kValueBytes * (values + workers * worker));
}

CheckpointRoom checkpoint_room(const Storage& storage, const Config& config, const RunPlan& plan,
                               std::uint64_t each, const CheckpointPlace& place) {
  const std::filesystem::path folder = folder_of(place.out);
  // Of sites apart the newest may not have reached another: two are kept at least.
  const std::int64_t least = place.only ? 2 : 1;
  const std::int64_t keep = std::max<std::int64_t>(least, config.ckpt.keep);
  const Written before = place.goes_on ? written_in(storage, folder / "ckpt") : Written();
  const std::int64_t start = place.lays_down_start && before.count == 0 ? 1 : 0;
  const std::int64_t all = before.count + start + left_to_write(config, plan, before.newest);
  return {.each = each,
          .at_once = std::min(keep + 1, all),
          .no_more = all <= keep,
          .fewer = std::min(least, all - 1) < std::min(keep, all - 1),
          .there = place.out.empty() ? 0 : bytes_below(folder / "ckpt"),
          .free = storage.free_bytes(folder / "ckpt")};
}

namespace {

/// The largest file of a checkpoint has at least the mean of all: of the model, of what workers
/// share, of each worker, and the state.
void check_file_size(const CheckpointRoom& room, const Config& config,
                     const std::filesystem::path& out) {
  const std::uint64_t most = most_file_bytes();
  const std::uint64_t files = 3 + static_cast<std::uint64_t>(config.workers());
  if (room.each / files <= most) return;
  throw SystemError(
      fmt::format("'{}': a checkpoint takes {} ({} bytes) in {} files at most, and a file may have "
                  "{} ({} bytes) "
                  "here: raise the limit of file sizes (ulimit -f unlimited)",
                  folder_of(out).string(), human_bytes(static_cast<double>(room.each)), room.each,
                  files, human_bytes(static_cast<double>(most)), most));
}

}  // namespace

void check_checkpoint_room(const CheckpointRoom& room, const Config& config,
                           const std::filesystem::path& out, bool of_caller) {
  check_file_size(room, config, out);
  if (room.needed() <= room.free) return;
  const auto bytes = [](std::uint64_t n) { return human_bytes(static_cast<double>(n)); };
  const std::string why =
      room.no_more
          ? "all that the run writes"
          : fmt::format("ckpt.keep = {}{}, and one while it is written", config.ckpt.keep,
                        config.ckpt.keep < room.at_once - 1 ? ", which of sites apart is 2" : "");
  const std::string them = room.at_once == 1 ? "the checkpoint takes"
                                             : fmt::format("{} checkpoints of {} ({}) take",
                                                           room.at_once, bytes(room.each), why);
  throw SystemError(fmt::format(
      "'{}': {} {} ({} bytes{}), and {} ({} bytes) are free there: free space{}, or give {} on "
      "another disk",
      folder_of(out).string(), them, bytes(room.needed()), room.needed(),
      of_caller ? ", without what the trainer keeps beside its parameters" : "", bytes(room.free),
      room.free, room.fewer ? ", lower ckpt.keep" : "", of_caller ? "`out`" : "--out"));
}

}  // namespace isthmus::app
