// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/cuda_team.h"

#include <exception>
#include <utility>

#include "core/base/check.h"
#include "core/base/log.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_errors.h"

namespace isthmus {
namespace {

/// The driving thread keeps its device, whichever rank it has been.
class KeptDevice {
 public:
  explicit KeptDevice(int ordinal) : ordinal_(ordinal) {}
  ~KeptDevice() {
    try {
      cuda::use_device(ordinal_);
    } catch (const cuda::DeviceLost&) {  // the code that has used the device reports it
    } catch (const std::exception& error) {
      log_warning("cuda:{} is not this thread's any more: {}", ordinal_, error.what());
    }
  }
  KeptDevice(const KeptDevice&) = delete;
  KeptDevice& operator=(const KeptDevice&) = delete;

 private:
  int ordinal_;
};

}  // namespace

CudaTeam::CudaTeam(const MeshShape& mesh, std::vector<int> devices, RankPatience patience)
    : devices_(std::move(devices)), team_(mesh, std::move(patience)) {
  ISTHMUS_CHECK(devices_.size() == team_.size(), devices_.size(), team_.size());
}

void CudaTeam::run(const std::function<void(std::size_t rank)>& body) {
  const KeptDevice kept(devices_.front());
  team_.run([&](std::size_t rank) {
    cuda::use_device(devices_[rank]);
    body(rank);
  });
}

}  // namespace isthmus
