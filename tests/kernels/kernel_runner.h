// tests/kernels/kernel_runner.h -- runs a graph through partition and JIT with plain buffers, one
// thread at a time, and compares with the reference interpreter. Library steps (contractions and
// the like) are taken from the interpreter's own rules, so whole training graphs can be run.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "backend/jit.h"
#include "backend/partition.h"
#include "ir/builder.h"
#include "ir/interpreter.h"

namespace cad::backend {

inline ir::Attrs over(std::vector<ir::DimId> dims) {
  ir::Attrs attrs;
  attrs.dims = std::move(dims);
  return attrs;
}

class KernelRunner {
 public:
  KernelRunner(const ir::Graph& g, const ir::Bindings& bindings, bool fuse = true,
               int lanes = host_lanes())
      : g_(g), bindings_(bindings) {
    PartitionOptions options;
    options.lanes = lanes;
    options.fuse = fuse;
    cut_ = partition(g, bindings, options);
    static std::map<int, Jit> jits;
    code_ = jits.try_emplace(lanes, lanes).first->second.compile(cut_.kernels, 1);
  }
  [[nodiscard]] const Partition& cut() const { return cut_; }
  [[nodiscard]] size_t kernel_steps(size_t region = 0) const {
    size_t n = 0;
    for (const Step& s : cut_.regions[region].steps) n += s.kind == Step::Kind::kKernel ? 1 : 0;
    return n;
  }
  // Splits items in `pieces`; results must not depend on it.
  std::vector<ir::Tensor> run(const std::vector<ir::Tensor>& inputs, const ir::EvalContext& context,
                              int pieces = 1) {
    context_ = context;
    pieces_ = pieces;
    memory_.clear();
    memory_.resize(g_.values.size());
    for (size_t i = 0; i < inputs.size(); ++i) write(g_.inputs[i].value, inputs[i]);
    region(ir::RegionId{0});
    std::vector<ir::Tensor> result;
    for (ir::ValueId v : g_.region(ir::RegionId{0}).results) result.push_back(read(v));
    return result;
  }

 private:
  void allocate(ir::ValueId v) {
    size_t n = 1;
    for (int64_t e : ir::extents_of(g_, g_.type(v), bindings_)) n *= static_cast<size_t>(e);
    // poisoned, with room behind that must stay as it is
    memory_[static_cast<size_t>(v.index)].assign(n * bytes(v) + 64, static_cast<char>(0xA5));
  }
  size_t bytes(ir::ValueId v) const {
    return static_cast<size_t>(ir::dtype_bytes(g_.type(v).dtype));
  }

  static double get(const char* p, ir::DType dtype) {
    switch (dtype) {
      case ir::DType::kF32: {
        float x;
        std::memcpy(&x, p, 4);
        return x;
      }
      case ir::DType::kI32: {
        int32_t x;
        std::memcpy(&x, p, 4);
        return x;
      }
      case ir::DType::kBool:
        return *p;
      case ir::DType::kBF16: {
        uint16_t x;
        std::memcpy(&x, p, 2);
        uint32_t wide = static_cast<uint32_t>(x) << 16;
        float f;
        std::memcpy(&f, &wide, 4);
        return f;
      }
      case ir::DType::kF16: {
        uint16_t x;
        std::memcpy(&x, p, 2);
        const int exponent = x >> 10 & 31, mantissa = x & 1023;
        double v = exponent == 0    ? std::ldexp(mantissa, -24)
                   : exponent == 31 ? (mantissa != 0 ? NAN : INFINITY)
                                    : std::ldexp(1024 + mantissa, exponent - 25);
        return x >> 15 != 0 ? -v : v;
      }
    }
    return 0;
  }
  static void put(char* p, ir::DType dtype, double x) {
    switch (dtype) {
      case ir::DType::kF32: {
        auto f = static_cast<float>(x);
        std::memcpy(p, &f, 4);
        break;
      }
      case ir::DType::kI32: {
        auto i = static_cast<int32_t>(x);
        std::memcpy(p, &i, 4);
        break;
      }
      case ir::DType::kBool:
        *p = x != 0 ? 1 : 0;
        break;
      case ir::DType::kBF16: {
        auto f = static_cast<float>(ir::round_to(x, dtype));
        uint32_t wide;
        std::memcpy(&wide, &f, 4);
        auto half = static_cast<uint16_t>(wide >> 16);
        std::memcpy(p, &half, 2);
        break;
      }
      case ir::DType::kF16: {
        const double r = ir::round_to(x, dtype);
        for (uint32_t bits = 0; bits < 65536; ++bits) {  // small tests: search
          auto half = static_cast<uint16_t>(bits);
          char c[2];
          std::memcpy(c, &half, 2);
          double v = get(c, dtype);
          if (v == r || (std::isnan(v) && std::isnan(r))) {
            std::memcpy(p, c, 2);
            break;
          }
        }
        break;
      }
    }
  }
  template <class F>
  void each(ir::ValueId v, F&& f) const {  // f(flat, element offset)
    const Layout& layout = cut_.layouts[static_cast<size_t>(v.index)];
    std::vector<int64_t> extents = ir::extents_of(g_, g_.type(v), bindings_),
                         index(extents.size(), 0);
    int64_t n = 1;
    for (int64_t e : extents) n *= e;
    for (int64_t flat = 0; flat < n; ++flat) {
      int64_t rest = flat, at = layout.offset;
      for (size_t d = extents.size(); d-- > 0;) {
        at += rest % extents[d] * layout.strides[d];
        rest /= extents[d];
      }
      f(static_cast<size_t>(flat), at);
    }
  }
  ir::Tensor read(ir::ValueId v) const {
    const Layout& layout = cut_.layouts[static_cast<size_t>(v.index)];
    EXPECT_TRUE(layout.base.valid()) << "value " << v.index << " is read but not stored";
    ir::Tensor t{g_.type(v).dtype, ir::extents_of(g_, g_.type(v), bindings_), {}};
    size_t n = 1;
    for (int64_t e : t.extents) n *= static_cast<size_t>(e);
    t.data.resize(n);
    const std::vector<char>& m = memory_[static_cast<size_t>(layout.base.index)];
    EXPECT_FALSE(n > 0 && m.empty()) << "value " << v.index << " is read before it is written";
    each(v, [&](size_t flat, int64_t at) {
      t.data[flat] = get(m.data() + at * static_cast<int64_t>(bytes(v)), t.dtype);
    });
    return t;
  }
  void write(ir::ValueId v, const ir::Tensor& t) {
    allocate(v);
    std::vector<char>& m = memory_[static_cast<size_t>(v.index)];
    for (size_t i = 0; i < t.data.size(); ++i)
      put(m.data() + i * bytes(v), g_.type(v).dtype, t.data[i]);
  }
  void region(ir::RegionId id) {
    for (const Step& step : cut_.regions[static_cast<size_t>(id.index)].steps) {
      if (step.kind == Step::Kind::kKernel)
        kernel(step);
      else if (step.kind == Step::Kind::kLoop)
        loop(step);
      else
        library(step);
    }
  }
  void kernel(const Step& step) {
    const KernelCall& call = cut_.calls[static_cast<size_t>(step.kernel)];
    for (ir::ValueId v : step.outputs) allocate(v);
    std::vector<void*> pointers;
    for (ir::ValueId v : call.buffers) {
      ir::ValueId base = cut_.layouts[static_cast<size_t>(v.index)].base;
      pointers.push_back(memory_[static_cast<size_t>(base.index)].data());
    }
    std::vector<char> scratch(static_cast<size_t>(call.scratch_bytes) + 128,
                              static_cast<char>(0xA5));
    KernelArgs args;
    args.buffers = pointers.data();
    args.ints = call.ints.data();
    args.scratch = scratch.data();
    args.seed = context_.seed;
    args.step = context_.step;
    args.row_offset = context_.step_rows > 0 ? context_.row_offset : 0;
    args.step_rows = context_.step_rows;
    if (args.step_rows == 0 && g_.batch_dim.valid())
      args.step_rows = g_.dim(g_.batch_dim).size.evaluate(bindings_).value;
    const CompiledKernel& code = code_[static_cast<size_t>(call.kernel)];
    for (size_t s = 0; s < code.stages.size(); ++s) {
      const int64_t items = call.items[s];
      for (int piece = pieces_; piece-- > 0;)  // in any order
        code.stages[s](&args, items * piece / pieces_, items * (piece + 1) / pieces_);
    }
    for (ir::ValueId v : step.outputs) {
      const std::vector<char>& m = memory_[static_cast<size_t>(v.index)];
      for (size_t i = m.size() - 64; i < m.size(); ++i)
        ASSERT_EQ(static_cast<unsigned char>(m[i]), 0xA5)
            << "written past the end of value " << v.index;
    }
  }
  void library(const Step& step) {
    const ir::Node& n = g_.node(step.nodes[0]);
    std::vector<ir::Tensor> operands;
    for (ir::ValueId v : n.operands) operands.push_back(read(v));
    std::vector<const ir::Tensor*> pointers;
    for (const ir::Tensor& t : operands) pointers.push_back(&t);
    std::vector<ir::Tensor> results = ir::op_info(n.op).eval(g_, n, pointers, context_);
    for (size_t i = 0; i < results.size(); ++i) write(n.results[i], results[i]);
  }
  void loop(const Step& step) {
    const ir::Node& n = g_.node(step.nodes[0]);
    const ir::Loop& loop = n.loop;
    const ir::Region& body = g_.region(loop.body);
    const int64_t count = g_.dim(loop.dim).size.evaluate(bindings_).value;
    std::vector<ir::Tensor> operands, carried, collected;
    for (ir::ValueId v : n.operands) operands.push_back(read(v));
    carried.assign(operands.begin(), operands.begin() + loop.carries);
    for (int c = 0; c < loop.collected; ++c) {
      ir::ValueId v = n.results[static_cast<size_t>(loop.carries + c)];
      ir::Tensor t{g_.type(v).dtype, ir::extents_of(g_, g_.type(v), bindings_), {}};
      size_t size = 1;
      for (int64_t e : t.extents) size *= static_cast<size_t>(e);
      t.data.resize(size);
      collected.push_back(t);
    }
    for (int64_t k = 0; k < count; ++k) {
      const int64_t number = loop.reverse ? count - 1 - k : k;
      size_t at = 0;
      write(body.args[at++], {ir::DType::kI32, {}, {static_cast<double>(number)}});
      for (const ir::Tensor& t : carried) write(body.args[at++], t);
      for (int s = 0; s < loop.scanned; ++s) {
        const ir::Tensor& all = operands[static_cast<size_t>(loop.carries + s)];
        ir::Tensor slice{all.dtype, {all.extents.begin() + 1, all.extents.end()}, {}};
        const size_t size = all.data.size() / static_cast<size_t>(all.extents[0]);
        slice.data.assign(all.data.begin() + static_cast<std::ptrdiff_t>(size) * number,
                          all.data.begin() + static_cast<std::ptrdiff_t>(size) * (number + 1));
        write(body.args[at++], slice);
      }
      for (int i = 0; i < loop.invariants; ++i)
        write(body.args[at++], operands[static_cast<size_t>(loop.carries + loop.scanned + i)]);
      region(loop.body);
      for (int c = 0; c < loop.carries; ++c)
        carried[static_cast<size_t>(c)] = read(body.results[static_cast<size_t>(c)]);
      for (int c = 0; c < loop.collected; ++c) {
        ir::Tensor t = read(body.results[static_cast<size_t>(loop.carries + c)]);
        std::copy(t.data.begin(), t.data.end(),
                  collected[static_cast<size_t>(c)].data.begin() +
                      static_cast<std::ptrdiff_t>(t.data.size()) * number);
      }
    }
    for (int c = 0; c < loop.carries; ++c)
      write(n.results[static_cast<size_t>(c)], carried[static_cast<size_t>(c)]);
    for (int c = 0; c < loop.collected; ++c)
      write(n.results[static_cast<size_t>(loop.carries + c)], collected[static_cast<size_t>(c)]);
  }

  const ir::Graph& g_;
  ir::Bindings bindings_;
  Partition cut_;
  std::vector<CompiledKernel> code_;
  std::vector<std::vector<char>> memory_;
  ir::EvalContext context_;
  int pieces_ = 1;
};

// A graph with one region, built by hand.
struct Made {
  ir::Graph graph;
  ir::Bindings bindings;
  std::vector<ir::Tensor> inputs;
  ir::Builder b{graph, ir::RegionId{0}};
  std::mt19937 random{7};

  ir::DimId dim(const std::string& name, int64_t size) {
    return graph.add_dim(name, ir::Size(size));
  }
  // Random: floats of about -2 to 2, i32 in [low, high), bools.
  ir::ValueId input(ir::DType dtype, const std::vector<ir::DimId>& dims, int low = -4,
                    int high = 5) {
    ir::Input row;
    row.kind = ir::InputKind::kOther;
    row.path = "in" + std::to_string(graph.inputs.size());
    ir::ValueId v = b.input(row, ir::Type{dtype, dims});
    ir::Tensor t{dtype, ir::extents_of(graph, graph.type(v), bindings), {}};
    size_t n = 1;
    for (int64_t e : t.extents) n *= static_cast<size_t>(e);
    for (size_t i = 0; i < n; ++i) {
      double x = 0;
      if (dtype == ir::DType::kI32)
        x = std::uniform_int_distribution<int>(low, high - 1)(random);
      else if (dtype == ir::DType::kBool)
        x = static_cast<double>(random() & 1);
      else
        x = ir::round_to(std::normal_distribution<double>(0, 1)(random), dtype);
      t.data.push_back(x);
    }
    inputs.push_back(t);
    return v;
  }
  void output(ir::ValueId v) {
    graph.region(ir::RegionId{0}).results.push_back(v);
    graph.outputs.push_back({"result:" + std::to_string(graph.outputs.size())});
  }
};

inline double tolerance_of(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kBF16:
      return 0.02;
    case ir::DType::kF16:
      return 0.003;
    case ir::DType::kF32:
      return 2e-5;
    default:
      return 0;
  }
}

inline void expect_close(const std::vector<ir::Tensor>& got, const std::vector<ir::Tensor>& want,
                         double factor = 1) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t r = 0; r < got.size(); ++r) {
    ASSERT_EQ(got[r].extents, want[r].extents) << "result " << r;
    const double tolerance = tolerance_of(want[r].dtype) * factor;
    int faults = 0;
    for (size_t i = 0; i < want[r].data.size() && faults < 5; ++i) {
      const double a = got[r].data[i], e = ir::round_to(want[r].data[i], want[r].dtype);
      const bool same = (std::isnan(a) && std::isnan(e)) || a == e ||
                        std::abs(a - e) <= tolerance * std::max(1.0, std::abs(e));
      if (!same) ++faults;
      EXPECT_TRUE(same) << "result " << r << " element " << i << ": " << a << ", wanted " << e;
    }
  }
}

// Runs fused, unfused, and split over items (and with the vectors of smaller machines); all against
// the interpreter. Returns fused kernel steps.
inline size_t check(Made& m, double factor = 1, int64_t row_offset = 0, int64_t step_rows = 0,
                    bool other_lanes = false) {
  ir::EvalContext context;
  context.bindings = m.bindings;
  context.seed = 1234;
  context.step = 5;
  context.row_offset = row_offset;
  context.step_rows = step_rows;
  ir::EvalContext reference = context;
  std::vector<ir::Tensor> want = ir::interpret(m.graph, m.inputs, reference);
  KernelRunner fused(m.graph, m.bindings), apart(m.graph, m.bindings, false);
  std::vector<ir::Tensor> one = fused.run(m.inputs, context, 1);
  expect_close(one, want, factor);
  std::vector<ir::Tensor> three = fused.run(m.inputs, context, 3);
  for (size_t r = 0; r < one.size(); ++r)
    for (size_t i = 0; i < one[r].data.size(); ++i)
      EXPECT_TRUE(one[r].data[i] == three[r].data[i] ||
                  (std::isnan(one[r].data[i]) && std::isnan(three[r].data[i])))
          << "depends on how items are split";
  expect_close(apart.run(m.inputs, context, 2), want, factor);
  if (other_lanes)
    for (int lanes : {4, 8}) {
      SCOPED_TRACE(lanes);
      expect_close(KernelRunner(m.graph, m.bindings, true, lanes).run(m.inputs, context), want,
                   factor);
    }
  return fused.kernel_steps();
}

}  // namespace cad::backend
