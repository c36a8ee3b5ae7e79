// SPDX-License-Identifier: Apache-2.0
// What a byte of an exchange costs at the least on this machine: each pass over memory that an
// exchange makes by itself, and the same bytes through bare TCP on loopback between two processes.
// A JSON line a measurement; seconds are those of a processor, of GB = 1e9 bytes:
//   pass  copy, checksum, both in one, sum of two vectors, digest; of blocks that stay in the cache
//         (`where` is cache) and of a vector of --bytes (memory); memory written for the first time
//   tcp   both processes send --bytes and receive as many at once, over --streams connections a
//         direction, --block bytes a system call, and do nothing with them: what is left of an
//         exchange of two members when all but the system's TCP is free
//   bench_passes [--bytes 64000000] [--trials 9] [--streams 1] [--block 524288] [--congestion NAME]
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/base/hash.h"
#include "isthmus/codec.h"

namespace isthmus {
namespace {

struct Options {
  std::size_t bytes = 64'000'000;
  int trials = 9;
  int streams = 1;
  std::size_t block = 512 * 1024;
  std::string congestion;  // empty: the system's
  int buffer = 0;          // of the kernel, each end; 0: as large as it likes
};

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

struct Spent {
  double user = 0;
  double system = 0;
  long switches = 0;
  long faults = 0;
};

Spent spent() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return {seconds_of(use.ru_utime), seconds_of(use.ru_stime), use.ru_nvcsw + use.ru_nivcsw,
          use.ru_minflt};
}

double wall() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

[[noreturn]] void fail(const char* what) {
  fmt::print(stderr, "error: {}: {}; loopback and {} of them must be allowed\n", what,
             std::strerror(errno), what);
  std::exit(5);
}

// One pass, `bytes` a call, `calls` times a trial.
void pass(const Options& options, const char* name, const char* where, std::size_t bytes,
          const std::function<void()>& once) {
  const std::size_t calls = std::max<std::size_t>(1, options.bytes / bytes);
  std::vector<double> took;
  once();
  for (int trial = 0; trial < options.trials; ++trial) {
    const double begin = wall();
    for (std::size_t i = 0; i < calls; ++i) once();
    took.push_back((wall() - begin) / static_cast<double>(calls * bytes) * 1e9);
  }
  fmt::print(R"({{"bench":"pass","pass":"{}","where":"{}","bytes":{},"trials":{},)"
             R"("s_per_gb":{:.4f},"least_s_per_gb":{:.4f}}})"
             "\n",
             name, where, bytes, options.trials, median(took), *std::ranges::min_element(took));
  std::fflush(stdout);
}

void passes(const Options& options) {
  const auto codec = make_codec("fp32");
  for (const auto& [where, bytes] : {std::pair{"cache", std::size_t{128} << 10},
                                     std::pair{"memory", options.bytes / 16384 * 16384}}) {
    std::vector<std::byte> from(bytes, std::byte{1});
    std::vector<std::byte> to(bytes);
    std::vector<float> sum(bytes / sizeof(float));
    volatile std::uint32_t sink = 0;
    pass(options, "copy", where, bytes, [&] { std::memcpy(to.data(), from.data(), bytes); });
    pass(options, "checksum", where, bytes, [&] { sink = sink + crc32c(from); });
    pass(options, "copy and checksum", where, bytes, [&] { sink = sink + crc32c_copy(from, to); });
    pass(options, "digest", where, bytes, [&] { sink = sink + xxh3_128(from).bytes[0]; });
    pass(options, "sum", where, bytes, [&] {
      if (!decode_add(*codec, from, sum)) std::exit(5);
    });
  }
  pass(options, "first touch", "memory", options.bytes, [&] {
    void* const at =
        mmap(nullptr, options.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) fail("memory");
    std::memset(at, 1, options.bytes);
    munmap(at, options.bytes);
  });
}

// Connections between two processes: the first half carries what this one sends.
std::vector<int> connect_all(const Options& options, bool first, int listener,
                             const sockaddr_in& at) {
  std::vector<int> all;
  for (int i = 0; i < 2 * options.streams; ++i) {
    int file = -1;
    if (first) {
      file = accept(listener, nullptr, nullptr);
    } else {
      file = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(file, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
        fail("connections");
    }
    if (file < 0) fail("connections");
    const int one = 1;
    setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (options.buffer > 0) {
      setsockopt(file, SOL_SOCKET, SO_SNDBUF, &options.buffer, sizeof options.buffer);
      setsockopt(file, SOL_SOCKET, SO_RCVBUF, &options.buffer, sizeof options.buffer);
    }
    if (!options.congestion.empty() &&
        setsockopt(file, IPPROTO_TCP, TCP_CONGESTION, options.congestion.c_str(),
                   static_cast<socklen_t>(options.congestion.size())) != 0) {
      fail("algorithms of congestion");
    }
    all.push_back(file);
  }
  if (!first) std::rotate(all.begin(), all.begin() + options.streams, all.end());
  return all;
}

void send_all(int file, std::span<const std::byte> bytes, std::size_t block) {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = send(file, bytes.data() + at, std::min(block, bytes.size() - at), 0);
    if (n <= 0) fail("bytes to send");
    at += static_cast<std::size_t>(n);
  }
}

void receive_all(int file, std::span<std::byte> bytes, std::size_t block) {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = recv(file, bytes.data() + at, std::min(block, bytes.size() - at), 0);
    if (n <= 0) fail("bytes to receive");
    at += static_cast<std::size_t>(n);
  }
}

void tcp(const Options& options) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  if (bind(listener, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
      listen(listener, 64) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    fail("a port");
  }
  const pid_t child = fork();
  const bool first = child != 0;
  const std::vector<int> files = connect_all(options, first, listener, at);
  const auto streams = static_cast<std::size_t>(options.streams);
  const std::size_t share = options.bytes / streams;
  const std::vector<std::byte> out(options.bytes, std::byte{1});
  std::vector<std::byte> in(options.bytes);
  std::vector<double> took, user, system;
  Spent before = spent();
  for (int trial = -1; trial < options.trials; ++trial) {
    before = spent();
    const double begin = wall();
    {
      std::vector<std::jthread> threads;
      for (std::size_t k = 0; k < streams; ++k) {
        threads.emplace_back([&, k] {
          send_all(files[k], std::span(out).subspan(k * share, share), options.block);
        });
        threads.emplace_back([&, k] {
          receive_all(files[streams + k], std::span(in).subspan(k * share, share), options.block);
        });
      }
    }
    const double end = wall();
    const Spent after = spent();
    if (trial < 0) continue;
    took.push_back(end - begin);
    const double gb = static_cast<double>(share * streams) / 1e9;
    user.push_back((after.user - before.user) / gb);
    system.push_back((after.system - before.system) / gb);
  }
  const Spent after = spent();
  if (!first) _exit(0);
  waitpid(child, nullptr, 0);
  fmt::print(
      R"({{"bench":"tcp","bytes":{},"streams":{},"block":{},"buffer":{},"congestion":"{}","trials":{},)"
      R"("median_s":{:.4f},"best_s":{:.4f},"user_s_per_gb":{:.3f},"system_s_per_gb":{:.3f},)"
      R"("switches":{},"faults":{}}})"
      "\n",
      options.bytes, options.streams, options.block, options.buffer,
      options.congestion.empty() ? "system" : options.congestion, options.trials, median(took),
      *std::ranges::min_element(took), median(user), median(system),
      after.switches - before.switches, after.faults - before.faults);
}

}  // namespace
}  // namespace isthmus

int main(int argc, char** argv) {
  isthmus::Options options;
  CLI::App app("passes over memory and bare TCP, for what an exchange costs at the least");
  app.add_option("--bytes", options.bytes)
      ->check(CLI::Range(std::size_t{1} << 20, std::size_t{1} << 34));
  app.add_option("--trials", options.trials)->check(CLI::Range(1, 1000));
  app.add_option("--streams", options.streams)->check(CLI::Range(1, 32));
  app.add_option("--block", options.block)
      ->check(CLI::Range(std::size_t{1024}, std::size_t{1} << 30));
  app.add_option("--congestion", options.congestion, "of TCP, where the system allows its choice");
  app.add_option("--buffer", options.buffer, "bytes in the kernel, each end")
      ->check(CLI::Range(4096, 1 << 30));
  bool only_tcp = false;
  app.add_flag("--only-tcp", only_tcp);
  CLI11_PARSE(app, argc, argv);
  if (!only_tcp) isthmus::passes(options);
  isthmus::tcp(options);
}
