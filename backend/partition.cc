// backend/partition.cc -- regions to steps: runs the fusion of each region, schedules its groups as
// kernels, makes equal kernels one, and settles which values are stored. See backend/partition.h.
#include "backend/partition.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/partition_groups.h"
#include "base/check.h"
#include "ir/collective.h"

namespace cad::backend {

using ir::NodeId;
using ir::Op;
using ir::ValueId;

namespace {

Step::Kind library_kind(Op op) {
  switch (op) {
    case Op::kContract:
      return Step::Kind::kContract;
    case Op::kAttention:
      return Step::Kind::kAttention;
    case Op::kAttentionGrad:
      return Step::Kind::kAttentionGrad;
    case Op::kScatterAdd:
      return Step::Kind::kScatterAdd;
    case Op::kTopK:
      return Step::Kind::kTopK;
    case Op::kCumSum:
      return Step::Kind::kCumSum;
    case Op::kSlots:
      return Step::Kind::kSlots;
    case Op::kRepeat:
      return Step::Kind::kLoop;
    default:
      if (ir::is_collective(op)) return Step::Kind::kCollective;
      CAD_CHECK(false, "op `{}` is no library step", ir::op_name(op));
  }
}

class Partitioner {
 public:
  Partitioner(const ir::Graph& g, const ir::Bindings& bindings, const PartitionOptions& options)
      : g_(g), options_(options) {
    context_.graph = &g;
    context_.bindings = &bindings;
    for (const ir::Dim& d : g.dims) {
      auto size = d.size.evaluate(bindings);
      context_.extents.push_back(size.ok() ? size.value
                                           : 0);  // an unbound dim is one that nothing uses
    }
    context_.free.assign(g.nodes.size(), 0);
    context_.fusible.assign(g.nodes.size(), 0);
    result_.layouts.resize(g.values.size());
    result_.regions.resize(g.regions.size());
    context_.layouts = &result_.layouts;
  }

  Partition run() {
    region(ir::RegionId{0});
    return std::move(result_);
  }

 private:
  void region(ir::RegionId id) {
    std::vector<fuse::Cluster> clusters =
        fuse::RegionPartition(context_, result_.layouts, id, options_.fuse).run();
    std::vector<char> stored(g_.values.size(), 0);
    for (ValueId v : g_.region(id).args) stored[static_cast<size_t>(v.index)] = 1;
    for (NodeId n : g_.region(id).nodes)
      if (g_.node(n).op == Op::kInput || g_.node(n).op == Op::kAxisIndex)
        stored[static_cast<size_t>(g_.node(n).results[0].index)] = 1;
    std::vector<ir::RegionId> bodies;
    for (const fuse::Cluster& cluster : clusters) {
      Step step = cluster.library ? library(cluster) : kernel(cluster);
      for (ValueId v : step.outputs) stored[static_cast<size_t>(v.index)] = 1;
      if (step.kind == Step::Kind::kLoop) bodies.push_back(ir::RegionId{step.body});
      if (step.kind == Step::Kind::kKernel && step.outputs.empty()) continue;
      result_.regions[static_cast<size_t>(id.index)].steps.push_back(std::move(step));
    }
    for (NodeId n : g_.region(id).nodes)
      for (ValueId v : g_.node(n).results) {
        Layout& layout = result_.layouts[static_cast<size_t>(v.index)];
        if (layout.base.valid() && stored[static_cast<size_t>(layout.base.index)] == 0)
          layout.base = ValueId{};
      }
    for (ir::RegionId body : bodies) region(body);
  }

  Step library(const fuse::Cluster& cluster) {
    const ir::Node& n = g_.node(cluster.group.nodes[0]);
    Step step;
    step.kind = library_kind(n.op);
    step.nodes = cluster.group.nodes;
    step.inputs = n.operands;
    step.outputs = n.results;
    step.may_overwrite.resize(step.outputs.size());
    if (n.op == Op::kRepeat) step.body = n.loop.body.index;
    if (n.op == Op::kAllReduce) step.may_overwrite[0] = {0};
    return step;
  }

  Step kernel(const fuse::Cluster& cluster) {
    Step step;
    step.kind = Step::Kind::kKernel;
    step.nodes = cluster.group.nodes;
    if (cluster.group.stored.empty()) return step;
    std::string why;
    std::optional<fuse::LoopProgram> program = fuse::evaluate(context_, cluster.group, &why);
    CAD_CHECK(program.has_value(), "op `{}` makes no kernel: {}",
              ir::op_name(g_.node(step.nodes[0]).op), why);
    fuse::ScheduledKernel scheduled = fuse::schedule(context_, std::move(*program), options_.lanes);
    size_t at = 0;
    for (const kernel::Buffer& b : scheduled.kernel.buffers) {
      if (b.scratch) continue;
      (b.written ? step.outputs : step.inputs).push_back(scheduled.call.buffers[at++]);
    }
    step.may_overwrite.resize(step.outputs.size());
    for (const auto& [output, input] : scheduled.overwrites) {
      auto o = std::find(step.outputs.begin(), step.outputs.end(), output);
      auto i = std::find(step.inputs.begin(), step.inputs.end(), input);
      if (o == step.outputs.end() || i == step.inputs.end()) continue;
      step.may_overwrite[static_cast<size_t>(o - step.outputs.begin())].push_back(
          static_cast<int32_t>(i - step.inputs.begin()));
    }
    auto [known, fresh] =
        kernels_.emplace(scheduled.kernel.str(), static_cast<int32_t>(result_.kernels.size()));
    if (fresh) result_.kernels.push_back(std::move(scheduled.kernel));
    scheduled.call.kernel = known->second;
    step.kernel = static_cast<int32_t>(result_.calls.size());
    result_.calls.push_back(std::move(scheduled.call));
    return step;
  }

  const ir::Graph& g_;
  PartitionOptions options_;
  fuse::RegionContext context_;
  Partition result_;
  std::map<std::string, int32_t> kernels_;
};

const char* kind_name(Step::Kind kind) {
  switch (kind) {
    case Step::Kind::kView:
      return "view";
    case Step::Kind::kKernel:
      return "kernel";
    case Step::Kind::kContract:
      return "contract";
    case Step::Kind::kAttention:
      return "attention";
    case Step::Kind::kAttentionGrad:
      return "attention_grad";
    case Step::Kind::kScatterAdd:
      return "scatter_add";
    case Step::Kind::kTopK:
      return "topk";
    case Step::Kind::kCumSum:
      return "cumsum";
    case Step::Kind::kSlots:
      return "slots";
    case Step::Kind::kLoop:
      return "loop";
    case Step::Kind::kCollective:
      return "collective";
    default:
      return "step";
  }
}

}  // namespace

int batch_position(const ir::Graph& g, const std::vector<ir::DimId>& dims) {
  if (!g.batch_dim.valid()) return -1;
  const ir::DimId batch = whole_dim(g, g.batch_dim);
  for (size_t d = 0; d < dims.size(); ++d)
    if (whole_dim(g, dims[d]) == batch) return static_cast<int>(d);
  return -1;
}

Partition partition(const ir::Graph& g, const ir::Bindings& bindings,
                    const PartitionOptions& options) {
  return Partitioner(g, bindings, options).run();
}

std::string Partition::str(const ir::Graph& g) const {
  std::string out;
  for (size_t r = 0; r < regions.size(); ++r) {
    if (regions[r].steps.empty()) continue;
    out += fmt::format("region {}\n", r);
    for (const Step& step : regions[r].steps) {
      out += fmt::format("  {}", kind_name(step.kind));
      if (step.kernel >= 0) {
        const KernelCall& call = calls[static_cast<size_t>(step.kernel)];
        out += fmt::format(" {} {}", call.kernel, kernels[static_cast<size_t>(call.kernel)].name);
        out += fmt::format(" items {}", fmt::join(call.items, "+"));
      }
      if (step.body >= 0) out += fmt::format(" region {}", step.body);
      out += " (";
      for (ValueId v : step.inputs) out += fmt::format(" %{}:{}", v.index, g.str(g.type(v)));
      out += " ) ->";
      for (ValueId v : step.outputs) out += fmt::format(" %{}:{}", v.index, g.str(g.type(v)));
      out += "\n";
    }
  }
  return out;
}

}  // namespace cad::backend
