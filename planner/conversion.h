// planner/conversion.h -- from one layout of a tensor to another: the cheapest path of single
// collectives, and what it costs. Not here: the price of one collective (planner/collective.h).
//
// Single steps, with S a set of axes, always the innermost ones of the dims they split:
//   all-gather S        splits become replicated        bytes of the result on a device
//   reduce-scatter S    partial becomes splits          bytes of the operand on a device
//   all-reduce S        partial becomes replicated      bytes of the operand
//   all-to-all S        splits move to other dims       bytes on a device, the larger side
//   permute             axes of a dim change order      bytes on a device; only where stretches
//   agree slice               replicated becomes a split      free: a device keeps its part pad a
//   split becomes partial         free: zeros around a device's part keep one            replicated
//   becomes partial      free: the first device keeps it, others zeros
//
// The set of steps is its own dual: the backward of a conversion from a to b is the conversion from
// dual(b) to dual(a), at the price of that (all-gather <-> reduce-scatter, slice <-> pad).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "planner/collective.h"
#include "planner/layout.h"

namespace cad::planner {

struct Step {
  enum class Kind : uint8_t {
    kAllGather,
    kReduceScatter,
    kAllReduce,
    kAllToAll,
    kPermute,
    kSlice,
    kPad,
    kKeepOne
  };
  Kind kind = Kind::kSlice;
  AxisSet axes = 0;
  Layout from, to;
  double bytes = 0;  // as collective_seconds() takes them; 0 when free
  double seconds = 0;
};
const char* step_name(Step::Kind kind);     // "all-gather", "slice", ..
bool is_free(Step::Kind kind);              // slice, pad, keep one
Collective collective_of(Step::Kind kind);  // of a step that is not free
// The steps out of a layout, priced. Exactly the relation above; `may_be_partial`: a float.
std::vector<Step> steps_from(const Layout& from, std::span<const int64_t> extents,
                             double bytes_per_element, bool may_be_partial, const Mesh& mesh);

// Seconds between all layouts of one kind of tensor on one mesh.
class ConversionTable {
 public:
  ConversionTable(const Mesh& mesh, std::vector<int64_t> extents, double bytes_per_element,
                  bool may_be_partial);

  // Those in mesh order; from() and to() of seconds are indices of these.
  [[nodiscard]] const std::vector<Layout>& layouts() const { return layouts_; }
  // -1: not a layout of this tensor (a dim too short for its axis, an integer partial).
  [[nodiscard]] int index(const Layout& layout) const;
  [[nodiscard]] double seconds(int from, int to) const {
    return seconds_[static_cast<size_t>(from) * layouts_.size() + static_cast<size_t>(to)];
  }
  // CAD_CHECKs that both are known.
  [[nodiscard]] double seconds(const Layout& from, const Layout& to) const;
  // Of the conversion of the gradients: from dual(to) to dual(from). Infinite for integers.
  [[nodiscard]] double backward_seconds(int from, int to) const;
  // The steps of a cheapest path, computed when asked for; empty when from == to.
  [[nodiscard]] std::vector<Step> path(const Layout& from, const Layout& to) const;
  [[nodiscard]] const std::vector<int64_t>& extents() const { return extents_; }

 private:
  Mesh mesh_;
  std::vector<int64_t> extents_;
  double bytes_ = 0;
  bool may_be_partial_ = false;
  std::vector<Layout> layouts_;
  std::unordered_map<Layout, int> index_;
  std::vector<int> dual_;
  std::vector<double> seconds_;
};

// The tables of one mesh, made when first asked for. Not for several threads at once.
class Conversions {
 public:
  explicit Conversions(Mesh mesh) : mesh_(std::move(mesh)) {}
  const ConversionTable& table(const std::vector<int64_t>& extents, double bytes_per_element,
                               bool may_be_partial);
  [[nodiscard]] const Mesh& mesh() const { return mesh_; }

 private:
  Mesh mesh_;
  std::map<std::tuple<std::vector<int64_t>, double, bool>, std::unique_ptr<ConversionTable>>
      tables_;
};

}  // namespace cad::planner
