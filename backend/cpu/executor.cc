// backend/cpu/executor.cc -- the interpreter of a Program's instructions.
#include "backend/cpu/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "backend/comm/world.h"
#include "backend/cpu/thread_pool.h"
#include "backend/program_impl.h"
#include "base/check.h"

namespace cad::backend {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

namespace {

// Below this many element touches a stage runs on the caller alone: a fork costs a few
// microseconds.
constexpr int64_t kAlone = 8192;

class Executor {
 public:
  Executor(const ProgramImpl& program, ThreadPool& pool, const Run& run)
      : program_(program), pool_(pool), run_(run) {
    CAD_CHECK(run.inputs.size() == program.inputs.size(), "{} inputs bound, {} wanted",
              run.inputs.size(), program.inputs.size());
    CAD_CHECK(run.outputs.size() == program.outputs.size(), "{} outputs bound, {} wanted",
              run.outputs.size(), program.outputs.size());
    roots_.push_back(static_cast<char*>(run.arena));
    for (void* p : run.inputs) roots_.push_back(static_cast<char*>(p));
    for (void* p : run.outputs) roots_.push_back(static_cast<char*>(p));
    part_ = device_part(program, run.coordinates);
    roots_.push_back(reinterpret_cast<char*>(part_.axis_indices.data()));
    started_.resize(static_cast<size_t>(program.tickets));
    numbers_.assign(static_cast<size_t>(program.levels), 0);
    rows_ = run.step_rows != 0 ? run.step_rows : std::max<int64_t>(program.batch_rows, 1);
  }

  // Nobody else may use the run's buffers afterwards.
  ~Executor() {
    for (const Started& s : started_)
      if (s.pending) (void)run_.comm->wait(s.ticket);
  }
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // False: a value that is not finite, described in `found`.
  bool block(int32_t index);
  std::optional<NonFinite> found;

 private:
  [[nodiscard]] char* at(const Address& a) const {
    char* p = roots_[static_cast<size_t>(a.root)] + a.offset;
    for (const auto& [level, stride] : a.numbers)
      p += numbers_[static_cast<size_t>(level)] * stride;
    return p;
  }
  template <class T>
  [[nodiscard]] T* as(const Address& a) const {
    return reinterpret_cast<T*>(at(a));
  }
  void kernel(const Instruction& i);
  void attention(const Instruction& i);
  void collective(const Instruction& i);
  void await(const Instruction& i);
  void instruction(const Instruction& i);
  bool loop(const Instruction& i);
  bool finite(const Instruction& i);

  [[nodiscard]] bool adds(const Instruction& i) const {
    return i.adds == Adds::kAlways || (i.adds == Adds::kWhenAccumulating && run_.accumulate);
  }
  [[nodiscard]] bool done_at_once(const Instruction& i) const {
    const Started& s = started_[static_cast<size_t>(i.ticket)];
    return s.last == &s && s.ticket == 0;
  }

  struct Started {  // a collective
    Communicator::Ticket ticket = 0;
    Communicator::Stretch when;  // of those that started together: the last one's
    const Started* last = nullptr;
    bool pending = false;
  };

  const ProgramImpl& program_;
  ThreadPool& pool_;
  const Run& run_;
  DevicePart part_;
  std::vector<Started> started_;    // by Instruction::ticket
  std::vector<Move> together_;      // collectives about to start
  std::vector<Started*> gathered_;  // theirs
  int64_t done_ = 0;                // instructions
  std::vector<char*> roots_;
  std::vector<int64_t> numbers_;
  std::vector<void*> buffers_;  // of the kernel at hand
  int64_t rows_ = 0;
};

void Executor::kernel(const Instruction& i) {
  const KernelCall& call = program_.calls[static_cast<size_t>(i.detail)];
  const CompiledKernel& code = program_.kernels[static_cast<size_t>(call.kernel)];
  buffers_.clear();
  for (const Address& a : i.operands) buffers_.push_back(at(a));
  KernelArgs args;
  args.buffers = buffers_.data();
  const int64_t own = part_.ints_of[static_cast<size_t>(i.detail)];
  args.ints = own >= 0 ? part_.ints.data() + own : call.ints.data();
  args.scratch = i.scratch.valid() ? at(i.scratch) : nullptr;
  args.seed = run_.seed;
  args.step = run_.step;
  args.row_offset = run_.row_offset;
  args.step_rows = rows_;
  for (size_t stage = 0; stage < code.stages.size(); ++stage) {
    const int64_t items = call.items[stage];
    const int64_t cost = std::max<int64_t>(call.item_cost[stage], 1);
    const KernelFunction function = code.stages[stage];
    if (items <= 0) continue;
    if (items * cost <= kAlone) {
      function(&args, 0, items);
    } else {
      pool_.split(items, 1, [&](int64_t begin, int64_t end) { function(&args, begin, end); });
    }
  }
}

void Executor::attention(const Instruction& i) {
  const AttentionPlan& plan = program_.attentions[static_cast<size_t>(i.detail)];
  AttentionRun run;
  size_t next = 0;
  const auto take = [&] { return at(i.operands[next++]); };
  run.q = take();
  run.k = take();
  run.v = take();
  if (plan.backward) {
    run.out = take();
    run.lse = reinterpret_cast<float*>(take());
    run.g = take();
  }
  if (plan.masked) run.mask = reinterpret_cast<const uint8_t*>(take());
  for (int n = 0; n < plan.loop_numbers; ++n)
    run.numbers.push_back(*reinterpret_cast<const int32_t*>(take()));
  run.scratch = i.scratch.valid() ? at(i.scratch) : nullptr;
  run.seed = run_.seed;
  run.step = run_.step;
  run.row_offset = run_.row_offset;
  run.step_rows = rows_;
  set_attention_part(plan, program_.graph, program_.bindings, run_.coordinates, run);
  if (plan.backward) {
    run.dq = take();
    run.dk = take();
    run.dv = take();
    run_attention_grad(plan, run, pool_);
  } else {
    run.out = take();
    run.lse = reinterpret_cast<float*>(take());
    run_attention(plan, run, pool_);
  }
}

void Executor::collective(const Instruction& i) {
  const CollectiveCall& call = part_.calls[static_cast<size_t>(i.detail)];
  const void* in = at(i.operands[0]);
  void* out = at(i.operands[1]);
  if (call.size() == 1) {
    if (in != out)
      std::memcpy(out, in, static_cast<size_t>(call.in_elements() * ir::dtype_bytes(call.dtype)));
    return;
  }
  CAD_CHECK(run_.comm != nullptr, "{} without a communicator", call.str());
  if (call.kind == CollectiveKind::kPermute)
    clear_tail(call, call.index_of(run_.comm->device()), out);
  Started& s = started_[static_cast<size_t>(i.ticket)];
  together_.push_back({&call, in, out});
  gathered_.push_back(&s);
  if (i.joins) return;
  Communicator::Stretch* when = run_.trace != nullptr ? &s.when : nullptr;
  Communicator::Ticket ticket = 0;
  if (i.at_once) {
    if (!run_.comm->run(std::move(together_), when)) throw WorldFailed(run_.comm->world());
  } else {
    ticket = run_.comm->start(std::move(together_), when);
  }
  together_.clear();
  for (Started* one : gathered_) {
    one->ticket = ticket;  // 0: done
    one->last = &s;
    one->pending = true;
  }
  gathered_.clear();
}

void Executor::await(const Instruction& i) {
  Started& s = started_[static_cast<size_t>(i.ticket)];
  if (!s.pending) return;
  s.pending = false;
  if (!run_.comm->wait(s.ticket)) throw WorldFailed(run_.comm->world());
  if (run_.trace != nullptr) {
    const Communicator::Stretch& when = s.last->when;
    run_.trace->push_back({i.info, when.start_ns, when.end_ns, TraceEvent::Kind::kCollective});
  }
}

void Executor::instruction(const Instruction& i) {
  using Kind = Instruction::Kind;
  const auto detail = static_cast<size_t>(i.detail);
  switch (i.kind) {
    case Kind::kKernel:
      kernel(i);
      break;
    case Kind::kContract:
      run_gemm(program_.gemms[detail], at(i.operands[0]), at(i.operands[1]), at(i.operands[2]),
               adds(i), pool_);
      break;
    case Kind::kAttention:
    case Kind::kAttentionGrad:
      attention(i);
      break;
    case Kind::kScatterAdd:
      run_scatter_add(program_.routines[detail], at(i.operands[0]), as<int32_t>(i.operands[1]),
                      at(i.operands[2]), i.scratch.valid() ? at(i.scratch) : nullptr, adds(i),
                      pool_);
      break;
    case Kind::kTopK:
      run_top_k(program_.routines[detail], at(i.operands[0]), at(i.operands[1]),
                as<int32_t>(i.operands[2]), pool_);
      break;
    case Kind::kCumSum:
      run_cum_sum(program_.routines[detail], at(i.operands[0]), at(i.operands[1]), pool_);
      break;
    case Kind::kSlots:
      run_slots(program_.routines[detail], as<int32_t>(i.operands[0]), as<int32_t>(i.operands[1]),
                i.scratch.valid() ? at(i.scratch) : nullptr);
      break;
    case Kind::kCopy:
      run_copy(program_.copies[detail], at(i.operands[0]), at(i.operands[1]), adds(i), pool_);
      break;
    case Kind::kCollective:
      collective(i);
      break;
    case Kind::kAwait:
      await(i);
      break;
    case Kind::kLoop:
      CAD_CHECK(false, "a loop is no single step");
  }
}

bool Executor::loop(const Instruction& i) {
  for (int64_t n = 0; n < i.count; ++n) {
    const int64_t number = i.reverse ? i.count - 1 - n : n;
    numbers_[static_cast<size_t>(i.level)] = number;
    *as<int32_t>(i.number) = static_cast<int32_t>(number);
    if (!block(i.block)) return false;
  }
  return true;
}

// NaN, +inf or a new -inf in a result whose operands were fine.
bool Executor::finite(const Instruction& i) {
  for (const Checked& result : i.checked) {
    const NonFiniteCounts bad = count_non_finite(at(result.at), result.elements, result.dtype);
    if (bad.nan + bad.plus + bad.minus == 0) continue;
    NonFiniteCounts before;
    const char* to = at(result.at);
    const int64_t bytes = result.elements * ir::dtype_bytes(result.dtype);
    for (const Checked& operand : i.read) {
      // An operand in whose place the result was written is gone; it was looked at when it was
      // made.
      const char* from = at(operand.at);
      if (from < to + bytes && to < from + operand.elements * ir::dtype_bytes(operand.dtype))
        continue;
      const NonFiniteCounts there =
          count_non_finite(at(operand.at), operand.elements, operand.dtype);
      before.nan += there.nan;
      before.plus += there.plus;
      before.minus += there.minus;
    }
    const bool fresh = (bad.nan > 0 && before.nan == 0) || (bad.plus > 0 && before.plus == 0) ||
                       (bad.minus > 0 && before.minus == 0 && !i.may_be_minus_infinity);
    if (!fresh) continue;
    const ir::Value& value = program_.graph.value(result.value);
    NonFinite report;
    if (value.def.valid()) {
      const ir::Node& node = program_.graph.node(value.def);
      report.op = ir::op_name(node.op);
      report.scope = node.scope;
      report.span = node.span;
    }
    report.value = value.name;
    report.number = done_;
    found = std::move(report);
    return false;
  }
  return true;
}

bool Executor::block(int32_t index) {
  for (const Instruction& i : program_.blocks[static_cast<size_t>(index)].instructions) {
    const int64_t start = run_.trace != nullptr ? now_ns() : 0;
    if (i.kind == Instruction::Kind::kLoop) {
      if (!loop(i)) return false;
    } else {
      instruction(i);
    }
    ++done_;
    const bool starts = i.kind == Instruction::Kind::kCollective;  // on another thread
    // A device stands still where a collective is run at once, and no more when it is awaited.
    const bool stood = i.kind == Instruction::Kind::kAwait && done_at_once(i);
    if (run_.trace != nullptr && !stood && (!starts || i.at_once)) {
      const bool wait = starts || i.kind == Instruction::Kind::kAwait;
      run_.trace->push_back(
          {i.info, start, now_ns(), wait ? TraceEvent::Kind::kWait : TraceEvent::Kind::kStep});
    }
    if (run_.debug_nan && !found && !finite(i) && run_.comm == nullptr) return false;
  }
  return true;
}

}  // namespace

std::optional<NonFinite> execute(const Program& program, ThreadPool& pool, const Run& run) {
  Executor executor(program.impl(), pool, run);
  executor.block(0);
  return executor.found;
}

}  // namespace cad::backend
