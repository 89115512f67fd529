// SPDX-License-Identifier: Apache-2.0
// Weighted counts on CUDA. A warp takes a block of a row's entries, with a table of sums of its own in shared memory,
// and leaves the table as partial sums by bin; these are folded by two small launches.
//
//   path        entries of a row   what happens
//   one block   up to 4096         a warp a row, which writes the result itself; of short rows several, one behind the
//                                  other as one row with as many times the bins
//   one group   up to 262,144      a warp a block; a thread a bin adds the blocks' sums
//   groups      any                the same, a thread a bin of a group; then a thread a bin adds the groups' sums
//
// A step is 32 entries, a lane each. Which of them name the same bin is found out by writing: each lane puts its number
// into the bin's tag, and who reads another one there is not alone. Where all are alone, as in most steps of many bins,
// each adds its own weight; else the first lane of each bin adds the others' weights behind its own.
#include <cstdint>
#include <type_traits>

#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "core/cuda_warp.cuh"
#include "core/integer_math.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/bincount/launch.h"
#include "ops/bincount/math.h"

namespace baracuda::bincount {
namespace {

constexpr int kWarp = 32;
// Warps of a block of threads, as far as their tables fit into what a launch may have without asking.
constexpr int kMostWarps = 8;
constexpr size_t kSharedBytes = 48 * 1024;
// Blocks of threads that are begun before one gets a second warp, so that little work is spread over a whole GPU.
constexpr int64_t kSpread = 256;
// Bins of rows that share a table, so that many tables fit; and how many warps there are before rows share one.
constexpr int32_t kBinsOfShared = 1024;
constexpr int64_t kFewWarps = 2048;
// Steps that are on their way while as many are worked on.
constexpr int kSteps = 4, kBatch = kSteps * kWarp;
constexpr int kFoldThreads = 128;

// Of a warp's sums and, behind them, the tags, a byte each.
template <typename S>
BARACUDA_HD constexpr size_t table_bytes(int32_t num_bins) {
  return (static_cast<size_t>(num_bins) * (sizeof(S) + 1) + 15) / 16 * 16;
}
static_assert(table_bytes<uint64_t>(kMostBins) <= kSharedBytes);

// What a lane has of some steps, as it stands in memory.
template <typename T, typename I>
struct Batch {
  I entries[kSteps];
  T weights[kSteps];

  // Of `count` entries those from `at` on; a lane beyond has one that names no bin.
  __device__ __forceinline__ void load(const I* input, const T* weights_of, int64_t at, int count) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int64_t i = at + step * kWarp;
      entries[step] = i < count ? input[i] : I(-1);
      weights[step] = i < count ? weights_of[i] : T{};
    }
  }
};

// A warp's table.
template <typename S>
struct Table {
  S* sums;
  volatile uint8_t* tags;  // read behind the barrier that others wrote before
  int lane;
  int bits;  // of a bin's number

  // Adds the terms of lanes of which some name the same bin, in the order of the lanes; `bin` is -1 for none.
  __device__ __forceinline__ void add_shared(int32_t bin, S term) const {
    uint32_t equal = __ballot_sync(kFullWarp, bin >= 0);
    for (int bit = 0; bit < bits; ++bit) {
      const uint32_t mine = static_cast<uint32_t>(bin) >> bit & 1u;
      equal &= __ballot_sync(kFullWarp, mine != 0) ^ (mine - 1u);
    }
    const uint32_t self = 1u << lane;
    const bool leads = bin >= 0 && (equal & (self - 1u)) == 0;
    uint32_t others = leads ? equal & ~self : 0u;
    S sum = leads ? sums[bin] + term : S(0);
    while (__any_sync(kFullWarp, others != 0)) {
      const S other = __shfl_sync(kFullWarp, term, others != 0 ? __ffs(static_cast<int>(others)) - 1 : lane);
      if (others != 0) sum += other;
      others &= others - 1u;
    }
    if (leads) sums[bin] = sum;
  }

  // A step: every lane of the warp calls it.
  __device__ __forceinline__ void add(int32_t bin, S term) const {
    if (bin >= 0) tags[bin] = static_cast<uint8_t>(lane);
    __syncwarp();
    const bool is_alone = bin < 0 || tags[bin] == lane;
    // Between this and the next step's tags; that one's first barrier stands between the sums of both.
    __syncwarp();
    if (__all_sync(kFullWarp, is_alone)) {
      if (bin >= 0) sums[bin] += term;
    } else {
      add_shared(bin, term);
    }
  }
};

// Every lane of the warp calls it. Which of two is larger does not depend on who comes first.
__device__ __forceinline__ void raise_extent(int64_t* extent, int64_t own, bool has_entries) {
  auto largest = static_cast<unsigned long long>(own);  // -1 is larger than all others
  for (int other = kWarp / 2; other > 0; other /= 2) {
    const unsigned long long others = __shfl_xor_sync(kFullWarp, largest, other);
    largest = others > largest ? others : largest;
  }
  if (has_entries && threadIdx.x % kWarp == 0) atomicMax(reinterpret_cast<unsigned long long*>(extent), largest);
}

// What a warp takes at a time.
enum class Task {
  kBlock,  // a block of a row, which leaves partial sums
  kRow,    // a row of one block, which leaves the result
  kRows,   // several short ones, whose bins stand one behind the other in one table
};

// How the rows are shared out among tables.
struct Share {
  int32_t rows;  // of a task
  int32_t bins;  // of a table
  int bits;      // of the number of a table's bin
  Divider by_n;  // a place among the entries of a task's rows, which are at most a block, answers the row
};

template <typename T, typename I, Task kTask>
__global__ void __launch_bounds__(kMostWarps* kWarp)
    add_blocks(const __grid_constant__ Problem p, const __grid_constant__ Buffers<T, I> b,
               const __grid_constant__ Share share, Sum<T>* const __grid_constant__ sums) {
  using S = Sum<T>;
  wait_for_kernel_before();
  Rank<I> largest = 0;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  unsigned char* const shared = dynamic_shared<unsigned char>() + warp * table_bytes<S>(share.bins);
  const Table<S> table{reinterpret_cast<S*>(shared), shared + share.bins * sizeof(S), lane, share.bits};
  const int64_t blocks = kTask == Task::kBlock ? p.blocks : 1;
  const int64_t tasks = kTask == Task::kRows ? ceil_div(p.rows, share.rows) : p.rows * blocks;
  for (int64_t task = static_cast<int64_t>(blockIdx.x) * warps + warp; task < tasks;
       task += static_cast<int64_t>(gridDim.x) * warps) {
    for (int32_t bin = lane; bin < share.bins; bin += kWarp) table.sums[bin] = S(0);
    __syncwarp();
    int64_t row = task, first = 0;
    if constexpr (kTask == Task::kBlock) row = task / blocks, first = (task - row * blocks) * kBlock;
    if constexpr (kTask == Task::kRows) row = task * share.rows;
    const int rows = kTask == Task::kRows ? static_cast<int>(at_most(share.rows, p.rows - row)) : 1;
    const int count = static_cast<int>(at_most(kBlock, rows * p.n - first));
    const I* const input = b.input + row * p.n + first;
    const T* const weights = b.weights + row * p.n + first;
    Batch<T, I> batch;
    batch.load(input, weights, lane, count);
    for (int64_t at = 0; at < count; at += kBatch) {
      int32_t bins[kSteps];
      S terms[kSteps];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const I entry = batch.entries[step];
        bins[step] = names_bin(entry, p.num_bins) ? static_cast<int32_t>(entry) : -1;
        if constexpr (kTask == Task::kRows) {
          const uint32_t place = static_cast<uint32_t>(at) + step * kWarp + lane;
          if (bins[step] >= 0) bins[step] += static_cast<int32_t>(share.by_n.divide(place)) * p.num_bins;
        }
        terms[step] = term_of(batch.weights[step]);
      }
      if (b.extent != nullptr) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          const Rank<I> rank = static_cast<Rank<I>>(batch.entries[step]);
          if (at + step * kWarp + lane < count && rank > largest) largest = rank;
        }
      }
      batch.load(input, weights, at + kBatch + lane, count);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (at + step * kWarp < count) table.add(bins[step], terms[step]);
      }
    }
    __syncwarp();
    for (int32_t bin = lane; bin < rows * p.num_bins; bin += kWarp) {
      if constexpr (kTask == Task::kBlock) {
        sums[task * p.num_bins + bin] = table.sums[bin];
      } else {
        b.output[row * p.num_bins + bin] = result_of<T>(table.sums[bin]);
      }
    }
    __syncwarp();
  }
  if (b.extent != nullptr) raise_extent(b.extent, extent_of<I>(largest), p.n > 0);
}

__global__ void clear_extent(int64_t* extent) {
  let_kernel_after_start();
  *extent = 0;
}

// Adds up to `per_sum` of the `parts` of each row, which are sums by bin, in their order: to sums by bin again, or to
// the result.
template <typename T, bool kIsResult>
__global__ void __launch_bounds__(kFoldThreads)
    fold_parts(const __grid_constant__ Problem p, const __grid_constant__ int64_t parts,
               const __grid_constant__ int64_t per_sum, const Sum<T>* const __grid_constant__ sums,
               std::conditional_t<kIsResult, T, Sum<T>>* const __grid_constant__ folded) {
  using S = Sum<T>;
  wait_for_kernel_before();
  const int64_t of_row = ceil_div(parts, per_sum), count = p.rows * of_row * p.num_bins;
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    const int64_t sum_of = i / p.num_bins, row = sum_of / of_row, first = (sum_of - row * of_row) * per_sum;
    const int64_t added = at_most(per_sum, parts - first);
    const S* const of_bin = sums + (row * parts + first) * p.num_bins + (i - sum_of * p.num_bins);
    S sum = S(0);
#pragma unroll 16
    for (int64_t part = 0; part < added; ++part) sum += of_bin[part * p.num_bins];
    if constexpr (kIsResult) {
      folded[i] = result_of<T>(sum);
    } else {
      folded[i] = sum;
    }
  }
}

// The scratch: each block's sums by bin and, of several groups, each group's.
template <typename S>
struct Scratch {
  WorkspaceLayout layout;
  S* blocks;
  S* groups;

  Scratch(const Problem& p, void* workspace)
      : blocks(workspace_array<S>(workspace, layout.reserve<S>(p.rows * p.blocks * p.num_bins))),
        groups(workspace_array<S>(workspace, layout.reserve<S>(p.groups > 1 ? p.rows * p.groups * p.num_bins : 0))) {}
};

int bits_of(int32_t bins) {
  int bits = 0;
  while (bins > 1 << bits) ++bits;
  return bits;
}

template <typename T, typename I>
struct BlocksPath {
  const Request<Problem, Buffers<T, I>>& call;

  size_t bytes() const { return Scratch<Sum<T>>(call.p, nullptr).layout.bytes(); }

  template <Task kTask>
  Status enqueue_blocks(Sum<T>* sums, int32_t rows = 1) const {
    const Problem& p = call.p;
    const Share share{rows, rows * p.num_bins, bits_of(rows * p.num_bins), Divider(p.n > 0 && rows > 1 ? p.n : 1)};
    const size_t bytes = table_bytes<Sum<T>>(at_least(share.bins, 1));  // without bins there may be an extent
    const int64_t tasks = kTask == Task::kBlock ? p.rows * p.blocks : ceil_div(p.rows, rows);
    int64_t warps = at_most(static_cast<int64_t>(kSharedBytes / bytes), kMostWarps);
    warps = at_most(warps, ceil_div(tasks, kSpread));
    const auto launch = [&](auto how) {
      return how("bincount kernel", add_blocks<T, I, kTask>, blocks_for(tasks, warps),
                 static_cast<uint32_t>(warps) * kWarp, static_cast<size_t>(warps) * bytes, call.stream, p, call.b,
                 share, sums);
    };
    if (!p.wants_extent) return launch([](auto... given) { return launch_kernel(given...); });
    BARACUDA_RETURN_IF_FAILED(
        launch_kernel("bincount extent kernel", clear_extent, 1, 1, 0, call.stream, call.b.extent));
    return launch([](auto... given) { return launch_early(given...); });
  }

  template <bool kIsResult, class To>
  Status enqueue_fold(int64_t parts, int64_t per_sum, const Sum<T>* sums, To* folded) const {
    const int64_t count = call.p.rows * ceil_div(parts, per_sum) * call.p.num_bins;
    return launch_early("bincount fold kernel", fold_parts<T, kIsResult>, blocks_for(count, kFoldThreads), kFoldThreads,
                        0, call.stream, call.p, parts, per_sum, sums, folded);
  }
};

template <typename T, typename I>
struct OneBlockPath : BlocksPath<T, I> {
  static const char* name() { return "one block"; }
  bool can() const { return this->call.p.blocks <= 1; }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    const Problem& p = this->call.p;
    int64_t rows = at_most(ceil_div(p.rows, kFewWarps), kBinsOfShared / at_least(p.num_bins, 1));
    if (p.n > 0) rows = at_most(rows, kBlock / p.n);
    if (rows > 1) return this->template enqueue_blocks<Task::kRows>(nullptr, static_cast<int32_t>(rows));
    return this->template enqueue_blocks<Task::kRow>(nullptr);
  }
};

template <typename T, typename I>
struct OneGroupPath : BlocksPath<T, I> {
  static const char* name() { return "one group"; }
  bool can() const { return this->call.p.groups <= 1; }
  Status enqueue() const {
    const Scratch<Sum<T>> scratch(this->call.p, this->call.workspace);
    BARACUDA_RETURN_IF_FAILED(this->template enqueue_blocks<Task::kBlock>(scratch.blocks));
    return this->template enqueue_fold<true>(this->call.p.blocks, kBlocksOfGroup, scratch.blocks, this->call.b.output);
  }
};

template <typename T, typename I>
struct GroupsPath : BlocksPath<T, I> {
  static const char* name() { return "groups"; }
  Status enqueue() const {
    const Problem& p = this->call.p;
    const Scratch<Sum<T>> scratch(p, this->call.workspace);
    BARACUDA_RETURN_IF_FAILED(this->template enqueue_blocks<Task::kBlock>(scratch.blocks));
    BARACUDA_RETURN_IF_FAILED(
        this->template enqueue_fold<false>(p.blocks, kBlocksOfGroup, scratch.blocks, scratch.groups));
    return this->template enqueue_fold<true>(p.groups, p.groups, scratch.groups, this->call.b.output);
  }
};

template <typename T, typename I>
using EveryPath = Paths<OneBlockPath<T, I>, OneGroupPath<T, I>, GroupsPath<T, I>>;

template <typename T, typename I>
Status run(const Problem& p, const Buffers<T, I>& b, void* workspace, Stream stream) {
  return EveryPath<T, I>::enqueue(Request<Problem, Buffers<T, I>>{p, b, workspace, stream});
}

template <typename T, typename I>
size_t bytes_of(const Problem& p, const Buffers<T, I>*) {
  const Buffers<T, I> none{};
  return EveryPath<T, I>::choose(Request<Problem, Buffers<T, I>>{p, none, nullptr},
                                 [](const auto& path) { return path.bytes(); });
}

}  // namespace

BARACUDA_BINCOUNT_BUFFERS(BARACUDA_PROVIDE_LAUNCH)
BARACUDA_BINCOUNT_BUFFERS(BARACUDA_PROVIDE_WORKSPACE_SIZE)

}  // namespace baracuda::bincount
