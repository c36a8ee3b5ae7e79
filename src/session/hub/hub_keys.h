// SPDX-License-Identifier: Apache-2.0
// Whom a hub lets in: the keys of the file, those that came by an invitation, less those that were
// revoked. HubKeyBook is the arithmetic, pure; HubKeys keeps it in FOLDER/hub.keys, which a running
// hub and the commands `hub invite` and `hub revoke` may change at the same time, under
// FOLDER/keys.lock, each by replacing the file. The secret that invitations are made with is
// FOLDER/hub.secret (0600); no token is kept anywhere.
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
    std::string key;  // public, that follows from its token
    std::string site;
    std::int64_t expires = 0;  // seconds since 1970
    std::uint32_t uses = 1, used = 0;
    bool barred = false;  // its site has been revoked since
  };
  struct Site {  // that came by one
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
  /// The public key that counts for a site of the file; empty: none. `in_file`: the key there.
  [[nodiscard]] std::string key_of(std::string_view name, const std::string& in_file) const;
  /// Whether a site without a key has an invitation that can still be used.
  [[nodiscard]] bool is_invited(std::string_view name, std::int64_t now) const;
  /// Lets the key of `request` in, if the invitation allows it, whose holder has asked.
  /// RETURNS: whether the book has changed, or why the key is not let in.
  [[nodiscard]] Expected<bool, std::string> enrol(std::string_view invitation,
                                                  const EnrolRequest& request,
                                                  const std::vector<std::string>& taken,
                                                  std::int64_t now, const std::string& today);
  /// Bars the key that counts for the site, and its invitations. RETURNS: the key; empty: it has
  /// none, and its invitations alone are barred.
  std::string revoke(const std::string& name, const std::string& in_file, const std::string& today);

  [[nodiscard]] std::string write() const;
  /// THROWS: what the text is not.
  [[nodiscard]] static HubKeyBook read(std::string_view text, const std::string& label);
};

class HubKeys {
 public:
  /// Reads what is there, which may be nothing. Borrows all. THROWS: SystemError for a file that is
  /// damaged.
  HubKeys(Storage& storage, Runtime& runtime, const Config& config, std::filesystem::path folder);

  // Any task.
  [[nodiscard]] HubKeyBook book() const;
  [[nodiscard]] KeyTable table() const;
  /// Reads the file again if it may have changed. RETURNS: whether the book has.
  bool look();
  /// As the hub, asked by who holds an invitation. `hub`: its pair.
  [[nodiscard]] EnrolAnswer enrol(const LinkKeys& hub, const std::string& invitation,
                                  std::span<const std::byte> request);
  /// A new invitation for a site without a key in the file. `ttl_s`: from now, by this machine's
  /// clock. THROWS: ConfigError for a site that needs none, SystemError for the disk.
  [[nodiscard]] std::string invite(const std::string& site, const std::string& address,
                                   std::int64_t ttl_s, std::uint32_t uses);
  /// RETURNS: as HubKeyBook::revoke. THROWS: ConfigError for a site that is none.
  std::string revoke(const std::string& site);

 private:
  /// Blocks for the lock, 2 s at most, and for the disk; who only looks does not wait for it.
  /// REQUIRES: changing_ is held. `step` is called without mutex_.
  void change(const std::function<bool(HubKeyBook&)>& step);
  /// RETURNS: whether the file says all that is known; else what is known stands, as where it
  /// THROWS.
  [[nodiscard]] bool read();
  /// Writes what is known where the file says less. THROWS: SystemError, while another changes it.
  void put_back();
  [[nodiscard]] const SiteConfig& site_of(const std::string& name) const;
  [[nodiscard]] std::string secret();

  Storage& storage_;
  Runtime& runtime_;
  const Config& config_;
  const std::filesystem::path folder_;
  std::mutex changing_;  // one change at a time; taken before mutex_, and held while it waits
  mutable std::mutex mutex_;
  // Under mutex_:
  HubKeyBook book_;
  TimePoint read_at_{};
  std::optional<std::pair<std::filesystem::file_time_type, std::uintmax_t>> seen_;
};

/// The folder of a hub's log where none is named: run.out/hub, or runs/NAME-hub.
[[nodiscard]] std::filesystem::path hub_folder(const Config& config,
                                               const std::filesystem::path& out);

}  // namespace isthmus::app
