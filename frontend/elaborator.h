// frontend/elaborator.h -- the walk over definitions that both checks and lowers (see elaborate.h).
// Internal to the front end: sections use Lowering. The methods live in elaborate_*.cc and
// builtins_*.cc by concern; the state they share is here.
//
// Two modes. kCheck: one body at a time into a scratch graph; dim parameters and `..` are opaque
// dims of their own, calls give values of the callee's result types. kLower: calls are expanded;
// parameters and states become inputs. Shape rules are those of ir/op_*.cc in both.
#pragma once

#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "frontend/constants.h"
#include "frontend/elaborate.h"
#include "ir/builder.h"

namespace cad::frontend {

using DimList = std::vector<ir::DimId>;

struct RegionFrame;
struct Instance;

// Where parameters get their names. `loops` are the enclosing repeats that the text has `{}` for.
struct Path {
  std::string text;  // "h.{}.block"
  std::vector<RegionFrame*> loops;
  [[nodiscard]] Path child(const std::string& component) const;
};

// What an expression stands for. kError: reported already, everything that uses it stays silent.
struct EValue {
  enum class Kind : uint8_t {
    kError,
    kTensor,
    kNumber,
    kBool,
    kMany,
    kInstance
  } kind = Kind::kError;
  bool whole = false;  // kNumber: known to have no fraction
  int8_t flag = -1;    // kBool constant: 0, 1, or -1 when not known (a constant argument)
  ir::ValueId value;   // kTensor
  std::optional<ir::Scalar> number;           // kNumber
  Instance* instance = nullptr;               // kInstance
  std::shared_ptr<std::vector<EValue>> many;  // kMany: results of a call with several
  Span span;                                  // the expression
  Span bound;        // if it was read from a name: the expression bound to that
  std::string from;  // what made it there: "`gelu`"
  [[nodiscard]] bool error() const { return kind == Kind::kError; }
  [[nodiscard]] bool tensor() const { return kind == Kind::kTensor; }
  [[nodiscard]] bool is_number() const { return kind == Kind::kNumber; }
};

struct Instance {
  const Definition* definition = nullptr;
  std::vector<DimList> dims;  // as bound at `use`, dims of the place it stands
  std::map<std::string, EValue> constants;
  Path path;
  std::string site;
};

enum class BindKind : uint8_t { kArgument, kValue, kParam, kState, kUse, kLoop };
struct Binding {
  EValue value;
  BindKind kind = BindKind::kValue;
  Span span;                        // of the name where it was bound
  std::string path;                 // kState, kParam when lowering: full path
  std::vector<RegionFrame*> loops;  // .. and the repeats in it
};

// One region of the graph being filled: region 0 or the body of a repeat.
struct RegionFrame {
  RegionFrame* parent = nullptr;
  ir::RegionId region;
  ir::DimId loop_dim;
  ir::ValueId number;
  struct Slot {
    ir::ValueId outer, inner;
  };
  std::vector<Slot> scanned, invariants;
  std::unordered_map<int32_t, ir::ValueId> captured;      // outer value -> arg
  std::map<std::string, ir::ValueId> scanned_parameters;  // path -> arg
  struct State {
    ir::ValueId outer, arg, current;
    bool scanned = false, assigned = false;
  };
  std::map<std::string, State> states;  // path -> ..
  struct Collect {
    Name name;
    ir::ValueId value;
    DimList dims;
    Span span;
  };
  std::vector<Collect> collects;
};

// Component names given to calls and repeats of a body, in source order (paths.cc).
struct ScopeNames {
  std::unordered_map<int32_t, std::string> calls;    // callee expression -> component
  std::unordered_map<int32_t, std::string> repeats;  // statement -> component
};

// One body being walked.
struct BodyFrame {
  BodyFrame* caller = nullptr;
  const Definition* definition = nullptr;  // nullptr: a section's expressions
  const Unit* unit = nullptr;
  const Ast* ast = nullptr;
  const ScopeNames* names = nullptr;
  std::vector<DimList> formals;  // by index of Signature::formals
  bool has_pack = false;
  DimList pack;  // `..`
  std::map<std::string, DimList> local_dims;
  std::map<std::string, Span> local_dim_spans;
  std::unordered_map<std::string, Binding> values;
  std::set<std::string> broken_names;  // of statements that could not be parsed
  Path path;
  std::string site;
  std::set<ir::DimId> used;   // dims that fresh local dims must differ from
  bool declare_only = false;  // only dims, parameters and instances (member access)
  int in_repeat = 0;
  bool broken_return = false;  // a return was there, with an error
  std::optional<std::vector<EValue>> returned;
};

// A call of anything, arguments evaluated.
struct ArgValue {
  Name name;  // empty: positional
  EValue value;
  Span span;
};
struct Call {
  std::string name;
  ExprId callee;                               // the name or member expression
  Span name_span, span;                        // callee; the whole call
  const std::vector<DimItem>* dims = nullptr;  // nullptr: no brackets
  Span dims_span;
  std::vector<ArgValue> args;
};

struct BuiltinInfo;

// A parameter or state that was declared; it becomes a graph input when it is read.
struct PendingInput {
  ir::Input input;
  ir::Type type;  // without loop dims
  std::vector<ir::Pin> pins;
  ir::Saving saving = ir::Saving::kAuto;
};

class Elaborator {
 public:
  enum class Mode { kCheck, kLower };
  Elaborator(const Module& module, Mode mode, const LowerOptions& options,
             Diagnostics& diagnostics);

  // elaborate.cc
  bool check_definition(Definition& definition);
  void bind_checked_parameters(BodyFrame& frame, const Signature& s);
  void check_default(const Parameter& p);
  ir::ValueId plain_input(const std::string& path, ir::DType dtype, const DimList& dims,
                          ir::InputKind kind, Span span);
  Result<ir::Graph> lower_model(const Definition& model);  // lower.cc
  bool lower_alone(const Definition& definition);          // expression.cc
  ir::Graph finish();                                      // states out, unread inputs gone
  void open_section();                                     // a frame for section expressions
  void push_names(const Ast& ast, ExprId expr);            // names its calls
  EValue section_call(const Definition& definition, std::vector<ArgValue> args, Span where);
  void finish_states();

  // elaborate_expr.cc
  EValue eval(ExprId id, const DimList* target = nullptr);
  EValue binary(AstOp op, const EValue& a, const EValue& b, const Expr& e, const DimList* target);
  EValue unary_minus(const EValue& a, Span span);
  EValue logical_not(const EValue& a, const Expr& e);
  EValue power(const EValue& a, const EValue& b, const Expr& e);
  EValue fold_constants(AstOp op, const EValue& a, const EValue& b, const Expr& e);
  EValue contract(const EValue& a, const EValue& b, const Expr& e);
  EValue pipe(const EValue& v, const Expr& e);
  EValue iota_expression(const Expr& dims);
  EValue leaf(const Expr& e, const DimList* target);
  EValue start(const std::vector<ExprId>& spine, size_t& i, const DimList* target);
  EValue step(const EValue& v, const Expr& e, const DimList* target);
  EValue name_value(const Expr& e);
  EValue unknown_name(const Expr& e);
  EValue read_binding(const std::string& name, Binding& b, Span span);
  EValue flag_of_known(const Constant& c, Span span);
  void unify_floats(ir::ValueId& x, ir::ValueId& y);
  std::optional<ir::Size> size_of(ExprId id, const char* what);
  EValue number_of(const ir::Scalar& s, bool whole, Span span) const;
  EValue tensor_of(ir::ValueId v, Span span) const;
  EValue flag_of(int flag, Span span) const;

  // values
  ir::ValueId local(ir::ValueId v);  // usable in the current region
  ir::ValueId constant(const ir::Scalar& s, ir::DType dtype);
  std::optional<ir::ValueId> as_tensor(const EValue& v, std::optional<ir::DType> like, Span op_span,
                                       const std::string& what);
  bool fits_i32(const ir::Scalar& s, Span span);  // reports when not; unknown sizes fit
  ir::ValueId as_f32(ir::ValueId v);
  ir::ValueId cast(ir::ValueId v, ir::DType dtype);
  const ir::Type& type(ir::ValueId v) const { return graph.type(v); }
  std::optional<double> value_of(const ir::Scalar& s) const;

  // making nodes
  struct Site {                         // what to say when an op does not fit
    std::string what;                   // "`+`"
    Span span;                          // operator or name
    std::vector<const EValue*> values;  // operands as the user sees them
  };
  std::optional<std::vector<ir::ValueId>> make_all(ir::Op op, std::vector<ir::ValueId> operands,
                                                   ir::Attrs attrs, const Site& site);
  std::optional<ir::ValueId> make(ir::Op op, std::vector<ir::ValueId> operands, ir::Attrs attrs,
                                  const Site& site);
  ir::ValueId node(ir::Op op, std::vector<ir::ValueId> operands, ir::Attrs attrs = {});  // must fit
  std::optional<ir::ValueId> pointwise(ir::Op op, ir::ValueId a, ir::ValueId b, const Site& site,
                                       const DimList* target);
  ir::ValueId broadcast(ir::ValueId v, const DimList& dims);
  ir::ValueId union_op(ir::Op op, ir::ValueId a, ir::ValueId b);   // dims of a, then those of b
  ir::ValueId opaque(const ir::Type& t, const std::string& name);  // kCheck only
  ir::ValueId iota(const DimList& dims);                           // row-major index over a list
  ir::ValueId rename(ir::ValueId v, const std::vector<std::pair<ir::DimId, ir::DimId>>& pairs);
  ir::ValueId regroup(ir::ValueId v, const DimList& from, const DimList& to);
  ir::ValueId merged(ir::ValueId v, const DimList& dims, ir::DimId* one);

  // conditions on sizes
  struct Need {
    std::string what, help;
    Span span;
  };
  bool need_equal(const ir::Size& left, const ir::Size& right, const Need& need);
  bool need_whole(const ir::Size& size, const Need& need);
  bool need(DefCondition condition);
  bool unsure(const ir::Size& size) const;
  void condition_failed(const DefCondition& c);

  // dims
  ir::DimId file_dim(const std::string& name);
  std::optional<DimList> find_dims(const std::string& name);              // formal, local, file
  std::optional<DimList> dims_named(const std::string& name, Span span);  // reports
  std::optional<DimList> dims_of_side(const DimSide& side, const std::string& what);
  std::optional<DimList> dims_of_items(const Call& call);  // plain items and `..`
  std::optional<DimList> one_dim(const Call& call, size_t index, const char* side_name);
  ir::DimId alternate(ir::DimId base, const std::function<bool(ir::DimId)>& taken);
  ir::DimId local_dim(const std::string& name, const ir::Size& size);
  ir::Size size(const DimList& dims) const;
  std::vector<std::string> visible_dims() const;
  bool contains(const DimList& dims, ir::DimId d) const;

  // elaborate_dims.cc: x[..]
  EValue index(const EValue& x, const Expr& e);
  EValue index_rename(const EValue& x, const Expr& e);
  EValue index_gather(const EValue& x, const Expr& e);
  EValue index_one(const EValue& x, ir::DimId dim, const EValue& index, const DimItem& item,
                   const Expr& e);
  EValue index_slice(EValue x, const DimItem& item, ir::DimId dim, const Expr& e);
  EValue slice_into_many(EValue x, ir::DimId dim, const ir::Size& begin, const ir::Size& end,
                         const DimList& to, const DimItem& item, const Expr& e);
  bool slice_sizes(ir::DimId dim, const ir::Size& begin, const ir::Size& end,
                   const ir::Size& length, const DimItem& item);
  std::optional<ir::Size> slice_bound(ExprId id, ir::DimId dim);
  bool check_index(const ir::Scalar& index, ir::DimId dim, Span span);
  bool source_dims(ir::ValueId x, const DimList& from, Span span, const std::string& what);
  std::string show_side(const DimSide& side) const;

  // elaborate_call.cc
  EValue call_expression(ExprId callee, const Expr* dims, const Expr* call, const EValue* piped,
                         Span span);
  EValue call_definition(const Definition& definition, Call& call);
  EValue call_instance(Instance& instance, Call& call);
  EValue call_builtin(const BuiltinInfo& builtin, Call& call);
  bool bind_formals(const Definition& d, const std::vector<DimItem>* items, Span items_span,
                    Span where, std::vector<DimList>& out);
  struct Bound {  // a call matched against a signature
    std::vector<DimList> formals;
    DimList pack;
    std::string pack_argument;  // whose `..` it was first
    std::map<std::string, EValue> args;
  };
  bool find_instance(ExprId callee, Instance*& out);
  bool arguments(const Expr& e, Call& call);
  EValue unknown_callee(ExprId callee, const Call& call);
  bool argument_misfit(const Definition& d, const Parameter& p, const EValue& v,
                       const DimList& named, const DimList& missing, const DimList& extra,
                       Span span);
  EValue default_value(const Definition& d, const Parameter& p, const Bound& bound);
  bool bind_arguments(const Definition& d, Call& call, Bound& bound);
  bool match_argument(const Definition& d, const Parameter& p, EValue& v, Bound& bound,
                      bool& pack_set, Span span);
  bool match_constant(const Parameter& p, EValue& v, Span span, const std::string& callee);
  std::optional<DimList> pattern_dims(const TypePattern& t, const std::vector<DimList>& formals,
                                      const DimList& pack, const Unit* unit);
  bool call_conditions(const Definition& d, const Bound& bound, const Call& call);
  EValue results_by_signature(const Definition& d, const Bound& bound, const Call& call);
  EValue expand(const Definition& d, const Bound& bound, const Call& call, Path path,
                std::string site);
  bool check_result_dims(const Definition& d, const Bound& bound, const Call& call);
  std::string component(ExprId callee, const std::string& name) const;
  std::string random_site(const Call& call) const;
  std::string section_site(const Definition& d);
  EValue several(std::vector<EValue> values, Span span);
  std::vector<std::pair<ir::DimId, ir::DimId>> dim_pairs(const TypePattern& t, const Bound& bound,
                                                         const BodyFrame& frame) const;
  void bind_parameters(BodyFrame& frame, const Definition& d, const Bound& bound);
  EValue member(const EValue& v, const Expr& e);
  const Definition* find_callee(ExprId callee, std::string& name, Span& span);

  // elaborate_stmt.cc
  void statements(const std::vector<StmtId>& list);
  void statement(StmtId id);
  void dim_statement(const Stmt& s);
  void param_statement(const Stmt& s);
  void declare_input(const Stmt& s, const Name& name, const ir::Type& t, const ir::Init& init,
                     Binding& b);
  std::optional<ir::Init> initialiser(ExprId e, const DimList& dims);
  void use_statement(const Stmt& s);
  std::optional<Instance*> make_instance(const Stmt& s, const Name& name);
  void bind_statement(const Stmt& s);
  void return_statement(const Stmt& s);
  void bind(const Name& name, EValue value, ExprId expr);
  void bind_error(const Name& name);
  void assign_state(const Name& name, Binding& b, const EValue& value);
  bool check_binding_name(const Name& name, bool declares);
  std::optional<TypePattern> body_type(TypeId type);
  std::optional<EValue> coerce(EValue v, const TypePattern& t, const DimList& dims, Span span,
                               const std::string& what, bool broadcast_allowed);

  // elaborate_annotations.cc
  void check_annotations(const Stmt& s, const DimList* dims);
  void check_shard(const Stmt& s, const Annotation& a, const DimList* dims);
  void annotate(const Stmt& s, const std::vector<EValue>& values);
  std::string axis_of(const Arg& arg) const;
  std::vector<ir::Pin> pins_of(const Stmt& s, const DimList& dims);
  static ir::Saving saving_of(const Stmt& s);
  void record(const Name& name, const EValue& v, const char* kind);
  std::string dims_text(const DimList& dims) const;

  // elaborate_repeat.cc
  struct Carry {
    std::string name;
    Span span;  // where it was bound before the loop
    ir::ValueId entry, arg;
    EValue entry_value;
  };
  void repeat_statement(StmtId id, const Stmt& s);
  std::vector<Carry> open_loop(RegionFrame& frame, const std::vector<std::string>& rebound);
  void enter_loop(RegionFrame& frame, const Stmt& s, const std::string& component,
                  const std::vector<Carry>& carries);
  std::vector<ir::ValueId> loop_results(RegionFrame& frame, const Stmt& s,
                                        const std::vector<Carry>& carries);
  void close_loop(RegionFrame& frame, const Stmt& s, const std::vector<Carry>& carries,
                  std::vector<ir::ValueId> results);
  ir::DimId loop_dim(const std::string& component, const ir::Size& count);
  bool collect_statement(const Stmt& s);
  void bind_collected(const RegionFrame::Collect& c, const RegionFrame& frame, ir::ValueId v);
  ir::ValueId read_parameter(const Binding& b);
  ir::ValueId parameter_in(RegionFrame* frame, const std::string& path, ir::ValueId input,
                           const std::vector<RegionFrame*>& loops);
  bool add_input(const std::string& path, const std::vector<RegionFrame*>& loops);
  bool same_input(const PendingInput& p, const std::vector<RegionFrame*>& loops);
  RegionFrame::State& state_in(RegionFrame* frame, const std::string& path);
  void set_state(const std::string& path, ir::ValueId v);
  std::vector<ir::ValueId> loop_numbers();

  // elaborate_errors.cc
  Diagnostic& error(DiagId id, Span span, std::string message, std::string label = "");
  void report(const ir::ShapeError& e, ir::Op op, const Site& site);
  void report_not_subset(const ir::ShapeError& e, const Site& site,
                         const std::vector<std::string>& dims,
                         const std::vector<const EValue*>& tensors);
  std::string show(const ir::Type& t) const;  // "[B, T, D]"
  std::string show(ir::ValueId v) const { return show(graph.type(v)); }
  std::string show(const DimList& dims) const;
  std::string show_size(const ir::Size& s) const;   // "D/H", without `$`
  std::string sizes_of(const DimList& dims) const;  // "T = 128, D = 768"
  std::string describe(const EValue& v) const;      // type, sizes, where it came from
  std::string dim_text(ir::DimId d) const;          // "`D` (768)"
  std::string known_size(ir::DimId d) const;        // "768" or ""
  bool too_large(const DimList& dims) const;        // whatever its free dims are
  int line_of(Span span) const;
  [[nodiscard]] bool failed() const { return statement_reported_; }
  EValue type_clash(const std::string& op, Span span, const EValue& a, const EValue& b);

  const Module& module;
  Mode mode;
  LowerOptions options;
  Diagnostics* diagnostics;
  ir::Graph graph;
  ir::Builder builder;  // its span is stamped on composed nodes
  RegionFrame* region = nullptr;
  BodyFrame* body = nullptr;
  Definition* checking = nullptr;       // kCheck: conditions and bindings go here
  const ir::Bindings* known = nullptr;  // what decides equations: declared, or final bindings

 private:
  friend class Lowering;
  friend class SessionBody;
  std::map<std::string, ir::DimId> file_dims_;
  std::map<std::string, std::vector<ir::DimId>> local_pool_;        // base name -> dims made for it
  std::unordered_map<int32_t, std::vector<ir::DimId>> alternates_;  // dim -> its `.1`, `.2`
  std::map<std::string, ir::DimId> loop_dims_;                      // path of a repeat -> its dim
  std::map<std::string, ir::ValueId> inputs_;                       // path -> its value in region 0
  std::map<std::string, PendingInput> pending_inputs_;              // path -> what it will be
  std::map<std::string, std::vector<RegionFrame*>> state_loops_;    // path -> loops in it (current)
  std::list<Instance> instances_;
  std::list<RegionFrame> regions_;
  std::list<BodyFrame> bodies_;
  std::map<const Definition*, std::unique_ptr<ScopeNames>> scope_names_;
  std::unique_ptr<ScopeNames> section_names_;
  std::map<std::string, int> section_counts_;
  bool statement_failed_ = false;    // something of this statement is an error value
  int nesting_ = 0;                  // of eval() in eval()
  bool statement_reported_ = false;  // one root error a statement
  std::unique_ptr<Diagnostic> swallowed_;

  const ScopeNames& names_of(const Definition& definition);
  void bind_body(BodyFrame& frame, const Definition& d, const Bound& bound);
  friend struct Builtins;
};

// paths.cc
std::string snake_case(const std::string& name);
ScopeNames name_scopes(const Module& module, const Definition& definition);
// The calls in an expression: callee name or member expressions in source order.
void collect_callees(const Ast& ast, ExprId expr, std::vector<ExprId>& out);
std::vector<std::string> assigned_names(const Ast& ast, const std::vector<StmtId>& body);

// builtins.cc
struct BuiltinInfo {
  const char* name;
  EValue (*run)(Elaborator& e, Call& call);
};
const BuiltinInfo* find_builtin(const std::string& name);
std::vector<std::string> builtin_names();

// signature.cc
void resolve_signature(Module& module, Definition& definition, Diagnostics& diagnostics);
// The pattern of a type written in a body; reports. `formals`, `locals` decide what a name is.
TypePattern resolve_type(const Module& module, const Unit& unit, const Signature* signature,
                         const std::function<bool(const std::string&)>& is_local, TypeId type,
                         bool allow_constant, Diagnostics& diagnostics);

}  // namespace cad::frontend
