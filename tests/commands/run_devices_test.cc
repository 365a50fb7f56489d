// `colauto run --devices N` as a user sees it: the same losses on any number of devices, threads or
// ranks, and checkpoints that any mesh goes on from. When a rank fails, stops or is not like the
// others: run_faults_test.cc; two hosts: two_hosts_test.cc.
#include "tests/commands/run_devices.h"
#include "tests/commands/json_schema.h"

namespace cad {
namespace {

TEST_F(RunDevices, LossesAreThoseOfOneDevice) {
  ASSERT_EQ(run("run net.cad --quiet --log one.jsonl --save one").status, 0);
  const json schema =
      json::parse(std::ifstream(std::string(COLAUTO_SOURCE_DIR) + "/docs/schema/run-log.json"));
  for (const char* flags : {"--devices 2 --plan dp", "--devices 4 --plan auto",
                            "--devices 3 --plan zero3", "--devices 2 --plan zero1"}) {
    const Output many = run(std::string("run net.cad --quiet --log n.jsonl --save n ") + flags);
    ASSERT_EQ(many.status, 0) << flags << many.err;
    expect_close(losses("n.jsonl"), losses("one.jsonl"), flags);
    expect_close(losses("n.jsonl", "eval"), losses("one.jsonl", "eval"), flags);
    const json start = events("n.jsonl", "start").front(), end = events("n.jsonl", "end").front();
    EXPECT_TRUE(fits(start, schema, schema)) << start;
    EXPECT_TRUE(fits(end, schema, schema)) << end;
    expect_peaks(end, start["devices"], flags);
    // The file does not tell how many devices wrote it.
    EXPECT_EQ(read("n/step-000004/model.safetensors").size(),
              read("one/step-000004/model.safetensors").size());
    std::filesystem::remove_all(folder_ / "n");
    std::filesystem::remove(folder_ / "n.jsonl");
  }
}

// What a plan predicted beside what its run measured, as a table and as JSON.
TEST_F(RunDevices, ComparesThePlan) {
  const json schema = json::parse(
      std::ifstream(std::string(COLAUTO_SOURCE_DIR) + "/docs/schema/compare-plan.json"));
  for (const char* flags : {"--devices 1", "--devices 2 --plan dp", "--devices 4 --plan zero3"}) {
    const Output output =
        run(std::string("run net.cad --quiet --steps 3 --json --compare-plan --save c ") + flags);
    ASSERT_EQ(output.status, 0) << flags << output.err;
    json last;
    std::istringstream lines(output.out);
    for (std::string line; std::getline(lines, line);) last = json::parse(line);
    ASSERT_TRUE(fits(last, schema, schema)) << last.dump(1);
    EXPECT_EQ(last["steps"], 2) << "the first one is left out";
    EXPECT_GT(last["step"]["predicted_s"], 0);
    EXPECT_GT(last["step"]["measured_s"], 0);
    EXPECT_EQ(last["peak"]["measured_bytes"].size(), last["devices"].get<size_t>());
    for (const json& peak : last["peak"]["measured_bytes"])
      EXPECT_EQ(peak, last["peak"]["predicted_bytes"]);
    // every place that has products in the plan has them in the run
    double predicted = 0, measured = 0;
    for (const json& op : last["ops"]) {
      for (const char* phase : {"forward", "backward"}) {
        predicted += op[phase]["predicted_s"].get<double>();
        measured += op[phase]["measured_s"].get<double>();
        if (op["kind"] != "product") continue;
        EXPECT_GT(op[phase]["predicted_s"], 0) << flags << op;
        EXPECT_GT(op[phase]["measured_s"], 0) << flags << op;
      }
    }
    // micro-batches after the first add to gradients: compute that is no op's
    EXPECT_GT(last["compute"]["predicted_s"], 0.999 * predicted);
    EXPECT_LT(last["compute"]["predicted_s"], 1.02 * predicted);
    EXPECT_NEAR(measured, last["compute"]["measured_s"], 1e-6 + 1e-3 * measured);
    const bool several = last["devices"] > 1;
    EXPECT_EQ(!last["collectives"].empty(), several);
    for (const json& row : last["collectives"]) {
      EXPECT_NE(row["phase"], "recompute");
      EXPECT_GE(row["measured_s"], 0);
    }
    std::filesystem::remove_all(folder_ / "c");
  }
  const Output text = run("run net.cad --quiet --steps 2 --devices 2 --plan dp --compare-plan");
  ASSERT_EQ(text.status, 0) << text.err;
  for (const char* part : {"plan `dp` on 2 devices, 1 step measured", "predicted", "measured",
                           "off by", "communication", "optimizer", "peak, as compiled",
                           "ops, forward and backward", "product", "all-reduce over"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
}

// A trace has, for every device, what it did and what was predicted of it.
TEST_F(RunDevices, ATraceShowsWhatWasPredicted) {
  ASSERT_EQ(run("run net.cad --quiet --steps 2 --devices 2 --plan zero3 --trace t.json").status, 0);
  const json events = json::parse(read("t.json"))["traceEvents"];
  std::map<int, std::string> process;
  std::map<int, std::map<std::string, int>> count;
  double last_step = 0;
  for (const json& e : events) {
    if (e["ph"] == "M" && e["name"] == "process_name") process[e["pid"]] = e["args"]["name"];
    if (e["ph"] == "X") ++count[e["pid"]][e["cat"].get<std::string>()];
    if (e["ph"] == "C") ++count[e["pid"]]["memory"];
    if (e["ph"] == "X" && e["cat"] == "part")
      last_step = std::max(last_step, e["ts"].get<double>());
  }
  EXPECT_GT(last_step, 0);
  ASSERT_EQ(process.size(), 4U);
  for (const auto& [pid, name] : process) {
    const bool predicted = name.find("predicted") != std::string::npos;
    EXPECT_GT(count[pid]["compute"], 4) << name;
    EXPECT_GT(count[pid]["communication"], 2) << name;
    EXPECT_GT(count[pid]["memory"], 2) << name;
    EXPECT_EQ(count[pid]["part"], predicted ? 0 : 8) << name;
  }
}

// A program so small that one device would be faster runs on as many as were asked for.
TEST_F(RunDevices, AsManyAsAskedFor) {
  write("tiny.cad",
        "dim B, D = 4, V = 3\n"
        "model Net(x: [B, D]) -> [B, V] {\n  param w : [D, V] = normal(0.1)\n"
        "  return x @[D] w\n}\n"
        "train {\n  data: synthetic(x: f32[B, D], y: i32[B])\n"
        "  loss: cross_entropy[V](Net(x), y)\n  optimizer: sgd(lr: 0.1)\n  B: 4, steps: 3\n}\n");
  ASSERT_EQ(run("run tiny.cad --quiet --log one.jsonl").status, 0);
  for (const std::string devices : {"2", "3"}) {
    const Output many = run("run tiny.cad --quiet --log n.jsonl --devices " + devices);
    ASSERT_EQ(many.status, 0) << many.err;
    EXPECT_EQ(events("n.jsonl", "start").front()["devices"], std::stoi(devices));
    expect_close(losses("n.jsonl"), losses("one.jsonl"), devices.c_str());
  }
  EXPECT_EQ(run("run tiny.cad --devices 2 --plan single").status, 3);
  const Output far = run("run tiny.cad --devices 100000");
  EXPECT_EQ(far.status, 2);
  EXPECT_NE(far.err.find("one process has at most 256"), std::string::npos) << far.err;
}

// What `plan --json` saved is what runs; one of other sizes, devices or with a broken inside is
// refused.
TEST_F(RunDevices, ASavedPlanIsCarriedOut) {
  ASSERT_EQ(run("run net.cad --quiet --log one.jsonl --save one").status, 0);
  const Output plan = run("plan net.cad --devices 4 --plan zero3 --json");
  ASSERT_EQ(plan.status, 0) << plan.err;
  write("plan.json", plan.out);
  const Output many =
      run("run net.cad --quiet --log n.jsonl --save n --devices 4 --plan plan.json");
  ASSERT_EQ(many.status, 0) << many.err;
  expect_close(losses("n.jsonl"), losses("one.jsonl"), "a saved plan");
  const Output sizes = run("run net.cad --set B=8 --save m --devices 4 --plan plan.json");
  EXPECT_EQ(sizes.status, 66) << sizes.err;
  EXPECT_NE(sizes.err.find("of other sizes"), std::string::npos) << sizes.err;
  EXPECT_EQ(run("run net.cad --save m --devices 2 --plan plan.json").status, 66);
  const Output name = run("run net.cad --save m --devices 2 --plan ddp");
  EXPECT_EQ(name.status, 2);
  EXPECT_NE(name.err.find("no plan is called `ddp`"), std::string::npos) << name.err;
  json broken = json::parse(plan.out);
  for (auto& [node, split] : broken["placement"]["body"]["ops"].items()) split[0] = 100;
  write("plan.json", broken.dump());
  const Output inside = run("run net.cad --save m --devices 4 --plan plan.json");
  EXPECT_EQ(inside.status, 66) << inside.err;
  EXPECT_NE(inside.err.find("cannot be split so"), std::string::npos) << inside.err;
}

TEST_F(RunDevices, ResumingOnAnotherMesh) {
  ASSERT_EQ(run("run net.cad --quiet --log through.jsonl --save through").status, 0);
  const std::vector<double> through = losses("through.jsonl");
  const std::vector<std::string> meshes = {"--devices 1", "--devices 2 --plan zero1",
                                           "--devices 3 --plan zero3", "--devices 4 --plan auto"};
  for (size_t i = 0; i < meshes.size(); ++i) {
    const std::string first = meshes[i], second = meshes[(i + 1) % meshes.size()];
    const Output a = run("run net.cad --quiet --steps 4 --log n.jsonl --save n " + first);
    ASSERT_EQ(a.status, 0) << a.err;
    const Output b = run("run net.cad --quiet --resume --log n.jsonl --save n " + second);
    ASSERT_EQ(b.status, 0) << b.err;
    expect_close(losses("n.jsonl"), through, first + ", then " + second);
    std::filesystem::remove_all(folder_ / "n");
    std::filesystem::remove(folder_ / "n.jsonl");
  }
}

// One run over four meshes in turn, each with its own order of sums: dropout, micro-batches and the
// order of the data go on as if nothing had happened.
TEST_F(RunDevices, AChainOfMeshes) {
  ASSERT_EQ(run("run net.cad --quiet --log through.jsonl --save through").status, 0);
  int step = 0;
  for (const char* mesh : {"--devices 4 --plan zero3", "--devices 4 --mesh dp=2,tp=2",
                           "--devices 1", "--devices 3 --plan zero1"}) {
    step += 2;
    const Output part = run("run net.cad --quiet --log n.jsonl --save n --steps " +
                            std::to_string(step) + (step > 2 ? " --resume " : " ") + mesh);
    ASSERT_EQ(part.status, 0) << mesh << part.err;
  }
  expect_close(losses("n.jsonl"), losses("through.jsonl"), "a chain of meshes");
}

// Rows of an epoch are those of the whole data, whoever reads them.
TEST_F(RunDevices, StepsOfAnEpoch) {
  const struct {
    int tokens, rows, window, devices, steps;
  } cases[] = {{94, 2, 5, 2, 9}, {100, 8, 8, 4, 1}, {81, 2, 5, 2, 8}, {80, 2, 5, 2, 7}};
  for (const auto& c : cases) {
    write("text.txt", std::string(static_cast<size_t>(c.tokens), 'a'));
    for (const int devices : {1, c.devices}) {
      const Output dry =
          run("run net.cad --dry-run --json --set accumulate=1 --set B=" + std::to_string(c.rows) +
              " --set T=" + std::to_string(c.window) +
              (devices == 1 ? "" : " --plan dp --devices " + std::to_string(devices)));
      ASSERT_EQ(dry.status, 0) << dry.err;
      EXPECT_EQ(json::parse(dry.out)["steps_per_epoch"], c.steps) << c.tokens << " on " << devices;
    }
  }
  // of 21 micro-batches in three epochs, 4 a step, the last one is left
  write("text.txt", std::string(7 * 8 * 5 + 1, 'a'));
  const Output dry =
      run("run net.cad --dry-run --json --set epochs=3 --set accumulate=4 --set B=8 --set T=5 "
          "--plan dp --devices 2");
  ASSERT_EQ(dry.status, 0) << dry.err;
  EXPECT_EQ(json::parse(dry.out)["rows"], 56);
  EXPECT_EQ(json::parse(dry.out)["steps"], 5);
}

// Nothing that only shows what happens changes it.
TEST_F(RunDevices, LookingChangesNothing) {
  const std::string flags = "run net.cad --devices 3 --plan zero3 --threads-per-device 1 ";
  ASSERT_EQ(run(flags + "--quiet --log a.jsonl --save a").status, 0);
  EXPECT_EQ(run(flags + "--emit=ir,grad,profile,program,kernels").status, 0);
  ASSERT_EQ(run(flags + "-v --timings --trace t.json --log b.jsonl --save b").status, 0);
  EXPECT_EQ(losses("b.jsonl"), losses("a.jsonl"));
  EXPECT_EQ(read("b/step-000008/model.safetensors"), read("a/step-000008/model.safetensors"));
}

// Less memory than a run needs as it is: more is computed again, the losses stay.
TEST_F(RunDevices, LittleMemory) {
  const std::string deep = "run net.cad --quiet --set B=24 --set L=6 --steps 3 ";
  ASSERT_EQ(run(deep + "--log one.jsonl --save one").status, 0);
  const std::string flags = deep + "--plan auto --devices 1";
  const Output ample = run(flags + " --dry-run --json");
  ASSERT_EQ(ample.status, 0) << ample.err;
  const int64_t needed = json::parse(ample.out)["predicted_peak_bytes"];
  const int64_t budget = needed * 3 / 4;
  const Output out =
      run(flags + " --log n.jsonl --save n --budget " + std::to_string(budget) + "B");
  ASSERT_EQ(out.status, 0) << out.err;
  expect_close(losses("n.jsonl"), losses("one.jsonl"), "three quarters");
  const json end = events("n.jsonl", "end").front();
  expect_peaks(end, 1);
  EXPECT_LE(end["predicted_peak_bytes"], budget);
}

// Every name is a plan of `run`, on the devices that it is for; elsewhere the answer is why not.
TEST_F(RunDevices, EveryNamedPlan) {
  const Output unknown = run("run net.cad --devices 2 --plan nothing");
  EXPECT_EQ(unknown.status, 2);
  const std::string takes = "`--plan` takes ";
  const size_t at = unknown.err.find(takes), end = unknown.err.find(" or the name", at);
  ASSERT_TRUE(at != std::string::npos && end != std::string::npos) << unknown.err;
  std::istringstream list(unknown.err.substr(at + takes.size(), end - at - takes.size()));
  std::vector<std::string> names, without;
  for (std::string name; list >> name;) {
    if (name.back() == ',') name.pop_back();
    names.push_back(name);
  }
  EXPECT_GE(names.size(), 11U) << unknown.err;
  for (const std::string& name : names) {
    bool ran = false;
    for (const auto& [devices, mesh] : std::vector<std::pair<int, std::string>>{
             {2, ""}, {4, " --mesh a=2,b=2"}, {8, " --mesh a=2,b=2,c=2"}, {1, ""}}) {
      const Output dry = run("run net.cad --dry-run --json --plan " + name + " --devices " +
                             std::to_string(devices) + mesh);
      ran = dry.status == 0;
      if (ran) {
        EXPECT_EQ(json::parse(dry.out)["devices"], devices) << name;
        break;
      }
      EXPECT_EQ(dry.status, 3) << name << mesh << dry.err;
      EXPECT_TRUE(contains(dry.err, "suits the plan `" + name + "`")) << dry.err;
    }
    if (!ran) without.push_back(name);
  }
  EXPECT_EQ(without, std::vector<std::string>{});
}

// What a dry run says of the step is what the run says at its end; without a plan it knows nothing.
TEST_F(RunDevices, ADryRunPredictsTheStep) {
  const Output dry = run("run net.cad --devices 2 --plan auto --dry-run --json");
  ASSERT_EQ(dry.status, 0) << dry.err;
  ASSERT_EQ(run("run net.cad --devices 2 --plan auto --quiet --steps 1 --log a.jsonl").status, 0);
  const json step = json::parse(dry.out)["predicted_step_s"];
  EXPECT_GT(step.get<double>(), 0);
  const double said = events("a.jsonl", "end")[0]["predicted_step_s"];
  EXPECT_NEAR(step.get<double>(), said, 1e-8 * said);  // the log rounds
  const Output one = run("run net.cad --devices 1 --dry-run --json");
  EXPECT_TRUE(json::parse(one.out)["predicted_step_s"].is_null()) << one.out;
}

// J6: how long each phase took, planning apart from what comes before it and after.
TEST_F(RunDevices, PhasesAreTimed) {
  const auto phases = [&](const std::string& arguments) {
    const Output out = run(arguments);
    EXPECT_EQ(out.status, 0) << out.err;
    std::map<std::string, double> ms;
    std::istringstream lines(out.err);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string phase, unit;
      double time = 0;
      if (words >> phase >> time >> unit && unit == "ms" && line[0] != ' ') ms[phase] = time;
    }
    double sum = 0;
    for (const auto& [phase, time] : ms) sum += phase == "total" ? 0 : time;
    EXPECT_NEAR(sum, ms["total"], 0.01) << out.err;  // each is rounded to a microsecond
    return ms;
  };
  const auto plan = phases("plan net.cad --devices 4 --timings");
  for (const char* phase : {"read", "check", "lower", "plan", "total"})
    EXPECT_EQ(plan.count(phase), 1U) << phase;
  EXPECT_GT(plan.at("plan"), 0.1 * plan.at("total"));
  const auto trained = phases("run net.cad --quiet --devices 2 --plan dp --timings");
  for (const char* phase : {"read", "check", "lower", "compile", "train", "total"})
    EXPECT_EQ(trained.count(phase), 1U) << phase;
}

// On one mesh a run that stopped goes on bit by bit; so does a second one.
TEST_F(RunDevices, TheSameMeshGivesTheSameBits) {
  const std::string flags = "run net.cad --quiet --devices 4 --plan zero1 ";
  ASSERT_EQ(run(flags + "--log a.jsonl --save a").status, 0);
  ASSERT_EQ(run(flags + "--log b.jsonl --save b --steps 4").status, 0);
  ASSERT_EQ(run(flags + "--log b.jsonl --save b --resume").status, 0);
  EXPECT_EQ(losses("a.jsonl"), losses("b.jsonl"));
  for (const char* file : {"model", "optimizer", "ema"}) {
    const std::string name = std::string("/step-000008/") + file + ".safetensors";
    EXPECT_EQ(read("a" + name), read("b" + name)) << file;
  }
}

TEST_F(RunDevices, RanksGiveTheBitsOfThreads) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  EXPECT_TRUE(contains(run("version").out, "MPI   yes"));
  const std::string flags = "run net.cad --quiet --devices 4 --plan zero1 --threads-per-device 1 ";
  ASSERT_EQ(run(flags + "--log a.jsonl --save a").status, 0);
  for (const int ranks : {4, 2}) {
    const Output mpi = run_mpi(ranks, flags + "--log m.jsonl --save m");
    ASSERT_EQ(mpi.status, 0) << mpi.err;
    EXPECT_EQ(losses("m.jsonl"), losses("a.jsonl")) << ranks << " ranks";
    EXPECT_EQ(read("m/step-000008/model.safetensors"), read("a/step-000008/model.safetensors"));
    std::filesystem::remove_all(folder_ / "m");
    std::filesystem::remove(folder_ / "m.jsonl");
  }
}

TEST_F(RunDevices, RanksMustShareDevices) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  const Output out = run_mpi(2, "run net.cad --quiet --devices 3 --plan dp");
  EXPECT_EQ(out.status, 2) << out.err;
  EXPECT_TRUE(contains(out.err, "2 ranks cannot have equally many")) << out.err;
}

}  // namespace
}  // namespace cad
