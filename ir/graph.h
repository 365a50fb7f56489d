// ir/graph.h -- the typed graph: SSA values in an arena, nodes in regions, `repeat` a node with a
// body region. Everything later (autodiff, planning, kernels) is a function over this value.
// Copying a Graph copies the program; ids stay valid in the copy.
//
// Region 0 is the top level. A body is isolated: it sees only its arguments.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/source.h"
#include "ir/scalar.h"
#include "ir/type.h"

namespace cad::ir {

enum class Op : uint8_t {
#define CAD_OP(enumerator, text, family) enumerator,
#include "ir/ops.def"
#undef CAD_OP
};
const char* op_name(Op op);

// One item of a rename or reshape: dims `from` become dims `to` at once.
struct DimGroup {
  std::vector<DimId> from, to;
  bool operator==(const DimGroup&) const = default;
};

// How a collective combines its members' tensors.
enum class Reduction : uint8_t { kSum, kMax, kMin };

// One axis of the devices' mesh: the ops of family `comm` and Dim::axes name axes by their place in
// Graph::mesh. The last axis joins neighbouring device numbers.
struct MeshAxis {
  std::string name;
  int64_t size = 1;
  bool operator==(const MeshAxis&) const = default;
};

// Attributes; which ones an op reads is listed in ir/ops.def. Unused ones keep their default.
struct Attrs {
  std::vector<DimId> dims;
  std::vector<DimGroup> groups;
  DimId dim, to, window;
  Size start;
  Scalar scalar;
  int64_t stride = 1, pad = 0, dilation = 1;
  bool reverse = false;
  DType dtype = DType::kF32;
  InputId input;
  std::string site;
  // attention and its gradient only
  bool causal = false, masked = false;
  Scalar p;
  std::vector<DimId> probs;
  // collectives and axis_index: bit a is axis a of Graph::mesh
  uint32_t axes = 0;
  Reduction reduction = Reduction::kSum;
  bool operator==(const Attrs&) const = default;
};

// repeat: operands   = [carries.. | scanned.. | invariants..]
//         body args  = [number i32[] | carries.. | scanned (leading loop dim dropped).. |
//         invariants..] body results = [carries.. | collected..] results    = [carries after the
//         last iteration.. | collected with the loop dim first..]
// `reverse` runs numbers count-1 .. 0; scanned and collected are still indexed by the number.
struct Loop {
  RegionId body;
  DimId dim;  // the loop's own dim: its size is the trip count
  int carries = 0, scanned = 0, invariants = 0, collected = 0;
  bool reverse = false;
};

struct Node {
  Op op = Op::kConst;
  Attrs attrs;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  RegionId region;    // the region it stands in
  Loop loop;          // kRepeat only
  Span span;          // source place, if any
  std::string scope;  // enclosing path template, "h.{}.block.attention": for profiles and traces
};

// What the program fixes about a value, whatever a plan would rather choose. Never changes results.
struct Pin {  // `@shard(H: tp)`, `@shard(D: none)`
  DimId dim;
  std::string axis;  // of the mesh; empty: the dim is not split
  Span span;         // source place, if any; not compared
  bool operator==(const Pin& other) const { return dim == other.dim && axis == other.axis; }
};
enum class Saving : uint8_t {
  kAuto,
  kKeep,       // `@keep`: saved for the backward pass
  kRecompute,  // `@recompute`: computed again
  kCheckpoint  // `@checkpoint`: saved, and what it is made of computed again; of a repeat's
               // results: only what enters an iteration is saved
};

struct Value {
  Type type;
  NodeId def;          // invalid for a region argument
  int32_t result = 0;  // index among def's results, or among the region's args
  RegionId region;
  std::string name;  // source name, a hint for printing
  std::vector<Pin> pins;
  Saving saving = Saving::kAuto;
};

struct Region {
  NodeId owner;  // invalid for region 0
  std::vector<ValueId> args;
  std::vector<NodeId> nodes;  // in a valid execution order
  std::vector<ValueId> results;
};

enum class InputKind : uint8_t { kParam, kState, kData, kOther };

// Initial value of a parameter or state.
struct Init {
  enum class Kind : uint8_t { kZeros, kConstant, kNormal, kUniform } kind = Kind::kZeros;
  Scalar scale;  // constant's value, normal's standard deviation, uniform's bound (kaiming and
                 // xavier are lowered to these)
};

// A graph input. A parameter inside `repeat`s is one input whose leading dims are the loop dims
// (outermost first); its path has a `{}` for each: "h.{}.block.attention.Wq".
struct Input {
  InputKind kind = InputKind::kOther;
  std::string path;
  ValueId value;      // in region 0
  int loop_dims = 0;  // how many leading dims are loop dims
  Init init;
  bool frozen = false;  // @frozen
  enum class Decay : uint8_t { kByRank, kAlways, kNever } decay = Decay::kByRank;
  Span span;
};

// A named result of region 0, parallel to regions[0].results.
struct Output {
  std::string name;  // "loss", "grad:PATH", "state:PATH", "metric:acc", "result:0"
};

struct Graph {
  std::vector<MeshAxis> mesh;  // the devices that all run this graph; empty: one device
  std::vector<Dim> dims;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Region> regions;  // [0] is the top level
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  DimId batch_dim;  // the data's first dim, if any: random rows and exact means use it

  Graph() : regions(1) {}
  DimId add_dim(const std::string& name, Size size);  // a taken name gets `.1`, `.2`, ..
  [[nodiscard]] DimId find_dim(const std::string& name) const;
  RegionId add_region(NodeId owner);
  ValueId add_value(RegionId region, Type type, std::string name = "");
  ValueId add_argument(RegionId region, Type type, std::string name = "");  // the region's next arg

  [[nodiscard]] const Dim& dim(DimId id) const { return dims[static_cast<size_t>(id.index)]; }
  [[nodiscard]] const Value& value(ValueId id) const {
    return values[static_cast<size_t>(id.index)];
  }
  [[nodiscard]] Value& value(ValueId id) { return values[static_cast<size_t>(id.index)]; }
  [[nodiscard]] const Node& node(NodeId id) const { return nodes[static_cast<size_t>(id.index)]; }
  [[nodiscard]] Node& node(NodeId id) { return nodes[static_cast<size_t>(id.index)]; }
  [[nodiscard]] const Region& region(RegionId id) const {
    return regions[static_cast<size_t>(id.index)];
  }
  [[nodiscard]] Region& region(RegionId id) { return regions[static_cast<size_t>(id.index)]; }
  [[nodiscard]] const Type& type(ValueId id) const { return value(id).type; }
  [[nodiscard]] Size elements(const Type& type) const;    // product of sizes; 1 for rank 0
  [[nodiscard]] std::string str(const Type& type) const;  // "i32[B, T]", "[B, T, D]"
};

}  // namespace cad::ir
