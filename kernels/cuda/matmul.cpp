// SPDX-License-Identifier: Apache-2.0
// Row-major products by a library that thinks in columns: memory that holds c (m, n) by rows holds
// its transpose by columns, and c^T = op(b)^T op(a)^T, so the operands change places and nothing is
// moved.
#include "kernels/cuda/matmul.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/log.h"
#include "isthmus/errors.h"
#include "kernels/cuda/cublas_calls.h"
#include "kernels/cuda/device_errors.h"
#include "kernels/cuda/matmul_finish.h"
#include "kernels/cuda/matmul_table.h"

namespace isthmus::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32}
                                        << 20;  // the size that cuBLAS asks for on Hopper
constexpr std::int64_t kAuxRowMultiple = 8;     // of epilogues with aux
constexpr std::size_t kAuxAlignment = 16;       // likewise, bytes

/// THROWS: SystemError naming `call` and cuBLAS's text unless `status` is success; DeviceLost where
/// the device is why.
void check_cublas(const CublasCalls& calls, cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  check_alive();
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    throw OutOfDeviceMemory(no_memory_text(call, device_memory()));
  }
  throw SystemError(
      fmt::format("cuBLAS {}: {}: {}", products_version(), call, calls.status_string(status)));
}

const void* address(ConstMatrixData data) {
  return data.visit([](const auto* at) { return static_cast<const void*>(at); });
}
void* address(MatrixData data) {
  return data.visit([](auto* at) { return static_cast<void*>(at); });
}

std::string text_of(const Matmul& p) {
  return fmt::format("{}{} ({}, {}) x {} ({}, {})", p.a.is_bf16() ? "bf16 " : "fp32 ",
                     p.a_transposed ? "a^T" : "a", p.m, p.k, p.b_transposed ? "b^T" : "b", p.k,
                     p.n);
}

cudaDataType_t type_of(bool bf16) { return bf16 ? CUDA_R_16BF : CUDA_R_32F; }

/// A product's descriptions and its algorithm.
struct Plan {
  explicit Plan(const CublasCalls& calls_) : calls(&calls_) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    for (cublasLtMatrixLayout_t layout : {first, second, result}) {
      if (layout != nullptr) calls->layout_destroy(layout);
    }
    if (desc != nullptr) calls->desc_destroy(desc);
  }

  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
    check_cublas(*calls, calls->desc_set(desc, attribute, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
  }

  const CublasCalls* calls;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  int choice = 0;     // which of those that the library named
  bool fused = true;  // the epilogue is the library's; else `finish` follows
};

cublasLtMatrixLayout_t layout(const CublasCalls& calls, bool bf16, std::int64_t rows,
                              std::int64_t columns, std::int64_t ld) {
  cublasLtMatrixLayout_t made = nullptr;
  check_cublas(calls,
               calls.layout_create(&made, type_of(bf16), static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), ld),
               "cublasLtMatrixLayoutCreate");
  return made;
}

cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kGeluBias:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kGeluGradient:
      return CUBLASLT_EPILOGUE_DGELU;
  }
  ISTHMUS_CHECK(false, static_cast<int>(epilogue));
  return CUBLASLT_EPILOGUE_DEFAULT;
}

bool uses_bias(Epilogue e) { return e == Epilogue::kBias || e == Epilogue::kGeluBias; }
bool uses_aux(Epilogue e) { return e == Epilogue::kGeluBias || e == Epilogue::kGeluGradient; }

/// Whether the library may fuse the epilogue. GELU of floats is ours: the precision of the
/// library's is not promised.
bool may_fuse(const Matmul& p) {
  return !uses_aux(p.epilogue) ||
         (p.ldc % kAuxRowMultiple == 0 && p.c.is_bf16() && shape_of(p).alignment >= kAuxAlignment);
}

void check_product(const Matmul& p) {
  ISTHMUS_CHECK(p.m >= 0 && p.n >= 0 && p.k >= 1, p.m, p.n, p.k);
  ISTHMUS_CHECK(p.a.is_bf16() == p.b.is_bf16(), p.m, p.n, p.k);
  ISTHMUS_CHECK(p.a.is_bf16() || !p.c.is_bf16(), p.m, p.n, p.k);
  ISTHMUS_CHECK(!p.accumulate || (p.epilogue == Epilogue::kNone && !p.c.is_bf16()), p.m, p.n, p.k);
  ISTHMUS_CHECK(!uses_bias(p.epilogue) || p.bias.is_bf16() == p.c.is_bf16(), p.m, p.n, p.k);
  ISTHMUS_CHECK(!uses_aux(p.epilogue) || p.aux.is_bf16() == p.c.is_bf16(), p.m, p.n, p.k);
}

/// The epilogue of a product that has been stored without it.
template <typename T>
void finish(Stream& stream, const Matmul& p) {
  const StoredProduct<T> stored{p.m, p.n, p.ldc, p.c.as<T>(), p.aux.as<T>(), p.bias.as<T>()};
  if (p.epilogue == Epilogue::kBias) finish_bias(stream, stored);
  if (p.epilogue == Epilogue::kGeluBias) finish_gelu_bias(stream, stored);
  if (p.epilogue == Epilogue::kGeluGradient) finish_gelu_gradient(stream, stored);
}

}  // namespace

std::string products_missing() {
  try {
    static_cast<void>(system_cublas_calls());
    return "";
  } catch (const SystemError& error) {
    return error.what();
  }
}

std::string products_version() {
  const std::size_t version = system_cublas_calls().version();
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

struct Blas::Impl {
  explicit Impl(const BlasOptions& options_)
      : options(options_), calls(&system_cublas_calls()), workspace(kWorkspaceBytes) {
    check_cublas(*calls, calls->create(&handle), "cublasLtCreate");
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    plans.clear();
    calls->destroy(handle);
  }

  /// RETURNS: whether the library has an algorithm of the plan's choice, then set.
  bool choose(Plan& plan, std::size_t alignment) const {
    cublasLtMatmulPreference_t preference = nullptr;
    check_cublas(*calls, calls->preference_create(&preference), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check_cublas(*calls, calls->preference_set(preference, attribute, &value, sizeof value),
                   "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    // Where a sum is cut into parts, these are added in float, not in the type of c.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(attribute, static_cast<std::uint32_t>(alignment));
    }
    // As many as were asked for when the choice was made, since the library may weigh them so.
    const int wanted = plan.choice == 0 ? 1 : kMatmulChoices;
    std::vector<cublasLtMatmulHeuristicResult_t> named(static_cast<std::size_t>(wanted));
    int found = 0;
    const cublasStatus_t status =
        calls->heuristic(handle, plan.desc, plan.first, plan.second, plan.result, plan.result,
                         preference, wanted, named.data(), &found);
    calls->preference_destroy(preference);
    const auto chosen = static_cast<std::size_t>(plan.choice);
    if (status != CUBLAS_STATUS_SUCCESS || found <= plan.choice ||
        named[chosen].state != CUBLAS_STATUS_SUCCESS) {
      return false;
    }
    plan.algorithm = named[chosen].algo;
    return true;
  }

  /// The addresses change from call to call, the rest of the plan does not.
  void set_addresses(const Plan& plan, const Matmul& p) const {
    if (!plan.fused) return;
    if (uses_bias(p.epilogue)) {
      plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, address(p.bias));
    }
    if (uses_aux(p.epilogue)) plan.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, address(p.aux));
  }

  std::unique_ptr<Plan> make_plan(const Matmul& p, int choice, bool fused) const {
    auto plan = std::make_unique<Plan>(*calls);
    plan->choice = choice;
    check_cublas(*calls, calls->desc_create(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
    plan->fused = fused;
    const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
    plan->set(CUBLASLT_MATMUL_DESC_TRANSA, operation(p.b_transposed));
    plan->set(CUBLASLT_MATMUL_DESC_TRANSB, operation(p.a_transposed));
    const bool bf16 = p.a.is_bf16();
    plan->first = p.b_transposed ? layout(*calls, bf16, p.k, p.n, p.ldb)
                                 : layout(*calls, bf16, p.n, p.k, p.ldb);
    plan->second = p.a_transposed ? layout(*calls, bf16, p.m, p.k, p.lda)
                                  : layout(*calls, bf16, p.k, p.m, p.lda);
    plan->result = layout(*calls, p.c.is_bf16(), p.n, p.m, p.ldc);
    if (fused) {
      plan->set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p.epilogue));
      if (uses_aux(p.epilogue)) plan->set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.ldc);
      set_addresses(*plan, p);
    }
    if (!choose(*plan, shape_of(p).alignment)) return nullptr;
    return plan;
  }
  /// With the epilogue fused where the library takes it.
  std::unique_ptr<Plan> make_plan(const Matmul& p, int choice) const {
    std::unique_ptr<Plan> plan = may_fuse(p) ? make_plan(p, choice, true) : nullptr;
    return plan != nullptr ? std::move(plan) : make_plan(p, choice, false);
  }

  const Plan& plan_of(const Matmul& p) {
    const MatmulShape shape = shape_of(p);
    std::unique_ptr<Plan>& plan = plans[shape];
    if (plan != nullptr) return *plan;
    const int of_table = options.table != nullptr ? options.table->choice(shape).value_or(0) : 0;
    if (of_table > 0) {
      plan = make_plan(p, of_table);
      if (plan == nullptr) tell_of_refused(p, of_table);
    }
    if (plan == nullptr) plan = make_plan(p, options.choice);
    if (plan == nullptr) {
      plans.erase(shape);
      throw SystemError(fmt::format("cuBLAS {} has no algorithm for the product {}",
                                    products_version(), text_of(p)));
    }
    return *plan;
  }

  /// The library refuses a product of the plan. RETURNS: whether another plan is there now.
  bool retreat(const Matmul& p, const Plan& plan) {
    std::unique_ptr<Plan> other;
    if (plan.choice != options.choice) {
      tell_of_refused(p, plan.choice);
      other = make_plan(p, options.choice);
    } else if (plan.fused && p.epilogue != Epilogue::kNone) {
      other = make_plan(p, plan.choice, false);  // some are refused only when they are to run
    }
    if (other == nullptr) return false;
    plans[shape_of(p)] = std::move(other);
    return true;
  }

  void tell_of_refused(const Matmul& p, int choice) {
    if (std::exchange(told, true)) return;
    log_warning(
        "{}: cuBLASLt {} refuses its algorithm {} for the product {}: the library's first answer "
        "is taken, here and wherever it refuses another",
        options.table->source(), products_version(), choice, text_of(p));
  }

  BlasOptions options;
  const CublasCalls* calls;
  cublasLtHandle_t handle = nullptr;
  DeviceArray<std::byte> workspace;
  std::map<MatmulShape, std::unique_ptr<Plan>> plans;
  bool told = false;  // of a refused choice
};

Blas::Blas(const BlasOptions& options) : impl_(std::make_unique<Impl>(options)) {
  if (options.table == nullptr && options.choice == 0) {
    impl_->options.table = matmul_table_in_use();
  }
  ISTHMUS_CHECK(options.choice >= 0 && options.choice < kMatmulChoices, options.choice);
}
Blas::~Blas() = default;

bool Blas::fuses(const Matmul& p) { return impl_->plan_of(p).fused; }

std::vector<MatmulShape> Blas::shapes() const {
  std::vector<MatmulShape> all;
  for (const auto& [shape, plan] : impl_->plans) all.push_back(shape);
  return all;
}

void Blas::matmul(Stream& stream, const Matmul& p) {
  check_product(p);
  if (p.m == 0 || p.n == 0) return;
  const Plan& plan = impl_->plan_of(p);
  impl_->set_addresses(plan, p);
  const float alpha = 1;
  const float beta = p.accumulate ? 1 : 0;
  void* const c = address(p.c);
  const CublasCalls& calls = *impl_->calls;
  const cublasStatus_t status = calls.matmul(
      impl_->handle, plan.desc, &alpha, address(p.b), plan.first, address(p.a), plan.second, &beta,
      c, plan.result, c, plan.result, &plan.algorithm, impl_->workspace.data(), kWorkspaceBytes,
      static_cast<cudaStream_t>(stream.handle()));
  if (status != CUBLAS_STATUS_SUCCESS) {
    check_alive();
    if (impl_->retreat(p, plan)) return matmul(stream, p);
  }
  check_cublas(calls, status, "cublasLtMatmul");
  if (plan.fused) return;
  if (p.c.is_bf16()) {
    finish<Bf16>(stream, p);
  } else {
    finish<float>(stream, p);
  }
}

}  // namespace isthmus::cuda
