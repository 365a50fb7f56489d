// Plans on ranks of MPI give the bits that threads give, again and again, and so one device's
// results: every baseline and `auto` on one mesh, 20 pairs of plan and mesh at random. This test
// binary under mpirun, a start for each number of ranks; ranks leave a line for each device that
// they ran.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "backend/comm/mpi_world.h"
#include "tests/equivalence/plans.h"
#include "tests/training/training_testing.h"

namespace cad::backend {
namespace {

struct Case {
  size_t model = 0;
  std::vector<int> sizes;
  std::string plan;  // a baseline, "auto", "random"
  bool again = false;
  uint32_t seed = 0;  // of "random"
  int ranks = 1;
  int turns = 1;  // runs that must give the same bits
};

std::string name_of(const Case& c) {
  return fmt::format("{} by {}{}{} on {}, {} ranks", test_models()[c.model].name, c.plan,
                     c.again ? " + recompute" : "", c.seed > 0 ? fmt::format(" {}", c.seed) : "",
                     fmt::join(c.sizes, "x"), c.ranks);
}

// On the first mesh of its own that 4 ranks can make; `auto` on a grid. Three runs of each.
std::vector<Case> baselines() {
  std::vector<Case> cases;
  for (const bool again : {false, true}) cases.push_back({0, {2, 2}, "auto", again, 0, 4, 3});
  for (const std::string& name : planner::baseline_names()) {
    const bool single = name == "single";
    std::vector<int> sizes = {single ? 1 : 4};
    if (name == "megatron-zero" || name == "tp2d") sizes = {2, 2};
    if (name == "tp3d") sizes = {2, 2, 2};
    for (const bool again : {false, true})
      cases.push_back({0, sizes, name, again, 0, single ? 1 : 4, 3});
  }
  return cases;
}

// Made as it says; nullopt: the model's sizes or the mesh do not allow it.
std::optional<planner::Placement> placement_of(const Case& c, const PlansOf& plans) {
  if (c.plan == "random") return plans.random(c.seed);
  if (c.plan == "auto") {
    return plans.automatic(c.again ? planner::Checkpointing::kAll : planner::Checkpointing::kAuto);
  }
  if (!planner::baseline_fits_mesh(c.plan, plans.mesh())) return std::nullopt;
  std::string why;
  return plans.baseline(c.plan, c.again, why);
}

// The models, as they are asked for.
class Models {
 public:
  explicit Models(bool run) : run_(run) {}
  const Reference& at(size_t index) {
    auto& model = models_[index];
    if (model == nullptr) model = reference(test_models()[index], run_);
    return *model;
  }

 private:
  bool run_;
  std::map<size_t, std::unique_ptr<const Reference>> models_;
};

// 20 that can be done, drawn without looking at what is in them.
std::vector<Case> random_pairs(Models& models) {
  static const std::vector<std::pair<std::vector<int>, int>> kMeshes = {
      {{2}, 2},    {{3}, 3},    {{4}, 4},    {{4}, 2},       {{8}, 4},      {{2, 2}, 4},
      {{2, 2}, 2}, {{2, 4}, 4}, {{2, 4}, 2}, {{2, 2, 2}, 4}, {{2, 2, 2}, 2}};
  std::vector<std::string> names = planner::baseline_names();
  names.insert(names.end(), {"auto", "auto", "random", "random", "random"});
  Draw draw(20);
  std::vector<Case> cases;
  while (cases.size() < 20) {
    Case c;
    c.model = static_cast<size_t>(draw.below(static_cast<int>(test_models().size())));
    std::tie(c.sizes, c.ranks) = draw.of(kMeshes);
    c.plan = draw.of(names);
    c.again = draw.chance(50) && c.plan != "random";
    if (c.plan == "random") c.seed = 1 + static_cast<uint32_t>(draw.below(1 << 20));
    const PlansOf plans(models.at(c.model), c.sizes);
    if (placement_of(c, plans)) cases.push_back(c);
  }
  return cases;
}

// One line a device and turn.
std::string line(size_t number, int turn, int device, const DeviceResult& result) {
  return fmt::format("case {} turn {} device {}: loss {:.17g} bits {:016x}", number, turn, device,
                     result.losses.back(), bits_of(result));
}

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

// The cases go to the ranks as lines of a file: drawing them again would plan each of them again,
// in every rank.
std::string text_of(const std::vector<Case>& cases) {
  std::string text;
  for (const Case& c : cases)
    text += fmt::format("{} {} {} {} {} {} {} {}\n", c.model, c.plan, c.again ? 1 : 0, c.seed,
                        c.ranks, c.turns, c.sizes.size(), fmt::join(c.sizes, " "));
  return text;
}
std::vector<Case> read_cases(const std::string& file) {
  std::vector<Case> cases;
  std::ifstream in(file);
  Case c;
  for (size_t axes = 0;
       in >> c.model >> c.plan >> c.again >> c.seed >> c.ranks >> c.turns >> axes;) {
    c.sizes.resize(axes);
    for (int& size : c.sizes) in >> size;
    cases.push_back(c);
  }
  return cases;
}

// Of all cases those for this number of ranks, by every rank at once.
void as_a_rank() {
  std::ofstream out;
  Models models(false);
  const std::vector<Case> cases = read_cases(variable("COLAUTO_TEST_FOLDER") + "/cases");
  ASSERT_FALSE(cases.empty());
  auto first = make_mpi_world(1, 30);
  ASSERT_TRUE(first.ok()) << first.error().message;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    if (c.ranks != mpi_ranks()) continue;
    const Reference& model = models.at(c.model);
    const PlansOf plans(model, c.sizes);
    const auto trainer = compiled(model, name_of(c), *placement_of(c, plans));
    ASSERT_NE(trainer, nullptr);
    auto world = make_mpi_world(devices_of(c.sizes) / c.ranks, 30);
    ASSERT_TRUE(world.ok()) << world.error().message;
    if (!out.is_open())
      out.open(variable("COLAUTO_TEST_FOLDER") + fmt::format("/rank{}", mpi_rank()));
    for (int turn = 0; turn < c.turns; ++turn) {
      const auto results = run_devices(*trainer, **world, name_of(c));
      ASSERT_EQ(results.size(), static_cast<size_t>((*world)->local_devices()));
      for (size_t d = 0; d < results.size(); ++d) {
        out << line(i, turn, (*world)->first_device() + static_cast<int>(d), results[d]) << "\n";
        EXPECT_EQ(results[d].trainer->touched_bytes(), trainer->memory().total) << name_of(c);
      }
    }
  }
}

TEST(UnderMpi, DISABLED_Cases) {
  as_a_rank();
}

int under_mpirun(int ranks, const std::string& folder) {
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0) return -1;
  const std::string command =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none "
      "ASAN_OPTIONS=detect_leaks=0 COLAUTO_TEST_FOLDER='" +
      folder + "' timeout 300 mpirun -n " + std::to_string(ranks) + " '" + self +
      "' --gtest_also_run_disabled_tests --gtest_filter=UnderMpi.DISABLED_Cases >'" + folder +
      "/out' 2>&1";
  return std::system(command.c_str());
}

// All cases by threads, against one device; then under mpirun, against the threads.
void compare(const std::vector<Case>& cases, Models& models, std::set<std::string>* collectives) {
  const testing::TemporaryFolder folder;
  folder.write("cases", text_of(cases));
  std::set<std::string> wanted;
  std::set<int> ranks;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    const Reference& model = models.at(c.model);
    const PlansOf plans(model, c.sizes);
    const auto placement = placement_of(c, plans);
    ASSERT_TRUE(placement.has_value()) << name_of(c);
    const auto trainer = compiled(model, name_of(c), *placement);
    ASSERT_NE(trainer, nullptr);
    collectives->merge(collectives_of(*trainer));
    ranks.insert(c.ranks);
    std::vector<uint64_t> first;
    for (int turn = 0; turn < c.turns; ++turn) {
      ThreadWorld world(trainer->mesh().devices(), 60);
      const auto results = run_devices(*trainer, world, name_of(c));
      if (turn == 0) expect_equal(results, model, name_of(c));
      ASSERT_FALSE(results.empty()) << name_of(c);
      for (size_t d = 0; d < results.size(); ++d) {
        if (turn == 0) first.push_back(bits_of(results[d]));
        EXPECT_EQ(bits_of(results[d]), first[d]) << name_of(c) << ": turn " << turn;
        wanted.insert(line(i, turn, static_cast<int>(d), results[d]));
      }
    }
  }
  std::set<std::string> got;
  for (const int n : ranks) {
    ASSERT_EQ(under_mpirun(n, folder.path()), 0) << folder.read("out");
    for (int rank = 0; rank < n; ++rank) {
      std::istringstream lines(folder.read("rank" + std::to_string(rank)));
      for (std::string text; std::getline(lines, text);) got.insert(text);
      std::filesystem::remove(folder.file("rank" + std::to_string(rank)));
    }
  }
  EXPECT_EQ(got, wanted);
}

TEST(PlansUnderMpi, EveryBaseline) {
  if (!mpi_available()) GTEST_SKIP() << "no MPI";
  Models models(true);
  std::set<std::string> collectives;
  const std::vector<Case> cases = baselines();
  EXPECT_EQ(cases.size(), 2 + 2 * planner::baseline_names().size());
  compare(cases, models, &collectives);
}

TEST(PlansUnderMpi, RandomPairs) {
  if (!mpi_available()) GTEST_SKIP() << "no MPI";
  Models models(true);
  std::set<std::string> collectives;
  compare(random_pairs(models), models, &collectives);
  collectives.erase("permute");  // what a random layout seldom asks for
  EXPECT_EQ(collectives,
            (std::set<std::string>{"all-gather", "all-reduce", "all-to-all", "reduce-scatter"}));
}

}  // namespace
}  // namespace cad::backend
