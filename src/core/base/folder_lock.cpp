// SPDX-License-Identifier: Apache-2.0
#include "core/base/folder_lock.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "core/base/fresh_id.h"
#include "core/base/json_input.h"
#include "core/base/log.h"
#include "core/base/storage.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr int kAbove = 2;  // COMPARISON/VARIANT/seed-K
constexpr Duration kLook = std::chrono::milliseconds(100);
/// For a process that only looks at the lock, and holds it for a moment.
constexpr Duration kShortWait = std::chrono::milliseconds(300);

/// The record in a lock file; nothing if the file has none, or not yet.
struct LockRecord {
  FolderOwner owner;
  std::string id;
};

std::optional<LockRecord> read_record(const std::string& text) {
  const nlohmann::json fields = read_json(text);
  if (!fields.is_object()) return std::nullopt;
  const auto word = [&](const char* key) {
    const auto found = fields.find(key);
    return found != fields.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto pid = fields.find("pid");
  if (pid == fields.end() || !pid->is_number_integer()) return std::nullopt;
  return LockRecord{.owner = {.process = {.pid = pid->get<std::int64_t>(),
                                          .host = word("host"),
                                          .boot = word("boot"),
                                          .pid_space = word("pid_space"),
                                          .begun = word("begun")},
                              .since = word("since"),
                              .cells = fields.value("cells", nlohmann::json()) == true},
                    .id = word("id")};
}

bool same_kernel(const ProcessIdentity& a, const ProcessIdentity& b) {
  return a.boot == b.boot && (!a.boot.empty() || a.host == b.host);
}

std::string holder_text(const std::string& record) {
  const std::optional<LockRecord> known = read_record(record);
  return known ? owner_text(known->owner) : "another process";
}

}  // namespace

std::string owner_text(const FolderOwner& owner) {
  if (owner.process.pid == 0) return "another process";
  return fmt::format("process {} on host {}, since {}", owner.process.pid, owner.process.host,
                     owner.since);
}

FolderLock::FolderLock(Runtime& runtime, Options options)
    : runtime_(runtime),
      options_(std::move(options)),
      path_(options_.folder / options_.file),
      id_(fresh_id().hex()),
      give_up_(runtime.clock().now() + std::max(options_.wait, kShortWait)),
      queue_(runtime.make_wait_queue()),
      told_at_(runtime.clock().now()) {
  try {
    make_folder();
    while (!try_take()) make_folder();  // a holder that made it has removed it
    check_above();
    told_at_ = runtime.clock().now();
    task_ = runtime_.spawn("folder-lock", [this] { beat(); });
  } catch (...) {
    if (file_) file_->remove();
    remove_made();
    throw;
  }
}

FolderLock::~FolderLock() {
  queue_->update([&] { leaves_ = true; });
  task_.reset();
  try {
    const std::optional<LockRecord> there = read_record(text_of_lock_file(path_).value_or(""));
    if (there ? there->id == id_ : !said_ && file_->is_at_path()) file_->remove();
  } catch (const SystemError& error) {
    log_warning("{}", error.what());
  }
  file_.reset();
  remove_made();
}

void FolderLock::make_folder() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(options_.folder);
  for (std::filesystem::path each = folder;
       each.has_relative_path() && !std::filesystem::exists(each, error);
       each = each.parent_path()) {
    if (each.has_filename()) made_.push_back(each);
  }
  SystemStorage().create_directories(options_.folder);
  local_ = options_.may_be_local && is_on_local_disk(options_.folder);
}

void FolderLock::remove_made() {
  std::error_code used;  // a folder that holds something stays
  for (const std::filesystem::path& each : made_) std::filesystem::remove(each, used);
}

void FolderLock::check_above() const {
  std::error_code error;
  std::filesystem::path above = std::filesystem::weakly_canonical(options_.folder, error);
  for (int i = 0; i < kAbove && !error && above.has_relative_path(); ++i) {
    above = above.parent_path();
    const std::optional<FolderOwner> owner = living_owner(above, options_.file);
    if (!owner || !owner->cells || owner->process == options_.self) continue;
    if (has_started_this_process(owner->process))
      continue;  // the owner is a comparison, and this folder is its cell
    throw SystemError(fmt::format("'{}' lies in '{}', which is in use: {}; {}",
                                  options_.folder.string(), above.string(), owner_text(*owner),
                                  options_.remedy));
  }
}

bool FolderLock::try_take() {
  auto file = std::make_unique<LockFile>(path_);
  if (!file->is_open()) return wait_or_refuse("");
  LockFile::Attempt attempt = LockFile::Attempt::kUnsupported;
  if (options_.kernel_locks) attempt = file->try_lock();
  if (attempt == LockFile::Attempt::kTaken) return wait_or_refuse(file->read());
  if (!file->is_at_path()) return wait_or_refuse("");  // its holder has just left
  const bool held = attempt == LockFile::Attempt::kHeld;
  bool contested = false;
  if (!file->made()) {
    const std::string found = file->read();
    const std::optional<bool> alive = lives(found, held);
    if (alive.value_or(false)) return wait_or_refuse(found);
    if (!alive && !stands_still(found)) {
      const std::optional<std::string> now = text_of_lock_file(path_);
      if (now) return wait_or_refuse(*now);
      give_up_ = runtime_.clock().now() + std::max(options_.wait, kShortWait);
      return false;
    }
    contested = !local_ || !held || !alive;  // others may find the same, and not see this lock
  }
  try {
    file->write(record());
    file->sync();
    said_ = true;
  } catch (const DiskFullError& error) {
    if (!held || !local_ || contested) {
      if (file->made()) file->remove();
      throw;
    }
    // The kernel's lock is enough on one machine, and the beat names this process once it can.
    file->write("");
    log_warning("{}", error.what());
  } catch (const SystemError&) {
    if (file->made()) file->remove();
    throw;
  }
  if (contested) {
    runtime_.sleep_until(runtime_.clock().now() + kSettle);
    const std::string there = text_of_lock_file(path_).value_or("");
    const std::optional<LockRecord> last = read_record(there);
    if (!last) return false;
    if (last->id != id_) return wait_or_refuse(there);
  }
  file_ = std::move(file);
  return true;
}

std::optional<bool> FolderLock::lives(const std::string& text, bool kernel_held) const {
  const std::optional<LockRecord> known = read_record(text);
  if (!known) return kernel_held && local_ ? std::optional(false) : std::nullopt;
  const ProcessIdentity& writer = known->owner.process;
  if (same_kernel(writer, options_.self)) {
    if (kernel_held) return false;
    if (writer.pid_space == options_.self.pid_space) return process_lives(writer);
    return std::nullopt;
  }
  if (writer.host == options_.self.host && local_) return false;
  return std::nullopt;
}

bool FolderLock::stands_still(const std::string& text) {
  if (options_.tell) {
    options_.tell(
        fmt::format("'{}' says that it is in use: {}; watching for {} s whether that process lives",
                    options_.folder.string(), holder_text(text),
                    std::chrono::duration_cast<std::chrono::seconds>(kPatience).count()));
  }
  // A look that takes long says little: a file server that hangs stops the holder's beat as well.
  Duration watched{0};
  TimePoint last = runtime_.clock().now();
  while (watched < kPatience) {
    pause();
    if (text_of_lock_file(path_) != text) return false;
    const TimePoint now = runtime_.clock().now();
    watched += std::min(now - std::exchange(last, now), kBeat);
  }
  return true;
}

void FolderLock::pause() const {
  if (options_.stop) options_.stop();
  runtime_.sleep_until(runtime_.clock().now() + kLook);
}

bool FolderLock::wait_or_refuse(const std::string& text) {
  if (runtime_.clock().now() >= give_up_) {
    throw SystemError(fmt::format("'{}' is in use: {}; {}", options_.folder.string(),
                                  holder_text(text), options_.remedy));
  }
  if (options_.wait > kShortWait && options_.tell && !std::exchange(told_, true)) {
    options_.tell(
        fmt::format("'{}' is in use: {}; waiting for {} s whether it ends",
                    options_.folder.string(), holder_text(text),
                    std::chrono::duration_cast<std::chrono::seconds>(options_.wait).count()));
  }
  pause();
  return false;
}

std::string FolderLock::record() const {
  nlohmann::json fields = {{"pid", options_.self.pid},
                           {"host", options_.self.host},
                           {"since", options_.since},
                           {"boot", options_.self.boot},
                           {"pid_space", options_.self.pid_space},
                           {"begun", options_.self.begun},
                           {"id", id_},
                           {"beat", fmt::format("{:012}", beats_)}};
  if (options_.cells) fields["cells"] = true;
  return fields.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void FolderLock::beat() {
  bool warned = false;
  const auto leaves = [this] { return leaves_; };
  while (!queue_->wait(leaves, runtime_.clock().now() + kBeat)) {
    try {
      if (std::optional<std::string> by = successor()) {
        lost_by_ = std::move(*by);
        lost_ = true;
        log_error("{}", lost_by_);
        return;
      }
      ++beats_;
      file_->write(record());
      if (!local_) file_->sync();
      said_ = true;
      told_at_ = runtime_.clock().now();
    } catch (const SystemError& error) {
      if (!std::exchange(warned, true)) log_warning("{}", error.what());
    }
  }
}

std::optional<std::string> FolderLock::successor() const {
  const std::optional<std::string> there = text_of_lock_file(path_);
  if (!there) {
    return fmt::format(
        "'{}' is not held any more: {} is gone, so another process has taken the folder over and "
        "ended, or somebody has removed the file; this process ends, and what it would write is "
        "lost",
        options_.folder.string(), options_.file);
  }
  const std::optional<LockRecord> last = read_record(*there);
  if (!last || last->id == id_) return std::nullopt;
  return fmt::format(
      "'{}' has been taken over by {}: this process had not said for {} s that it lives; it ends, "
      "and what it would write is lost",
      options_.folder.string(), owner_text(last->owner),
      std::chrono::duration_cast<std::chrono::seconds>(kPatience).count());
}

std::optional<std::string> FolderLock::loss() const {
  if (lost_) return lost_by_;
  // A process that was frozen may ask before its beat has looked.
  if (runtime_.clock().now() - told_at_.load() < 2 * kBeat) return std::nullopt;
  try {
    return successor();
  } catch (const SystemError&) {  // the beat warns of it
    return std::nullopt;
  }
}

void FolderLock::check() const {
  if (const std::optional<std::string> why = loss()) throw SystemError(*why);
}

std::optional<FolderOwner> living_owner(const std::filesystem::path& folder,
                                        const std::string& file) {
  const std::optional<bool> locked = is_locked(folder / file);
  if (locked == false) return std::nullopt;
  const std::optional<LockRecord> known =
      read_record(text_of_lock_file(folder / file).value_or(""));
  if (!locked) {  // there are no such locks: the pid tells, of this machine's processes
    const ProcessIdentity self = this_process();
    const bool lives = known && same_kernel(known->owner.process, self) &&
                       known->owner.process.pid_space == self.pid_space &&
                       process_lives(known->owner.process);
    if (!lives) return std::nullopt;
  }
  return known ? known->owner : FolderOwner();
}

}  // namespace isthmus
