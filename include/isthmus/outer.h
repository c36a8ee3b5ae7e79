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
#include "isthmus/merges.h"
#include "isthmus/state.h"
#include "isthmus/transport.h"

namespace isthmus {

/// What a step does when the result of a round is not there at the step at which it is due. kWait:
/// the step waits. kSlip: the step continues, and a later step applies the result.
enum class LateRound { kWait, kSlip };

enum class FragmentPattern {
  kStrided,     // layer l belongs to fragment l mod P
  kSequential,  // layer l belongs to fragment floor(l * P / L)
  kBalanced,    // whole layers, largest first, to the lightest fragment
};
/// How a run ends. After the last step a window may be open: its steps have not been sent yet.
enum class FinalSync {
  kNone,   // rounds in flight are dropped; open windows are in no round
  kDrain,  // rounds in flight are applied, in order of (send step, fragment); open windows are lost
  kFull,   // drain, then one closing round of every fragment whose window is open
};
/// The value of key outer.final_sync.
[[nodiscard]] constexpr std::string_view final_sync_name(FinalSync sync) {
  return sync == FinalSync::kNone ? "none" : sync == FinalSync::kDrain ? "drain" : "full";
}
/// What becomes of a window whose contribution was not counted in its round.
enum class LostContribution {
  kCarry,     // rebased on the new anchor: the next outer gradient holds both windows
  kStay,      // local values stay as they are (the drop rule of arXiv:2311.08105 section 3.4)
  kRollback,  // local values go back to the anchor: the window is lost
};
/// co2: Lambda, the divisor of an outer gradient that is one round old.
enum class StalenessPenalty {
  kNone,      // 1
  kConstant,  // OuterOptions::staleness_constant
  kGapAware,  // 1 + rate ratio * distance moved since / size of the excursion
              // (src/outer/methods/co2.h)
};
struct OffsetsSpread {};  // offset of fragment p is floor(p * H / F)
struct OffsetsZero {};    // all fragments together
using Offsets = std::variant<OffsetsSpread, OffsetsZero, std::vector<std::int64_t>>;

/// A rate of the outer optimizer over a run, as a function of the step at which a round is sent: it
/// rises linearly over the first `warmup` steps and falls linearly to `floor` times itself over the
/// last `decay` steps.
struct OuterRamp {
  std::int64_t warmup = 0;  // steps; 0: the whole rate at once
  std::int64_t decay = 0;   // steps; 0: no decay
  double floor = 0;         // of a decay: share of the rate at the run's last step
  [[nodiscard]] bool moves() const { return warmup > 0 || decay > 0; }
  bool operator==(const OuterRamp&) const = default;
};

/// Keys of method spsa alone. Equal on all workers, except `threads`.
struct SpsaOptions {
  double eps = 1e-3;            // size of the perturbation
  int samples = 1;              // SPSA samples per worker and step, each on its share of the batch
  bool divide_by_sqrt = false;  // divisor = "sqrt": the update is sum / sqrt(n), else the mean
  bool sign_only = false;       // entries say +1 or -1
  double clip = 10;             // |g| at most this many medians of the last 64 steps; 0: off
  double weight_decay = 0;      // decoupled, tensors of two or more dimensions
  int scale_log2 = 0;           // j: the byte code covers 2^j times 0.0043 .. 234
  std::uint64_t run_key = 0;    // key of the random directions; `train` derives it from run.seed
  int threads = 1;              // threads that compute the weights; no bit depends on their number
  bool operator==(const SpsaOptions&) const = default;
};

/// Keys of method 1bit-adam alone. Equal on all workers.
struct OneBitAdamOptions {
  std::optional<std::int64_t> freeze;  // last warm-up step; absent: decided by the variance ratio
  bool bias_correction = true;         // false: DeepSpeed's form, also in the warm-up
  std::string warmup_codec = "fp32";   // codec of the warm-up's gradients
  double variance_floor = 1e-6;        // smallest frozen variance, relative to its tensor's mean
  bool operator==(const OneBitAdamOptions&) const = default;
};

/// Keys of method 01-adam alone; the method also uses `warmup_codec` and `variance_floor` of
/// OneBitAdamOptions. Equal on all workers.
struct ZeroOneAdamOptions {
  std::int64_t var_freeze_step = 100000;   // last step that may update the variance
  std::int64_t var_update_scaler = 16;     // variance updates after which their spacing doubles
  std::int64_t local_step_scaler = 32768;  // local steps after which the spacing of syncs doubles
  std::int64_t local_step_clipper = 16;    // largest spacing of syncs, in steps
  bool operator==(const ZeroOneAdamOptions&) const = default;
};

/// Keys of `[outer]`. An absent optional takes the method's default (see `methods()`). A key that
/// the method does not use must be absent.
struct OuterOptions {
  std::int64_t H = 1;  // inner steps between two syncs of a fragment; >= 1
  /// Values of H under which a loaded state may have been saved, when a resumed run changes H.
  /// REQUIRES: a method without overlap, resumed at the end of a window of the former H.
  std::vector<std::int64_t> former_H = {};
  std::optional<double> lr;            // outer learning rate
  std::optional<double> momentum;      // outer momentum
  std::optional<bool> nesterov;        // PyTorch form: b = mu b + d; x -= lr (d + mu b)
  OuterRamp lr_ramp = {.floor = 0.1};  // of lr; its floor is above 0
  OuterRamp momentum_ramp;             // of momentum
  std::int64_t run_steps = 0;          // length of the run; a decay ends with its last step
  /// N of delayed Nesterov (arXiv:2401.09135 Alg. 3): each round moves the anchor by 1 / N of its
  /// own gradient, and every N-th round the momentum takes in the mean of the last N. 1: the
  /// momentum changes in every round. N > 1 costs 4 more bytes a parameter.
  int momentum_every = 1;
  int fragments = 1;  // P: layer fragments
  FragmentPattern pattern = FragmentPattern::kStrided;
  bool embeddings_own = false;        // with P = 1: layer-less tensors form a second fragment
  Offsets offsets = OffsetsSpread{};  // F values in 0 .. H-1
  std::int64_t overlap = 0;           // tau, 0 <= tau < H
  std::optional<double> alpha;        // 0 <= alpha <= 1
  std::string codec;                  // spelling, see make_codec; empty: MethodInfo::default_codec
  ReductionKind exchange = ReductionKind::kAuto;
  FinalSync final_sync = FinalSync::kFull;
  LostContribution carry = LostContribution::kCarry;
  double outlier = 1000;  // An outer gradient is withheld if its norm exceeds `outlier` times the
                          // median of the last sixteen norms; 0: never. A non-finite gradient is
                          // always withheld.
  StalenessPenalty staleness_penalty = StalenessPenalty::kNone;  // co2
  double staleness_constant = 1;                                 // co2 with kConstant: the divisor,
                                                                 // >= 1
  std::optional<double> momentum_clip;  // co2: bound of each momentum element at its use; > 0
  double error_decay = 0.95;  // sparseloco: share of the residual that is added again; in (0, 1]
  double mu_x = 0.9967;       // gpa: what the average keeps of itself at a step; in [0, 1)
  double mu_y = 0.7;          // gpa: the average's weight where gradients are taken; in (0, 1]
  SpsaOptions spsa = {};
  OneBitAdamOptions one_bit_adam = OneBitAdamOptions();
  ZeroOneAdamOptions zero_one_adam = {};
  LateRound late = LateRound::kWait;
  /// Methods whose rounds do not commit by themselves (MethodInfo::commits_rounds): steps between
  /// two comparisons of the results' digests; >= 1.
  std::int64_t commit_every = 16;
  MergeRule merge = {};                       // decoupled: keys quorum and grace
  Duration patience = std::chrono::hours(1);  // timeout: a round not committed by then ends the run
};

/// Report of one round, by the step that applied it. Bytes are those that this worker sent.
struct RoundReport {
  FragmentId fragment;
  StepIndex sent;
  StepIndex applied;
  int members = 0;      // number of contributions in the mean
  bool counted = true;  // the mean includes this worker's contribution
  std::uint64_t payload_bytes = 0;
  std::uint64_t wire_bytes = 0;
  double delta_norm = 0;  // L2 norm of the reduced outer gradient (ddp: gradient)
  /// |Dec(Enc(x)) - x| / |x| of this worker's contribution x, which includes the residual under
  /// error feedback. Measured on a sample of tiles that is the same on all workers
  /// (src/outer/parts/contribution_sample.h). Absent if the contribution was not counted or the
  /// method does not measure it (ddp, the warm-up of the 1-bit methods, spsa).
  std::optional<double> codec_error = std::nullopt;
  /// Cosine of the decoded contribution with the mean: M orthogonal contributions of equal norm
  /// give 1 / sqrt(M) each, equal contributions 1. Absent as `codec_error` is.
  std::optional<double> cosine = std::nullopt;
  Duration waited{0};  // time for which this worker was blocked by the round
  /// True for a round of the final sync: it carries the steps after the last scheduled send.
  bool closing = false;
  // A merge (isthmus/merges.h), which workers apply after steps of their own; else 0.
  std::int64_t merge = 0;   // the merges that have been applied, this one included
  std::int64_t tokens = 0;  // of all its offers
};

struct StepReport {
  StepIndex step;
  InnerStep inner;
  std::vector<RoundReport> rounds;  // applied in this step, in order
};

/// A peer is gone, and the results since the last commit are invalid: the steps since then must be
/// taken again (Exchange::go_back).
class TakenBackError : public Error {
 public:
  explicit TakenBackError(const std::string& text) : Error(ExitCode::kPeer, text) {}
};

/// The outer loop of one worker. Parameters change only inside `step` and `finish`, never while the
/// inner loop computes. One thread.
class OuterStrategy : public ParameterSource {
 public:
  /// One inner step and all syncs that are due: first sends (outer gradients relative to the
  /// current anchors), then applies. THROWS: PeerError when a round fails; TakenBackError when the
  /// steps since the last commit are invalid. After a TakenBackError the strategy must be
  /// discarded; a new strategy continues from a state of the step that Exchange::go_back returns.
  virtual StepReport step() = 0;
  /// The final sync of `OuterOptions::final_sync`, after the last step. RETURNS: the rounds
  /// applied, closing rounds last.
  virtual std::vector<RoundReport> finish() = 0;
  /// Commits the results that may still be taken back (Exchange::uncommitted), if any. Called
  /// between two steps, on all workers after the same step. THROWS: as step.
  virtual void commit() {}
  /// Steps taken so far.
  [[nodiscard]] virtual StepIndex steps() const = 0;
  /// Called between two steps. RETURNS: the step at whose end the strategy next reads or changes
  /// the inner loop's parameters; steps() + 1 when that is not known.
  [[nodiscard]] virtual StepIndex next_use() const { return StepIndex(steps().value() + 1); }
  /// ParameterSource: the outer parameters (anchors) of parameter i, which are evaluated and
  /// exported. If workers hold different anchors, this is their elementwise mean over the workers.
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override = 0;
  /// True if all workers hold the same anchors, bit for bit. False for eager.
  [[nodiscard]] virtual bool shared_anchors() const { return true; }
  /// All state of the method, including the encoded bytes of syncs in flight. The caller saves the
  /// inner loop's parameters and state. `load` begins the saved syncs again under their ids.
  /// THROWS: ConfigError naming a setting that differs from the saved one; RunError, as
  /// StateReader, for a state that does not fit.
  virtual void save(StateWriter& writer) const = 0;
  virtual void load(StateReader& reader) = 0;
  /// For a worker that continues from another worker's saved state in a running run. Afterwards
  /// local parameters equal the outer parameters, open windows and rounds in flight hold no work of
  /// this worker, and residuals of error feedback are zero. Anchors, outer momenta, the inner
  /// loop's state, the schedule and the rounds in flight do not change. A window that began before
  /// the call contributes with weight 0, so the first whole window is the first that counts; a
  /// closing round counts what its window holds. LostContribution decides what happens to the
  /// withheld work (01-adam, which has no such rule, drops it). REQUIRES: shared_anchors(), between
  /// two steps. May be called any number of times.
  virtual void forget_own_work() = 0;
  /// The method's log, if the method keeps one that is worth a file next to the checkpoints (spsa:
  /// docs/internals/spsa.md); else empty.
  [[nodiscard]] virtual std::span<const std::byte> log() const { return {}; }
};

/// Makes the method `name` over `inner` and `exchange`; the strategy borrows both for its lifetime.
/// All workers must start with equal options and parameters. Workers of one process compare them
/// (Exchange::agree_on_start) when the strategy is made and before step 1.
/// THROWS: ConfigError that names the key (outer.H, ...), its value and the rule it breaks; or the
/// tensor of InnerLoop::parameters() that breaks the canonical flat layout; or a setting that
/// differs on another worker.
[[nodiscard]] std::unique_ptr<OuterStrategy> make_outer_strategy(std::string_view name,
                                                                 const OuterOptions& options,
                                                                 InnerLoop& inner,
                                                                 Exchange& exchange);

struct MethodInfo {
  std::string name;
  std::string summary;            // one line
  std::string source;             // paper: arXiv id, section or algorithm
  std::string deviations;         // where our method differs from the paper, or empty
  std::vector<std::string> keys;  // keys of [outer] that the method uses, except `method`
  double default_lr = 0;          // 0: the method has no outer learning rate key
  double default_momentum = 0;
  double default_alpha = 0;
  std::string default_codec = "fp32";
  std::int64_t default_H = 1;  // NOLINT(readability-identifier-naming): default of a file without
                               // H; OuterOptions{} has 1
  /// The optimizer of [inner] that the method prescribes, with its published settings, which are
  /// the defaults of a file. Empty: any optimizer.
  struct Inside {
    std::string optimizer;
    double lr = 0;
    double weight_decay = 0;
    double momentum = 0;
    bool nesterov = false;
    std::string adjust_lr;
  };
  Inside inside = {};
  std::string rates;           // what is known of its outer rates, with sources; or empty
  int state_values = 0;        // fp32 values per parameter in one worker's outer state (anchors,
                               // momentum), without the residual that `:ef` adds
  bool round_behind = false;   // a round is applied at the end of the next: no key `overlap`
  bool drains = true;          // "drain" applies rounds in flight after the last step
  bool shared_anchors = true;  // anchors and momentum are the same on all workers
  /// True if every round commits by itself, so that a lost member costs no round. Otherwise the
  /// digests of several steps are compared together, and after the loss of a member the steps since
  /// the last comparison are repeated.
  bool commits_rounds = true;
  /// True if workers do not wait for one another: results depend on when contributions arrive, so
  /// that only a simulation repeats them.
  bool by_arrival = false;
  /// True if the method trains one worker alone and exchanges nothing.
  bool one_worker = false;
  /// True if the method calls only train_loss, never train_step or gradients: the inner loop then
  /// needs nothing for a backward pass.
  bool forward_only = false;

  /// True if the method uses `key` of [outer].
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
