// SPDX-License-Identifier: Apache-2.0
// The commands: plain arguments in, exit code out. Only cli.cpp knows the flags (CLI11) and fills
// these structs; main.cpp turns a command's exception into one line and an exit code. A command
// blocks until its work is done or a signal stops it. THROWS: Error with the exit code of its
// cause: UsageError for arguments, ConfigError for files, SystemError for the machine, PeerError
// for other sites, RunError for the run itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/common/progress_mode.h"
#include "app/common/terminal.h"
#include "isthmus/config.h"
#include "isthmus/errors.h"
#include "plan/utilisation_schedule.h"
#include "record/json_line.h"
#include "session/run/site_arguments.h"
#include "session/run/usage_error.h"

namespace isthmus::app {

/// The environment of every command. `out` is stdout (machine output, tables), `err` stderr
/// (messages).
struct Session {
  Terminal& out;
  Terminal& err;
  std::vector<std::string> argv;
  bool quiet = false;  // -q: warnings and errors only
  int verbose = 0;     // -v
  bool json = false;   // --json: one machine-readable object on stdout
  ProgressMode progress = ProgressMode::kAuto;
  /// The command's result on the disk, once it is complete: "the run is saved in 'runs/x'". Output
  /// after that only repeats it.
  std::string saved = {};
  /// The command's answer with --json.
  void answer(const JsonLine& object) const { out.write(object.str() + "\n"); }
  /// Says in `saved` that the file or folder `path` is written whole.
  void wrote(const std::filesystem::path& path) {
    saved = "'" + path.string() + "' is written whole";
  }
};

/// The methods, codecs and model reader of this build, for `load_config`.
[[nodiscard]] SchemaContext schema_context();
/// A method as the JSON object of `methods` and `explain`.
[[nodiscard]] std::string method_json(const MethodInfo& method);

struct TrainArguments {
  std::filesystem::path config;
  std::vector<std::string> overrides;  // --set
  std::vector<Override> from_flags;    // from flags that stand for a key: --workers N
  std::vector<std::string> changes;    // --change: of a resumed run, in order
  std::filesystem::path out;           // --out; empty: run.out
  std::string resume = "never";        // never | auto (newest checkpoint of out) | PATH
  bool force = false;
  bool dry_run = false;  // check, print memory, bytes and time, train nothing
  SiteArguments site;    // train; empty name: all sites are in this process
};
struct SimulateArguments : TrainArguments {
  std::vector<LinkConfig> links;  // --link; replaces the file's links
  bool emulate = false;           // real time, threads and sockets behind the declared links
};
struct LaunchArguments : TrainArguments {
  std::string via = "local";           // local | ssh | slurm | mpi | print
  std::vector<std::string> sites;      // to start; empty: all
  std::vector<std::string> addresses;  // as SiteArguments
  std::string ssh = "ssh";             // the ssh to use
  std::vector<std::string> hosts;      // ssh: "NAME=USER@HOST" if it is not the address's host
  std::string directory;               // ssh: the configuration's folder there
  std::string mpirun = "mpirun";       // mpi, ranks: the program, with arguments before "-n"
  std::string ranks = "threads";       // threads | processes: the kind of a mesh's ranks
  std::vector<std::string> programs;   // --program: "COMMAND" of all sites, "NAME=COMMAND" of one
  int restarts = 0;                    // --restart: of each site that dies or loses the others
};
struct HubArguments {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  std::filesystem::path out;  // for its log; empty: run.out/hub, or runs/NAME-hub
  bool resume = false;        // continue with the existing log
  std::string http;           // of its page, HOST:PORT; empty: none, whatever log.http is
  SiteArguments links;        // listen, key_file, addresses
};
/// The trainer of a comparison's cells, in place of the built-in one.
struct CellProgram {
  std::string command;     // of a shell; empty: the built-in trainer
  bool each_site = false;  // started once for each site, not once for the whole run
  [[nodiscard]] bool given() const { return !command.empty(); }
};
struct CompareArguments {
  std::filesystem::path config;
  std::vector<std::string> overrides;  // --set
  std::optional<Override> seeds;       // --seeds N as compare.seeds=N
  std::filesystem::path out;           // --out; empty: run.out
  std::vector<std::string> only;       // variants besides the baseline; empty: all
  int jobs = 0;                        // cells at a time; 0: as many as cores and memory take
  bool quick = false;                  // three seeds, a quarter of the length: not a result
  bool resume = false;                 // keep the folder's finished cells
  bool force = false;                  // replace the comparison in the folder
  bool dry_run = false;                // list the cells and their cost
  std::filesystem::path judge;         // --judge: finished cells to judge again, without training
  std::string against;                 // --against: "ref:NAME" instead of `config`
  CellProgram program;                 // --program, --each-site: trains the runs
  /// Exit 6 unless these variants reach the target with every seed; "all": every variant.
  std::vector<std::string> require;
};
struct DemoArguments {
  std::filesystem::path out;  // empty: runs/demo-<stamp>-<id>
  std::uint64_t seed = 0;
};
int command_simulate(const SimulateArguments& arguments, Session& session);
int command_compare(const CompareArguments& arguments, Session& session);
int command_demo(const DemoArguments& arguments, Session& session);

struct InitArguments {
  std::filesystem::path directory = ".";
  std::string name = "laptop";  // --template
  bool force = false;
};
struct KeygenArguments {
  std::vector<std::string> names;  // of sites
  std::filesystem::path out = "keys";
};
struct InspectArguments {
  std::filesystem::path path;
  std::vector<std::string> overrides;  // of a configuration
  bool tensors = false;                // list every tensor
};
struct ExplainArguments {
  std::string topic;  // a key, section, error code, method or codec
};
struct DataArguments {
  enum class Action { kInspect, kSynth, kVerify };
  Action action = Action::kInspect;
  std::string source;                  // "text:FILE", a path, or "synth:NAME"
  std::filesystem::path out;           // synth: token file to write
  std::optional<std::int64_t> tokens;  // synth; absent: the number in the spelling
  std::optional<std::uint64_t> seed;   // synth; absent: the seed in the spelling
};
struct ImportArguments {
  std::filesystem::path from, to;
};
struct ExportArguments {
  std::filesystem::path from, to;
  std::string format = "hf";   // hf, peft: a model; tb | csv | chrome | mlperf: a run's records
  std::filesystem::path base;  // of adapters; empty: where the run found it
};
struct ReportArguments {
  std::vector<std::filesystem::path> runs;
  std::filesystem::path out;  // empty: report.html in the first run
  std::filesystem::path csv;  // a folder, or empty
  std::string title;
  std::vector<std::string> links;  // to re-time the runs for
};
struct StatusArguments {
  std::string run;     // a folder or a URL; empty: the newest run below runs/
  bool watch = false;  // repeat every second until the run has ended
};
struct BenchCodecArguments {
  std::string codec;  // empty: all
  std::filesystem::path in, out, bytes;
};
struct BenchComputeArguments {
  std::vector<std::string> workloads;  // empty: four of the measured ones
  int threads = 0;                     // 0: all cores
  double seconds = 6;                  // of timed steps, for each workload
  std::int64_t sequences = 0;          // 0: the workload's
  std::string precision = "fp32";      // or bf16
  std::string optimizer = "adamw";     // of the inner loop
  std::string kernels = "auto";        // as train.kernels has it
  std::string device = "cpu";          // or cuda, cuda:N
  std::string attention = "own";       // as train.attention has it
  std::int64_t micro_batches = 1;      // of each data-parallel rank
  std::string recompute = "none";      // selective or full
  int tp = 1, pp = 1, dp = 1;          // the mesh; its ranks are threads
  std::string schedule = "1f1b";
  int virtual_stages = 1;
  bool sequence_parallel = false;
  int zero = 0;
};
struct PlanUtilisationArguments {
  std::filesystem::path config;        // a run with the method and model, or empty
  std::vector<std::string> overrides;  // --set, for `config`
  std::string params, step_time;       // "1B", "100ms"
  std::optional<int> layers;
  std::vector<std::string> methods;  // "diloco", "streaming-diloco:overlap=1"; empty: a set
  UtilisationChoice common;          // for every method with such a setting; no method
  std::string bandwidth;             // "1Gbit/s": also the utilisation there
};
/// Template names of `init --template`.
[[nodiscard]] std::vector<std::string> template_names();

/// The keys set by this command's flags, as --set arguments for another process.
[[nodiscard]] std::vector<std::string> set_texts(const TrainArguments& arguments);
/// The configuration after the first `count` of --change. THROWS: UsageError for changes without
/// --resume, ConfigError.
[[nodiscard]] Config load_changed(const TrainArguments& arguments, std::size_t count);

int command_init(const InitArguments& arguments, Session& session);
int command_inspect(const InspectArguments& arguments, Session& session);
int command_doctor(Session& session);
int command_keygen(const KeygenArguments& arguments, Session& session);
int command_explain(const ExplainArguments& arguments, Session& session);
int command_methods(Session& session);
int command_data(const DataArguments& arguments, Session& session);
int command_import(const ImportArguments& arguments, Session& session);
int command_export(const ExportArguments& arguments, Session& session);
int command_export_run(const ExportArguments& arguments, Session& session);
int command_status(const StatusArguments& arguments, Session& session);
int command_report(const ReportArguments& arguments, Session& session);
int command_bench_codec(const BenchCodecArguments& arguments, Session& session);
int command_bench_compute(const BenchComputeArguments& arguments, Session& session);
int command_bench_sim(Session& session);
int command_bench_utilisation(Session& session);
int command_plan_utilisation(const PlanUtilisationArguments& arguments, Session& session);

}  // namespace isthmus::app
