// SPDX-License-Identifier: Apache-2.0
// Selections whose output is small enough for shared memory: every block streams rows past a table of its own, and
// the tables are joined by integer maxima, whose order cannot matter. No sort: narrow rows are accessed in order.
#pragma once

#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "core/workspace.h"
#include "ops/segment/cuda_columns.cuh"

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

// A candidate (math.h) holds so much of a value.
constexpr size_t kCandidateBytes = 4;

inline bool fits_table(const Problem& p) { return p.d <= kTableColumns && p.output_numel <= kTableEntries; }

using Candidate = unsigned long long;  // what CUDA's 64-bit atomics take

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

template <class Rule, typename T, int V>
__global__ void __launch_bounds__(kTableThreads, 1)
    select_in_table(Problem p, RowShape shape, const T* input, Ids ids, Candidate* winners) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int32_t entries = static_cast<int32_t>(p.output_numel);
  Candidate* table = reinterpret_cast<Candidate*>(shared_bytes);
  // A value of the table, perhaps not the latest: what it beats needs no closer look.
  volatile float* seen = reinterpret_cast<float*>(table + entries);
  for (int32_t i = threadIdx.x; i < entries; i += kTableThreads) {
    table[i] = 0;
    seen[i] = of_no_rows<float>(Rule{});
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
        if (wins(Rule{}, held, value)) continue;
        const Candidate mine = candidate(Rule{}, value, static_cast<int32_t>(first + u * shape.rows));
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
  for (int64_t i = grid_thread(); i < p.output_numel; i += grid_threads()) {
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
    gradient_of_table(Problem p, RowShape shape, const W* grad_output, Ids ids, const int32_t* winners,
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
struct TablePlan {
  WorkspaceLayout layout;
  Candidate* winners;  // [num_segments][d]
  int32_t* rows;       // the same, for a gradient

  TablePlan(const Problem& p, bool with_rows, void* workspace)
      : winners(workspace_array<Candidate>(workspace, layout.reserve<Candidate>(p.output_numel))),
        rows(workspace_array<int32_t>(workspace, layout.reserve<int32_t>(with_rows ? p.output_numel : 0))) {}
};

template <class Rule, int V, typename T>
Status enqueue_winners(const Problem& p, const T* input, const Ids& ids, Candidate* winners, Stream stream) {
  const RowShape shape(p.d, V, kTableThreads);
  const uint32_t batches = blocks_for(p.n, shape.batch());
  DeviceTraits device{};
  BARACUDA_RETURN_IF_FAILED(device_traits(&device));
  const uint32_t most = static_cast<uint32_t>(device.multiprocessors);
  BARACUDA_RETURN_IF_FAILED(enqueue_zeros(winners, static_cast<size_t>(p.output_numel) * sizeof(Candidate), stream));
  return launch_kernel("segment table kernel", select_in_table<Rule, T, V>, batches < most ? batches : most,
                       kTableThreads, static_cast<size_t>(p.output_numel) * (sizeof(Candidate) + sizeof(float)), stream,
                       p, shape, input, ids, winners);
}

template <int V, typename W>
Status enqueue_gradient(const Problem& p, const W* grad_output, const Ids& ids, const TablePlan& plan, W* grad_input,
                        Stream stream) {
  BARACUDA_RETURN_IF_FAILED(launch_kernel("segment row kernel", rows_of_table,
                                          blocks_for(p.output_numel, kTableThreads), kTableThreads, 0, stream,
                                          p.output_numel, plan.winners, plan.rows));
  const RowShape shape(p.d, V, kGradientThreads);
  return launch_kernel("segment gradient kernel", gradient_of_table<W, V>, blocks_for(p.n, shape.batch()),
                       kGradientThreads, 0, stream, p, shape, grad_output, ids, plan.rows, grad_input);
}

template <class Rule, typename T, typename I>
Status enqueue_table(const Problem& p, const SelectBuffers<Rule, T, I>& b, void* workspace, Stream stream) {
  const TablePlan plan(p, false, workspace);
  const Ids ids(b.segment_ids, p.num_segments);
  const bool four = columns_per_access(p.d, sizeof(T), addresses_of(b), 4) == 4;
  BARACUDA_RETURN_IF_FAILED((four ? enqueue_winners<Rule, 4>(p, b.input, ids, plan.winners, stream)
                                  : enqueue_winners<Rule, 1>(p, b.input, ids, plan.winners, stream)));
  return launch_kernel("segment output kernel", output_of_table<Bits<T>>, blocks_for(p.output_numel, kTableThreads),
                       kTableThreads, 0, stream, p, bits_of(b.input), plan.winners,
                       bits_as<Bits<T>>(of_no_rows<T>(Rule{})), bits_of(b.output));
}

template <class Rule, typename T, typename I>
Status enqueue_table(const Problem& p, const SelectBackwardBuffers<Rule, T, I>& b, void* workspace, Stream stream) {
  const TablePlan plan(p, true, workspace);
  const Ids ids(b.segment_ids, p.num_segments);
  const bool four = columns_per_access(p.d, sizeof(T), addresses_of(b), 4) == 4;
  BARACUDA_RETURN_IF_FAILED((four ? enqueue_winners<Rule, 4>(p, b.input, ids, plan.winners, stream)
                                  : enqueue_winners<Rule, 1>(p, b.input, ids, plan.winners, stream)));
  return four ? enqueue_gradient<4>(p, bits_of(b.grad_output), ids, plan, bits_of(b.grad_input), stream)
              : enqueue_gradient<1>(p, bits_of(b.grad_output), ids, plan, bits_of(b.grad_input), stream);
}

}  // namespace
}  // namespace baracuda::segment
