// SPDX-License-Identifier: Apache-2.0
// cuBLASLt as its documentation has it, on the CPU: matrices by columns, described by objects. It
// refuses what the library refuses, and GELU of floats, so that products without a fused epilogue
// are met too.
#include "cuda/fake_cublas.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "cuda/emulated/runtime.h"
#include "kernels/activation_math.h"
#include "kernels/bf16.h"
#include "kernels/cuda/cublas_calls.h"

namespace isthmus::cuda {
namespace {

using kernels::Bf16;

struct Described {
  std::map<int, std::vector<std::byte>> attributes;
  template <typename T>
  [[nodiscard]] T get(int attribute, T otherwise) const {
    const auto found = attributes.find(attribute);
    if (found == attributes.end()) return otherwise;
    T value;
    if (found->second.size() != sizeof(T)) return otherwise;
    std::memcpy(&value, found->second.data(), sizeof(T));
    return value;
  }
};

struct Layout {
  cudaDataType_t type;
  std::int64_t rows, columns, ld;
};

float value_at(const void* data, cudaDataType_t type, std::int64_t i) {
  return type == CUDA_R_16BF ? static_cast<float>(static_cast<const Bf16*>(data)[i])
                             : static_cast<const float*>(data)[i];
}
void set_at(void* data, cudaDataType_t type, std::int64_t i, float value) {
  if (type == CUDA_R_16BF) {
    static_cast<Bf16*>(data)[i] = Bf16(value);
  } else {
    static_cast<float*>(data)[i] = value;
  }
}

Described& described(cublasLtMatmulDesc_t desc) { return *reinterpret_cast<Described*>(desc); }
Described& described(cublasLtMatmulPreference_t p) { return *reinterpret_cast<Described*>(p); }
const Layout& of(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<Layout*>(layout); }

/// All that a product is, looked up once.
struct Product {
  Product(const Described& d, const Layout& a_, const Layout& b_, const Layout& c_)
      : a(a_),
        b(b_),
        c(c_),
        a_transposed(d.get(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N) == CUBLAS_OP_T),
        b_transposed(d.get(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N) == CUBLAS_OP_T),
        epilogue(d.get(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT)),
        bias(d.get<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr)),
        aux(d.get<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, nullptr)),
        aux_ld(d.get<std::int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0)) {}

  [[nodiscard]] bool uses_aux() const {
    return epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DGELU;
  }
  [[nodiscard]] bool uses_bias() const {
    return epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_BIAS;
  }
  [[nodiscard]] std::int64_t depth() const { return a_transposed ? a.rows : a.columns; }

  [[nodiscard]] bool supported() const {
    if ((a_transposed ? a.columns : a.rows) != c.rows) return false;
    if ((b_transposed ? b.rows : b.columns) != c.columns) return false;
    if ((b_transposed ? b.columns : b.rows) != depth()) return false;
    for (const Layout& m : {a, b, c}) {
      if (m.ld < m.rows) return false;
    }
    if (a.type != b.type) return false;
    if (uses_bias() && bias == nullptr) return false;
    if (!uses_aux()) return true;
    return c.type == CUDA_R_16BF && aux != nullptr && aux_ld % 8 == 0 && aux_ld >= c.rows;
  }

  /// Whether the addresses are multiples of what the algorithm was chosen for.
  [[nodiscard]] bool aligned(std::uint64_t alignment, const void* a_at, const void* b_at,
                             const void* c_at) const {
    const auto fits = [=](const void* at) {
      return reinterpret_cast<std::uintptr_t>(at) % alignment == 0;
    };
    return fits(a_at) && fits(b_at) && fits(c_at) && (!uses_aux() || fits(aux));
  }

  void run(float alpha, float beta, const void* a_at, const void* b_at, void* c_at) const {
    for (std::int64_t j = 0; j < c.columns; ++j) {
      for (std::int64_t i = 0; i < c.rows; ++i) {
        float sum = 0;
        for (std::int64_t l = 0; l < depth(); ++l) {
          sum += value_at(a_at, a.type, a_transposed ? l + i * a.ld : i + l * a.ld) *
                 value_at(b_at, b.type, b_transposed ? j + l * b.ld : l + j * b.ld);
        }
        const std::int64_t at = i + j * c.ld;
        float value = alpha * sum;
        if (beta != 0) value += beta * value_at(c_at, c.type, at);
        if (uses_bias()) value += value_at(bias, c.type, i);
        if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
          set_at(aux, c.type, i + j * aux_ld, value);
          value = kernels::gelu(value);
        }
        if (epilogue == CUBLASLT_EPILOGUE_DGELU) {
          value *= kernels::gelu_derivative(value_at(aux, c.type, i + j * aux_ld));
        }
        set_at(c_at, c.type, at, value);
      }
    }
  }

  Layout a, b, c;
  bool a_transposed, b_transposed;
  cublasLtEpilogue_t epilogue;
  const void* bias;
  void* aux;
  std::int64_t aux_ld;
};

int refused = -1;  // of the algorithms, when it is to run
std::vector<int> used;

template <typename Handle>
cublasStatus_t set(Handle handle, int attribute, const void* value, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(value);
  described(handle).attributes[attribute].assign(from, from + bytes);
  return CUBLAS_STATUS_SUCCESS;
}

CublasCalls fake_calls() {
  CublasCalls calls;
  calls.version = []() -> std::size_t { return 13'02'09; };
  calls.create = [](cublasLtHandle_t* handle) {
    *handle = reinterpret_cast<cublasLtHandle_t>(new int);
    return CUBLAS_STATUS_SUCCESS;
  };
  calls.destroy = [](cublasLtHandle_t handle) {
    delete reinterpret_cast<int*>(handle);
    return CUBLAS_STATUS_SUCCESS;
  };
  calls.status_string = [](cublasStatus_t status) {
    return status == CUBLAS_STATUS_INVALID_VALUE ? "invalid value" : "not supported";
  };
  calls.desc_create = [](cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                         cudaDataType_t scale) {
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
    *desc = reinterpret_cast<cublasLtMatmulDesc_t>(new Described);
    return CUBLAS_STATUS_SUCCESS;
  };
  calls.desc_destroy = [](cublasLtMatmulDesc_t desc) {
    delete &described(desc);
    return CUBLAS_STATUS_SUCCESS;
  };
  calls.desc_set = [](cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                      const void* value,
                      std::size_t bytes) { return set(desc, attribute, value, bytes); };
  calls.layout_create = [](cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                           std::uint64_t columns, std::int64_t ld) {
    *layout = reinterpret_cast<cublasLtMatrixLayout_t>(
        new Layout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), ld});
    return CUBLAS_STATUS_SUCCESS;
  };
  calls.layout_destroy = [](cublasLtMatrixLayout_t layout) {
    delete &of(layout);
    return CUBLAS_STATUS_SUCCESS;
  };
  calls.preference_create = [](cublasLtMatmulPreference_t* preference) {
    *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Described);
    return CUBLAS_STATUS_SUCCESS;
  };
  calls.preference_destroy = [](cublasLtMatmulPreference_t preference) {
    delete &described(preference);
    return CUBLAS_STATUS_SUCCESS;
  };
  calls.preference_set = [](cublasLtMatmulPreference_t preference,
                            cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                            std::size_t bytes) { return set(preference, attribute, value, bytes); };
  calls.heuristic = [](cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                       cublasLtMatmulPreference_t preference, int asked_for,
                       cublasLtMatmulHeuristicResult_t results[], int* found) {
    *found = 0;
    if (c != d || !Product(described(desc), of(a), of(b), of(c)).supported()) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const Described& p = described(preference);
    *found = std::min(asked_for, fake::kAlgorithms);
    for (int i = 0; i < *found; ++i) {
      results[i] = {};
      results[i].algo.data[0] =
          p.get<std::uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 256);
      results[i].algo.data[1] = p.get<std::size_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0);
      results[i].algo.data[2] = static_cast<std::uint64_t>(i);
    }
    return CUBLAS_STATUS_SUCCESS;
  };
  calls.matmul = [](cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                    const void* a_at, cublasLtMatrixLayout_t a, const void* b_at,
                    cublasLtMatrixLayout_t b, const void* beta, const void* c_at,
                    cublasLtMatrixLayout_t c, void* d_at, cublasLtMatrixLayout_t d,
                    const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                    std::size_t workspace_bytes, cudaStream_t stream) {
    const Product product(described(desc), of(a), of(b), of(c));
    if (!product.supported() || c_at != d_at || c != d || algorithm->data[0] == 0 ||
        !product.aligned(algorithm->data[0], a_at, b_at, c_at) || workspace == nullptr ||
        algorithm->data[1] > workspace_bytes) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    const auto index = static_cast<int>(algorithm->data[2]);
    if (index == refused) return CUBLAS_STATUS_NOT_SUPPORTED;
    used.push_back(index);
    emulated::queue(static_cast<void*>(stream), [=, scale = *static_cast<const float*>(alpha),
                                                 keep = *static_cast<const float*>(beta)] {
      product.run(scale, keep, a_at, b_at, d_at);
    });
    return CUBLAS_STATUS_SUCCESS;
  };
  return calls;
}

}  // namespace

void fake::refuse_algorithm(int index) { refused = index; }
std::vector<int> fake::take_used_algorithms() { return std::exchange(used, {}); }

const CublasCalls& system_cublas_calls() {
  static const CublasCalls calls = fake_calls();
  return calls;
}

}  // namespace isthmus::cuda
