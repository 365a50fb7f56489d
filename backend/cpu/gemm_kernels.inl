// backend/cpu/gemm_kernels.inl -- the code of one instruction set; included by gemm_kernels.cc with
// CAD_TARGET (a function attribute), CAD_LANES (floats in a vector), CAD_VECTORS (vectors in a
// tile's row) and CAD_ROWS (of a tile) defined, inside a namespace of its own.

constexpr int kLanes = CAD_LANES, kVectors = CAD_VECTORS, kRows = CAD_ROWS;
constexpr int kColumns = kLanes * kVectors;
typedef float Vec __attribute__((vector_size(CAD_LANES * 4)));
typedef float VecU __attribute__((vector_size(CAD_LANES * 4), aligned(4), may_alias));
typedef float Vec8 __attribute__((vector_size(32)));
typedef float Vec8U __attribute__((vector_size(32), aligned(4), may_alias));

// a: packed [depth][R], or with Rows a block whose row i starts at i * kColumns.
template <int R, bool Rows>
CAD_TARGET void tile_of(int64_t depth, const float* __restrict a, const float* __restrict b,
                        float* __restrict c, int64_t stride, bool add) {
  Vec sums[R][kVectors];
  for (int i = 0; i < R; ++i) {
    __builtin_prefetch(c + i * stride, 1);
    __builtin_prefetch(c + i * stride + kColumns - 1, 1);
    for (int j = 0; j < kVectors; ++j) sums[i][j] = Vec{};
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec right[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) right[j] = *reinterpret_cast<const VecU*>(b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const Vec left = a[Rows ? i * kColumns : i] - Vec{};
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) sums[i][j] += left * right[j];
    }
    a += Rows ? 1 : R;
    b += kColumns;
  }
  for (int i = 0; i < R; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      VecU* to = reinterpret_cast<VecU*>(c + i * stride + j * kLanes);
      *to = add ? Vec(*to) + sums[i][j] : sums[i][j];
    }
  }
}

template <int R, bool Rows>
CAD_TARGET void tile_up_to(int rows, int64_t depth, const float* a, const float* b, float* c,
                           int64_t stride, bool add) {
  if (rows == R) {
    tile_of<R, Rows>(depth, a, b, c, stride, add);
  } else if constexpr (R > 1) {
    tile_up_to<R - 1, Rows>(rows, depth, a, b, c, stride, add);
  }
}

template <class T>
CAD_TARGET inline float to_float(T x) {
  if constexpr (sizeof(T) == 4) {
    return x;
  } else {
    return __builtin_bit_cast(float, static_cast<uint32_t>(x) << 16);
  }
}

// Eight neighbours as floats.
template <class T>
CAD_TARGET inline void load8(const T* from, Vec8& to) {
  if constexpr (sizeof(T) == 4) {
    to = *reinterpret_cast<const Vec8U*>(from);
  } else {
    typedef uint16_t Half8 __attribute__((vector_size(16)));
    typedef uint16_t Half8U __attribute__((vector_size(16), aligned(2), may_alias));
    typedef uint32_t Word8 __attribute__((vector_size(32)));
    const Half8 half = *reinterpret_cast<const Half8U*>(from);
    to = __builtin_bit_cast(Vec8, __builtin_convertvector(half, Word8) << 16);
  }
}

// Eight rows of eight floats, transposed: dst[k * width] gets column k.
template <class T>
CAD_TARGET inline void transpose8(const T* const* rows, float* dst, int width) {
  Vec8 r[8], t[8];
  for (int i = 0; i < 8; ++i) load8(rows[i], r[i]);
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    t[2 * i + 1] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int h = 0; h < 2; ++h) {
    for (int i = 0; i < 2; ++i) {
      r[4 * h + 2 * i] = __builtin_shufflevector(t[4 * h + i], t[4 * h + i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      r[4 * h + 2 * i + 1] =
          __builtin_shufflevector(t[4 * h + i], t[4 * h + i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  // In order of k: where width < 8 a row's surplus lies on the following rows.
  for (int i = 0; i < 4; ++i) {
    *reinterpret_cast<Vec8U*>(dst + i * width) =
        __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
  }
  for (int i = 0; i < 4; ++i) {
    *reinterpret_cast<Vec8U*>(dst + (i + 4) * width) =
        __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// Lines are dense along k: src[lines[i] + k]. Count > 0: the count, known to the compiler.
template <class T, int Count>
CAD_TARGET inline void pack_dense_depth(float* dst, int width_, const T* src, int count_, const int64_t* lines,
                                        int64_t depth) {
  const int count = Count > 0 ? Count : count_, width = Count > 0 ? Count : width_;
  const T* rows[8];
  const int64_t full = depth / 8 * 8;
  // The next panel's lines, at the same place: too many streams for the hardware to foresee.
  const int64_t next = count > 1 ? count * (lines[1] - lines[0]) : 0;
  for (int64_t k = 0; k < full; k += 8) {
    if (k % 16 == 0) {
      for (int i = 0; i < count; ++i) __builtin_prefetch(src + lines[i] + next + k);
    }
    // Last group first: its surplus columns spill into the next row and are then overwritten.
#pragma GCC unroll 4
    for (int first = (count - 1) / 8 * 8; first >= 0; first -= 8) {
      for (int i = 0; i < 8; ++i) {
        rows[i] = src + lines[first + i < count ? first + i : count - 1] + k;
      }
      transpose8(rows, dst + k * width + first, width);
    }
  }
  for (int64_t k = full; k < depth; ++k) {
    for (int i = 0; i < count; ++i) dst[k * width + i] = to_float(src[lines[i] + k]);
  }
  for (int64_t k = 0; count < width && k < depth; ++k) {
    for (int i = count; i < width; ++i) dst[k * width + i] = 0;
  }
}

// The lines are neighbours: src[lines[0] + i + steps[k]]. Count as above.
template <class T, int Count>
CAD_TARGET inline void pack_dense_lines(float* dst, int width_, const T* src, int count_, int64_t depth,
                                        const int64_t* steps) {
  const int count = Count > 0 ? Count : count_, width = Count > 0 ? Count : width_;
  for (int64_t k = 0; k < depth; ++k) {
    const T* from = src + steps[k];
    float* to = dst + k * width;
    if (Count >= 8) {
      Vec8 eight;
#pragma GCC unroll 8
      for (int i = 0; i + 8 <= Count; i += 8) {
        load8(from + i, eight);
        *reinterpret_cast<Vec8U*>(to + i) = eight;
      }
      load8(from + Count - 8, eight);
      *reinterpret_cast<Vec8U*>(to + Count - 8) = eight;
    } else {
      for (int i = 0; i < count; ++i) to[i] = to_float(from[i]);
      for (int i = count; i < width; ++i) to[i] = 0;
    }
  }
}

template <class T>
CAD_TARGET void pack_type(float* __restrict dst, int width, const T* __restrict src, int count,
                          const int64_t* lines, int64_t depth, const int64_t* steps) {
  bool dense_lines = true, dense_steps = true;
  for (int i = 1; i < count; ++i) dense_lines &= lines[i] == lines[0] + i;
  if (dense_lines) {
    if (count == kRows && width == kRows) {
      pack_dense_lines<T, kRows>(dst, width, src + lines[0], count, depth, steps);
    } else if (count == kColumns && width == kColumns) {
      pack_dense_lines<T, kColumns>(dst, width, src + lines[0], count, depth, steps);
    } else {
      pack_dense_lines<T, 0>(dst, width, src + lines[0], count, depth, steps);
    }
    return;
  }
  for (int64_t k = 1; k < depth && dense_steps; ++k) dense_steps = steps[k] == steps[0] + k;
  if (dense_steps && depth > 0) {
    if (count == kRows && width == kRows) {
      pack_dense_depth<T, kRows>(dst, width, src + steps[0], count, lines, depth);
    } else if (count == kColumns && width == kColumns) {
      pack_dense_depth<T, kColumns>(dst, width, src + steps[0], count, lines, depth);
    } else {
      pack_dense_depth<T, 0>(dst, width, src + steps[0], count, lines, depth);
    }
    return;
  }
  for (int64_t k = 0; k < depth; ++k) {
    const T* from = src + steps[k];
    for (int i = 0; i < count; ++i) dst[k * width + i] = to_float(from[lines[i]]);
    for (int i = count; i < width; ++i) dst[k * width + i] = 0;
  }
}

CAD_TARGET void pack(float* dst, int width, const void* src, ir::DType type, int count,
                     const int64_t* lines, int64_t depth, const int64_t* steps) {
  if (type == ir::DType::kF32) {
    pack_type(dst, width, static_cast<const float*>(src), count, lines, depth, steps);
  } else if (type == ir::DType::kBF16) {
    pack_type(dst, width, static_cast<const uint16_t*>(src), count, lines, depth, steps);
  } else {
    pack_half(dst, width, static_cast<const uint16_t*>(src), count, lines, depth, steps);
  }
}

constexpr GemmKernels kKernels = {kRows, kColumns, tile_up_to<kRows, false>, tile_up_to<kRows, true>, pack,
                                  CAD_NAME};
