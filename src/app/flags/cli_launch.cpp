// SPDX-License-Identifier: Apache-2.0
#include "app/commands/links_flag.h"
#include "app/flags/cli_parser.h"
#include "config/schema/device_request.h"

namespace isthmus::app {

void add_device_flag(CLI::App& command, TrainArguments& arguments) {
  const auto take = [&arguments](const std::string& text) {
    arguments.from_flags.push_back(
        {.text = "train.device=\"" + text + "\"", .flag = "--device", .given = text});
  };
  command
      .add_option_function<std::string>("--device", take,
                                        "auto, cpu, cuda or cuda:N: what computes the inner loop")
      ->check([](const std::string& text) {
        return parse_device(text) ? std::string() : "no such device; auto, cpu, cuda or cuda:N";
      })
      ->type_name("DEVICE");
}

void add_launch_command(CLI::App& app, Parsed& parsed) {
  CLI::App* launch = subcommand(
      app, "launch", "start `train --site`, or a program of yours, for every site of a file");
  LaunchArguments& arguments = parsed.launch;
  add_configuration_flags(*launch, arguments);
  add_http_flag(*launch, arguments);
  add_device_flag(*launch, arguments);
  launch
      ->add_option("--via", arguments.via,
                   "local: all on this machine; ssh: each on its host; slurm: each on a node of "
                   "this allocation; mpi: as one MPI job; print: the commands, to start by other "
                   "means")
      ->check(CLI::IsMember({"local", "ssh", "slurm", "mpi", "print"}));
  repeated(*launch, "--site", "NAME", arguments.sites, "only this one (default: all)");
  repeated(*launch, "--address", "NAME=HOST:PORT", arguments.addresses,
           "where a site is reached, instead of the file's");
  launch->add_option("--ssh", arguments.ssh, "ssh: the program (default: ssh)");
  repeated(*launch, "--host", "NAME=USER@HOST", arguments.hosts,
           "ssh: where a site is started (default: the host of its address)");
  launch->add_option("--directory", arguments.directory,
                     "ssh: where CONFIG lies there (default: this folder)");
  option(*launch, "--mpirun", "WORDS", arguments.mpirun,
         "mpi, and --ranks processes: the program and its own flags (default: mpirun), as in "
         "\"mpirun --hostfile hosts\"");
  launch
      ->add_option("--ranks", arguments.ranks,
                   "of sites with a mesh: threads of the site's process (default), or processes: "
                   "each site is one MPI job; with --via mpi all sites are one job")
      ->check(CLI::IsMember({"threads", "processes"}));
  repeated(
      *launch, "--program", "[NAME=]COMMAND", arguments.programs,
      "a program of yours in the place of `train --site`, for all sites or for one: it joins as "
      "the site that ISTHMUS_SITE names (docs/python.md)");
  launch
      ->add_option("--restart", arguments.restarts,
                   "how often a site that dies by a signal or loses the others (exit code 5) is "
                   "started again, with --resume auto (default: 0)")
      ->check(CLI::Range(0, 1000));
  const auto links = add_links_flag(*launch);
  set_action(*launch, parsed, [links, &parsed](Session& session) {
    return command_launch(parsed.launch, *links, session);
  });
}

}  // namespace isthmus::app
