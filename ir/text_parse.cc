// ir/text_parse.cc -- reads the text form that text_print.cc writes. Strict: one spelling for
// everything; the first thing that does not fit is the error, with its line. No shape rule is run
// here (that is `verify`).
#include <charconv>
#include <map>
#include <unordered_map>

#include "ir/text_names.h"

namespace cad::ir {

namespace {

// Words, "strings", %values and single characters; `->` is one token.
class Lexer {
 public:
  explicit Lexer(const std::string& text) : text_(text) { advance(); }

  enum class Kind { kEnd, kWord, kString, kValue, kPunct };
  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] const std::string& token() const { return token_; }
  [[nodiscard]] int line() const { return line_; }
  [[nodiscard]] bool is(const std::string& text) const {
    return token_ == text && (kind_ == Kind::kWord || kind_ == Kind::kPunct);
  }

  void advance() {
    skip_space();
    token_.clear();
    if (at_ >= text_.size()) {
      kind_ = Kind::kEnd;
      return;
    }
    const char c = text_[at_];
    if (c == '"') {
      kind_ = Kind::kString;
      quoted();
    } else if (c == '%') {
      kind_ = Kind::kValue;
      value();
    } else if (word_char(c) || (c == '-' && at_ + 1 < text_.size() && word_char(text_[at_ + 1]))) {
      kind_ = Kind::kWord;
      while (at_ < text_.size() && (word_char(text_[at_]) || sign_in_word()))
        token_ += text_[at_++];
    } else {
      kind_ = Kind::kPunct;
      token_ += text_[at_++];
      if (c == '-' && at_ < text_.size() && text_[at_] == '>') token_ += text_[at_++];
    }
  }

 private:
  static bool word_char(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
  }
  bool sign_in_word() const {  // -0.5, 1e-05, 1e+20
    const char c = text_[at_];
    if (c != '-' && c != '+') return false;
    if (token_.empty()) return c == '-';
    return token_.back() == 'e' &&
           (std::isdigit(static_cast<unsigned char>(token_[0])) != 0 || token_[0] == '-');
  }
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
      if (text_[at_++] == '\n') ++line_;
    }
  }
  void quoted() {
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        ++at_;
        token_ += text_[at_] == 'n' ? '\n' : text_[at_];
      } else {
        token_ += text_[at_];
      }
      ++at_;
    }
    ++at_;
  }
  void value() {
    ++at_;
    if (at_ < text_.size() && text_[at_] == '"') quoted();
    while (at_ < text_.size() && word_char(text_[at_])) token_ += text_[at_++];
  }

  const std::string& text_;
  size_t at_ = 0;
  int line_ = 1;
  Kind kind_ = Kind::kEnd;
  std::string token_;
};

class Parser {
 public:
  explicit Parser(const std::string& text) : lex_(text) {
#define CAD_OP(enumerator, text, family) ops_[text] = Op::enumerator;
#include "ir/ops.def"
#undef CAD_OP
  }

  Result<Graph> run() {
    graph();
    if (error_.empty()) return std::move(g_);
    return make_error(DiagId::E0001, fmt::format("line {}: {}", error_line_, error_), kExitProgram);
  }

 private:
  using Kind = Lexer::Kind;

  // The first failure wins; everything after it reads on harmlessly until the end.
  void fail(const std::string& message) {
    if (!error_.empty()) return;
    error_ = message;
    error_line_ = lex_.line();
  }
  [[nodiscard]] bool ok() const {
    return error_.empty();
  }
  bool accept(const std::string& text) {
    if (!ok() || !lex_.is(text)) return false;
    lex_.advance();
    return true;
  }
  void expect(const std::string& text) {
    if (ok() && !accept(text)) fail(fmt::format("expected `{}`, found `{}`", text, lex_.token()));
  }
  std::string take(Kind kind, const char* what) {
    if (ok() && lex_.kind() != kind)
      fail(fmt::format("expected {}, found `{}`", what, lex_.token()));
    if (!ok()) return "";
    std::string text = lex_.token();
    lex_.advance();
    return text;
  }
  std::string word(const char* what) {
    return take(Kind::kWord, what);
  }
  std::string quoted(const char* what) {
    return take(Kind::kString, what);
  }
  std::string name(const char* what) {
    return take(lex_.kind() == Kind::kString ? Kind::kString : Kind::kWord, what);
  }
  int64_t integer() {
    const std::string text = word("a whole number");
    int64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (ok() && (code != std::errc() || end != text.data() + text.size())) {
      fail(fmt::format("`{}` is not a whole number", text));
    }
    return value;
  }
  template <size_t n>
  size_t choice(const std::array<const char*, n>& names, const char* what) {
    const std::string text = word(what);
    for (size_t i = 0; i < n; ++i) {
      if (text == names[i]) return i;
    }
    fail(fmt::format("`{}` is not {}", text, what));
    return 0;
  }

  Size size() {
    auto parsed = Size::parse(quoted("a size"));
    if (ok() && !parsed) fail("not a size: " + parsed.error().message);
    return ok() ? *parsed : Size();
  }
  Scalar scalar() {
    if (lex_.kind() == Kind::kString) {
      auto parsed = Scalar::parse(quoted("a constant"));
      if (!parsed) fail("not a constant: " + parsed.error().message);
      return ok() ? *parsed : Scalar();
    }
    const std::string text = word("a number");
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (ok() && end != text.c_str() + text.size()) fail(fmt::format("`{}` is not a number", text));
    return Scalar(value);
  }

  DimId dim() {
    const std::string text = name("a dim");
    const auto found = dims_.find(text);
    if (ok() && found == dims_.end()) fail(fmt::format("no dim `{}`", text));
    return ok() ? found->second : DimId{};
  }
  std::vector<DimId> dim_list() {
    std::vector<DimId> list;
    expect("[");
    while (ok() && !accept("]")) {
      if (!list.empty()) expect(",");
      list.push_back(dim());
    }
    return list;
  }
  std::vector<int8_t> axis_list() {
    std::vector<int8_t> list;
    expect("[");
    while (ok() && !accept("]")) {
      if (!list.empty()) expect(",");
      const std::string text = name("an axis");
      size_t at = 0;
      while (at < g_.mesh.size() && g_.mesh[at].name != text) ++at;
      if (ok() && (at == g_.mesh.size() || at >= 32)) fail(fmt::format("no axis `{}`", text));
      list.push_back(static_cast<int8_t>(at));
    }
    return list;
  }
  uint32_t axis_set() {
    uint32_t set = 0;
    for (const int8_t a : axis_list()) set |= ok() ? 1U << a : 0;
    return set;
  }
  DType dtype(const std::string& text) {
    for (DType d : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kBool}) {
      if (text == dtype_name(d)) return d;
    }
    fail(fmt::format("`{}` is not a dtype", text));
    return DType::kF32;
  }
  Type type() {
    Type result;
    if (ok() && lex_.kind() == Kind::kWord) result.dtype = dtype(word("a dtype"));
    result.dims = dim_list();
    return result;
  }

  ValueId use() {
    const std::string text = take(Kind::kValue, "a value");
    const auto found = values_.find(text);
    if (ok() && found == values_.end()) fail(fmt::format("no value `%{}` before this line", text));
    return ok() ? found->second : ValueId{};
  }
  std::vector<ValueId> uses(const std::string& open, const std::string& close) {
    std::vector<ValueId> list;
    expect(open);
    while (ok() && !accept(close)) {
      if (!list.empty()) expect(",");
      list.push_back(use());
    }
    return list;
  }

  // `%x.3: [B, T]`, declared now, visible from here on.
  ValueId define(RegionId region) {
    const std::string text = take(Kind::kValue, "a value");
    expect(":");
    const Type t = type();
    if (!ok()) return {};
    const size_t dot = text.rfind('.');
    const ValueId value =
        g_.add_value(region, t, dot == std::string::npos ? "" : text.substr(0, dot));
    if (!values_.emplace(text, value).second) fail(fmt::format("`%{}` is defined twice", text));
    pins(g_.value(value));
    return value;
  }
  void pins(Value& value) {
    if (accept("pins")) {
      expect("(");
      while (ok() && !accept(")")) {
        if (!value.pins.empty()) expect(",");
        Pin pin;
        pin.dim = dim();
        expect(":");
        pin.axis = name("an axis");
        if (pin.axis == "none") pin.axis.clear();
        value.pins.push_back(std::move(pin));
      }
    }
    for (size_t i = 1; i < std::size(kSavings); ++i) {
      if (accept(kSavings[i])) value.saving = static_cast<Saving>(i);
    }
  }
  std::vector<ValueId> defines(RegionId region) {
    std::vector<ValueId> list;
    while (ok() && lex_.kind() == Kind::kValue) {
      list.push_back(define(region));
      if (!accept(",")) break;
    }
    return list;
  }

  void graph() {
    expect("graph");
    std::string batch;
    if (accept("batch")) batch = name("a dim");
    while (accept("axis")) {
      MeshAxis axis;
      axis.name = name("an axis");
      expect("=");
      axis.size = integer();
      g_.mesh.push_back(std::move(axis));
    }
    std::vector<std::pair<size_t, std::string>> parts;  // of dims that may stand further down
    while (accept("dim")) {
      const std::string text = name("a dim");
      expect("=");
      Dim d{text, size(), false};
      d.pack = accept("pack");
      if (accept("part")) {
        expect("of");
        parts.emplace_back(g_.dims.size(), name("a dim"));
        expect("over");
        d.axes = axis_list();
      }
      if (!ok()) return;
      if (!dims_.emplace(text, DimId{static_cast<int32_t>(g_.dims.size())}).second) {
        fail(fmt::format("dim `{}` is declared twice", text));
      }
      g_.dims.push_back(std::move(d));
    }
    for (const auto& [part, whole] : parts) {
      if (dims_.count(whole) == 0) return fail(fmt::format("no dim `{}`", whole));
      g_.dims[part].whole = dims_.at(whole);
    }
    if (!batch.empty()) {
      if (dims_.count(batch) == 0) fail(fmt::format("no dim `{}`", batch));
      if (ok()) g_.batch_dim = dims_.at(batch);
    }
    while (accept("input")) input();
    expect("begin");
    nodes(RegionId{0});
    while (accept("output")) {
      g_.outputs.push_back({quoted("an output's name")});
      const ValueId result = use();
      g_.regions[0].results.push_back(result);
    }
    if (ok() && lex_.kind() != Kind::kEnd) fail(fmt::format("unexpected `{}`", lex_.token()));
  }

  void input() {
    const int64_t index = integer();
    if (ok() && index != static_cast<int64_t>(g_.inputs.size()))
      fail("inputs are numbered in order");
    Input in;
    in.kind = static_cast<InputKind>(choice(kInputKinds, "an input kind"));
    in.path = quoted("a path");
    if (accept("loop_dims")) {
      expect("=");
      in.loop_dims = static_cast<int>(integer());
    }
    if (accept("init")) {
      expect("=");
      in.init.kind = static_cast<Init::Kind>(choice(kInitKinds, "an initialiser"));
      expect("(");
      in.init.scale = scalar();
      expect(")");
    }
    in.frozen = accept("frozen");
    if (accept("decay")) {
      expect("=");
      in.decay = static_cast<Input::Decay>(choice(kDecays, "a decay rule"));
    }
    g_.inputs.push_back(std::move(in));
  }

  std::vector<DimGroup> group_list() {
    std::vector<DimGroup> list;
    expect("(");
    while (ok() && !accept(")")) {
      if (!list.empty()) expect(",");
      DimGroup item;
      item.from = dim_list();
      expect("->");
      item.to = dim_list();
      list.push_back(std::move(item));
    }
    return list;
  }

  // Attributes until a word that is none. True when one was read.
  bool attribute(Attrs& a, std::string& scope) {
    if (!ok() || lex_.kind() != Kind::kWord) return false;
    const std::string key = lex_.token();
    if (key == "reverse" || key == "causal" || key == "masked") {
      lex_.advance();
      (key == "reverse" ? a.reverse : key == "causal" ? a.causal : a.masked) = true;
      return true;
    }
    static const std::array<const char*, 17> kKeys = {
        "dims",     "groups", "dim",   "to",   "window", "start", "scalar", "stride",   "pad",
        "dilation", "dtype",  "input", "site", "p",      "probs", "axes",   "reduction"};
    const bool known = std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end() || key == "scope";
    if (!known) return false;
    lex_.advance();
    expect("=");
    if (key == "dims") a.dims = dim_list();
    if (key == "groups") a.groups = group_list();
    if (key == "dim") a.dim = dim();
    if (key == "to") a.to = dim();
    if (key == "window") a.window = dim();
    if (key == "start") a.start = size();
    if (key == "scalar") a.scalar = scalar();
    if (key == "stride") a.stride = integer();
    if (key == "pad") a.pad = integer();
    if (key == "dilation") a.dilation = integer();
    if (key == "dtype") a.dtype = dtype(word("a dtype"));
    if (key == "input") a.input = InputId{static_cast<int32_t>(integer())};
    if (key == "site") a.site = quoted("a site");
    if (key == "p") a.p = scalar();
    if (key == "probs") a.probs = dim_list();
    if (key == "axes") a.axes = axis_set();
    if (key == "reduction")
      a.reduction = static_cast<Reduction>(choice(kReductions, "a reduction"));
    if (key == "scope") scope = quoted("a scope");
    return true;
  }

  void nodes(RegionId region) {
    while (ok() && (lex_.kind() == Kind::kValue || lex_.is("repeat"))) node(region);
  }

  void node(RegionId region) {
    const std::vector<ValueId> results = defines(region);
    if (!results.empty()) expect("=");
    const std::string text = word("an op");
    const auto found = ops_.find(text);
    if (ok() && found == ops_.end()) fail(fmt::format("no op `{}`", text));
    if (!ok()) return;
    Node n;
    n.op = found->second;
    n.region = region;
    n.results = results;
    const NodeId id{static_cast<int32_t>(g_.nodes.size())};
    for (size_t i = 0; i < results.size(); ++i) {
      g_.value(results[i]).def = id;
      g_.value(results[i]).result = static_cast<int32_t>(i);
    }
    if (n.op == Op::kRepeat) {
      loop_header(n);
    } else {
      n.operands = uses("(", ")");
    }
    while (attribute(n.attrs, n.scope)) {
    }
    if (!ok()) return;
    if (n.op == Op::kInput) {
      const int32_t index = n.attrs.input.index;
      if (index < 0 || index >= static_cast<int32_t>(g_.inputs.size()) || results.empty()) {
        return fail(fmt::format("no input {}", index));
      }
      g_.inputs[static_cast<size_t>(index)].value = results[0];
    }
    const bool loop = n.op == Op::kRepeat;
    g_.nodes.push_back(std::move(n));
    g_.region(region).nodes.push_back(id);
    if (loop) body(id);
  }

  void loop_header(Node& n) {
    n.loop.dim = dim();
    expect("carries");
    n.operands = uses("(", ")");
    n.loop.carries = static_cast<int>(n.operands.size());
    expect("scanned");
    const std::vector<ValueId> scanned = uses("(", ")");
    n.loop.scanned = static_cast<int>(scanned.size());
    expect("invariants");
    const std::vector<ValueId> invariants = uses("(", ")");
    n.loop.invariants = static_cast<int>(invariants.size());
    n.operands.insert(n.operands.end(), scanned.begin(), scanned.end());
    n.operands.insert(n.operands.end(), invariants.begin(), invariants.end());
    expect("collects");
    expect("=");
    n.loop.collected = static_cast<int>(integer());
    n.loop.reverse = accept("backwards");
  }

  void body(NodeId id) {
    const RegionId inside = g_.add_region(id);
    g_.node(id).loop.body = inside;
    expect("{");
    expect("args");
    const std::vector<ValueId> args = defines(inside);
    for (size_t i = 0; i < args.size() && ok(); ++i)
      g_.value(args[i]).result = static_cast<int32_t>(i);
    g_.region(inside).args = args;
    nodes(inside);
    expect("yield");
    std::vector<ValueId> results;
    while (ok() && lex_.kind() == Kind::kValue) {
      results.push_back(use());
      if (!accept(",")) break;
    }
    g_.region(inside).results = results;
    expect("}");
  }

  Lexer lex_;
  Graph g_;
  std::map<std::string, Op> ops_;
  std::unordered_map<std::string, DimId> dims_;
  std::unordered_map<std::string, ValueId> values_;
  std::string error_;
  int error_line_ = 0;
};

}  // namespace

Result<Graph> parse_graph(const std::string& text) {
  return Parser(text).run();
}

}  // namespace cad::ir
