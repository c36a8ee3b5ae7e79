// SPDX-License-Identifier: Apache-2.0
// The pages of a running run (log.http): a StatusBoard, which the run fills, and an HTTP server on
// its own thread, which shows it. While the run owns a folder, live.json there has the pages'
// address.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "app/observe/http_server.h"
#include "core/base/storage.h"
#include "core/base/system_runtime.h"
#include "record/status_board.h"
#include "record/wall_clock.h"

namespace isthmus::app {

/// The pages: "/", "/status.json", "/metrics", "/healthz"; 404 for all others.
[[nodiscard]] HttpReply status_page(std::string_view path, const std::function<RunStatus()>& look);

/// The same pages for any number of requests: the run's status is read a few times a second at
/// most, and pages made from it are kept until the next reading. One thread at a time.
class StatusPages {
 public:
  static constexpr double kFresh = 0.25;  // seconds for which a status is fresh
  explicit StatusPages(std::function<RunStatus()> look,
                       std::function<double()> now = monotonic_now);
  [[nodiscard]] HttpReply page(std::string_view path);

 private:
  const std::function<RunStatus()> look_;
  const std::function<double()> now_;
  double looked_ = 0;
  std::optional<RunStatus> status_;  // at that time, so all pages show the same one
  std::map<std::string, HttpReply, std::less<>> made_;
};

class RunWatch {
 public:
  /// Listens, and logs the address. THROWS: SystemError for an unusable address.
  RunWatch(Storage& storage, const HttpAddress& address, StatusBoard::Options options);
  /// Removes live.json and closes the pages, whatever clients are doing.
  ~RunWatch();
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  [[nodiscard]] StatusBoard& board() { return board_; }
  [[nodiscard]] std::string url() const { return url_of(server_.address()); }
  /// Writes live.json into the run's folder.
  void announce(const std::filesystem::path& directory, const std::string& run_id);

 private:
  Storage& storage_;
  SystemRuntime runtime_;
  StatusBoard board_;
  StatusPages pages_;  // the server's task's alone
  HttpServer server_;
  std::filesystem::path announced_;
  std::string announcement_;  // content of live.json
};

/// Name of the file in a run's folder with the pages' address.
inline constexpr const char* kLiveFile = "live.json";

}  // namespace isthmus::app
