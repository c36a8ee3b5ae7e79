// SPDX-License-Identifier: Apache-2.0
// One TOML file describes a run. Typed values with defaults; the origin of every value is kept.
// Loading reports *all* errors in one pass, each with file:line:col, the cause and a suggestion.
// Plain data; safe to copy and share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isthmus/errors.h"
#include "isthmus/model_family.h"
#include "isthmus/outer.h"
#include "isthmus/types.h"

namespace isthmus {

/// `[lora]`: low-rank adapters (arXiv:2106.09685), trained in place of the model's weights.
struct LoraConfig {
  std::int64_t rank = 0;                              // 0: no adapters, all weights are trained
  double alpha = 16;                                  // the adapter's output is scaled by alpha / r
  std::vector<std::string> targets = {"all-linear"};  // q_proj, ..., down_proj: see the schema
  double dropout = 0;                                 // only 0 is supported
  std::string base = "fp32";   // type of the frozen weights: fp32 | bf16 | nf4
  std::filesystem::path init;  // folder of an adapter (PEFT) to continue from
};

struct ModelConfig {
  std::string arch = "gpt2";   // gpt2 | llama
  std::string preset;          // nano | tiny | small | small-10m | ...; empty: the sizes below
  std::filesystem::path init;  // HF folder or checkpoint to start from; it sets the sizes
  std::int64_t layers = 4;
  std::int64_t d_model = 128;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;  // 0: = heads
  std::int64_t head_dim = 0;  // 0: d_model / heads
  std::int64_t d_ff = 0;      // 0: 4 d_model (gpt2), 8/3 d_model rounded up to 32 (llama)
  std::int64_t vocab = 256;
  std::int64_t context = 0;  // positions of the model; 0: train.context
  bool tied = true;          // head = embedding
  bool qk_norm = false;      // RMSNorm per head on q and k before RoPE (llama)
  double z_loss = 0;         // weight of log(Z)^2 in the training loss
  double rope_theta = 10000;
  double norm_eps = 1e-5;
  LoraConfig lora = {};  // [lora]
  ModelFamily family;    // from the folder `init`; no key sets it
};

/// Texts, or shares of the samples, of several data sources, each by the source's name.
using NamedTexts = std::vector<std::pair<std::string, std::string>>;  // (name, text)
using NamedReals = std::vector<std::pair<std::string, double>>;       // (name, value)

struct DataConfig {
  std::string source;  // "text:FILE|GLOB", "tokens:GLOB", "synth:NAME"; relative to the TOML
  NamedTexts sources;  // several sources in place of `source`, each spelled like it
  NamedReals mix;      // share of each source in the samples
  std::string order = "shuffle";  // shuffle | sequential
  std::string partition = "iid";  // iid | shards
  double val_fraction = 0.1;
  std::string pack = "stream";      // stream | documents: attention and loss stay inside documents
  std::optional<std::int64_t> eos;  // id of the end-of-document token; absent: as the source says
  std::string over_long = "cut";    // cut | drop: of conversations longer than train.context
  bool skip_bad = false;            // malformed lines of conversations are counted and left out
};

/// Activations that a layer recomputes in its backward pass in place of keeping them. The results
/// have the same bits.
enum class Recompute {
  kNone,
  kSelective,  // outputs of norms and activation functions: elementwise, no matrix product
  kFull,       // all but the residual stream: the backward pass runs each layer forward again
};

struct TrainConfig {
  std::optional<std::int64_t> steps;  // exactly one of steps, tokens
  std::optional<std::int64_t> tokens;
  std::int64_t global_batch_tokens = 0;  // tokens of all workers in one inner step; required
  std::string objective = "text";  // text | sft: loss on the assistant's tokens of conversations
  std::string trainer = "own";     // own | external: the caller brings the trainer (session.h)
  std::int64_t context = 128;      // T, tokens of a sequence
  std::string precision = "fp32";  // fp32 | bf16 (of matrix products; weights stay fp32)
  Recompute recompute = Recompute::kNone;  // false | true | none | selective | full
  int threads = 0;                         // threads of the whole process; 0: all cores
  bool pin = false;                        // true: every thread is pinned to its own core
  std::string kernels = "auto";            // instruction set, or "onednn"
  std::string attention = "auto";          // on CUDA devices: auto | own | cudnn
  std::string offload;          // folder of files that hold the training state; empty: in memory
  std::string device = "auto";  // auto | cpu | cuda | cuda:N; config/schema/device_request.h
};

/// A count of steps given as "20 steps", 20, or "5%" of the run.
struct StepCount {
  std::int64_t steps = 0;
  std::optional<double> fraction;  // of the run; set when given as a percentage
  [[nodiscard]] std::int64_t resolve(std::int64_t total_steps) const;
  bool operator==(const StepCount&) const = default;
};

struct InnerConfig {
  std::string optimizer = "adamw";  // adamw | sgd | muon
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0;                 // sgd, muon; default under muon: 0.95
  bool nesterov = false;               // sgd, muon; default under muon: true
  std::string adjust_lr = "original";  // muon: original | match_rms_adamw
  double clip = 1.0;                   // 0: off
  std::string schedule = "constant";   // constant|linear|cosine|wsd|infinite|inverse-sqrt
  StepCount warmup;                    // 0: full lr at the first step
  double floor = 0.1;                  // last lr as a share of lr (cosine, linear, wsd, infinite)
  StepCount decay;                     // wsd, infinite: length of the last phase
  std::vector<StepCount> rewarm;       // steps at which warm-up and schedule start again
};

/// Codecs of the traffic between the ranks of a site.
struct CodecByDimension {
  std::string data = "fp32";      // gradients summed over data-parallel ranks
  std::string pipeline = "fp32";  // activations and their gradients between stages
  std::string tensor = "fp32";    // partial sums of a layer, forward and backward
  std::string state = "fp32";     // updated weights that ZeRO's owners send to the other ranks
};

struct SiteConfig {
  std::string name;
  int tp = 1, pp = 1, dp = 1;
  double compute_flops = 0;  // 0: measured or [surrogate]
  double jitter = 0;         // relative jitter of the step time, uniform
  double pace = 1;           // share of the inner steps that the site's workers take; in (0, 1]
  std::string address;       // HOST:PORT at which other sites reach this one; train --site
  std::string relay;         // HOST:PORT at which this site relays for sites without address
  std::string key;           // public key (isthmus keygen); all sites have one, or none has
  std::optional<double> cap_bits_per_s;  // replaces net.cap
  std::string group;  // name shared by sites that are near one another; with net.reduction =
                      // "groups"
};

/// `[net]`: links between sites that are separate processes (train --site).
struct NetConfig {
  std::string transport = "auto";  // auto | inproc | zmq | mpi
  int streams = 0;                 // parallel connections of each directed link; 0: "auto"
  Duration dead_after = std::chrono::seconds(8);  // timeout: a site silent for longer is counted as
                                                  // gone
  Duration gather = std::chrono::minutes(10);     // how long a starting site waits for the others
  bool plaintext = false;                         // allows links without keys beyond loopback
  std::optional<std::int64_t> min_sites;          // with fewer sites all wait; see
                                                  // Config::min_sites
  std::optional<double> cap_bits_per_s;           // cap on what a site sends in total; absent: none
  std::vector<std::string> quiet;    // "08:00-18:00 10Mbit/s": cap within these hours; SendCap
  std::string reduction = "direct";  // direct | groups: how contributions become a mean
  /// Largest rate at which the state is sent to a joining site; absent: a share of the line.
  std::optional<double> serve_bits_per_s;
  std::string shares = "auto";  // auto|links: the owners' shares of a reduction
  bool detour = true;           // a pair of sites that loses its direct path uses a relay
  /// A site that begins a round later than this after the others takes part without its work. 0
  /// ("auto"): a time predicted from the site's earlier rounds; absent: all wait for the site.
  std::optional<Duration> deadline;
  std::int64_t max_solo_rounds = 1;  // windows that a cut-off site trains alone
  std::int64_t chunk = 1 << 20;      // largest number of bytes of encoded values in a frame
  /// Largest number of bytes of results that a site retains on disk between two comparisons; 0 or
  /// absent: none.
  std::optional<std::int64_t> heal_bytes;
  /// same | first: whose initial values a new run starts from; "first" with an external trainer
  std::string start = "same";
};

/// `[hub]`: a process that is the coordinator (numbers memberships, commits rounds) in place of the
/// first site.
struct HubConfig {
  std::string address;  // HOST:PORT at which sites reach the hub; empty: no hub
  std::string site;     // site whose process is also the hub; empty: a separate process
  std::string key;      // the hub's public key, if sites have keys
  std::string relay;    // HOST:PORT at which the hub relays for sites without an address
};
/// `[[fault]]`: a fault of a simulated run, for a time.
struct FaultConfig {
  std::string kind;  // "cut" | "rate" of the link a, b; "pause" | "slow" of a site
  std::string a, b;  // site names; "*" for all
  std::string site;
  Duration at{0};  // time since the start of the run
  Duration lasts{0};
  double bits_per_s = 0;  // "rate"
  double pace = 1;        // "slow": fraction of the normal speed
};
struct LinkConfig {
  std::string a, b;            // site names; "*" for all
  double bits_per_s_up = 0;    // a -> b
  double bits_per_s_down = 0;  // b -> a
  Duration rtt{0};
  Duration jitter{0};
  double loss = 0;  // packet loss rate
  int streams = 1;
  std::string congestion = "bbr";  // bbr | cubic
  std::filesystem::path trace;     // CSV of the link's rates over time, for simulate; empty: none
};

struct SurrogateConfig {
  double params = 0;      // parameters of the declared model
  Duration step_time{0};  // time of the declared model's inner step
};

/// `[sim]`: settings of the simulated clock.
struct SimConfig {
  Duration step_time{0};               // of every site; 0: from site compute, else measured
  std::string link_model = "goodput";  // goodput: slow start, loss, queue | ideal: rate and RTT
};

struct EvalConfig {
  StepCount every;               // 0: at the end only
  std::int64_t tokens = 64'000;  // ignored if all = true, which evaluates the whole validation part
  bool all = false;
  std::string part = "whole";  // whole | first | second half of the validation part
};

struct CheckpointConfig {
  Duration every{0};  // 0: at the end only
  std::int64_t every_steps = 0;
  int keep = 3;
};

/// `[log]`: where a run writes what it measures. metrics.jsonl is always written.
struct LogConfig {
  std::vector<std::string> sinks = {"jsonl"};        // jsonl | tensorboard
  std::string http;                                  // ADDRESS:PORT of the live page; empty: none
  Duration stalled_after = std::chrono::minutes(5);  // timeout without progress, after which the
                                                     // page says unhealthy
  [[nodiscard]] bool has(std::string_view sink) const;
};

struct RunConfig {
  std::string name = "run";
  std::filesystem::path out;  // empty: runs/<name>-<stamp>-<id>
  int workers = 1;            // refused together with [[site]]
  std::uint64_t seed = 0;
  bool deterministic = true;
};

/// Where a value came from, for `inspect CONFIG`.
struct Origin {
  std::string text;  // "default", "run.toml:12:8", "--set outer.H=50"
};

struct Config {
  std::filesystem::path file;  // path as the caller gave it
  std::string text;            // bytes of the file, for the copy in the run directory
  RunConfig run;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  InnerConfig inner;
  std::string method = "ddp";
  OuterOptions outer;
  int tp = 1, pp = 1, dp = 1;  // [parallel]: the mesh inside each site
  std::optional<std::int64_t> micro_batches;
  std::string pipeline_schedule = "1f1b";  // gpipe|1f1b|interleaved-1f1b|zb-h1
  int virtual_stages = 1;                  // stages of each pipeline rank, for interleaved-1f1b
  CodecByDimension rank_codecs;
  std::string rank_codec_policy = "none";  // default of rank_codecs for keys that the file omits
  int zero = 0;                            // ZeRO stage 0..3: state sharded over data-parallel
                                           // ranks
  bool sequence_parallel = false;          // norms and the residual stream split along the sequence
  std::optional<Duration> rank_patience;   // timeout of a rank that waits for other ranks; absent:
                                           // 10 minutes
  std::filesystem::path rank_communicators;  // table of back ends, relative to the file; empty:
                                             // none
  std::vector<SiteConfig> sites;             // from [[site]], or `workers` equal sites
  std::vector<LinkConfig> links;
  std::vector<FaultConfig> faults;  // [[fault]], in order
  std::optional<SurrogateConfig> surrogate;
  SimConfig sim;
  EvalConfig eval;
  CheckpointConfig ckpt;
  LogConfig log;
  NetConfig net;
  HubConfig hub;
  std::string outer_placement = "host";   // host | device | ranks: place of anchors and momentum
  std::map<std::string, Origin> origins;  // "outer.H" -> origin; every key, defaults too
  std::vector<std::string> notes;         // keys and values of earlier versions, and their meaning
  [[nodiscard]] int workers() const { return static_cast<int>(sites.size()); }
  /// Sites that must be present for a run to continue without the others.
  [[nodiscard]] int min_sites() const { return static_cast<int>(net.min_sites.value_or(1)); }
  /// An absolute path: a relative `path` starts at the folder of the config file.
  [[nodiscard]] std::filesystem::path locate(const std::filesystem::path& path) const;
  /// `data.source` with its path located: "text:/data/a.txt".
  [[nodiscard]] std::string located_source() const;
  /// The same for each of data.sources.
  [[nodiscard]] NamedTexts located_sources() const;
};

/// Inner steps of the run, from train.steps or train.tokens; 0 if neither gives them.
[[nodiscard]] std::int64_t total_steps(const Config& config);

/// One error of a configuration, LSP-shaped.
struct Diagnostic {
  std::string code;          // stable: E-KEY-UNKNOWN, E-UNIT-MISSING, ...
  std::string where;         // file:line:col, or the --set text
  int line = 0, column = 0;  // 1-based; 0: no place in the file
  std::string message;       // names the key, the value and the rule
  std::string hint;          // suggestion, or empty
  std::string source_line;   // for the excerpt, or empty
  int width = 1;             // columns that the excerpt underlines
};

/// Thrown by `load_config` with every diagnostic of the pass; what() is the rendered text, one
/// error after another, each with its excerpt and hint.
class ConfigErrors : public ConfigError {
 public:
  explicit ConfigErrors(std::vector<Diagnostic> diagnostics);
  [[nodiscard]] const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }
  /// One line: the first error and the number of further errors.
  [[nodiscard]] std::string summary() const;

 private:
  std::vector<Diagnostic> diagnostics_;
};

/// Facts that the loader needs from modules above core. An empty list disables its check.
struct SchemaContext {
  std::vector<MethodInfo> methods;  // isthmus::methods()
  std::vector<CodecInfo> codecs;    // isthmus::codecs()
  /// THROWS: ConfigError when the spelling is no codec.
  std::function<void(const std::string& spelling)> check_codec;
  /// Resolves model.init. RETURNS: `located` if that is a folder, else the folder of this name in
  /// the Hugging Face cache. THROWS: Error.
  std::function<std::filesystem::path(const std::string& init,
                                      const std::filesystem::path& located)>
      find_model = {};
  /// Architecture, sizes and positions of a model folder. THROWS: Error.
  std::function<ModelConfig(const std::filesystem::path& folder)> read_model;
};

/// One value that replaces a value of the file.
struct Override {
  std::string text;            // "outer.H=50": a TOML value; bare words are text
  std::string flag = "--set";  // the flag or argument that gave it
  std::string given = {};      // the flag's argument if it differs from `text`: "3" of --workers
  /// The override as the user wrote it: "--set outer.H=50", "--workers 3".
  [[nodiscard]] std::string label() const { return flag + " " + (given.empty() ? text : given); }
};

/// Values that replace a file's values, applied in order. A list of texts means --set.
class Overrides {
 public:
  Overrides() = default;
  Overrides(const std::vector<std::string>& texts) {  // NOLINT(google-explicit-constructor)
    for (const std::string& text : texts) all_.push_back({.text = text});
  }
  Overrides(std::initializer_list<std::string> texts) : Overrides(std::vector(texts)) {}

  void add(Override each) { all_.push_back(std::move(each)); }
  [[nodiscard]] const std::vector<Override>& all() const { return all_; }

 private:
  std::vector<Override> all_;
};

/// Reads `file`, applies `overrides`, fills in defaults (also the method's and the preset's) and
/// checks everything. THROWS: ConfigErrors with all diagnostics; SystemError when the file cannot
/// be read.
[[nodiscard]] Config load_config(const std::filesystem::path& file, const Overrides& overrides = {},
                                 const SchemaContext& context = {});

/// The same for a text; `name` is the file name in messages, and relative paths start at its
/// folder.
[[nodiscard]] Config load_config_text(std::string_view text, const std::filesystem::path& name,
                                      const Overrides& overrides = {},
                                      const SchemaContext& context = {});

/// Parses "100Mbit/s,80ms" or "100Mbit/s,80ms,0.1%" (rate, round trip, loss): a link between all
/// pairs.
/// THROWS: ConfigError naming the part that cannot be read.
[[nodiscard]] LinkConfig parse_link(std::string_view text);

/// Replaces the links of `config`; `origin` says where the new ones come from ("--link
/// 1Gbit/s,30ms").
void replace_links(Config& config, std::vector<LinkConfig> links, const std::string& origin);

/// Every value as TOML, each with its origin as a comment; loads back to the same Config. Relative
/// paths are written absolute, so the text means the same in another folder.
[[nodiscard]] std::string resolved_toml(const Config& config);

/// 32 hexadecimal digits over every value that can change the trajectory: not the run's name and
/// folder, threads, evaluation, checkpoints or the simulated clock. A run may resume another run's
/// checkpoint if their digests are equal.
[[nodiscard]] std::string config_digest(const Config& config);

/// 32 hexadecimal digits over every value that can change a run's results or its clock: also
/// evaluation, sites, links, the simulated clock and the kernels. Equal digests on equal data and
/// weights give equal results. Paths of data and weights do not count; the caller adds their
/// content.
[[nodiscard]] std::string outcome_digest(const Config& config);

/// Values that must be equal at all sites of a run, as (key, TOML value): values that steer the
/// trajectory, evaluation, checkpoints by step, the sites' names and paces. Paths are not among
/// them.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> common_values(const Config& config);

/// One key of the file, as `explain` shows it.
struct KeyInfo {
  std::string name;           // "outer.H", "site.name", "link.rate"
  std::string type;           // "integer", "rate", "one of a, b"
  std::string default_value;  // as TOML, or empty when it must be given
  std::string range;          // "> 0", or empty
  std::string text;           // the key's effect
  std::string used_by;        // "inner.optimizer = adamw", or empty for always
  std::string example;        // "lr = 3e-4"
};
/// All keys, in the order of the sections.
[[nodiscard]] std::vector<KeyInfo> config_keys();

}  // namespace isthmus
