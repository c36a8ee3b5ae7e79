// SPDX-License-Identifier: Apache-2.0
// One site's part of a run whose sites are processes of their own: links to all others, what they
// must have alike, where they go on from. Membership is that of the configuration and stays.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/commands.h"
#include "app/site_notes.h"
#include "core/events.h"
#include "core/system_runtime.h"
#include "inner/data/dataset.h"
#include "isthmus/config.h"
#include "transport/network_transport.h"
#include "transport/peer_exchange.h"

namespace isthmus::app {

class StatusBoard;
class WatchedTransport;

/// Place of the site. THROWS: ConfigError naming the sites there are, and what keeps the
/// configuration from running over links: addresses, keys, a method that needs one process.
[[nodiscard]] Rank site_of(const Config& config, const SiteArguments& arguments);

/// What a site brings.
struct SiteFacts {
  std::string run_id;                                       // fresh
  Digest128 layout;                                         // of the model
  std::vector<std::pair<std::string, std::string>> common;  // (what, value) alike at all sites
  bool resumes = false;
  std::vector<HeldCheckpoint> held;
};

/// What tells data apart: files by place, size and SHA-256; of many, a digest of all.
void append_data(std::span<const DataFile> files,
                 std::vector<std::pair<std::string, std::string>>& common);

/// What all sites start from.
struct SiteStart {
  std::string run_id;
  std::optional<std::int64_t> resume_after;  // a checkpoint's step that every site has
};
/// Pure. `facts`: of every site, in order. THROWS: ConfigError naming the keys that differ, with
/// both values, or that no checkpoint is everywhere the same.
[[nodiscard]] SiteStart agree_on_start(const std::vector<std::string>& sites,
                                       const std::vector<HelloNote>& facts);

class SiteSession {
 public:
  /// Listens. Borrows `status`, which may be null. THROWS: ConfigError, SystemError for an address
  /// or key that cannot be used.
  SiteSession(const Config& config, const SiteArguments& arguments, const SiteFacts& facts,
              StatusBoard* status = nullptr);
  /// Ends the links: in order after `leave`, otherwise the others see this site as lost.
  ~SiteSession();
  SiteSession(const SiteSession&) = delete;
  SiteSession& operator=(const SiteSession&) = delete;

  /// Dials, and blocks until all sites are together and have said what they bring, for at most
  /// net.gather. `say`: a line for people now and then. THROWS: PeerError naming who is missing,
  /// refused or gone; ConfigError as agree_on_start; RunError after a signal.
  [[nodiscard]] SiteStart gather(const std::function<void(const std::string&)>& say);

  [[nodiscard]] Rank self() const { return self_; }
  [[nodiscard]] Runtime& runtime() { return runtime_; }
  [[nodiscard]] Exchange& exchange() { return *exchange_; }
  void send(Rank to, const Note& note);

  /// Who hears notes, losses and that the links failed from now on, what came before included.
  /// Called by the links' task.
  void connect(std::function<void(Rank, const Note&)> on_note,
               std::function<void(Rank, const std::string&)> on_lost,
               std::function<void(const std::exception_ptr&)> on_failure);
  /// No call of what `connect` was given is made after this.
  void disconnect();
  /// Waiting spans go there from now on; null: nowhere.
  void record_into(EventSink* events);
  /// Serves the others until all have finished, for at most net.patience.
  void leave();

 private:
  class Events;
  void take(Rank from, std::span<const std::byte> bytes);
  void lose(Rank site, const std::string& why);
  void fail(const std::exception_ptr& failure);
  [[nodiscard]] std::string name(Rank site) const;

  const Config& config_;
  const Rank self_;
  const SiteFacts facts_;
  SystemRuntime runtime_;
  std::unique_ptr<WaitQueue> queue_;
  // Under queue_'s lock:
  std::vector<std::optional<HelloNote>> hellos_;
  std::vector<std::pair<Rank, Note>> early_;
  std::optional<std::pair<Rank, std::string>> lost_;
  std::function<void(Rank, const Note&)> on_note_;
  std::function<void(Rank, const std::string&)> on_lost_;
  std::function<void(const std::exception_ptr&)> on_failure_;
  std::exception_ptr failure_;

  std::unique_ptr<Events> events_;
  std::unique_ptr<NetworkTransport> transport_;
  std::unique_ptr<WatchedTransport> watched_;
  std::unique_ptr<PeerExchange> exchange_;
};

}  // namespace isthmus::app
