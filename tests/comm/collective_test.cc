// Collectives of threads against plain loops over global tensors: every kind, group sizes 1 to 8,
// sizes that do not divide, in place, all dtypes; time-outs, disagreements and failures; the log.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "backend/comm/log_world.h"
#include "backend/comm/thread_world.h"
#include "backend/cpu/half.h"

namespace cad::backend {
namespace {

using Floats = std::vector<float>;

std::vector<int> all(int n) {
  std::vector<int> members;
  for (int i = 0; i < n; ++i) members.push_back(i);
  return members;
}

Floats numbers(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Floats x(static_cast<size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

// f(device, communicator) on a thread for every device.
template <class F>
void on_devices(World& world, F f) {
  std::vector<std::thread> threads;
  for (int d = 0; d < world.devices(); ++d) {
    threads.emplace_back([&world, &f, d] {
      Communicator comm(world, d);
      f(d, comm);
    });
  }
  for (std::thread& t : threads) t.join();
}

class Groups : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Groups, testing::Values(1, 2, 3, 4, 5, 8));

TEST_P(Groups, AllReduceAddsInOrder) {
  const int n = GetParam();
  for (const int64_t elements : {0, 1, 2, 7, 5000}) {
    std::vector<Floats> in;
    for (int d = 0; d < n; ++d) in.push_back(numbers(elements, static_cast<uint64_t>(d) + 1));
    Floats want(in[0]);
    for (int d = 1; d < n; ++d) {
      for (size_t i = 0; i < want.size(); ++i) want[i] += in[static_cast<size_t>(d)][i];
    }
    ThreadWorld world(n);
    CollectiveCall call;
    call.kind = CollectiveKind::kAllReduce;
    call.members = all(n);
    call.inner = elements;
    on_devices(world, [&](int d, Communicator& comm) {
      Floats out(in[static_cast<size_t>(d)].size(), -1), place(in[static_cast<size_t>(d)]);
      EXPECT_TRUE(comm.run(call, in[static_cast<size_t>(d)].data(), out.data()));
      EXPECT_EQ(out, want);
      EXPECT_TRUE(comm.run(call, place.data(), place.data()));  // in place
      EXPECT_EQ(place, want);
    });
  }
}

TEST_P(Groups, ReduceScatterAndAllGatherAlongAnInnerDim) {
  const int n = GetParam();
  const int64_t outer = 3, inner = 5;
  std::vector<Floats> in;
  for (int d = 0; d < n; ++d)
    in.push_back(numbers(outer * n * inner, static_cast<uint64_t>(d) + 9));
  ThreadWorld world(n);
  CollectiveCall scatter;
  scatter.kind = CollectiveKind::kReduceScatter;
  scatter.members = all(n);
  scatter.outer = outer;
  scatter.inner = inner;
  CollectiveCall gather = scatter;
  gather.kind = CollectiveKind::kAllGather;
  on_devices(world, [&](int d, Communicator& comm) {
    Floats mine(static_cast<size_t>(outer * inner)), whole(in[0].size());
    ASSERT_TRUE(comm.run(scatter, in[static_cast<size_t>(d)].data(), mine.data()));
    ASSERT_TRUE(comm.run(gather, mine.data(), whole.data()));
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t j = 0; j < n * inner; ++j) {
        const auto at = static_cast<size_t>(o * n * inner + j);
        float sum = in[0][at];
        for (int s = 1; s < n; ++s) sum += in[static_cast<size_t>(s)][at];
        ASSERT_EQ(whole[at], sum);
        if (j / inner == d) {
          ASSERT_EQ(mine[static_cast<size_t>(o * inner + j % inner)], sum);
        }
      }
    }
  });
}

// The global tensor [a, P, b, Q, c], first split along Q (or P), then along P (or Q).
TEST_P(Groups, AllToAllMovesTheSplit) {
  const int n = GetParam();
  for (const bool join_first : {false, true}) {
    AllToAll x{2, 3, 2, 4, 5, join_first};
    // dims of the global tensor, by whether `split` comes first
    const int64_t first = join_first ? x.join * n : x.split * n;
    const int64_t second = join_first ? x.split * n : x.join * n;
    const auto value = [&](int64_t a, int64_t p, int64_t b, int64_t q, int64_t c) {
      return static_cast<float>((((a * first + p) * x.b + b) * second + q) * x.c + c);
    };
    // a device's part: dim 1 from p0 on, dim 3 from q0 on
    const auto part = [&](int64_t p0, int64_t np, int64_t q0, int64_t nq) {
      Floats out;
      for (int64_t a = 0; a < x.a; ++a)
        for (int64_t p = 0; p < np; ++p)
          for (int64_t b = 0; b < x.b; ++b)
            for (int64_t q = 0; q < nq; ++q)
              for (int64_t c = 0; c < x.c; ++c) out.push_back(value(a, p0 + p, b, q0 + q, c));
      return out;
    };
    ThreadWorld world(n);
    CollectiveCall call;
    call.kind = CollectiveKind::kAllToAll;
    call.members = all(n);
    call.all_to_all = x;
    on_devices(world, [&](int d, Communicator& comm) {
      const Floats in =
          join_first ? part(d * x.join, x.join, 0, second) : part(0, first, d * x.join, x.join);
      const Floats want =
          join_first ? part(0, first, d * x.split, x.split) : part(d * x.split, x.split, 0, second);
      ASSERT_EQ(call.in_elements(), static_cast<int64_t>(in.size()));
      Floats out(want.size(), -1);
      ASSERT_TRUE(comm.run(call, in.data(), out.data()));
      EXPECT_EQ(out, want) << "join first: " << join_first << ", device " << d;
    });
  }
}

// A line of n * 3 elements of which each member has 3, and then those of its neighbour.
CollectiveCall to_neighbours(int n) {
  CollectiveCall call;
  call.kind = CollectiveKind::kPermute;
  call.members = all(n);
  call.parts.dims.push_back({3, 3, {}, {}});
  for (int i = 0; i < n; ++i) {
    const int from = (i + n - 1) % n;
    call.parts.dims[0].had.push_back({3 * i, 3 * i + 3});
    call.parts.dims[0].gets.push_back({3 * from, 3 * from + 3});
  }
  return call;
}

TEST_P(Groups, PermuteAndBarrier) {
  const int n = GetParam();
  ThreadWorld world(n);
  const CollectiveCall call = to_neighbours(n);
  CollectiveCall barrier;
  barrier.members = call.members;
  std::atomic<int> came{0};
  on_devices(world, [&](int d, Communicator& comm) {
    const Floats in(3, static_cast<float>(d));
    Floats out(3, -1);
    ASSERT_TRUE(comm.run(call, in.data(), out.data()));
    EXPECT_EQ(out, Floats(3, static_cast<float>((d + n - 1) % n)));
    ++came;
    ASSERT_TRUE(comm.run(barrier, nullptr, nullptr));
    EXPECT_EQ(came.load(), n);
  });
}

// Five dims, of which members cut two or three at places of their own: each gets what it asks for,
// wherever it lies, as often as it asks; beyond its stretches nothing is written.
TEST_P(Groups, PermuteOfAnyParts) {
  const int n = GetParam();
  const std::vector<int64_t> whole{2, 11, 3, 9, 10};
  const auto cut = [&](size_t dim, int member, int seed) {  // uneven, the last may have nothing
    const int64_t size = whole[dim], each = (size + n - 1) / n + seed % 2;
    const int64_t begin = std::min(size, each * member);
    return Parts::Range{begin, std::min(size, begin + each)};
  };
  for (int seed = 0; seed < 4; ++seed) {
    // the dim that splits before, those that split afterwards
    const size_t had = seed % 2 == 0 ? 1 : 4, gets = seed < 2 ? 3 : 1;
    CollectiveCall call;
    call.kind = CollectiveKind::kPermute;
    call.members = all(n);
    for (size_t d = 0; d < whole.size(); ++d) {
      Parts::Dim dim{0, 0, {}, {}};
      for (int m = 0; m < n; ++m) {
        dim.had.push_back(d == had ? cut(d, m, seed) : Parts::Range{0, whole[d]});
        dim.gets.push_back(d == gets ? cut(d, (m + 1) % n, seed)
                           : d == 2  ? Parts::Range{m % 3, 3}
                                     : Parts::Range{0, whole[d]});
        dim.in = std::max(dim.in, dim.had.back().end - dim.had.back().begin);
        dim.out = std::max(dim.out, dim.gets.back().end - dim.gets.back().begin);
      }
      call.parts.dims.push_back(std::move(dim));
    }
    // a member's buffer before or after, -1 beyond its stretches
    const auto buffer = [&](int member, bool after) {
      Floats out;
      std::vector<int64_t> at(whole.size(), 0);
      for (bool more = true; more;) {
        int64_t number = 0;
        bool mine = true;
        for (size_t d = 0; d < whole.size(); ++d) {
          const Parts::Dim& dim = call.parts.dims[d];
          const Parts::Range& r = (after ? dim.gets : dim.had)[static_cast<size_t>(member)];
          mine = mine && r.begin + at[d] < r.end;
          number = number * whole[d] + r.begin + at[d];
        }
        out.push_back(mine ? static_cast<float>(number) : -1.0F);
        size_t k = at.size();
        while (k > 0 &&
               ++at[k - 1] == (after ? call.parts.dims[k - 1].out : call.parts.dims[k - 1].in))
          at[--k] = 0;
        more = k > 0;
      }
      return out;
    };
    ThreadWorld world(n);
    on_devices(world, [&](int d, Communicator& comm) {
      const Floats in = buffer(d, false), want = buffer(d, true);
      ASSERT_EQ(call.in_elements(), static_cast<int64_t>(in.size()));
      ASSERT_EQ(call.out_elements(), static_cast<int64_t>(want.size()));
      Floats out(want.size(), -1);
      ASSERT_TRUE(comm.run(call, in.data(), out.data()));
      EXPECT_EQ(out, want) << "seed " << seed << ", device " << d;
      // and packed, as processes send it
      Floats sent(want.size(), -1);
      for (int from = 0; from < n; ++from) {
        const Piece p = piece(call, 0, from, d);
        Floats row(static_cast<size_t>(p.elements()));
        const Floats theirs = buffer(from, false);
        pack(call, p, theirs.data(), row.data());
        take_copy(call, p, {row.data(), true}, sent.data());
      }
      EXPECT_EQ(sent, want) << "seed " << seed << ", device " << d;
    });
  }
}

TEST(Collectives, MaximumMinimumAndOtherTypes) {
  ThreadWorld world(3);
  CollectiveCall call;
  call.kind = CollectiveKind::kAllReduce;
  call.members = all(3);
  call.inner = 2;
  const auto with = [&](ir::DType dtype, Reduction reduction) {
    CollectiveCall c = call;
    c.dtype = dtype;
    c.reduction = reduction;
    return c;
  };
  const CollectiveCall maximum = with(ir::DType::kF32, Reduction::kMax),
                       minimum = with(ir::DType::kI32, Reduction::kMin),
                       wraps = with(ir::DType::kI32, Reduction::kSum),
                       any = with(ir::DType::kBool, Reduction::kMax),
                       half = with(ir::DType::kBF16, Reduction::kSum);
  on_devices(world, [&](int d, Communicator& comm) {
    Floats f{static_cast<float>(d), d == 1 ? std::nanf("") : 1.0F};
    ASSERT_TRUE(comm.run(maximum, f.data(), f.data()));
    EXPECT_EQ(f[0], 2);
    EXPECT_TRUE(std::isnan(f[1]));  // NaN is never lost
    std::vector<int32_t> i{5 - d, d};
    ASSERT_TRUE(comm.run(minimum, i.data(), i.data()));
    EXPECT_EQ(i, (std::vector<int32_t>{3, 0}));
    std::vector<int32_t> w{d == 0 ? INT32_MAX : 1, 1};
    ASSERT_TRUE(comm.run(wraps, w.data(), w.data()));
    EXPECT_EQ(w, (std::vector<int32_t>{INT32_MIN + 1, 3}));
    std::vector<uint8_t> b{static_cast<uint8_t>(d == 2 ? 1 : 0), 0};
    ASSERT_TRUE(comm.run(any, b.data(), b.data()));
    EXPECT_EQ(b, (std::vector<uint8_t>{1, 0}));
    // 256 + 0.75 + 0.75 is 257.5: 258 rounded once, 256 when every sum is rounded
    std::vector<uint16_t> h{float_to_bf16(d == 0 ? 256.0F : 0.75F), float_to_bf16(0.5F)};
    ASSERT_TRUE(comm.run(half, h.data(), h.data()));
    EXPECT_EQ(bf16_to_float(h[0]), 258.0F);
    EXPECT_EQ(bf16_to_float(h[1]), 1.5F);
  });
}

// Two axes of a 2 x 3 mesh, several collectives in flight.
TEST(Collectives, GroupsOfAMesh) {
  ThreadWorld world(6);
  on_devices(world, [&](int d, Communicator& comm) {
    CollectiveCall row, column;
    row.kind = column.kind = CollectiveKind::kAllReduce;
    row.members = {d / 3 * 3, d / 3 * 3 + 1, d / 3 * 3 + 2};
    column.members = {d % 3, d % 3 + 3};
    for (int turn = 0; turn < 200; ++turn) {
      float x = static_cast<float>(d + turn), y = static_cast<float>(2 * d);
      const auto first = comm.start(row, &x, &x);
      const auto second = comm.start(column, &y, &y);
      ASSERT_TRUE(comm.wait(second));
      ASSERT_TRUE(comm.wait(first));
      ASSERT_EQ(x, static_cast<float>(3 * (d / 3 * 3) + 3 + 3 * turn));
      ASSERT_EQ(y, static_cast<float>(2 * (2 * (d % 3) + 3)));
    }
  });
}

TEST(Failures, ADeviceThatDoesNotComeIsNamed) {
  ThreadWorld world(3, 0.2);
  on_devices(world, [&](int d, Communicator& comm) {
    if (d == 1) return;
    CollectiveCall call;
    call.kind = CollectiveKind::kAllReduce;
    call.members = all(3);
    call.axis = "dp";
    call.label = "gradient of wte";
    call.inner = 4;
    Floats x(4);
    EXPECT_FALSE(comm.run(call, x.data(), x.data()));
    EXPECT_FALSE(comm.run(call, x.data(), x.data()));  // for good
  });
  const std::string why = world.failure().value_or("");
  EXPECT_NE(
      why.find("waited 0.2 s at all-reduce over `dp` (16 bytes of f32), number 0 of its group "
               "(gradient of wte): no sign of device 1"),
      std::string::npos)
      << why;
}

// One that is there is waited for longer, in the end in vain.
TEST(Failures, ADeviceThatIsLateIsWaitedFor) {
  for (const double patience : {60.0, 0.6}) {
    ThreadWorld world(2, 0.2, patience);
    on_devices(world, [&](int d, Communicator& comm) {
      if (d == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1000));
      CollectiveCall call;
      call.members = all(2);
      EXPECT_EQ(comm.run(call, nullptr, nullptr), patience > 1);
    });
    if (patience > 1) {
      EXPECT_EQ(world.failure(), std::nullopt);
    } else {
      EXPECT_NE(world.failure().value_or("").find(
                    "waited 0.6 s at barrier, number 0 of its group: device 1 is at work, but does "
                    "not come"),
                std::string::npos)
          << world.failure().value_or("");
    }
  }
}

// C7: 259 whatever the order, rounded once.
TEST(Collectives, SumsOfHalvesInAnyOrder) {
  for (int first = 0; first < 4; ++first) {
    ThreadWorld world(4);
    on_devices(world, [&](int d, Communicator& comm) {
      CollectiveCall call;
      call.kind = CollectiveKind::kAllReduce;
      call.members = all(4);
      call.dtype = ir::DType::kBF16;
      call.inner = 1;
      uint16_t x = float_to_bf16(d == first ? 256.0F : 1.0F);
      ASSERT_TRUE(comm.run(call, &x, &x));
      EXPECT_EQ(x, float_to_bf16(259.0F));
    });
  }
}

TEST(Failures, DisagreementNamesBothSides) {
  ThreadWorld world(2);
  on_devices(world, [&](int d, Communicator& comm) {
    CollectiveCall call;
    call.kind = d == 0 ? CollectiveKind::kAllReduce : CollectiveKind::kAllGather;
    call.members = all(2);
    call.axis = "tp";
    call.inner = 8;
    Floats x(8), y(16);
    EXPECT_FALSE(comm.run(call, x.data(), y.data()));
  });
  const std::string why = world.failure().value_or("");
  EXPECT_NE(why.find("all-reduce over `tp` (32 bytes of f32)"), std::string::npos) << why;
  EXPECT_NE(why.find("all-gather over `tp` (32 bytes of f32)"), std::string::npos) << why;
}

TEST(Failures, OneThatGivesUpWakesTheOthers) {
  ThreadWorld world(4, 60);
  const auto begin = std::chrono::steady_clock::now();
  on_devices(world, [&](int d, Communicator& comm) {
    if (d == 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      world.fail("device 3: the loss is not finite");
      return;
    }
    CollectiveCall barrier;
    barrier.members = all(4);
    EXPECT_FALSE(comm.run(barrier, nullptr, nullptr));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(world.failure(), "device 3: the loss is not finite");
}

TEST(Log, NotesCallsAndPlaysEqualMembers) {
  LogWorld world(4);
  Communicator comm(world, 2);
  CollectiveCall call;
  call.kind = CollectiveKind::kAllReduce;
  call.members = all(4);
  call.axis = "dp";
  call.label = "loss";
  call.inner = 5;
  Floats x{1, 2, 3, 4, 5}, out(5);
  ASSERT_TRUE(comm.run(call, x.data(), out.data()));
  EXPECT_EQ(out, (Floats{4, 8, 12, 16, 20}));
  call.kind = CollectiveKind::kAllGather;
  Floats whole(20);
  ASSERT_TRUE(comm.run(call, x.data(), whole.data()));
  EXPECT_EQ(whole[19], 5);
  EXPECT_EQ(world.log(),
            (std::vector<std::string>{"0 all-reduce over `dp` (20 bytes of f32): loss",
                                      "1 all-gather over `dp` (20 bytes of f32): loss"}));
}

}  // namespace
}  // namespace cad::backend
