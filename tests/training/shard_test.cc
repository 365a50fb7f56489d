// Blocks of tensors on devices, without a run: what each holds, first values, files written by one
// mesh and read by another, rows of data. Whole runs are in devices_test.cc.
#include "backend/shard.h"

#include <random>
#include <thread>

#include "backend/checkpoint.h"
#include "backend/comm/thread_world.h"
#include "backend/cpu/thread_pool.h"
#include "backend/data.h"
#include "backend/initialize.h"
#include "tests/training/training_testing.h"

namespace cad::backend {
namespace {

using planner::Layout;
using planner::Mesh;
using testing::TemporaryFolder;

Mesh mesh_of(const std::vector<int>& sizes) {
  Mesh mesh;
  for (size_t i = 0; i < sizes.size(); ++i)
    mesh.axes.push_back({std::string(1, static_cast<char>('x' + i)), sizes[i]});
  return mesh;
}

// Every layout, also those that planner::layouts() leaves out because a device would get nothing.
std::vector<Layout> all_layouts(size_t rank, const Mesh& mesh) {
  std::vector<Layout> list{Layout{}};
  for (size_t a = 0; a < mesh.axes.size(); ++a) {
    std::vector<Layout> longer;
    for (const Layout& layout : list) {
      for (int8_t p = planner::kReplicated; p < static_cast<int8_t>(rank); ++p) {
        longer.push_back(layout);
        longer.back().axis[a] = p;
      }
    }
    list = longer;
  }
  return list;
}

const std::vector<std::vector<int>> kMeshes = {{1}, {2}, {3}, {4}, {2, 2}, {2, 1, 3}, {2, 2, 2}};

TEST(Shard, EveryElementCountsOnce) {
  const std::vector<std::vector<int64_t>> shapes = {{}, {7}, {4, 6}, {5, 1, 9}, {3, 5, 2}};
  for (const auto& sizes : kMeshes) {
    const Mesh mesh = mesh_of(sizes);
    for (const auto& extents : shapes) {
      for (const Layout& layout : all_layouts(extents.size(), mesh)) {
        std::vector<int> seen(static_cast<size_t>(whole_shard(extents).elements()), 0);
        for (int device = 0; device < mesh.devices(); ++device) {
          const Shard shard =
              shard_of(layout, extents, mesh, planner::coordinates_of(mesh, device));
          int64_t own = 0, last = -1;
          each_stretch(shard, [&](int64_t here, int64_t there, int64_t count) {
            EXPECT_GT(there, last);
            EXPECT_LE(here + count, shard.elements());
            last = there;
            own += count;
            for (int64_t k = 0; k < count && shard.counts; ++k)
              ++seen[static_cast<size_t>(there + k)];
          });
          EXPECT_EQ(own, shard.own_elements());
        }
        for (const int times : seen) ASSERT_EQ(times, 1);
      }
    }
  }
}

Parameter parameter(const Layout& layout, const Mesh& mesh, int device) {
  Parameter p;
  p.path = p.local = "h.{}.w";
  p.loops = {3};
  p.extents = {5, 6, 7};
  p.held = {0, 2};  // the second iteration is elsewhere
  p.iterations = 2;
  p.init = ir::Init::Kind::kNormal;
  p.init_scale = 0.5;
  p.storage_layout = layout;
  p.storage = shard_of(layout, p.extents, mesh, planner::coordinates_of(mesh, device));
  p.iteration_elements = p.storage.elements();
  return p;
}

TEST(Shard, FirstValuesAreASliceOfTheWholes) {
  ThreadPool pool(2);
  Parameter whole = parameter({}, mesh_of({1}), 0);
  whole.held = {0, 1, 2};
  whole.iterations = 3;
  std::vector<float> values(static_cast<size_t>(whole.elements()));
  whole.data = reinterpret_cast<std::byte*>(values.data());
  initialize(whole, 9, pool);
  for (const auto& sizes : kMeshes) {
    const Mesh mesh = mesh_of(sizes);
    for (const Layout& layout : all_layouts(3, mesh)) {
      for (int device = 0; device < mesh.devices(); ++device) {
        Parameter p = parameter(layout, mesh, device);
        std::vector<float> own(static_cast<size_t>(p.elements()), 77.0F);
        p.data = reinterpret_cast<std::byte*>(own.data());
        initialize(p, 9, pool);
        std::vector<float> expected(own.size(), 0.0F);  // padding is zero
        for (int64_t i = 0; i < 2; ++i) {
          each_stretch(p.storage, [&](int64_t here, int64_t there, int64_t count) {
            std::copy_n(values.begin() + 2 * i * 210 + there, count,
                        expected.begin() + i * p.iteration_elements + here);
          });
        }
        ASSERT_EQ(std::memcmp(own.data(), expected.data(), own.size() * 4), 0);
      }
    }
  }
}

TEST(Shard, AnyMeshReadsWhatAnyMeshWrote) {
  TemporaryFolder folder;
  const std::vector<int64_t> extents{5, 6, 7};
  std::vector<float> whole(210);
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i) * 0.25F;
  std::mt19937 random(4);
  std::string first;
  for (int round = 0; round < 40; ++round) {
    const auto pick = [&](int& devices) {
      const Mesh mesh = mesh_of(kMeshes[random() % kMeshes.size()]);
      const std::vector<Layout> layouts = all_layouts(3, mesh);
      const Layout layout = layouts[random() % layouts.size()];
      std::vector<Shard> shards;
      devices = mesh.devices();
      for (int d = 0; d < devices; ++d)
        shards.push_back(shard_of(layout, extents, mesh, planner::coordinates_of(mesh, d)));
      return shards;
    };
    int writers = 0, readers = 0;
    const std::vector<Shard> written = pick(writers), read = pick(readers);
    const std::string path = folder.file("w.safetensors");
    const float seven = 7;
    for (int d = 0; d < writers; ++d) {
      const Shard& shard = written[static_cast<size_t>(d)];
      std::vector<float> block(static_cast<size_t>(shard.elements()), -1.0F);
      each_stretch(shard, [&](int64_t here, int64_t there, int64_t count) {
        std::copy_n(whole.begin() + there, count, block.begin() + here);
      });
      std::vector<TensorToWrite> tensors(2);
      tensors[0] = {"w", StoredType::kF32, extents, block.data(), shard};
      tensors[1] = {"s", StoredType::kF32, {}, d == writers - 1 ? &seven : nullptr};
      if (d == 0) {
        ASSERT_TRUE(create_safetensors(path, tensors, {{"format", "x"}}).ok());
      }
      ASSERT_TRUE(write_shards(path, tensors, {{"format", "x"}}).ok());
    }
    if (round == 0) first = folder.read("w.safetensors");
    ASSERT_EQ(folder.read("w.safetensors"), first) << "the file tells who wrote it";
    auto file = SafetensorsFile::open(path);
    ASSERT_TRUE(file.ok());
    for (int d = 0; d < readers; ++d) {
      Parameter p;
      p.extents = extents;
      p.storage = read[static_cast<size_t>(d)];
      std::vector<float> block(static_cast<size_t>(p.storage.elements()), -1.0F);
      ASSERT_TRUE(
          read_tensor(*file, *file->find("w"), p, reinterpret_cast<std::byte*>(block.data())).ok());
      each_stretch(p.storage, [&](int64_t here, int64_t there, int64_t count) {
        for (int64_t k = 0; k < count; ++k)
          ASSERT_EQ(block[static_cast<size_t>(here + k)], whole[static_cast<size_t>(there + k)]);
      });
    }
  }
}

TEST(Shard, RowsOfData) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 23; ++i) {
    for (int k = 0; k < 6; ++k) text += std::to_string(i * 10 + k) + (k == 5 ? "\n" : ",");
  }
  folder.write("x.csv", text);
  ir::DataSource source;
  source.kind = ir::DataSource::Kind::kCsv;
  source.files = {"x.csv"};
  for (const char* name : {"a", "b"}) {
    ir::DataName data;
    data.name = name;
    data.dims = {"B", "D"};
    data.sizes = {ir::Size(6), ir::Size(3)};
    source.names.push_back(data);
  }
  DataOptions options;
  options.folder = folder.path();
  options.seed = 3;
  auto set = DataSet::open({source}, options);
  ASSERT_TRUE(set.ok()) << set.error().message;
  std::vector<float> a(18), b(18);
  set->load(6, 6,
            std::vector<std::byte*>{reinterpret_cast<std::byte*>(a.data()),
                                    reinterpret_cast<std::byte*>(b.data())});
  for (const auto& sizes : kMeshes) {
    const Mesh mesh = mesh_of(sizes);
    const std::vector<Layout> layouts = all_layouts(2, mesh);
    for (size_t l = 0; l < layouts.size(); ++l) {
      for (int device = 0; device < mesh.devices(); ++device) {
        // `a` in two layouts, `b` in one
        std::vector<DataSlice> slices;
        std::vector<std::vector<float>> blocks;
        for (size_t s = 0; s < 3; ++s) {
          const Layout& layout = layouts[(l + s) % layouts.size()];
          slices.push_back({s == 1 ? size_t{1} : size_t{0},
                            shard_of(layout, {6, 3}, mesh, planner::coordinates_of(mesh, device)),
                            nullptr});
          blocks.emplace_back(static_cast<size_t>(slices.back().shard.elements()), -1.0F);
        }
        for (size_t s = 0; s < 3; ++s)
          slices[s].target = reinterpret_cast<std::byte*>(blocks[s].data());
        set->load(6, slices);
        for (size_t s = 0; s < 3; ++s) {
          const std::vector<float>& whole = s == 1 ? b : a;
          each_stretch(slices[s].shard, [&](int64_t here, int64_t there, int64_t count) {
            for (int64_t k = 0; k < count; ++k) {
              ASSERT_EQ(blocks[s][static_cast<size_t>(here + k)],
                        whole[static_cast<size_t>(there + k)]);
            }
          });
          for (const float value : blocks[s]) ASSERT_GE(value, 0.0F) << "padding is real data";
        }
      }
    }
  }
}

// f(team) on every device of a world of threads.
template <class F>
void on_devices(int devices, F&& f) {
  ThreadWorld world(devices, 20);
  std::vector<std::thread> threads;
  for (int d = 0; d < devices; ++d) {
    threads.emplace_back([&, d] {
      Communicator comm(world, d);
      f(Team(comm));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Team, FactsAndErrorsReachAll) {
  on_devices(3, [](const Team& team) {
    const std::vector<double> all = team.gather(1.5 * team.device(), "test");
    EXPECT_EQ(all, (std::vector<double>{0, 1.5, 3}));
    EXPECT_TRUE(team.agree(Ok{}, "nothing").ok());
    Status mine = Ok{};
    if (team.device() == 1) mine = make_error(DiagId::E0602, "the disk is full", kExitRunFailed);
    const Status status = team.agree(mine, "saving");
    ASSERT_FALSE(status.ok());
    if (team.device() == 1) {
      EXPECT_EQ(status.error().id, DiagId::E0602);
    } else {
      EXPECT_EQ(status.error().id, DiagId::E1001);
      EXPECT_EQ(status.error().message, "device 1, saving: the disk is full");
    }
  });
}

TEST(Team, OneCheckpointOfAll) {
  TemporaryFolder folder;
  const std::vector<int64_t> extents{6, 4};
  on_devices(3, [&](const Team& team) {
    Layout layout;
    layout.axis[0] = 0;
    const Mesh mesh = mesh_of({3});
    const Shard shard =
        shard_of(layout, extents, mesh, planner::coordinates_of(mesh, team.device()));
    std::vector<float> block(static_cast<size_t>(shard.elements()));
    for (size_t i = 0; i < block.size(); ++i)
      block[i] = static_cast<float>(i) + static_cast<float>(8 * team.device());
    auto opened =
        CheckpointFolder::open(folder.file("run"), CheckpointFolder::Mode::kFresh, 1, 0, team);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    for (int64_t step = 1; step <= 3; ++step) {
      CheckpointContents contents;
      contents.state.step = step;
      contents.model.push_back({"w", StoredType::kF32, extents, block.data(), shard});
      const Status saved = opened->save(contents);
      ASSERT_TRUE(saved.ok()) << saved.error().message;
    }
  });
  int entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.file("run"))) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(name == "step-000003" || name == "model.safetensors") << name;
    ++entries;
  }
  EXPECT_EQ(entries, 2);
  auto file = SafetensorsFile::open(folder.file("run/model.safetensors"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  float values[24];
  ASSERT_TRUE(file->read_f32(*file->find("w"), values).ok());
  for (int i = 0; i < 24; ++i) EXPECT_EQ(values[i], static_cast<float>(i));
}

// A device that cannot write ends the save on all; what was there stays.
TEST(Team, AFailedSaveLeavesTheOldCheckpoint) {
  TemporaryFolder folder;
  on_devices(2, [&](const Team& team) {
    auto opened = CheckpointFolder::open(folder.path(), CheckpointFolder::Mode::kFresh, 0, 0, team);
    ASSERT_TRUE(opened.ok());
    const float value = 1;
    CheckpointContents contents;
    contents.state.step = 1;
    contents.model.push_back({"w", StoredType::kF32, {}, team.first() ? &value : nullptr});
    ASSERT_TRUE(opened->save(contents).ok());
    // No disk has room for this.
    contents.state.step = 2;
    contents.optimizer.push_back({"w", StoredType::kF32, {int64_t{1} << 60}});
    const Status second = opened->save(contents);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().id, team.first() ? DiagId::E0602 : DiagId::E1001);
  });
  EXPECT_TRUE(find_checkpoint(folder.path()).ok());
  EXPECT_EQ(find_checkpoint(folder.path())->state.step, 1);
  EXPECT_FALSE(std::filesystem::exists(folder.file(".tmp-step-000002")));
}

}  // namespace
}  // namespace cad::backend
