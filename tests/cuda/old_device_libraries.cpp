// SPDX-License-Identifier: Apache-2.0
// cuBLASLt and NCCL of versions that no build here can use, as far as somebody asks which they are.
#include <cstddef>

extern "C" {
std::size_t cublasLtGetVersion();
int ncclGetVersion(int* version);

std::size_t cublasLtGetVersion() { return 12'04'05; }
int ncclGetVersion(int* version) {
  *version = 2'14'03;
  return 0;
}
}
