// tests/planner/plan_text_test.cc -- a plan's printed text: how parameters are stored as a table,
// the collectives that count, and no more lines for a loop that runs longer.
#include <algorithm>

#include <fmt/format.h>

#include <gtest/gtest.h>

#include "planner/machines.h"
#include "planner/plan_json.h"
#include "planner/plan_text.h"
#include "planner/planner.h"
#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

std::string gpt(int layers) {
  return tied_gpt(256, 8, 64, 4096, layers) + token_training(64);
}

Plan plan_for(const Planned& p, double budget) {
  PlanRequest request;
  request.graph = &p.graph;
  request.training = p.training;
  const auto cluster = find_cluster({}, "dgx_a100", 8);
  EXPECT_TRUE(cluster.ok());
  request.cluster = *cluster;
  const auto all = meshes(*cluster, 8);
  EXPECT_TRUE(all.ok());
  request.meshes = *all;
  request.budget = budget;
  request.segments = true;
  request.proof_s = 0;
  request.proof_work = 0;  // the text is what counts
  const Planning planning = make_plan(request);
  EXPECT_TRUE(planning.feasible) << budget;
  return planning.plan;
}

// Parts of a text between empty lines, each with a line break at its end.
std::vector<std::string> sections(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find("\n\n", at), text.size() - 1);
    out.push_back(text.substr(at, end + 1 - at));
    at = end + 2;
  }
  return out;
}

std::string section(const std::string& text, const std::string& head) {
  for (const std::string& s : sections(text)) {
    if (s.rfind(head, 0) == 0) return s;
  }
  return "";
}

int64_t lines_of(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

// Without the kinds of collectives, of which at most so many are printed: another strategy may have
// others.
int64_t lines_of_each_plan(const std::string& text) {
  const std::string kinds = section(text, "collectives of a step");
  EXPECT_LE(lines_of(kinds), 14) << kinds;
  return lines_of(text) - lines_of(kinds);
}

TEST(PlanText, NoLongerForALongerLoop) {
  const auto few = planned(gpt(4)), many = planned(gpt(400));
  double few_budget = 1e15, many_budget = 1e15;
  for (const double part : {1.0, 0.8, 0.6, 0.45}) {
    SCOPED_TRACE(part);
    const Plan a = plan_for(*few, part * few_budget), b = plan_for(*many, part * many_budget);
    if (part == 1) {
      few_budget = a.predicted.peak_bytes;
      many_budget = b.predicted.peak_bytes;
    }
    const std::string short_text = plan_text(a, "a.cad"), long_text = plan_text(b, "a.cad");
    EXPECT_EQ(lines_of_each_plan(long_text), lines_of_each_plan(short_text))
        << short_text << long_text;
    // of the block twelve, at the top level three, and two lines of headers
    EXPECT_EQ(lines_of(section(short_text, "parameters")), 17);
    EXPECT_EQ(lines_of(section(long_text, "parameters")), 17);
  }
}

PlanTensor tensor(const std::string& path, const std::string& role, int body, NamedLayout layout) {
  PlanTensor t;
  t.path = path;
  t.role = role;
  t.body = body;
  t.layout = std::move(layout);
  return t;
}

Plan two_runs() {
  Plan plan;
  plan.axes = {{"x", 4}, {"y", 2}};
  plan.devices = plan.offered = 8;
  plan.budget = 1e9;
  plan.bodies.resize(3);
  for (const int run : {0, 1}) {
    PlanBody& body = plan.bodies[static_cast<size_t>(run) + 1];
    body.path = "h";
    body.parent = 0;
    body.count = 1 + run;
    body.run = run;
  }
  return plan;
}

// What the runs of a loop do stands in one table.
TEST(PlanText, RunsOfALoopAreOneTable) {
  Plan plan = two_runs();
  plan.bodies.push_back(plan.bodies[2]);
  plan.bodies[3].segment = 2;
  int group = 0;
  const auto add = [&](const char* name, int body, const char* saved, const NamedLayout& strategy) {
    PlanOp op;
    op.path = "h.{}";
    op.op = name;
    op.body = body;
    op.group = group++;
    op.saved = saved;
    op.strategy = strategy;
    plan.ops.push_back(op);
  };
  for (const int run : {1, 2, 3}) {
    add("exp", run, run == 1 ? "" : "saved", {"B", ""});
    add("sum", run, "saved", {"B", run == 2 ? "D" : ""});
    add("tanh", run, run == 1 ? "saved" : run == 2 ? "recomputed" : "", {"B", ""});
  }
  EXPECT_EQ(
      section(plan_text(plan, "a.cad"), "h: "),
      "h: (1) 1 iteration, (2) 2 iterations, (3) 2 iterations, run again as a whole from "
      "their input\n"
      "  op          split                             for the backward pass\n"
      "  h.{}: exp   B over x                          not kept; (2-3) saved\n"
      "  h.{}: sum   B over x; (2) B over x, D over y  saved\n"
      "  h.{}: tanh  B over x                          saved; (2) recomputed; (3) not kept\n");
}

TEST(PlanText, ParametersAreARowEach) {
  Plan plan = two_runs();
  const auto add = [&](const std::string& path, int body, const std::vector<NamedLayout>& layouts) {
    const char* const roles[] = {"parameter", "gradient", "optimizer"};
    for (size_t i = 0; i < layouts.size(); ++i)
      plan.tensors.push_back(tensor(path, roles[i], body, layouts[i]));
  };
  add("wte", 0, {{"V", ""}, {"V", ""}, {"V", ""}});
  add("h.{}.W", 1, {{"", ""}, {"D", ""}, {"D", "D"}});
  add("h.{}.b", 1, {{"", ""}, {"", ""}, {"", ""}});
  add("h.{}.frozen", 1, {{"", "D"}});
  add("h.{}.same", 1, {{"D", ""}, {"D", ""}, {"D", ""}});
  add("h.{}.W", 2, {{"D", "F"}, {"D", "F"}, {"D", "F"}});
  add("h.{}.b", 2, {{"", ""}, {"D", ""}, {"D", ""}});
  add("h.{}.frozen", 2, {{"", ""}});
  add("h.{}.same", 2, {{"D", ""}, {"D", ""}, {"D", ""}});
  plan.tensors.push_back(tensor("h.{}.act", "activation", 1, {"", ""}));
  EXPECT_EQ(
      section(plan_text(plan, "a.cad"), "parameters"),
      "parameters\n"
      "  parameter    stored                     gradient and states\n"
      "  wte          V over x                   alike\n"
      "  h.{}.W       whole; D over x, F over y  gradient D over x, states D over x+y; alike\n"
      "  h.{}.b       whole                      alike; D over x\n"
      "  h.{}.frozen  D over y; whole            not trained\n"
      "  h.{}.same    D over x                   alike\n");
}

// Twelve kinds in full, the longest first; the others counted and added up.
TEST(PlanText, CollectivesThatCount) {
  Plan plan = two_runs();
  const auto add = [&](int i, double seconds) {
    PlanCollective c;
    c.kind = "all-reduce";
    c.axis = "x";
    c.phase = "phase" + std::to_string(i);
    c.bytes = 4096;
    c.count = i;
    c.seconds = seconds;
    plan.collectives.push_back(c);
  };
  for (int i = 1; i <= 12; ++i) add(i, 1e-3 * i);
  const std::string twelve = section(plan_text(plan, "a.cad"), "collectives of a step");
  EXPECT_EQ(std::count(twelve.begin(), twelve.end(), '\n'), 13) << twelve;
  EXPECT_EQ(twelve.find(" more, in all "), std::string::npos) << twelve;
  for (int i = 13; i <= 15; ++i) add(i, 1e-3 * i);
  const std::string text = section(plan_text(plan, "a.cad"), "collectives of a step");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 14) << text;
  size_t at = 0;
  for (int i = 15; i >= 4; --i) {  // in this order
    at = text.find(fmt::format(" phase{:<4}", i), at);
    ASSERT_NE(at, std::string::npos) << i << "\n" << text;
  }
  EXPECT_EQ(text.substr(text.find('\n', at) + 1), "  and 3 more, in all 6 ms\n");
  const std::string document = plan_json(plan);
  for (int i = 1; i <= 15; ++i)
    EXPECT_NE(document.find(fmt::format("\"phase{}\"", i)), std::string::npos) << i;
}

}  // namespace
}  // namespace cad::planner
