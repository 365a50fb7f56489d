// backend/partition_groups.h -- inside of the partition: one region, its nodes sorted into library
// steps, free nodes (evaluated wherever they are needed) and groups that become kernels.
#pragma once

#include <set>
#include <vector>

#include "backend/fuse.h"

namespace cad::backend::fuse {

enum class NodeClass : uint8_t { kNone, kLibrary, kFusible };
NodeClass classify(const ir::Node& n);
// The node's result as a view of its operand's storage; nullopt where strides cannot say it.
std::optional<Layout> view_layout(const RegionContext& c, const ir::Node& n, const Layout& operand);
Layout dense_layout(const RegionContext& c, ir::ValueId v);
bool is_dense(const RegionContext& c, ir::ValueId v, const Layout& layout);

// A step to be: a group, or one library node.
struct Cluster {
  Group group;
  bool library = false;
  bool alive = true;
};

class RegionPartition {
 public:
  RegionPartition(RegionContext& context, std::vector<Layout>& layouts, ir::RegionId region,
                  bool fuse)
      : c_(context), g_(*context.graph), layouts_(layouts), region_(region), fuse_(fuse) {}
  // Clusters in a valid order; layouts of the region's values are filled in.
  std::vector<Cluster> run();

 private:
  void find_live();
  void assign_layouts();
  void find_free();
  void find_demanded();
  void find_users();
  void grow();
  void join_siblings();
  bool try_merge(int into, int from);
  bool makes_cycle(int a, int b) const;
  std::vector<ir::ValueId> stored_by(const std::vector<ir::NodeId>& nodes, int a, int b) const;
  bool worth_it(const LoopProgram& program) const;
  std::vector<Cluster> ordered() const;
  std::set<ir::ValueId> read_by(const Cluster& c) const;
  int cluster_of(ir::NodeId n) const { return cluster_[static_cast<size_t>(n.index)]; }

  RegionContext& c_;
  const ir::Graph& g_;
  std::vector<Layout>& layouts_;
  ir::RegionId region_;
  bool fuse_;
  std::vector<ir::NodeId> nodes_;  // live ones, in order
  std::vector<size_t> order_;      // by node: place in nodes_
  std::set<ir::ValueId> own_storage_,
      demanded_;  // forced; needed in memory by a library step or as a result
  std::map<ir::ValueId, std::vector<ir::NodeId>> users_;  // through free nodes
  std::vector<int> cluster_;                              // by node; -1 free
  std::vector<Cluster> clusters_;
};

}  // namespace cad::backend::fuse
