// frontend/ast.h -- the syntax tree of one file: what was written, nothing resolved. Nodes live in
// flat vectors of an `Ast` and refer to each other by typed 32-bit ids; there are no pointers and
// destruction never recurses. Every node has a Span, and so do the names, operators and keywords
// that diagnostics mark. parse.h makes it, ast_print.h prints it, format.h writes it back.
//
// Depth: brackets, blocks, unary operators and `^` nest at most kMaxNesting deep (the parser
// reports deeper ones), so walks may recurse over them. Left-leaning chains (a + b + c ..,
// x |> f |> g .., f(x)(y)[T -> S] ..) have no limit: walk those with left_spine().
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/source.h"

namespace cad::frontend {

inline constexpr int kMaxNesting = 1000;

template <class Tag>
struct AstId {
  int32_t index = -1;
  [[nodiscard]] bool valid() const { return index >= 0; }
  bool operator==(const AstId&) const = default;
};
using ExprId = AstId<struct ExprTag>;
using TypeId = AstId<struct TypeTag>;
using StmtId = AstId<struct StmtTag>;
using DefId = AstId<struct DefTag>;
using SectionId = AstId<struct SectionTag>;
using ItemId = AstId<struct ItemTag>;

// An identifier where it stands. Absent optional names are empty.
struct Name {
  std::string text;
  Span span;
  [[nodiscard]] bool empty() const { return text.empty(); }
};

// ---------------------------------------------------------------- expressions (also dim ones)

// CAD_AST_OP(enumerator, text): the operators, tightest first.
// clang-format off
#define CAD_AST_OPS(X) \
  X(kPow, "^") X(kNeg, "-") X(kMul, "*") X(kDiv, "/") X(kFloorDiv, "//") X(kMod, "%") \
  X(kContract, "@[]") X(kAdd, "+") X(kSub, "-") X(kLt, "<") X(kLe, "<=") X(kGt, ">") \
  X(kGe, ">=") X(kEq, "==") X(kNe, "!=") X(kNot, "not") X(kAnd, "and") X(kOr, "or") \
  X(kPipe, "|>")
// clang-format on

enum class AstOp : uint8_t {
#define CAD_AST_OP_ENUMERATOR(name, text) name,
  CAD_AST_OPS(CAD_AST_OP_ENUMERATOR)
#undef CAD_AST_OP_ENUMERATOR
};
const char* op_text(AstOp op);  // "+", "not", "@[]"
bool is_comparison(AstOp op);
// Binding strength: larger binds tighter; kPipe is 1. Calls, dims and members bind tighter still.
int precedence(AstOp op);

// `name: value` or `value`: of a call, a tuple, an annotation.
struct Arg {
  Name name;  // empty: positional
  ExprId value;
  Span span;
};

// One side of an item in brackets: `T`, `()`, `(H, K)`, or a dim expression.
struct DimSide {
  std::vector<ExprId> dims;
  bool tuple = false;  // written in parentheses with a comma, or `()`
  Span span;
};

enum class DimItemKind : uint8_t {
  kDots,   // ..
  kPlain,  // T, (H, K), 2 * D: `left`
  kArrow,  // T -> S, D -> (H, K), (H, K) -> D: `left`, `right`
  kIndex,  // V = ids: `name`, `value`   (gather, or select where the index has rank 0)
  kSlice,  // T = 0 : N -> N: `name`, `value` (begin), `end`, `right` (one plain name)
};

// An item of `x[..]`, of the brackets of a call, or of a contraction `@[..]` (kDots, kPlain).
struct DimItem {
  DimItemKind kind = DimItemKind::kPlain;
  Span span;
  DimSide left, right;
  Span arrow;  // kArrow, kSlice
  Name name;   // kIndex, kSlice
  ExprId value, end;
};

enum class ExprKind : uint8_t {
  kError,     // could not be parsed; reported already: stay silent about it
  kName,      // text
  kNumber,    // text as written, `number`
  kQuantity,  // text is the number as written, `number`, `unit`
  kString,    // text: the value, escapes replaced
  kParen,     // ( left )
  kTuple,     // args: `()`, `(a,)`, `(a, b)`, `(x: 1)`
  kCall,      // left ( args )
  kDims,      // left [ dims ]
  kMember,    // left . member
  kUnary,     // op right: kNeg, kNot
  kBinary,    // left op right; op kContract has `dims`
};

struct Expr {
  ExprKind kind = ExprKind::kError;
  AstOp op = AstOp::kAdd;
  bool integer = false;  // kNumber: written without fraction and exponent, and fits int64
  Span span;             // all of it
  Span op_span;          // operator (`@[` .. `]` whole for a contraction), `(..)` of a call,
                         // `[..]` of dims; a member's name is `member.span`
  ExprId left, right;
  double number = 0;
  int64_t whole = 0;  // the value of an integer
  std::string text;
  Name member;  // kMember
  Name unit;    // kQuantity
  std::vector<Arg> args;
  std::vector<DimItem> dims;
};

// ------------------------------------------------------------------------------------- types

struct DimTerm {
  bool dots = false;
  ExprId dim;  // when not dots
  Span span;
};

enum class TypeKind : uint8_t {
  kError,
  kTensor,  // dtype? [ terms ]
  kName,    // dtype alone: a constant (int, f32, bool)
  kTuple,   // ( elements )
};

struct TypeNode {
  TypeKind kind = TypeKind::kError;
  Span span;
  Name dtype;  // empty: none written
  std::vector<DimTerm> terms;
  std::vector<TypeId> elements;
};

// -------------------------------------------------------------------------------- statements

struct DimBind {
  Name name;
  ExprId value;  // invalid: a free dim
  Span span;
};

struct Annotation {
  Name name;
  std::vector<Arg> args;
  Span span;  // from `@`
};

enum class StmtKind : uint8_t {
  kError,   // not parsed; `names` are those it would likely have bound
  kDim,     // dim binds
  kParam,   // param names : type = value annotations
  kState,   // state ..
  kUse,     // use names[0] = value annotations
  kRepeat,  // repeat value as label annotations { body }
  kReturn,  // return values annotations
  kBind,    // names : type = value annotations
};

// `broken`: a part could not be parsed and was reported; what is here is what was understood.
// (Values of broken lets, dims and settings are kError: repairs make odd ones.)
struct Stmt {
  StmtKind kind = StmtKind::kError;
  bool broken = false;
  Span span;
  Span keyword;  // of `param`, `state`, `use`, `repeat`, `return`, `dim`
  std::vector<Name> names;
  TypeId type;                 // may be invalid
  ExprId value;                // initialiser (may be invalid), instance, count, bound expression
  std::vector<ExprId> values;  // kReturn
  std::vector<DimBind> binds;  // kDim
  Name label;                  // kRepeat, may be empty
  std::vector<Annotation> annotations;
  std::vector<StmtId> body;  // kRepeat
  Span braces;               // kRepeat: `{` .. `}`
};

// ------------------------------------------------------------------------------------- items

struct DimParam {
  Name from;
  Name to;  // `from -> to`; may be empty
  Span arrow, span;
};

struct Param {
  Name name;
  TypeId type;
  ExprId value;  // default, may be invalid
  Span span;
};

enum class DefKind : uint8_t { kFn, kLayer, kModel };
const char* def_keyword(DefKind kind);  // "fn", "layer", "model"

struct Def {
  DefKind kind = DefKind::kFn;
  bool broken = false;       // the header could not be parsed whole: do not check calls of it
  bool body_broken = false;  // a statement of the body (at any depth) is broken
  Span span, keyword;
  Span header;  // keyword to result type
  Name name;    // may be empty when broken
  std::vector<DimParam> dims;
  std::vector<Param> params;
  TypeId result;
  std::vector<StmtId> body;
  Span braces;
};

struct Entry {
  bool broken = false;
  Name key;           // of a setting
  ExprId value;       // of a setting
  SectionId section;  // or a nested section
  Span span;
};

struct Section {
  bool broken = false;
  Span span;
  Name kind;  // train, cluster, eval, shard ..: any name
  Name name;  // may be empty
  std::vector<Entry> entries;
  Span braces;
};

enum class ItemKind : uint8_t { kError, kImport, kDim, kLet, kDef, kSection };

struct Item {
  ItemKind kind = ItemKind::kError;
  bool broken = false;
  Span span, keyword;
  std::string path;  // kImport
  Span path_span;
  Name name;                   // kImport: alias (may be empty); kLet; kError: a guess or empty
  ExprId value;                // kLet
  std::vector<DimBind> binds;  // kDim
  DefId def;
  SectionId section;
};

// A comment `# ..` without its line end. own_line: nothing but blanks stands before it.
struct Comment {
  Span span;
  bool own_line = false;
};

// ---------------------------------------------------------------------------------- the file

struct Ast {
  FileId file;
  bool broken = false;  // something was reported while parsing
  // A broken place may have hidden a definition whose name is not known: unknown names are then
  // no news. (Definitions whose names are known are in `items`.)
  bool lost_items = false;
  std::vector<Item> items;  // in source order
  std::vector<Expr> exprs;
  std::vector<TypeNode> types;
  std::vector<Stmt> stmts;
  std::vector<Def> defs;
  std::vector<Section> sections;
  std::vector<Comment> comments;  // by position

  [[nodiscard]] const Expr& expr(ExprId id) const { return exprs[static_cast<size_t>(id.index)]; }
  [[nodiscard]] const TypeNode& type(TypeId id) const {
    return types[static_cast<size_t>(id.index)];
  }
  [[nodiscard]] const Stmt& stmt(StmtId id) const { return stmts[static_cast<size_t>(id.index)]; }
  [[nodiscard]] const Def& def(DefId id) const { return defs[static_cast<size_t>(id.index)]; }
  [[nodiscard]] const Section& section(SectionId id) const {
    return sections[static_cast<size_t>(id.index)];
  }
};

// The chain of left operands under `id`, innermost first, `id` last: for a + b + c it is
// {a, a + b, a + b + c}. Follows `left` of kBinary, kCall, kDims and kMember. To evaluate an
// expression without deep recursion: take spine[0] (it has no left operand to follow: a leaf,
// parentheses, a unary), then apply each further node to the value so far. Such a walk recurses
// only into right operands, arguments, parentheses and unary operators, all within kMaxNesting.
std::vector<ExprId> left_spine(const Ast& ast, ExprId id);

// The expression inside any parentheses.
ExprId strip_parens(const Ast& ast, ExprId id);

// Every name that an expression mentions, with those of its brackets.
void collect_names(const Ast& ast, ExprId expr, std::set<std::string>& names);

// The plain name a dim side consists of, or nullptr: `T`.
const Expr* plain_name(const Ast& ast, const DimSide& side);

}  // namespace cad::frontend
