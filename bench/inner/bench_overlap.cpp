// SPDX-License-Identifier: Apache-2.0
// How much of the reduction of gradients the last backward pass hides, over a link that is
// simulated: a sum over data-parallel ranks ends when its bytes have had their time on the link,
// counted from its start, the real transfer included (and later where that alone takes longer).
//
//   mpirun -n 2 bench_overlap --config llama-mid --rounds 5      ranks are processes, over MPI
//   bench_overlap --ranks 2 ...                                  ranks are threads
//
// Each rank has one thread and the config's batch. A round takes every bucket size in turn; the
// link's rate is such that all gradients take `--link-share` of the backward pass just measured.
// hidden = 1 - (the wait for the sums after the last rank's pass) / (the link's time). The bound:
// what of the link's time is due to buckets that are final before the pass ends. A bucket of 0 MiB
// is one of all gradients. A JSON line a step from the first rank, one a bucket size with the
// median and a digest of the first step's sums, the same for all cuts, threads and processes.
//
//   bench_overlap --ranks 2 --exchange-mb 16 ...                 an exchange beside training
//
// Steps alone and steps beside an exchange between two members, over loopback in this process, in
// turns. A step should become longer by no more than the exchange's processor time, shared by the
// cores: `share` is what it became longer by, as a share of that. A JSON line a pair, and one with
// the medians.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "core/base/system_runtime.h"
#include "inner/mesh/gradient_shares.h"
#include "inner/mesh/mesh_rank.h"
#include "inner/model/init.h"
#include "inner/model/presets.h"
#include "transport/collectives/mpi_communicator.h"
#include "transport/collectives/thread_communicator.h"
#include "transport/exchange/peer_exchange.h"
#include "transport/links/zmq/zmq_transport.h"

namespace isthmus {
namespace {

using Seconds = std::chrono::duration<double>;
using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point begin) {
  return Seconds(SteadyClock::now() - begin).count();
}

/// What one rank's link does in a step.
struct Link {
  SystemRuntime runtime = {};
  double bytes_per_s = 0;  // 0: no link is simulated
  double latency_s = 0;
  SteadyClock::time_point first_start = {};  // of a sum
  double total_s = 0;                        // simulated
  std::vector<double> started_s;             // after the first, for each bucket

  [[nodiscard]] double seconds(std::span<const std::int64_t> counts) const {
    if (bytes_per_s == 0) return 0;
    // The rank that is left with most receives as much from each of the others.
    const std::int64_t most = *std::ranges::max_element(counts);
    const auto others = static_cast<double>(counts.size() - 1);
    return latency_s + others * static_cast<double>(most) * sizeof(float) / bytes_per_s;
  }
};

/// The group of data-parallel ranks over a simulated link; all else as it is.
class LinkedCommunicator final : public Communicator {
 public:
  LinkedCommunicator(std::unique_ptr<Communicator> plain, Link& link, bool data)
      : owned_(std::move(plain)), plain_(*owned_), link_(link), data_(data) {}
  LinkedCommunicator(Communicator& plain, Link& link) : plain_(plain), link_(link), data_(true) {}

  [[nodiscard]] int rank() const override { return plain_.rank(); }
  [[nodiscard]] int size() const override { return plain_.size(); }
  [[nodiscard]] std::string_view backend() const override { return plain_.backend(); }
  void all_reduce(Values values, Reduce reduce) override { plain_.all_reduce(values, reduce); }
  void reduce_scatter(ConstValues input, std::span<const std::int64_t> counts, Values output,
                      Reduce reduce) override {
    const TimePoint begin = link_.runtime.clock().now();
    plain_.reduce_scatter(input, counts, output, reduce);
    if (!data_ || link_.bytes_per_s == 0) return;
    // A link's time contains the transfer, so the real one here lies within it, not before it.
    const double seconds = link_.seconds(counts);
    link_.runtime.sleep_until(begin + std::chrono::duration_cast<Duration>(Seconds(seconds)));
    link_.total_s += seconds;
  }
  void all_gather(ConstValues input, std::span<const std::int64_t> counts, Values output) override {
    plain_.all_gather(input, counts, output);
  }
  void broadcast(Values values, int root) override { plain_.broadcast(values, root); }
  void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts, Values output,
                  std::span<const std::int64_t> receive_counts, std::int64_t of_all) override {
    plain_.all_to_all(input, send_counts, output, receive_counts, of_all);
  }
  void send(ConstValues values, int to, int tag) override { plain_.send(values, to, tag); }
  void receive(Values values, int from, int tag) override { plain_.receive(values, from, tag); }
  void barrier() override { plain_.barrier(); }
  [[nodiscard]] std::unique_ptr<Work> start(std::function<void(Communicator&)> operation) override {
    if (!data_) return plain_.start(std::move(operation));
    if (link_.started_s.empty()) link_.first_start = SteadyClock::now();
    link_.started_s.push_back(seconds_since(link_.first_start));
    return plain_.start([&link = link_, operation = std::move(operation)](Communicator& plain) {
      LinkedCommunicator linked(plain, link);
      operation(linked);
    });
  }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) override {
    constexpr int kData = 2;  // tensor, pipeline, data
    const bool data = splits_++ == kData;
    return std::make_unique<LinkedCommunicator>(plain_.split(color, key), link_, data);
  }
  void abort(const std::string& cause) noexcept override { plain_.abort(cause); }
  [[nodiscard]] std::string end_cause() override { return plain_.end_cause(); }

 private:
  std::unique_ptr<Communicator> owned_;  // may be null
  Communicator& plain_;
  Link& link_;
  bool data_;
  int splits_ = 0;
};

struct Arguments {
  std::string config = "llama-mid";
  int ranks = 0, zero = 0, rounds = 5;
  std::vector<double> mib = {0, 1, 4, 16};
  double link_share = 0.5, latency_ms = 0.1;
  std::int64_t sequences = 0;  // of a rank; 0: the config's
  double exchange_mb = 0;      // of fp32, beside each second step; 0: none
  std::string codec = "fp32";
};

/// A rank's model cut into buckets of one size.
struct Contender {
  double mib = 0;
  Link link;
  std::unique_ptr<LinkedCommunicator> world;
  std::unique_ptr<MeshRank> rank;
  std::vector<CanonicalRange> shares;  // that the rank is left with
  std::string digest;
  std::vector<double> hidden;
  double bound = 0;
};

struct Times {
  double step = 0, backward = 0, wait = 0, link = 0;
};

Times step(Contender& contender, Communicator& all, const TokenBatch& batch, double rate) {
  Link& link = contender.link;
  link.bytes_per_s = rate;
  link.total_s = 0;
  link.started_s.clear();
  all.barrier();
  const auto begin = SteadyClock::now();
  contender.rank->train(batch, 1.0 / static_cast<double>(batch.targets.size()));
  const auto end_of_pass = SteadyClock::now();
  contender.rank->sum_gradients();
  const auto end = SteadyClock::now();
  // The ranks are on one machine and have one clock; one that is late hides nothing by that.
  double last_pass = Seconds(end_of_pass.time_since_epoch()).count();
  double last = Seconds(end.time_since_epoch()).count();
  all.all_reduce({&last_pass, 1, Dtype::kF64}, Reduce::kMax);
  all.all_reduce({&last, 1, Dtype::kF64}, Reduce::kMax);
  return {.step = Seconds(end - begin).count(),
          .backward = Seconds(end_of_pass - link.first_start).count(),
          .wait = last - last_pass,
          .link = link.total_s};
}

/// The sums of all ranks in one number: the same for all cuts, and for threads and processes.
std::string digest_of(Contender& contender, Communicator& all) {
  MeshRank& rank = *contender.rank;
  std::vector<float> sums(static_cast<std::size_t>(rank.layout(0).local().elements()));
  for (const CanonicalRange& share : contender.shares) {
    std::copy_n(rank.state(0).gradients().at(share.begin), share.size(),
                sums.begin() + static_cast<std::ptrdiff_t>(share.begin));
  }
  all.all_reduce({sums.data(), static_cast<std::int64_t>(sums.size()), Dtype::kF32}, Reduce::kSum);
  return xxh3_128(std::as_bytes(std::span(sums))).hex();
}

/// Share of the link's time of what is final before the pass ends.
double bound_of(const MeshRank& rank, const MeshOptions& options, Link link) {
  link.bytes_per_s = 1;
  link.latency_s = 0;
  const ModelLayout& local = rank.layout(0).local();
  const GradientBuckets buckets = gradient_buckets(rank.layout(0), bucket_options(options));
  double all = 0, early = 0;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const double seconds = link.seconds(buckets.counts(b));
    all += seconds;
    if (buckets[b].begin >= local.layer_elements(0).begin) early += seconds;
  }
  return early / all;
}

void run_rank(const Arguments& arguments, std::unique_ptr<Communicator> world) {
  const Workload workload = find_workload(arguments.config);
  const ModelLayout layout(model_shape(workload.model, workload.context));
  const bool first = world->rank() == 0;
  const int ranks = world->size();
  kernels::ThreadTeam team(1);
  std::vector<float> weights(static_cast<std::size_t>(layout.elements()));
  initialize(team, layout, 1, weights);
  const std::int64_t own = arguments.sequences > 0 ? arguments.sequences : workload.sequences;
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < own * ranks * workload.context; ++i) {
    tokens.push_back(static_cast<std::int32_t>(i * 7919 % layout.shape().vocab));
  }
  const TokenBatch batch{tokens, tokens, own * ranks, workload.context};
  std::vector<std::unique_ptr<Contender>> contenders;
  for (const double mib : arguments.mib) {
    auto contender = std::make_unique<Contender>();
    contender->mib = mib;
    contender->link.latency_s = arguments.latency_ms / 1e3;
    const auto values = static_cast<std::int64_t>(mib * (1 << 20) / sizeof(float));
    const MeshOptions options{.mesh = {.dp = ranks},
                              .sequences = own * ranks,
                              .context = workload.context,
                              .zero = arguments.zero,
                              .bucket_values = mib > 0 ? values : layout.elements()};
    contender->world = std::make_unique<LinkedCommunicator>(world->split(0, world->rank()),
                                                            contender->link, false);
    contender->rank = std::make_unique<MeshRank>(layout, options, *contender->world, false);
    contender->rank->use_weights(weights.data());
    contender->shares =
        gradient_shares(contender->rank->layout(0), options, contender->rank->position().dp);
    contender->bound = bound_of(*contender->rank, options, contender->link);
    contenders.push_back(std::move(contender));
  }
  // The smallest buckets tell how long a backward pass is, without a link.
  Contender* measured = contenders.front().get();
  for (const auto& contender : contenders) {
    if (contender->mib > 0 && (measured->mib == 0 || contender->mib < measured->mib)) {
      measured = contender.get();
    }
  }
  for (int round = -1; round < arguments.rounds; ++round) {  // the first one warms up
    for (const auto& contender : contenders) {
      double pass = step(*measured, *world, batch, 0).backward;
      world->all_reduce({&pass, 1, Dtype::kF64}, Reduce::kMax);
      Link all;
      all.bytes_per_s = 1;
      const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks),
                                             layout.elements() / ranks);
      const double rate = all.seconds(counts) / (arguments.link_share * pass);
      const Times t = step(*contender, *world, batch, rate);
      if (round < 0) contender->digest = digest_of(*contender, *world);
      if (round < 0 || !first) continue;
      contender->hidden.push_back(1 - std::min(1.0, t.wait / t.link));
      fmt::print(
          "{{\"bench\": \"overlap_step\", \"backend\": \"{}\", \"ranks\": {}, \"config\": \"{}\", "
          "\"zero\": {}, \"bucket_mib\": {}, \"buckets\": {}, \"round\": {}, \"step_ms\": {:.1f}, "
          "\"backward_ms\": {:.1f}, \"link_ms\": {:.1f}, \"wait_ms\": {:.1f}, \"hidden\": {:.3f}, "
          "\"bound\": {:.3f}, \"first_to_last_start_ms\": {:.1f}}}\n",
          world->backend(), ranks, arguments.config, arguments.zero, contender->mib,
          contender->link.started_s.size(), round, t.step * 1e3, t.backward * 1e3, t.link * 1e3,
          t.wait * 1e3, contender->hidden.back(), contender->bound,
          contender->link.started_s.back() * 1e3);
      std::fflush(stdout);
    }
  }
  for (const auto& contender : contenders) {
    std::vector<double>& hidden = contender->hidden;
    if (hidden.empty()) continue;
    std::ranges::sort(hidden);
    fmt::print(
        "{{\"bench\": \"overlap\", \"backend\": \"{}\", \"ranks\": {}, \"config\": \"{}\", "
        "\"zero\": "
        "{}, \"bucket_mib\": {}, \"link_share\": {}, \"rounds\": {}, \"hidden\": {:.3f}, \"low\": "
        "{:.3f}, \"high\": {:.3f}, \"bound\": {:.3f}, \"aimed_at\": 0.8, \"digest\": \"{}\"}}\n",
        world->backend(), ranks, arguments.config, arguments.zero, contender->mib,
        arguments.link_share, hidden.size(), hidden[hidden.size() / 2], hidden.front(),
        hidden.back(), contender->bound, contender->digest);
  }
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Two members of an exchange, with links over loopback.
class ExchangeBeside {
 public:
  ExchangeBeside(std::size_t bytes, const std::string& codec)
      : codec_(make_codec(codec)), values_(bytes / sizeof(float), 0.25f) {
    std::vector<std::string> endpoints;
    for (int member = 0; member < kMembers; ++member) {
      MemberOptions options;
      options.self = WorkerId(member);
      options.members = kMembers;
      links_.push_back(make_zmq_transport(runtime_, options));
      endpoints.push_back(links_.back()->endpoint());
    }
    for (const auto& each : links_) each->join(endpoints);
    for (const auto& each : links_) {
      if (const auto all = each->await_members(runtime_.clock().now() + kPatience); !all) {
        throw PeerError(all.error().what);
      }
      exchanges_.push_back(std::make_unique<PeerExchange>(*each, runtime_));
    }
  }
  /// In the background, until `wait`.
  void start() {
    ++step_;
    for (const auto& each : exchanges_) {
      threads_.emplace_back([this, &exchange = *each] { round(exchange); });
    }
  }
  void wait() { threads_.clear(); }

 private:
  static constexpr int kMembers = 2;
  static constexpr std::chrono::minutes kPatience{1};

  void round(Exchange& exchange) {
    const SyncId id{FragmentId(0), StepIndex(step_)};
    const auto mean = exchange.wait(
        exchange.begin(
            {.id = id, .encoded = encode(*codec_, values_, exchange.key(id)), .codec = codec_}),
        kPatience);
    if (!mean) {
      fmt::print(stderr, "error: {}\n", mean.error().what);
      std::exit(5);
    }
  }

  SystemRuntime runtime_;
  std::shared_ptr<const Codec> codec_;  // shared with the rounds
  std::vector<float> values_;
  std::vector<std::unique_ptr<NetworkTransport>> links_;
  std::vector<std::unique_ptr<PeerExchange>> exchanges_;
  std::int64_t step_ = 0;
  std::vector<std::jthread> threads_;
};

/// The longest step of the ranks.
double longest_step(Contender& contender, Communicator& all, const TokenBatch& batch) {
  double seconds = step(contender, all, batch, 0).step;
  all.all_reduce({&seconds, 1, Dtype::kF64}, Reduce::kMax);
  return seconds;
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// `beside`: at the first rank alone.
void run_beside(const Arguments& arguments, std::unique_ptr<Communicator> world,
                ExchangeBeside* beside, double exchange_s) {
  const Workload workload = find_workload(arguments.config);
  const ModelLayout layout(model_shape(workload.model, workload.context));
  const int ranks = world->size();
  kernels::ThreadTeam team(1);
  std::vector<float> weights(static_cast<std::size_t>(layout.elements()));
  initialize(team, layout, 1, weights);
  const std::int64_t own = arguments.sequences > 0 ? arguments.sequences : workload.sequences;
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < own * ranks * workload.context; ++i) {
    tokens.push_back(static_cast<std::int32_t>(i * 7919 % layout.shape().vocab));
  }
  const TokenBatch batch{tokens, tokens, own * ranks, workload.context};
  Contender contender;
  contender.world =
      std::make_unique<LinkedCommunicator>(world->split(0, world->rank()), contender.link, false);
  contender.rank = std::make_unique<MeshRank>(layout,
                                              MeshOptions{.mesh = {.dp = ranks},
                                                          .sequences = own * ranks,
                                                          .context = workload.context,
                                                          .zero = arguments.zero},
                                              *contender.world, false);
  contender.rank->use_weights(weights.data());
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  std::vector<double> alone_s, beside_s, longer_s;
  for (int pair = -1; pair < arguments.rounds; ++pair) {  // the first one warms up
    const double alone = longest_step(contender, *world, batch);
    if (beside != nullptr) beside->start();
    const double with = longest_step(contender, *world, batch);
    if (beside == nullptr || pair < 0) {
      if (beside != nullptr) beside->wait();
      continue;
    }
    beside->wait();
    alone_s.push_back(alone);
    beside_s.push_back(with);
    longer_s.push_back(with - alone);
    fmt::print(
        "{{\"bench\": \"beside_step\", \"ranks\": {}, \"config\": \"{}\", \"pair\": {}, "
        "\"alone_ms\": {:.1f}, \"beside_ms\": {:.1f}}}\n",
        ranks, arguments.config, pair, alone * 1e3, with * 1e3);
    std::fflush(stdout);
  }
  if (beside == nullptr) return;
  const double longer = median_of(longer_s);
  fmt::print(
      "{{\"bench\": \"beside\", \"ranks\": {}, \"cores\": {}, \"config\": \"{}\", \"codec\": "
      "\"{}\", \"mb\": {}, \"pairs\": {}, \"alone_ms\": {:.1f}, \"beside_ms\": {:.1f}, "
      "\"longer_ms\": {:.1f}, \"processor_ms\": {:.1f}, \"share\": {:.2f}, \"at_most\": 1}}\n",
      ranks, cores, arguments.config, arguments.codec, arguments.exchange_mb, longer_s.size(),
      median_of(alone_s) * 1e3, median_of(beside_s) * 1e3, longer * 1e3, exchange_s / cores * 1e3,
      longer / (exchange_s / cores));
}

/// Processor seconds of one round, of both members, with nothing beside it.
double seconds_alone(ExchangeBeside& beside) {
  constexpr int kWarmUps = 2, kRounds = 8;
  double before_s = 0;
  for (int round = -kWarmUps; round < kRounds; ++round) {
    if (round == 0) before_s = processor_seconds();
    beside.start();
    beside.wait();
  }
  return (processor_seconds() - before_s) / kRounds;
}

int run(const Arguments& arguments) {
  constexpr std::chrono::minutes kPatience{10};
  if (arguments.exchange_mb > 0) {
    if (arguments.ranks == 0) {
      fmt::print(stderr, "error: --exchange-mb: the processor time is of one process: --ranks R\n");
      return 2;
    }
    ExchangeBeside beside(static_cast<std::size_t>(arguments.exchange_mb * 1e6), arguments.codec);
    const double exchange_s = seconds_alone(beside);
    auto worlds = make_thread_communicators(arguments.ranks, kPatience);
    std::vector<std::jthread> threads;
    for (auto& world : worlds) {
      threads.emplace_back([&, own = std::move(world)]() mutable {
        ExchangeBeside* const at_first = own->rank() == 0 ? &beside : nullptr;
        run_beside(arguments, std::move(own), at_first, exchange_s);
      });
    }
    threads.clear();
    return 0;
  }
  if (arguments.ranks == 0) {
    run_rank(arguments, make_mpi_communicator(kPatience));
    finish_mpi();
    return 0;
  }
  auto worlds = make_thread_communicators(arguments.ranks, kPatience);
  std::vector<std::jthread> threads;
  for (auto& world : worlds) {
    threads.emplace_back(
        [&arguments, own = std::move(world)]() mutable { run_rank(arguments, std::move(own)); });
  }
  return 0;
}

}  // namespace
}  // namespace isthmus

int main(int argc, char** argv) {
  isthmus::Arguments arguments;
  CLI::App app("share of the reduction of gradients that the last backward pass hides");
  app.add_option("--config", arguments.config);
  app.add_option("--ranks", arguments.ranks, "threads; 0: the processes of the MPI job");
  app.add_option("--zero", arguments.zero, "0 or 1");
  app.add_option("--rounds", arguments.rounds);
  app.add_option("--sequences", arguments.sequences, "of a rank");
  app.add_option("--mib", arguments.mib, "sizes of buckets; 0: one of all gradients");
  app.add_option("--link-share", arguments.link_share, "of the backward pass");
  app.add_option("--latency-ms", arguments.latency_ms, "of a bucket");
  app.add_option("--exchange-mb", arguments.exchange_mb, "of fp32: an exchange beside training")
      ->check(CLI::Range(0.0, 4000.0));
  app.add_option("--codec", arguments.codec, "of that exchange");
  CLI11_PARSE(app, argc, argv);
  return isthmus::run(arguments);
}
