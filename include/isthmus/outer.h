// SPDX-License-Identifier: Apache-2.0
// The outer loop: methods of the DiLoCo family over an InnerLoop and an Exchange.
//
// Terms: anchor = the shared outer parameters (last outer-optimizer result, before mixing); outer
// gradient = anchor - local (old minus new: it is subtracted); H = inner steps between syncs of one
// fragment; overlap tau = inner steps between send and apply; alpha = share of the local value kept
// at apply. DiLoCo: arXiv:2311.08105 Alg. 1; Streaming DiLoCo: arXiv:2501.18512 Alg. 2.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "isthmus/errors.h"
#include "isthmus/inner_loop.h"
#include "isthmus/state.h"
#include "isthmus/transport.h"

namespace isthmus {

/// A round whose result is not there when it is due: its step waits for it, or goes on without, and
/// a later one applies it (kSlip).
enum class LateRound { kWait, kSlip };

enum class FragmentPattern {
  kStrided,     // layer l belongs to fragment l mod P
  kSequential,  // layer l belongs to fragment floor(l * P / L)
  kBalanced,    // whole layers, largest first, to the lightest fragment
};
/// How a run ends. After the last step a window may be open: the schedule has not sent its steps.
enum class FinalSync {
  kNone,   // rounds in flight are dropped; open windows are in no round
  kDrain,  // rounds in flight are applied, in order of (send step, fragment); open windows are lost
  kFull,   // drain, then one closing round of every fragment whose window is open
};
/// As outer.final_sync spells it.
[[nodiscard]] constexpr std::string_view final_sync_name(FinalSync sync) {
  return sync == FinalSync::kNone ? "none" : sync == FinalSync::kDrain ? "drain" : "full";
}
/// What becomes of a window whose contribution was not counted in its round.
enum class LostContribution {
  kCarry,     // rebased on the new anchor: the next outer gradient holds both windows
  kStay,      // local values stay as they are (the drop rule of arXiv:2311.08105 section 3.4)
  kRollback,  // local values go back to the anchor: the window is lost
};
/// co2: Lambda, by which an outer gradient that is one round old is divided.
enum class StalenessPenalty {
  kNone,      // 1
  kConstant,  // OuterOptions::staleness_constant
  kGapAware,  // 1 + rate ratio * distance moved since / size of the excursion
              // (src/outer/methods/co2.h)
};
struct OffsetsSpread {};  // offset of fragment p is floor(p * H / F)
struct OffsetsZero {};    // all fragments together
using Offsets = std::variant<OffsetsSpread, OffsetsZero, std::vector<std::int64_t>>;

/// How a rate of the outer optimizer goes over a run, by the step at which a round is sent: up in a
/// line over the first `warmup` steps, down in a line to `floor` of itself over the last `decay`.
struct OuterRamp {
  std::int64_t warmup = 0;  // steps; 0: the whole rate at once
  std::int64_t decay = 0;   // steps; 0: to the end as it is
  double floor = 0;         // share of the rate at the run's last step; of a decay
  [[nodiscard]] bool moves() const { return warmup > 0 || decay > 0; }
  bool operator==(const OuterRamp&) const = default;
};

/// Keys that only method spsa has. Equal on all workers, `threads` apart.
struct SpsaOptions {
  double eps = 1e-3;            // size of the perturbation
  int samples = 1;              // SPSA samples per worker and step, each on its share of the batch
  bool divide_by_sqrt = false;  // divisor = "sqrt": the update is sum / sqrt(n), else the mean
  bool sign_only = false;       // entries say +1 or -1
  double clip = 10;             // |g| at most this many medians of the last 64 steps; 0: off
  double weight_decay = 0;      // decoupled, tensors of two or more dimensions
  int scale_log2 = 0;           // j: the byte code covers 2^j times 0.0043 .. 234
  std::uint64_t run_key = 0;    // of the directions; `train` derives it from run.seed
  int threads = 1;              // of the arithmetic on the weights; changes no bit
  bool operator==(const SpsaOptions&) const = default;
};

/// Keys that only method 1bit-adam has. Equal on all workers.
struct OneBitAdamOptions {
  std::optional<std::int64_t> freeze;  // last step of the warm-up; absent: by the variance's ratio
  bool bias_correction = true;         // false: DeepSpeed's form, in the warm-up too
  std::string warmup_codec = "fp32";   // of the gradients of the warm-up
  double variance_floor = 1e-6;        // smallest frozen variance, as a share of its tensor's mean
  bool operator==(const OneBitAdamOptions&) const = default;
};

/// Keys that only method 01-adam has; it takes `warmup_codec` and `variance_floor` of
/// OneBitAdamOptions too. Equal on all workers.
struct ZeroOneAdamOptions {
  std::int64_t var_freeze_step = 100000;   // last step at which the variance may change
  std::int64_t var_update_scaler = 16;     // after so many updates of it their spacing doubles
  std::int64_t local_step_scaler = 32768;  // after so many local steps the syncs' spacing doubles
  std::int64_t local_step_clipper = 16;    // largest spacing of the syncs
  bool operator==(const ZeroOneAdamOptions&) const = default;
};

/// Keys of `[outer]`. An absent optional takes the method's default (see `methods()`); a key that
/// the method does not use must stay absent.
struct OuterOptions {
  std::int64_t H = 1;  // >= 1
  /// Of a run that goes on under another H: states that were saved under one of these are loaded,
  /// too. REQUIRES: of methods without overlap, where a window of the former H has ended.
  std::vector<std::int64_t> former_H = {};
  std::optional<double> lr;            // outer learning rate
  std::optional<double> momentum;      // outer momentum
  std::optional<bool> nesterov;        // PyTorch form: b = mu b + d; x -= lr (d + mu b)
  OuterRamp lr_ramp = {.floor = 0.1};  // of lr; its floor is above 0
  OuterRamp momentum_ramp;             // of momentum
  std::int64_t run_steps = 0;          // the run's length, which a decay ends with
  /// Delayed Nesterov (arXiv:2401.09135): the momentum takes in the mean of so many rounds at a
  /// time, each of which moves by its share; 1: every round. Costs 4 more bytes a parameter.
  int momentum_every = 1;
  int fragments = 1;  // P: layer fragments
  FragmentPattern pattern = FragmentPattern::kStrided;
  bool embeddings_own = false;        // P = 1: give layer-less tensors a fragment of their own
  Offsets offsets = OffsetsSpread{};  // F values in 0 .. H-1
  std::int64_t overlap = 0;           // tau, 0 <= tau < H
  std::optional<double> alpha;        // 0 <= alpha <= 1
  std::string codec;                  // empty: the method's own (MethodInfo::default_codec)
  ReductionKind exchange = ReductionKind::kAuto;
  FinalSync final_sync = FinalSync::kFull;
  LostContribution carry = LostContribution::kCarry;
  double outlier = 1000;  // an outer gradient of more than this times the median norm of the last
                          // sixteen is withheld; 0: never. Non-finite ones always are.
  StalenessPenalty staleness_penalty = StalenessPenalty::kNone;  // co2
  double staleness_constant = 1;                                 // co2, of kConstant: >= 1
  std::optional<double> momentum_clip;  // co2: bound of each element where momentum is used; > 0
  double error_decay = 0.95;  // sparseloco: share of the residual that comes back; in (0, 1]
  SpsaOptions spsa = {};
  OneBitAdamOptions one_bit_adam = OneBitAdamOptions();
  ZeroOneAdamOptions zero_one_adam = {};
  LateRound late = LateRound::kWait;
  /// Methods whose rounds do not commit by themselves (MethodInfo::commits_rounds): so many steps'
  /// digests are compared at a time; >= 1.
  std::int64_t commit_every = 16;
  Duration patience = std::chrono::hours(1);  // a round not committed by then ends the run
};

/// One round, reported by the step that applied it. Bytes are those this worker sent.
struct RoundReport {
  FragmentId fragment;
  StepIndex sent;
  StepIndex applied;
  int members = 0;      // whose contributions the mean holds
  bool counted = true;  // this worker's is one of them
  std::uint64_t payload_bytes = 0;
  std::uint64_t wire_bytes = 0;
  double delta_norm = 0;  // L2 norm of the reduced outer gradient (ddp: gradient)
  /// Of this worker's contribution, measured on a sample of its tiles that is the same on all
  /// workers (src/outer/parts/contribution_sample.h). Nothing where it was not counted, or where
  /// the method does not measure it (ddp, the warm-up of the 1-bit methods, spsa). |Dec(Enc(x)) -
  /// x| / |x| of what was encoded, x with the residual under error feedback.
  std::optional<double> codec_error = std::nullopt;
  /// Cosine of what it decodes to with the mean that came back: M orthogonal contributions of equal
  /// norm give 1 / sqrt(M) each, equal ones 1.
  std::optional<double> cosine = std::nullopt;
  Duration waited{0};  // time this worker stood still for it
  /// The schedule did not send it: it carries the steps left over after the last one.
  bool closing = false;
};

struct StepReport {
  StepIndex step;
  InnerStep inner;
  std::vector<RoundReport> rounds;  // applied in this step, in order
};

/// What has been exchanged since the last commit does not count, since a peer is gone: the steps
/// since then are to be taken again (Exchange::go_back).
class TakenBackError : public Error {
 public:
  explicit TakenBackError(const std::string& text) : Error(ExitCode::kPeer, text) {}
};

/// Drives one worker. Parameters change only inside `step` and `finish`, never while the inner loop
/// computes. One thread.
class OuterStrategy : public ParameterSource {
 public:
  /// One inner step and all that is due: sends first (outer gradients from the anchors as they
  /// stand), then applies. THROWS: PeerError when a round fails; TakenBackError where steps since
  /// the last commit do not count: this strategy is then of no more use, and another one goes on
  /// from a state of the step that Exchange::go_back names.
  virtual StepReport step() = 0;
  /// After the last step: the final sync of `OuterOptions::final_sync`. RETURNS: rounds applied,
  /// closing rounds last.
  virtual std::vector<RoundReport> finish() = 0;
  /// Commits what may still be taken back (Exchange::uncommitted), if anything. Between two steps,
  /// on all workers after the same one. THROWS: as step.
  virtual void commit() {}
  /// Steps taken so far.
  [[nodiscard]] virtual StepIndex steps() const = 0;
  /// Between two steps: the step at whose end the strategy next reads or changes the inner loop's
  /// parameters. Until then it lets them be. steps() + 1 where that cannot be known.
  [[nodiscard]] virtual StepIndex next_use() const { return StepIndex(steps().value() + 1); }
  /// ParameterSource: the outer parameters (anchors) of parameter i; what is evaluated and
  /// exported. Where anchors are not shared that is their mean over the workers, element by
  /// element.
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override = 0;
  /// Whether all workers hold the same anchors, bit for bit (eager: each has its own).
  [[nodiscard]] virtual bool shared_anchors() const { return true; }
  /// Everything the method owns, syncs in flight included (their encoded bytes); the inner loop's
  /// parameters and state are saved by the caller. `load` launches the saved syncs again under the
  /// same ids.
  virtual void save(StateWriter& writer) const = 0;
  virtual void load(StateReader& reader) = 0;
  /// For a worker that goes on from another's saved state, in a run that has not stood still. After
  /// it the local parameters are the outer ones, open windows and rounds under way hold no work of
  /// this worker, and residuals of error feedback are zero. Anchors, outer momenta, what the inner
  /// loop keeps, the schedule and the rounds under way stay. A window that began before it is given
  /// with weight 0: a whole one is the first that counts, except in a closing round, which counts
  /// what the window holds. The withheld work is then lost as LostContribution says (01-adam, which
  /// has no such rule: it is given up). REQUIRES: shared_anchors(), between two steps. Any number
  /// of times.
  virtual void forget_own_work() = 0;
  /// The method's own log, when it keeps one that is worth a file beside the checkpoints (spsa:
  /// docs/internals/spsa.md); else empty.
  [[nodiscard]] virtual std::span<const std::byte> log() const { return {}; }
};

/// Makes the method `name` over `inner` and `exchange`, both borrowed for the strategy's life. All
/// workers must start with equal options and parameters; in one process that is compared
/// (Exchange::agree_on_start), when the strategy is made and before step 1.
/// THROWS: ConfigError naming the key (outer.H, ...), its value, the rule it breaks; the tensor of
/// InnerLoop::parameters() that breaks the canonical flat layout; or what another worker has set
/// otherwise.
[[nodiscard]] std::unique_ptr<OuterStrategy> make_outer_strategy(std::string_view name,
                                                                 const OuterOptions& options,
                                                                 InnerLoop& inner,
                                                                 Exchange& exchange);

struct MethodInfo {
  std::string name;
  std::string summary;            // one line
  std::string source;             // paper: arXiv id, section or algorithm
  std::string deviations;         // where ours differs from the paper, or empty
  std::vector<std::string> keys;  // keys of [outer] it uses, with `method` left out
  double default_lr = 0;          // 0: the method has no outer learning rate key
  double default_momentum = 0;
  double default_alpha = 0;
  std::string default_codec = "fp32";
  std::int64_t default_H = 1;  // NOLINT(readability-identifier-naming): what a file that says no H
                               // gets; OuterOptions{} has 1
  /// What the method is with inside: an optimizer of [inner] and its published settings, which a
  /// file that says nothing gets. Empty: any.
  struct Inside {
    std::string optimizer;
    double lr = 0;
    double weight_decay = 0;
    double momentum = 0;
    bool nesterov = false;
    std::string adjust_lr;
  };
  Inside inside = {};
  std::string rates;     // what is known of its outer rates, with sources; or empty
  int state_values = 0;  // fp32 values a parameter of one worker's outer state: anchors, momentum;
                         // a residual, which `:ef` costs, not counted
  bool round_behind = false;   // a round is applied at the end of the next one: no overlap key
  bool drains = true;          // "drain" applies what is in flight after the last step
  bool shared_anchors = true;  // anchors and momentum are the same on all workers
  /// Every round commits by itself, so that a lost member costs no round. Otherwise the digests of
  /// several steps are compared together; where a member is lost, those since the last time are
  /// taken again.
  bool commits_rounds = true;
  /// The method calls train_loss alone, never train_step or gradients: an inner loop may leave out
  /// all that a backward pass needs.
  bool forward_only = false;

  /// Whether `key` of [outer] means something to it.
  [[nodiscard]] bool takes(std::string_view key) const {
    return std::ranges::find(keys, key) != keys.end();
  }
};
/// All methods of this build, in table order.
[[nodiscard]] std::vector<MethodInfo> methods();

/// fp32 values that one worker keeps for each parameter between two steps: anchors, and the outer
/// momentum unless it is 0. Encoded contributions in flight come on top. 0 for an unknown method.
[[nodiscard]] int outer_state_values(std::string_view method, const OuterOptions& options);

/// A fragment: the parameters synced together, as indices into InnerLoop::parameters().
struct Fragment {
  FragmentId id;
  std::vector<std::size_t> parameters;  // ascending
  std::int64_t elements = 0;
};
/// The fragment table: P layer fragments, then (for P > 1 or embeddings_own) one for the layer-less
/// tensors when there are any. Pure function of the arguments.
/// THROWS: ConfigError when P exceeds the number of layers, or for a layer that is neither kNoLayer
/// nor from 0 to kLayerLimit - 1.
[[nodiscard]] std::vector<Fragment> make_fragments(std::span<const Parameter> parameters,
                                                   int layer_fragments, FragmentPattern pattern,
                                                   bool embeddings_own);

}  // namespace isthmus
