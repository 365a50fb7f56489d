// backend/spmd/lowering.h -- the state of one lowering, private to backend/spmd/: lower.cc (values
// and regions), lower_loop.cc (loops), lower_parameters.cc (parameters through loops), lower_op.cc
// (one op at one split).
//
// Ops that the placement splits are lowered in order; everything else (constants, positions, masks
// made of data) when something asks for it, in the layout that is asked for.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/spmd/convert.h"
#include "backend/spmd/local_dims.h"
#include "backend/spmd/lower.h"
#include "planner/strategy.h"

namespace cad::backend {

using Choice = ir::SavePolicy::Choice;

// Ends the path of the input that stands for a parameter's gradient: lower_parameters.cc.
constexpr const char* kGradientInput = "~";

// Small sums over devices that loops only collect are made after the loop: late_sums.cc.
ir::Graph sum_after_loops(ir::Graph g);

// The iterations of a `repeat` that one local loop body does, and which of its positions.
struct Stretch {
  ir::NodeId loop;
  int64_t first = 0, count = 1;  // of the loop's numbers: first + i * period
  int64_t period = 1;
  int run = 0, position = 0;
  bool several = false;  // the loop has more than one stretch
  ir::DimId dim;         // of the local loop: its size is `count`
  // planner::RunPlacement::segment. Over 0 there are two loops, one over segments and one over what
  // is within each, with these dims; together they are `dim`.
  int64_t segment = 0;
  ir::DimId segments, within;
  auto key() const { return std::make_tuple(loop.index, run, position); }
  // What the loops take away of a value that they scan.
  [[nodiscard]] std::vector<ir::DimId> leading() const;
};

// What a body reads from outside. In segments it comes through the body around it.
struct LoopArguments {
  struct Read {
    ir::ValueId outer, argument;
    ir::ValueId middle;  // argument of the loop over segments
  };
  std::vector<Read> scanned, invariants;
};

// One execution of a region of the whole graph within a region of the local one.
struct Frame {
  struct Home {
    ir::ValueId value;  // local
    planner::Layout layout;
  };
  ir::RegionId region;  // local
  ir::RegionId middle;  // local: the body over segments around it, if any
  const planner::BodyPlacement* placement = nullptr;
  Frame* parent = nullptr;
  ir::Node node;                        // the whole graph's loop, of a body
  Stretch stretch;                      // of a body
  LoopArguments* arguments = nullptr;   // of a body; positions of one body share them
  std::unordered_map<int, Home> homes;  // by whole value
  std::map<std::pair<int, planner::Layout>, ir::ValueId> made;
  std::map<int, ir::ValueId> parameters;  // by whole value: in storage layout
};

class Lowering {
 public:
  Lowering(const ir::Graph& whole, const ir::Bindings& bindings,
           const planner::Placement& placement, const SharedParameters& shared);
  LocalGraph run();

 private:
  // lower.cc, lower_loop.cc
  ir::ValueId get(Frame& f, ir::ValueId v, const planner::Layout& layout);
  ir::ValueId from_home(Frame& f, ir::ValueId v, const planner::Layout& layout);
  ir::ValueId from_outside(Frame& f, ir::ValueId v, const planner::Layout& layout);
  ir::ValueId on_demand(Frame& f, ir::ValueId v, const planner::Layout& layout);
  ir::ValueId input(Frame& f, ir::ValueId v, const planner::Layout& layout);
  void region(Frame& f, ir::RegionId id);
  void loop(Frame& f, ir::NodeId id);
  // A loop on the way through its runs.
  struct LoopState {
    std::vector<Frame::Home> carries;
    std::vector<std::vector<ir::ValueId>> collected;  // by run
    std::vector<planner::Layout> layouts;             // of collected values
  };
  // One run's body, or both: `segment_..` is of the one over segments.
  struct LoopRun {
    ir::RegionId body, middle;
    ir::ValueId number, segment_number;
    ir::ValueId segment_first, first;  // whole number of a segment's first iteration: made, read
    std::vector<ir::ValueId> carries, segment_carries;
    LoopArguments arguments;
    std::vector<Frame::Home> state;                   // of the carries, by now
    std::vector<std::vector<ir::ValueId>> collected;  // by position
  };
  std::vector<planner::RunPlacement> runs_of(const Frame& f, ir::NodeId id, int64_t trips) const;
  void loop_run(Frame& f, const ir::Node& n, const planner::RunPlacement& placed, Stretch stretch,
                LoopState& loop, const std::vector<planner::Layout>& leaving);
  LoopRun open_run(const ir::Node& n, Stretch& stretch, const std::vector<Frame::Home>& carries);
  ir::ValueId whole_number(const LoopRun& run, const Stretch& s);
  void iteration(Frame& f, const ir::Node& n, const planner::RunPlacement& placed,
                 const Stretch& stretch, LoopRun& run, LoopState& loop);
  std::vector<ir::ValueId> close_run(Frame& f, const ir::Node& n, const Stretch& stretch,
                                     LoopRun& run, const std::vector<Frame::Home>& carries);
  void collect(Frame& f, const ir::Node& n, const LoopState& loop);
  ir::ValueId stretch_of(ir::Builder& b, ir::ValueId x, const Stretch& s);
  static planner::Layout deeper(planner::Layout layout);
  planner::Layout carried(const planner::BodyPlacement& body, ir::ValueId argument) const;
  ir::ValueId scan(Frame& f, ir::ValueId outer);
  ir::ValueId invariant(Frame& f, ir::ValueId outer);
  std::optional<size_t> argument_index(const Frame& f, ir::ValueId v) const;
  planner::Layout reached(const planner::Layout& layout) const;  // without partial axes
  void save(ir::ValueId local, Choice choice);
  void save_results(const Frame& f, ir::NodeId id);
  ir::ValueId convert(Frame& f, ir::ValueId x, ir::ValueId whole, const planner::Layout& from,
                      const planner::Layout& to, Choice choice);
  ir::Builder builder(const Frame& f) const;

  // lower_parameters.cc
  int parameter_of(ir::ValueId v);  // input; -1: it is none (through renames, casts, arguments)
  ir::ValueId parameter(Frame& f, ir::ValueId v, int input);
  enum class Kind : uint8_t { kStorage, kGradient };
  struct Chain {
    int input = -1;
    Kind kind = Kind::kStorage;
    planner::Layout layout;
  };
  ir::ValueId chain(Frame& f, ir::ValueId v, const Chain& c, std::vector<Stretch> suffix);
  ir::ValueId part_of(Frame& f, ir::ValueId all, const Stretch& s);
  ir::ValueId parameter_input(ir::ValueId v, const Chain& c, const std::vector<Stretch>& suffix);
  planner::ParameterPlacement placed(const Frame& f, ir::ValueId v, int input);
  std::vector<Stretch> stretches(const Frame& f, ir::ValueId v) const;
  bool stopped(ir::ValueId v) const;
  [[nodiscard]] bool shared(int input) const;  // one tensor of all iterations, for several loops
  // A layout of one iteration, for v, which may have dims of loops in front.
  planner::Layout lying(const Frame& f, ir::ValueId v, planner::Layout layout);

  // lower_op.cc
  std::vector<ir::ValueId> emit(Frame& f, ir::NodeId id, const planner::Strategy& strategy);
  ir::Attrs attributes(const ir::Node& n, const planner::Strategy& s);
  [[nodiscard]] uint32_t reduced_axes(const ir::Node& n, const planner::Strategy& s,
                                      size_t k) const;
  ir::ValueId statistic(ir::Builder& b, const ir::Node& n, const planner::Strategy& s,
                        const std::vector<ir::ValueId>& operands, const ir::Attrs& attrs);
  ir::ValueId weighted_mean(ir::Builder& b, const ir::Node& n, const planner::Strategy& s,
                            const std::vector<ir::ValueId>& operands, const ir::Attrs& attrs);
  ir::ValueId argmax(ir::Builder& b, const ir::Node& n, const planner::Strategy& s, ir::ValueId x,
                     const ir::Attrs& attrs);
  ir::ValueId shifted(ir::Builder& b, ir::ValueId ids, ir::DimId whole, const AxisOrder& axes);
  const planner::OpSharding& sharding(ir::NodeId id);
  void add_state_outputs(Frame& top);

  const ir::Graph& g_;
  planner::Extents extents_;
  const planner::Placement& placement_;
  const SharedParameters& shared_;
  LocalGraph out_;
  std::unique_ptr<LocalDims> dims_;
  std::unique_ptr<Converter> converter_;
  std::unordered_map<int, planner::OpSharding> shardings_;
  std::unordered_map<int, int> parameter_of_;           // by value; -1 none
  std::unordered_map<int, ir::ValueId> outer_;          // loop argument -> operand
  using Keys = std::vector<std::tuple<int, int, int>>;  // of stretches, outermost first
  static Keys keys(const std::vector<Stretch>& stretches);
  std::map<std::tuple<int, Kind, Keys>, ir::ValueId> inputs_;
  std::map<std::pair<int, Keys>, planner::ParameterPlacement> placed_;
  std::map<std::string, std::vector<Stretch>> stretches_;  // by LocalTensor::local
};

}  // namespace cad::backend
