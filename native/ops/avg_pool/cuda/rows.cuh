// SPDX-License-Identifier: Apache-2.0
// Either direction on CUDA by rows: a few lanes own a row of the destination, or a piece of it. They first sum each
// column of the sources along d and h, which all elements of the row share, then each element adds its columns.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "ops/avg_pool/cuda/divisors.cuh"
#include "ops/avg_pool/cuda/elements.cuh"
#include "ops/avg_pool/launch.h"
#include "ops/avg_pool/math.h"

namespace baracuda::avg_pool {
namespace {

constexpr int kRowThreads = 256;
// Rows that a team of lanes does one after the other, with the same tables.
constexpr int kRowsOfTeam = 4;
// Columns of sources that a team keeps.
constexpr int32_t kMostColumns = 512;

template <typename T>
constexpr int kLanes = 16 / sizeof(T);

template <typename T>
struct alignas(16) Vector {
  T lanes[kLanes<T>];
};

// How rows are cut and dealt out. A piece is `elements` of a row, the last one of a row has what is left.
struct RowShape {
  int32_t elements, pieces;
  int32_t columns;  // at most as many sources along w has a piece, with those that only fill 16 bytes
  int32_t lanes;    // of a team: a power of two, at most a warp
  bool source_vectors, destination_vectors;

  BARACUDA_HD int32_t teams() const { return kRowThreads / lanes; }
};

// At least as many columns of sources as `elements` consecutive elements have.
template <bool kBackward>
int64_t columns_of(const PoolAxis& axis, int64_t elements) {
  const int64_t sources = source_extent<kBackward>(axis), places = destination_extent<kBackward>(axis);
  int64_t most = 0;
  if (axis.is_adaptive()) {
    most = ceil_div(elements * sources, places) + 1;
  } else {
    most = kBackward ? (elements - 1 + axis.kernel - 1) / axis.stride + 2 : (elements - 1) * axis.stride + axis.kernel;
  }
  return at_most(most, sources);
}

template <class Buffers>
RowShape row_shape(const Problem& p, const Buffers& b) {
  using T = typename Buffers::Element;
  constexpr bool kBackward = Buffers::kBackward;
  constexpr int32_t kVector = kLanes<T>;
  const PoolAxis& axis = p.axes[2];
  const int64_t extent = destination_extent<kBackward>(axis);
  RowShape shape{};
  shape.source_vectors =
      source_extent<kBackward>(axis) % kVector == 0 && reinterpret_cast<uintptr_t>(b.source) % 16 == 0;
  shape.destination_vectors = extent % kVector == 0 && reinterpret_cast<uintptr_t>(b.destination) % 16 == 0;
  int64_t elements = at_most(extent, kMostColumns);
  while (elements > 1 && columns_of<kBackward>(axis, elements) + 2 * kVector > kMostColumns) {
    elements -= ceil_div(elements, 8);
  }
  shape.destination_vectors = shape.destination_vectors && elements >= kVector;
  if (shape.destination_vectors) elements = elements / kVector * kVector;
  const int64_t columns = columns_of<kBackward>(axis, elements) + (shape.source_vectors ? 2 * kVector : 0);
  shape.elements = static_cast<int32_t>(elements);
  shape.pieces = static_cast<int32_t>(ceil_div(extent, elements));
  shape.columns = static_cast<int32_t>(columns);
  const int64_t steps = ceil_div(columns, shape.source_vectors ? kVector : 1);
  const int64_t stores = ceil_div(elements, shape.destination_vectors ? kVector : 1);
  shape.lanes = 4;
  while (shape.lanes < 32 && shape.lanes < at_least(steps, stores)) shape.lanes *= 2;
  return shape;
}

template <class Buffers>
struct RowCall {
  Pooling pooling;
  Buffers buffers;
  CommonDivisor<Compute<typename Buffers::Element>> by;
  Divider pieces, h, d;  // of a block's number; of a slab, of a plane
  RowShape shape;
  uint32_t rows;
};

// What a block knows of its piece: an element's columns, from the piece's first, and what its windows count along w.
struct RowTables {
  uint32_t* ranges;  // [elements]: where they begin, above where they end
  int32_t* counts;   // of each window, where divisors differ

  static constexpr int kBits = 16;
};

template <typename C>
int64_t row_bytes(const RowShape& shape, bool is_common) {
  const int64_t counts = is_common ? 0 : at_least(shape.columns, shape.elements);
  return int64_t{shape.teams()} * shape.columns * static_cast<int64_t>(sizeof(C)) +
         (shape.elements + counts) * static_cast<int64_t>(sizeof(int32_t));
}

template <typename C, class Buffers>
__device__ __forceinline__ C share_of(const RowCall<Buffers>& call, C term, int64_t count) {
  if (call.by.is_power) return term * call.by.reciprocal;
  if (call.by.is_common) return term / call.by.divisor;
  return term / static_cast<C>(count);
}

// The sums of kCount neighbouring columns of sources, from `column` of the row on, over the rows of a box.
template <int kCount, class Buffers>
__device__ __forceinline__ void sum_columns(const RowCall<Buffers>& call, const typename Buffers::Element* plane,
                                            const PoolRange& ds, const PoolRange& hs, int32_t column,
                                            const int32_t* counts, Compute<typename Buffers::Element>* sums) {
  using T = typename Buffers::Element;
  using C = Compute<T>;
  constexpr bool kBackward = Buffers::kBackward;
  struct alignas(kCount * sizeof(T)) Some {
    T items[kCount];
  };
  const Pooling& p = call.pooling;
  const uint32_t rows = static_cast<uint32_t>(source_extent<kBackward>(p.axes[1]));
  const uint32_t width = static_cast<uint32_t>(source_extent<kBackward>(p.axes[2]));
  C columns[kCount] = {};
  const bool counts_differ = kBackward && !call.by.is_common;
  for (int32_t h = hs.first; h < hs.end; ++h) {
    const int64_t count_h = counts_differ ? count_of(p.axes[1], p.count_padding, h) : 1;
    C depths[kCount] = {};
#pragma unroll 2
    for (int32_t d = ds.first; d < ds.end; ++d) {
      const T* const from = plane + (static_cast<uint32_t>(d) * rows + static_cast<uint32_t>(h)) * width + column;
      const Some some = *reinterpret_cast<const Some*>(from);
      const int64_t count = counts_differ ? count_h * count_of(p.axes[0], p.count_padding, d) : 1;
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        C term = widen(some.items[k]);
        if constexpr (kBackward) term = share_of(call, term, counts_differ ? count * counts[k] : 1);
        depths[k] += term;
      }
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) columns[k] += depths[k];
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) sums[k] = columns[k];
}

template <class Buffers, bool kSourceVectors, bool kDestinationVectors>
__global__ void __launch_bounds__(kRowThreads) add_rows(const __grid_constant__ RowCall<Buffers> call) {
  using T = typename Buffers::Element;
  using C = Compute<T>;
  constexpr bool kBackward = Buffers::kBackward;
  constexpr int kTogether = kSourceVectors ? kLanes<T> : 1, kStored = kDestinationVectors ? kLanes<T> : 1;
  const Pooling& p = call.pooling;
  const RowShape& shape = call.shape;
  const int t = static_cast<int>(threadIdx.x), team = t / shape.lanes, lane = t % shape.lanes;
  const uint32_t batch = call.pieces.divide(blockIdx.x);
  const int32_t begin = static_cast<int32_t>(blockIdx.x - batch * call.pieces.divisor) * shape.elements;
  const int32_t left = destination_extent<kBackward>(p.axes[2]) - begin;
  const int32_t elements = left < shape.elements ? left : shape.elements;
  // The piece's columns of sources.
  int32_t base = sources_of<kBackward>(p.axes[2], begin).first;
  const int32_t last = sources_of<kBackward>(p.axes[2], begin + elements - 1).end;
  if (base > last) base = last;
  base -= base % kTogether;
  const int32_t columns = last > base ? groups_of(last - base, kTogether) * kTogether : 0;

  C* const all_sums = dynamic_shared<C>();
  C* const sums = all_sums + team * shape.columns;
  const RowTables tables{reinterpret_cast<uint32_t*>(all_sums + shape.teams() * shape.columns),
                         reinterpret_cast<int32_t*>(all_sums + shape.teams() * shape.columns) + shape.elements};
  for (int32_t i = t; i < elements; i += kRowThreads) {
    const PoolRange range = sources_of<kBackward>(p.axes[2], begin + i);
    const bool is_empty = range.size() <= 0;
    tables.ranges[i] = is_empty ? 0
                                : static_cast<uint32_t>(range.first - base) << RowTables::kBits |
                                      static_cast<uint32_t>(range.end - base);
    if (!kBackward && !call.by.is_common) {
      tables.counts[i] = static_cast<int32_t>(count_of(p.axes[2], p.count_padding, begin + i));
    }
  }
  if (kBackward && !call.by.is_common) {
    for (int32_t i = t; i < columns; i += kRowThreads) {
      tables.counts[i] = static_cast<int32_t>(count_of(p.axes[2], p.count_padding, base + i));
    }
  }
  __syncthreads();
  for (int k = 0; k < kRowsOfTeam; ++k) {
    const uint32_t row = (batch * kRowsOfTeam + static_cast<uint32_t>(k)) * static_cast<uint32_t>(shape.teams()) +
                         static_cast<uint32_t>(team);
    const bool has_row = row < call.rows;
    PoolRange ds{}, hs{};
    int64_t count = 1;
    if (has_row) {
      const uint32_t slab = call.h.divide(row), plane = call.d.divide(slab);
      const int32_t d = static_cast<int32_t>(slab - plane * call.d.divisor);
      const int32_t h = static_cast<int32_t>(row - slab * call.h.divisor);
      ds = sources_of<kBackward>(p.axes[0], d), hs = sources_of<kBackward>(p.axes[1], h);
      if (!kBackward && !call.by.is_common) {
        count = count_of(p.axes[0], p.count_padding, d) * count_of(p.axes[1], p.count_padding, h);
      }
      const uint32_t of_plane = static_cast<uint32_t>(source_extent<kBackward>(p.axes[0])) *
                                static_cast<uint32_t>(source_extent<kBackward>(p.axes[1])) *
                                static_cast<uint32_t>(source_extent<kBackward>(p.axes[2]));
      const T* const source = call.buffers.source + plane * of_plane;
      for (int32_t i = lane * kTogether; i < columns; i += shape.lanes * kTogether) {
        sum_columns<kTogether>(call, source, ds, hs, base + i, tables.counts + i, sums + i);
      }
    }
    __syncwarp();
    if (has_row) {
      const bool is_box_empty = ds.size() <= 0 || hs.size() <= 0;
      T* const destination = call.buffers.destination +
                             row * static_cast<uint32_t>(destination_extent<kBackward>(p.axes[2])) + begin;
      for (int32_t first = lane * kStored; first < elements; first += shape.lanes * kStored) {
        T found[kStored];
#pragma unroll
        for (int j = 0; j < kStored; ++j) {
          const uint32_t range = tables.ranges[first + j];
          const int32_t end = static_cast<int32_t>(range & ((1u << RowTables::kBits) - 1));
          C total = 0;
          for (int32_t i = static_cast<int32_t>(range >> RowTables::kBits); i < end; ++i) total += sums[i];
          if constexpr (!kBackward) {
            // Nothing is not divided, by 0 at that.
            if (range != 0 && !is_box_empty) {
              total = share_of(call, total, call.by.is_common ? 1 : count * tables.counts[first + j]);
            }
          }
          found[j] = narrow<T>(total);
        }
        if constexpr (kDestinationVectors) {
          Vector<T> vector;
#pragma unroll
          for (int j = 0; j < kStored; ++j) vector.lanes[j] = found[j];
          *reinterpret_cast<Vector<T>*>(destination + first) = vector;
        } else {
          destination[first] = found[0];
        }
      }
    }
    __syncwarp();
  }
}

// Whether rows can be done so: lists are short and indices of 32 bits, which the caller knows, there is a row, and what
// a window counts along w is an int32.
template <class Buffers>
bool has_rows(const Problem& p) {
  return destination_numel<Buffers::kBackward>(p) > 0 && source_numel<Buffers::kBackward>(p) > 0;
}

template <class Buffers>
Status enqueue_rows(const Problem& p, const Buffers& b, Stream stream) {
  using C = Compute<typename Buffers::Element>;
  constexpr bool kBackward = Buffers::kBackward;
  const RowShape shape = row_shape(p, b);
  const int64_t rows = destination_numel<kBackward>(p) / destination_extent<kBackward>(p.axes[2]);
  const RowCall<Buffers> call{Pooling(p),
                              b,
                              CommonDivisor<C>(p),
                              Divider(shape.pieces),
                              Divider(destination_extent<kBackward>(p.axes[1])),
                              Divider(destination_extent<kBackward>(p.axes[0])),
                              shape,
                              static_cast<uint32_t>(rows)};
  const int64_t blocks = ceil_div(rows, int64_t{shape.teams()} * kRowsOfTeam) * shape.pieces;
  const size_t bytes = static_cast<size_t>(row_bytes<C>(shape, call.by.is_common));
  const auto launch = [&](auto* kernel) {
    return launch_kernel("avg_pool row kernel", kernel, static_cast<uint32_t>(blocks), kRowThreads, bytes, stream,
                         call);
  };
  if (shape.source_vectors) {
    return shape.destination_vectors ? launch(add_rows<Buffers, true, true>) : launch(add_rows<Buffers, true, false>);
  }
  return shape.destination_vectors ? launch(add_rows<Buffers, false, true>) : launch(add_rows<Buffers, false, false>);
}

}  // namespace
}  // namespace baracuda::avg_pool
