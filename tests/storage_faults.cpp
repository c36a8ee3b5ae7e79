// SPDX-License-Identifier: Apache-2.0
#include "storage_faults.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

bool is_under(const std::filesystem::path& path, const std::filesystem::path& directory) {
  const auto ends = std::mismatch(directory.begin(), directory.end(), path.begin(), path.end());
  return ends.first == directory.end();
}

}  // namespace

class FaultyStorage::File final : public WritableFile {
 public:
  File(FaultyStorage& owner, Path path, std::unique_ptr<WritableFile> file)
      : owner_(owner), path_(std::move(path)), file_(std::move(file)) {}

  void append(std::span<const std::byte> bytes) override {
    owner_.operation("append to " + path_.string());
    const std::size_t fitting = owner_.take_space(bytes.size());
    owner_.durable_.try_emplace(path_, std::filesystem::file_size(path_));
    file_->append(bytes.first(fitting));
    if (fitting < bytes.size()) {
      throw DiskFullError(path_.string() + ": cannot write: No space left on device; free space " +
                              "on that disk (df -h) or use another one",
                          fitting);
    }
  }

  void sync() override {
    owner_.operation("sync " + path_.string());
    owner_.durable_.erase(path_);
  }

 private:
  FaultyStorage& owner_;
  Path path_;
  std::unique_ptr<WritableFile> file_;
};

void FaultyStorage::require_alive() const {
  if (dead_) throw SimulatedCrash{operations_, "already dead"};
}

void FaultyStorage::operation(const std::string& what) {
  require_alive();
  if (operations_ == faults_.crash_at_operation) {
    crash();
    throw SimulatedCrash{operations_, what};
  }
  ++operations_;
}

void FaultyStorage::crash() {
  dead_ = true;
  for (const auto& [path, length] : durable_) {
    std::error_code gone;  // the file may have been removed since
    std::filesystem::resize_file(path, length, gone);
  }
}

std::size_t FaultyStorage::take_space(std::size_t bytes) {
  const std::int64_t left = faults_.disk_full_after_bytes - written_;
  const auto taken = std::min(static_cast<std::int64_t>(bytes), left);
  written_ += taken;
  return static_cast<std::size_t>(taken);
}

FileKind FaultyStorage::kind(const Path& path) const {
  require_alive();
  return disk_.kind(path);
}

MappedFile FaultyStorage::map(const Path& path) const {
  require_alive();
  return disk_.map(path);
}

std::vector<std::byte> FaultyStorage::read(const Path& path) const {
  require_alive();
  return disk_.read(path);
}

std::vector<std::string> FaultyStorage::list(const Path& directory) const {
  require_alive();
  return disk_.list(directory);
}

Storage::Path FaultyStorage::read_link(const Path& link) const {
  require_alive();
  return disk_.read_link(link);
}

std::uint64_t FaultyStorage::free_bytes(const Path& path) const {
  require_alive();
  const auto left = static_cast<std::uint64_t>(faults_.disk_full_after_bytes - written_);
  return std::min(disk_.free_bytes(path), left);
}

std::unique_ptr<WritableFile> FaultyStorage::create(const Path& path) {
  operation("create " + path.string());
  auto file = disk_.create(path);
  durable_[path] = 0;
  return std::make_unique<File>(*this, path, std::move(file));
}

std::unique_ptr<WritableFile> FaultyStorage::append(const Path& path) {
  operation("open " + path.string());
  auto file = disk_.append(path);
  durable_.try_emplace(path, std::filesystem::file_size(path));
  return std::make_unique<File>(*this, path, std::move(file));
}

void FaultyStorage::rename(const Path& from, const Path& to) {
  operation("rename " + from.string() + " -> " + to.string());
  disk_.rename(from, to);
  std::map<Path, std::uintmax_t> moved;
  for (const auto& [path, length] : durable_) {
    const bool inside = is_under(path, from);
    moved[inside && path != from ? to / path.lexically_relative(from)
          : inside               ? to
                                 : path] = length;
  }
  durable_ = std::move(moved);
}

void FaultyStorage::remove(const Path& path) {
  operation("remove " + path.string());
  disk_.remove(path);
  durable_.erase(path);
}

void FaultyStorage::remove_all(const Path& path) {
  operation("remove_all " + path.string());
  disk_.remove_all(path);
  std::erase_if(durable_, [&](const auto& entry) { return is_under(entry.first, path); });
}

void FaultyStorage::create_directories(const Path& directory) {
  operation("create_directories " + directory.string());
  disk_.create_directories(directory);
}

void FaultyStorage::create_link(const Path& target, const Path& link) {
  operation("create_link " + link.string());
  disk_.create_link(target, link);
}

void FaultyStorage::sync_directory(const Path& directory) {
  operation("sync_directory " + directory.string());
}

}  // namespace isthmus
