// Attention, forward and backward, against the interpreter: odd sizes, grouped queries, masks,
// causality, dropout (which must agree bit for bit in what it drops), storage orders, threads.
#include "backend/cpu/attention.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "backend/cpu/thread_pool.h"
#include "ir/builder.h"
#include "tests/runtime/values.h"

namespace cad::backend {
namespace {

using ir::DimId;
using testing::Memory;

struct Case {
  std::vector<std::string> q, k, v;  // dims; T, S, K and V as in ops.def
  std::vector<std::string> mask;     // empty: none
  std::vector<std::string> probs;
  bool causal = false;
  double p = 0;
  ir::DType dtype = ir::DType::kF32;
  std::map<std::string, int64_t> sizes;
};

// A graph of attention and its gradient over inputs q, k, v, g and perhaps a mask.
class Attention {
 public:
  explicit Attention(const Case& c) : case_(c) {
    for (const auto& [name, size] : c.sizes) dims_[name] = graph_.add_dim(name, ir::Size(size));
    graph_.batch_dim = dims_.at("B");
    ir::Builder b(graph_, ir::RegionId{0});
    const auto input = [&](const std::vector<std::string>& names, ir::DType dtype) {
      ir::Attrs attrs;
      attrs.input = ir::InputId{static_cast<int32_t>(graph_.inputs.size())};
      const ir::ValueId v = graph_.add_value(ir::RegionId{0}, {dtype, ids(names)});
      ir::Node node;
      node.op = ir::Op::kInput;
      node.attrs = attrs;
      node.results = {v};
      node.region = ir::RegionId{0};
      const ir::NodeId id{static_cast<int32_t>(graph_.nodes.size())};
      graph_.nodes.push_back(node);
      graph_.value(v).def = id;
      graph_.region(ir::RegionId{0}).nodes.push_back(id);
      ir::Input in;
      in.path = "x" + std::to_string(graph_.inputs.size());
      in.value = v;
      graph_.inputs.push_back(in);
      return v;
    };
    std::vector<ir::ValueId> operands{input(c.q, c.dtype), input(c.k, c.dtype),
                                      input(c.v, c.dtype)};
    if (!c.mask.empty()) operands.push_back(input(c.mask, ir::DType::kBool));
    ir::Attrs attrs;
    attrs.dims = ids({"T", "S", "K"});
    attrs.scalar = 0.3;
    attrs.causal = c.causal;
    attrs.masked = !c.mask.empty();
    attrs.p = c.p;
    attrs.site = "h.attention.dropout";
    attrs.probs = ids(c.probs);
    if (c.p > 0) operands.push_back(b.constant(2.0, ir::DType::kI32));
    const std::vector<ir::ValueId> made = b.make_all(ir::Op::kAttention, operands, attrs);
    forward_ = graph_.value(made[0]).def;
    std::vector<std::string> out_names;
    for (const DimId d : graph_.type(made[0]).dims) out_names.push_back(graph_.dim(d).name);
    const ir::ValueId g = input(out_names, c.dtype);
    std::vector<ir::ValueId> back{operands[0], operands[1], operands[2], made[0], made[1], g};
    back.insert(back.end(), operands.begin() + 3, operands.end());
    const std::vector<ir::ValueId> grads = b.make_all(ir::Op::kAttentionGrad, back, attrs);
    backward_ = graph_.value(grads[0]).def;
    for (const ir::ValueId v : {made[0], made[1], grads[0], grads[1], grads[2]}) {
      graph_.region(ir::RegionId{0}).results.push_back(v);
      graph_.outputs.push_back({"r"});
    }
  }

  void check(int threads, unsigned seed) {
    std::mt19937 random(seed);
    ir::EvalContext context;
    context.seed = 7;
    context.step = 3;
    context.row_offset = 4;
    context.step_rows = 4 + case_.sizes.at("B") + 1;
    context.round = true;
    std::vector<ir::Tensor> inputs;
    for (const ir::Input& in : graph_.inputs) {
      const ir::Type& type = graph_.type(in.value);
      inputs.push_back(
          testing::random_tensor(type.dtype, ir::extents_of(graph_, type, {}), random));
    }
    const std::vector<ir::Tensor> expected = ir::interpret(graph_, inputs, context);

    // Inputs in random storage orders; results dense.
    std::vector<Layout> layouts(graph_.values.size());
    std::map<int32_t, Memory> memory;
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const std::vector<int64_t> extents = ir::extents_of(graph_, graph_.values[v].type, {});
      std::vector<size_t> order(extents.size());
      for (size_t d = 0; d < order.size(); ++d) order[d] = d;
      const bool is_input =
          std::any_of(graph_.inputs.begin(), graph_.inputs.end(),
                      [&](const ir::Input& in) { return in.value.index == static_cast<int>(v); });
      if (is_input) std::shuffle(order.begin(), order.end(), random);
      layouts[v].strides.assign(extents.size(), 0);
      int64_t stride = 1;
      for (size_t d = order.size(); d-- > 0; stride *= extents[order[d]])
        layouts[v].strides[order[d]] = stride;
      memory.emplace(
          static_cast<int>(v),
          Memory(static_cast<size_t>(stride * ir::dtype_bytes(graph_.values[v].type.dtype))));
    }
    for (size_t i = 0; i < inputs.size(); ++i)
      put(inputs[i], graph_.inputs[i].value, layouts, memory);
    ThreadPool pool(threads);
    AttentionRun run;
    const auto at = [&](ir::ValueId v) { return memory.at(v.index).get(); };
    const ir::Node &forward = graph_.node(forward_), &backward = graph_.node(backward_);
    run.q = at(forward.operands[0]);
    run.k = at(forward.operands[1]);
    run.v = at(forward.operands[2]);
    if (!case_.mask.empty()) run.mask = static_cast<uint8_t*>(at(forward.operands[3]));
    run.out = at(forward.results[0]);
    run.lse = static_cast<float*>(at(forward.results[1]));
    if (case_.p > 0) run.numbers = {2};
    run.seed = context.seed;
    run.step = context.step;
    run.row_offset = context.row_offset;
    run.step_rows = context.step_rows;
    const AttentionPlan plan = plan_attention(graph_, forward, layouts, {}, threads);
    const Memory scratch(static_cast<size_t>(plan.scratch_bytes));
    run.scratch = scratch.get();
    run_attention(plan, run, pool);
    expect_used(scratch);
    const AttentionPlan back = plan_attention(graph_, backward, layouts, {}, threads);
    const Memory more(static_cast<size_t>(back.scratch_bytes));
    run.scratch = more.get();
    run.g = at(backward.operands[5]);
    run.dq = at(backward.results[0]);
    run.dk = at(backward.results[1]);
    run.dv = at(backward.results[2]);
    run_attention_grad(back, run, pool);
    expect_used(more);
    const std::vector<ir::ValueId>& results = graph_.region(ir::RegionId{0}).results;
    for (size_t r = 0; r < results.size(); ++r) {
      const ir::Type& type = graph_.type(results[r]);
      const ir::Tensor got = testing::from_memory(memory.at(results[r].index), type.dtype,
                                                  ir::extents_of(graph_, type, {}));
      const double loose = type.dtype == ir::DType::kF32 ? 4 : 3;
      EXPECT_LE(testing::difference(got, expected[r]), loose * testing::tolerance(case_.dtype))
          << "result " << r << " seed " << seed;
    }
  }

 private:
  // To its last line and no further: what is counted as memory is memory that is used.
  static void expect_used(const Memory& scratch) {
    const auto untouched = [](const char* from) {
      return std::all_of(from, from + 64, [](char c) { return c == '\xFF'; });
    };
    const size_t bytes = scratch.bytes();
    EXPECT_FALSE(bytes > 0 && untouched(scratch.as<char>() + bytes - 64));
    EXPECT_TRUE(untouched(scratch.as<char>() + bytes));
  }
  std::vector<DimId> ids(const std::vector<std::string>& names) const {
    std::vector<DimId> all;
    for (const std::string& name : names) all.push_back(dims_.at(name));
    return all;
  }
  void put(const ir::Tensor& t, ir::ValueId v, const std::vector<Layout>& layouts,
           std::map<int32_t, Memory>& memory) {
    for (size_t i = 0; i < t.data.size(); ++i) {
      int64_t rest = static_cast<int64_t>(i), to = 0;
      for (size_t d = t.extents.size(); d-- > 0;) {
        to += rest % t.extents[d] * layouts[static_cast<size_t>(v.index)].strides[d];
        rest /= t.extents[d];
      }
      testing::put_stored(memory.at(v.index).get(), to, t.dtype, t.data[i]);
    }
  }

  Case case_;
  ir::Graph graph_;
  std::map<std::string, DimId> dims_;
  ir::NodeId forward_, backward_;
};

const std::map<std::string, int64_t> kSizes{{"B", 2},  {"H", 3},  {"G", 2}, {"R", 3},
                                            {"T", 37}, {"S", 41}, {"K", 5}, {"V", 6}};

Case plain() {
  Case c;
  c.q = {"B", "T", "H", "K"};
  c.k = {"B", "S", "H", "K"};
  c.v = {"B", "S", "H", "V"};
  c.probs = {"B", "T", "H", "S"};
  c.sizes = kSizes;
  return c;
}

void check(const Case& c) {
  for (const int threads : {1, 2, 3, 7})
    Attention(c).check(threads, static_cast<unsigned>(threads));
}

TEST(Attention, Plain) {
  check(plain());
}

TEST(Attention, Causal) {
  Case c = plain();
  c.causal = true;
  check(c);
  c.sizes["S"] = 12;  // fewer keys than queries
  check(c);
  c.sizes["S"] = 80;
  check(c);
}

TEST(Attention, MaskThatHidesWholeRows) {
  Case c = plain();
  c.mask = {"T", "S"};
  c.causal = true;
  check(c);
  c.mask = {"B", "S"};
  c.sizes["S"] = 2;
  check(c);
}

TEST(Attention, GroupedQueries) {
  Case c = plain();
  c.q = {"B", "T", "G", "R", "K"};
  c.k = {"B", "S", "G", "K"};
  c.v = {"B", "S", "G", "V"};
  c.probs = {"B", "T", "G", "R", "S"};
  c.causal = true;
  check(c);
}

TEST(Attention, DropoutIsTheInterpreters) {
  Case c = plain();
  c.p = 0.3;
  c.causal = true;
  check(c);
  c.probs = {"H", "B", "S", "T"};  // the batch dim is not first
  check(c);
  c.p = 1;
  check(c);
}

// k and v have batch dims that the other lacks: their gradients come in parts.
TEST(Attention, KeysAndValuesOfDifferentDims) {
  Case c = plain();
  c.k = {"B", "S", "K"};
  c.v = {"H", "S", "V"};
  check(c);
  c.k = {"S", "K"};
  check(c);
}

TEST(Attention, Halves) {
  Case c = plain();
  c.dtype = ir::DType::kBF16;
  check(c);
  c.dtype = ir::DType::kF16;
  check(c);
}

TEST(Attention, SmallAndEmpty) {
  for (const auto& [name, size] : std::vector<std::pair<std::string, int64_t>>{{"T", 1},
                                                                               {"S", 1},
                                                                               {"K", 1},
                                                                               {"V", 1},
                                                                               {"H", 1},
                                                                               {"B", 1},
                                                                               {"S", 0},
                                                                               {"T", 0},
                                                                               {"B", 0},
                                                                               {"K", 0},
                                                                               {"V", 0}}) {
    Case c = plain();
    c.sizes[name] = size;
    check(c);
  }
}

TEST(Attention, Long) {
  Case c = plain();
  c.sizes = {{"B", 1}, {"H", 2}, {"T", 130}, {"S", 300}, {"K", 33}, {"V", 40}};
  check(c);
}

}  // namespace
}  // namespace cad::backend
