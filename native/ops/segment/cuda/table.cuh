// SPDX-License-Identifier: Apache-2.0
// Selections whose output is small enough for shared memory: every block streams rows past a table of its own, and
// the tables are joined by integer maxima, whose order cannot matter. No sort: narrow rows are accessed in order.
#pragma once

#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "core/cuda_zeros.cuh"
#include "core/workspace.h"
#include "ops/segment/cuda/columns.cuh"

namespace baracuda::segment {
namespace {

// One block of 1024 threads a multiprocessor: each block's table is filled once and its winners soon are rare.
constexpr int kTableThreads = 1024;
// Rows that a thread loads before it looks at the first: 64 KiB in flight a block with 16-byte accesses.
constexpr int kTableRows = 4;
// A candidate and a value each: 48 KiB, what every device gives without opt-in.
constexpr int64_t kTableEntries = 4096;
// The gradient's pass has nothing to share, so its blocks are small; they take whole rows, a thread at least a column.
constexpr int kGradientThreads = 256;
constexpr int32_t kTableColumns = kGradientThreads;

// A candidate holds so much of a value.
constexpr size_t kCandidateBytes = 4;

inline bool fits_table(const Problem& p) { return p.d <= kTableColumns && p.segment_numel <= kTableEntries; }

using Candidate = unsigned long long;  // what CUDA's 64-bit atomics take

// A value of at most 32 bits and its row as one integer, for selections in any order: the largest wins, 0 is below all.
template <class Order>
__device__ __forceinline__ Candidate candidate(float value, int32_t row) {
  const uint32_t bits = bits_as<uint32_t>(value);
  const int32_t magnitude = static_cast<int32_t>(bits & 0x7fffffffu);
  const int32_t number = Order::ordered(bits >> 31 != 0 ? -magnitude : magnitude);
  const uint32_t ordered = static_cast<uint32_t>(magnitude > 0x7f800000 ? INT32_MAX : number) ^ 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | ~static_cast<uint32_t>(row);
}
// The row of a candidate; of 0 it is -1, which is no row.
__device__ __forceinline__ int32_t row_of(Candidate candidate) {
  return static_cast<int32_t>(~static_cast<uint32_t>(candidate));
}

// How a block's threads lie over rows: `lanes` of them share a row, and a block takes `rows` rows at once. Threads that
// make no whole row are idle.
struct RowShape {
  int32_t lanes, rows;
  RowShape(int32_t d, int columns, int threads) : lanes(d / columns), rows(threads / lanes) {}
  BARACUDA_HD int64_t batch() const { return static_cast<int64_t>(rows) * kTableRows; }
  // Loads read beyond the end the last row again: without a condition they are issued together.
  static __device__ int64_t clamp(int64_t row, int32_t n) { return row < n ? row : n - 1; }
  // The first row of this thread, n for an idle one.
  __device__ int64_t first_row(int32_t n) const {
    const int32_t row = threadIdx.x / lanes;
    return row < rows ? blockIdx.x * batch() + row : n;
  }
};

template <class Order, typename T, int V>
__global__ void __launch_bounds__(kTableThreads, 1)
    select_in_table(Problem p, RowShape shape, const T* input, Index ids, Candidate* winners) {
  unsigned char* const shared_bytes = dynamic_shared<unsigned char>();
  const int32_t entries = static_cast<int32_t>(p.segment_numel);
  Candidate* table = reinterpret_cast<Candidate*>(shared_bytes);
  // A value of the table, perhaps not the latest: what it beats needs no closer look.
  volatile float* seen = reinterpret_cast<float*>(table + entries);
  for (int32_t i = threadIdx.x; i < entries; i += kTableThreads) {
    table[i] = 0;
    seen[i] = Order::ordered(1) > 0 ? Limits<float>::lowest() : Limits<float>::highest();
  }
  __syncthreads();
  const int32_t column = threadIdx.x % shape.lanes * V;
  for (int64_t first = shape.first_row(p.n); first < p.n; first += gridDim.x * shape.batch()) {
    int32_t keys[kTableRows];
    Words<T, V> values[kTableRows];
#pragma unroll
    for (int u = 0; u < kTableRows; ++u) {
      const int64_t row = shape.clamp(first + u * shape.rows, p.n);
      keys[u] = ids.key(row);
      values[u] = load_words<V>(input + row * p.d + column);
    }
#pragma unroll
    for (int u = 0; u < kTableRows; ++u) {
      if (first + u * shape.rows >= p.n || keys[u] == p.num_segments) continue;
      const Columns<T, V> row_values = bits_as<Columns<T, V>>(values[u]);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const int32_t entry = keys[u] * p.d + column + k;
        const float value = widen(row_values.at[k]), held = seen[entry];
        if (Order::wins(held, value)) continue;
        const Candidate mine = candidate<Order>(value, static_cast<int32_t>(first + u * shape.rows));
        if (mine <= *static_cast<volatile Candidate*>(table + entry)) continue;
        atomicMax(table + entry, mine);
        seen[entry] = value;
      }
    }
  }
  __syncthreads();
  for (int32_t i = threadIdx.x; i < entries; i += kTableThreads) {
    if (table[i] != 0) atomicMax(winners + i, table[i]);
  }
}

template <typename W>
__global__ void __launch_bounds__(kTableThreads)
    output_of_table(Problem p, const W* input, const Candidate* winners, W of_no_rows, W* output) {
  for (int64_t i = grid_thread(); i < p.segment_numel; i += grid_threads()) {
    const int32_t row = row_of(winners[i]);
    output[i] = row >= 0 ? input[static_cast<int64_t>(row) * p.d + i % p.d] : of_no_rows;
  }
}

// The gradient's pass reads the rows alone: half the bytes, and L1 is what limits it.
__global__ void __launch_bounds__(kTableThreads)
    rows_of_table(int64_t entries, const Candidate* winners, int32_t* rows) {
  for (int64_t i = grid_thread(); i < entries; i += grid_threads()) rows[i] = row_of(winners[i]);
}

template <typename W, int V>
__global__ void __launch_bounds__(kGradientThreads, 4)
    gradient_of_table(Problem p, RowShape shape, const W* grad_output, Index ids, const int32_t* winners,
                      W* grad_input) {
  const int32_t column = threadIdx.x % shape.lanes * V;
  for (int64_t first = shape.first_row(p.n); first < p.n; first += gridDim.x * shape.batch()) {
    int32_t keys[kTableRows];
    Columns<W, V> gradient[kTableRows];
#pragma unroll
    for (int u = 0; u < kTableRows; ++u) keys[u] = ids.key(shape.clamp(first + u * shape.rows, p.n));
#pragma unroll
    for (int u = 0; u < kTableRows; ++u) {
      gradient[u] = Columns<W, V>{};
      if (keys[u] == p.num_segments) continue;
      const int32_t row = static_cast<int32_t>(first + u * shape.rows), entry = keys[u] * p.d + column;
      const Columns<int32_t, V> rows = load<V>(winners + entry);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (rows.at[k] == row) gradient[u].at[k] = grad_output[entry + k];
      }
    }
#pragma unroll
    for (int u = 0; u < kTableRows; ++u) {
      const int64_t row = first + u * shape.rows;
      if (row < p.n) store<V>(grad_input + row * p.d + column, gradient[u]);
    }
  }
}

// The scratch of one call.
struct TableScratch {
  WorkspaceLayout layout;
  Candidate* winners;  // [num_segments][d]
  int32_t* rows;       // [num_segments][d], for a gradient

  TableScratch(const Problem& p, bool with_rows, void* workspace)
      : winners(workspace_array<Candidate>(workspace, layout.reserve<Candidate>(p.segment_numel))),
        rows(workspace_array<int32_t>(workspace, layout.reserve<int32_t>(with_rows ? p.segment_numel : 0))) {}
};

template <class Order, int V, typename T>
Status enqueue_winners(const Problem& p, const T* input, const Index& ids, Candidate* winners, Stream stream) {
  const RowShape shape(p.d, V, kTableThreads);
  const uint32_t batches = blocks_for(p.n, shape.batch());
  DeviceTraits device{};
  BARACUDA_RETURN_IF_FAILED(device_traits(&device));
  const uint32_t most = static_cast<uint32_t>(device.multiprocessors);
  BARACUDA_RETURN_IF_FAILED(enqueue_zeros(winners, static_cast<size_t>(p.segment_numel) * sizeof(Candidate), stream));
  return launch_kernel("segment table kernel", select_in_table<Order, T, V>, batches < most ? batches : most,
                       kTableThreads, static_cast<size_t>(p.segment_numel) * (sizeof(Candidate) + sizeof(float)),
                       stream, p, shape, input, ids, winners);
}

template <int V, typename W>
Status enqueue_gradient(const Problem& p, const W* grad_output, const Index& ids, const TableScratch& scratch,
                        W* grad_input, Stream stream) {
  BARACUDA_RETURN_IF_FAILED(launch_kernel("segment row kernel", rows_of_table,
                                          blocks_for(p.segment_numel, kTableThreads), kTableThreads, 0, stream,
                                          p.segment_numel, scratch.winners, scratch.rows));
  const RowShape shape(p.d, V, kGradientThreads);
  return launch_kernel("segment gradient kernel", gradient_of_table<W, V>, blocks_for(p.n, shape.batch()),
                       kGradientThreads, 0, stream, p, shape, grad_output, ids, scratch.rows, grad_input);
}

// The rules that the table serves.
template <class Tag>
struct TableRule {
  static constexpr bool kServes = false;
};
template <class TheOrder>
struct Served {
  static constexpr bool kServes = true;
  using Order = TheOrder;
};
template <typename T>
struct TableRule<rule::Max<T>> : Served<Largest> {};
template <typename T>
struct TableRule<rule::Min<T>> : Served<Smallest> {};
template <typename T>
struct TableRule<rule::MaxGradient<T>> : Served<Largest> {};
template <typename T>
struct TableRule<rule::MinGradient<T>> : Served<Smallest> {};

// The table is the faster path where it fits; wider values do not fit a candidate, and its order is that of floats.
// Like the workspace, the choice follows from the scalars alone.
template <class Tag>
constexpr bool may_take_table() {
  using T = typename Tag::Element;
  return TableRule<Tag>::kServes && sizeof(T) <= kCandidateBytes && !std::is_integral_v<T>;
}
template <class Tag>
bool takes_table(const Problem& p) {
  return may_take_table<Tag>() && p.form == Form::kUnsorted && p.n > 0 && fits_table(p);
}

template <class Tag>
Status enqueue_table(const Problem& p, const Buffers<Tag>& b, void* workspace, Stream stream) {
  using T = typename Tag::Element;
  using Order = typename TableRule<Tag>::Order;
  constexpr bool kReduces = Rule<Tag>::kKind == Kind::kReduce;
  const TableScratch scratch(p, !kReduces, workspace);
  const Index ids = index_of(p, b);
  const bool four = columns_per_access(p.d, sizeof(T), addresses_of(b), 4) == 4;
  BARACUDA_RETURN_IF_FAILED((four ? enqueue_winners<Order, 4>(p, b.rows[0], ids, scratch.winners, stream)
                                  : enqueue_winners<Order, 1>(p, b.rows[0], ids, scratch.winners, stream)));
  if constexpr (kReduces) {
    return launch_kernel("segment output kernel", output_of_table<Bits<T>>, blocks_for(p.segment_numel, kTableThreads),
                         kTableThreads, 0, stream, p, bits_of(b.rows[0]), scratch.winners,
                         bits_as<Bits<T>>(b.of_no_rows), bits_of(b.result));
  } else {
    return four ? enqueue_gradient<4>(p, bits_of(b.segments[0]), ids, scratch, bits_of(b.result), stream)
                : enqueue_gradient<1>(p, bits_of(b.segments[0]), ids, scratch, bits_of(b.result), stream);
  }
}

}  // namespace
}  // namespace baracuda::segment
