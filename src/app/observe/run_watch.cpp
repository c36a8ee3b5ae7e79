// SPDX-License-Identifier: Apache-2.0
#include "app/observe/run_watch.h"

#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/observe/live_page.h"
#include "app/observe/status_metrics.h"
#include "core/base/json_input.h"
#include "core/base/log.h"
#include "record/json_line.h"

namespace isthmus::app {

RunWatch::RunWatch(Storage& storage, const HttpAddress& address, StatusBoard::Options options)
    : storage_(storage),
      board_(std::move(options)),
      pages_([this] { return board_.snapshot(); }),
      server_(runtime_, address, [this](std::string_view path) { return pages_.page(path); }) {
  log_info("watch the run at {}", url());
  if (!address.loopback()) {
    log_warning(
        "log.http: {}:{} is open to everybody on the network, without a password: all can read "
        "the run's progress, names and link addresses",
        address.host, server_.address().port);
  }
}

RunWatch::~RunWatch() {
  if (announced_.empty()) {
    return;
  }
  try {
    if (storage_.kind(announced_) != FileKind::kFile ||
        read_json(read_text(storage_, announced_)) != read_json(announcement_)) {
      return;  // of a run that has taken the folder over
    }
    storage_.remove_all(announced_);
  } catch (const std::exception& error) {
    log_warning("{} stays though its run has ended: {}", announced_.string(), error.what());
  }
}

void RunWatch::announce(const std::filesystem::path& directory, const std::string& run_id) {
  announced_ = directory / kLiveFile;
  announcement_ = JsonLine().add("url", url()).add("run_id", run_id).str() + "\n";
  write_atomically(storage_, announced_, announcement_);
}

StatusPages::StatusPages(std::function<RunStatus()> look, std::function<double()> now)
    : look_(std::move(look)), now_(std::move(now)) {}

HttpReply StatusPages::page(std::string_view path) {
  const double now = now_();
  if (status_ && now - looked_ >= kFresh) {
    status_.reset();
    made_.clear();
  }
  if (const auto found = made_.find(path); found != made_.end()) {
    return found->second;
  }
  HttpReply reply = status_page(path, [&] {
    if (!status_) {
      status_ = look_();
      looked_ = now;
    }
    return *status_;
  });
  if (path == "/status.json" || path == "/metrics") made_.emplace(path, reply);
  return reply;
}

HttpReply status_page(std::string_view path, const std::function<RunStatus()>& look) {
  if (path == "/") return {.type = "text/html; charset=utf-8", .body = std::string(kLivePage)};
  if (path == "/status.json") {
    return {.type = "application/json", .body = status_json(look()) + "\n"};
  }
  if (path == "/metrics") return metrics_reply(status_metrics(look()));
  if (path == "/healthz") {
    const RunStatus status = look();
    return health_reply(status.healthy, status.word);
  }
  return absent_reply("/, /status.json, /metrics and /healthz");
}

}  // namespace isthmus::app
