// planner/site_seconds.h -- what a site's kernels take at one split: seconds of its forward and
// backward pass, and of each node that runs again alone. Internal to problem_site.cc.
#pragma once

#include <vector>

#include "planner/problem_site.h"

namespace cad::planner {

class SiteSeconds {
 public:
  // `made`: filled when price() is called.
  SiteSeconds(const SiteContext& c, const Site& site, const MadeInside& made);

  // Of an option with its layouts. `strategies`, and `again_comm`, seconds of conversions that run
  // again with a node: by node.
  void price(SiteOption& o, const std::vector<Strategy>& strategies,
             const std::vector<double>& again_comm) const;

 private:
  struct GradientWork {
    bool wanted = false;  // there is one, and a gradient flows on
    bool free = false;    // it is the gradient of the result as it is
    double matmul = 0, other = 0;
  };

  struct NodeWork {
    double matmul = 0, other = 0;  // forward, whole
    double back_matmul = 0, back_other = 0, back_bytes = 0;
    double bytes = 0, draws = 0;
    std::vector<GradientWork> gradients;  // by operand, each by itself
  };

  [[nodiscard]] bool is_contraction() const;
  [[nodiscard]] bool is_attention() const;
  [[nodiscard]] double& matmul_of(Work& work) const;
  [[nodiscard]] double bytes(ir::ValueId v, int layout) const;
  void measure(size_t i);
  [[nodiscard]] double drawn(const ir::Node& n, const std::vector<double>& extents) const;
  [[nodiscard]] double border_bytes(const SiteOption& o) const;
  [[nodiscard]] double product_gradients(const Work& forward, const Strategy& strategy) const;
  [[nodiscard]] Work backward_work(const SiteOption& o, const std::vector<Strategy>& strategies,
                                   const Work& forward) const;
  [[nodiscard]] double light_backward_bytes(const SiteOption& o) const;
  [[nodiscard]] std::vector<char> passed_gradients() const;
  [[nodiscard]] double hidden_part() const;
  void set_attention(Work& work, const Strategy& strategy) const;
  void set_shape(Work& work, const Strategy& strategy) const;

  const SiteContext& c_;
  const ir::Graph& g_;
  const Site& site_;
  const MadeInside& made_;
  std::vector<NodeWork> work_;
};

}  // namespace cad::planner
