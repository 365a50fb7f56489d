// frontend/elaborate_nodes.cc -- the elaborator's hands: values of the current region, nodes with
// their shape errors turned into diagnostics, conditions on sizes, broadcasts and regroupings.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "frontend/elaborator.h"
#include "frontend/resolve.h"

namespace cad::frontend {

using ir::Attrs;
using ir::DType;
using ir::Op;
using ir::ValueId;

Elaborator::Elaborator(const Module& m, Mode mode_in, const LowerOptions& options_in,
                       Diagnostics& d)
    : module(m),
      mode(mode_in),
      options(options_in),
      diagnostics(&d),
      builder(graph, ir::RegionId{0}) {
  regions_.emplace_back();
  region = &regions_.back();
  region->region = ir::RegionId{0};
  known = mode == Mode::kCheck ? &m.declared : &m.bindings;
}

// ------------------------------------------------------------------------------------- values

EValue Elaborator::number_of(const ir::Scalar& s, bool whole, Span span) const {
  EValue v;
  v.kind = EValue::Kind::kNumber;
  v.number = s;
  v.whole = whole;
  v.span = span;
  return v;
}

EValue Elaborator::tensor_of(ValueId value, Span span) const {
  EValue v;
  v.kind = EValue::Kind::kTensor;
  v.value = value;
  v.span = span;
  return v;
}

EValue Elaborator::flag_of(int flag, Span span) const {
  EValue v;
  v.kind = EValue::Kind::kBool;
  v.flag = static_cast<int8_t>(flag);
  v.span = span;
  return v;
}

std::optional<double> Elaborator::value_of(const ir::Scalar& s) const {
  if (auto n = s.number()) return n;
  return s.evaluate(*known);
}

// A value of an enclosing region becomes an invariant of the loops in between.
ValueId Elaborator::local(ValueId v) {
  const ir::RegionId home = graph.value(v).region;
  if (home == region->region) return v;
  std::vector<RegionFrame*> chain;
  for (RegionFrame* f = region; f != nullptr && f->region != home; f = f->parent)
    chain.push_back(f);
  CAD_CHECK(!chain.empty() && chain.back()->parent != nullptr, "value {} read outside its region",
            v.index);
  for (size_t i = chain.size(); i-- > 0;) {
    RegionFrame* f = chain[i];
    auto [at, added] = f->captured.emplace(v.index, ValueId{});
    if (added) {
      const ir::Type t = graph.type(v);
      const std::string name = graph.value(v).name;
      at->second = graph.add_value(f->region, t, name);
      f->invariants.push_back({v, at->second});
    }
    v = at->second;
  }
  return v;
}

ValueId Elaborator::constant(const ir::Scalar& s, DType dtype) {
  ir::Scalar value = s;
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    if (auto v = value_of(s)) value = ir::Scalar(*v);
  }
  Attrs attrs;
  attrs.scalar = std::move(value);
  attrs.dtype = dtype;
  return node(Op::kConst, {}, std::move(attrs));
}

// Whole numbers of tensors have 32 bits; a number beyond them would wrap.
bool Elaborator::fits_i32(const ir::Scalar& s, Span span) {
  const auto value = value_of(s);
  if (!value || (*value >= -2147483648.0 && *value <= 2147483647.0)) return true;
  error(DiagId::E0215, span, fmt::format("{} does not fit `i32`", *value),
        "beyond -2147483648 .. 2147483647");
  return false;
}

ValueId Elaborator::cast(ValueId v, DType dtype) {
  v = local(v);
  if (graph.type(v).dtype == dtype) return v;
  Attrs attrs;
  attrs.dtype = dtype;
  return node(Op::kCast, {v}, std::move(attrs));
}

ValueId Elaborator::as_f32(ValueId v) {
  return cast(v, DType::kF32);
}

// A constant takes the dtype of the tensor it meets; alone it is f32.
std::optional<ValueId> Elaborator::as_tensor(const EValue& v, std::optional<DType> like,
                                             Span op_span, const std::string& what) {
  switch (v.kind) {
    case EValue::Kind::kTensor:
      return local(v.value);
    case EValue::Kind::kNumber: {
      const DType dtype = like.value_or(DType::kF32);
      if (dtype == DType::kBool) {
        error(DiagId::E0205, op_span, fmt::format("{} cannot combine a number and `bool`", what))
            .help("cast the bool: `f32(..)` or `i32(..)`");
        return std::nullopt;
      }
      if (dtype == DType::kI32 && !v.whole) {
        const auto value = value_of(*v.number);
        if (!value || std::floor(*value) != *value) {
          Diagnostic& d = error(DiagId::E0217, v.span.valid() ? v.span : op_span,
                                fmt::format("a number with a fraction meets `i32` in {}", what),
                                value ? fmt::format("{:g}", *value) : "not a whole number");
          d.help("cast the tensor: `f32(..)`");
          return std::nullopt;
        }
      }
      if (dtype == DType::kI32 && !fits_i32(*v.number, v.span.valid() ? v.span : op_span))
        return std::nullopt;
      return constant(*v.number, dtype);
    }
    case EValue::Kind::kBool: {
      if (like && *like != DType::kBool) {
        error(DiagId::E0205, op_span,
              fmt::format("{} cannot combine `bool` and `{}`", what, ir::dtype_name(*like)))
            .help("cast the bool: `f32(..)` or `i32(..)`");
        return std::nullopt;
      }
      return constant(ir::Scalar(v.flag == 1 ? 1.0 : 0.0), DType::kBool);
    }
    case EValue::Kind::kMany:
      error(DiagId::E0213, v.span.valid() ? v.span : op_span,
            fmt::format("{} takes one value, this is {}", what, v.many->size()), "several results")
          .help("bind them first: `a, b = ..`");
      return std::nullopt;
    case EValue::Kind::kInstance:
      error(DiagId::E0112, v.span.valid() ? v.span : op_span,
            fmt::format("{} takes a value, not a layer", what), "an instance")
          .help(fmt::format("call it: `{}(..)`",
                            v.span.valid() ? module.sources->text(v.span) : "name"));
      return std::nullopt;
    case EValue::Kind::kError:
      return std::nullopt;
  }
  return std::nullopt;
}

// -------------------------------------------------------------------------------------- nodes

std::optional<std::vector<ValueId>> Elaborator::make_all(Op op, std::vector<ValueId> operands,
                                                         Attrs attrs, const Site& site) {
  for (ValueId& v : operands) v = local(v);
  builder.span = site.span;
  ir::Builder b(graph, region->region);
  b.span = site.span;
  b.scope = body != nullptr ? body->site : "";
  ir::Builder::Made made = b.try_make(op, std::move(operands), std::move(attrs));
  if (!made.ok()) {
    report(made.shape.errors[0], op, site);
    return std::nullopt;
  }
  for (const ir::Condition& c : made.shape.conditions) {
    DefCondition condition;
    condition.kind = c.at_most ? DefCondition::Kind::kAtMost : DefCondition::Kind::kEqual;
    condition.left = c.left;
    condition.right = c.right;
    condition.what = fmt::format("{}: {}", site.what, c.what);
    condition.span = site.span;
    if (!need(std::move(condition))) return std::nullopt;
  }
  return made.results;
}

std::optional<ValueId> Elaborator::make(Op op, std::vector<ValueId> operands, Attrs attrs,
                                        const Site& site) {
  auto made = make_all(op, std::move(operands), std::move(attrs), site);
  if (!made) return std::nullopt;
  return (*made)[0];
}

// For nodes the elaborator itself composes, whose operands fit by construction.
ValueId Elaborator::node(Op op, std::vector<ValueId> operands, Attrs attrs) {
  for (ValueId& v : operands) v = local(v);
  ir::Builder b(graph, region->region);
  b.span = builder.span;
  b.scope = body != nullptr ? body->site : "";
  ir::Builder::Made made = b.try_make(op, std::move(operands), std::move(attrs));
  CAD_CHECK(made.ok(), "elaborator: op `{}`: {}", ir::op_name(op),
            made.shape.errors.empty() ? "" : made.shape.errors[0].detail);
  return made.results[0];
}

ValueId Elaborator::broadcast(ValueId v, const DimList& dims) {
  v = local(v);
  if (graph.type(v).dims == dims) return v;
  const DimList& own = graph.type(v).dims;
  if (own.size() == dims.size() &&
      std::all_of(own.begin(), own.end(), [&](ir::DimId d) { return contains(dims, d); })) {
    return v;  // order is not meaning
  }
  Attrs attrs;
  attrs.dims = dims;
  return node(Op::kBroadcast, {v}, std::move(attrs));
}

// Elementwise over the union of both sides' dims: only where the composition itself needs it.
ValueId Elaborator::union_op(Op op, ValueId a, ValueId b) {
  DimList all = type(a).dims;
  for (ir::DimId d : type(b).dims) {
    if (!contains(all, d)) all.push_back(d);
  }
  const bool inside = type(a).dims.size() == all.size() || type(b).dims.size() == all.size();
  if (inside) return node(op, {a, b});
  return node(op, {broadcast(a, all), broadcast(b, all)});
}

std::optional<ValueId> Elaborator::pointwise(Op op, ValueId a, ValueId b, const Site& site,
                                             const DimList* target) {
  a = local(a);
  b = local(b);
  if (target != nullptr) {
    const DimList &da = type(a).dims, &db = type(b).dims;
    DimList all;
    for (ir::DimId d : *target) {
      if (contains(da, d) || contains(db, d)) all.push_back(d);
    }
    const bool all_in_target =
        std::all_of(da.begin(), da.end(), [&](ir::DimId d) { return contains(*target, d); }) &&
        std::all_of(db.begin(), db.end(), [&](ir::DimId d) { return contains(*target, d); });
    if (all_in_target && all.size() > da.size() && all.size() > db.size()) {
      a = broadcast(a, all);
      b = broadcast(b, all);
    }
  }
  return make(op, {a, b}, {}, site);
}

ValueId Elaborator::opaque(const ir::Type& t, const std::string& name) {
  return graph.add_value(region->region, t, name);
}

ValueId Elaborator::iota(const DimList& dims) {
  if (dims.empty()) return constant(ir::Scalar(0.0), DType::kI32);
  ValueId sum{};
  ir::Size stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    Attrs attrs;
    attrs.dim = dims[i];
    ValueId part = node(Op::kIota, {}, std::move(attrs));
    if (i + 1 < dims.size())
      part = node(Op::kMul, {part, constant(ir::Scalar::size(stride), DType::kI32)});
    sum = sum.valid() ? union_op(Op::kAdd, part, sum) : part;
    stride = stride * graph.dim(dims[i]).size;
  }
  return sum;
}

ValueId Elaborator::rename(ValueId v, const std::vector<std::pair<ir::DimId, ir::DimId>>& pairs) {
  Attrs attrs;
  for (const auto& [from, to] : pairs) {
    if (from != to && type(v).has(from)) attrs.groups.push_back({{from}, {to}});
  }
  if (attrs.groups.empty()) return v;
  return node(Op::kRename, {v}, std::move(attrs));
}

// One list of dims for another of equal total size; both may be any length.
ValueId Elaborator::regroup(ValueId v, const DimList& from, const DimList& to) {
  if (from == to) return v;
  if (from.size() == to.size()) {
    bool same_sizes = true;
    for (size_t i = 0; i < from.size(); ++i) {
      same_sizes = same_sizes && graph.dim(from[i]).size == graph.dim(to[i]).size;
    }
    if (same_sizes) {
      std::vector<std::pair<ir::DimId, ir::DimId>> pairs;
      for (size_t i = 0; i < from.size(); ++i) pairs.emplace_back(from[i], to[i]);
      return rename(v, pairs);
    }
  }
  if (from.size() == 1 && to.size() == 1) return rename(v, {{from[0], to[0]}});
  Attrs attrs;
  if (from.size() <= 1 || to.size() <= 1) {
    attrs.groups.push_back({from, to});
    return node(Op::kReshape, {v}, std::move(attrs));
  }
  const ir::DimId one = local_dim("N", size(from));
  attrs.groups.push_back({from, {one}});
  v = node(Op::kReshape, {v}, std::move(attrs));
  Attrs split;
  split.groups.push_back({{one}, to});
  return node(Op::kReshape, {v}, std::move(split));
}

// A dim parameter bound to several dims, or none, as one dim.
ValueId Elaborator::merged(ValueId v, const DimList& dims, ir::DimId* one) {
  if (dims.size() == 1) {
    *one = dims[0];
    return v;
  }
  *one = local_dim("N", size(dims));
  return regroup(v, dims, {*one});
}

// --------------------------------------------------------------------------------- conditions

namespace {

bool has_parameter(const ir::Size& size) {
  for (const std::string& s : size.symbols()) {
    if (!s.empty() && s[0] == '$') return true;
  }
  return false;
}

bool has_division(const ir::Size& size) {
  return size.str().find('/') != std::string::npos;
}

}  // namespace

// Mentions a dim whose line did not parse or has an error of its own.
bool Elaborator::unsure(const ir::Size& size) const {
  for (const std::string& s : size.symbols()) {
    auto at = module.dims.find(s);
    if (at != module.dims.end() &&
        (at->second.broken || at->second.state == DimDecl::State::kFailed))
      return true;
  }
  return false;
}

bool Elaborator::need_equal(const ir::Size& left, const ir::Size& right, const Need& n) {
  DefCondition c;
  c.left = left;
  c.right = right;
  c.what = n.what;
  c.help = n.help;
  c.span = n.span;
  return need(std::move(c));
}

bool Elaborator::need_whole(const ir::Size& size, const Need& n) {
  DefCondition c;
  c.kind = DefCondition::Kind::kWhole;
  c.left = size;
  c.what = n.what;
  c.help = n.help;
  c.span = n.span;
  return need(std::move(c));
}

// Decided now, kept for the callers (it mentions parameters), kept for the bindings, or an error.
bool Elaborator::need(DefCondition c) {
  using Kind = DefCondition::Kind;
  const Decision decision = c.kind == Kind::kEqual    ? decide_equal(c.left, c.right, *known)
                            : c.kind == Kind::kAtMost ? decide_at_most(c.left, c.right, *known)
                                                      : decide_whole(c.left, *known);
  if (decision == Decision::kYes) return true;
  if (unsure(c.left) || unsure(c.right)) return true;
  if (decision == Decision::kOpen) {
    if (mode == Mode::kLower) return true;
    if (checking != nullptr && (has_parameter(c.left) || has_parameter(c.right))) {
      for (const DefCondition& old : checking->conditions) {
        if (old.kind == c.kind && old.left == c.left && old.right == c.right) return true;
      }
      if (c.origin.empty()) c.origin = checking->name;
      checking->conditions.push_back(std::move(c));
      return true;
    }
    if (c.kind != Kind::kEqual || has_division(c.left) || has_division(c.right)) {
      const_cast<Module&>(module).pending.push_back(std::move(c));
      return true;
    }
  }
  condition_failed(c);
  return false;
}

void Elaborator::condition_failed(const DefCondition& c) {
  using Kind = DefCondition::Kind;
  auto side = [&](const ir::Size& s) {
    const auto value = with_known(s, *known).constant();
    const std::string text = reader_text(s);
    return value && text != std::to_string(*value) ? fmt::format("{} = {}", text, *value) : text;
  };
  const bool from_call = !c.origin.empty();
  const std::string whose = from_call ? fmt::format("`{}` needs ", c.origin) : "";
  if (c.kind == Kind::kWhole) {
    const ir::Size::Evaluated e = c.left.evaluate(*known);
    Diagnostic& d = error(
        from_call ? DiagId::E0218 : DiagId::E0211, c.span,
        fmt::format("{}`{}`{} whole: {}", whose, reader_text(c.left), from_call ? "" : " is not",
                    e.detail.empty() ? "a negative size" : e.detail),
        c.what);
    if (from_call)
      d.message = fmt::format("{}`{}` to be whole: {}", whose, reader_text(c.left), e.detail);
    note_origins(module, c.left, d);
    if (!c.help.empty()) d.help(c.help);
    return;
  }
  const bool equal = c.kind == Kind::kEqual;
  Diagnostic& d = error(
      from_call ? DiagId::E0218 : DiagId::E0206, c.span,
      from_call ? fmt::format("sizes do not fit `{}`: {}", c.origin, c.what)
                : fmt::format("{}: {}", equal ? "sizes must agree" : "a size is too large", c.what),
      fmt::format("{} {} {}", side(c.left), equal ? "is not" : "is more than", side(c.right)));
  note_origins(module, c.left + c.right, d);
  if (!c.help.empty()) d.help(c.help);
  if (!c.dim.empty())
    d.help(fmt::format("declare it so: `dim {} = {}`", c.dim, reader_text(c.right)));
}

}  // namespace cad::frontend
