// SPDX-License-Identifier: Apache-2.0
// Histograms on CUDA. Counts are integers, whose sum no order changes.
//
//   path         calls                                what happens
//   blocks       bins whose counts fit 48 KiB         a block counts in shared memory, in several copies where there is
//                                                     room, so that lanes of a warp do not wait for one another
//   bins         all                                  elements are counted in the workspace
#include "core/cuda_launch.cuh"
#include "core/cuda_paths.cuh"
#include "core/cuda_shared.cuh"
#include "core/cuda_warp.cuh"
#include "core/cuda_zeros.cuh"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/histc/launch.h"
#include "ops/histc/math.h"

namespace baracuda::histc {
namespace {

constexpr int kThreads = 512;
constexpr int64_t kSharedBytes = 48 * 1024;
// Blocks of a multiprocessor, and elements for which one is worth its zeros and sums.
constexpr int64_t kBlocks = 3;
constexpr int64_t kBlockElements = 8192;
// 16 bytes of input, and how many of these a thread has under way.
template <typename T>
constexpr int kLanes = 16 / static_cast<int>(sizeof(T));
constexpr int kAhead = 2;

// The data's range; zeros stand for none. Keys of numbers ascend with them.
struct alignas(16) RangeState {
  unsigned long long largest;  // key
  unsigned long long least;    // the complement of one
  uint32_t has_others;         // whether an element is not finite
};

__device__ __forceinline__ uint32_t key_of(float x) {
  const uint32_t bits = bits_as<uint32_t>(x);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ uint64_t key_of(double x) {
  const uint64_t bits = bits_as<uint64_t>(x);
  return bits >> 63 != 0 ? ~bits : bits | 0x8000000000000000u;
}
__device__ __forceinline__ void number_of(uint64_t key, float* x) {
  const uint32_t bits = static_cast<uint32_t>(key);
  *x = bits_as<float>(bits >> 31 != 0 ? bits & 0x7fffffffu : ~bits);
}
__device__ __forceinline__ void number_of(uint64_t key, double* x) {
  *x = bits_as<double>(key >> 63 != 0 ? key & 0x7fffffffffffffffu : ~key);
}

template <typename C>
__device__ __forceinline__ Bins<C> bins_of(const Problem& p, const RangeState& state) {
  if (!p.has_datas_range || p.numel == 0) return given_bins<C>(p);
  C least, largest;
  number_of(~state.least, &least);
  number_of(state.largest, &largest);
  Bins<C> bins(least, largest, p.bins);
  if (state.has_others != 0) bins.is_finite_range = false;
  return bins;
}

// Calls use(x) for the elements of this thread, in vectors where the input begins with one.
template <typename T, class Use>
__device__ __forceinline__ void for_elements(const T* input, int64_t numel, bool has_vectors, const Use& use) {
  struct alignas(16) Vector {
    T lanes[kLanes<T>];
  };
  const int64_t vectors = has_vectors ? numel / kLanes<T> : 0, step = grid_threads();
  for (int64_t i = grid_thread(); i < vectors; i += kAhead * step) {
    Vector ahead[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (i + j * step < vectors) ahead[j] = reinterpret_cast<const Vector*>(input)[i + j * step];
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (i + j * step < vectors) {
#pragma unroll
        for (int lane = 0; lane < kLanes<T>; ++lane) use(widen(ahead[j].lanes[lane]));
      }
    }
  }
  for (int64_t i = vectors * kLanes<T> + grid_thread(); i < numel; i += step) use(widen(input[i]));
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    find_range(const __grid_constant__ Problem p, const __grid_constant__ Buffers<T> b, RangeState* state,
               bool has_vectors) {
  using C = Compute<T>;
  __shared__ unsigned long long largest_of_all, least_of_all;
  __shared__ uint32_t has_others_of_all;
  if (threadIdx.x == 0) largest_of_all = 0, least_of_all = 0, has_others_of_all = 0;
  __syncthreads();
  unsigned long long largest = 0, least = 0;
  bool has_others = false;
  for_elements(b.input, p.numel, has_vectors, [&](C x) {
    const unsigned long long key = key_of(x);
    largest = key > largest ? key : largest;
    least = ~key > least ? ~key : least;
    has_others = has_others || !is_finite(x);
  });
  for (int other = 16; other > 0; other /= 2) {
    const unsigned long long others_largest = __shfl_xor_sync(kFullWarp, largest, other);
    const unsigned long long others_least = __shfl_xor_sync(kFullWarp, least, other);
    largest = others_largest > largest ? others_largest : largest;
    least = others_least > least ? others_least : least;
  }
  if (threadIdx.x % 32 == 0) {
    atomicMax(&largest_of_all, largest);
    atomicMax(&least_of_all, least);
  }
  if (has_others) atomicOr(&has_others_of_all, 1u);
  __syncthreads();
  wait_for_kernel_before();
  if (threadIdx.x == 0) {
    atomicMax(&state->largest, largest_of_all);
    atomicMax(&state->least, least_of_all);
    if (has_others_of_all != 0) atomicOr(&state->has_others, 1u);
  }
}

// Bin by bin the copies of its count.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    count_in_blocks(const __grid_constant__ Problem p, const __grid_constant__ Buffers<T> b, const RangeState* state,
                    unsigned long long* counts, uint32_t copies, bool has_vectors) {
  using C = Compute<T>;
  // A block has fewer than 2^32 elements: no memory holds so many for all.
  uint32_t* const own = dynamic_shared<uint32_t>();
  const uint32_t bins = static_cast<uint32_t>(p.bins);
  for (uint32_t i = threadIdx.x; i < bins * copies; i += kThreads) own[i] = 0;
  __syncthreads();
  wait_for_kernel_before();
  const Bins<C> ranged = bins_of<C>(p, *state);
  const uint32_t copy = threadIdx.x & (copies - 1);
  for_elements(b.input, p.numel, has_vectors, [&](C x) {
    if (!ranged.has(x)) return;
    atomicAdd(own + static_cast<uint32_t>(ranged.bin_at(ranged.place_of(x))) * copies + copy, 1u);
  });
  __syncthreads();
  for (uint32_t bin = threadIdx.x; bin < bins; bin += kThreads) {
    uint32_t sum = 0;
    // Neighbouring threads begin at neighbouring copies, which are in different banks.
    for (uint32_t i = 0; i < copies; ++i) sum += own[bin * copies + ((i + threadIdx.x) & (copies - 1))];
    if (sum > 0) atomicAdd(counts + bin, static_cast<unsigned long long>(sum));
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    count_in_bins(const __grid_constant__ Problem p, const __grid_constant__ Buffers<T> b, const RangeState* state,
                  unsigned long long* counts, bool has_vectors) {
  using C = Compute<T>;
  wait_for_kernel_before();
  const Bins<C> ranged = bins_of<C>(p, *state);
  for_elements(b.input, p.numel, has_vectors, [&](C x) {
    if (ranged.has(x)) atomicAdd(counts + ranged.bin_at(ranged.place_of(x)), 1ull);
  });
}

template <typename T>
__global__ void __launch_bounds__(256)
    round_counts(const __grid_constant__ Problem p, const __grid_constant__ Buffers<T> b,
                 const unsigned long long* counts) {
  wait_for_kernel_before();
  for (int64_t bin = grid_thread(); bin < p.bins; bin += grid_threads()) b.output[bin] = rounded_count<T>(counts[bin]);
}

struct Scratch {
  WorkspaceLayout layout;
  RangeState* state;
  unsigned long long* counts;

  Scratch(const Problem& p, void* workspace) {
    state = workspace_array<RangeState>(workspace, layout.reserve<RangeState>(1));
    counts = workspace_array<unsigned long long>(workspace, layout.reserve<unsigned long long>(p.bins));
  }
};

template <typename T>
struct Call : DeviceRequest<Problem, Buffers<T>> {
  bool has_vectors() const { return reinterpret_cast<uintptr_t>(this->b.input) % 16 == 0; }
  uint32_t blocks() const {
    const int64_t blocks = ceil_div(this->p.numel, kBlockElements);
    return static_cast<uint32_t>(at_least(1, at_most(blocks, this->device.multiprocessors * kBlocks)));
  }
  template <class Count>
  Status enqueue_around(const Count& count) const {
    const Scratch scratch(this->p, this->workspace);
    BARACUDA_RETURN_IF_FAILED(enqueue_zeros_early(this->workspace, scratch.layout.bytes(), this->stream));
    if (this->p.has_datas_range && this->p.numel > 0) {
      BARACUDA_RETURN_IF_FAILED(launch_early("range kernel", find_range<T>, blocks(), kThreads, 0, this->stream,
                                             this->p, this->b, scratch.state, has_vectors()));
    }
    BARACUDA_RETURN_IF_FAILED(count(scratch));
    return launch_early("rounding kernel", round_counts<T>, blocks_for(this->p.bins, 256), 256, 0, this->stream,
                        this->p, this->b, scratch.counts);
  }
};

template <typename T>
struct BlocksPath {
  static const char* name() { return "blocks"; }
  const Call<T>& call;
  static constexpr int64_t kMostCounts = kSharedBytes / static_cast<int64_t>(sizeof(uint32_t));
  bool can() const { return call.p.bins <= kMostCounts; }
  Status enqueue() const {
    uint32_t copies = 1;
    while (copies < 32 && call.p.bins * 2 * copies <= kMostCounts) copies *= 2;
    return call.enqueue_around([&](const Scratch& scratch) {
      return launch_early("count kernel", count_in_blocks<T>, call.blocks(), kThreads,
                          static_cast<size_t>(call.p.bins) * copies * sizeof(uint32_t), call.stream, call.p, call.b,
                          scratch.state, scratch.counts, copies, call.has_vectors());
    });
  }
};

template <typename T>
struct BinsPath {
  static const char* name() { return "bins"; }
  const Call<T>& call;
  Status enqueue() const {
    return call.enqueue_around([&](const Scratch& scratch) {
      return launch_early("count kernel", count_in_bins<T>, call.blocks(), kThreads, 0, call.stream, call.p, call.b,
                          scratch.state, scratch.counts, call.has_vectors());
    });
  }
};

template <typename T>
Status run(const Problem& p, const Buffers<T>& b, void* workspace, Stream stream) {
  return with_device(Request<Problem, Buffers<T>>{p, b, workspace, stream}, [](const auto& request) {
    return Paths<BlocksPath<T>, BinsPath<T>>::enqueue(Call<T>{request});
  });
}

template <typename T>
size_t bytes_of(const Problem& p, const Buffers<T>*) {
  return Scratch(p, nullptr).layout.bytes();
}

}  // namespace

#define BARACUDA_PROVIDE(T)                    \
  BARACUDA_PROVIDE_LAUNCH(Problem, Buffers<T>) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, Buffers<T>)
BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::histc
