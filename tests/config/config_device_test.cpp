// SPDX-License-Identifier: Apache-2.0
// train.device: what it may say, what it is refused with, and that it is each site's own affair.
#include <gtest/gtest.h>

#include "config/schema/device_request.h"
#include "config_fixture.h"

namespace isthmus::this_file {
namespace {

TEST(DeviceRequest, IsOneOfFourForms) {
  using Kind = DeviceRequest::Kind;
  ASSERT_TRUE(parse_device("auto"));
  EXPECT_EQ(parse_device("auto")->kind, Kind::kAuto);
  EXPECT_EQ(parse_device("cpu")->kind, Kind::kCpu);
  EXPECT_EQ(parse_device("cuda")->kind, Kind::kCuda);
  EXPECT_FALSE(parse_device("cuda")->ordinal);
  EXPECT_EQ(parse_device("cuda:0")->ordinal, 0);
  EXPECT_EQ(parse_device("cuda:17")->ordinal, 17);
  for (const char* bad : {"", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda: 1",
                          "cuda:+1", "cuda:99999999999", "cuda1", "cpu:0"}) {
    EXPECT_FALSE(parse_device(bad)) << bad;
  }
}

TEST(Device, RefusalsNameKeyCauseAndRemedy) {
  struct Case {
    const char* text;
    const char* cause;
    const char* remedy;
  };
  for (const Case& wanted : {Case{"offload = \"there\"\n", "train.offload", "train.offload"},
                             Case{"recompute = \"selective\"\n", "selective", "\"full\""}}) {
    for (const auto& [device, errors] :
         {std::pair{"cuda", 1U}, {"cuda:3", 1U}, {"auto", 0U}, {"cpu", 0U}}) {
      const auto found = diagnostics_of(std::string(kMinimal) + wanted.text,
                                        {std::string("train.device=\"") + device + "\""});
      ASSERT_EQ(found.size(), errors) << device << " " << wanted.text;
      if (errors == 0) continue;
      EXPECT_EQ(found[0].code, "E-CONFLICT");
      EXPECT_NE(found[0].message.find("train.device"), std::string::npos) << found[0].message;
      EXPECT_NE(found[0].message.find(wanted.cause), std::string::npos) << found[0].message;
      EXPECT_NE(found[0].hint.find(wanted.remedy), std::string::npos) << found[0].hint;
    }
  }
  const auto unknown = diagnostics_of(kMinimal, {"train.device=\"gpu\""});
  ASSERT_EQ(unknown.size(), 1U);
  EXPECT_EQ(unknown[0].code, "E-VALUE");
}

struct MeshOfSite {
  int tp = 1, pp = 1, dp = 1;
};

void mesh_setting(Config& config, std::string_view setting) {
  if (setting == "zero") config.zero = 1;
  if (setting == "codec_data") config.rank_codecs.data = "int8";
  if (setting == "codec_tensor") config.rank_codecs.tensor = "int8";
  if (setting == "codec_pipeline") config.rank_codecs.pipeline = "int8";
  if (setting == "sequence_parallel") config.sequence_parallel = true;
  if (setting == "muon") {
    config.inner.optimizer = "muon";
    config.method = "diloco";
  }
  if (setting == "zb-h1") config.pipeline_schedule = "zb-h1";
  if (setting == "spsa") config.method = "spsa";
  if (setting == "1bit-adam") config.method = "1bit-adam";
  if (setting == "placement") config.outer_placement = "device";
}

TEST(Device, MethodsThatTakeAdamsMomentsAreNoObstacle) {
  Config config = load_minimal({"run.workers=2", "train.device=cuda"});
  for (const char* const method : {"1bit-adam", "01-adam"}) {
    config.method = method;
    EXPECT_FALSE(device_obstacle(config, config.sites)) << method;
  }
}

// It has no backward pass to make anything again in.
TEST(Device, ForwardOnlyRunsMaySayAnyRecomputation) {
  const std::string spsa =
      std::string(kMinimal) + "recompute = \"selective\"\n[outer]\nmethod = \"spsa\"\n";
  for (const char* const device : {"cuda", "auto", "cpu"}) {
    const auto found = diagnostics_of(spsa, {std::string("train.device=\"") + device + "\""});
    EXPECT_TRUE(found.empty()) << device << ": " << found.front().message;
  }
  Config config = load(spsa);
  EXPECT_FALSE(device_obstacle(config, {}));
  config.method = "ddp";
  EXPECT_TRUE(device_obstacle(config, {}));
}

TEST(Device, EveryInnerOptimizerIsOnDevices) {
  for (const char* const optimizer : {"adamw", "sgd", "muon"}) {
    const Config config =
        load_minimal({"train.device=cuda", std::string("inner.optimizer=") + optimizer});
    EXPECT_FALSE(device_obstacle(config, config.sites)) << optimizer;
  }
}

// Its products round otherwise on other devices, and ddp's workers each update from one mean.
TEST(Device, MuonUnderDdpIsThatOfOneWorker) {
  Config config = load_minimal({"run.workers=2", "inner.optimizer=muon", "outer.method=diloco"});
  EXPECT_FALSE(device_obstacle(config, config.sites));
  config.method = "ddp";
  EXPECT_TRUE(device_obstacle(config, config.sites));
  config.sites.resize(1);
  EXPECT_FALSE(device_obstacle(config, config.sites));
}

TEST(Device, AMeshIsNoObstacleButWhatItsRanksWouldShareOrSendIs) {
  const auto found = [](const MeshOfSite& mesh, const std::vector<std::string>& settings) {
    Config config = load_minimal({"run.workers=2"});
    config.sites[1].tp = mesh.tp;
    config.sites[1].pp = mesh.pp;
    config.sites[1].dp = mesh.dp;
    for (const std::string& setting : settings) mesh_setting(config, setting);
    EXPECT_FALSE(device_obstacle(config, std::span(config.sites).first(1)));
    const auto obstacle = device_obstacle(config, config.sites);
    return obstacle ? obstacle->setting : "none";
  };
  for (const MeshOfSite& mesh :
       {MeshOfSite{2, 1, 1}, MeshOfSite{1, 2, 1}, MeshOfSite{1, 1, 2}, MeshOfSite{2, 2, 2}}) {
    EXPECT_EQ(found(mesh, {}), "none");
  }
  struct Case {
    const char* setting;
    MeshOfSite refused, taken;  // taken: ranks that the setting means nothing to
  };
  for (const Case& c :
       {Case{"zero", {2, 1, 2}, {2, 2, 1}}, Case{"codec_data", {1, 1, 2}, {2, 2, 1}},
        Case{"codec_tensor", {2, 1, 1}, {1, 2, 2}}, Case{"codec_pipeline", {1, 2, 1}, {2, 1, 2}},
        Case{"sequence_parallel", {2, 1, 1}, {1, 2, 2}}, Case{"muon", {1, 2, 1}, {1, 1, 2}},
        Case{"zb-h1", {1, 2, 1}, {2, 1, 2}}, Case{"spsa", {1, 1, 2}, {1, 1, 1}},
        Case{"placement", {1, 2, 1}, {1, 1, 2}}, Case{"1bit-adam", {2, 1, 1}, {1, 1, 2}}}) {
    const std::string refused = found(c.refused, {c.setting});
    EXPECT_NE(refused.find(c.setting), std::string::npos) << c.setting << ": " << refused;
    EXPECT_NE(refused.find(" ranks at site "), std::string::npos) << refused;
    EXPECT_EQ(found(c.taken, {c.setting}), "none");
  }
}

TEST(Device, SumsBetweenDevicesAreNamedInThePlaceOfATable) {
  const std::string dp = "parallel.dp=2";
  for (const char* const name : {"nccl", "threads"}) {
    const Config config =
        load_minimal({dp, std::string("parallel.communicators=\"") + name + "\""});
    EXPECT_TRUE(names_device_sums(config));
    EXPECT_NE(resolved_toml(config).find(std::string("communicators = \"") + name + "\""),
              std::string::npos);
  }
  EXPECT_FALSE(names_device_sums(load_minimal({dp})));
  EXPECT_FALSE(
      names_device_sums(load_minimal({dp, "parallel.communicators=\"collectives.json\""})));
}

TEST(Device, IsEachSitesOwnAndChangesRounding) {
  const Config plain = load_minimal({});
  const Config cuda = load_minimal({"train.device=\"cuda\""});
  EXPECT_EQ(common_values(cuda), common_values(plain));
  EXPECT_EQ(config_digest(cuda), config_digest(plain));
  EXPECT_NE(outcome_digest(cuda), outcome_digest(plain));
}

TEST(OuterPlacement, IsEachSitesOwnAndChangesNothing) {
  const std::string diloco = "outer.method=\"diloco\"";
  const Config plain = load_minimal({diloco});
  for (const char* const place :
       {"outer.placement=\"host\"", "outer.placement=\"device\"", "outer.placement=\"ranks\""}) {
    const Config placed = load_minimal({diloco, place});
    EXPECT_EQ(common_values(placed), common_values(plain)) << place;
    EXPECT_EQ(config_digest(placed), config_digest(plain)) << place;
    EXPECT_EQ(outcome_digest(placed), outcome_digest(plain)) << place;
  }
}

TEST(OuterPlacement, RefusalsNameKeyCauseAndRemedy) {
  struct Case {
    std::vector<std::string> settings;
    const char* cause;
    const char* remedy;
  };
  const std::string device = "outer.placement=\"device\"", ranks = "outer.placement=\"ranks\"";
  for (const Case& wanted :
       {Case{{device, "outer.method=\"ddp\""}, "ddp", "streaming-diloco"},
        Case{{device, "outer.method=\"sparseloco\""}, "sparseloco", "host"},
        Case{{device, "outer.method=\"diloco\"", "train.device=\"cpu\""}, "train.device", "cuda"},
        Case{{ranks, "outer.method=\"sparseloco\""}, "sparseloco", "streaming-diloco"},
        Case{{ranks, "outer.method=\"diloco\"", "parallel.tp=257"}, "257 x 1 x 1", "host"},
        Case{{ranks, "outer.method=\"diloco\"", "train.offload=\"there\""},
             "train.offload",
             "host"}}) {
    const std::vector<std::string>& settings = wanted.settings;
    const auto found = diagnostics_of(kMinimal, settings);
    ASSERT_EQ(found.size(), 1U) << wanted.cause;
    EXPECT_EQ(found[0].code, "E-CONFLICT");
    EXPECT_NE(found[0].message.find("outer.placement"), std::string::npos) << found[0].message;
    EXPECT_NE(found[0].message.find(wanted.cause), std::string::npos) << found[0].message;
    EXPECT_NE(found[0].hint.find(wanted.remedy), std::string::npos) << found[0].hint;
  }
  EXPECT_FALSE(placement_obstacle(load_minimal({"outer.method=\"diloco\""})));
}

}  // namespace
}  // namespace isthmus::this_file
