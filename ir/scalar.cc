// ir/scalar.cc -- constant scalar expressions: folding, evaluation, text and its parser.
//
// A node is a number, a Size, or a call. +, - and * of whole operands fold into one Size, so that
// "2 * L" is a size; `/` does not, since 1 / 2 is a half here and an error among sizes.
#include "ir/scalar.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/check.h"
#include "ir/text_scanner.h"

namespace cad::ir {

struct Scalar::Node {
  Kind kind = Kind::kNumber;
  double number = 0;
  Size size;
  std::string fn;
  std::vector<Scalar> args;
};

namespace {

constexpr double kWholeLimit = 9007199254740992.0;  // 2^53: whole numbers up to it are exact

bool whole(double x) {
  return std::abs(x) <= kWholeLimit && x == std::floor(x);
}

struct Function {
  const char* name;
  size_t arity;
  double (*apply)(double a, double b);
};

const Function kFunctions[] = {
    {"add", 2, [](double a, double b) { return a + b; }},
    {"sub", 2, [](double a, double b) { return a - b; }},
    {"mul", 2, [](double a, double b) { return a * b; }},
    {"div", 2, [](double a, double b) { return a / b; }},
    {"pow", 2, [](double a, double b) { return std::pow(a, b); }},
    {"floordiv", 2, [](double a, double b) { return std::floor(a / b); }},
    {"mod", 2, [](double a, double b) { return a - std::floor(a / b) * b; }},
    {"min", 2, [](double a, double b) { return b < a ? b : a; }},
    {"max", 2, [](double a, double b) { return b > a ? b : a; }},
    {"neg", 1, [](double a, double) { return -a; }},
    {"exp", 1, [](double a, double) { return std::exp(a); }},
    {"log", 1, [](double a, double) { return std::log(a); }},
    {"sqrt", 1, [](double a, double) { return std::sqrt(a); }},
    {"rsqrt", 1, [](double a, double) { return 1 / std::sqrt(a); }},
    {"abs", 1, [](double a, double) { return std::abs(a); }},
    {"sin", 1, [](double a, double) { return std::sin(a); }},
    {"cos", 1, [](double a, double) { return std::cos(a); }},
    {"tanh", 1, [](double a, double) { return std::tanh(a); }},
    {"floor", 1, [](double a, double) { return std::floor(a); }},
};

const Function* find_function(const std::string& name) {
  for (const Function& f : kFunctions) {
    if (name == f.name) return &f;
  }
  return nullptr;
}

}  // namespace

Scalar::Scalar(double number) {
  Node node;
  node.number = number;
  node_ = std::make_shared<const Node>(std::move(node));
}

Scalar Scalar::size(Size size) {
  if (auto c = size.constant(); c && whole(static_cast<double>(*c)))
    return {static_cast<double>(*c)};
  Node node;
  node.kind = Kind::kSize;
  node.size = std::move(size);
  Scalar scalar;
  scalar.node_ = std::make_shared<const Node>(std::move(node));
  return scalar;
}

Scalar Scalar::call(std::string fn, std::vector<Scalar> args) {
  const Function* function = find_function(fn);
  CAD_CHECK(function != nullptr && function->arity == args.size(),
            "scalar function `{}` of {} arguments", fn, args.size());
  const bool numbers = std::all_of(args.begin(), args.end(),
                                   [](const Scalar& a) { return a.kind() == Kind::kNumber; });
  if (numbers) {
    return {function->apply(*args[0].number(), args.size() > 1 ? *args[1].number() : 0.0)};
  }
  if (fn == "add" || fn == "sub" || fn == "mul" || fn == "neg") {
    auto a = args[0].as_size(), b = fn == "neg" ? a : args[1].as_size();
    // A quotient of sizes among them stays a call: here it may have a fraction.
    if (a && b && args[0].is_whole() && args.back().is_whole()) {
      if (fn == "neg") return size(Size(0) - *a);
      return size(fn == "add" ? *a + *b : fn == "sub" ? *a - *b : *a * *b);
    }
  }
  // P ^ 2 of a size is a size (also so that the text form of a size reads back as one).
  if (fn == "pow" && args[0].is_whole() && args[1].kind() == Kind::kNumber && args[1].is_whole()) {
    const auto base = args[0].as_size();
    const double power = *args[1].number();
    if (base && power >= 1 && power <= 16) {
      Size result = *base;
      for (int i = 1; i < static_cast<int>(power); ++i) result = result * *base;
      return size(result);
    }
  }
  Node node;
  node.kind = Kind::kCall;
  node.fn = std::move(fn);
  node.args = std::move(args);
  Scalar scalar;
  scalar.node_ = std::make_shared<const Node>(std::move(node));
  return scalar;
}

Scalar::Kind Scalar::kind() const {
  return node_->kind;
}

std::optional<double> Scalar::number() const {
  if (node_->kind == Kind::kNumber) return node_->number;
  return evaluate({});
}

std::optional<double> Scalar::evaluate(const Bindings& bindings) const {
  if (node_->kind == Kind::kNumber) return node_->number;
  if (node_->kind == Kind::kSize) return node_->size.evaluate_real(bindings);
  double values[2] = {0, 0};
  for (size_t i = 0; i < node_->args.size(); ++i) {
    auto value = node_->args[i].evaluate(bindings);
    if (!value) return std::nullopt;
    values[i] = *value;
  }
  return find_function(node_->fn)->apply(values[0], values[1]);
}

std::optional<Size> Scalar::as_size() const {
  if (node_->kind == Kind::kNumber) {
    if (!whole(node_->number)) return std::nullopt;
    return Size(static_cast<int64_t>(node_->number));
  }
  if (node_->kind == Kind::kSize) return node_->size;
  std::vector<Size> sizes;
  for (const Scalar& arg : node_->args) {
    auto size = arg.as_size();
    if (!size) return std::nullopt;
    sizes.push_back(std::move(*size));
  }
  const std::string& fn = node_->fn;
  if (fn == "neg") return Size(0) - sizes[0];
  if (fn == "add") return sizes[0] + sizes[1];
  if (fn == "sub") return sizes[0] - sizes[1];
  if (fn == "mul") return sizes[0] * sizes[1];
  if (fn == "div") return sizes[0] / sizes[1];
  if (fn == "floordiv") return Size::floor_div(sizes[0], sizes[1]);
  return std::nullopt;
}

bool Scalar::is_whole() const {
  if (node_->kind == Kind::kNumber) return whole(node_->number);
  if (node_->kind == Kind::kSize) return true;  // a dim's size is whole or an error
  static const char* const kPreserving[] = {"add", "sub", "mul", "neg", "abs", "min", "max", "mod"};
  const std::string& fn = node_->fn;
  if (fn == "floor" || fn == "floordiv") return true;
  return std::any_of(std::begin(kPreserving), std::end(kPreserving),
                     [&](const char* f) { return fn == f; }) &&
         std::all_of(node_->args.begin(), node_->args.end(),
                     [](const Scalar& a) { return a.is_whole(); });
}

Scalar Scalar::substitute(const std::map<std::string, Size>& by) const {
  if (node_->kind == Kind::kNumber) return *this;
  if (node_->kind == Kind::kSize) return size(node_->size.substitute(by));
  std::vector<Scalar> args;
  for (const Scalar& arg : node_->args) args.push_back(arg.substitute(by));
  return call(node_->fn, std::move(args));
}

bool operator==(const Scalar& a, const Scalar& b) {
  if (a.node_ == b.node_) return true;
  const Scalar::Node &x = *a.node_, &y = *b.node_;
  if (x.kind != y.kind) return false;
  switch (x.kind) {
    case Scalar::Kind::kNumber:
      // -0 and 0 are two constants: 1 / -0 shows it. NaN is equal to itself here.
      return (x.number == y.number && std::signbit(x.number) == std::signbit(y.number)) ||
             (std::isnan(x.number) && std::isnan(y.number));
    case Scalar::Kind::kSize:
      return x.size == y.size;
    case Scalar::Kind::kCall:
      return x.fn == y.fn && x.args == y.args;
  }
  return false;
}

namespace {

// Binary operators of the text form with their precedence; a function else: "sqrt(2*L)".
struct Operator {
  const char* fn;
  const char* text;
  int level;
};
const Operator kOperators[] = {{"add", " + ", 1}, {"sub", " - ", 1},       {"mul", " * ", 2},
                               {"div", " / ", 2}, {"floordiv", " // ", 2}, {"mod", " % ", 2},
                               {"pow", " ^ ", 4}};
const Operator* find_operator(const std::string& fn) {
  for (const Operator& op : kOperators) {
    if (fn == op.fn) return &op;
  }
  return nullptr;
}

// Reads what str() writes, and the same with any spacing.
struct ScalarReader : TextScanner {
  Scalar fail() {
    failed = true;
    return {0.0};
  }

  // size(..): a size with a division or a floor in it, up to the matching bracket.
  Scalar bracketed_size() {
    const size_t start = at;
    for (int open = 1; at < text.size(); ++at) {
      if (text[at] == '(') ++open;
      if (text[at] == ')' && --open == 0) break;
    }
    auto size = Size::parse(text.substr(start, at - start));
    if (!size.ok() || !take(")")) return fail();
    return Scalar::size(*size);
  }
  Scalar primary() {
    if (++depth > 1000) return fail();
    Scalar value = primary_inner();
    --depth;
    return value;
  }
  Scalar primary_inner() {
    if (take("(")) {
      Scalar inner = expression(1);
      return take(")") ? inner : fail();
    }
    blanks();
    if (digit()) {
      char* end = nullptr;
      const double value = std::strtod(text.c_str() + at, &end);
      at = static_cast<size_t>(end - text.c_str());
      return {value};
    }
    const std::string word = name();
    if (word.empty()) return fail();
    if (take("(")) {
      if (word == "size") return bracketed_size();
      const Function* function = find_function(word);
      std::vector<Scalar> args;
      do {
        args.push_back(expression(1));
      } while (!failed && take(","));
      if (failed || function == nullptr || function->arity != args.size() || !take(")"))
        return fail();
      return Scalar::call(word, std::move(args));
    }
    if (word == "inf") return {INFINITY};
    if (word == "nan") return {NAN};
    return Scalar::size(Size::symbol(word));
  }
  const Operator* next_operator(int least) {
    blanks();
    for (const char* fn :
         {"floordiv", "add", "sub", "mul", "div", "mod", "pow"}) {  // "//" before "/"
      const Operator* op = find_operator(fn);
      std::string token(op->text);
      token = token.substr(1, token.size() - 2);
      if (text.compare(at, token.size(), token) != 0) continue;
      if (op->level < least) return nullptr;
      at += token.size();
      return op;
    }
    return nullptr;
  }
  Scalar expression(int least) {
    if (++depth > 1000) return fail();
    Scalar left = take("-") ? Scalar::call("neg", {expression(3)}) : primary();
    while (!failed) {
      const Operator* op = next_operator(least);
      if (op == nullptr) break;
      left = Scalar::call(op->fn, {left, expression(op->level + (op->level == 4 ? 0 : 1))});
    }
    --depth;
    return left;
  }
};

}  // namespace

std::string Scalar::str() const {
  if (node_->kind == Kind::kNumber) return fmt::format("{}", node_->number);
  if (node_->kind == Kind::kSize) {
    std::string text = node_->size.str();
    return text.find('/') == std::string::npos ? text : "size(" + text + ")";
  }
  const Operator* op = find_operator(node_->fn);
  if (op == nullptr) {
    std::string text = node_->fn + "(";
    for (size_t i = 0; i < node_->args.size(); ++i) text += (i ? ", " : "") + node_->args[i].str();
    return text + ")";
  }
  // Operands that are not single tokens or calls of functions get brackets, if they bind less.
  auto operand = [&](const Scalar& arg, bool right) {
    std::string text = arg.str();
    int level = 5;
    if (arg.kind() == Kind::kCall) {
      if (const Operator* inner = find_operator(arg.node_->fn)) level = inner->level;
    } else if (text.find_first_of("+-*^ ") != std::string::npos &&
               text.compare(0, 5, "size(") != 0) {
      const bool exponent = arg.kind() == Kind::kNumber && text[0] != '-';  // 1e-06
      level = exponent ? 5 : 0;
    }
    const bool bare = level > op->level || (level == op->level && !right && op->level < 4);
    return bare ? text : "(" + text + ")";
  };
  return operand(node_->args[0], false) + op->text + operand(node_->args[1], true);
}

Result<Scalar> Scalar::parse(const std::string& text) {
  ScalarReader reader{{text}};
  Scalar scalar = reader.expression(1);
  reader.blanks();
  if (!reader.failed && reader.at == text.size()) return scalar;
  return make_error(DiagId::E0001,
                    fmt::format("`{}` is not a scalar expression: cannot read it from column {} on",
                                text, reader.at + 1),
                    kExitProgram);
}

}  // namespace cad::ir
