// tests/commands/plan_test.cc -- `colauto plan` as people type it: files it writes and reads, the
// program's mesh and plan sections, and input that is wrong in every way that was thought of. What
// the plans are: tests/planner.
#include <chrono>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/commands/command_testing.h"

namespace cad {
namespace {

using nlohmann::json;

const std::string kModel =
    "dim B, D = 64, F = 256\n"
    "layer Mlp(x: [B, D]) -> [B, D] {\n"
    "  return Linear[F -> D](gelu(Linear[D -> F](LayerNorm[D](x))))\n}\n"
    "model Net(x: [B, D]) -> [B, D] {\n  repeat 3 as h { x = x + Mlp(x) }\n  return x\n}\n"
    "train t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
    "  optimizer: adam(lr: 1e-3)\n  B: 64\n  steps: 1\n}\n";

class PlanCommand : public Commands {
 protected:
  void SetUp() override {
    Commands::SetUp();
    write("net.cad", kModel);
  }
  // The program with further sections.
  void with(const std::string& sections) const { write("net.cad", kModel + sections + "\n"); }
  Output plan(const std::string& flags) const { return run("plan net.cad " + flags); }
  void expect(const std::string& flags, int status, const std::string& part) const {
    const Output out = plan(flags);
    EXPECT_EQ(out.status, status) << flags << "\n" << out.out << out.err;
    EXPECT_TRUE(contains(out.out + out.err, part)) << flags << "\n" << out.out << out.err;
    EXPECT_FALSE(contains(out.err, "internal")) << flags << "\n" << out.err;
  }
};

TEST_F(PlanCommand, WritesAPictureAndADocumentAndReadsItAgain) {
  const Output first = plan("--gpus 4 --cluster dgx_a100 --svg p.svg --json");
  ASSERT_EQ(first.status, 0) << first.err;
  const json document = json::parse(first.out, nullptr, false);
  ASSERT_TRUE(document.is_object());
  EXPECT_EQ(document["offered"], 4);
  const std::string svg = read("p.svg");
  EXPECT_EQ(svg.rfind("<svg ", 0), 0U);
  EXPECT_TRUE(contains(svg, "one iteration of h of 3"));
  write("p.json", first.out);
  EXPECT_EQ(plan("--gpus 4 --cluster dgx_a100 --diff p.json").out, "the plans are the same\n");
  const Output again = run("plan net.cad --plan p.json --json");
  EXPECT_EQ(again.out, first.out);
  const Output changed = plan("--gpus 4 --cluster dgx_a100 --budget 1MiB --diff p.json");
  EXPECT_TRUE(contains(changed.out, "budget: ") || changed.status == 3) << changed.out;
  EXPECT_FALSE(contains(changed.out, "cluster: ")) << changed.out;
  expect("--gpus 4 --cluster dgx_a100 --svg missing/p.svg", 1,
         "[E0602]: cannot write `missing/p.svg`: No such file or directory");
}

TEST_F(PlanCommand, SectionsOfTheProgramCount) {
  with("mesh m { axes: (dp: 2, tp: 2) }\nplan { shard { B: dp, F: tp }, budget: 1 GiB }");
  const Output out = plan("--cluster dgx_a100 --json --set B=65536");
  ASSERT_EQ(out.status, 0) << out.err;
  const json document = json::parse(out.out);
  EXPECT_EQ(document["budget_bytes"], 1073741824.0);
  if (document["devices"] == 4) {
    EXPECT_EQ(document["mesh"]["axes"], json::parse(R"([{"name":"dp","size":2},
                                                        {"name":"tp","size":2}])"));
    for (const json& op : document["ops"]) {
      EXPECT_NE(op["strategy"][1], "B") << op;
      EXPECT_NE(op["strategy"][0], "F") << op;
    }
  }
  expect("--cluster dgx_a100 --gpus 8", 2, "the mesh `dp=2,tp=2` has 4 devices, 8 are asked for");
  expect("--cluster dgx_a100 --mesh dp=4", 2, "did you mean `dp`?");
  with("mesh m { axes: (dp: 2, tensor: 2) }\nplan { shard { B: dp, F: tensor }, budget: 1 GiB }");
  expect("--cluster dgx_a100 --mesh dp=4", 2, "add it, its size may be 1: `--mesh dp=4,tensor=1`");
}

TEST_F(PlanCommand, NamedAxesGetEverySize) {
  with("plan { shard { B: none, F: tp } }");
  const Output out = plan("--cluster dgx_a100 --gpus 4 --json --set B=65536");
  ASSERT_EQ(out.status, 0) << out.err;
  const json document = json::parse(out.out);
  ASSERT_EQ(document["mesh"]["axes"].size(), 1U);  // `none` is no axis
  EXPECT_EQ(document["mesh"]["axes"][0]["name"], "tp");
  with("plan { shard { B: a, F: b, D: c, x: d } }");
  expect("--cluster dgx_a100 --gpus 4", 65, "E0301");
  with(
      "plan { shard { B: a, F: b, D: c } }\ndim X = 2\nplan q { shard { B: a, F: b, D: c, X: d } "
      "}");
  expect("--cluster dgx_a100 --gpus 4", 2, "the program names 4 mesh axes, at most 3");
}

TEST_F(PlanCommand, CheckpointIsAConstraint) {
  with("plan { checkpoint: none }");
  const Output none = plan("--cluster dgx_a100 --gpus 1 --json");
  with("plan { checkpoint: all }");
  const Output all = plan("--cluster dgx_a100 --gpus 1 --json");
  ASSERT_EQ(none.status, 0) << none.err;
  ASSERT_EQ(all.status, 0) << all.err;
  const json a = json::parse(none.out), b = json::parse(all.out);
  EXPECT_GT(a["predicted"]["activation_bytes"], b["predicted"]["activation_bytes"]);
  EXPECT_LT(a["predicted"]["recompute_s"], b["predicted"]["recompute_s"]);
  for (const json& op : a["ops"])
    EXPECT_FALSE(op["op"] == "contract" && op["saved"] == "recomputed");
  // what fits only when things run again
  const double most = a["predicted"]["peak_bytes"], least = b["predicted"]["peak_bytes"];
  with("plan { checkpoint: none }");
  expect("--cluster dgx_a100 --gpus 1 --budget " +
             std::to_string(static_cast<int64_t>((most + least) / 2)) + "B",
         3, "`checkpoint: none` rules out the plans that fit");
}

TEST_F(PlanCommand, MeshesThatAreNone) {
  for (const char* mesh : {"dp", "dp=", "=2", "dp=x", "dp=0", "dp=-1", "dp=2,dp=2", "dp=2,,tp=2",
                           "dp=99999999999999999999", "'dp=2;tp=2'", "2", "'dp=2 tp=2'", "''x"})
    expect(std::string("--cluster dgx_a100 --mesh ") + mesh, 2, "E0803");
  expect("--cluster dgx_a100 --mesh a=2,b=2,c=2,d=2", 2, "at most 3");
  expect("--cluster dgx_a100 --gpus 8 --mesh dp=3", 2,
         "the mesh `dp=3` has 3 devices, 8 are asked for");
  expect("--cluster dgx_a100 --gpus 8 --mesh dp=1", 2,
         "the mesh `dp=1` has 1 device, 8 are asked for");
  expect("--cluster dgx_a100 --gpus 1 --mesh dp=3", 2,
         "the mesh `dp=3` has 3 devices, 1 is asked for");
  expect("--cluster dgx_a100 --mesh a=2147483647,b=2147483647,c=2147483647", 2, "E0802");
  EXPECT_EQ(plan("--cluster dgx_a100 --mesh dp=8,tp=1").status, 0);
  EXPECT_EQ(plan("--cluster dgx_a100 --mesh dp=1").status, 0);
}

TEST_F(PlanCommand, BudgetsThatAreNone) {
  for (const char* budget : {"0", "-1", "-5GiB", "nan", "inf", "x", "8GG", "101%", "0%", "1e30GiB"})
    expect(std::string("--cluster dgx_a100 --gpus 2 --budget=") + budget, 2, "E0503");
  expect("--cluster dgx_a100 --gpus 2 --budget 1B", 3, "no plan fits 1 B a device");
  expect("--cluster dgx_a100 --gpus 2 --budget 1KB", 3, "the least that was found needs");
  EXPECT_EQ(plan("--cluster dgx_a100 --gpus 2 --budget 8000PiB").status, 2);
  EXPECT_EQ(plan("--cluster dgx_a100 --gpus 2 --budget 8000000TiB").status, 0);
  with("plan { budget: 0 }");
  expect("--cluster dgx_a100 --gpus 2", 65, "error");
  with("plan { budget: 1.5 }");
  expect("--cluster dgx_a100 --gpus 2", 65, "error");
  with("plan { budget: 0.000001 }");
  expect("--cluster dgx_a100 --gpus 2", 3, "no plan fits");
}

TEST_F(PlanCommand, MachinesThatAreNone) {
  expect("--cluster nowhere --gpus 2", 2, "there is no cluster `nowhere`");
  expect("--cluster dgx_a10 --gpus 2", 2, "did you mean `dgx_a100`?");
  expect("--cluster dgx_a100 --gpus 0", 2, "below 1");
  expect("--cluster dgx_a100 --gpus -3", 2, "below 1");
  expect("--cluster dgx_a100 --gpus 1000000", 2, "E0802");
  expect("--cluster dgx_a100 --gpus 9223372036854775807", 2, "E0802");
  expect("--cluster dgx_a100 --gpus 99999999999999999999", 2, "too large");
  expect("--cluster pairs_a100 --gpus 16", 2, "has 8 devices, 16 are asked for");
  expect("--devices 2 --gpus 2", 2, "do not go together");
  with(
      "cluster big { device: a100_40, nodes: 1000000, per_node: 1000, intra: link(300 GB/s, 5 us), "
      "inter: link(25 GB/s, 12 us) }");
  EXPECT_EQ(plan("--cluster big --gpus 16").status, 0);
  expect("--cluster big --gpus 1000000", 2, "at most 131072 devices");
}

TEST_F(PlanCommand, FiguresThatAreNoMachine) {
  const auto machine = [&](const std::string& rate, const std::string& latency) {
    with("device d { memory: 1 GiB, f32: " + rate +
         ", bandwidth: 1 TB/s }\ncluster c { device: d, per_node: 4, intra: link(1 GB/s, " +
         latency + ") }");
  };
  for (const char* rate : {"1e300 PFLOPS", "1e-300 GFLOPS"}) {
    machine(rate, "5 us");
    expect("--gpus 4 --cluster c", 65, "error[E0304]: `f32` is out of range");
  }
  machine("1 TFLOPS", "2 h");
  expect("--gpus 4 --cluster c", 65, "error[E0304]: a latency is at least 0, and at most an hour");
  with("plan { budget: -1 GiB }");
  expect("--gpus 4 --cluster dgx_a100", 65, "error[E0304]: `budget` is above 0");
}

TEST_F(PlanCommand, ThousandsOfDevicesOfThisHost) {
  EXPECT_EQ(plan("--devices 5000 --plan dp").status, 0);
}

TEST_F(PlanCommand, WhyTakesLoopsAndIterations) {
  const std::string at = "--gpus 2 --cluster dgx_a100 ";
  const Output all = plan(at + "--why 'h.*'");
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_EQ(all.out.rfind("h.{}.", 0), 0U) << all.out;
  EXPECT_EQ(plan(at + "--why h.1").out.rfind("h.{}.", 0), 0U);
  EXPECT_EQ(plan(at + "--why h").out.rfind("h.{}.", 0), 0U);  // the loop, not all with an h
  expect(at + "--why zzz", 2, "error[E0904]");
  expect(at + "--why h --json", 2, "do not go together");
  expect(at + "--json --diff p.json", 2, "do not go together");
  write("p.json", plan(at + "--json").out);
  expect("--plan p.json --why h", 2, "`--why` is not for a saved plan");
}

// Of an op: how it is split, what that costs, three rivals with what they cost more, and what would
// have to change for the first of them.
TEST_F(PlanCommand, WhyNamesCostsThreeRivalsAndWhatWouldFlip) {
  const std::string at = "--cluster dgx_a100 --gpus 8 --set B=65536 ";
  const Output made = plan(at + "--json");
  ASSERT_EQ(made.status, 0) << made.err;
  const json document = json::parse(made.out);
  ASSERT_GT(document["devices"], 1);
  std::set<std::string> products;
  for (const json& op : document["ops"]) {
    if (op["op"] == "contract") products.insert(op["path"]);
  }
  ASSERT_GE(products.size(), 2U);
  for (const std::string& path : products) {
    const Output out = plan(at + "--why '" + path + "'");
    ASSERT_EQ(out.status, 0) << out.err;
    std::istringstream lines(out.out);
    int costs = 0, heads = 0, rivals = 0, flips = 0, titles = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line[0] != ' ') {
        if (++titles > 1) break;  // the product; its bias and parameters follow
        EXPECT_TRUE(contains(line, ": contract")) << out.out;
      } else if (line.rfind("    each: compute ", 0) == 0) {
        ++costs;
        EXPECT_TRUE(contains(line, " us") || contains(line, " ms") || contains(line, " s")) << line;
      } else if (line == "  next best") {
        ++heads;
      } else if (line.rfind("    ", 0) == 0 && heads == 1) {
        ++rivals;
        EXPECT_TRUE(contains(line, ": step +") || contains(line, ": step -")) << line;
        EXPECT_TRUE(contains(line, ", peak ") && contains(line, "iB")) << line;
      } else if (line.rfind("  the first ", 0) == 0 || line.rfind("  no change ", 0) == 0) {
        ++flips;
        EXPECT_EQ(rivals, 3) << out.out;
      }
    }
    EXPECT_GE(costs, 1) << out.out;
    EXPECT_EQ(heads, 1) << out.out;
    EXPECT_EQ(rivals, 3) << out.out;
    EXPECT_EQ(flips, 1) << out.out;
  }
}

// Layers that are called several times, in a loop and after it, by a model that the loss mentions
// twice: the graph does not fold, and its plan comes with a gap that is proven all the same.
TEST_F(PlanCommand, ModelsThatDoNotFold) {
  const auto model = [](const std::string& body) {
    return "dim B, T = 6, V = 29, D = 9, F = 14\n"
           "model Net(ids: i32[B, T]) -> [B, T, V] {\n"
           "  use e = Embedding[V -> D]\n  use blk = MLP[D -> F]\n  use ln = LayerNorm[D]\n"
           "  x = e(ids)\n" +
           body +
           "  return x @[D] e.W[V -> V]\n}\n"
           "train t {\n  data: synthetic(x: i32[B, T], y: i32[B, T])\n"
           "  loss: cross_entropy[V](Net(x), y) + 1e-3 * mean(Net(x) ^ 2)\n"
           "  optimizer: lion(lr: 1e-3)\n  B: 4, steps: 5, seed: 2\n}\n";
  };
  write("loop.cad", model("  repeat 3 as h { x = x + blk(ln(x)) * (1 + 0.1 * f32(h)) }\n"
                          "  x = x + blk(ln(x))\n"));
  write("flat.cad", model("  x = x + blk(x)\n  x = x + blk(x)\n"));
  for (const auto& [file, flags] : std::vector<std::pair<std::string, std::string>>{
           {"loop.cad", "--devices 2"},
           {"flat.cad", "--gpus 8 --cluster dgx_a100"},
           {"flat.cad", "--gpus 4 --cluster dgx_a100 --mesh x=2,y=2"}}) {
    const auto start = std::chrono::steady_clock::now();
    const Output out = run("plan " + file + " " + flags + " --json");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    ASSERT_EQ(out.status, 0) << file << " " << flags << out.err;
    const json plan = json::parse(out.out);
    EXPECT_GT(plan["solver"]["bound"], 0) << file << " " << flags;
    EXPECT_LT(plan["solver"]["gap"], 0.25) << file << " " << flags;
    EXPECT_LT(took.count(), kSanitized ? 600 : 60) << file << " " << flags;
    for (const json& other : plan["alternatives"]) {
      if (!other["feasible"]) continue;
      EXPECT_GE(other["step_s"].get<double>() * (1 + 1e-6), plan["predicted"]["step_s"]) << other;
    }
  }
}

// A parameter that two loops scan, or that is used in a loop and after it, is there once.
TEST_F(PlanCommand, ParametersUsedTwiceAreHeldOnce) {
  const std::string train =
      "train t {\n  data: synthetic(x: f32[B, I], y: f32[B, I])\n"
      "  loss: mse(Net(x), y) + mae(Net(y), x)\n"
      "  optimizer: sgd(lr: 1e-2)\n  B: 6, steps: 2, seed: 6\n}\n";
  write("twice.cad",
        "dim B, I = 64\nmodel Net(x: [B, I]) -> [B, I] {\n  use last = Linear[I -> I]\n"
        "  repeat 3 as h { x = x + last(Linear[I -> I](x)) }\n  return last(x)\n}\n" +
            train);
  const Output out = run("plan twice.cad --gpus 1 --cluster dgx_a100 --json");
  ASSERT_EQ(out.status, 0) << out.err;
  const double numbers = 4 * (64 * 64 + 64);  // of Linear, three in the loop and one
  EXPECT_NEAR(json::parse(out.out)["predicted"]["params_bytes"].get<double>(), 4 * numbers, 1);
}

TEST_F(PlanCommand, FilesThatAreNoPlans) {
  const Output good = plan("--gpus 2 --cluster dgx_a100 --json");
  ASSERT_EQ(good.status, 0);
  json document = json::parse(good.out);
  const auto wrong = [&](const std::string& text, const std::string& part) {
    write("p.json", text);
    for (const char* flag : {"--plan p.json", "--gpus 2 --cluster dgx_a100 --diff p.json"}) {
      const Output out = plan(flag);
      EXPECT_EQ(out.status, 66) << text.substr(0, 80) << out.out << out.err;
      EXPECT_TRUE(contains(out.err, "E0902") && contains(out.err, part)) << out.err;
    }
  };
  for (const char* text :
       {"", "[", "[]", "null", "3", "\"x\"", "{}", "{\"schema\": \"1\"}", "\xff\xfe"})
    wrong(text, "is not a plan");
  wrong(std::string(100'000, '['), "is not a plan");
  wrong("{\"schema\": 2}", "its schema is 2");
  wrong("{\"schema\": 1}", "is not a plan: it lacks `name`");
  const auto changed = [&](const char* pointer, const json& value, const std::string& part) {
    json other = document;
    other[json::json_pointer(pointer)] = value;
    wrong(other.dump(), part);
  };
  changed("/ops/0/body", 99, "there is no body 99");
  changed("/ops/0/body", -1, "there is no body -1");
  changed("/ops/0/strategy", json::array(), "not one entry an axis");
  changed("/tensors/0/layout", json::array({"B", "B", "B", "B"}), "not one entry an axis");
  changed("/tensors/0/body", 1000, "there is no body 1000");
  changed("/conversions", json::array({json::object()}), "`conversions[0]` lacks `value`");
  changed("/ops/1/strategy", json::array({1}), "`ops[1].strategy[0]` is not a text or null");
  changed("/ops/0", 3, "`ops[0]` is not an object");
  changed("/predicted", json::array(), "`predicted` is not an object");
  changed("/tensors", 1, "`tensors` is not a list");
  changed("/tensors/0/dims", json::array({json::array()}), "`tensors[0].dims[0]` is not a text");
  changed("/bodies/0/count", 1.5, "`bodies[0].count` is not a whole number");
  changed("/placement/digest", nullptr, "`placement.digest` is not a text");
  changed("/placement/body", json::array({1}), "`placement.body` is not an object");
  changed("/mesh/axes", json::array(), "its mesh has no axes");
  changed("/mesh/axes/0/size", 4, "its mesh has not as many devices as it says");
  changed("/offered", 0, "its mesh has not as many devices as it says");
  changed("/micro_batches", 0, "how many rows it reads");
  changed("/rows", 1e300, "how many rows it reads");
  changed("/name", "\x1b[31m", "`name` is not a text without control characters");
  changed("/placement/body/ops", json::array({1}), "`placement.body.ops` is not an object");
  changed("/placement/body/ops", {{"\x1b[31m", {-1, -1, -1}}},
          "a key of `placement.body.ops` is not a number");
  changed("/placement/body/ops", {{"1", {-1, -1}}},
          "`placement.body.ops.1` is not one number an axis");
  changed("/placement/body/ops", {{"1", {-1, "B", -1}}},
          "`placement.body.ops.1[1]` is not a whole number");
  changed("/placement/body/copies", {{"2", {-1, -1, -1, 6}}},
          "`placement.body.copies.2[3]` is not an order of axes");
  changed("/placement/body/parameters", {{"0", {1, 2}}},
          "`placement.body.parameters.0` is not the layouts of a parameter");
  changed("/placement/body/saved", {{"3", "kept"}},
          "`placement.body.saved.3` is not `keep` or `again`");
  changed("/placement/body/loops", {{"4", {{{"count", 1}}}}},
          "`placement.body.loops.4[0]` lacks `pattern`");
  std::string begin, end;
  for (int i = 0; i < 20'000; ++i) {
    begin += R"({"loops":{"0":[{"count":1,"pattern":[)";
    end += "]}]}}";
  }
  json nested = document;
  nested["placement"]["body"] = "deep";
  std::string deep = nested.dump();
  deep.replace(deep.find("\"deep\""), 6, begin + "{}" + end);
  wrong(deep, "it is nested more than 512 deep");
  changed("/bodies", json::array(), "it has no `bodies`");
  changed("/bodies/1/parent", 1, "does not stand before it");
  changed("/bodies/1/count", 0, "does not run");
  changed("/devices", "eight", "`devices` is not a whole number");
  changed("/predicted/step_s", nullptr, "`predicted.step_s` is not a number");
  for (const char* key : {"name", "cluster", "mesh", "solver", "ops", "notes", "budget_bytes"}) {
    json other = document;
    other.erase(key);
    wrong(other.dump(), std::string("it lacks `") + key + "`");
  }
  json other = document;
  other["solver"].erase("gap");
  wrong(other.dump(), "`solver` lacks `gap`");
  expect("--plan none.json", 66, "E0601");
  expect("--plan zero9", 2, "no plan is called `zero9`");
  expect("--gpus 2 --cluster dgx_a100 --diff none.json", 66, "E0601");
  expect("--gpus 2 --cluster dgx_a100 --why nothing", 2, "no op or parameter `nothing`");
}

// Models that planners trip over: nothing to train, nothing to do, one of everything, primes.
TEST_F(PlanCommand, OddModels) {
  const auto model = [&](const std::string& dims, const std::string& body,
                         const std::string& batch) {
    write("net.cad", "dim B, " + dims + "\nmodel Net(x: [B, D]) -> [B, D] {\n" + body +
                         "}\ntrain t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n"
                         "  loss: mse(Net(x), y)\n  optimizer: sgd(lr: 1e-3)\n  B: " +
                         batch + "\n  steps: 1\n}\n");
    for (const char* machine : {"--gpus 1 --cluster dgx_a100", "--gpus 8 --cluster dgx_a100",
                                "--gpus 7 --cluster dgx_a100", "--devices 2",
                                "--gpus 8 --cluster pairs_a100 --mesh a=2,b=2,c=2"}) {
      const Output out = plan(std::string(machine) + " --svg p.svg");
      EXPECT_TRUE(out.status == 0 || out.status == 65) << body << machine << out.out << out.err;
      EXPECT_FALSE(contains(out.err, "internal") || contains(out.out, "nan") ||
                   contains(out.out, "inf "))
          << body << machine << out.out << out.err;
      EXPECT_EQ(contains(out.out, "solver"), out.status == 0) << out.out;
    }
  };
  const std::string weights = "  param w : [D] = ones\n";
  model("D = 1", weights + "  return x * w\n", "1");
  model("D = 7919", weights + "  return x * w\n", "2");
  model("D = 3, E = 5", "  return Linear[E -> D](Linear[D -> E](x))\n", "7");
  model("D = 3", "  return x\n", "4");  // no parameters
  model("D = 3", weights + "  repeat 1 as h { x = x * w }\n  return x\n", "4");
  model("D = 4, E = D",
        "  repeat 2 as a { repeat 2 as b { repeat 2 as c {\n"
        "    x = relu(Linear[D -> D](x)) } } }\n  return x\n",
        "4");
  model("D = 1000000", weights + "  return x * w\n", "100");
}

TEST_F(PlanCommand, ALoopOfNoIterationsHasNoPlan) {
  write("net.cad",
        "dim B, D = 3, L = 0\nmodel Net(x: [B, D]) -> [B, D] {\n  param w : [D] = ones\n"
        "  repeat L as h { x = x * w }\n  return x\n}\ntrain t {\n"
        "  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
        "  optimizer: sgd(lr: 1e-3)\n  B: 4\n  steps: 1\n}\n");
  expect("--gpus 2 --cluster dgx_a100", 3, "the `repeat` as `h` runs 0 times");
  expect("--gpus 2 --cluster dgx_a100 --set L=1", 0, "solver");
}

// Two hundred layers of different widths: nothing to fold.
TEST_F(PlanCommand, ManyDifferentLayers) {
  std::string dims = "dim B", body;
  for (int i = 0; i <= 200; ++i) dims += ", D" + std::to_string(i) + " = " + std::to_string(16 + i);
  for (int i = 0; i < 200; ++i)
    body += "  h" + std::to_string(i + 1) + " = relu(Linear[D" + std::to_string(i) + " -> D" +
            std::to_string(i + 1) + "](h" + std::to_string(i) + "))\n";
  write("net.cad", dims + "\nmodel Net(h0: [B, D0]) -> [B, D200] {\n" + body +
                       "  return h200\n}\ntrain t {\n"
                       "  data: synthetic(x: f32[B, D0], y: f32[B, D200])\n"
                       "  loss: mse(Net(x), y)\n  optimizer: adam(lr: 1e-3)\n  B: 64\n"
                       "  steps: 1\n}\n");
  const Output out = plan("--gpus 4 --cluster dgx_a100");
  EXPECT_EQ(out.status, 0) << out.err;
}

TEST_F(PlanCommand, IdleDevicesAreSaid) {
  const Output out = plan("--gpus 8 --cluster dgx_a100 --set B=1");
  ASSERT_EQ(out.status, 0) << out.err;
  EXPECT_TRUE(contains(out.out, "net.cad: 1 of 8 devices of dgx_a100")) << out.out;
  EXPECT_TRUE(contains(out.out, "7 devices stay idle: no faster step was found on more\n"))
      << out.out;
}

TEST_F(PlanCommand, DifferencesOfMachinesAreSaid) {
  write("two.json", plan("--gpus 2 --cluster dgx_a100 --json --set B=65536").out);
  const json two = json::parse(read("two.json"));
  ASSERT_EQ(two["devices"], 2);
  const Output one = plan("--gpus 8 --cluster pairs_a100 --set B=1 --diff two.json");
  EXPECT_EQ(one.out.rfind("cluster: dgx_a100 -> pairs_a100\ndevices: 2 -> 1 of 8\nmesh: ", 0), 0U)
      << one.out << one.err;
  write("one.json", plan("--gpus 8 --cluster dgx_a100 --set B=1 --json").out);
  const Output fewer = plan("--gpus 4 --cluster dgx_a100 --set B=1 --diff one.json");
  EXPECT_EQ(fewer.out, "devices: 1 of 8 -> 1 of 4\n") << fewer.err;  // the same plan
}

// Half of the devices may be faster than all of them, and more are never slower than fewer.
TEST_F(PlanCommand, SomeDevicesStayIdle) {
  double before = 1e300;
  int some = 0;
  for (const std::string gpus : {"1", "2", "3", "4", "6", "7", "8"}) {
    const Output out = plan("--json --cluster pairs_a100 --set B=16384 --gpus " + gpus);
    ASSERT_EQ(out.status, 0) << out.err;
    const json document = json::parse(out.out);
    EXPECT_EQ(document["offered"], std::stoi(gpus));
    const double step = document["predicted"]["step_s"];
    EXPECT_LE(step, before * 1.005) << gpus;
    before = step;
    const int devices = document["devices"];
    some += devices > 1 && devices < std::stoi(gpus) ? 1 : 0;
    if (devices == std::stoi(gpus)) continue;
    const Output table = plan("--cluster pairs_a100 --set B=16384 --gpus " + gpus);
    EXPECT_TRUE(
        contains(table.out, "net.cad: " + std::to_string(devices) + " of " + gpus + " devices"));
    EXPECT_TRUE(contains(table.out, "idle: no faster step was found on more\n")) << table.out;
  }
  EXPECT_GE(some, 1);
}

// Two loops of equal bodies can do what one loop of as many iterations does.
TEST_F(PlanCommand, TheBoundOfTwoLoops) {
  const auto planned = [&](const std::string& loops) {
    write("loops.cad", "dim B, D = 64, F = 64\nmodel Net(x: [B, D]) -> [B, D] {\n" + loops +
                           "  return x\n}\ntrain {\n"
                           "  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
                           "  optimizer: sgd(lr: 1e-3)\n  B: 8192, steps: 5\n}\n");
    const Output out =
        run("plan loops.cad --json --gpus 1 --cluster dgx_a100 --micro-batches 1"
            " --budget 51000000B");
    EXPECT_EQ(out.status, 0) << out.err;
    return json::parse(out.out);
  };
  const std::string body = " { x = x + Linear[F -> D](tanh(Linear[D -> F](x))) }\n";
  const double one = planned("  repeat 62 as a" + body)["predicted"]["step_s"];
  for (const auto& [first, second] : {std::pair("60", "2"), std::pair("2", "60")}) {
    const json two = planned(std::string("  repeat ") + first + " as a" + body + "  repeat " +
                             second + " as b" + body);
    EXPECT_LE(two["solver"]["bound"], one * (1 + 1e-3)) << first;
  }
}

TEST_F(PlanCommand, SlowStepsHaveDigits) {
  with(
      "device slow { memory: 80 GiB, f32: 0.001 TFLOPS, bandwidth: 1 GB/s }\n"
      "cluster slow_box { device: slow }");
  const Output out = plan("--cluster slow_box --gpus 1 --set B=1 --set D=2048 --set F=8192");
  ASSERT_EQ(out.status, 0) << out.err;
  const size_t at = out.out.find(" rows/s");
  ASSERT_NE(at, std::string::npos) << out.out;
  const std::string rate = out.out.substr(out.out.rfind(' ', at - 1) + 1);
  EXPECT_GT(std::stod(rate), 0) << out.out;
  EXPECT_LT(std::stod(rate), 1) << out.out;
}

}  // namespace
}  // namespace cad
