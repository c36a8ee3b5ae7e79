// SPDX-License-Identifier: Apache-2.0
// `launch`: one `train --site`, or a program of the user's, for every site: here, over ssh or under
// Slurm, or as lines to paste.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <sstream>

#include "app/commands/job_folders.h"
#include "app/commands/launched_sites.h"
#include "app/commands/links_flag.h"
#include "app/common/child_process.h"
#include "app/common/free_ports.h"
#include "app/observe/http_address.h"
#include "app/train/checkpoint_room.h"
#include "config/links_file.h"
#include "core/base/storage.h"
#include "isthmus/errors.h"
#include "record/run_lock.h"
#include "record/wall_clock.h"
#include "session/run/owner_shares.h"
#include "session/site/site_links.h"
#include "session/site/site_session.h"

namespace isthmus::app {
namespace {

using Words = std::vector<std::string>;

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

/// The nodes of this Slurm allocation, as Slurm itself spells them out; none without one.
Words allocated_nodes() {
  std::vector<ChildProcess> children;
  children.emplace_back(Words{"scontrol", "show", "hostnames"});
  Words nodes;
  while (!children.front().exit_code()) {
    read_lines(children, 1000,
               [&](std::size_t, const std::string& line) { nodes.push_back(line); });
  }
  return children.front().exit_code() == 0 ? nodes : Words();
}

class Launch {
 public:
  Launch(const LaunchArguments& arguments, const std::filesystem::path& links, Session& session)
      : arguments_(arguments),
        links_(links),
        session_(session),
        config_(load_changed(arguments, arguments.changes.size())) {
    if (!links.empty()) use_links_file(config_, links);
    for (const std::string& name : arguments.sites) {
      static_cast<void>(place_of(name));
    }
    check_programs();
    if (arguments.resume != "never" && arguments.out.empty() && config_.run.out.empty()) {
      throw ConfigError("--resume: which run? give its folder with --out or run.out");
    }
    if (arguments.via == "mpi") {
      check_mpi();
      static_cast<void>(owner_shares(config_));  // checks
      return;
    }
    if (arguments.via == "local") give_loopback_addresses();
    if (arguments.via == "slurm") give_node_addresses();
    set_addresses(config_, arguments.addresses);
    static_cast<void>(owner_shares(config_));  // checks
    for (const SiteConfig& site : config_.sites) {
      static_cast<void>(site_of(config_, {.name = site.name}));  // checks
    }
  }

  int run() {
    if (arguments_.via == "print") {
      print();
      return 0;
    }
    if (arguments_.via != "ssh") check_nobody_writes(folder());  // the sites' folders lie in it
    if (arguments_.via == "mpi") {
      return run_mpi_job();
    }
    if (arguments_.via == "local") check_disk();
    std::vector<LaunchedSite> sites;
    for (const std::string& name : chosen()) {
      sites.push_back({.name = name,
                       .command = command_of(name, Start::kFirst),
                       .command_again = command_of(name, Start::kAgain),
                       .program = !program_of(name).empty(),
                       .run = program_of(name).empty() || arguments_.via == "ssh"
                                  ? std::filesystem::path()
                                  : std::filesystem::path(folder()) / name,
                       .job = processes_of(name) > 1 && arguments_.via != "ssh"});
    }
    if (starts_hub()) {
      sites.push_back({.name = "hub",
                       .command = on_hub_host(hub_command(hub_program(), Start::kFirst)),
                       .command_again = on_hub_host(hub_command(hub_program(), Start::kAgain)),
                       .hub = true});
    }
    const std::optional<LaunchFailure> first = run_sites(sites, arguments_.restarts, session_.err);
    if (!first)
      session_.saved = fmt::format("the run ended in order and is saved in '{}'", folder());
    session_.out.write(
        first ? fmt::format("ended: {} sites in {}; the first was {}, with exit code {}\n",
                            chosen().size(), folder(), first->site, first->exit_code)
              : fmt::format("done: {} sites in {}\n", chosen().size(), folder()));
    return first ? first->exit_code : 0;
  }

 private:
  enum class Start { kFirst, kAgain };

  /// The program of a site; empty: `isthmus train`. A program given for the site alone counts
  /// first.
  [[nodiscard]] std::string program_of(const std::string& site) const {
    std::string found;
    for (const std::string& each : arguments_.programs) {
      const std::string name = each.substr(0, each.find('='));
      const bool of_one =
          each.find('=') != std::string::npos &&
          std::ranges::find(config_.sites, name, &SiteConfig::name) != config_.sites.end();
      if (of_one && name == site) return each.substr(name.size() + 1);
      if (!of_one) found = each;
    }
    return found;
  }

  void check_programs() const {
    for (const std::string& each : arguments_.programs) {
      // NAME=COMMAND of a site; VARIABLE=VALUE COMMAND is the shell's.
      const std::string name = each.substr(0, each.find_first_of("= \t'\"/$"));
      const bool is_name = name.size() < each.size() && each[name.size()] == '=' && !name.empty();
      const bool is_variable = std::ranges::all_of(name, [](char c) {
        return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
      });
      if (is_name && !is_variable) static_cast<void>(place_of(name, "--program"));
    }
    for (const std::string& name : chosen()) {
      if (config_.train.trainer == "external" && program_of(name).empty()) {
        throw ConfigError(fmt::format(
            "train.trainer = \"external\" and no --program for site '{}': the trainer is in a "
            "program of yours; give it, as in --program \"python train.py\"",
            name));
      }
    }
    if (arguments_.programs.empty()) return;
    const auto refuse = [](const std::string& flag, const char* why) {
      throw UsageError(fmt::format("{} together with --program: {}", flag, why));
    };
    if (arguments_.via == "mpi")
      refuse("--via mpi", "a program's sites meet over TCP; leave it out");
    if (arguments_.ranks == "processes") {
      refuse("--ranks processes",
             "the program starts its own ranks, as torchrun does; leave it out");
    }
  }

  /// The environment of a site's program (python/isthmus/_launched.py).
  [[nodiscard]] Words program_command(const std::string& program, const std::string& name,
                                      Start start) {
    const auto lines = [](const Words& words) { return fmt::format("{}", fmt::join(words, "\n")); };
    Words overrides = set_texts(arguments_);
    if (const std::string http = http_of(name); !http.empty()) {
      overrides.push_back(fmt::format("log.http=\"{}\"", http));
    }
    Words addresses = given_;
    append(addresses, arguments_.addresses);
    Words words = {"env", "ISTHMUS_LAUNCHED=1", "ISTHMUS_SITE=" + name,
                   fmt::format("ISTHMUS_OUT={}/{}", folder(), name),
                   "ISTHMUS_RESUME=" + (start == Start::kAgain ? "auto" : arguments_.resume)};
    if (arguments_.force && start == Start::kFirst) words.emplace_back("ISTHMUS_FORCE=1");
    if (!overrides.empty()) words.push_back("ISTHMUS_OVERRIDES=" + lines(overrides));
    if (!arguments_.changes.empty())
      words.push_back("ISTHMUS_CHANGES=" + lines(arguments_.changes));
    if (!addresses.empty()) words.push_back("ISTHMUS_ADDRESSES=" + lines(addresses));
    if (!links_.empty()) words.push_back("ISTHMUS_LINKS=" + links_.string());
    append(words, {"sh", "-c", program});
    return words;
  }

  /// The built-in trainer's sites share this machine's disk.
  void check_disk() {
    std::vector<WorkerId> sites;
    for (const std::string& name : chosen()) {
      if (program_of(name).empty()) sites.emplace_back(static_cast<int>(place_of(name)));
    }
    check_room_of_sites(SystemStorage(), config_, sites, folder(), arguments_.resume != "never");
  }

  void check_mpi() const {
    const auto refuse = [](const char* flag, const char* why) {
      throw UsageError(fmt::format("{} together with --via mpi: {}", flag, why));
    };
    if (config_.net.transport != "auto" && config_.net.transport != "mpi") {
      throw ConfigError(fmt::format("net.transport = \"{}\" together with --via mpi: leave it out",
                                    config_.net.transport));
    }
    if (!arguments_.sites.empty()) refuse("--site", "a job has all sites; leave it out");
    if (!arguments_.addresses.empty()) refuse("--address", "MPI knows them; leave it out");
    if (arguments_.restarts > 0) {
      refuse("--restart", "MPI ends a job that has lost a process; start it again with --resume");
    }
  }

  [[nodiscard]] static int ranks_of(const SiteConfig& site) { return site.tp * site.pp * site.dp; }
  /// That a site is started as.
  [[nodiscard]] int processes_of(const std::string& site) const {
    return arguments_.ranks == "processes" ? ranks_of(config_.sites[place_of(site)]) : 1;
  }
  [[nodiscard]] Words mpirun(int processes) const {
    std::istringstream words(arguments_.mpirun);
    Words command{std::istream_iterator<std::string>(words), {}};
    append(command, {"-n", fmt::format("{}", processes)});
    return command;
  }
  /// The site's command, as an MPI job where its ranks are processes.
  [[nodiscard]] Words as_job(const std::string& site, const Words& command) const {
    if (processes_of(site) == 1) return command;
    Words words = mpirun(processes_of(site));
    append(words, command);
    return words;
  }
  /// Beside the jobs of other sites on this machine.
  [[nodiscard]] Words apart(const std::string& site, const Words& job) {
    if (processes_of(site) == 1) return job;
    if (!job_folders_) job_folders_.emplace();
    Words words = {"env", "TMPDIR=" + job_folders_->of(site)};
    append(words, job);
    return words;
  }

  /// One process a site, or a rank of its mesh; of a file with one site always a rank.
  int run_mpi_job() {
    int processes = 0;
    for (const SiteConfig& site : config_.sites) processes += processes_of(site.name);
    if (config_.workers() == 1) processes = ranks_of(config_.sites.front());
    Words command = mpirun(processes);
    append(command, {own_program(), "train", arguments_.config.string(), "--out", folder()});
    for (const std::string& each : set_texts(arguments_)) append(command, {"--set", each});
    for (const std::string& each : arguments_.changes) append(command, {"--change", each});
    if (!links_.empty()) append(command, {"--links", links_.string()});
    if (arguments_.resume != "never") append(command, {"--resume", arguments_.resume});
    if (arguments_.force) command.emplace_back("--force");
    append(command, {"--progress", session_.progress == ProgressMode::kNone ? "none" : "plain"});
    const std::vector<LaunchedSite> job = {
        {.name = "mpi", .command = command, .command_again = {}, .job = true}};
    const std::optional<LaunchFailure> failure = run_sites(job, 0, session_.err);
    if (!failure)
      session_.saved = fmt::format("the run ended in order and is saved in '{}'", folder());
    session_.out.write(failure ? fmt::format("ended: {} processes in {}, with exit code {}\n",
                                             processes, folder(), failure->exit_code)
                               : fmt::format("done: {} processes in {}\n", processes, folder()));
    if (!failure) return 0;
    // Where a signal has ended a process it is mpirun's own code: the others were ended by it.
    return mends_by_restart(failure->exit_code) ? static_cast<int>(ExitCode::kPeer)
                                                : failure->exit_code;
  }

  [[nodiscard]] std::size_t place_of(const std::string& name,
                                     std::string_view flag = "--site") const {
    Words known;
    for (std::size_t i = 0; i < config_.sites.size(); ++i) {
      if (config_.sites[i].name == name) return i;
      known.push_back(config_.sites[i].name);
    }
    throw UsageError(
        fmt::format("{} {}: no such site; sites: {}", flag, name, fmt::join(known, ", ")));
  }

  [[nodiscard]] Words chosen() const {
    if (!arguments_.sites.empty()) {
      return arguments_.sites;
    }
    Words names;
    for (const SiteConfig& site : config_.sites) names.push_back(site.name);
    return names;
  }

  /// Sites on this machine have addresses of this machine, whatever the file says.
  void give_loopback_addresses() {
    const std::vector<int> ports = free_loopback_ports(config_.sites.size() + 1);
    if (!config_.hub.address.empty()) {
      config_.hub.address = fmt::format("127.0.0.1:{}", ports.back());
      given_.push_back("hub=" + config_.hub.address);
    }
    for (std::size_t i = 0; i < config_.sites.size(); ++i) {
      SiteConfig& site = config_.sites[i];
      site.address = fmt::format("127.0.0.1:{}", ports[i]);
      given_.push_back(site.name + "=" + site.address);
    }
  }

  /// Under Slurm the nodes of the allocation serve as the sites, in order.
  void give_node_addresses() {
    nodes_ = allocated_nodes();
    if (nodes_.size() < config_.sites.size()) {
      throw ConfigError(
          fmt::format("--via slurm: {} sites need as many nodes, the allocation has {} (scontrol "
                      "show hostnames): "
                      "salloc --nodes={} first",
                      config_.sites.size(), nodes_.size(), config_.sites.size()));
    }
    constexpr int kPort = 48200;
    for (std::size_t i = 0; i < config_.sites.size(); ++i) {
      SiteConfig& site = config_.sites[i];
      if (site.address.empty()) {
        site.address = fmt::format("{}:{}", nodes_[i], kPort);
        given_.push_back(site.name + "=" + site.address);
      }
    }
  }

  [[nodiscard]] std::string folder() {
    if (out_.empty()) {
      out_ = !arguments_.out.empty() ? arguments_.out.string()
             : !config_.run.out.empty()
                 ? config_.run.out.string()
                 : fmt::format("runs/{}-{}", config_.run.name, random_id().substr(0, 8));
    }
    return out_;
  }

  /// Where the site serves its page, when the file's address is not enough: sites on one machine
  /// take ports one after another.
  [[nodiscard]] std::string http_of(const std::string& name) const {
    if (arguments_.via != "local" || config_.log.http.empty()) {
      return "";
    }
    const HttpAddress address = parse_http_address("log.http", config_.log.http);
    const auto place = static_cast<int>(place_of(name));
    const std::string host =
        address.host.find(':') == std::string::npos ? address.host : "[" + address.host + "]";
    return fmt::format("{}:{}", host, address.port == 0 ? 0 : address.port + place);
  }

  /// Flags that sites and hub have in common; `change`: what a change of the run is for the
  /// command.
  void append_shared(Words& words, const char* change) const {
    for (const std::string& each : set_texts(arguments_)) append(words, {"--set", each});
    for (const std::string& each : arguments_.changes) append(words, {change, each});
    if (!links_.empty()) append(words, {"--links", links_.string()});
    Words addresses = given_;
    append(addresses, arguments_.addresses);
    for (const std::string& each : addresses) append(words, {"--address", each});
  }

  /// The site's own command, as its machine runs it.
  [[nodiscard]] Words train_command(const std::string& program, const std::string& name,
                                    Start start = Start::kFirst) {
    if (const std::string own = program_of(name); !own.empty()) {
      return program_command(own, name, start);
    }
    Words words = {program, "train", arguments_.config.string(), "--site",
                   name,    "--out", folder() + "/" + name};
    append_shared(words, "--change");
    if (const std::string http = http_of(name); !http.empty()) append(words, {"--http", http});
    const std::string resume = start == Start::kAgain ? "auto" : arguments_.resume;
    if (resume != "never") append(words, {"--resume", resume});
    if (arguments_.force && start == Start::kFirst) words.emplace_back("--force");
    if (arguments_.via != "print") {
      // One site tells how far the run has come; all write the same lines.
      const Words all = chosen();
      const auto teller = std::ranges::find_if(
          all, [&](const std::string& each) { return program_of(each).empty(); });
      const bool tells = name == *teller && session_.progress != ProgressMode::kNone;
      append(words, {"--progress", tells ? "plain" : "none"});
    }
    return words;
  }

  /// The file's hub starts with all sites if it is a separate process: on the machine of `launch`,
  /// but over ssh at its address.
  [[nodiscard]] bool starts_hub() const {
    return arguments_.sites.empty() && !config_.hub.address.empty() && config_.hub.site.empty();
  }
  [[nodiscard]] std::string hub_program() const {
    return arguments_.via == "local" || arguments_.via == "slurm" ? own_program() : "isthmus";
  }
  [[nodiscard]] Words hub_command(const std::string& program, Start start) {
    Words words = {program, "hub", arguments_.config.string(), "--out", folder() + "/hub"};
    append_shared(words, "--set");
    if (start == Start::kAgain || arguments_.resume != "never") append(words, {"--resume", "auto"});
    return words;
  }
  [[nodiscard]] Words on_hub_host(const Words& words) const {
    if (arguments_.via != "ssh") return words;
    std::string host = host_of(config_.hub.address);
    for (const std::string& each : arguments_.hosts) {
      if (each.starts_with("hub=")) host = each.substr(4);
    }
    return over_ssh(host, words);
  }

  [[nodiscard]] Words command_of(const std::string& name, Start start) {
    const std::size_t place = place_of(name);
    if (arguments_.via == "local") {
      return apart(name, as_job(name, train_command(own_program(), name, start)));
    }
    if (arguments_.via == "slurm") {
      Words words = {"srun", "--nodes=1", fmt::format("--ntasks={}", processes_of(name)),
                     "--nodelist=" + nodes_[place]};
      append(words, train_command(own_program(), name, start));
      return words;
    }
    std::string host = host_of(config_.sites[place].address);
    for (const std::string& each : arguments_.hosts) {
      if (each.starts_with(name + "=")) host = each.substr(name.size() + 1);
    }
    if (host.empty()) {
      throw ConfigError(
          fmt::format("site '{}' has no address, so ssh knows no host for it: give --host {}=HOST",
                      name, name));
    }
    return over_ssh(host, as_job(name, train_command("isthmus", name, start)));
  }

  [[nodiscard]] Words over_ssh(const std::string& host, const Words& command) const {
    const std::string directory = arguments_.directory.empty()
                                      ? std::filesystem::current_path().string()
                                      : arguments_.directory;
    // With a terminal the remote side ends when the connection does.
    return {arguments_.ssh,
            "-tt",
            "-o",
            "BatchMode=yes",
            host,
            fmt::format("cd {} && exec {}", shell_word(directory), shell_line(command))};
  }

  void print() {
    if (starts_hub()) {
      session_.out.write(fmt::format("# the hub (sites reach it at {})\n{}\n", config_.hub.address,
                                     shell_line(hub_command("isthmus", Start::kFirst))));
    }
    for (const std::string& name : chosen()) {
      const SiteConfig& site = config_.sites[place_of(name)];
      const std::string where = site.address.empty() ? "by way of a relay" : "at " + site.address;
      session_.out.write(fmt::format("# on {} (other sites reach it {})\n{}\n", name, where,
                                     shell_line(as_job(name, train_command("isthmus", name)))));
    }
  }

  const LaunchArguments& arguments_;
  const std::filesystem::path& links_;
  Session& session_;
  Config config_;
  Words given_;  // addresses that are not the file's
  Words nodes_;  // slurm: of the allocation, one a site
  std::string out_;
  std::optional<JobFolders> job_folders_;
};

}  // namespace

int command_launch(const LaunchArguments& arguments, const std::filesystem::path& links,
                   Session& session) {
  return Launch(arguments, links, session).run();
}

}  // namespace isthmus::app
