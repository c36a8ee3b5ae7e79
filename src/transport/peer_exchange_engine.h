// SPDX-License-Identifier: Apache-2.0
// The protocol of one member: its open rounds, their commit, what is asked for again, who is gone.
// A pure state machine; peer_exchange.h drives it under one lock with frames, time and begins.
//
// One coordinates: member 0, or a hub, which stands behind the members (Rank(members)) and takes
// part in no round. Commit: who has a whole result sends DONE with its digest to the coordinator;
// when all M digests agree, it sends COMMIT to all. Who finds that a round cannot become final
// (digests differ, a member is lost, bytes do not decode) tells it, and it sends ABORT with the
// reason to all. A
// round with commit = false is handed out when whole; its digest joins that of the next committing
// round begun after it. Repair is receiver-driven: after silence it probes the peer, whose echo
// queues behind everything it has sent; what is still missing when the echo arrives was lost and is
// requested. So a slow link never causes a repetition.
//
// With `elastic`, members come and go in epochs (transport/membership.h, peer_exchange_epochs.cpp):
// who sees a member gone tells the coordinator, which says EPOCH to all; every round that is not
// committed is begun again from retained inputs by those who are left. Every round then commits by
// itself, unless what is not committed can be taken back (peer_exchange_taking_back.cpp). Without
// member 0 nothing goes on. A hub may die: rounds wait for its next process, which
// knows from records what the last one has decided, and is told again what was said to that one.
//
// With a `deadline`, who is late holds nobody up (peer_exchange_standing_in.cpp): its own engine
// begins a round in its name, without its work, when the others have begun it for so long.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/transport.h"
#include "transport/frame.h"
#include "transport/hub_record.h"
#include "transport/loss_cause.h"
#include "transport/measured_shares.h"
#include "transport/membership.h"
#include "transport/peer_exchange_round.h"
#include "transport/rifts.h"
#include "transport/round_deadline.h"

namespace isthmus {

/// A round whose result is final at this member, and when it has begun it.
struct ThroughRound {
  SyncId id;
  TimePoint begun;
};

struct EngineOptions {
  Rank self;
  int members = 1;
  std::uint32_t epoch = 0;
  Duration retry_interval = std::chrono::seconds(2);
  std::vector<std::uint32_t> shares;       // of the owners in a reduce; empty: even
  std::vector<SharesOfSize> table = {};    // in their place, by size; empty: none
  std::vector<std::uint32_t> groups = {};  // of a reduce in two levels, by member; empty: one level
  std::size_t chunk_bytes = kMaxPartBytes;  // of a part, at most
  std::uint64_t run_key = 0;                // of the means' encoding
  bool elastic = false;                     // a lost member, other than member 0, ends no round
  bool hub = false;                         // a hub coordinates; with `elastic` only
  int min_members = 1;                      // so many are not left behind, nor let go
  bool keeps_encoded = false;               // for origin_of
  /// The members meet first: until `start` nobody is left out, and of frames notes alone count.
  /// With `elastic`, without `hub`.
  bool gathers = false;
  /// Rounds may leave their commit to a later one: where a member is lost, all that is not
  /// committed is taken back. With `elastic`, without `moves_shares` and `deadline`. Of all members
  /// or none; a hub is ready for it.
  bool takes_back = false;
  /// Shares move while the run goes on (measured_shares.h); `shares` are those at the start. A
  /// fragment's round is begun once the result of the one before has been taken. Without `groups`.
  bool moves_shares = false;
  /// What the coordinator then tells with a commit, in place of what it has measured; for tests.
  std::function<std::vector<std::uint32_t>(const SyncId& id)> choose_shares = {};
  int connections = 1;  // of a link, at most: fewer frames than go at once tell no rate
  /// With `elastic`: how late this member may be. Of all members, or of none, since each tells the
  /// others what it begins; not alike.
  std::optional<RoundDeadline> deadline = {};
  /// Whether a round sent after that step may be begun in this member's name: as its own training
  /// may begin that step. Asked within the engine. Empty: any.
  std::function<bool(StepIndex sent)> may_stand_in = {};
};

class ExchangeEngine {
 public:
  explicit ExchangeEngine(EngineOptions options);

  /// Where a round takes place. Valid as long as the engine, even where it begins that very round
  /// in this member's name meanwhile.
  [[nodiscard]] RoundPlace place(const SyncId& id) const;
  /// Opens a round made from `place()`. `retained`: the contribution it was made of, where
  /// `elastic`. REQUIRES: the rules of Exchange::begin.
  void begin(Round round, bool commit, std::optional<Contribution> retained, TimePoint now,
             Outbox& out);
  /// As `begin`, of a round that was begun in this member's name: its own contribution is too late.
  /// RETURNS: false when it was not. `begin` asks too; asked before, no round is made in vain.
  [[nodiscard]] bool meet(const SyncId& id, TimePoint now);
  /// The last step after which a round was sent that was begun in this member's name and not met.
  [[nodiscard]] std::optional<StepIndex> begun_ahead() const;
  /// Whether results have been handed out that may be taken back, or that were, unknown to whoever
  /// begins rounds.
  [[nodiscard]] bool uncommitted() const;
  /// The rounds taken back are known to be so: the next ones count.
  /// RETURNS: the last step of which a round is committed here; 0: none.
  StepIndex go_back();
  /// Of the fragment of which it is most: how many of its last rounds, in a row, were begun so. One
  /// that this member begins itself ends the row.
  [[nodiscard]] int missed_in_a_row() const;
  /// Those begun so since the last call.
  [[nodiscard]] std::vector<StoodIn> take_stood_in();
  /// Takes a frame as it came. Damaged and foreign ones are dropped: what they carried is missing
  /// and will be asked for.
  void receive(Rank from, FrameBytes bytes, TimePoint now, Outbox& out);
  /// The transport's news, in its order: `peer` is gone, once a loss.
  void lose(Rank peer, const std::string& why, TimePoint now, Outbox& out,
            LossCause cause = LossCause::kGone);
  /// The members have met, with `gathers`. `met`: how often each had been welcomed back when it was
  /// met; who has been lost since, or started anew, counts as lost from now on.
  void start(std::span<const std::uint64_t> met, TimePoint now, Outbox& out);
  /// This member takes part only once an epoch says so: the run goes on without it.
  /// REQUIRES: nothing has been begun.
  void stand_aside();
  /// ... and links to a new process of it stand, to which nothing has been sent yet. It is no
  /// member by that; where it is one, the news of its admission was faster.
  void welcome_back(Rank peer, TimePoint now, Outbox& out);
  /// At the coordinator: `joiner` takes part in rounds sent after step `after`, which nobody has
  /// begun.
  /// RETURNS: false when it is a member, or lost. REQUIRES: links between it and all members.
  bool admit(Rank joiner, std::int64_t after, TimePoint now, Outbox& out);
  /// At the coordinator: rounds sent after step `after`, which nobody has begun, are without
  /// `member`; those sent before end with it, then it says goodbye and is gone. RETURNS: false when
  /// it is none, or leaves already, or too few would be left.
  bool release(Rank member, std::int64_t after, TimePoint now, Outbox& out);

  // At a hub.
  /// All that has been decided, by the process before; who is a member is heard only once it
  /// `stands`. Nothing: a run begins.
  void restore(std::span<const HubRecord> records);
  /// Decided since the last call: to be written down before anything of the outbox is sent.
  [[nodiscard]] std::vector<HubRecord> take_records();
  /// Rounds that have become final here since the last call, as `Reduced` can be handed out.
  [[nodiscard]] std::vector<ThroughRound> take_through() { return std::exchange(through_, {}); }
  /// All that a next process needs of what has been decided.
  [[nodiscard]] std::vector<HubRecord> history() const;
  /// At a hub all that was decided, at a member what it knows of that.
  [[nodiscard]] Decided decided() const;
  /// `peer` has come back from before `restore`, and is of the same run.
  void stands(Rank peer, TimePoint now, Outbox& out);
  /// `peer` is gone; a hub counts nobody as gone by its own links alone. No member: no news.
  void exclude(Rank peer, const std::string& why, TimePoint now, Outbox& out);

  /// At a member with a hub: its next process knows this member's run. Says again what it was told.
  void tell_hub_again(TimePoint now, Outbox& out);

  /// Who has come and gone since the last call, one entry each.
  [[nodiscard]] std::vector<Epoch> take_epochs();
  /// At the coordinator, where shares move: that they have, since the last call.
  [[nodiscard]] std::optional<ShareMove> take_share_move();
  /// Fails every round, open or yet to begin: the member itself cannot go on.
  void give_up(const std::string& why, Outbox& out);
  /// The member has waited long for this round: who has not begun it is left out, where the run can
  /// go on without. `groups`: it has waited longer, and nobody of a group has named who has not:
  /// who was to send the group's partials is left out.
  void leave_behind(const SyncId& id, bool groups, TimePoint now, Outbox& out);
  /// Sends PROBE to all that this round waits for, who need not answer.
  void ask(const SyncId& id, Outbox& out);
  /// Grows with every membership that is entered.
  [[nodiscard]] std::uint32_t epoch() const { return membership_.number(); }
  /// Probes, repeats, begins what is due. Harmless when called early or by two tasks.
  void tick(TimePoint now, Outbox& out);
  /// When `tick` has something to look at; kNever while nothing is open.
  [[nodiscard]] TimePoint next_tick() const;

  /// Whether a round has begun and is not through.
  [[nodiscard]] bool any_open() const;
  /// True when `take` has an answer.
  [[nodiscard]] bool ready(const SyncId& id) const;
  /// The committed result or the round's error. REQUIRES: ready(id).
  [[nodiscard]] Expected<Reduced, ExchangeError> take(const SyncId& id);
  /// The digest of the result taken last, and what it was decoded from, which is empty where it is
  /// not kept; nothing when that was another round's.
  [[nodiscard]] std::optional<std::pair<Digest128, EncodedResult>> origin_of(
      const SyncId& id) const;
  /// Who and what a round waits for, for people.
  [[nodiscard]] std::string describe(const SyncId& id) const;

  /// A frame for the program of another member, beside the rounds.
  void note(Rank to, std::span<const std::byte> bytes, Outbox& out);
  /// Those that have come since the last call, in order of arrival.
  [[nodiscard]] std::vector<std::pair<Rank, std::vector<std::byte>>> take_notes();

  /// A member that goes while the others go on may say goodbye once its rounds have ended.
  [[nodiscard]] bool may_leave() const;
  /// Says goodbye: nothing will be begun or waited for any more; others are still served.
  void leave(Outbox& out);
  /// Whether a peer has said goodbye.
  [[nodiscard]] bool has_left(Rank peer) const {
    return peer_[static_cast<std::size_t>(peer.value())].left;
  }
  /// True when every peer has said goodbye or is lost; to a hub, a lost one has not left. Of one
  /// that goes alone, when the coordinator has taken note, or is lost.
  [[nodiscard]] bool all_left() const;

 private:
  struct OpenRound {
    Round round;
    bool commit = true;
    bool said_done = false;
    bool closed = false;   // through: complete and, where it commits, committed
    bool covered = false;  // without commit of its own: all members are known to be through
    bool taken = false;
    std::optional<ExchangeError> failure;
    std::vector<SyncId> covers;            // uncommitted rounds whose digests its own covers
    Digest128 digest{};                    // what DONE says
    std::vector<std::byte> report = {};    // behind it, where shares move
    std::vector<TimePoint> heard;          // by member: last useful frame
    std::optional<Contribution> retained;  // until it is closed, where it may have to begin again
    OwnerResidual residual = {};           // the retained one's, as it was
    std::optional<SyncId> before = {};     // this member had begun last
    /// Begun in this member's name, and not met: since when so many had begun it.
    std::optional<TimePoint> in_its_name = {};
    TimePoint begun = {};
  };
  struct Peer {
    bool lost = false;
    bool left = false;
    bool fresh = false;    // its present process came after its membership had ended
    bool unheard = false;  // at a hub: may be of another run, or not there
    std::string why;       // it is lost
    LossCause cause = LossCause::kGone;
    std::optional<TimePoint> told;  // of the epoch, since it was last behind
    std::int64_t closed_before = 0;
    TimePoint probe_at;    // not before
    Duration patience{0};  // between probes; doubles while they bring nothing
  };
  /// The coordinator's word on a round: nothing = committed.
  using Verdict = std::optional<ExchangeError>;

  void fail(OpenRound& open, const ExchangeError& error, Outbox& out);
  [[nodiscard]] bool belongs(Rank from, const FrameHeader& head, const FrameBytes& bytes,
                             TimePoint now, Outbox& out);
  [[nodiscard]] bool can_spare(Rank peer) const;
  [[nodiscard]] bool single_out(const SyncId& id, const std::map<Rank, Digest128>& digests);
  void exclude_the_odd(TimePoint now, Outbox& out);
  /// To the coordinator.
  void report(Rank peer, LossCause cause, const std::string& why, Outbox& out);
  void lose_again(Rank peer, TimePoint now, Outbox& out);
  void settle_rifts(TimePoint now, Outbox& out);
  [[nodiscard]] bool hold(Rank from, FrameKind kind, const FrameBytes& bytes);
  void let_go(Rank peer);
  void end_without_coordinator(const std::string& why);
  void take_bye(Rank from, TimePoint now, Outbox& out);
  void part_with(Rank peer, TimePoint now, Outbox& out);
  void declare(EpochNews news, TimePoint now, Outbox& out);
  void remind(Rank peer, TimePoint now, Outbox& out);
  void ask_for_news(TimePoint now, Outbox& out);
  void take_epoch(Rank from, const Frame& frame, TimePoint now, Outbox& out);
  void take_gone(Rank from, const Frame& frame, TimePoint now, Outbox& out);
  [[nodiscard]] bool means_own_results(const EpochNews& news) const;
  void enter(const EpochNews& news, TimePoint now, Outbox& out);
  void note_changes(const EpochNews& news);
  void relaunch(OpenRound& open, TimePoint now, Outbox& out);
  void finish_with(const ExchangeError& error);
  void take_back();
  [[nodiscard]] static bool is_committed(const OpenRound& open);
  [[nodiscard]] bool speaks_of_now(const FrameHeader& head) const;
  void close(OpenRound& open);
  void note_final(const SyncId& id, const Digest128& digest);
  [[nodiscard]] bool needs(Rank peer) const;
  [[nodiscard]] Rank coordinator() const { return Rank(options_.hub ? options_.members : 0); }
  [[nodiscard]] bool coordinates() const { return options_.self == coordinator(); }
  [[nodiscard]] bool is_hub() const { return options_.hub && coordinates(); }
  /// A member now; never a hub.
  [[nodiscard]] bool live(Rank rank) const {
    return rank.value() < options_.members && membership_.live(rank);
  }
  [[nodiscard]] bool alone() const;
  void start_measuring();
  [[nodiscard]] std::span<const std::uint32_t> shares_for(const SyncId& id) const;
  [[nodiscard]] bool knows_shares(const SyncId& id) const;
  void report_rates(OpenRound& open);
  void read_done(Rank from, const Frame& frame, Outbox& out);
  [[nodiscard]] bool take_report(Rank from, const SyncId& id, std::span<const std::byte> bytes);
  void choose_next_shares(const SyncId& id);
  [[nodiscard]] std::vector<std::byte> shares_told(const SyncId& id) const;
  void refuse_done(Rank from, const Frame& frame, Outbox& out);
  [[nodiscard]] std::string of_unlike_files() const;
  void take_commit(const SyncId& id, std::span<const std::byte> payload, Outbox& out);
  void adopt_shares(const OpenRound& open);
  void forget_shares();
  void restore_shares(const HubRecord& record, const SyncId& id);
  void go_on_with_shares();

  void receive_data(Rank from, const Frame& frame, FrameBytes bytes, TimePoint now, Outbox& out);
  void feed(OpenRound& open, Rank from, const Frame& frame, FrameBytes bytes, TimePoint now,
            Outbox& out);
  void answer_control(Rank from, const Frame& frame, TimePoint now, Outbox& out);
  void request_missing(Rank from, std::uint32_t echo, Outbox& out);
  void progress(Outbox& out);
  void say_done(OpenRound& open, Outbox& out);
  void take_done(Rank from, const SyncId& id, const Digest128& digest, Outbox& out);
  [[nodiscard]] Verdict verdict_of(Rank from, const SyncId& id, const Digest128& digest) const;
  void judge(const SyncId& id, const Verdict& verdict, Outbox& out);
  void tell(Rank to, const SyncId& id, const Verdict& verdict, Outbox& out);
  void take_verdict(const SyncId& id, const Verdict& verdict);
  void take_abort(Rank from, const Frame& frame, Outbox& out);
  void repeat_done(const OpenRound& open, Outbox& out);
  void fail_what_needs(Rank peer, Outbox& out);
  void forget_closed();
  [[nodiscard]] bool over(const SyncId& id) const;
  [[nodiscard]] bool all_peers_closed(StepIndex sent) const;
  [[nodiscard]] bool through_everywhere(const SyncId& id) const;
  [[nodiscard]] bool lacks_digest(const OpenRound& open, Rank peer) const;
  [[nodiscard]] std::int64_t closed_before() const;
  [[nodiscard]] std::vector<Rank> waits_for(const OpenRound& open) const;
  [[nodiscard]] std::vector<Rank> everyone_else() const;
  /// ... that is a member now.
  [[nodiscard]] std::vector<Rank> peers() const;
  void take_early(OpenRound& open, TimePoint now, Outbox& out);
  void open(Round round, bool commit, std::optional<Contribution> retained,
            std::optional<TimePoint> in_its_name, TimePoint now, Outbox& out);
  [[nodiscard]] TimePoint next_repair() const;
  void announce(const OpenRound& open, const std::vector<Rank>& to, Outbox& out);
  void take_begun(Rank from, const FrameHeader& head);
  void look_ahead(TimePoint now);
  [[nodiscard]] std::optional<SyncId> next_ahead() const;
  [[nodiscard]] bool may_stand_in(const SyncId& id, TimePoint now);
  [[nodiscard]] bool is_let_stand_in(StepIndex sent, TimePoint now);
  [[nodiscard]] Duration pause_of_standing_in() const;
  void stand_in(TimePoint now, Outbox& out);
  [[nodiscard]] TimePoint next_stand_in() const;
  void keep_form(const Contribution& own, TimePoint now);
  [[nodiscard]] bool stands_in() const;
  void send(FrameHeader head, Rank to, std::span<const std::byte> payload, Outbox& out);

  EngineOptions options_;
  std::map<SyncId, OpenRound> rounds_;
  std::vector<SyncId> uncovered_;            // begun without commit, in order of begin
  std::map<SyncId, Digest128> uncommitted_;  // digests of complete ones, until covered
  std::map<SyncId, std::vector<std::pair<Rank, FrameBytes>>> early_;  // of rounds not begun here
  std::set<SyncId> finished_;  // gone from rounds_, sent at last_begun_
  StepIndex last_begun_;
  std::vector<std::pair<Rank, std::vector<std::byte>>> notes_;  // come and not taken
  std::optional<std::string> given_up_;                         // why this member cannot go on
  std::vector<Peer> peer_;                                      // by member; the own entry is idle
  std::vector<std::uint32_t> echoes_;                           // sent to each member
  bool gathers_;                                                // until `start`
  std::vector<std::uint64_t> returns_;                          // by member: was welcomed back
  std::vector<std::pair<Rank, FrameBytes>> held_;               // come meanwhile
  // At the coordinator: digests that came in; verdicts, kept for whoever missed them.
  std::map<SyncId, std::map<Rank, Digest128>> dones_;
  std::map<SyncId, Verdict> verdicts_;
  std::map<Rank, std::string> odd_;                               // to be left out, and why
  Rifts rifts_;                                                   // at the coordinator
  std::set<Rank> once_odd_;                                       // was, before
  std::map<SyncId, Digest128> committed_;                         // at a hub: of its verdicts
  std::map<FragmentId, std::pair<StepIndex, Digest128>> newest_;  // of the rounds that are final
  std::vector<HubRecord> records_;                                // at a hub: decided and not taken
  std::vector<ThroughRound> through_;                             // not taken
  std::optional<SyncId> taken_last_;
  std::pair<Digest128, EncodedResult> origin_;  // of that one
  TimePoint last_tick_;
  Membership membership_;
  bool is_member_ = true;
  std::vector<std::pair<Rank, FrameBytes>> ahead_;  // of epochs that this member does not know yet
  std::optional<TimePoint> asked_;                  // for the news of them, or the first such came
  std::vector<Epoch> epochs_;                       // entered and not taken
  std::optional<EpochNews> news_;                   // at the coordinator: the last one
  // With `takes_back`:
  StepIndex committed_after_;         // the last step of which a round was committed
  std::optional<StepIndex> back_to_;  // that, when rounds were taken back the last time
  std::optional<std::string> why_;    // while whoever begins rounds has not gone back
  std::set<SyncId> taken_back_;       // begun, and nobody has been told
  bool leaving_ = false;
  // Where shares move.
  struct NextShares {
    std::uint32_t epoch = 0;  // they hold in
    std::vector<std::uint32_t> shares;
  };
  std::optional<ArrivalGauge> gauge_;
  std::optional<MeasuredShares> measured_;                    // at the coordinator
  std::map<SyncId, std::vector<std::uint32_t>> told_shares_;  // with that round's COMMIT
  std::map<FragmentId, NextShares> next_shares_;              // as the last one has told
  // Where rounds have a deadline.
  std::map<SyncId, RoundAhead> ahead_of_here_;
  std::map<FragmentId, Contribution> forms_;  // as this member contributes, without weight or bytes
  std::map<FragmentId, int> missed_;          // in its name, since it has begun one itself
  std::optional<SyncId> begun_last_;          // by this member or in its name
  TimePoint look_again_;                      // not before, for what is due and may not be begun
  TimePoint ask_again_;                       // the same, of options_.may_stand_in
  std::vector<StoodIn> stood_in_;             // and not taken
  std::optional<ExchangeError> over_;         // why no round of this member ends any more
};

}  // namespace isthmus
