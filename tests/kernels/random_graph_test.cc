// tests/kernels/random_graph_test.cc -- random graphs of everything that kernels fuse: whatever
// groups come out, the results are the interpreter's. A failing seed is in the trace.
#include "tests/kernels/kernel_runner.h"

namespace cad::backend {
namespace {

using ir::Attrs;
using ir::DimId;
using ir::DType;
using ir::Op;
using ir::ValueId;

class RandomGraph {
 public:
  explicit RandomGraph(unsigned seed) : random_(seed) {
    m.random.seed(seed);
    const int64_t sizes[] = {1, 2, 3, 4, 7, 16, 33, 40};
    for (const char* name : {"A", "B", "C"}) dims_.push_back(m.dim(name, sizes[pick(8)]));
    h_ = m.dim("H", 3);
    k_ = m.dim("K", m.graph.dim(dims_[2]).size.constant().value_or(1));
    wide_ = m.dim("W", 3 * m.graph.dim(dims_[2]).size.constant().value_or(1));
    m.graph.batch_dim = dims_[0];
    values_.push_back(m.input(DType::kF32, dims_));
    values_.push_back(m.input(DType::kF32, {dims_[1], dims_[0], dims_[2]}));
    values_.push_back(m.input(DType::kF32, {dims_[2]}));
    values_.push_back(m.input(DType::kF32, {dims_[0], dims_[1]}));
    values_.push_back(m.input(DType::kF32, {dims_[0], wide_}));
    for (int i = 0; i < 14; ++i) step();
    for (int i = 0; i < 3; ++i)
      m.output(values_[values_.size() - 1 - pick(std::min<size_t>(5, values_.size()))]);
  }
  Made m;

 private:
  size_t pick(size_t n) { return random_() % n; }
  ValueId any() { return values_[values_.size() - 1 - pick(std::min<size_t>(7, values_.size()))]; }
  const ir::Type& type(ValueId v) { return m.graph.type(v); }
  void keep(ir::Builder::Made made) {
    if (made.ok()) values_.push_back(made.results[0]);
  }
  void step() {
    ValueId x = any(), y = any();
    Attrs a;
    switch (pick(13)) {
      case 0:
        keep(m.b.try_make(Op::kAdd, {x, y}));
        break;
      case 1:
        keep(m.b.try_make(Op::kMul, {m.b.unary(Op::kTanh, x), y}));
        break;
      case 2:
        keep(m.b.try_make(Op::kSub, {x, y}));
        break;
      case 3:
        keep(m.b.try_make(Op::kSigmoid, {x}));
        break;
      case 4:
      case 5: {
        if (type(x).rank() == 0) break;
        a.dims = {type(x).dims[pick(type(x).rank())]};
        keep(m.b.try_make(pick(2) == 0 ? Op::kMean : Op::kReduceMax, {x}, a));
        break;
      }
      case 6: {
        if (type(x).rank() == 0) break;
        a.dims = {type(x).dims.back()};
        keep(m.b.try_make(Op::kSoftmax, {x}, a));
        break;
      }
      case 7: {
        std::vector<DimId> order = type(x).dims;
        std::shuffle(order.begin(), order.end(), random_);
        keep({{m.b.ordered(x, order)}, {}});
        break;
      }
      case 8: {
        if (!type(x).has(wide_)) break;
        a.groups = {{{wide_}, {h_, k_}}};
        keep(m.b.try_make(Op::kReshape, {x}, a));
        break;
      }
      case 9: {
        if (!type(x).has(h_) || !type(x).has(k_)) break;
        a.groups = {{{h_, k_}, {wide_}}};
        keep(m.b.try_make(Op::kReshape, {x}, a));
        break;
      }
      case 10: {
        if (type(x).rank() == 0) break;
        a.dim = type(x).dims[pick(type(x).rank())];
        keep(m.b.try_make(Op::kFlip, {x}, a));
        break;
      }
      case 11: {
        a.scalar = 0.3;
        a.site = "d" + std::to_string(values_.size());
        keep(m.b.try_make(Op::kDropout, {x}, a));
        break;
      }
      default: {
        if (type(x).rank() == 0) break;
        keep({{m.b.sum(x, type(x).rank() > 1
                              ? std::vector<DimId>(type(x).dims.begin(), type(x).dims.end() - 1)
                              : type(x).dims)},
              {}});
        break;
      }
    }
  }

  std::mt19937 random_;
  std::vector<DimId> dims_;
  DimId h_, k_, wide_;
  std::vector<ValueId> values_;
};

TEST(RandomGraphs, AgreeWithTheInterpreter) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    RandomGraph graph(seed);
    check(graph.m, 20, 0, 0, seed <= 10);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace cad::backend
