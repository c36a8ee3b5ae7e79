// SPDX-License-Identifier: Apache-2.0
// The keys that a hub admits: the keys of the file and of enrolled sites, without revoked ones.
// HubKeyBook holds the rules, pure; HubKeys keeps the book in FOLDER/hub.keys. A running hub and
// the commands `hub invite` and `hub revoke` may change that file at the same time, under
// FOLDER/keys.lock, each by replacing it. The secret that signs invitations is FOLDER/hub.secret
// (0600); tokens are stored nowhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/storage.h"
#include "isthmus/config.h"
#include "isthmus/runtime.h"
#include "session/site/invitation.h"
#include "transport/links/key_table.h"

namespace isthmus::app {

struct HubKeyBook {
  struct Given {      // an invitation
    std::string key;  // public, derived from its token
    std::string site;
    std::int64_t expires = 0;  // seconds since 1970
    std::uint32_t uses = 1, used = 0;
    bool barred = false;  // its site was revoked later
  };
  struct Site {  // enrolled by an invitation
    std::string name, key, invitation;
    std::string since;  // UTC
  };
  struct Revoked {
    std::string name, key, since;
  };
  std::uint64_t version = 0;  // grows with every change
  std::string run;            // 32 hexadecimal digits: names this folder's run
  std::vector<Given> invitations;
  std::vector<Site> sites;
  std::vector<Revoked> revoked;

  [[nodiscard]] const Site* site(std::string_view name) const;
  [[nodiscard]] bool is_revoked(std::string_view key) const;
  /// The valid public key of a site of the file; empty: none. `in_file`: the key there.
  [[nodiscard]] std::string key_of(std::string_view name, const std::string& in_file) const;
  /// Whether a site without a key has a usable invitation.
  [[nodiscard]] bool is_invited(std::string_view name, std::int64_t now) const;
  /// Admits the key of `request` if the invitation allows it; the caller has checked the proof.
  /// RETURNS: whether the book has changed, or why the key is refused.
  [[nodiscard]] Expected<bool, std::string> enrol(std::string_view invitation,
                                                  const EnrolRequest& request,
                                                  const std::vector<std::string>& taken,
                                                  std::int64_t now, const std::string& today);
  /// Revokes the site's valid key and its invitations. RETURNS: the key; empty: it has none, and
  /// only its invitations are revoked.
  std::string revoke(const std::string& name, const std::string& in_file, const std::string& today);

  [[nodiscard]] std::string write() const;
  /// THROWS: an error naming the fault of the text.
  [[nodiscard]] static HubKeyBook read(std::string_view text, const std::string& label);
};

class HubKeys {
 public:
  /// Reads the file, if there is one. Borrows all. THROWS: SystemError for a damaged file.
  HubKeys(Storage& storage, Runtime& runtime, const Config& config, std::filesystem::path folder);

  // Any task.
  [[nodiscard]] HubKeyBook book() const;
  [[nodiscard]] KeyTable table() const;
  /// Reads the file again if it may have changed. RETURNS: whether the book has changed.
  bool look();
  /// The hub's answer to a holder of an invitation. `hub`: the hub's key pair.
  [[nodiscard]] EnrolAnswer enrol(const LinkKeys& hub, const std::string& invitation,
                                  std::span<const std::byte> request);
  /// A new invitation for a site without a key in the file. `ttl_s`: from now, by this machine's
  /// clock. THROWS: ConfigError for a site that needs none, SystemError for the disk.
  [[nodiscard]] std::string invite(const std::string& site, const std::string& address,
                                   std::int64_t ttl_s, std::uint32_t uses);
  /// RETURNS: as HubKeyBook::revoke. THROWS: ConfigError for an unknown site.
  std::string revoke(const std::string& site);

 private:
  /// Blocks for the file lock, 2 s at most, and for the disk; readers do not wait for it. REQUIRES:
  /// changing_ is held. Calls `step` without mutex_.
  void change(const std::function<bool(HubKeyBook&)>& step);
  /// RETURNS: whether the file is as new as the book. If not, or if it THROWS, the book stays.
  [[nodiscard]] bool read();
  /// Writes the book if the file is older. THROWS: SystemError while another process changes the
  /// file.
  void put_back();
  [[nodiscard]] const SiteConfig& site_of(const std::string& name) const;
  [[nodiscard]] std::string secret();

  Storage& storage_;
  Runtime& runtime_;
  const Config& config_;
  const std::filesystem::path folder_;
  std::mutex changing_;  // one change at a time; taken before mutex_, held during waits
  mutable std::mutex mutex_;
  // Under mutex_:
  HubKeyBook book_;
  TimePoint read_at_{};
  std::optional<std::pair<std::filesystem::file_time_type, std::uintmax_t>> seen_;
};

/// The default folder of a hub's log: run.out/hub, or runs/NAME-hub.
[[nodiscard]] std::filesystem::path hub_folder(const Config& config,
                                               const std::filesystem::path& out);

}  // namespace isthmus::app
