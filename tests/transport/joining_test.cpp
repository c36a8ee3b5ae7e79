// SPDX-License-Identifier: Apache-2.0
// The exchanges of a donor and a joiner, and the bytes that go from one to the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/base/system_runtime.h"
#include "transport/exchange/catch_up/joining_exchange.h"
#include "transport/exchange/peer_exchange.h"
#include "transport/exchange/round_result.h"
#include "transport/exchange/run_in_process.h"
#include "transport/naive_mean.h"
#include "transport/wire/note_stream.h"

namespace isthmus::this_file {
namespace {

using ::testing::HasSubstr;
using testing_support::contribution_of;
using Use = std::function<void(const SyncId&, const Reduced&, const ForwardingExchange::Encoded&)>;

constexpr Duration kLong = std::chrono::minutes(1);
constexpr std::size_t kValues = 3;
constexpr std::size_t kForwardedValues = 9001;

SyncId id(int fragment, std::int64_t sent) { return {FragmentId(fragment), StepIndex(sent)}; }

Reduced mean(float first) {
  return {.values = {first, -0.0f, std::numeric_limits<float>::quiet_NaN()},
          .contributors = {WorkerId(0), WorkerId(2)}};
}

Contribution contribution(const SyncId& round, ReductionKind kind = ReductionKind::kAuto) {
  return {.id = round,
          .encoded = {kValues, std::vector<std::byte>(kValues)},
          .codec = plain_bytes(),
          .kind = kind};
}

/// Answers at once with the step after which a round was sent.
class StepExchange final : public Exchange {
 public:
  [[nodiscard]] WorkerId self() const override { return WorkerId(1); }
  [[nodiscard]] int members() const override { return 3; }
  [[nodiscard]] EncodeKey key(const SyncId& round) const override { return encode_key(round, 1); }
  Ticket begin(Contribution each) override {
    begun.push_back(each.id);
    return {each.id};
  }
  [[nodiscard]] bool poll(const Ticket&) override { return true; }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket, Duration) override {
    return mean(static_cast<float>(ticket.id.sent.value()));
  }
  [[nodiscard]] ByteCounts bytes() const override { return {.payload = 7, .wire = 9}; }

  std::vector<SyncId> begun;
};

struct Joiner {
  StepExchange real;
  SystemRuntime runtime;
  JoiningExchange exchange{real, runtime, StepIndex(5)};

  Expected<Reduced, ExchangeError> round(const SyncId& each, Duration patience = kLong) {
    return exchange.wait(exchange.begin(contribution(each)), patience);
  }
};

TEST(ForwardingExchange, ShowsTheSinkEveryResultWhileThereIsOne) {
  StepExchange real;
  ForwardingExchange donor(real);
  std::vector<std::pair<SyncId, float>> seen;
  const auto take = [&](std::int64_t sent) {
    return donor.wait(donor.begin(contribution(id(0, sent))), kLong)->values[0];
  };
  EXPECT_EQ(take(1), 1);
  donor.forward_to([&](const SyncId& each, const Reduced& result, const auto&) {
    seen.emplace_back(each, result.values[0]);
  });
  EXPECT_EQ(take(2), 2);
  EXPECT_EQ(take(3), 3);
  donor.forward_to({});
  EXPECT_EQ(take(4), 4);
  EXPECT_EQ(seen, (std::vector<std::pair<SyncId, float>>{{id(0, 2), 2.0f}, {id(0, 3), 3.0f}}));
  EXPECT_EQ(donor.self(), WorkerId(1));
  EXPECT_EQ(donor.bytes().wire, 9u);
}

TEST(JoiningExchange, BlocksUntilTheResultHasComeAndBeginsNothing) {
  Joiner joiner;
  const Ticket ticket = joiner.exchange.begin(contribution(id(0, 6)));
  EXPECT_FALSE(joiner.exchange.poll(ticket));
  const auto task = joiner.runtime.spawn("donor", [&] {
    joiner.exchange.deliver(id(1, 6), mean(2));
    joiner.exchange.deliver(id(0, 6), mean(1));
  });
  const auto result = joiner.exchange.wait(ticket, kLong);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->values[0], 1);
  EXPECT_EQ(result->contributors, (std::vector<WorkerId>{WorkerId(0), WorkerId(2)}));
  EXPECT_EQ(result->wire_bytes, 0u);
  EXPECT_EQ(joiner.round(id(1, 6))->values[0], 2);  // it came before it was asked for
  EXPECT_TRUE(joiner.real.begun.empty());
}

TEST(JoiningExchange, SharesRoundsSentAfterTheAgreedStepAndReplaysThoseBefore) {
  Joiner joiner;
  const Ticket early = joiner.exchange.begin(contribution(id(0, 6)));
  joiner.exchange.deliver(id(0, 8), mean(80));  // nobody knows K yet
  joiner.exchange.become_member(StepIndex(7));
  joiner.exchange.become_member(StepIndex(70));
  EXPECT_EQ(joiner.exchange.member_after(), StepIndex(7));
  joiner.exchange.deliver(id(1, 8), mean(81));
  joiner.exchange.deliver(id(0, 7), mean(70));
  EXPECT_EQ(joiner.round(id(0, 7))->values[0], 70);
  EXPECT_EQ(joiner.round(id(0, 8))->values[0], 8);  // the real one's
  EXPECT_EQ(joiner.round(id(1, 8))->values[0], 8);
  joiner.exchange.deliver(id(0, 6), mean(60));  // settled late, as an overlap has it
  EXPECT_EQ(joiner.exchange.wait(early, kLong)->values[0], 60);
  EXPECT_EQ(joiner.real.begun, (std::vector<SyncId>{id(0, 8), id(1, 8)}));
}

TEST(JoiningExchange, NeverRunsAheadOfTheDonor) {
  Joiner joiner;
  EXPECT_TRUE(joiner.exchange.await_step(StepIndex(5), Duration{0}));
  const auto early = joiner.exchange.await_step(StepIndex(6), Duration{0});
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().kind, ExchangeError::Kind::kDeadlineExceeded);
  EXPECT_THAT(early.error().what, HasSubstr("step 6"));
  const auto mark = joiner.runtime.spawn("mark", [&] { joiner.exchange.reached(StepIndex(6)); });
  EXPECT_TRUE(joiner.exchange.await_step(StepIndex(6), kLong));
  EXPECT_FALSE(joiner.exchange.await_step(StepIndex(7), Duration{0}));
  const auto word =
      joiner.runtime.spawn("word", [&] { joiner.exchange.become_member(StepIndex(9)); });
  EXPECT_TRUE(joiner.exchange.await_step(StepIndex(7), kLong));
  EXPECT_TRUE(joiner.exchange.await_step(StepIndex(10), kLong));
}

TEST(JoiningExchange, AFailureEndsWhatWaitsForTheDonorAndNothingElse) {
  Joiner joiner;
  joiner.exchange.become_member(StepIndex(7));
  joiner.exchange.deliver(id(0, 6), mean(6));
  const Ticket here = joiner.exchange.begin(contribution(id(0, 6)));
  const Ticket missing = joiner.exchange.begin(contribution(id(0, 7)));
  const auto task = joiner.runtime.spawn(
      "links", [&] { joiner.exchange.fail(WorkerId(0), "the donor is gone"); });
  const auto failed = joiner.exchange.wait(missing, kLong);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind, ExchangeError::Kind::kPeerLost);
  EXPECT_EQ(failed.error().peer, WorkerId(0));
  EXPECT_EQ(failed.error().what, "the donor is gone");
  EXPECT_TRUE(joiner.exchange.wait(here, kLong));
  EXPECT_TRUE(joiner.round(id(0, 8)));
}

TEST(JoiningExchange, RefusesWhatDoesNotFit) {
  Joiner late;
  (void)late.exchange.begin(contribution(id(0, 9)));
  late.exchange.become_member(StepIndex(8));
  const auto overtaken = late.exchange.await_step(StepIndex(10), kLong);
  ASSERT_FALSE(overtaken);
  EXPECT_THAT(overtaken.error().what, HasSubstr("after step 8, but has replayed step 9"));

  Joiner twice;
  twice.exchange.deliver(id(0, 6), mean(1));
  twice.exchange.deliver(id(0, 6), mean(1));
  const auto doubled = twice.exchange.await_step(StepIndex(6), kLong);
  ASSERT_FALSE(doubled);
  EXPECT_THAT(doubled.error().what, HasSubstr("twice"));

  Joiner other;
  other.exchange.deliver(id(0, 6), {.values = {1, 2}, .contributors = {WorkerId(0)}});
  const auto sizes = other.round(id(0, 6));
  ASSERT_FALSE(sizes);
  EXPECT_EQ(sizes.error().kind, ExchangeError::Kind::kCorrupt);
  const Ticket collect = other.exchange.begin(contribution(id(1, 6), ReductionKind::kCollect));
  other.exchange.deliver(id(1, 6), {.contributors = {WorkerId(0)},
                                    .contributions = {{kValues, std::vector<std::byte>(2)}}});
  EXPECT_FALSE(other.exchange.wait(collect, kLong));
}

// The layout drawn in WIRE_FORMAT.md, byte for byte.
TEST(RoundResult, LiesAsDocumented) {
  const std::vector<std::byte> bytes =
      write_result(id(3, 0x0102), {.contributors = {WorkerId(0), WorkerId(2)},
                                   .contributions = {{5, {std::byte{0xaa}}}, {6, {}}}});
  constexpr unsigned char kExpected[] = {3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                         0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,           //
                                         0, 0, 0, 0, 2, 0, 0, 0,                                //
                                         5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xaa,  //
                                         6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_TRUE(std::ranges::equal(bytes, std::as_bytes(std::span(kExpected))));
}

TEST(RoundResult, KeepsEveryBit) {
  const Reduced sent = mean(1.5f);
  const auto read = read_result(write_result(id(4, 77), sent), 3);
  ASSERT_TRUE(read) << read.error();
  EXPECT_EQ(read->id, id(4, 77));
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(read->reduced.values)),
                                 std::as_bytes(std::span(sent.values))));
  EXPECT_EQ(read->reduced.contributors, sent.contributors);
  const auto collected = read_result(
      write_result(id(0, 1),
                   {.contributors = {WorkerId(1)}, .contributions = {{9, {std::byte{4}}}}}),
      3);
  ASSERT_TRUE(collected) << collected.error();
  EXPECT_EQ(collected->reduced.contributions.at(0).values, 9u);
  EXPECT_EQ(collected->reduced.contributions.at(0).bytes, std::vector{std::byte{4}});
  const std::vector<EncodedShare> shares = {{.weight = 0.5, .bytes = {std::byte{7}}},
                                            {.weight = 3, .bytes = {}}};
  const auto encoded = read_result(write_result(id(0, 1), sent, shares), 3);
  ASSERT_TRUE(encoded) << encoded.error();
  EXPECT_TRUE(encoded->reduced.values.empty());
  ASSERT_EQ(encoded->encoded.size(), 2u);
  EXPECT_EQ(encoded->encoded[0].weight, 0.5);
  EXPECT_EQ(encoded->encoded[0].bytes, std::vector{std::byte{7}});
}

TEST(RoundResult, RefusesEncodedSharesThatCannotBe) {
  const std::vector<EncodedShare> shares = {{.weight = 0.5, .bytes = {std::byte{7}}}};
  const std::vector<std::byte> good =
      write_result(id(0, 1), {.contributors = {WorkerId(0)}}, shares);
  ASSERT_TRUE(read_result(good, 3));
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(read_result(std::span(good).first(size), 3)) << size;
  }
  std::vector<std::byte> weightless = good;
  std::fill_n(weightless.begin() + 36, 8, std::byte{});
  EXPECT_FALSE(read_result(weightless, 3));
}

struct Forwarded {
  std::string codec;
  ReductionKind kind;
};

/// One round of three members; `use` sees the donor's result and what it was decoded from.
void one_round(const Forwarded& how, const Use& use) {
  const std::shared_ptr<const Codec> codec = make_codec(how.codec);
  run_in_process(3, {.keeps_encoded = true}, [&](WorkerContext& context) {
    auto& real = dynamic_cast<PeerExchange&>(context.exchange);
    ForwardingExchange donor(real,
                             [&](const SyncId& each) { return real.origin_of(each).encoded; });
    if (context.rank == WorkerId(0)) donor.forward_to(use);
    Contribution own = contribution_of(codec, context.rank, kForwardedValues, id(0, 6), how.kind);
    if (context.rank == WorkerId(2)) own.weight = 0;  // takes without giving
    ASSERT_TRUE(donor.wait(donor.begin(std::move(own)), kLong));
  });
}

// The oracle: the naive mean of the two that give, and the codec's own size of a vector.
TEST(Forwarding, CostsWhatTheCodecSaysAndDecodesToTheSameBits) {
  const std::size_t fp32 = kForwardedValues * sizeof(float);
  for (const Forwarded& how :
       {Forwarded{"int4", ReductionKind::kReduce}, Forwarded{"int8:256", ReductionKind::kReduce},
        Forwarded{"int8:256", ReductionKind::kGather}, Forwarded{"topk:64", ReductionKind::kGather},
        Forwarded{"fp32", ReductionKind::kReduce}, Forwarded{"fp16", ReductionKind::kGather}}) {
    const std::shared_ptr<const Codec> codec = make_codec(how.codec);
    const std::size_t vector = encoded_bytes(*codec, kForwardedValues);
    std::vector<std::byte> bytes;
    one_round(how, [&](const SyncId& each, const Reduced& result, const auto& encoded) {
      bytes = write_result(each, result, encoded);
    });
    constexpr std::size_t kAround = 32 + 2 * 4;  // of two contributors
    const bool gathers = how.kind == ReductionKind::kGather;
    const bool smaller = (gathers ? 3 : 1) * vector < fp32;  // of three that might have given
    const std::size_t shares = gathers ? 2 : 1;
    EXPECT_EQ(bytes.size(), kAround + (smaller ? shares * (16 + vector) : fp32)) << how.codec;

    auto read = read_result(bytes, 3);
    ASSERT_TRUE(read) << read.error();
    Joiner joiner;
    const Ticket ticket = joiner.exchange.begin(
        contribution_of(codec, WorkerId(1), kForwardedValues, id(0, 6), how.kind));
    joiner.exchange.deliver(read->id, std::move(read->reduced), std::move(read->encoded));
    const auto result = joiner.exchange.wait(ticket, kLong);
    ASSERT_TRUE(result) << result.error().what;
    EXPECT_EQ(result->values, testing_support::naive_mean(*codec, {WorkerId(0), WorkerId(1)},
                                                          kForwardedValues, how.kind, id(0, 6)))
        << how.codec;
  }
}

TEST(JoiningExchange, RefusesEncodedResultsOfOtherSizesOrThatDoNotDecode) {
  const std::shared_ptr<const Codec> codec = make_codec("int4");
  std::vector<EncodedShare> good;
  one_round({"int4", ReductionKind::kReduce},
            [&](const SyncId&, const Reduced&, const auto& encoded) { good = encoded; });
  ASSERT_EQ(good.size(), 1u);
  std::vector<EncodedShare> two = {good[0], good[0]};
  std::vector<EncodedShare> shorter = good;
  shorter[0].bytes.pop_back();
  for (const auto& bad : {two, shorter}) {
    Joiner joiner;
    const Ticket ticket = joiner.exchange.begin(
        contribution_of(codec, WorkerId(1), kForwardedValues, id(0, 6), ReductionKind::kReduce));
    joiner.exchange.deliver(id(0, 6), {.contributors = {WorkerId(0)}}, bad);
    const auto result = joiner.exchange.wait(ticket, kLong);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ExchangeError::Kind::kCorrupt);
    EXPECT_THAT(result.error().what, HasSubstr("has come encoded in"));
  }
}

TEST(RoundResult, RefusesEveryTruncationAndWhatCannotBe) {
  const std::vector<std::byte> good = write_result(
      id(1, 2), {.values = {1},
                 .contributors = {WorkerId(0), WorkerId(2)},
                 .contributions = {{5, {std::byte{1}}}, {6, {std::byte{2}, std::byte{3}}}}});
  ASSERT_TRUE(read_result(good, 3));
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(read_result(std::span(good).first(size), 3)) << size;
  }
  std::vector<std::byte> longer = good;
  longer.push_back({});
  EXPECT_FALSE(read_result(longer, 3));
  EXPECT_FALSE(read_result(good, 2));  // no member 2
  const auto with = [&](std::size_t at, unsigned char value) {
    std::vector<std::byte> changed = good;
    changed.at(at) = std::byte{value};
    return changed;
  };
  EXPECT_FALSE(read_result(with(3, 0x80), 3));   // fragment
  EXPECT_FALSE(read_result(with(11, 0x80), 3));  // step
  EXPECT_FALSE(read_result(with(19, 0x80), 3));  // 2^63 values
  EXPECT_FALSE(read_result(with(24, 1), 3));     // one contribution of two
  EXPECT_FALSE(read_result(with(28, 1), 3));     // encoded, and a value
  EXPECT_FALSE(read_result(with(36, 0), 3));     // member 0 twice
}

std::vector<std::byte> some_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

TEST(NoteStream, GivesBackStreamsOfAnyLengthOneAfterAnother) {
  NoteStreamAssembler assembler(10 * kNotePieceBytes);
  std::uint32_t stream = 0;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kNotePieceBytes - 1,
                                 kNotePieceBytes, kNotePieceBytes + 1, 3 * kNotePieceBytes}) {
    const std::vector<std::byte> bytes = some_bytes(size);
    NoteStreamCutter cutter(stream, 40 + stream, bytes);
    std::optional<NoteStream> whole;
    std::size_t pieces = 0;
    while (!cutter.done()) {
      EXPECT_FALSE(whole);
      const std::vector<std::byte> piece = cutter.next();
      EXPECT_LE(piece.size(), kNotePieceBytes + kNotePieceHeadBytes);
      auto taken = assembler.take(piece);
      ASSERT_TRUE(taken) << taken.error();
      whole = std::move(*taken);
      ++pieces;
    }
    EXPECT_EQ(pieces, std::max<std::size_t>(1, (size + kNotePieceBytes - 1) / kNotePieceBytes));
    ASSERT_TRUE(whole);
    EXPECT_EQ(whole->kind, 40 + stream);
    EXPECT_EQ(whole->bytes, bytes);
    ++stream;
  }
}

TEST(NoteStream, FindsWhatIsMissingDoubledSwappedOrChanged) {
  const std::vector<std::byte> bytes = some_bytes(2 * kNotePieceBytes + 10);
  NoteStreamCutter cutter(0, 1, bytes);
  std::vector<std::vector<std::byte>> pieces;
  while (!cutter.done()) pieces.push_back(cutter.next());
  const auto refusal = [&](const std::vector<std::vector<std::byte>>& order,
                           std::uint64_t limit = 1 << 30) -> std::string {
    NoteStreamAssembler assembler(limit);
    for (const std::vector<std::byte>& piece : order) {
      const auto taken = assembler.take(piece);
      if (!taken) return taken.error();
    }
    return "";
  };
  EXPECT_EQ(refusal(pieces), "");
  EXPECT_THAT(refusal({pieces[1]}), HasSubstr("number 1 of stream 0 in place of 0 of 0"));
  EXPECT_THAT(refusal({pieces[0], pieces[0]}), HasSubstr("number 0"));
  EXPECT_THAT(refusal({pieces[0], pieces[2]}), HasSubstr("number 2"));
  EXPECT_THAT(refusal({pieces[0], pieces[1], pieces[2], pieces[0]}), HasSubstr("of stream 0"));
  EXPECT_THAT(refusal({pieces[0]}, bytes.size() - 1), HasSubstr("are the most"));
  NoteStreamCutter other(0, 2, bytes);
  (void)other.next();
  EXPECT_THAT(refusal({pieces[0], other.next()}), HasSubstr("of another stream"));
  std::vector<std::vector<std::byte>> changed = pieces;
  changed[1].back() ^= std::byte{1};
  EXPECT_THAT(refusal(changed), HasSubstr("other bytes than were sent"));
  for (const std::size_t size : {std::size_t{0}, kNotePieceHeadBytes - 1, pieces[0].size() - 1}) {
    std::vector<std::byte> cut(pieces[0].begin(), pieces[0].begin() + static_cast<long>(size));
    EXPECT_NE(refusal({cut}), "") << size;
  }
  std::vector<std::byte> longer = pieces[2];
  longer.push_back({});
  EXPECT_NE(refusal({pieces[0], pieces[1], longer}), "");
  EXPECT_THAT(refusal({some_bytes(100)}), HasSubstr("does not begin like one"));
}

}  // namespace
}  // namespace isthmus::this_file
