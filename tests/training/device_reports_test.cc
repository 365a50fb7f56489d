// tests/training/device_reports_test.cc -- more programs that went wrong elsewhere on devices:
// sizes that the program itself wishes split although they do not divide, heads, random values
// under recomputation, halves, what clipping costs, how many collectives a step makes. Values by
// hand and the rest of them: device_cases_test.cc.
#include "backend/program_impl.h"
#include "tests/training/device_cases.h"

namespace cad::backend {
namespace {

class DeviceReports : public DeviceCases {
 protected:
  // `auto` by the program's own wishes on a mesh, against one device.
  DeviceRun wished(const std::string& text, int steps, const std::vector<int>& sizes) {
    const WholeModel m = whole_model(text, {});
    const PlanOfDevices plan = named_plan(m.spec, "auto", sizes);
    EXPECT_NE(plan, nullptr);
    if (plan == nullptr) return {};
    const DeviceRun many = run_on(m.spec, plan, steps);
    expect_equal(many, run_on(m.spec, nullptr, steps), plan->train.mesh.str());
    return many;
  }
  static std::unique_ptr<Trainer> compiled(const ir::TrainSpec& spec, const PlanOfDevices& plan) {
    TrainerOptions options;
    options.plan = plan;
    options.threads = 1;
    options.sharing = plan == nullptr ? 1 : plan->train.mesh.devices();
    auto trainer = Trainer::create(spec, options);
    EXPECT_TRUE(trainer.ok()) << trainer.error().message;
    return std::move(*trainer);
  }
  // A device's size of the dim `whole` in the training program; 0: it is nowhere split.
  static int64_t part_of(const Trainer& trainer, const std::string& whole) {
    const ir::Graph& g = trainer.train_program().impl().graph;
    for (const ir::Dim& dim : g.dims) {
      if (dim.whole.valid() && g.dim(dim.whole).name == whole)
        return dim.size.evaluate(trainer.spec().bindings).value;
    }
    return 0;
  }
};

// Collectives of a step as they start: several that join are one call.
struct Calls {
  int64_t collectives = 0, calls = 0;
};
void count_calls(const ProgramImpl& p, const Block& block, int64_t times, Calls& calls) {
  for (const Instruction& i : block.instructions) {
    if (i.kind == Instruction::Kind::kLoop)
      count_calls(p, p.blocks[static_cast<size_t>(i.block)], times * i.count, calls);
    if (i.kind != Instruction::Kind::kCollective) continue;
    calls.collectives += times;
    calls.calls += i.joins ? 0 : times;
  }
}
Calls calls_of(const Trainer& trainer) {
  Calls calls;
  const ProgramImpl& p = trainer.train_program().impl();
  count_calls(p, p.blocks[0], 1, calls);
  return calls;
}

// Counts what the first device sums over devices: tensors, and meetings for them.
class CountingWorld : public ThreadWorld {
 public:
  CountingWorld(int devices, int64_t least) : ThreadWorld(devices, 60), least_(least) {}
  using World::run;
  bool run(int device, std::span<const Move> moves, uint64_t sequence) override {
    int found = 0;
    for (const Move& move : moves) {
      const bool sums = move.call->kind == CollectiveKind::kAllReduce ||
                        move.call->kind == CollectiveKind::kReduceScatter;
      found += sums && move.call->in_elements() >= least_ ? 1 : 0;
    }
    if (device == 0) {
      sums += found;
      meetings += found > 0 ? 1 : 0;
    }
    return ThreadWorld::run(device, moves, sequence);
  }
  int sums = 0, meetings = 0;

 private:
  int64_t least_;  // elements
};

// E8: 5 and 11 words split over 2, 3 and 4 devices because the program says so. Padding is in no
// sum, no gradient, no norm, no count and no file.
TEST_F(DeviceReports, AVocabularySplitByWish) {
  const std::string y = npy<int>("y.npy", {6}, {0, 1, 2, 3, 4, 2});
  for (const int devices : {2, 3, 4}) {
    const DeviceRun zero = wished(
        "dim B, V = 5, D = 2\nmodel Net(y: i32[B]) -> [B, V] {\n"
        "  param e : [V, D] = zeros @shard(V: x)\n  h = e[V = y]\n"
        "  z = h @[D] e @shard(V: x)\n  return z\n}\ntrain t {\n  data: npy(" +
            y +
            ", y: i32[B])\n  loss: cross_entropy[V](Net(y), y)\n  optimizer: sgd(lr: 1)\n  B: 6, "
            "steps: 1\n}\n",
        1, {devices});
    ASSERT_EQ(zero.losses.size(), 1U);
    EXPECT_NEAR(zero.losses[0], std::log(5.0), 1e-6);
  }
  const std::string text =
      "dim B, T = 3, V = 11, D = 8\nmodel Net(x: i32[B, T]) -> [B, T, V] {\n"
      "  param e : [V, D] = normal(0.5) @shard(V: x)\n  h = e[V = x]\n"
      "  z = h @[D] e @shard(V: x)\n  return z\n}\n"
      "train t {\n  data: synthetic(x: i32[B, T], y: i32[B, T])\n"
      "  loss: cross_entropy[V](Net(x), y)\n  optimizer: adamw(lr: 1e-2)\n  clip: 1.0\n"
      "  B: 4, steps: 40\n}\n";
  const WholeModel m = whole_model(text, {});
  const DeviceRun one = run_on(m.spec, nullptr, 40);
  for (const int devices : {2, 3, 4}) {
    const PlanOfDevices plan = named_plan(m.spec, "auto", {devices});
    ASSERT_NE(plan, nullptr);
    const auto trainer = compiled(m.spec, plan);
    EXPECT_EQ(part_of(*trainer, "V"), (11 + devices - 1) / devices);
    EXPECT_EQ(trainer->parameters().count(), 11 * 8);
    const std::string folder = folder_.file("v" + std::to_string(devices));
    expect_equal(run_on(m.spec, plan, 40, {"", folder}), one, std::to_string(devices));
    auto file = SafetensorsFile::open(folder + "/step-000040/model.safetensors");
    ASSERT_TRUE(file.ok());
    ASSERT_EQ(file->header().tensors.size(), 1U);
    EXPECT_EQ(file->header().tensors[0].shape, (std::vector<int64_t>{11, 8}));
  }
}

// E10: 6 query heads of 2 keys and values on 4 devices, 3 heads on 4, and then 12.
TEST_F(DeviceReports, HeadsThatDoNotDivide) {
  const std::string end =
      "train t {\n  data: synthetic(x: f32[B, T, D], y: f32[B, T, D])\n  loss: mse(Net(x), y)\n"
      "  optimizer: adam(lr: 1e-3)\n  B: 3, steps: 3\n}\n";
  const std::string grouped =
      "dim B, T = 5, S = T, G = 2, R = 3, K = 2, D = G * R * K\n"
      "model Net(x: [B, T, D]) -> [B, T, D] { return GQA[T -> S, D, G, R, K](x) }\n" +
      end;
  const DeviceRun one = compare(grouped, 3, 3, {{4}});
  const WholeModel m = whole_model(grouped, {});
  for (const char* name : {"megatron", "auto"}) {
    const PlanOfDevices plan = named_plan(m.spec, name, {4});
    ASSERT_NE(plan, nullptr) << name;
    // two groups are no four parts, and what shares a group's keys and values stays with it
    const auto trainer = compiled(m.spec, plan);
    EXPECT_EQ(part_of(*trainer, "G"), 0) << name;
    expect_equal(run_on(m.spec, plan, 3), one, name);
  }
  for (const int heads : {3, 12}) {
    const std::string text = "dim B, T = 5, S = T, H = " + std::to_string(heads) +
                             ", K = 2, D = H * K\nmodel Net(x: [B, T, D]) -> [B, T, D] {\n"
                             "  return Attention[T -> S, D, H, K](x)\n}\n" +
                             end;
    const WholeModel w = whole_model(text, {});
    const PlanOfDevices plan = named_plan(w.spec, "megatron", {4});
    ASSERT_NE(plan, nullptr) << heads;
    // 3 are not cut in 4 parts of which one is none; 12 are, whatever came before
    EXPECT_EQ(part_of(*compiled(w.spec, plan), "H"), heads == 12 ? 3 : 0) << heads;
    expect_equal(run_on(w.spec, plan, 3), run_on(w.spec, nullptr, 3), std::to_string(heads));
  }
}

// B4: more devices than rows, and a width that does not divide, because the program says so.
TEST_F(DeviceReports, MorePartsThanRows) {
  for (const auto& [batch, sizes, wish] :
       std::vector<std::tuple<int, std::vector<int>, std::string>>{
           {4, {8}, "B: x"}, {4, {4, 2}, "B: x"}, {5, {4}, "D: x"}}) {
    const std::string text =
        "dim B, D = 6, E = 6\nmodel Net(x: [B, D]) -> [B, E] {\n"
        "  h = relu(Linear[D -> D](x)) @shard(" +
        wish +
        ")\n  return Linear[D -> E](h)\n}\ntrain t {\n"
        "  data: synthetic(x: f32[B, D], y: f32[B, E])\n  loss: mse(Net(x), y)\n"
        "  optimizer: adam(lr: 1e-3)\n  B: " +
        std::to_string(batch) + ", steps: 3\n}\n";
    const WholeModel m = whole_model(text, {});
    const planner::Planning planning =
        planner::make_plan(request_for(m.spec, m.forward, "auto", sizes));
    if (planning.body.choices.empty()) {  // refused: then by name
      ASSERT_FALSE(planning.impossible.empty()) << wish;
      continue;
    }
    wished(text, 3, sizes);
  }
}

// F1: the curve is the same whatever runs again, from ample memory down to the least.
TEST_F(DeviceReports, BudgetsDoNotChangeTheCurve) {
  const WholeModel m = whole_model(
      "dim B, D = 64, F = 64, L = 3\nmodel Net(x: [B, D]) -> [B, D] {\n  repeat L as h {\n"
      "    x = Linear[F -> D](dropout(relu(Linear[D -> F](x)), 0.5))\n  }\n  return x\n}\n"
      "train t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
      "  optimizer: sgd(lr: 1e-1)\n  B: 32, steps: 6\n}\n",
      {});
  const DeviceRun one = run_on(m.spec, nullptr, 6);
  int compared = 0;
  for (const std::vector<int>& sizes : Sizes{{1}, {2}, {2, 2}}) {
    planner::PlanRequest request = request_for(m.spec, m.forward, "auto", sizes);
    const double most = planner::make_plan(request).plan.predicted.peak_bytes;
    request.budget = 1;
    const double least = planner::make_plan(request).least_peak;
    ASSERT_LT(least, most);
    for (const double part : {1.0, 0.5, 0.1, 0.0}) {
      request.budget = std::ceil(least + part * (most - least));
      const planner::Planning planning = planner::make_plan(request);
      ASSERT_TRUE(planning.feasible);
      const planner::Placement placement = planner::placement_of(*planning.problem, planning.body);
      const DeviceRun run = run_on(m.spec, plan_from("auto", placement), 6);
      expect_equal(run, one, placement.mesh.str() + " " + std::to_string(part));
      // the same splits with everything saved: the same bits
      const DeviceRun kept =
          run_on(m.spec, plan_from("kept", all_saved(placement, ir::Saving::kKeep)), 6);
      EXPECT_EQ(run.losses, kept.losses) << placement.mesh.str() << " " << part;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 12);
}

// C8: states of halves are f32, wherever they lie: an update of 0.003 moves a weight of 1.
TEST_F(DeviceReports, SmallUpdatesOfHalvesCount) {
  const WholeModel m = whole_model(
      "dim B, N = 5\nmodel Net(x: [B]) -> f32[] {\n  param w : [N] = ones\n"
      "  return sum[N](w) + 0 * mean(x)\n}\ntrain t {\n  data: synthetic(x: f32[B])\n"
      "  loss: Net(x)\n  optimizer: sgd(lr: 0.003)\n  B: 4, steps: 20, precision: bf16\n}\n",
      {});
  for (const char* name : {"dp", "zero1", "zero2", "zero3"}) {
    const PlanOfDevices plan = named_plan(m.spec, name, {2});
    ASSERT_NE(plan, nullptr) << name;
    const DeviceRun run = run_on(m.spec, plan, 20);
    ASSERT_EQ(run.error, "");
    for (const double norm : run.norms) EXPECT_NEAR(norm, std::sqrt(5.0), 1e-2) << name;
    for (const float w : run.weights.at("w")) EXPECT_NEAR(w, 1 - 20 * 0.003, 1e-5) << name;
  }
}

// G2: clipping by the global norm takes no copy of the gradients.
TEST_F(DeviceReports, ClippingTakesNoMemory) {
  const auto bytes = [&](const std::string& clip, const char* name) {
    const WholeModel m = whole_model(
        "dim B, D = 64, E = 64\nmodel Net(x: [B, D]) -> [B, E] {\n"
        "  return Linear[D -> E](relu(Linear[D -> D](x)))\n}\ntrain t {\n"
        "  data: synthetic(x: f32[B, D], y: f32[B, E])\n  loss: mse(Net(x), y)\n"
        "  optimizer: adam(lr: 1e-3)\n  B: 4, steps: 1" +
            clip + "\n}\n",
        {});
    return compiled(m.spec, named_plan(m.spec, name, {2}))->memory().total;
  };
  for (const char* name : {"dp", "zero1", "zero3"})
    EXPECT_LE(bytes(", clip: 1.0", name) - bytes("", name), 256) << name;
}

// F7: blocks of which only what enters is kept, each with two reductions: the one in the middle is
// made again, the last one is not.
TEST_F(DeviceReports, TheLastReductionIsNotRepeated) {
  const WholeModel m = whole_model(
      "dim B, D = 16, F = 32\nlayer Mlp(x: [B, D]) -> [B, D] {\n"
      "  return Linear[F -> D](gelu(Linear[D -> F](x, bias: false)), bias: false)\n}\n"
      "model Net(x: [B, D]) -> [B, D] {\n  repeat 4 as h {\n    x = x + Mlp(x)\n"
      "    x = x + Mlp(x)\n  }\n  return x\n}\ntrain t {\n"
      "  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
      "  optimizer: adam(lr: 1e-3)\n  B: 8, steps: 2\n}\n",
      {});
  planner::PlanRequest request = request_for(m.spec, m.forward, "auto", {2});
  request.rules.shard = {{"F", "x"}, {"B", ""}, {"D", ""}};
  for (const bool again : {false, true}) {
    request.rules.checkpointing =
        again ? planner::Checkpointing::kAll : planner::Checkpointing::kNone;
    const planner::Planning planning = planner::make_plan(request);
    ASSERT_TRUE(planning.feasible);
    const PlanOfDevices plan =
        plan_from("auto", planner::placement_of(*planning.problem, planning.body));
    const Calls calls = calls_of(*compiled(m.spec, plan));
    EXPECT_EQ(calls.collectives, again ? 8 + 4 + 8 : 8 + 8) << again;
    expect_equal(run_on(m.spec, plan, 2), run_on(m.spec, nullptr, 2), "checkpointed");
  }
}

// G3: where a device holds a whole gradient it is summed over devices once a step, after all
// micro-batches; where it holds a part, that part of every micro-batch's: it never has the rest.
TEST_F(DeviceReports, OneReductionOfAGradient) {
  const std::string x = npy<float>("x.npy", {8}, {1, 1, 10, 10, 100, 100, 1000, 1000});
  for (const int accumulate : {1, 2, 4}) {
    const WholeModel m = whole_model(
        "dim B, N = 4\nmodel Net(x: [B]) -> f32[] {\n  param w : [N] = ones\n"
        "  return mean(x * mean[N](w))\n}\ntrain t {\n  data: npy(" +
            x + ", x: f32[B])\n  loss: Net(x)\n  optimizer: sgd(lr: 1e-3)\n  clip: 1e9\n  B: " +
            std::to_string(8 / accumulate) + ", accumulate: " + std::to_string(accumulate) +
            ", steps: 1, order: sequential\n}\n",
        {});
    for (const std::string name : {"dp", "zero1", "zero2", "zero3"}) {
      const PlanOfDevices plan = named_plan(m.spec, name, {2});
      ASSERT_NE(plan, nullptr) << name;
      CountingWorld world(2, 4);
      const DeviceRun run = run_on(m.spec, plan, 1, {}, &world);
      ASSERT_EQ(run.error, "");
      EXPECT_NEAR(run.losses[0], 277.75, 1e-3) << name;
      for (const float w : run.weights.at("w")) EXPECT_NEAR(w, 1 - 0.27775 / 4, 1e-6) << name;
      const bool parts = name == "zero2" || name == "zero3";
      EXPECT_EQ(world.sums, parts ? accumulate : 1) << name << ", " << accumulate;
    }
  }
}

// J3: words split over one axis, rows over the other, then a layer split by columns. In the forward
// pass the look-up's summands are added over the words' axis, once; rows stay where they are,
// through views too.
TEST_F(DeviceReports, ALookUpLeavesRowsWhereTheyAre) {
  const WholeModel m = whole_model(
      "dim B, T = 8, S = T, V = 2048, D = 64, F = 96\n"
      "model Net(x: i32[B, T]) -> [B, T, F] {\n  param e : [V, D] = normal(0.5)\n"
      "  param w : [D, F] = normal(0.5)\n  h = e[V = x]\n  h = (h[T -> S])[S -> T]\n"
      "  z = h @[D] w\n  return gelu(z)\n}\ntrain t {\n"
      "  data: synthetic(x: i32[B, T], y: f32[B, T, F])\n  loss: mse(Net(x), y)\n"
      "  optimizer: sgd(lr: 1e-2)\n  B: 8, steps: 2\n}\n",
      {});
  planner::PlanRequest request = request_for(m.spec, m.forward, "auto", {2, 2});
  request.rules.shard = {{"B", "x"}, {"V", "y"}, {"F", "y"}};
  const planner::Planning planning = planner::make_plan(request);
  ASSERT_TRUE(planning.feasible);
  const PlanOfDevices plan =
      plan_from("auto", planner::placement_of(*planning.problem, planning.body));
  const auto trainer = compiled(m.spec, plan);
  EXPECT_EQ(part_of(*trainer, "V"), 1024);
  const ProgramImpl& p = trainer->train_program().impl();
  int over_words = 0;
  for (const StepInfo& step : p.infos) {
    if (step.kind != StepInfo::Kind::kCollective || step.backward || step.bytes <= 16) continue;
    EXPECT_EQ(step.axes, 2U) << step.name << " of " << step.bytes << " bytes";
    EXPECT_EQ(step.name, "all_reduce");
    EXPECT_EQ(step.bytes, 2.0 * 4 * 8 * 64 * 4);  // operand and result: [B/x, T, D]
    ++over_words;
  }
  EXPECT_EQ(over_words, 1) << trainer->train_program().str();
  expect_equal(run_on(m.spec, plan, 2), run_on(m.spec, nullptr, 2), "look-up");
}

// J2: two small gradients for each of many layers meet few times, as iterations of one loop and one
// by one, and give what one device gives.
TEST_F(DeviceReports, ManySmallGradients) {
  const std::string head = "dim B, D = 16\nmodel Net(x: [B, D]) -> [B, D] {\n";
  const std::string end =
      "  return x\n}\ntrain t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n"
      "  loss: mse(Net(x), y)\n  optimizer: sgd(lr: 1e-2)\n  B: 8, steps: 2\n}\n";
  const std::string layer = "x = x + 0.1 * tanh(Linear[D -> D](x))\n";
  std::string unrolled;
  for (int i = 0; i < 40; ++i) unrolled += "  " + layer;
  const struct {
    std::string text;
    int gradients, most;  // meetings for them in a step
  } cases[] = {{head + "  repeat 200 { " + layer + "  }\n" + end, 2, 4},
               {head + unrolled + end, 80, 10}};
  for (const auto& c : cases) {
    const WholeModel m = whole_model(c.text, {});
    const PlanOfDevices plan = named_plan(m.spec, "dp", {4});
    ASSERT_NE(plan, nullptr);
    CountingWorld world(4, 16);
    const DeviceRun run = run_on(m.spec, plan, 2, {}, &world);
    expect_equal(run, run_on(m.spec, nullptr, 2), "layers");
    EXPECT_GE(world.sums, 2 * c.gradients);  // iterations that lie otherwise have their own
    EXPECT_LE(world.meetings, 2 * c.most) << c.gradients;
  }
}

// E25: six layers of width 32 with biases by the batch: 25,344 bytes of gradients, summed at once.
TEST_F(DeviceReports, SixLayersAreSummedAtOnce) {
  std::string text = "dim B, D = 32\nmodel Net(x: [B, D]) -> [B, D] {\n";
  for (int i = 0; i < 6; ++i)
    text += i < 5 ? "  x = relu(Linear[D -> D](x))\n" : "  return Linear[D -> D](x)\n";
  const WholeModel m = whole_model(
      text +
          "}\ntrain t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
          "  optimizer: adam(lr: 1e-3)\n  B: 256, steps: 1\n}\n",
      {});
  for (const std::vector<int>& sizes : Sizes{{4}, {4, 1}, {1, 4}}) {
    const PlanOfDevices plan = named_plan(m.spec, sizes.size() == 1 ? "dp" : "auto", sizes);
    ASSERT_NE(plan, nullptr);
    CountingWorld world(4, 16);
    const DeviceRun run = run_on(m.spec, plan, 1, {}, &world);
    expect_equal(run, run_on(m.spec, nullptr, 1), plan->train.mesh.str());
    EXPECT_EQ(world.sums, 12) << plan->train.mesh.str();
    EXPECT_EQ(world.meetings, 1) << plan->train.mesh.str();
  }
}

}  // namespace
}  // namespace cad::backend
