// SPDX-License-Identifier: Apache-2.0
// What a run does about a device that fails its check.
#include "app/train/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "app/common/commands.h"
#include "app/train/matmul_choices.h"
#include "app/train/training_plan.h"
#include "core/base/storage.h"
#include "core/temporary_directory.h"
#include "cuda/emulated/faults.h"
#include "cuda/emulated/runtime.h"
#include "inner/cuda/device_product.h"
#include "inner/model/model_layout.h"
#include "isthmus/errors.h"
#include "kernels/cuda/device_errors.h"
#include "kernels/cuda/matmul_table.h"

namespace isthmus::app::this_file {
namespace {
using testing::AllOf;
using testing::HasSubstr;

constexpr std::string_view kFile = R"(schema = 1
[model]
arch = "llama"
layers = 2
d_model = 64
heads = 2
vocab = 256
[data]
source = "synth:zipf:vocab=256,tokens=9k"
[train]
steps = 10
global_batch = "512 tok"
context = 32
)";

DeviceChoice chosen(const char* device, const std::vector<std::string>& settings = {},
                    bool simulated = false) {
  const Config config = load_config_text(std::string(kFile) + "device = \"" + device + "\"\n",
                                         "run.toml", settings, schema_context());
  const ModelLayout layout(model_shape(config.model, config.train.context));
  const auto plan = make_training_plan(config, std::vector<int>{0, 1});
  return choose_device(config, plan, layout, simulated);
}

TEST(DeviceChoice, ADeviceThatFailsIsLeftAloneAndByNameAnError) {
  EXPECT_TRUE(chosen("auto").on_cuda());
  cuda::emulated::set_product_factor(0);
  const DeviceChoice choice = chosen("auto");
  EXPECT_FALSE(choice.on_cuda());
  EXPECT_THAT(choice.note, AllOf(HasSubstr("cuda:0 emulated"), HasSubstr("fails the check"),
                                 HasSubstr("on the CPU")));
  EXPECT_THROW(static_cast<void>(chosen("cuda")), SystemError);
  cuda::emulated::set_product_factor(1);
}

TEST(DeviceChoice, ADriverOrALibraryOfAnotherVersionIsAnErrorByNameAndALineUnderAuto) {
  const auto with = [](const std::string& text, const auto& set) {
    set(text);
    const DeviceChoice choice = chosen("auto");
    EXPECT_FALSE(choice.on_cuda());
    EXPECT_THAT(choice.note, HasSubstr(text));
    try {
      static_cast<void>(chosen("cuda"));
      ADD_FAILURE() << text;
    } catch (const SystemError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("train.device = \"cuda\""), HasSubstr(text)));
    }
    set("");
    EXPECT_TRUE(chosen("auto").on_cuda());
  };
  with(cuda::old_driver_text(12040, 13000), cuda::emulated::set_driver_fault);
  with("libcublasLt.so.13 is of version 12.4.5", cuda::emulated::set_products_missing);
}

TEST(DeviceChoice, ADeviceThatIsLostInItsCheckIsLeftAlone) {
  cuda::emulated::lose_device(0, 30);
  const DeviceChoice choice = chosen("auto");
  EXPECT_FALSE(choice.on_cuda());
  EXPECT_THAT(choice.note, AllOf(HasSubstr("cuda:0 is lost"), HasSubstr("fails the check")));
  cuda::emulated::end_faults();
  cuda::emulated::lose_device(0, 30);
  EXPECT_THROW(static_cast<void>(chosen("cuda")), SystemError);
  cuda::emulated::end_faults();
}

// The file is not beside this program, which other processes run as well.
TEST(DeviceChoice, ATableOfProductsIsUsedOnItsDeviceAlone) {
  const TemporaryDirectory folder;
  const std::filesystem::path file = folder.path() / "some.txt";
  const std::vector<cuda::DeviceInfo> devices = cuda::devices();
  const auto with = [&](const std::string& text) {
    SystemStorage storage;
    write_atomically(storage, file, text);
    return use_matmul_choices(file, devices);
  };
  const std::string device = cuda::MatmulTable::device_of(devices.front());
  const std::string version = device_products_version();
  EXPECT_EQ(with(cuda::MatmulTable(device, version).text()), "");
  ASSERT_NE(cuda::matmul_table_in_use(), nullptr);
  EXPECT_THAT(cuda::matmul_table_in_use()->source(),
              testing::MatchesRegex("some.txt .0 products, xxh3 [0-9a-f]+."));
  EXPECT_THAT(with(cuda::MatmulTable(device, "12.4.5").text()),
              AllOf(HasSubstr("some.txt is not used: it is of cuBLASLt 12.4.5")));
  EXPECT_EQ(cuda::matmul_table_in_use(), nullptr);
  EXPECT_THAT(with(cuda::MatmulTable("another", version).text()), HasSubstr("it is of another"));
  EXPECT_THAT([&] { static_cast<void>(with("no table")); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("some.txt:1: ")));
  EXPECT_EQ(with(cuda::MatmulTable(device, version).text()), "");
  EXPECT_EQ(use_matmul_choices(folder.path() / "none", devices), "");
  EXPECT_EQ(cuda::matmul_table_in_use(), nullptr);
}

TEST(DeviceChoice, RanksThatUpdateByMuonAreOnDevicesOfOneKind) {
  const std::vector<std::string> mesh = {"run.workers=1", "parallel.dp=2", "inner.optimizer=muon"};
  EXPECT_TRUE(chosen("cuda", mesh).on_cuda());
  cuda::emulated::set_device_name(1, "another");
  EXPECT_TRUE(chosen("cuda:1", mesh).on_cuda());
  EXPECT_TRUE(chosen("cuda", {"run.workers=1", "parallel.dp=2"}).on_cuda());
  EXPECT_TRUE(chosen("cuda", {"inner.optimizer=muon"}).on_cuda());
  const DeviceChoice choice = chosen("auto", mesh);
  EXPECT_FALSE(choice.on_cuda());
  EXPECT_THAT(choice.note, AllOf(HasSubstr("inner.optimizer = \"muon\": rank 1"),
                                 HasSubstr("cuda:1 another"), HasSubstr("CUDA_VISIBLE_DEVICES")));
  EXPECT_THROW(static_cast<void>(chosen("cuda", mesh)), ConfigError);
  cuda::emulated::set_device_name(1, "emulated on the CPU");
}

TEST(DeviceChoice, CudnnByNameIsNeverTheOwnKernelsOrTheCpu) {
  const std::vector<std::string> cudnn = {"train.precision=bf16", "train.attention=cudnn"};
  for (const char* const device : {"auto", "cuda"}) {
    EXPECT_TRUE(chosen(device, cudnn).on_cuda());
    cuda::emulated::set_cudnn_missing("libcudnn.so.9 is gone");
    try {
      static_cast<void>(chosen(device, cudnn));
      ADD_FAILURE() << device << ": chosen";
    } catch (const SystemError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("train.attention = \"cudnn\""),
                                      HasSubstr("libcudnn.so.9 is gone"), HasSubstr("\"own\"")));
    }
    EXPECT_TRUE(chosen(device).on_cuda());
    EXPECT_FALSE(chosen(device, cudnn, true).on_cuda());
    cuda::emulated::set_cudnn_missing("");
  }
}

TEST(DeviceChoice, RanksThatShareTheLayersHaveADeviceEach) {
  const DeviceChoice choice = chosen("cuda", {"run.workers=1", "parallel.tp=2"});
  ASSERT_TRUE(choice.on_cuda());
  EXPECT_THAT(choice.note, HasSubstr("sums over ranks"));
  EXPECT_NE(choice.of(WorkerId(0), 0).ordinal, choice.of(WorkerId(0), 1).ordinal);
  try {
    static_cast<void>(chosen("cuda", {"run.workers=1", "parallel.tp=2", "parallel.pp=2"}));
    ADD_FAILURE() << "four ranks on two devices";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("a mesh of 2 x 2 x 1 ranks at site "),
                                    HasSubstr("may use 2"), HasSubstr("tp, pp or dp smaller")));
  }
}

// A stage with half of the layers takes less than all of them do.
TEST(DeviceChoice, ARankNeedsTheMemoryOfItsShare) {
  const auto least = [](const std::vector<std::string>& settings) {
    std::size_t enough = std::size_t{1} << 26, few = 0;
    while (enough - few > 4096) {
      const std::size_t bytes = few + (enough - few) / 2;
      cuda::emulated::set_device_memory(bytes);
      (chosen("auto", settings).on_cuda() ? enough : few) = bytes;
    }
    cuda::emulated::set_device_memory(std::size_t{4} << 30);
    return enough;
  };
  const std::vector<std::string> one = {"run.workers=1"};
  const std::size_t whole = least(one);
  EXPECT_LT(least({"run.workers=1", "parallel.pp=2"}), whole);
  EXPECT_LT(least({"run.workers=1", "parallel.tp=2"}), whole);
}

}  // namespace
}  // namespace isthmus::app::this_file
