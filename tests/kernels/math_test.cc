// tests/kernels/math_test.cc -- error of the vector functions in units in the last place, over
// sweeps of the whole range of floats that matters, against libm in double.
#include <functional>

#include "tests/kernels/kernel_runner.h"

namespace cad::backend {
namespace {

using ir::DType;
using ir::Op;

double ulp(double at) {
  const double a = std::max(std::abs(at), 1.1754943508222875e-38);
  int exponent = 0;
  std::frexp(a, &exponent);
  return std::ldexp(1.0, exponent - 24);
}

// Log-spaced magnitudes of both signs and a dense linear part.
std::vector<double> sweep(double least, double most, bool negative, double linear) {
  std::vector<double> x;
  constexpr int kCount = 20000;
  for (int i = 0; i <= kCount; ++i) {
    const double m = least * std::pow(most / least, static_cast<double>(i) / kCount);
    x.push_back(m);
    if (negative) x.push_back(-m);
    x.push_back(negative ? -linear + 2 * linear * i / kCount : linear * i / kCount);
  }
  for (double& v : x) v = static_cast<float>(v);
  return x;
}

double worst(Op op, const std::vector<double>& x, const std::function<double(double)>& exact,
             double* at) {
  Made m;
  ir::DimId n = m.dim("N", static_cast<int64_t>(x.size()));
  ir::ValueId v = m.input(DType::kF32, {n});
  m.inputs[0].data = x;
  m.output(m.b.unary(op, v));
  KernelRunner runner(m.graph, m.bindings);
  ir::EvalContext context;
  const std::vector<double> got = runner.run(m.inputs, context)[0].data;
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = exact(x[i]);
    if (std::abs(want) > 3.4028235e38 || std::abs(want) < 1e-44) continue;
    const double error = std::abs(got[i] - want) / ulp(want);
    if (!(error <= most)) {
      most = error;
      *at = x[i];
    }
  }
  return most;
}

struct Case {
  const char* name;
  Op op;
  double least, most;
  bool negative;
  double linear, bound;
  double (*exact)(double);
};

TEST(Math, ErrorInUlp) {
  const Case cases[] = {
      {"exp", Op::kExp, 1e-8, 104, true, 88, 2, [](double x) { return std::exp(x); }},
      {"log", Op::kLog, 1e-44, 3e38, false, 4, 2, [](double x) { return std::log(x); }},
      {"tanh", Op::kTanh, 1e-30, 30, true, 4, 4, [](double x) { return std::tanh(x); }},
      {"erf", Op::kErf, 1e-30, 30, true, 4, 5, [](double x) { return std::erf(x); }},
      {"sigmoid", Op::kSigmoid, 1e-8, 86, true, 8, 4,
       [](double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }},
      {"softplus", Op::kSoftplus, 1e-8, 86, true, 8, 4,
       [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }},
      {"sin", Op::kSin, 1e-30, 1e5, true, 30, 2.5, [](double x) { return std::sin(x); }},
      {"cos", Op::kCos, 1e-30, 1e5, true, 30, 2.5, [](double x) { return std::cos(x); }},
      {"sqrt", Op::kSqrt, 1e-37, 3e38, false, 4, 0.5001, [](double x) { return std::sqrt(x); }},
      {"rsqrt", Op::kRsqrt, 1e-37, 3e38, false, 4, 1.5, [](double x) { return 1 / std::sqrt(x); }},
  };
  for (const Case& c : cases) {
    double at = 0;
    const double error = worst(c.op, sweep(c.least, c.most, c.negative, c.linear), c.exact, &at);
    EXPECT_LE(error, c.bound) << c.name << " at " << at;
    RecordProperty(c.name, std::to_string(error));
  }
}

}  // namespace
}  // namespace cad::backend
