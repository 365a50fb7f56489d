// planner/problem_site.h -- the options of one site on a mesh: every split of its dims, with the
// layouts that it wants and gives, its seconds and its inner collectives. Internal to problem.cc.
#pragma once

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

const ConversionTable& table_of(const SiteContext& c, ir::ValueId value);
double bytes_on_device(const SiteContext& c, ir::ValueId value, const Layout& layout);
// Options and choices (options x variants) of a site.
VariableInfo site_variable(const SiteContext& c, int site);

}  // namespace cad::planner
