// SPDX-License-Identifier: Apache-2.0
#include "session/hub/site_hub.h"

#include <chrono>
#include <utility>

#include "core/base/log.h"
#include "isthmus/errors.h"
#include "session/run/wishes.h"

namespace isthmus::app {
namespace {

constexpr Duration kLookAtSites = std::chrono::milliseconds(100);
/// Between a decision that could not be written down and the next attempt.
constexpr Duration kPause = std::chrono::seconds(5);

}  // namespace

std::filesystem::path site_hub_folder(const Config& config, const std::filesystem::path& out) {
  if (out.empty()) return hub_folder(config, {});
  std::filesystem::path own = out;
  if (!own.has_filename()) own = own.parent_path();  // "runs/east/"
  own += "-hub";
  return own;
}

SiteHub::SiteHub(const Config& config, std::filesystem::path folder, Former former,
                 const Wishes& wishes)
    : wishes_(wishes),
      lives_({.config = config,
              .links = {},
              .folder = std::move(folder),
              .resumes = former == Former::kResumed,
              .forgets = former == Former::kForgotten,
              // The site that comes back may find its former process about to end.
              .wait = former == Former::kResumed ? config.net.gather : Duration{0},
              .stopped = [this] { return stopped_.load(); },
              .wishes = wishes}),
      queue_(runtime_.make_wait_queue()),
      task_(runtime_.spawn("hub", [this] { serve(); })) {}

SiteHub::~SiteHub() {
  queue_->update([&] { stopped_ = true; });
  task_.reset();
}

// A hub that a full disk has ended may continue once there is room: the sites wait for it
// meanwhile. Another run's log or unlike configurations do not mend with time.
void SiteHub::serve() {
  std::exception_ptr failure;
  while (!stopped_) {
    try {
      static_cast<void>(lives_.serve());
      break;
    } catch (const SystemError& error) {
      log_error("hub: {}; trying again in {} s", error.what(),
                std::chrono::duration_cast<std::chrono::seconds>(kPause).count());
      (void)queue_->wait([&] { return stopped_.load(); }, runtime_.clock().now() + kPause);
    } catch (const std::exception& error) {
      log_error("hub: {}", error.what());
      failure = std::current_exception();
      break;
    }
  }
  queue_->update([&] {
    over_ = true;
    failure_ = failure;
  });
}

void SiteHub::check() const {
  std::exception_ptr failure;
  queue_->update([&] { failure = failure_; });
  if (failure) std::rethrow_exception(failure);
}

ExitCode SiteHub::serve_to_the_end(const std::string& site) {
  constexpr Duration kQuietly = std::chrono::seconds(1);
  const TimePoint begin = runtime_.clock().now();
  bool told = false;
  bool over = false;
  while (!over && wishes_.stop() == StopWish::kNone) {
    (void)queue_->wait(
        [&] {
          over = over_;
          return over_;
        },
        runtime_.clock().now() + kLookAtSites);
    if (!over && !told && runtime_.clock().now() - begin > kQuietly) {
      log_info("site {} has ended; the hub serves the others until they have", site);
      told = true;
    }
  }
  check();
  return over ? ExitCode::kOk : exit_code_of(wishes_.stop());
}

}  // namespace isthmus::app
