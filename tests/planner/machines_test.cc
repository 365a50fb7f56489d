// tests/planner/machines_test.cc -- clusters by name: the library against the data sheets,
// programs' own sections, how many devices a cluster has, the host in shares.
#include "planner/machines.h"

#include <gtest/gtest.h>

#include "planner/compute_cost.h"
#include "planner/mesh.h"
#include "tests/frontend/frontend_testing.h"

namespace cad::planner {
namespace {

Machines machines_of(const std::string& text) {
  auto program = frontend::checked(text);
  EXPECT_FALSE(program->diagnostics.has_errors()) << program->text();
  Result<Machines> machines = program_machines(*program->module);
  return machines.ok() ? *machines : Machines{};
}

std::string fault(const Result<Cluster>& cluster) {
  return cluster.ok() ? std::string()
                      : std::string(diag_name(cluster.error().id)) + " " + cluster.error().message;
}

// What a link of the library holds is the data sheet's bandwidth times one constant.
TEST(Library, LinksAreDataSheetTimesOneConstant) {
  struct Sheet {
    const char* name;
    double intra, inter;  // GB/s a device, one way
  };
  for (const Sheet& sheet : std::vector<Sheet>{{"dgx2_v100", 150, 100.0 / 16},
                                               {"dgx_a100", 300, 25},
                                               {"dgx_a100_40", 300, 25},
                                               {"dgx_h100", 450, 50},
                                               {"dgx_h200", 450, 50},
                                               {"dgx_b200", 900, 50},
                                               {"p3_16xlarge", 150, 25.0 / 8 / 8},
                                               {"p3dn_24xlarge", 150, 100.0 / 8 / 8},
                                               {"p4d_24xlarge", 300, 400.0 / 8 / 8},
                                               {"p4de_24xlarge", 300, 400.0 / 8 / 8},
                                               {"p5_48xlarge", 450, 3200.0 / 8 / 8},
                                               {"g5_12xlarge", 16, 40.0 / 8 / 4},
                                               {"g5_48xlarge", 16, 100.0 / 8 / 8},
                                               {"g6_48xlarge", 16, 100.0 / 8 / 8}}) {
    const Cluster* cluster = library_machines().find_cluster(sheet.name);
    ASSERT_NE(cluster, nullptr) << sheet.name;
    const double part = fitted_constants().library_link;
    EXPECT_NEAR(cluster->intra->bandwidth, part * sheet.intra * 1e9, 1) << sheet.name;
    EXPECT_NEAR(cluster->inter->bandwidth, part * sheet.inter * 1e9, 1) << sheet.name;
  }
}

TEST(Library, EveryMachineIsComplete) {
  EXPECT_GE(library_machines().devices.size(), 10U);
  for (const Device& device : library_machines().devices) {
    EXPECT_GE(device.memory, 16e9) << device.name;
    EXPECT_GT(device.bandwidth, 1e11) << device.name;
    EXPECT_GT(device.flops.at("f32"), 1e13) << device.name;
    EXPECT_GT(device.flops.at("f16"), device.flops.at("f32")) << device.name;
    EXPECT_TRUE(find_cluster({}, device.name, 1).ok());
  }
  for (const Cluster& cluster : library_machines().clusters) {
    for (int64_t devices = 1; devices <= cluster.per_node; ++devices) {
      const auto found = find_cluster({}, cluster.name, devices);
      ASSERT_TRUE(found.ok()) << cluster.name;
      EXPECT_TRUE(meshes(*found, static_cast<int>(devices)).ok());
    }
  }
}

TEST(Machines, NodesGrowWithTheDevicesAskedFor) {
  EXPECT_EQ(find_cluster({}, "dgx_a100", 64)->nodes, 8);
  EXPECT_EQ(find_cluster({}, "dgx_a100", 12)->nodes, 2);
  EXPECT_EQ(find_cluster({}, "dgx_a100", 3)->nodes, 1);
  EXPECT_EQ(fault(find_cluster({}, "pairs_a100", 16)),
            "E0802 `pairs_a100` has 8 devices, 16 are asked for");
  EXPECT_EQ(fault(find_cluster({}, "a100", 8)), "E0802 `a100` is one device, 8 are asked for");
  EXPECT_EQ(fault(find_cluster({}, "dgx_a10", 8)), "E0804 there is no cluster `dgx_a10`");
  EXPECT_EQ(fault(find_cluster({}, "dgx_a100", 9000000000000000000)),
            "E0802 plans are made for at most 131072 devices, not 9000000000000000000");
  EXPECT_FALSE(host_cluster({}, {}, 200000).ok());
  const auto unknown = find_cluster({}, "dgx_a10", 8);
  EXPECT_EQ(unknown.error().helps[0].text, "did you mean `dgx_a100`?");
}

TEST(Machines, AProgramsOwn) {
  const Machines machines = machines_of(
      "device mine { memory: 8 GiB, f32: 2 TFLOPS, bandwidth: 100 GB/s }\n"
      "cluster lab { device: mine, nodes: 2, per_node: 4, pairs: link(50 GB/s, 2 us),\n"
      "  intra: link(10 GB/s, 4 us), inter: link(1 GB/s, 30 us) }\n"
      "cluster dgx_a100 { device: h100, per_node: 2, intra: link(1 GB/s, 1 us) }\n");
  const auto lab = find_cluster(machines, "lab", 8);
  ASSERT_TRUE(lab.ok());
  EXPECT_EQ(lab->devices(), 8);
  EXPECT_DOUBLE_EQ(lab->device.memory, 8.0 * (1 << 30));
  EXPECT_EQ(*lab->pairs, (Link{50e9, 2e-6}));
  EXPECT_DOUBLE_EQ(lab->inter->latency, 30e-6);
  // it says how many nodes it has
  EXPECT_EQ(fault(find_cluster(machines, "lab", 9)), "E0802 `lab` has 8 devices, 9 are asked for");
  // the program's names come first, its devices from the library
  EXPECT_EQ(find_cluster(machines, "dgx_a100", 2)->device.name, "h100");
  EXPECT_EQ(find_cluster(machines, "dgx_h100", 2)->device.name, "h100");
}

TEST(Machines, PartsThatDoNotFit) {
  const auto ids = [](const std::string& size) {
    return frontend::checked("cluster c { device: a100, " + size +
                             ", pairs: link(50 GB/s, 2 us), intra: link(10 GB/s, 4 us), "
                             "inter: link(1 GB/s, 9 us) }\n")
        ->ids();
  };
  EXPECT_EQ(ids("per_node: 4"), "");
  EXPECT_EQ(ids("per_node: 3"), "E0801:1");
  EXPECT_EQ(ids("nodes: 4000000000, per_node: 4000000000"), "E0801:1");
  EXPECT_EQ(ids("nodes: 1, per_node: 9000000000000000000"), "E0801:1");
}

TEST(Machines, AClusterOfAnUnknownDevice) {
  auto program = frontend::checked("cluster c { device: rtx409 }\n");
  EXPECT_EQ(program->ids(), "E0324:1");
  EXPECT_NE(program->text().find("did you mean `rtx4090`?"), std::string::npos) << program->text();
}

TEST(Machines, TheHostInShares) {
  const Host host{8, 64e9};
  const std::optional<std::string> probed =
      "device host { memory: 60 GB, f32: 800 GFLOPS, bandwidth: 80 GB/s }\n"
      "cluster host { device: host, intra: link(80 GB/s, 5 us) }\n";
  const auto one = host_cluster(host, probed, 1);
  ASSERT_TRUE(one.ok());
  EXPECT_DOUBLE_EQ(one->device.memory, 60e9);
  const auto four = host_cluster(host, probed, 4);
  EXPECT_EQ(four->devices(), 4);
  EXPECT_DOUBLE_EQ(four->device.memory, 15e9);
  EXPECT_DOUBLE_EQ(four->device.flops.at("f32"), 200e9);
  EXPECT_DOUBLE_EQ(four->device.bandwidth, 20e9);
  EXPECT_DOUBLE_EQ(four->intra->bandwidth, 20e9);
  EXPECT_DOUBLE_EQ(four->intra->latency, 5e-6);
  // without a probe, by the cores
  const auto guess = host_cluster(host, {}, 2);
  EXPECT_DOUBLE_EQ(guess->device.memory, 32e9);
  EXPECT_DOUBLE_EQ(guess->device.flops.at("f32"),
                   host_cluster({4, 64e9}, {}, 1)->device.flops.at("f32"));
  // wider vectors, faster products
  EXPECT_GT(host_cluster({2, 64e9, 16}, {}, 1)->device.flops.at("f32"),
            host_cluster({2, 64e9, 8}, {}, 1)->device.flops.at("f32"));
  // three devices of four cores have one each: the fourth idles
  EXPECT_DOUBLE_EQ(host_cluster({4, 64e9}, {}, 3)->device.flops.at("f32"),
                   host_cluster({4, 64e9}, {}, 4)->device.flops.at("f32"));
  // seven devices of four cores still make meshes
  EXPECT_TRUE(meshes(*host_cluster({4, 64e9}, {}, 7), 7).ok());
}

// What `colauto probe` writes: rates of a CPU, and a link for each number of devices.
TEST(Machines, AProbedHost) {
  const std::optional<std::string> probed =
      "device host { memory: 16 GB, f32: 200 GFLOPS, packing: 40 GB/s, attention: 100 GFLOPS,\n"
      "  attention_grad: 80 GFLOPS, pointwise: 10 GFLOPS, bandwidth: 20 GB/s, cache: 8 MB,\n"
      "  cache_bandwidth: 100 GB/s }\n"
      "cluster host { device: host, intra: link(10 GB/s, 9 us) }\n"
      "cluster host_2 { device: host, per_node: 2, intra: link(6 GB/s, 4 us) }\n"
      "cluster host_4 { device: host, per_node: 4, intra: link(2 GB/s, 20 us) }\n";
  const Host host{2, 64e9};
  const auto four = host_cluster(host, probed, 4);
  ASSERT_TRUE(four.ok());
  const auto expect_link = [&](int64_t devices, double bandwidth, double latency) {
    const Link link = *host_cluster(host, probed, devices)->intra;
    EXPECT_DOUBLE_EQ(link.bandwidth, bandwidth) << devices;
    EXPECT_DOUBLE_EQ(link.latency, latency) << devices;
  };
  expect_link(2, 6e9, 4e-6);
  expect_link(3, 4e9, 4e-6);  // what two get, in three
  expect_link(4, 2e9, 20e-6);
  expect_link(8, 1e9, 20e-6);
  const CpuRates& cpu = *four->device.cpu;
  EXPECT_DOUBLE_EQ(cpu.pointwise, 2.5e9);
  EXPECT_DOUBLE_EQ(cpu.attention, 25e9);
  EXPECT_DOUBLE_EQ(cpu.attention_grad, 20e9);
  EXPECT_DOUBLE_EQ(cpu.packing, 10e9);
  EXPECT_DOUBLE_EQ(cpu.cache, 2e6);
  EXPECT_DOUBLE_EQ(cpu.cache_bandwidth, 25e9);
}

TEST(Machines, BrokenTexts) {
  const auto broken = read_machines("x.cad", "device a { memory: 0 GB, f32: 1 TFLOPS }");
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().message.substr(0, 8), "x.cad:1:");
  EXPECT_FALSE(read_machines("x.cad", "device a {").ok());
  EXPECT_TRUE(read_machines("x.cad", "").ok());
}

}  // namespace
}  // namespace cad::planner
