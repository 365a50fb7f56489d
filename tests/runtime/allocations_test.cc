// Tensors live in the arena and nowhere else: once everything has run, a program and the steps of a
// trainer, alone and on several devices, allocate nothing of tensor size.
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <new>

#include "tests/runtime/program_harness.h"
#include "tests/training/device_runs.h"

namespace {
std::atomic<int64_t> large_allocations{0};
}
void* operator new(size_t size) {
  if (size > 65536) large_allocations.fetch_add(1);
  void* p = std::malloc(size);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
// std::stable_sort's buffer comes from this one and goes to the delete below.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  if (size > 65536) large_allocations.fetch_add(1);
  return std::malloc(size);
}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // they match: see above
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
#pragma GCC diagnostic pop

namespace cad::backend {
namespace {

using ir::DimId;
using ir::ValueId;

// After one warm-up run nothing of tensor size is allocated.
TEST(Allocations, NoneInAProgram) {
  testing::GraphMaker m;
  const DimId b = m.dim("B", 300), d = m.dim("D", 200), f = m.dim("F", 250);
  const ValueId x = m.f32("x", {b, d}), w = m.f32("w", {d, f});
  ir::Attrs inner, rows;
  inner.dims = {d};
  rows.dims = {f};
  m.output("y", m.b.make(ir::Op::kSoftmax, {m.b.make(ir::Op::kContract, {x, w}, inner)}, rows));
  const Program program = compile(m.graph, {});
  std::vector<float> in(300 * 200, 0.1F), weights(200 * 250, 0.2F), out(300 * 250);
  const testing::Memory arena(static_cast<size_t>(program.transient_bytes()));
  backend::Run run;
  run.inputs = {in.data(), weights.data()};
  run.outputs = {out.data()};
  run.arena = arena.get();
  ThreadPool pool(2);
  execute(program, pool, run);
  const int64_t before = large_allocations.load();
  for (int i = 0; i < 3; ++i) execute(program, pool, run);
  EXPECT_EQ(large_allocations.load(), before);
}

// Weights of 256 KiB, of which every device has a part or gets them from the others.
const char* const kWide = R"(dim B, D = 256, L = 2
model Net(x: [B, D]) -> [B, D] {
  repeat L as h { x = x + gelu(Linear[D -> D](x)) }
  return x
}
train {
  data: synthetic(x: f32[B, D], y: f32[B, D])
  loss: mse(Net(x), y)
  optimizer: adamw(lr: 1e-3)
  clip: 1.0
  B: 256, steps: 4, accumulate: 2
}
)";

TEST(Allocations, NoneInTheStepsOfDevices) {
  const ir::TrainSpec spec = frontend::Program(kWide).lowered();
  for (const char* name : {"single", "dp", "zero3", "megatron"}) {
    const bool alone = std::string(name) == "single";
    const PlanOfDevices plan = named_plan(spec, name, {alone ? 1 : 2});
    ASSERT_NE(plan, nullptr) << name;
    TrainerOptions options;
    options.plan = plan;
    options.threads = 1;
    auto trainer = Trainer::create(spec, options);
    ASSERT_TRUE(trainer.ok()) << trainer.error().message;
    const int devices = alone ? 1 : 2;
    std::barrier<> together(devices);
    std::atomic<int64_t> made{-1};
    ThreadWorld world(devices, 60);
    const DevicesOutcome outcome = run_on_devices(world, 1, [&](Device& device) -> Status {
      const auto own = (*trainer)->on_device(Team(device.comm), device.pool);
      std::vector<Diagnostic> warnings;
      CAD_TRY_VOID(own->start(warnings));
      CAD_TRY_VOID(own->step());
      together.arrive_and_wait();
      const int64_t before = large_allocations;
      together.arrive_and_wait();
      for (int i = 0; i < 3; ++i) CAD_TRY_VOID(own->step());
      together.arrive_and_wait();
      made = large_allocations - before;
      return Ok{};
    });
    ASSERT_TRUE(outcome.ok()) << name;
    EXPECT_EQ(made, 0) << name;
  }
}

}  // namespace
}  // namespace cad::backend
