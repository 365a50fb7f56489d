// tests/commands/devices_test.cc -- `colauto devices` and `colauto probe`: lists, JSON that fits
// its schema, unknown names, and that a probe's file is what later commands read.
#include <nlohmann/json.hpp>

#include "tests/commands/command_testing.h"
#include "tests/commands/json_schema.h"

namespace cad {
namespace {

using nlohmann::json;

class Devices : public Commands {
 protected:
  // No probe of this machine's user is read or overwritten.
  Output run_here(const std::string& arguments) const {
    return run(arguments, "XDG_CONFIG_HOME='" + folder_.string() + "/config'");
  }
};

TEST_F(Devices, ListsTheLibraryAndTheHost) {
  const Output output = run_here("devices");
  EXPECT_EQ(output.status, 0) << output.err;
  for (const char* name : {"v100", "a100_40", "a100 ", "h100", "h200", "b200", "rtx4090", "l4",
                           "a10g", "dgx_a100", "dgx_h100", "dgx2_v100", "pairs_a100", "p3_16xlarge",
                           "p4d_24xlarge", "p5_48xlarge", "g5_48xlarge", "host"}) {
    EXPECT_TRUE(contains(output.out, std::string("  ") + name)) << name << "\n" << output.out;
  }
  const Output listed = run_here("devices --json");
  const json document = json::parse(listed.out);
  EXPECT_TRUE(fits_schema(document, "devices")) << listed.out;
  EXPECT_EQ(document["clusters"].back()["name"], "host");
  EXPECT_FALSE(fits_schema(json::parse(R"({"schema":1,"devices":[]})"), "devices"));
}

TEST_F(Devices, ShowsOne) {
  const Output pairs = run_here("devices pairs_a100");
  EXPECT_EQ(pairs.status, 0) << pairs.err;
  EXPECT_EQ(pairs.out,
            "pairs_a100: 8 devices a node, 1 node\n"
            "  in a pair     211 GB/s, 19.6 us\n"
            "  in a node     14.3 GB/s, 20 us\n"
            "  of a100_pcie          80 GB  1.935 TB/s  f32 19.5 TFLOPS  tf32 156 TFLOPS  bf16 312 "
            "TFLOPS  f16 312 TFLOPS\n");
  EXPECT_TRUE(contains(run_here("devices dgx_a100").out, "as many nodes as asked for"));
  EXPECT_EQ(run_here("devices h100").out.substr(0, 4), "h100");
  EXPECT_TRUE(fits_schema(json::parse(run_here("devices host --json").out), "devices"));
}

TEST_F(Devices, UnknownNames) {
  const Output output = run_here("devices dgx_a10");
  EXPECT_EQ(output.status, 2);
  EXPECT_TRUE(contains(output.err, "error[E0804]: there is no cluster `dgx_a10`")) << output.err;
  EXPECT_TRUE(contains(output.err, "did you mean `dgx_a100`?")) << output.err;
}

TEST_F(Devices, AProbeIsWhatLaterCommandsRead) {
  const Output probe = run_here("probe --json");
  EXPECT_EQ(probe.status, 0) << probe.err;
  const json measured = json::parse(probe.out);
  EXPECT_TRUE(fits_schema(measured, "probe")) << probe.out;
  EXPECT_GE(measured["products"].size(), 9U);
  for (const json& product : measured["products"]) EXPECT_GT(product["flops"], 1e8) << product;
  EXPECT_GT(measured["bandwidth"], 1e8);
  EXPECT_TRUE(contains(measured["file"].get<std::string>(), "/config/colauto/host.cad"));
  EXPECT_EQ(run_here("fmt --check config/colauto/host.cad").status, 0);
  EXPECT_EQ(run_here("check config/colauto/host.cad").status, 0);
  const json host = json::parse(run_here("devices host --json").out);
  // the file holds the bandwidth that the cost model takes its part of
  EXPECT_NEAR(host["devices"][0]["bandwidth"].get<double>() / measured["bandwidth"].get<double>(),
              1, 0.01);
  EXPECT_GT(host["devices"][0]["flops"]["f32"], 0);
  EXPECT_TRUE(host["devices"][0]["flops"].contains("bf16"));
}

TEST_F(Devices, AProbeOfSomebodyElsesMakingIsRead) {
  std::filesystem::create_directories(folder_ / "config" / "colauto");
  write("config/colauto/host.cad",
        "device host { memory: 1 GB, f32: 3 TFLOPS, bandwidth: 50 GB/s }\n"
        "cluster host { device: host, intra: link(40 GB/s, 7 us) }\n");
  const json host = json::parse(run_here("devices host --json").out);
  EXPECT_DOUBLE_EQ(host["devices"][0]["flops"]["f32"], 3e12);
  EXPECT_DOUBLE_EQ(host["devices"][0]["memory"], 1e9);
  write("config/colauto/host.cad",
        "device host { memory: 1, f32: 3 TFLOPS, bandwidth: 50 GB/s }\n");
  const Output broken = run_here("devices host");
  EXPECT_EQ(broken.status, 65);
  EXPECT_TRUE(contains(broken.err, "host.cad:1: `memory` has no unit")) << broken.err;
}

TEST_F(Devices, AProbesFileThatIsNoText) {
  std::filesystem::create_directories(folder_ / "config" / "colauto");
  write("config/colauto/host.cad", "\xff\xfe");
  for (const char* arguments : {"devices", "devices host --gpus 2"}) {
    const Output out = run_here(arguments);
    EXPECT_EQ(out.status, 65) << arguments;
    EXPECT_TRUE(contains(out.err, "host.cad is not UTF-8")) << out.err;
  }
}

TEST_F(Devices, MeshesAsJson) {
  const json document = json::parse(run_here("devices pairs_a100 --gpus 4 --json").out);
  EXPECT_TRUE(fits_schema(document, "devices")) << document;
  const json one = json::parse(run_here("devices dgx_a100 --mesh dp=2,tp=8 --json").out);
  EXPECT_TRUE(fits_schema(one, "devices")) << one;
  ASSERT_EQ(one["meshes"].size(), 1U);
  const json& axes = one["meshes"][0]["axes"];
  ASSERT_EQ(axes.size(), 2U);
  EXPECT_EQ(axes[0]["name"], "dp");
  EXPECT_EQ(axes[0]["levels"][0]["link"]["bandwidth"], 20e9);   // across nodes
  EXPECT_EQ(axes[1]["levels"][0]["link"]["bandwidth"], 240e9);  // in a node
}

TEST_F(Devices, AProbeThatCannotBeWritten) {
  write("file", "");
  const Output output = run_here("probe -o file/host.cad");
  EXPECT_EQ(output.status, 1);
  EXPECT_TRUE(contains(output.err, "error[E0602]")) << output.err;
  const Output folder = run_here("probe -o .");
  EXPECT_EQ(folder.status, 1);
  EXPECT_TRUE(contains(folder.err, "it is a folder")) << folder.err;
  EXPECT_FALSE(contains(folder.err, "measuring")) << folder.err;
}

}  // namespace
}  // namespace cad
