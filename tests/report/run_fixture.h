// SPDX-License-Identifier: Apache-2.0
// Run directories made up for tests, in a temporary folder that goes with the fixture.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace isthmus {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "isthmus-report-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

inline std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct RunFixture {
  std::string method = "diloco";
  int steps = 40;
  int H = 10;
  bool ended = true;
  bool surrogate = true;
  std::string seed = "1";
  std::string optimizer = "adamw";
};

/// A complete run of two workers on the simulated clock: 1 s a step, 10 s a round of 1 MB.
inline std::filesystem::path write_run(const std::filesystem::path& folder, const RunFixture& f) {
  std::string metrics = R"({"v":1,"k":"meta","method":")" + f.method + "\",\"workers\":2}\n";
  std::string events;
  double now = 0;
  const int rounds = f.steps / f.H;
  for (int step = 1; step <= f.steps; ++step) {
    for (int w = 0; w < 2; ++w) {
      events += fmt::format(
          R"({{"k":"compute","w":{},"peer":-1,"t0":{},"t1":{},"bytes":0,"frag":-1,"step":{}}})"
          "\n",
          w, now, now + 1, step);
    }
    now += 1;
    if (step % f.H == 0) {
      for (int w = 0; w < 2; ++w) {
        for (const char* kind : {"send", "receive", "wait"}) {
          events += fmt::format(
              R"({{"k":"{}","w":{},"peer":{},"t0":{},"t1":{},"bytes":1000000,"frag":0,"step":{}}})"
              "\n",
              kind, w, 1 - w, now, now + 10, step);
        }
      }
      now += 10;
      metrics += fmt::format(
          R"({{"k":"round","step":{0},"frag":0,"step_send":{0},"step_apply":{0},"bytes_payload":1000000,"bytes_wire":1000200,"members":2,"codec":"fp32","delta_norm":0.5,"wait_s":10.0,"err":{1},"cos":{2}}})"
          "\n",
          step, f.method == "ddp" ? "null" : "0.0125", f.method == "ddp" ? "null" : "0.8125");
    }
    metrics += fmt::format(
        R"({{"k":"train","step":{},"loss":{},"lr":0.001,"grad_norm":1.5,"tok_s":1000.0,"tokens":{},"t":{},"ts":{}}})"
        "\n",
        step, 5.0 * std::exp(-step / 20.0) + 1, step * 64, 1.7e9 + step * 0.1, now);
    if (step % 20 == 0) {
      metrics += fmt::format(R"({{"k":"eval","step":{},"loss":{},"ppl":3.0,"n_tokens":512}})"
                             "\n",
                             step, 5.0 * std::exp(-step / 20.0) + 1.1);
    }
  }
  if (f.ended) {
    metrics += "{\"k\":\"end\",\"status\":\"ok\"}\n";
    const double bytes = rounds * 1e6;
    write_file(
        folder / "summary.json",
        fmt::format(
            R"({{"status":"ok","steps":{},"tokens":{},"final_train_loss":1.7,"final_eval_loss":1.75,"bytes_payload":[{}, {}],"bytes_wire":[{}, {}],"simulated_s":{},"wall_s":4.0,"compute_s":[{},{}],"compute_utilisation":{},"traffic":[[0,{}],[{},0]],"prediction":{{"terms":[{{"name":"compute","seconds":{},"formula":"steps * step time"}},{{"name":"payload on the link","seconds":{},"formula":"bytes * 8 / rate"}}],"predicted_s":{},"measured_s":{},"error":0.0}}}})",
            f.steps, f.steps * 64, bytes, bytes, bytes + 800, bytes + 800, now, f.steps, f.steps,
            f.steps / now, bytes, bytes, f.steps, rounds * 10, now, now));
  }
  write_file(folder / "metrics.jsonl", metrics);
  write_file(folder / "events.jsonl", events);
  write_file(
      folder / "links.json",
      R"({"links":[{"a":"east","b":"west","bits_per_s_up":1e8,"bits_per_s_down":1e8,"rtt_s":0.08,"loss":0.0,"streams":1,"congestion":"bbr"}]})");
  write_file(
      folder / "config.resolved.toml",
      fmt::format("[run]\nname = \"wan\"  # wan.toml:2:8\nseed = {}  # default\n[inner]\noptimizer "
                  "= \"{}\"  "
                  "# default\n[outer]\nmethod = "
                  "\"{}\"  # --set outer.method\nH = {}  # wan.toml:9:5\n[[site]]\nname = \"east\" "
                  " # wan.toml:12:8\n[[site]]\nname = \"west\"  # wan.toml:14:8\n",
                  f.seed, f.optimizer, f.method, f.H));
  write_file(
      folder / "manifest.json",
      fmt::format(
          R"({{"schema":1,"run_id":"r1","name":"wan","argv":["isthmus","simulate","my wan.toml"],"config_hash":"abc","status":"ok","version":"0.1.0","data":[{{"path":"a.txt","bytes":100,"sha256":"ff"}}],"simulated":true,"clock":"virtual","surrogate":{},"method":"{}","workers":2,"model":{{"arch":"gpt2","parameters":250000}},"parent":null}})",
          f.surrogate ? R"({"params":1e9,"step_time_s":1.0})" : "null", f.method));
  return folder;
}

}  // namespace isthmus
