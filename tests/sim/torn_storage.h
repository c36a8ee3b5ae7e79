// SPDX-License-Identifier: Apache-2.0
// A disk in memory, as much of one as a hub's log asks for, on which the process can die in the
// middle of what it writes down: the rest of it is not there afterwards.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/storage.h"
#include "isthmus/errors.h"

namespace isthmus::testing_support {

class TornStorage final : public Storage {
 public:
  /// The append after `appends` more ones stops when a share of its bytes, [0, 1], has been
  /// written; `die` does not return.
  void tear(int appends, double share, std::function<void()> die) {
    tear_ = {appends, share, std::move(die)};
  }
  void mend() { tear_.reset(); }
  [[nodiscard]] int torn() const { return torn_; }

  [[nodiscard]] FileKind kind(const Path& path) const override {
    return files_.contains(path) ? FileKind::kFile : FileKind::kAbsent;
  }
  [[nodiscard]] std::vector<std::byte> read(const Path& path) const override {
    return files_.at(path);
  }
  [[nodiscard]] std::unique_ptr<WritableFile> create(const Path& path) override {
    files_[path].clear();
    return std::make_unique<File>(*this, path, false);
  }
  [[nodiscard]] std::unique_ptr<WritableFile> append(const Path& path) override {
    return std::make_unique<File>(*this, path, true);
  }
  void rename(const Path& from, const Path& to) override {
    files_[to] = std::exchange(files_.at(from), {});
    files_.erase(from);
  }
  void remove(const Path& path) override { files_.erase(path); }
  void sync_directory(const Path&) override {}

  [[nodiscard]] MappedFile map(const Path& path) const override { return refuse<MappedFile>(path); }
  [[nodiscard]] std::vector<std::string> list(const Path& path) const override {
    return refuse<std::vector<std::string>>(path);
  }
  [[nodiscard]] Path read_link(const Path& path) const override { return refuse<Path>(path); }
  [[nodiscard]] std::uint64_t free_bytes(const Path& path) const override {
    return refuse<std::uint64_t>(path);
  }
  void remove_all(const Path& path) override { refuse<void>(path); }
  void create_directories(const Path& path) override { refuse<void>(path); }
  void create_link(const Path& path, const Path&) override { refuse<void>(path); }

 private:
  template <typename Result>
  static Result refuse(const Path& path) {
    throw SystemError(path.string() + ": not on this disk");
  }
  struct Tear {
    int appends = 0;
    double share = 0;
    std::function<void()> die;
  };
  class File final : public WritableFile {
   public:
    File(TornStorage& disk, Path path, bool tears)
        : disk_(disk), path_(std::move(path)), tears_(tears) {}
    void append(std::span<const std::byte> bytes) override {
      std::vector<std::byte>& file = disk_.files_[path_];
      if (!tears_ || !disk_.tear_ || disk_.tear_->appends-- > 0) {
        file.insert(file.end(), bytes.begin(), bytes.end());
        return;
      }
      const Tear tear = *std::exchange(disk_.tear_, std::nullopt);
      ++disk_.torn_;
      const auto kept = static_cast<std::ptrdiff_t>(tear.share * static_cast<double>(bytes.size()));
      file.insert(file.end(), bytes.begin(), bytes.begin() + kept);
      tear.die();
    }
    void sync() override {}

   private:
    TornStorage& disk_;
    const Path path_;
    const bool tears_;
  };
  std::map<Path, std::vector<std::byte>> files_;
  std::optional<Tear> tear_;
  int torn_ = 0;
};

}  // namespace isthmus::testing_support
