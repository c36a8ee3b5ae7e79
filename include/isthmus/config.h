// SPDX-License-Identifier: Apache-2.0
// One TOML file describes a run. Typed values with defaults; every value knows where it came from.
// Loading reports *all* errors in one pass, each with file:line:col, the cause and a suggestion.
// Plain data; safe to copy and share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "isthmus/outer.h"
#include "isthmus/types.h"

namespace isthmus {

struct ModelConfig {
  std::string arch = "gpt2";        // gpt2 | llama
  std::string preset;               // nano | tiny | small | small-10m | ...; empty: the sizes below
  std::filesystem::path init;       // HF folder (or checkpoint) to start from; sizes come from there
  std::int64_t layers = 4;
  std::int64_t d_model = 128;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;        // 0: = heads
  std::int64_t head_dim = 0;        // 0: d_model / heads
  std::int64_t d_ff = 0;            // 0: 4 d_model (gpt2), 8/3 d_model rounded up to 32 (llama)
  std::int64_t vocab = 256;
  bool tied = true;                 // head = embedding
  bool qk_norm = false;             // RMSNorm per head on q and k before RoPE (llama)
  double z_loss = 0;                // weight of log(Z)^2 in the training loss
  double rope_theta = 10000;
  double norm_eps = 1e-5;
};

struct DataConfig {
  std::string source;               // "text:FILE|GLOB", "tokens:GLOB", "synth:NAME"; relative to the TOML
  std::string order = "shuffle";    // shuffle | sequential
  std::string partition = "iid";    // iid | shards
  double val_fraction = 0.1;
};

struct TrainConfig {
  std::optional<std::int64_t> steps;        // exactly one of steps, tokens
  std::optional<std::int64_t> tokens;
  std::int64_t global_batch_tokens = 0;     // tokens of all workers in one inner step; required
  std::int64_t context = 128;               // T
  std::string precision = "fp32";           // fp32 (bf16 is refused until it exists)
  int threads = 0;                          // threads of the whole process; 0: all cores
};

/// A count of steps given as "20 steps", 20, or "5%" of the run.
struct StepCount {
  std::int64_t steps = 0;
  std::optional<double> fraction;           // of the run; set when given as a percentage
  [[nodiscard]] std::int64_t resolve(std::int64_t total_steps) const;
};

struct InnerConfig {
  std::string optimizer = "adamw";          // adamw | sgd
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0;                      // sgd
  bool nesterov = false;                    // sgd
  double clip = 1.0;                        // 0: off
  std::string schedule = "constant";        // constant|linear|cosine|wsd|infinite|inverse-sqrt
  StepCount warmup;                         // 0: full lr at the first step
  double floor = 0.1;                       // last lr as a share of lr (cosine, linear, wsd, infinite)
  StepCount decay;                          // wsd, infinite: length of the last phase
  std::vector<StepCount> rewarm;            // steps at which warm-up and schedule start again
};

struct SiteConfig {
  std::string name;
  int tp = 1, pp = 1, dp = 1;
  double compute_flops = 0;                 // 0: measured or [surrogate]
  double jitter = 0;                        // share of the step time, uniform
};

struct LinkConfig {
  std::string a, b;                         // site names; "*" for all
  double bits_per_s_up = 0;                 // a -> b
  double bits_per_s_down = 0;               // b -> a
  Duration rtt{0};
  Duration jitter{0};
  double loss = 0;                          // packet loss rate
  int streams = 1;
  std::string congestion = "bbr";           // bbr | cubic
};

struct SurrogateConfig {
  double params = 0;                        // parameters of the declared model
  Duration step_time{0};                    // its inner step
};

struct EvalConfig {
  StepCount every;                          // 0: at the end only
  std::int64_t tokens = 0;                  // 0 with all = true: the whole validation part
  bool all = false;
};

struct CheckpointConfig {
  Duration every{0};                        // 0: at the end only
  std::int64_t every_steps = 0;
  int keep = 3;
};

struct RunConfig {
  std::string name = "run";
  std::filesystem::path out;                // empty: runs/<name>-<stamp>-<id>
  int workers = 1;                          // refused together with [[site]]
  std::uint64_t seed = 0;
  bool deterministic = true;
};

/// Where a value came from, for `inspect CONFIG`.
struct Origin {
  std::string text;                         // "default", "run.toml:12:8", "--set outer.H=50"
};

struct Config {
  std::filesystem::path file;
  RunConfig run;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  InnerConfig inner;
  std::string method = "ddp";
  OuterOptions outer;
  int tp = 1, pp = 1, dp = 1;               // [parallel]; only 1 is accepted so far
  std::optional<std::int64_t> micro_batches;
  std::vector<SiteConfig> sites;            // from [[site]], or `workers` equal ones
  std::vector<LinkConfig> links;
  std::optional<SurrogateConfig> surrogate;
  EvalConfig eval;
  CheckpointConfig ckpt;
  std::map<std::string, Origin> origins;    // "outer.H" -> origin; every key, defaults too
  [[nodiscard]] int workers() const { return static_cast<int>(sites.size()); }
};

/// One error or warning of a configuration, LSP-shaped.
struct Diagnostic {
  std::string code;                         // stable: E-KEY-UNKNOWN, E-UNIT-MISSING, ...
  std::string where;                        // file:line:col, or the --set text
  int line = 0, column = 0;
  std::string message;                      // names the key, the value and the rule
  std::string hint;                         // suggestion, or empty
  std::string source_line;                  // for the excerpt, or empty
};

/// Thrown by `load_config` with every diagnostic of the pass; what() is the rendered text.
class ConfigErrors;

/// Reads `file`, lays `overrides` ("outer.H=50", TOML values) over it, checks everything.
/// THROWS: ConfigErrors (a ConfigError) with all diagnostics; SystemError when unreadable.
[[nodiscard]] Config load_config(const std::filesystem::path& file,
                                 const std::vector<std::string>& overrides = {});

}  // namespace isthmus
