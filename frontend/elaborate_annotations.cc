// frontend/elaborate_annotations.cc -- `@shard`, `@keep` and the others: checked where they stand,
// and what they fix put on the graph's values. They never change results; plans obey them.
#include <algorithm>

#include "base/suggest.h"
#include "frontend/elaborator.h"

namespace cad::frontend {

namespace {

std::optional<ir::Saving> saving_named(const std::string& name) {
  if (name == "keep") return ir::Saving::kKeep;
  if (name == "recompute") return ir::Saving::kRecompute;
  if (name == "checkpoint") return ir::Saving::kCheckpoint;
  return std::nullopt;
}

std::string kind_of(const Stmt& s) {
  return s.kind == StmtKind::kUse     ? "an instance"
         : s.kind == StmtKind::kState ? "a state"
                                      : "a parameter";
}

// `@keep` and the like fix what is saved of a value that is computed.
void check_saving(Elaborator& e, const Stmt& s, const Annotation& a) {
  const std::string& n = a.name.text;
  if (s.kind == StmtKind::kUse || s.kind == StmtKind::kParam || s.kind == StmtKind::kState) {
    e.error(DiagId::E0115, a.span, fmt::format("`@{}` stands on a value that is computed", n),
            kind_of(s) + " is not")
        .help("write it after the expression of a binding or of `return`");
  } else if (s.kind == StmtKind::kRepeat && n != "checkpoint") {
    e.error(DiagId::E0115, a.span, fmt::format("a `repeat` takes `@checkpoint`, not `@{}`", n),
            "not a value")
        .help(fmt::format("write `@{}` on values in its body", n));
  }
}

void contradictions(Elaborator& e, const Stmt& s) {
  for (size_t i = 0; i < s.annotations.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      const std::string& later = s.annotations[i].name.text;
      const std::string& earlier = s.annotations[k].name.text;
      const bool decays = (later == "decay" && earlier == "no_decay") ||
                          (later == "no_decay" && earlier == "decay");
      const bool savings = later != earlier && saving_named(later) && saving_named(earlier);
      if (!decays && !savings) continue;
      e.error(DiagId::E0115, s.annotations[i].span,
              fmt::format("`@{}` and `@{}` do not go together", earlier, later), "the second")
          .label(s.annotations[k].span, "the first");
    }
  }
}

}  // namespace

void Elaborator::check_annotations(const Stmt& s, const DimList* dims) {
  static const std::vector<std::string> kKnown = {"shard",  "keep",  "recompute", "checkpoint",
                                                  "frozen", "decay", "no_decay"};
  for (const Annotation& a : s.annotations) {
    const std::string& n = a.name.text;
    if (std::find(kKnown.begin(), kKnown.end(), n) == kKnown.end()) {
      Diagnostic& d =
          error(DiagId::E0115, a.name.span, fmt::format("unknown annotation `@{}`", n), "unknown");
      if (auto near = suggest(n, kKnown)) d.help(fmt::format("did you mean `@{}`?", *near));
      continue;
    }
    const bool param_only = n == "frozen" || n == "decay" || n == "no_decay";
    if (param_only && s.kind != StmtKind::kParam) {
      error(DiagId::E0115, a.span, fmt::format("`@{}` stands on a `param`", n), "not a parameter");
      continue;
    }
    if (n == "shard") {
      check_shard(s, a, dims);
    } else if (!a.args.empty()) {
      error(DiagId::E0115, a.span, fmt::format("`@{}` takes nothing in parentheses", n), "");
    } else if (saving_named(n)) {
      check_saving(*this, s, a);
    }
  }
  contradictions(*this, s);
}

// `dims` null: the statement has no value to split.
void Elaborator::check_shard(const Stmt& s, const Annotation& a, const DimList* dims) {
  if (dims == nullptr) {
    error(DiagId::E0115, a.span, "`@shard` stands on a `param` or a value", "nothing to split");
    return;
  }
  const bool open =
      std::any_of(dims->begin(), dims->end(), [&](ir::DimId d) { return graph.dim(d).pack; });
  const char* what =
      s.kind == StmtKind::kParam || s.kind == StmtKind::kState ? "parameter" : "value";
  for (const Arg& arg : a.args) {
    if (arg.name.empty()) {
      error(DiagId::E0115, arg.span, "`@shard` takes `DIM: axis`", "no dim");
      continue;
    }
    if (axis_of(arg).empty()) {
      error(DiagId::E0115, arg.span, "`@shard` takes the name of a mesh axis, or `none`",
            "no name");
      continue;
    }
    auto list = dims_named(arg.name.text, arg.name.span);
    if (!list || open) continue;  // a `..` may hold the dim: known when it is called
    for (ir::DimId d : *list) {
      if (contains(*dims, d)) continue;
      error(DiagId::E0115, arg.name.span,
            fmt::format("{} is not a dim of this {}", dim_text(d), what), "cannot be split");
    }
  }
}

// "" when the value is no name.
std::string Elaborator::axis_of(const Arg& arg) const {
  const Expr& e = body->ast->expr(strip_parens(*body->ast, arg.value));
  return e.kind == ExprKind::kName ? e.text : "";
}

std::vector<ir::Pin> Elaborator::pins_of(const Stmt& s, const DimList& dims) {
  std::vector<ir::Pin> pins;
  for (const Annotation& a : s.annotations) {
    if (a.name.text != "shard") continue;
    for (const Arg& arg : a.args) {
      const auto list = find_dims(arg.name.text);
      if (!list) continue;
      for (ir::DimId d : *list) {
        if (!contains(dims, d)) continue;
        ir::Pin pin;
        pin.dim = d;
        pin.axis = axis_of(arg);
        if (pin.axis == "none") pin.axis.clear();
        pin.span = a.span;
        pins.push_back(std::move(pin));
      }
    }
  }
  return pins;
}

ir::Saving Elaborator::saving_of(const Stmt& s) {
  ir::Saving saving = ir::Saving::kAuto;
  for (const Annotation& a : s.annotations) saving = saving_named(a.name.text).value_or(saving);
  return saving;
}

// Of a binding or a `return`: checked against the dims of its values, then put on them.
void Elaborator::annotate(const Stmt& s, const std::vector<EValue>& values) {
  if (s.annotations.empty()) return;
  DimList dims;
  for (const EValue& v : values) {
    if (!v.tensor()) continue;
    for (ir::DimId d : type(v.value).dims) {
      if (!contains(dims, d)) dims.push_back(d);
    }
  }
  check_annotations(s, &dims);
  if (mode != Mode::kLower) return;
  for (const EValue& v : values) {
    if (!v.tensor()) continue;
    ir::Value& value = graph.value(v.value);
    for (ir::Pin& pin : pins_of(s, value.type.dims)) {
      const bool known = std::find(value.pins.begin(), value.pins.end(), pin) != value.pins.end();
      if (!known) value.pins.push_back(std::move(pin));
    }
    if (const ir::Saving saving = saving_of(s); saving != ir::Saving::kAuto) value.saving = saving;
  }
}

}  // namespace cad::frontend
