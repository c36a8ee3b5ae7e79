// SPDX-License-Identifier: Apache-2.0
// Products on a device against sums in double.
#include "cuda/operation_test.h"
#include "kernels/activation_math.h"
#include "kernels/cuda/matmul.h"

namespace isthmus::cuda::this_file {
namespace {

struct Shape {
  std::int64_t m, n, k;
  std::int64_t pad = 0;  // added to each leading dimension
};
constexpr Shape kShapes[] = {{1, 1, 1},    {3, 5, 7, 1},     {16, 8, 32},    {64, 264, 40, 8},
                             {33, 40, 96}, {128, 96, 64, 4}, {7, 300, 16, 3}};

/// A product with its operands on the host. In: of a and b; Out: of c and aux.
template <typename In, typename Out>
struct Product {
  Product(const Shape& s_, bool a_transposed_, bool b_transposed_)
      : s(s_),
        a_transposed(a_transposed_),
        b_transposed(b_transposed_),
        lda((a_transposed ? s.m : s.k) + s.pad),
        ldb((b_transposed ? s.k : s.n) + s.pad),
        ldc(s.n + s.pad),
        a(normal_of<In>((a_transposed ? s.k : s.m) * lda, 1)),
        b(normal_of<In>((b_transposed ? s.n : s.k) * ldb, 2)),
        c(normal_of<Out>(s.m * ldc, 3)),
        aux(normal_of<Out>(s.m * ldc, 4)),
        bias(normal_of<Out>(s.n, 5)) {}

  [[nodiscard]] double sum(std::int64_t i, std::int64_t j) const {
    double total = 0;
    for (std::int64_t l = 0; l < s.k; ++l) {
      const auto left = a[static_cast<std::size_t>(a_transposed ? l * lda + i : i * lda + l)];
      const auto right = b[static_cast<std::size_t>(b_transposed ? j * ldb + l : l * ldb + j)];
      total += static_cast<double>(left) * static_cast<double>(right);
    }
    return total;
  }

  Shape s;
  bool a_transposed, b_transposed;
  std::int64_t lda, ldb, ldc;
  std::vector<In> a, b;
  std::vector<Out> c, aux, bias;
};

/// What c and aux hold afterwards, in double; what lies between the rows stays.
template <typename In, typename Out>
void expected_of(const Product<In, Out>& p, Epilogue epilogue, bool accumulate,
                 std::vector<double>& c, std::vector<double>& aux) {
  c = in_double(p.c);
  aux = in_double(p.aux);
  for (std::int64_t i = 0; i < p.s.m; ++i) {
    for (std::int64_t j = 0; j < p.s.n; ++j) {
      const auto at = static_cast<std::size_t>(i * p.ldc + j);
      const double sum = p.sum(i, j), biased = sum + static_cast<double>(static_cast<float>(
                                                         p.bias[static_cast<std::size_t>(j)]));
      switch (epilogue) {
        case Epilogue::kNone:
          c[at] = accumulate ? c[at] + sum : sum;
          break;
        case Epilogue::kBias:
          c[at] = biased;
          break;
        case Epilogue::kGeluBias:
          aux[at] = biased;
          c[at] = kernels::gelu(biased);
          break;
        case Epilogue::kGeluGradient:
          c[at] = sum * kernels::gelu_derivative(aux[at]);
          break;
      }
    }
  }
}

template <typename In, typename Out>
void run_and_compare(Blas& blas, const Product<In, Out>& p, Epilogue epilogue, bool accumulate) {
  Stream stream;
  const auto a = on_device(stream, p.a), b = on_device(stream, p.b);
  const auto c = on_device(stream, p.c), aux = on_device(stream, p.aux);
  const auto bias = on_device(stream, p.bias);
  blas.matmul(stream, {.m = p.s.m,
                       .n = p.s.n,
                       .k = p.s.k,
                       .a = static_cast<const In*>(a.data()),
                       .b = static_cast<const In*>(b.data()),
                       .lda = p.lda,
                       .ldb = p.ldb,
                       .ldc = p.ldc,
                       .a_transposed = p.a_transposed,
                       .b_transposed = p.b_transposed,
                       .c = c.data(),
                       .accumulate = accumulate,
                       .epilogue = epilogue,
                       .bias = static_cast<const Out*>(bias.data()),
                       .aux = aux.data()});
  std::vector<double> expected, expected_aux;
  expected_of(p, epilogue, accumulate, expected, expected_aux);
  // Sums of k products of order 1 in float. An unfused
  // epilogue reads a rounded sum and the gradient of GELU a rounded factor.
  const double sums = kFloatRounding * 8 * static_cast<double>(p.s.k);
  const double bound = 4 * std::sqrt(static_cast<double>(p.s.k)) * kRounding<Out>;
  const double absolute = sums + (epilogue == Epilogue::kNone ? 0 : bound);
  expect_close(on_host(stream, c), expected, 2 * kRounding<Out>, absolute, "c");
  expect_close(on_host(stream, aux), expected_aux, 2 * kRounding<Out>, absolute, "aux");
}

template <typename In, typename Out>
void run_all() {
  Blas blas;
  for (const Shape& s : kShapes) {
    for (const bool a_transposed : {false, true}) {
      for (const bool b_transposed : {false, true}) {
        const Product<In, Out> p(s, a_transposed, b_transposed);
        for (const Epilogue epilogue :
             {Epilogue::kNone, Epilogue::kBias, Epilogue::kGeluBias, Epilogue::kGeluGradient}) {
          SCOPED_TRACE(::testing::Message()
                       << s.m << " x " << s.n << " x " << s.k << ", transposed " << a_transposed
                       << b_transposed << ", epilogue " << static_cast<int>(epilogue));
          run_and_compare(blas, p, epilogue, false);
        }
        if (std::is_same_v<Out, float>) run_and_compare(blas, p, Epilogue::kNone, true);
      }
    }
  }
}

class MatmulOnDevice : public DeviceTest {};

TEST_F(MatmulOnDevice, MultipliesFloats) { run_all<float, float>(); }
TEST_F(MatmulOnDevice, MultipliesBf16IntoFloats) { run_all<Bf16, float>(); }
TEST_F(MatmulOnDevice, MultipliesBf16IntoBf16) { run_all<Bf16, Bf16>(); }

TEST_F(MatmulOnDevice, TakesNoRowsAndNoColumns) {
  Blas blas;
  Stream stream;
  const DeviceArray<float> x(16);
  Matmul p{.m = 0, .n = 4, .k = 4, .a = static_cast<const float*>(x.data())};
  p.b = p.a;
  p.c = x.data();
  p.lda = p.ldb = p.ldc = 4;
  blas.matmul(stream, p);
  p.m = 4, p.n = 0;
  blas.matmul(stream, p);
  stream.synchronize();
}

// As a step records it: the second run of a graph reads what the first has left.
TEST_F(MatmulOnDevice, CanBeRecordedInAGraph) {
  Blas blas;
  Stream stream;
  const std::vector<float> a{1, 2, 3, 4}, b{1, 0, 0, 2}, c{0, 0, 0, 0};
  const auto a_device = on_device(stream, a), b_device = on_device(stream, b);
  const auto c_device = on_device(stream, c);
  const auto add_product = [&] {
    blas.matmul(stream, {.m = 2,
                         .n = 2,
                         .k = 2,
                         .a = static_cast<const float*>(a_device.data()),
                         .b = static_cast<const float*>(b_device.data()),
                         .lda = 2,
                         .ldb = 2,
                         .ldc = 2,
                         .c = c_device.data(),
                         .accumulate = true});
  };
  add_product();
  stream.synchronize();
  const Graph graph(stream, [&](const Graph::Mark&) { add_product(); });
  graph.launch(stream);
  graph.launch(stream);
  EXPECT_THAT(on_host(stream, c_device), ::testing::ElementsAre(3, 12, 9, 24));
}

}  // namespace
}  // namespace isthmus::cuda::this_file
