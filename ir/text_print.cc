// ir/text_print.cc -- the IR as text: dims and inputs first, one line a node, bodies indented,
// outputs last. Values are numbered in textual order, so printing is canonical; text_parse.cc reads
// it back. Scopes are kept, source spans are not.
//
//   axis dp = 2
//   dim K = "D/H"
//   dim B.1 = "3" part of B over [dp]
//   input 0 param "h.{}.Wq" loop_dims=1 init=normal(0.02)
//   begin
//     %q.7: [B, T, H, K] = contract(%x.3, %Wq.4) dims=[D] scope="h.{}.attention"
//     %9: [B, T, D] = repeat h carries(%x.3) scanned(%W.2) invariants() collects=0 {
//       args %10: i32[], %11: [B, T, D], %12: [D, D]
//       ..
//       yield %20
//     }
//   output "loss" %30
#include "ir/text_names.h"

namespace cad::ir {

namespace {

class Printer {
 public:
  explicit Printer(const Graph& g) : g_(g), numbers_(g.values.size(), -1) {}

  std::string run() {
    out_ = "graph\n";
    if (g_.batch_dim.valid()) line(fmt::format("batch {}", dim(g_.batch_dim)));
    for (const MeshAxis& axis : g_.mesh)
      line(fmt::format("axis {} = {}", text_word(axis.name), axis.size));
    for (const Dim& d : g_.dims) {
      line(fmt::format("dim {} = {}{}{}", text_word(d.name), text_quote(d.size.str()),
                       d.pack ? " pack" : "", part(d)));
    }
    for (size_t i = 0; i < g_.inputs.size(); ++i) input(i);
    line("begin");
    region(RegionId{0}, 1);
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const auto& results = g_.regions[0].results;
      line(fmt::format("output {} {}", text_quote(g_.outputs[i].name),
                       i < results.size() ? use(results[i]) : "%?"));
    }
    return std::move(out_);
  }

 private:
  void line(const std::string& text) { out_ += text + "\n"; }

  std::string dim(DimId id) const { return id.valid() ? text_word(g_.dim(id).name) : "?"; }

  std::string axis(size_t index) const {
    return index < g_.mesh.size() ? text_word(g_.mesh[index].name) : "?";
  }
  std::string axes(uint32_t set) const {
    std::string text;
    for (size_t a = 0; a < 32; ++a) {
      if ((set >> a & 1) != 0) text += (text.empty() ? "" : ", ") + axis(a);
    }
    return "[" + text + "]";
  }
  // " part of B over [dp, tp]"
  std::string part(const Dim& d) const {
    if (!d.whole.valid()) return "";
    std::string text;
    for (const int8_t a : d.axes) text += (text.empty() ? "" : ", ") + axis(static_cast<size_t>(a));
    return fmt::format(" part of {} over [{}]", dim(d.whole), text);
  }

  std::string dims(const std::vector<DimId>& list) const {
    std::string text = "[";
    for (size_t i = 0; i < list.size(); ++i) text += (i > 0 ? ", " : "") + dim(list[i]);
    return text + "]";
  }

  std::string type(const Type& t) const {
    return (t.dtype == DType::kF32 ? "" : dtype_name(t.dtype)) + dims(t.dims);
  }

  std::string use(ValueId id) const {
    if (!id.valid()) return "%?";
    const std::string& name = g_.value(id).name;
    const int32_t number = numbers_[static_cast<size_t>(id.index)];
    if (name.empty()) return fmt::format("%{}", number);
    return fmt::format("%{}.{}", text_word(name), number);
  }

  std::string uses(const std::vector<ValueId>& list, size_t from, size_t count) const {
    std::string text;
    for (size_t i = from; i < std::min(from + count, list.size()); ++i) {
      text += (i > from ? ", " : "") + use(list[i]);
    }
    return text;
  }

  std::string define(ValueId id) {
    numbers_[static_cast<size_t>(id.index)] = next_++;
    return use(id) + ": " + type(g_.type(id)) + pins(g_.value(id));
  }

  // " pins(H: tp, D: none) keep"
  std::string pins(const Value& value) const {
    std::string text;
    for (const Pin& pin : value.pins) {
      text += (text.empty() ? " pins(" : ", ") + dim(pin.dim) + ": " +
              (pin.axis.empty() ? "none" : text_word(pin.axis));
    }
    if (!text.empty()) text += ")";
    if (value.saving != Saving::kAuto)
      text += fmt::format(" {}", kSavings[static_cast<size_t>(value.saving)]);
    return text;
  }

  std::string defines(const std::vector<ValueId>& list) {
    std::string text;
    for (size_t i = 0; i < list.size(); ++i) text += (i > 0 ? ", " : "") + define(list[i]);
    return text;
  }

  void input(size_t index) {
    const Input& in = g_.inputs[index];
    std::string text = fmt::format("input {} {} {}", index,
                                   kInputKinds[static_cast<size_t>(in.kind)], text_quote(in.path));
    if (in.loop_dims != 0) text += fmt::format(" loop_dims={}", in.loop_dims);
    if (in.init.kind != Init::Kind::kZeros || !(in.init.scale == Scalar())) {
      text += fmt::format(" init={}({})", kInitKinds[static_cast<size_t>(in.init.kind)],
                          text_scalar(in.init.scale));
    }
    if (in.frozen) text += " frozen";
    if (in.decay != Input::Decay::kByRank) {
      text += fmt::format(" decay={}", kDecays[static_cast<size_t>(in.decay)]);
    }
    line(text);
  }

  std::string group(const DimGroup& item) const { return dims(item.from) + " -> " + dims(item.to); }

  std::string attrs(Op op, const Attrs& a) const {
    const Attrs plain;
    std::string text;
    if (!a.dims.empty()) text += " dims=" + dims(a.dims);
    if (!a.groups.empty()) {
      text += " groups=(";
      for (size_t i = 0; i < a.groups.size(); ++i) text += (i > 0 ? ", " : "") + group(a.groups[i]);
      text += ")";
    }
    if (a.dim.valid()) text += " dim=" + dim(a.dim);
    if (a.to.valid()) text += " to=" + dim(a.to);
    if (a.window.valid()) text += " window=" + dim(a.window);
    if (!(a.start == plain.start)) text += " start=" + text_quote(a.start.str());
    if (op == Op::kConst || !(a.scalar == plain.scalar) || text_scalar(a.scalar) == "-0") {
      text += " scalar=" + text_scalar(a.scalar);
    }
    if (a.stride != plain.stride) text += fmt::format(" stride={}", a.stride);
    if (a.pad != plain.pad) text += fmt::format(" pad={}", a.pad);
    if (a.dilation != plain.dilation) text += fmt::format(" dilation={}", a.dilation);
    if (a.reverse) text += " reverse";
    if (a.dtype != plain.dtype) text += fmt::format(" dtype={}", dtype_name(a.dtype));
    if (a.input.valid()) text += fmt::format(" input={}", a.input.index);
    if (!a.site.empty()) text += " site=" + text_quote(a.site);
    if (a.causal) text += " causal";
    if (a.masked) text += " masked";
    if (!(a.p == plain.p)) text += " p=" + text_scalar(a.p);
    if (!a.probs.empty()) text += " probs=" + dims(a.probs);
    if (a.axes != 0) text += " axes=" + axes(a.axes);
    if (a.reduction != plain.reduction)
      text += fmt::format(" reduction={}", kReductions[static_cast<size_t>(a.reduction)]);
    return text;
  }

  void node(NodeId id, int depth) {
    const Node& n = g_.node(id);
    const std::string indent(static_cast<size_t>(2 * depth), ' ');
    std::string tail = attrs(n.op, n.attrs);
    if (!n.scope.empty()) tail += " scope=" + text_quote(n.scope);
    std::string text = indent;
    if (n.op != Op::kRepeat) {
      const std::string operands = uses(n.operands, 0, n.operands.size());
      text += defines(n.results);
      line(fmt::format("{} = {}({}){}", text, op_name(n.op), operands, tail));
      return;
    }
    const Loop& loop = n.loop;
    const auto carries = static_cast<size_t>(loop.carries);
    const auto scanned = static_cast<size_t>(loop.scanned);
    const std::string operands =
        fmt::format("repeat {} carries({}) scanned({}) invariants({}) collects={}{}{} {{",
                    dim(loop.dim), uses(n.operands, 0, carries), uses(n.operands, carries, scanned),
                    uses(n.operands, carries + scanned, n.operands.size()), loop.collected,
                    loop.reverse ? " backwards" : "", tail);
    text += defines(n.results);
    line(text + (n.results.empty() ? "" : " = ") + operands);
    if (loop.body.valid()) region(loop.body, depth + 1);
    line(indent + "}");
  }

  void region(RegionId id, int depth) {
    const Region& r = g_.region(id);
    const std::string indent(static_cast<size_t>(2 * depth), ' ');
    if (id.index != 0) line(indent + "args " + defines(r.args));
    for (NodeId n : r.nodes) node(n, depth);
    if (id.index != 0) line(indent + "yield " + uses(r.results, 0, r.results.size()));
  }

  const Graph& g_;
  std::string out_;
  std::vector<int32_t> numbers_;
  int32_t next_ = 0;
};

}  // namespace

std::string text_quote(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string text_word(const std::string& name) {
  bool plain = !name.empty() && (std::isdigit(static_cast<unsigned char>(name[0])) == 0);
  for (char c : name) {
    plain = plain && (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.');
  }
  return plain ? name : text_quote(name);
}

std::string text_scalar(const Scalar& scalar) {
  if (scalar.kind() == Scalar::Kind::kNumber) return fmt::format("{}", *scalar.number());
  return text_quote(scalar.str());
}

std::string print(const Graph& g) {
  return Printer(g).run();
}

}  // namespace cad::ir
