// backend/cpu/row_kernels.inl -- RowKernels for one instruction set; included after gemm_kernels.inl.

typedef int32_t VecI __attribute__((vector_size(CAD_LANES * 4)));
typedef uint32_t VecW __attribute__((vector_size(CAD_LANES * 4)));

CAD_TARGET inline Vec load(const float* p) { return *reinterpret_cast<const VecU*>(p); }
CAD_TARGET inline void store(float* p, Vec x) { *reinterpret_cast<VecU*>(p) = x; }

// exp to about 1e-7 relative: 2^n times a polynomial on [-ln2/2, ln2/2] (Cephes' coefficients). Below -87
// it is 0, so that masked scores vanish.
CAD_TARGET inline Vec exp_of(Vec x) {
  const VecI below = x < -87.0F;
  x = x > 88.0F ? Vec{} + 88.0F : x;
  const Vec shifted = x * 1.44269504F + 12582912.0F;
  const Vec n = shifted - 12582912.0F;
  Vec r = x - n * 0.693359375F;
  r = r + n * 2.12194440e-4F;
  Vec y = r * 1.9875691500e-4F + 1.3981999507e-3F;
  y = y * r + 8.3334519073e-3F;
  y = y * r + 4.1665795894e-2F;
  y = y * r + 1.6666665459e-1F;
  y = y * r + 5.0000001201e-1F;
  y = y * (r * r) + r + 1.0F;
  const VecI power = __builtin_bit_cast(VecI, shifted) << 23;
  const VecI bits = __builtin_bit_cast(VecI, y) + power;
  return below ? Vec{} : __builtin_bit_cast(Vec, bits);
}

CAD_TARGET void maximum(const float* block, int64_t rows, float* most) {
  Vec m[kVectors];
  for (int j = 0; j < kVectors; ++j) m[j] = load(most + j * kLanes);
  for (int64_t i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      const Vec x = load(block + i * kColumns + j * kLanes);
      m[j] = x > m[j] ? x : m[j];
    }
  }
  for (int j = 0; j < kVectors; ++j) store(most + j * kLanes, m[j]);
}

CAD_TARGET void exponentials(float* block, int64_t rows, const float* most, float* total) {
  Vec m[kVectors], t[kVectors];
  for (int j = 0; j < kVectors; ++j) {
    m[j] = load(most + j * kLanes);
    t[j] = load(total + j * kLanes);
  }
  for (int64_t i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      float* at = block + i * kColumns + j * kLanes;
      const Vec e = exp_of(load(at) - m[j]);
      t[j] += e;
      store(at, e);
    }
  }
  for (int j = 0; j < kVectors; ++j) store(total + j * kLanes, t[j]);
}

// One round of Philox4x32 on a vector of counters (see ir/random.h).
CAD_TARGET inline void multiply_wide(VecW a, uint32_t b, VecW& high, VecW& low) {
  typedef uint64_t VecL __attribute__((vector_size(CAD_LANES * 4)));
  const VecL wide = __builtin_bit_cast(VecL, a);
  const VecL factor = VecL{} + b;
  const VecL even = CAD_MULTIPLY(wide, factor), odd = CAD_MULTIPLY(wide >> 32, factor);
  const VecL low_part = (even & 0xFFFFFFFFULL) | (odd << 32);
  const VecL high_part = (even >> 32) | (odd & 0xFFFFFFFF00000000ULL);
  low = __builtin_bit_cast(VecW, low_part);
  high = __builtin_bit_cast(VecW, high_part);
}

// drop.kept where kept, 0 where dropped, for kLanes elements from `element` on.
CAD_TARGET inline Vec keep_of(const DropStream& drop, uint64_t element) {
  VecW c0 = {}, c1 = {};
  for (int j = 0; j < kLanes; ++j) {
    const uint64_t e = element + static_cast<uint64_t>(j) * drop.lane_stride;
    c0[j] = static_cast<uint32_t>(e);
    c1[j] = static_cast<uint32_t>(e >> 32);
  }
  VecW c2 = VecW{} + static_cast<uint32_t>(drop.step), c3 = VecW{} + static_cast<uint32_t>(drop.step >> 32);
  uint32_t k0 = static_cast<uint32_t>(drop.key), k1 = static_cast<uint32_t>(drop.key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    VecW high0, low0, high1, low1;
    multiply_wide(c0, 0xD2511F53U, high0, low0);
    multiply_wide(c2, 0xCD9E8D57U, high1, low1);
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  const VecI whole = __builtin_bit_cast(VecI, c0) >> 8 & 0xFFFFFF;
  const Vec uniform = __builtin_convertvector(whole, Vec) * 0x1.0p-24F;
  return uniform >= drop.threshold ? Vec{} + drop.kept : Vec{};
}

CAD_TARGET void gradient(float* p, float* dp, int64_t rows, const float* lse, const float* delta,
                         const DropStream* drop, uint64_t row_stride) {
  Vec l[kVectors], d[kVectors];
  for (int j = 0; j < kVectors; ++j) {
    l[j] = load(lse + j * kLanes);
    d[j] = load(delta + j * kLanes);
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      float* at = p + i * kColumns + j * kLanes;
      float* grad = dp + i * kColumns + j * kLanes;
      const Vec e = exp_of(load(at) - l[j]);
      if (drop != nullptr) {
        const Vec keep = keep_of(*drop,
                                 drop->element + static_cast<uint64_t>(i) * row_stride +
                                     static_cast<uint64_t>(j * kLanes) * drop->lane_stride);
        store(grad, e * (load(grad) * keep - d[j]));
        store(at, e * keep);
      } else {
        store(grad, e * (load(grad) - d[j]));
        store(at, e);
      }
    }
  }
}

CAD_TARGET void dropout(float* block, int64_t rows, const DropStream& drop, uint64_t row_stride) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      float* at = block + i * kColumns + j * kLanes;
      store(at, load(at) * keep_of(drop,
                                   drop.element + static_cast<uint64_t>(i) * row_stride +
                                       static_cast<uint64_t>(j * kLanes) * drop.lane_stride));
    }
  }
}

CAD_TARGET void dot(const float* x, const float* y, int64_t rows, float* sums) {
  Vec s[kVectors];
  for (int j = 0; j < kVectors; ++j) s[j] = Vec{};
  for (int64_t i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      s[j] += load(x + i * kColumns + j * kLanes) * load(y + i * kColumns + j * kLanes);
    }
  }
  for (int j = 0; j < kVectors; ++j) store(sums + j * kLanes, s[j]);
}

CAD_TARGET void scale(float* block, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i) block[i] *= factor;
}

constexpr RowKernels kRowKernels = {maximum, exponentials, gradient, dropout, dot, scale};
