// frontend/lower_train_means.cc -- what evaluation and the data checks must know of a graph: which
// parts of a value are exact means over the batch, and which dims the ids of the data index.
#include <map>
#include <set>

#include "frontend/lower_train.h"
#include "ir/builder.h"

namespace cad::frontend {

namespace {

using ir::Op;
using ir::ValueId;

// value = sum over terms of sum / count.
struct Term {
  ValueId sum, count;
  bool exact = false;
};

class MeanSplitter {
 public:
  MeanSplitter(ir::Graph& graph, ValueId mask)
      : g_(graph), b_(graph, ir::RegionId{0}), mask_(mask) {}

  std::vector<Term> split(ValueId value, int depth = 0) {
    const ir::NodeId def = g_.value(value).def;
    if (def.valid() && depth < 500) {
      const ir::Node node = g_.node(def);  // a copy: nodes are appended below
      switch (node.op) {
        case Op::kAdd:
        case Op::kSub: {
          auto terms = split(node.operands[0], depth + 1);
          auto right = split(node.operands[1], depth + 1);
          for (Term& t : right) {
            if (node.op == Op::kSub) t.sum = b_.unary(Op::kNeg, t.sum);
          }
          terms.insert(terms.end(), right.begin(), right.end());
          return terms;
        }
        case Op::kNeg:
          return scaled(split(node.operands[0], depth + 1), Op::kNeg, {}, false);
        case Op::kMul:
          if (is_constant(node.operands[0]))
            return scaled(split(node.operands[1], depth + 1), Op::kMul, node.operands[0], true);
          if (is_constant(node.operands[1]))
            return scaled(split(node.operands[0], depth + 1), Op::kMul, node.operands[1], false);
          break;
        case Op::kDiv:
          if (is_constant(node.operands[1]))
            return scaled(split(node.operands[0], depth + 1), Op::kDiv, node.operands[1], false);
          break;
        case Op::kCast:
          if (ir::is_float(node.attrs.dtype) && ir::is_float(g_.value(node.operands[0]).type.dtype))
            return split(node.operands[0], depth + 1);
          break;
        case Op::kMean:
          if (over_batch(node)) return {mean(node)};
          break;
        default:
          break;
      }
    }
    return {{b_.cast(value, ir::DType::kF32), b_.constant(1.0, ir::DType::kF32), false}};
  }

 private:
  std::vector<Term> scaled(std::vector<Term> terms, Op op, ValueId by, bool left) {
    for (Term& t : terms) {
      if (!by.valid()) {
        t.sum = b_.unary(op, t.sum);
      } else {
        const ValueId factor = b_.cast(by, ir::DType::kF32);
        t.sum = left ? b_.make(op, {factor, t.sum}) : b_.make(op, {t.sum, factor});
      }
    }
    return terms;
  }

  // A number for any data: constants and arithmetic on them.
  bool is_constant(ValueId value, int depth = 0) const {
    const ir::NodeId def = g_.value(value).def;
    if (!def.valid() || depth > 100) return false;
    const ir::Node& node = g_.node(def);
    if (node.op == Op::kConst) return true;
    if (std::string(ir::op_family(node.op)) != "pointwise") return false;
    for (ValueId operand : node.operands) {
      if (!is_constant(operand, depth + 1)) return false;
    }
    return true;
  }

  // All dims of the operand are reduced, the batch dim among them.
  bool over_batch(const ir::Node& node) const {
    if (!g_.batch_dim.valid() || !g_.value(node.results[0]).type.dims.empty()) return false;
    return g_.value(node.operands[0]).type.has(g_.batch_dim);
  }

  Term mean(const ir::Node& node) {
    const ValueId x = b_.cast(node.operands[0], ir::DType::kF32);
    const std::vector<ir::DimId> dims = g_.value(x).type.dims;
    const ValueId zero = b_.constant(0.0, ir::DType::kF32);
    if (node.operands.size() > 1) {
      const ValueId weight = b_.broadcast(b_.cast(node.operands[1], ir::DType::kF32), dims);
      const ValueId sum = b_.sum(b_.where(mask_, b_.mul(x, weight), zero), dims);
      return {sum, b_.sum(b_.where(mask_, weight, zero), dims), true};
    }
    ir::Size others(1);
    for (ir::DimId dim : dims) {
      if (dim != g_.batch_dim) others = others * g_.dim(dim).size;
    }
    const ValueId rows = b_.sum(b_.cast(mask_, ir::DType::kF32), {g_.batch_dim});
    const ValueId count = b_.mul(rows, b_.constant(ir::Scalar::size(others), ir::DType::kF32));
    return {b_.sum(b_.where(mask_, x, zero), dims), count, true};
  }

  ir::Graph& g_;
  ir::Builder b_;
  ValueId mask_;
};

// Walks back from an index to the data inputs whose values it holds unchanged.
class IdTracer {
 public:
  explicit IdTracer(const ir::Graph& graph) : g_(graph) {}

  std::set<std::string> data_of(ValueId value) {
    seen_.clear();
    found_.clear();
    trace(value);
    return found_;
  }

 private:
  void trace(ValueId id) {
    if (!id.valid() || !seen_.insert(id.index).second) return;
    const ir::Value& value = g_.value(id);
    if (!value.def.valid()) return trace_argument(value);
    const ir::Node& node = g_.node(value.def);
    switch (node.op) {
      case Op::kInput: {
        const ir::Input& input = g_.inputs[static_cast<size_t>(node.attrs.input.index)];
        if (input.kind == ir::InputKind::kData) found_.insert(input.path);
        return;
      }
      case Op::kCast:
        if (g_.value(node.operands[0]).type.dtype == ir::DType::kI32) trace(node.operands[0]);
        return;
      case Op::kWhere:
        trace(node.operands[1]);
        trace(node.operands[2]);
        return;
      case Op::kRename:
      case Op::kReshape:
      case Op::kSlice:
      case Op::kPad:
      case Op::kFlip:
      case Op::kTranspose:
      case Op::kBroadcast:
      case Op::kStop:
      case Op::kSelect:
      case Op::kGather:
      case Op::kWindow:
        trace(node.operands[0]);
        return;
      case Op::kConcat:
      case Op::kStack:
        for (ValueId operand : node.operands) trace(operand);
        return;
      case Op::kRepeat: {
        const ir::Region& body = g_.region(node.loop.body);
        const auto at = static_cast<size_t>(value.result);
        if (at < body.results.size()) trace(body.results[at]);
        if (value.result < node.loop.carries) trace(node.operands[at]);
        return;
      }
      default:
        return;
    }
  }

  // Argument i + 1 of a loop's body is its operand i.
  void trace_argument(const ir::Value& value) {
    const ir::NodeId owner = g_.region(value.region).owner;
    if (!owner.valid() || value.result < 1) return;
    const ir::Node& loop = g_.node(owner);
    const auto at = static_cast<size_t>(value.result - 1);
    if (at < loop.operands.size()) trace(loop.operands[at]);
  }

  const ir::Graph& g_;
  std::set<int32_t> seen_;
  std::set<std::string> found_;
};

using Limits = std::map<std::string, std::vector<ir::Size>>;

// one_hot[V](ids) is f32(ids == iota[V]).
void one_hot_limits(const ir::Graph& graph, ValueId equal, IdTracer& tracer, Limits& limits) {
  const ir::NodeId def = graph.value(equal).def;
  if (!def.valid() || graph.node(def).op != Op::kEq) return;
  for (size_t side = 0; side < 2; ++side) {
    ir::NodeId at = graph.value(graph.node(def).operands[side]).def;
    while (at.valid() && graph.node(at).op == Op::kBroadcast) {
      at = graph.value(graph.node(at).operands[0]).def;
    }
    if (!at.valid() || graph.node(at).op != Op::kIota) continue;
    const ir::Size size = graph.dim(graph.node(at).attrs.dim).size;
    for (const std::string& name : tracer.data_of(graph.node(def).operands[1 - side])) {
      limits[name].push_back(size);
    }
  }
}

}  // namespace

void output_means(ir::Graph& graph, ValueId value, ValueId row_mask, const std::string& name) {
  const auto add = [&](const std::string& output, ValueId v) {
    graph.outputs.push_back({output});
    graph.regions[0].results.push_back(v);
  };
  std::vector<Term> terms = MeanSplitter(graph, row_mask).split(value);
  bool exact = false;
  for (const Term& term : terms) exact = exact || term.exact;
  if (!exact) return add("value:" + name, value);
  for (size_t i = 0; i < terms.size(); ++i) {
    const std::string part = i == 0 ? name : name + "#" + std::to_string(i + 1);
    add("sum:" + part, terms[i].sum);
    add("count:" + part, terms[i].count);
  }
}

void find_id_limits(const ir::Graph& graph, ir::DataSpec& data) {
  IdTracer tracer(graph);
  Limits limits;
  for (const ir::Node& node : graph.nodes) {
    if (node.op == Op::kGather) {
      const ir::Type& type = graph.value(node.operands[0]).type;
      if (!type.has(node.attrs.dim)) continue;
      for (const std::string& name : tracer.data_of(node.operands[1]))
        limits[name].push_back(graph.dim(node.attrs.dim).size);
    } else if (node.op == Op::kCast && ir::is_float(node.attrs.dtype)) {
      one_hot_limits(graph, node.operands[0], tracer, limits);
    }
  }
  for (ir::DataSource& source : data) {
    for (ir::DataName& name : source.names) {
      for (const ir::Size& size : limits[name.name]) {
        bool known = false;
        for (const ir::Size& have : name.id_limits) known = known || have == size;
        if (!known) name.id_limits.push_back(size);
      }
    }
  }
}

}  // namespace cad::frontend
