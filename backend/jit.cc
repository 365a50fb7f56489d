// backend/jit.cc -- LLVM IR to machine code: a few cheap passes (the emitter places code itself),
// instruction selection at -O2 for the host's own CPU, one object a batch of kernels, linked by
// ORC. Everything that depends on LLVM's version beyond the IRBuilder is here.
#include "backend/jit.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <span>
#include <thread>

#include "backend/emit_llvm.h"
#include "backend/partition.h"
#include "base/check.h"
#include "ir/random.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/ExecutionEngine/Orc/CompileUtils.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/Host.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/ADCE.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Utils/Mem2Reg.h"

extern "C" {
// Called by kernels.
static uint64_t colauto_stream_key(uint64_t seed, uint64_t site, const int64_t* numbers,
                                   int64_t count) {
  return cad::ir::stream_key(seed, site,
                             std::span<const int64_t>(numbers, static_cast<size_t>(count)));
}
static float colauto_standard_normal(uint32_t word0, uint32_t word1) {
  return cad::ir::standard_normal(word0, word1);
}
static double colauto_pow(double a, double b) {
  return std::pow(a, b);
}
}

namespace cad::backend {

namespace {

namespace orc = llvm::orc;

// LLVM's errors are our bugs: the IR is ours, the target is this machine.
template <class T>
T unwrap(llvm::Expected<T> expected) {
  if (!expected) CAD_CHECK(false, "LLVM: {}", llvm::toString(expected.takeError()));
  return std::move(*expected);
}
// What LLVM would end the process for without a word of ours.
void refused(void* /*data*/, const char* /*reason*/, bool /*crash*/) {
  throw std::bad_alloc();
}
void fatal(void* /*data*/, const char* reason, bool /*crash*/) {
  const std::string why = reason;
  if (why.find("allocate") != std::string::npos || why.find("memory") != std::string::npos)
    throw std::bad_alloc();
  CAD_CHECK(false, "LLVM: {}", why);
}
void install_handlers() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::install_bad_alloc_error_handler(refused);
    llvm::install_fatal_error_handler(fatal);
  });
}

void unwrap(llvm::Error error) {
  if (error) CAD_CHECK(false, "LLVM: {}", llvm::toString(std::move(error)));
}

void initialise_target() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
}

orc::JITTargetMachineBuilder host_builder() {
  initialise_target();
  orc::JITTargetMachineBuilder builder = unwrap(orc::JITTargetMachineBuilder::detectHost());
  builder.setCodeGenOptLevel(llvm::CodeGenOpt::Default);
  builder.getOptions().AllowFPOpFusion = llvm::FPOpFusion::Fast;
  return builder;
}

void optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graphs, modules);
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::PromotePass());
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::ADCEPass());
  for (llvm::Function& f : module)
    if (!f.isDeclaration()) passes.run(f, functions);
}

std::string function_name(size_t number) {
  return "kernel" + std::to_string(number);
}

}  // namespace

struct Jit::Impl {
  std::unique_ptr<orc::LLJIT> lljit;
  orc::JITTargetMachineBuilder builder = host_builder();
  int lanes = host_lanes();
  std::mutex mutex;
  std::map<std::string, CompiledKernel> known;  // by Kernel::str()
  size_t next = 0;

  // Object code of some kernels; runs on any thread.
  std::unique_ptr<llvm::MemoryBuffer> object(const std::vector<const kernel::Kernel*>& kernels,
                                             size_t first) {
    llvm::LLVMContext context;
    llvm::Module module("kernels", context);
    std::unique_ptr<llvm::TargetMachine> machine = unwrap(builder.createTargetMachine());
    fill(module, *machine, kernels, first);
    return unwrap(orc::SimpleCompiler(*machine)(module));
  }
  // The same, a few kernels an object, on at most so many threads. Numbers count up from `first`.
  std::vector<std::unique_ptr<llvm::MemoryBuffer>> objects(
      const std::vector<const kernel::Kernel*>& kernels, size_t first, int threads);
  // Of the linked kernel of that number.
  CompiledKernel linked(const kernel::Kernel& kernel, size_t number);
  void fill(llvm::Module& module, llvm::TargetMachine& machine,
            const std::vector<const kernel::Kernel*>& kernels, size_t first) const {
    module.setTargetTriple(machine.getTargetTriple().str());
    module.setDataLayout(machine.createDataLayout());
    for (size_t k = 0; k < kernels.size(); ++k)
      emit_kernel(module, *kernels[k], lanes, function_name(first + k));
    std::string fault;
    llvm::raw_string_ostream stream(fault);
    CAD_CHECK(!llvm::verifyModule(module, &stream), "a kernel's LLVM IR is broken: {}",
              stream.str());
    optimise(module, machine);
  }
};

Jit::Jit(int lanes) : impl_(std::make_unique<Impl>()) {
  install_handlers();
  impl_->lanes = lanes;
  impl_->lljit = unwrap(orc::LLJITBuilder().setJITTargetMachineBuilder(impl_->builder).create());
  orc::SymbolMap symbols;
  auto add = [&](const char* name, auto* function) {
    symbols[impl_->lljit->mangleAndIntern(name)] =
        llvm::JITEvaluatedSymbol(llvm::pointerToJITTargetAddress(function),
                                 llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable);
  };
  add(kStreamKeySymbol, &colauto_stream_key);
  add(kStandardNormalSymbol, &colauto_standard_normal);
  add(kPowSymbol, &colauto_pow);
  unwrap(impl_->lljit->getMainJITDylib().define(orc::absoluteSymbols(std::move(symbols))));
  // memset and the like, should instruction selection want them
  impl_->lljit->getMainJITDylib().addGenerator(
      unwrap(orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
          impl_->lljit->getDataLayout().getGlobalPrefix())));
}

Jit::~Jit() = default;

std::vector<std::unique_ptr<llvm::MemoryBuffer>> Jit::Impl::objects(
    const std::vector<const kernel::Kernel*>& kernels, size_t first, int threads) {
  constexpr size_t kBatch = 4;
  const size_t batches = (kernels.size() + kBatch - 1) / kBatch;
  std::vector<std::unique_ptr<llvm::MemoryBuffer>> objects(batches);
  std::atomic<size_t> next{0};
  std::mutex failed;
  std::exception_ptr failure;
  const auto compile_some = [&] {
    for (size_t b = next++; b < batches; b = next++) {
      const size_t from = b * kBatch, to = std::min(kernels.size(), from + kBatch);
      objects[b] = object({kernels.begin() + static_cast<std::ptrdiff_t>(from),
                           kernels.begin() + static_cast<std::ptrdiff_t>(to)},
                          first + from);
    }
  };
  const auto work = [&] {
    try {
      compile_some();
    } catch (...) {  // told by the thread that asked
      const std::lock_guard<std::mutex> guard(failed);
      if (!failure) failure = std::current_exception();
      next = batches;
    }
  };
  std::vector<std::thread> helpers;
  try {
    for (int t = 1; t < std::min<int>(threads, static_cast<int>(batches)); ++t)
      helpers.emplace_back(work);
  } catch (const std::exception&) {
    // no room for another thread: those that are there do the work
  }
  work();
  for (std::thread& t : helpers) t.join();
  if (failure) std::rethrow_exception(failure);
  return objects;
}

CompiledKernel Jit::Impl::linked(const kernel::Kernel& kernel, size_t number) {
  CompiledKernel compiled;
  for (size_t s = 0; s < kernel.stages.size(); ++s) {
    auto symbol = unwrap(lljit->lookup(function_name(number) + "_" + std::to_string(s)));
    compiled.stages.push_back(
        llvm::jitTargetAddressToFunction<KernelFunction>(symbol.getAddress()));
  }
  return compiled;
}

std::vector<CompiledKernel> Jit::compile(const std::vector<kernel::Kernel>& kernels, int threads) {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  std::vector<std::string> keys, fresh_keys;
  std::vector<const kernel::Kernel*> fresh;
  for (const kernel::Kernel& k : kernels) {
    keys.push_back(k.str());
    if (impl_->known.emplace(keys.back(), CompiledKernel()).second) {
      fresh.push_back(&k);
      fresh_keys.push_back(keys.back());
    }
  }
  const size_t first = impl_->next;
  impl_->next += fresh.size();
  for (auto& object : impl_->objects(fresh, first, threads))
    unwrap(impl_->lljit->addObjectFile(std::move(object)));
  for (size_t k = 0; k < fresh.size(); ++k)
    impl_->known[fresh_keys[k]] = impl_->linked(*fresh[k], first + k);
  std::vector<CompiledKernel> result;
  for (const std::string& key : keys) result.push_back(impl_->known.at(key));
  return result;
}

std::string Jit::llvm_ir(const kernel::Kernel& kernel) const {
  llvm::LLVMContext context;
  llvm::Module module("kernels", context);
  orc::JITTargetMachineBuilder builder = impl_->builder;
  std::unique_ptr<llvm::TargetMachine> machine = unwrap(builder.createTargetMachine());
  impl_->fill(module, *machine, {&kernel}, 0);
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  return stream.str();
}

std::string print_kernels(const Partition& partition) {
  const Jit jit;
  std::string out;
  for (size_t k = 0; k < partition.kernels.size(); ++k) {
    const kernel::Kernel& kernel = partition.kernels[k];
    const auto uses = std::count_if(
        partition.calls.begin(), partition.calls.end(),
        [k](const KernelCall& call) { return call.kernel == static_cast<int32_t>(k); });
    out += fmt::format("kernel {} {} used {}\n{}\n{}\n", k, kernel.name, uses, kernel.str(),
                       jit.llvm_ir(kernel));
  }
  return out;
}

int host_lanes() {
  static const int lanes = [] {
    llvm::StringMap<bool> features;
    llvm::sys::getHostCPUFeatures(features);
    if (features.lookup("avx512f") && features.lookup("avx512bw") && features.lookup("avx512vl"))
      return 16;
    return features.lookup("avx2") ? 8 : 4;
  }();
  return lanes;
}

}  // namespace cad::backend
