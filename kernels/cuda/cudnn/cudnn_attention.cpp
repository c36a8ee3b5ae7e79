// SPDX-License-Identifier: Apache-2.0
// cudnn_attention.h by the frontend's graphs, each of one operation. The only file that includes
// the frontend, since that takes a compiler half a minute.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // it brings a copy of a library that other modules link
#include "kernels/cuda/cudnn/cudnn_attention.h"

#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/base/check.h"
#include "isthmus/errors.h"
#include "kernels/cuda/cudnn/cudnn_library.h"
#include "kernels/cuda/runtime_check.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // where the frontend looks functions up
}

namespace isthmus::cuda {
namespace {

namespace fe = cudnn_frontend;
using kernels::Bf16;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

constexpr std::size_t kWorkspaceAlignment = 256;  // the alignment of cudaMalloc

enum Uid : std::int64_t { kQ = 1, kK, kV, kOut, kStatistics, kDOut, kDQ, kDK, kDV };

/// The frontend with its library in place. THROWS: SystemError.
const CudnnLibrary& loaded() {
  const CudnnLibrary& library = system_cudnn();
  if (!library.missing.empty()) throw SystemError("cuDNN: " + library.missing);
  static const bool placed = [&] {
    fe::cudnn_dlhandle = library.handle;
    return true;
  }();
  static_cast<void>(placed);
  return library;
}

/// Runs a call of the frontend. THROWS: SystemError for a bad answer, and for an exception such as
/// that of a missing function.
template <typename Call>
void checked(const char* name, const Call& call) {
  std::string why;
  try {
    fe::error_t answer = call();
    if (answer.is_good()) return;
    why = answer.get_message();
  } catch (const std::exception& error) {
    why = error.what();
  }
  throw SystemError(fmt::format("cuDNN: {}: {}", name, why));
}

class Handle {
 public:
  Handle() {
    static_cast<void>(loaded());
    checked("cudnnCreate", [&] { return answer(fe::detail::create_handle(&handle_)); });
  }
  ~Handle() {
    try {
      static_cast<void>(fe::detail::destroy_handle(handle_));
    } catch (const std::exception&) {  // the library lacks the function: nothing to free it with
    }
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  [[nodiscard]] cudnnHandle_t get() const { return handle_; }
  void use(const Stream& stream) {
    checked("cudnnSetStream", [&] {
      return answer(fe::detail::set_stream(handle_, static_cast<cudaStream_t>(stream.handle())));
    });
  }

 private:
  static fe::error_t answer(cudnnStatus_t status) {
    if (status == CUDNN_STATUS_SUCCESS) return {fe::error_code_t::OK, ""};
    return {fe::error_code_t::CUDNN_BACKEND_API_FAILED, fe::detail::get_error_string(status)};
  }
  cudnnHandle_t handle_ = nullptr;
};

int compute_capability() {
  int ordinal = 0, major = 0, minor = 0;
  check(cudaGetDevice(&ordinal), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal),
        "cudaDeviceGetAttribute");
  return 10 * major + minor;
}

fe::graph::Tensor_attributes described(Uid uid, const char* name, const CudnnTensor& tensor) {
  fe::graph::Tensor_attributes attributes;
  attributes.set_uid(uid).set_name(name);
  attributes.set_dim({tensor.sizes.begin(), tensor.sizes.end()});
  attributes.set_stride({tensor.strides.begin(), tensor.strides.end()});
  return attributes;
}

/// Declares an output of an operation, and the place to which it is written.
void written(const Tensor& tensor, Uid uid, const CudnnTensor& as) {
  tensor->set_output(true).set_uid(uid);
  tensor->set_dim({as.sizes.begin(), as.sizes.end()});
  tensor->set_stride({as.strides.begin(), as.strides.end()});
}

/// One pass, as cuDNN is told of it.
class Pass {
 public:
  Pass(const AttentionLayout& layout, bool backward, int compute_capability) : backward_(backward) {
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    graph_.set_sm_version(compute_capability);
    checked(name(), [&] {  // the frontend looks for an implementation already here
      backward ? describe_backward(layout) : describe_forward(layout);
      return fe::error_t{fe::error_code_t::OK, ""};
    });
  }

  /// THROWS: SystemError where such a device does not take it, whatever the plan.
  void validate() {
    checked(name(), [&] { return graph_.validate(); });
  }
  /// Its plan, for the handle's device.
  void build(const Handle& handle) {
    checked(name(), [&] { return graph_.build(handle.get(), {fe::HeurMode_t::A}); });
    std::int64_t bytes = 0;
    checked(name(), [&] { return graph_.get_workspace_size(bytes); });
    bytes_ = static_cast<std::size_t>(bytes);
  }
  [[nodiscard]] std::size_t workspace_bytes() const { return bytes_; }

  void run(Handle& handle, Stream& stream, std::unordered_map<std::int64_t, void*> places,
           void* workspace) {
    handle.use(stream);
    std::size_t space = bytes_ + kWorkspaceAlignment;
    std::align(kWorkspaceAlignment, bytes_, workspace, space);
    checked(name(), [&] { return graph_.execute(handle.get(), places, workspace); });
  }

 private:
  [[nodiscard]] const char* name() const {
    return backward_ ? "attention's backward pass" : "attention";
  }
  Tensor read(Uid uid, const char* name, const CudnnTensor& tensor) {
    return graph_.tensor(described(uid, name, tensor));
  }

  void describe_forward(const AttentionLayout& l) {
    const AttentionShape& s = l.shape;
    auto options = fe::graph::SDPA_attributes();
    options.set_name("attention")
        .set_generate_stats(true)
        .set_causal_mask(true)
        .set_attn_scale(static_cast<float>(s.scale));
    const auto [out, statistics] =
        graph_.sdpa(read(kQ, "q", cudnn_heads(s, s.q_heads, l.q)),
                    read(kK, "k", cudnn_heads(s, s.kv_heads, l.k)),
                    read(kV, "v", cudnn_heads(s, s.kv_heads, l.v)), options);
    written(out, kOut, cudnn_heads(s, s.q_heads, l.out));
    written(statistics, kStatistics, cudnn_statistics(s));
    statistics->set_data_type(fe::DataType_t::FLOAT);
  }

  void describe_backward(const AttentionLayout& l) {
    const AttentionShape& s = l.shape;
    const CudnnTensor q = cudnn_heads(s, s.q_heads, l.q);
    const CudnnTensor k = cudnn_heads(s, s.kv_heads, l.k);
    const CudnnTensor v = cudnn_heads(s, s.kv_heads, l.v);
    const CudnnTensor out = cudnn_heads(s, s.q_heads, l.out);
    auto options = fe::graph::SDPA_backward_attributes();
    options.set_name("attention_backward")
        .set_causal_mask(true)
        .set_attn_scale(static_cast<float>(s.scale))
        .set_deterministic_algorithm(true);
    const Tensor statistics = read(kStatistics, "statistics", cudnn_statistics(s));
    statistics->set_data_type(fe::DataType_t::FLOAT);
    const auto [d_q, d_k, d_v] = graph_.sdpa_backward(
        read(kQ, "q", q), read(kK, "k", k), read(kV, "v", v), read(kOut, "out", out),
        read(kDOut, "d_out", out), statistics, options);
    written(d_q, kDQ, q);
    written(d_k, kDK, k);
    written(d_v, kDV, v);
  }

  bool backward_;
  fe::graph::Graph graph_;
  std::size_t bytes_ = 0;
};

void* place(const void* data) { return const_cast<void*>(data); }

}  // namespace

std::string cudnn_missing() { return system_cudnn().missing; }

std::string cudnn_version() {
  const CudnnLibrary& library = system_cudnn();
  if (!library.missing.empty()) return "";
  return fmt::format("{}.{}.{}", library.version / 10000, library.version / 100 % 100,
                     library.version % 100);
}

std::string cudnn_refusal_here(const AttentionShape& shape) {
  return cudnn_refusal(shape, compute_capability() / 10);
}

std::string cudnn_objection(const AttentionLayout& layout, int compute_capability) {
  try {
    static_cast<void>(loaded());
    for (const bool backward : {false, true}) Pass(layout, backward, compute_capability).validate();
    return "";
  } catch (const SystemError& error) {
    return error.what();
  }
}

struct CudnnAttention::Impl {
  AttentionLayout layout;
  Handle handle;
  Pass forward;
  std::optional<Pass> backward;

  Impl(const AttentionLayout& l, Passes passes)
      : layout(l), forward(l, false, compute_capability()) {
    forward.build(handle);
    if (passes == Passes::kForward) return;
    backward.emplace(l, true, compute_capability());
    backward->build(handle);
  }
  template <typename T>
  void expect(std::int64_t heads, const HeadsView<T>& got,
              const HeadsView<const Bf16>& planned) const {
    ISTHMUS_CHECK(
        cudnn_heads(layout.shape, heads, got) == cudnn_heads(layout.shape, heads, planned),
        got.batch_stride, got.token_stride, got.head_stride);
  }
};

CudnnAttention::CudnnAttention(const AttentionLayout& layout, Passes passes)
    : impl_(std::make_unique<Impl>(layout, passes)) {}
CudnnAttention::~CudnnAttention() = default;

std::size_t CudnnAttention::workspace_bytes() const {
  std::size_t most = impl_->forward.workspace_bytes();
  if (impl_->backward) most = std::max(most, impl_->backward->workspace_bytes());
  return most == 0 ? 0 : most + kWorkspaceAlignment;
}

bool CudnnAttention::takes(const AttentionShape& shape) const {
  return impl_->layout.shape == shape;
}

void CudnnAttention::forward(Stream& stream, HeadsView<const Bf16> q, HeadsView<const Bf16> k,
                             HeadsView<const Bf16> v, HeadsView<Bf16> out, float* lse,
                             void* workspace) {
  const AttentionLayout& l = impl_->layout;
  impl_->expect(l.shape.q_heads, q, l.q);
  impl_->expect(l.shape.kv_heads, k, l.k);
  impl_->expect(l.shape.kv_heads, v, l.v);
  impl_->expect(l.shape.q_heads, out, l.out);
  impl_->forward.run(impl_->handle, stream,
                     {{kQ, place(q.data)},
                      {kK, place(k.data)},
                      {kV, place(v.data)},
                      {kOut, out.data},
                      {kStatistics, lse}},
                     workspace);
}

void CudnnAttention::backward(Stream& stream, const kernels::AttentionBackward<Bf16>& a,
                              void* workspace) {
  const AttentionLayout& l = impl_->layout;
  ISTHMUS_CHECK(impl_->backward.has_value());
  for (const auto& [got, planned] : {std::pair{a.q, l.q}, {a.out, l.out}, {a.d_out, l.out}}) {
    impl_->expect(l.shape.q_heads, got, planned);
  }
  impl_->expect(l.shape.kv_heads, a.k, l.k);
  impl_->expect(l.shape.kv_heads, a.v, l.v);
  impl_->expect(l.shape.q_heads, a.d_q, l.q);
  impl_->expect(l.shape.kv_heads, a.d_k, l.k);
  impl_->expect(l.shape.kv_heads, a.d_v, l.v);
  impl_->backward->run(impl_->handle, stream,
                       {{kQ, place(a.q.data)},
                        {kK, place(a.k.data)},
                        {kV, place(a.v.data)},
                        {kOut, place(a.out.data)},
                        {kStatistics, place(a.lse)},
                        {kDOut, place(a.d_out.data)},
                        {kDQ, a.d_q.data},
                        {kDK, a.d_k.data},
                        {kDV, a.d_v.data}},
                       workspace);
}

}  // namespace isthmus::cuda
