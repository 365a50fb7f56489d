// planner/problem_site.h -- the options of one site on a mesh: every split of its dims, with the
// layouts that it wants and gives, its seconds and its inner collectives. Internal to problem.cc
// and site_seconds.cc.
#pragma once

#include <map>
#include <utility>

#include "planner/problem.h"

namespace cad::planner {

struct SiteContext {
  const SiteGraph& sites;
  const Mesh& mesh;
  Conversions& conversions;
  const Training& training;
  const CostModel& model;
  const Extents& extents;
  const PlanRules& rules;
};

// Where a value of the site comes from: its node's place in the site, which of its results it is.
using MadeInside = std::map<int, std::pair<size_t, size_t>>;  // by value

ir::ValueId behind_renames(const ir::Graph& g, ir::ValueId v);
const ConversionTable& table_of(const SiteContext& c, ir::ValueId value);
double bytes_on_device(const SiteContext& c, ir::ValueId value, const Layout& layout);
// Options and choices (options x variants) of a site.
VariableInfo site_variable(const SiteContext& c, int site);

}  // namespace cad::planner
