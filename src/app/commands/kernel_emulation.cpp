// SPDX-License-Identifier: Apache-2.0
#include "app/commands/kernel_emulation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/launched_sites.h"
#include "app/common/child_process.h"
#include "app/observe/round_json.h"
#include "core/base/json_input.h"
#include "core/base/storage.h"
#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "record/json_line.h"
#include "record/wall_clock.h"
#include "session/run/run_settings.h"
#include "sim/topology.h"
#include "sim/wan.h"

namespace isthmus::app {
namespace {

constexpr std::size_t kMostEmulatedSites = 200;
constexpr int kPort = 48200;  // each site has a machine's ports to itself
constexpr const char* kNetwork = "10.83.0.0/24";
constexpr double kLateShare = 0.05;

std::string address_of(std::size_t site) { return fmt::format("10.83.0.{}", site + 1); }

double milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

class KernelEmulation {
 public:
  KernelEmulation(const SimulateArguments& arguments, const std::filesystem::path& links,
                  Session& session)
      : arguments_(arguments),
        session_(session),
        config_(load_changed(arguments, arguments.changes.size())) {
    if (!arguments.links.empty() || !links.empty()) {
      throw UsageError(
          "simulate --kernel: the sites read the links from the file: write them there as [[link]] "
          "and leave --link and --links out");
    }
    if (arguments.dry_run) {
      throw UsageError("simulate --dry-run together with --kernel: leave --kernel out");
    }
    check_config();
    if (::geteuid() != 0) {
      throw SystemError(
          "simulate --kernel makes network namespaces and needs root: use sudo, or leave --kernel "
          "out");
    }
  }

  int run() {
    const std::string folder = folder_of();
    std::vector<WanNode> nodes;
    std::vector<FileDescriptor> spaces;
    for (std::size_t site = 0; site < config_.sites.size(); ++site) make_space(nodes, spaces);
    Wan wan(runtime_.clock(), std::move(nodes), paths(), {.seed = config_.run.seed});
    std::atomic<bool> over{false};
    std::exception_ptr failure;
    const auto task = runtime_.spawn("wan", [&] {
      try {
        wan.run([&over] { return over.load(); });
      } catch (...) {
        failure = std::current_exception();
      }
    });
    std::optional<LaunchFailure> first;
    try {
      first = run_sites(sites(folder, spaces), 0, session_.err);
    } catch (...) {
      over = true;
      throw;  // the task ends before the objects that it uses
    }
    over = true;
    task->join();
    if (failure) std::rethrow_exception(failure);
    tell(folder, wan, first);
    return first ? first->exit_code : 0;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& remedy) const {
    throw ConfigError(
        fmt::format("{}: {} together with --kernel: {}", arguments_.config.string(), what, remedy));
  }

  void check_config() {
    if (!config_.origins.contains("site[0].name") || config_.sites.size() < 2) {
      throw ConfigError(fmt::format(
          "{}: --kernel starts a process for each [[site]]: add two at least, each with a name",
          arguments_.config.string()));
    }
    if (config_.sites.size() > kMostEmulatedSites) {
      refuse(fmt::format("{} sites", config_.sites.size()),
             fmt::format("it takes {} at most", kMostEmulatedSites));
    }
    if (config_.surrogate) {
      refuse("[surrogate]", "no real socket carries its bytes; leave it out");
    }
    if (!config_.faults.empty()) {
      refuse("[[fault]]", "it goes wrong in virtual time; remove it, or use `simulate` alone");
    }
    if (has_traces(config_)) {
      refuse("[[link]] with a trace", "it says rates in virtual time; give a rate");
    }
    if (!config_.hub.address.empty()) refuse("[hub]", "leave it out");
    if (config_.links.empty()) {
      throw ConfigError(
          fmt::format("{}: simulate needs a link between the {} workers: add [[link]]; --kernel "
                      "takes no --link",
                      arguments_.config.string(), config_.workers()));
    }
    check_links(config_);
    std::vector<std::string> names;
    for (const SiteConfig& site : config_.sites) names.push_back(site.name);
    links_ = link_matrix(config_.links, names);
    const DirectedLink& one = links_[1];
    for (std::size_t i = 0; i < links_.size(); ++i) {
      if (i / names.size() == i % names.size()) continue;
      if (links_[i].congestion != one.congestion) {
        refuse("links of unlike congestion", "give all [[link]]s the same");
      }
      if (links_[i].streams != one.streams) {
        refuse("links of unlike streams", "give all [[link]]s as many");
      }
    }
  }

  [[nodiscard]] std::string folder_of() const {
    return !arguments_.out.empty() ? arguments_.out.string()
           : !config_.run.out.empty()
               ? config_.run.out.string()
               : fmt::format("runs/{}-{}", config_.run.name, random_id().substr(0, 8));
  }

  /// In a separate task, since the task that makes a namespace is in it from then on.
  void make_space(std::vector<WanNode>& nodes, std::vector<FileDescriptor>& spaces) {
    std::exception_ptr failure;
    const auto task = runtime_.spawn("namespace", [&] {
      try {
        spaces.push_back(make_network_namespace());
        const std::string address = address_of(nodes.size());
        nodes.push_back({.address = address, .packets = open_tun_device(address)});
      } catch (...) {
        failure = std::current_exception();
      }
    });
    task->join();
    if (failure) std::rethrow_exception(failure);
    use_congestion_control(nodes.back().address, spaces.back().get());
  }

  /// Set by the route: as a namespace's default the kernel accepts only algorithms that every
  /// process may choose.
  void use_congestion_control(const std::string& address, int space) const {
    const std::string name = links_[1].congestion == Congestion::kBbr ? "bbr" : "cubic";
    std::vector<ChildProcess> ip;
    ip.emplace_back(std::vector<std::string>{"ip", "route", "replace", kNetwork, "dev", kTunDevice,
                                             "src", address, "congctl", name},
                    space);
    std::string said;
    while (!ip.front().exit_code()) {
      read_lines(ip, 1000, [&](std::size_t, const std::string& line) { said += line + "; "; });
    }
    if (ip.front().exit_code() != 0) {
      throw SystemError(fmt::format(
          "simulate --kernel: congestion control {} by `ip route`: {}it needs iproute2, and the "
          "kernel's tcp_{} (modprobe tcp_{}), or give the links another congestion",
          name, said, name, name));
    }
  }

  [[nodiscard]] std::vector<WanPath> paths() const {
    std::vector<WanPath> paths;
    for (const DirectedLink& link : links_) {
      const double mbit = static_cast<double>(link.bits_per_s) / 1e6;
      paths.push_back({.line = {mbit, bandwidth_delay_product(mbit, milliseconds(link.rtt()))},
                       .delay_ms = milliseconds(link.one_way),
                       .jitter_ms = milliseconds(link.jitter),
                       .loss = link.loss});
    }
    return paths;
  }

  [[nodiscard]] std::vector<LaunchedSite> sites(const std::string& folder,
                                                const std::vector<FileDescriptor>& spaces) const {
    std::vector<LaunchedSite> sites;
    for (const SiteConfig& site : config_.sites) {
      std::vector<std::string> words = {
          own_program(), "train", arguments_.config.string(), "--site",
          site.name,     "--out", folder + "/" + site.name};
      const auto add = [&words](const std::string& flag, const std::string& value) {
        words.insert(words.end(), {flag, value});
      };
      for (const std::string& each : set_texts(arguments_)) add("--set", each);
      for (const std::string& each : arguments_.changes) add("--change", each);
      add("--set", "net.plaintext=true");
      add("--set", "net.detour=false");
      add("--set", fmt::format("net.streams={}", links_[1].streams));
      for (std::size_t other = 0; other < config_.sites.size(); ++other) {
        add("--address",
            fmt::format("{}={}:{}", config_.sites[other].name, address_of(other), kPort));
      }
      if (arguments_.resume != "never") add("--resume", arguments_.resume);
      if (arguments_.force) words.emplace_back("--force");
      const bool tells = sites.empty() && session_.progress != ProgressMode::kNone;
      add("--progress", tells ? "plain" : "none");
      sites.push_back({.name = site.name,
                       .command = std::move(words),
                       .command_again = {},
                       .network_space = spaces[sites.size()].get()});
    }
    return sites;
  }

  void tell(const std::string& folder, const Wan& wan, const std::optional<LaunchFailure>& first) {
    if (const double late = wan.lateness().over_1ms; late > kLateShare) {
      session_.err.write(fmt::format(
          "isthmus: {:.0f} % of the packets were more than a millisecond late, since this machine "
          "was busy: the links were slower than declared\n",
          100 * late));
    }
    if (first) {
      session_.out.write(fmt::format("ended: {} sites in {}; the first was {}, with exit code {}\n",
                                     config_.sites.size(), folder, first->site, first->exit_code));
      return;
    }
    const std::string file = folder + "/" + config_.sites.front().name + "/summary.json";
    const SystemStorage storage;
    const nlohmann::json summary = parse_json(read_text(storage, file), file);
    JsonLine line;
    line.add("out", folder).add("sites", config_.sites.size());
    std::string text = fmt::format("done: {} sites in {}", config_.sites.size(), folder);
    if (const auto said = summary.find("prediction"); said != summary.end()) {  // not if resumed
      const auto predicted = said->at("predicted_s").get<double>();
      const auto measured = said->at("measured_s").get<double>();
      line.add("predicted_s", predicted).add("measured_s", measured);
      text += fmt::format("; predicted {:.2f} s, measured {:.2f} s ({:+.1f} %)", predicted,
                          measured, 100 * (predicted / measured - 1));
      if (const auto rounds = said->find("rounds"); rounds != said->end()) {
        const auto at = rounds->at("at").get<std::string>();
        const RoundComparison comparison = read_rounds(rounds->dump());
        line.add_raw("rounds", rounds_json(comparison, at, false));
        text += "\n" + render_rounds(comparison, at);
        text.pop_back();  // the last line's end
      }
    }
    line.add("late_over_1ms", wan.lateness().over_1ms);
    session_.out.write((session_.json ? line.str() : text) + "\n");
  }

  const SimulateArguments& arguments_;
  Session& session_;
  Config config_;
  SystemRuntime runtime_;
  std::vector<DirectedLink> links_;  // from site i to site j
};

}  // namespace

int command_simulate_kernel(const SimulateArguments& arguments, const std::filesystem::path& links,
                            Session& session) {
  return KernelEmulation(arguments, links, session).run();
}

}  // namespace isthmus::app
