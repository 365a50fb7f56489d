// backend/scheduler.h -- the class behind backend/schedule.h; schedule.cc decides on places,
// schedule_sums.cc on those of sums, schedule_steps.cc makes the instructions, schedule_comm.cc
// moves collectives apart from their awaits. Private to these four.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/program_impl.h"
#include "base/check.h"
#include "ir/interpreter.h"

namespace cad::backend {

using ir::ValueId;

// Where a region's result must be when the region ends.
struct Destination {
  Address place;
  Adds adds = Adds::kNo;
  ValueId occupant;  // an argument (or input) that lives there until it is overwritten
};

// A value that a step makes by nothing but adding others, of which some can be added to its place
// by the steps that make them: the adding step itself has nothing left to do but to add the others.
struct Sum {
  ValueId value;
  std::vector<ValueId> direct;  // by their own steps: products, rows by index, slices of loops
  std::vector<ValueId> copied;  // by the sum's step
  std::vector<ValueId> inner;   // terms that are such sums: their direct terms are among these
};

// What is known about one region while its block is made.
struct RegionState {
  ir::RegionId region;
  int32_t block = 0;
  int32_t depth = 0;  // of loops
  double times = 1;
  int32_t end = 0;               // number of steps: the place of final copies
  int32_t at = 0;                // the step whose instructions are being made
  std::vector<int32_t> info_of;  // by step
  // Collectives: the step before which each is awaited (by step; -1 for others), and the awaits
  // that stand before a step (or at the end).
  std::vector<int32_t> await_at;
  std::vector<std::vector<Instruction>> awaits;
};

// By node: 1 where the graph's `loss` needs it, in the bodies of its loops too; all of them in a
// graph without a loss.
std::vector<char> forward_nodes(const ir::Graph& g);

class Scheduler {
 public:
  // `overlap`: collectives run beside other steps, and small ones together, for which a region may
  // take `slack` bytes more.
  Scheduler(ProgramImpl& program, const Partition& partition, int threads, bool overlap,
            int64_t slack)
      : program_(program),
        graph_(program.graph),
        partition_(partition),
        threads_(threads),
        overlap_(overlap),
        slack_(slack),
        forward_(forward_nodes(graph_)) {
    places_.resize(graph_.values.size());
    last_use_.assign(graph_.values.size(), -1);
    uses_.assign(graph_.values.size(), 0);
    def_step_.assign(graph_.values.size(), -1);
    direct_.resize(graph_.values.size());
    in_flight_until_.assign(graph_.values.size(), -1);
  }

  void place_inputs();
  int32_t block_of(ir::RegionId region, const std::vector<Destination>& destinations, int32_t depth,
                   double times);
  void resolve();

 private:
  [[nodiscard]] const Layout& layout(ValueId v) const { return partition_.layouts[index(v)]; }
  [[nodiscard]] ValueId base(ValueId v) const { return layout(v).base; }
  static size_t index(ValueId v) { return static_cast<size_t>(v.index); }
  [[nodiscard]] Block& block(const RegionState& r) {
    return program_.blocks[static_cast<size_t>(r.block)];
  }
  [[nodiscard]] int64_t elements(ValueId v) const {
    int64_t n = 1;
    for (const int64_t extent : ir::extents_of(graph_, graph_.type(v), program_.bindings))
      n *= extent;
    return n;
  }
  [[nodiscard]] int64_t bytes(ValueId v) const {
    return elements(v) * ir::dtype_bytes(graph_.type(v).dtype);
  }
  // How the step that makes a value, or the body whose slices it is made of, writes it.
  [[nodiscard]] Adds adds_of(ValueId v) const {
    const Destination* direct = direct_[index(v)];
    return direct == nullptr ? Adds::kNo : direct->adds;
  }
  [[nodiscard]] const ir::Node& node_of(const Step& step) const {
    return graph_.node(step.nodes.front());
  }

  void count_uses(ir::RegionId region, const std::vector<Step>& steps);
  void analyse(const std::vector<Step>& steps);
  // A carry that is handed on unchanged. An argument that goes to memory of its own: copied first,
  // so that its place may be overwritten (the input of a layer, saved for the backward pass).
  [[nodiscard]] bool passed_on(ValueId v, const Destination& d) const {
    return base(v) == v && d.occupant == v;
  }
  [[nodiscard]] bool copied_early(ValueId v, const Destination& d) const {
    return def_step_[index(base(v))] < 0 && !d.occupant.valid();
  }
  void go_direct(const RegionState& r, const std::vector<Step>& steps, ValueId v,
                 const Destination& d);
  void choose_destinations(const RegionState& r, const std::vector<Step>& steps,
                           const std::vector<Destination>& destinations);
  [[nodiscard]] bool may_go_direct(const RegionState& r, const std::vector<Step>& steps, ValueId v,
                                   const Destination& d);

  // schedule_sums.cc: terms that are added where their sum lies.
  [[nodiscard]] std::vector<ValueId> terms_of(const Step& step) const;
  [[nodiscard]] bool can_add(const Step& step, ValueId v) const;
  [[nodiscard]] std::optional<Sum> sum_of(const Step& step,
                                          const std::map<int32_t, const Step*>& made) const;
  void find_sums(ir::RegionId region, const std::vector<Step>& steps,
                 const std::vector<Destination>& destinations);
  // The sum that a step makes, or that a value is a direct term of; nullptr: none.
  [[nodiscard]] const Sum* sum_at(const Step& step) const;
  [[nodiscard]] const Sum* sum_with(ValueId term) const;
  [[nodiscard]] int32_t begun(const Sum& sum) const;  // the step of its first direct term
  [[nodiscard]] bool sum_may_go_direct(const Sum& sum, const Destination& d) const;
  void place_sum(const Sum& sum, const Address& place, Adds first);
  void place_term(const RegionState& r, const Step& step, ValueId term, int32_t at);
  void step_sum(const RegionState& r, const Step& step, const Sum& sum);

  [[nodiscard]] ValueId whole(ValueId v) const;
  // The address of a value's first element: its base's place and the layout's offset.
  Address element(ValueId v);
  Address& place_of(ValueId v);
  Address new_buffer(const RegionState& r, int64_t size, int32_t first, int32_t last,
                     const std::string& name, const std::string& scope);
  bool take_over(const RegionState& r, const Step& step, int32_t at, size_t output);
  void place_outputs(const RegionState& r, const Step& step, int32_t at);

  int32_t add_info(const RegionState& r, const Step& step, const std::string& name, double flops);
  Instruction& add(const RegionState& r, Instruction instruction) {
    instruction.step = r.at;
    block(r).instructions.push_back(std::move(instruction));
    return block(r).instructions.back();
  }
  void add_copy(const RegionState& r, ValueId from, const Address& to, Adds adds, int32_t info);
  void add_copy(const RegionState& r, const Address& from, const Address& to, int64_t count,
                ir::DType dtype, Adds adds, int32_t info);
  void add_checks(Instruction& instruction, const Step& step);

  struct PlannedWork {
    Instruction made;  // without operands
    std::string name;
    double flops = 0;
    int64_t scratch = 0;  // bytes
  };
  PlannedWork plan_work(const Step& step);
  [[nodiscard]] bool initial_place_is_free(const ir::Node& loop, ValueId init, int32_t at) const;
  void step_work(RegionState& r, const Step& step, int32_t at);
  void step_loop(RegionState& r, const Step& step, int32_t at);

  // schedule_comm.cc: collectives beside other steps, where that needs no more memory.
  struct Lives;
  [[nodiscard]] std::vector<Step> started_early(ir::RegionId region) const;
  [[nodiscard]] bool reads(const Step& step, ValueId stored) const;
  void choose_awaits(RegionState& r, const std::vector<Step>& steps);
  void add_awaits(RegionState& r, int32_t before);
  void join_starts(RegionState& r);
  void join_earlier(ir::RegionId region, std::vector<Step>& steps) const;
  void gather_small(ir::RegionId region, std::vector<Step>& steps) const;
  void add_collective(RegionState& r, const Step& step, int32_t at, Instruction start);
  // Whether a collective that reads the value may be at work during a step.
  [[nodiscard]] bool in_flight(ValueId v, int32_t step) const {
    return in_flight_until_[index(v)] > step;
  }

  void copies(const RegionState& r, const std::vector<Destination>& destinations, bool early);
  void lay_out(const RegionState& r);

  ProgramImpl& program_;
  const ir::Graph& graph_;
  const Partition& partition_;
  int threads_;
  bool overlap_;
  int64_t slack_;
  std::vector<char> forward_;      // forward_nodes(graph_)
  std::vector<Address> places_;    // by value, bases only
  std::vector<int32_t> last_use_;  // by value, bases only: step of its region, `end` for results
  std::vector<int32_t> uses_;      // by value, bases only: operands and results that read it
  std::vector<int32_t> def_step_;  // by value: the step that writes it
  std::vector<const Destination*> direct_;  // by value: written straight to a destination
  std::map<int32_t, Sum> sums_;             // by value
  std::map<int32_t, int32_t> sum_of_term_;  // by value, direct terms and inner sums: the sum's
  std::deque<Destination> of_sums_;         // what direct_ of their terms points to
  std::vector<int32_t> in_flight_until_;    // by value, bases only: see in_flight()
};

std::string name_of(const ir::Graph& g, ValueId v);

}  // namespace cad::backend
