// SPDX-License-Identifier: Apache-2.0
// `status`: how a run is doing, asked of its page while it lives, read from its folder otherwise.
#include <fmt/format.h>

#include <chrono>

#include "app/common/commands.h"
#include "app/common/signals.h"
#include "app/observe/http_client.h"
#include "app/observe/status_folder.h"
#include "app/observe/status_text.h"
#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "record/run_status.h"

namespace isthmus::app {
namespace {

constexpr double kPatience = 5;  // seconds that a page may take
constexpr auto kBetween = std::chrono::seconds(1);
constexpr auto kStatusLook = std::chrono::milliseconds(100);  // for signals

struct Found {
  RunStatus status;
  std::string json;
  std::string source;
};

/// RETURNS: the reason if the page has no status. THROWS: ConfigError if the text is no URL or page
/// of a run.
Expected<Found, std::string> ask(const std::string& text) {
  const HttpUrl url = parse_url(text);
  const auto reply = http_get(url.address, "/status.json", kPatience);
  if (!reply) {
    return Unexpected<std::string>(reply.error());
  }
  if (reply->status != 200) {
    return Unexpected<std::string>(fmt::format("it answers {}", reply->status));
  }
  Found found;
  found.json = reply->body;
  while (found.json.ends_with('\n')) found.json.pop_back();
  found.status = parse_status(found.json);
  found.source = url_of(url.address) + "   " + found.status.directory;
  return found;
}

Found look_at_folder(const std::filesystem::path& run) {
  const SystemStorage storage;
  Found found;
  std::string note;
  if (const auto live = live_file(storage, run)) {
    // Another run, or another program, may have the port of a run that was killed.
    try {
      auto asked = ask(live->url);
      if (asked && asked->status.run_id == live->run_id) {
        return *std::move(asked);
      }
    } catch (const ConfigError&) {  // its folder tells as much as there is
    }
    note = fmt::format("   (its page {} is gone)", live->url);
  }
  found.status = folder_status(storage, run);
  found.json = status_json(found.status);
  found.source = run.string() + (found.status.state == "running" ? note : "");
  return found;
}

Found look(const StatusArguments& arguments) {
  if (!is_url(arguments.run)) {
    return look_at_folder(find_run(arguments.run));
  }
  auto found = ask(arguments.run);
  if (!found) {
    throw SystemError(fmt::format(
        "{} does not answer: {}: the run has ended, or was not started with --http; its "
        "folder tells how it went",
        arguments.run, found.error()));
  }
  return *std::move(found);
}

/// The run's own word, for scripts.
ExitCode code_of(const RunStatus& status) {
  if (status.healthy) {
    return ExitCode::kOk;
  }
  const bool lost = std::ranges::any_of(status.peers, &PeerStatus::lost);
  return lost ? ExitCode::kPeer : ExitCode::kRunFailed;
}

void show(const Found& found, Session& session, StatusBlock* block) {
  if (session.json) {
    session.out.write(found.json + "\n");
    return;
  }
  const auto lines = status_lines(found.status, session.out, found.source);
  if (block != nullptr) {
    block->draw(lines);
    return;
  }
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  session.out.write(text);
}

int watch(const StatusArguments& arguments, Session& session) {
  SystemRuntime runtime;
  const SignalScope signals;
  StatusBlock block(session.out);
  const bool in_place = session.out.interactive() && !session.json;
  Found found = look(arguments);
  while (true) {
    show(found, session, in_place ? &block : nullptr);
    const bool over = found.status.state != "running" && found.status.state != "waiting" &&
                      found.status.state != "starting";
    const TimePoint next = runtime.clock().now() + kBetween;
    while (runtime.clock().now() < next && SignalScope::wish() == StopWish::kNone && !over) {
      const TimePoint soon = runtime.clock().now() + kStatusLook;
      runtime.sleep_until(soon);
    }
    if (over || SignalScope::wish() != StopWish::kNone || session.out.error() != 0) {
      break;
    }
    try {
      found = look(arguments);
    } catch (const Error&) {
      if (found.status.directory.empty() || !is_url(arguments.run)) throw;
      session.err.write("the run has ended, or its page cannot be reached any more\n");
      break;
    }
  }
  if (in_place) block.finish(true);
  return static_cast<int>(code_of(found.status));
}

}  // namespace

int command_status(const StatusArguments& arguments, Session& session) {
  if (arguments.watch) {
    return watch(arguments, session);
  }
  const Found found = look(arguments);
  show(found, session, nullptr);
  return static_cast<int>(code_of(found.status));
}

}  // namespace isthmus::app
