// SPDX-License-Identifier: Apache-2.0
// affine_grid on CUDA. Forward: one thread an element of the grid. Backward: one thread a chunk's sum for one element
// of theta, then one warp adds an element's chunks in order.
//
//   forward path    calls
//   narrow index    32 bits can count the grid's elements
//   wide index      all
//
//   backward path   calls
//   chunks          all
#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/paths.h"
#include "ops/affine_grid/launch.h"
#include "ops/affine_grid/math.h"

namespace baracuda::affine_grid {
namespace {

constexpr int kForwardThreads = 256;

// `Index` counts the grid's elements; 32-bit divisions take a fifth of the time of 64-bit ones.
template <typename Index, typename T, int kAxes>
__global__ void __launch_bounds__(kForwardThreads) write_grid(Problem p, ForwardBuffers<T, kAxes> b) {
  const Index width = static_cast<Index>(p.output_w), height = static_cast<Index>(p.output_h);
  for (int64_t element = grid_thread(); element < p.grid_numel; element += grid_threads()) {
    const Index sample = static_cast<Index>(element) / kAxes;
    const Index row = sample / width;
    Index map = row / height;
    T base[kAxes];
    base[0] = base_coordinate<T>(sample % width, p.output_w, p.aligns_corners);
    base[1] = base_coordinate<T>(row % height, p.output_h, p.aligns_corners);
    if constexpr (kAxes == 3) {
      const Index depth = static_cast<Index>(p.output_d);
      base[2] = base_coordinate<T>(map % depth, p.output_d, p.aligns_corners);
      map /= depth;
    }
    const Index coordinate = static_cast<Index>(element) % kAxes;
    const T* theta = b.theta + static_cast<int64_t>(map) * theta_size(kAxes) + coordinate * (kAxes + 1);
    b.grid[element] = narrow<T>(map_coordinate<kAxes>(theta, base));
  }
}

template <typename Index, typename T, int kAxes>
Status enqueue_grid(const Request<Problem, ForwardBuffers<T, kAxes>>& call) {
  return launch_kernel("affine_grid kernel", write_grid<Index, T, kAxes>,
                       blocks_for(call.p.grid_numel, kForwardThreads), kForwardThreads, 0, call.stream, call.p, call.b);
}

template <typename T, int kAxes>
struct NarrowIndexPath {
  static const char* name() { return "narrow index"; }
  const Request<Problem, ForwardBuffers<T, kAxes>>& call;
  bool can() const { return call.p.grid_numel <= UINT32_MAX; }
  Status enqueue() const { return enqueue_grid<uint32_t>(call); }
};

template <typename T, int kAxes>
struct WideIndexPath {
  static const char* name() { return "wide index"; }
  const Request<Problem, ForwardBuffers<T, kAxes>>& call;
  Status enqueue() const { return enqueue_grid<int64_t>(call); }
};

template <typename T, int kAxes>
Status run(const Problem& p, const ForwardBuffers<T, kAxes>& b, void* workspace, Stream stream) {
  return Paths<NarrowIndexPath<T, kAxes>, WideIndexPath<T, kAxes>>::enqueue(
      Request<Problem, ForwardBuffers<T, kAxes>>{p, b, workspace, stream});
}

// A block takes this many chunks, one a lane, and its warps one element of theta each.
constexpr int kLanes = 32;
constexpr int sum_threads(int axes) { return kLanes * theta_size(axes); }

template <typename T, int kAxes>
__global__ void __launch_bounds__(sum_threads(kAxes))
    sum_chunks(Problem p, const T* grad_grid, Partials<T, kAxes> partials) {
  constexpr int kThetaSize = theta_size(kAxes), kSumThreads = sum_threads(kAxes);
  // Samples of each chunk that are in shared memory at a time: six arrays of doubles must fit into its 48 KiB.
  constexpr int kStaged = kAxes == 2 ? 32 : 16;
  // [chunk][sample], rows padded so that lanes, which hold chunks, read different banks.
  __shared__ T gradients[kAxes][kLanes][kStaged + 1];
  __shared__ T coordinates[kAxes][kLanes][kStaged + 1];
  const int lane = threadIdx.x % kLanes;
  const int element = threadIdx.x / kLanes;
  const int64_t all_chunks = p.n * p.chunks;
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kLanes; base < all_chunks;
       base += static_cast<int64_t>(gridDim.x) * kLanes) {
    T sum = T(0);
    for (int first = 0; first < kChunk; first += kStaged) {
      __syncthreads();  // the round before has read what this one overwrites
      for (int item = threadIdx.x; item < kLanes * kStaged; item += kSumThreads) {
        const int chunk = item / kStaged, k = item % kStaged;
        const int64_t image = (base + chunk) / p.chunks;
        const int64_t sample = (base + chunk) % p.chunks * kChunk + first + k;
        if (base + chunk >= all_chunks || sample >= p.samples) continue;
        const T* gradient = grad_grid + (image * p.samples + sample) * kAxes;
        for (int axis = 0; axis < kAxes; ++axis) gradients[axis][chunk][k] = gradient[axis];
        coordinates[0][chunk][k] = base_coordinate<T>(sample % p.output_w, p.output_w, p.aligns_corners);
        int64_t row = sample / p.output_w;
        if constexpr (kAxes == 3) {
          coordinates[2][chunk][k] = base_coordinate<T>(row / p.output_h, p.output_d, p.aligns_corners);
          row %= p.output_h;
        }
        coordinates[1][chunk][k] = base_coordinate<T>(row, p.output_h, p.aligns_corners);
      }
      __syncthreads();
      const int64_t left = p.samples - ((base + lane) % p.chunks * kChunk + first);
      const int count = base + lane >= all_chunks || left < 0 ? 0 : left < kStaged ? static_cast<int>(left) : kStaged;
      const T* gradient = gradients[element / (kAxes + 1)][lane];
      if (element % (kAxes + 1) == kAxes) {
        for (int k = 0; k < count; ++k) sum = sum + gradient[k];
      } else {
        const T* coordinate = coordinates[element % (kAxes + 1)][lane];
        for (int k = 0; k < count; ++k) sum = fma(gradient[k], coordinate[k], sum);
      }
    }
    if (base + lane < all_chunks) {
      const int64_t image = (base + lane) / p.chunks, chunk = (base + lane) % p.chunks;
      partials.sums[(image * kThetaSize + element) * p.chunks + chunk] = sum;
    }
  }
}

constexpr int kTotalThreads = 128;

// A warp adds one element's chunks: lanes load 32 of them at once, and every lane adds them in order.
template <typename T, int kAxes>
__global__ void __launch_bounds__(kTotalThreads) add_chunks(Problem p, Partials<T, kAxes> partials, T* grad_theta) {
  const int lane = threadIdx.x % 32;
  for (int64_t element = grid_thread() / 32; element < p.theta_numel; element += grid_threads() / 32) {
    const T* sums = partials.sums + element * p.chunks;
    T total = T(0);
    for (int64_t first = 0; first < p.chunks; first += 32) {
      const T mine = first + lane < p.chunks ? sums[first + lane] : T(0);
      const int count = p.chunks - first < 32 ? static_cast<int>(p.chunks - first) : 32;
      for (int k = 0; k < count; ++k) total = total + __shfl_sync(kFullWarp, mine, k);
    }
    if (lane == 0) grad_theta[element] = narrow<T>(total);
  }
}

template <typename T, int kAxes>
struct ChunksPath {
  static const char* name() { return "chunks"; }
  const Request<Problem, BackwardBuffers<T, kAxes>>& call;
  Status enqueue() const {
    const Problem& p = call.p;
    const Partials<T, kAxes> partials(p, call.workspace);
    BARACUDA_RETURN_IF_FAILED(launch_kernel("affine_grid_backward chunk kernel", sum_chunks<T, kAxes>,
                                            blocks_for(p.n * p.chunks, kLanes), sum_threads(kAxes), 0, call.stream, p,
                                            call.b.grad_grid, partials));
    return launch_kernel("affine_grid_backward kernel", add_chunks<T, kAxes>,
                         blocks_for(p.theta_numel, kTotalThreads / 32), kTotalThreads, 0, call.stream, p, partials,
                         call.b.grad_theta);
  }
};

template <typename T, int kAxes>
Status run(const Problem& p, const BackwardBuffers<T, kAxes>& b, void* workspace, Stream stream) {
  return Paths<ChunksPath<T, kAxes>>::enqueue(Request<Problem, BackwardBuffers<T, kAxes>>{p, b, workspace, stream});
}

}  // namespace

#define BARACUDA_PROVIDE_AXES(T, AXES)                              \
  BARACUDA_PROVIDE_LAUNCH(Problem, ForwardBuffers<T, AXES>)         \
  BARACUDA_PROVIDE_LAUNCH(Problem, BackwardBuffers<T, AXES>)        \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, ForwardBuffers<T, AXES>) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, BackwardBuffers<T, AXES>)
BARACUDA_PROVIDE_AXES(float, 2)
BARACUDA_PROVIDE_AXES(double, 2)
BARACUDA_PROVIDE_AXES(float, 3)
BARACUDA_PROVIDE_AXES(double, 3)
#undef BARACUDA_PROVIDE_AXES

}  // namespace baracuda::affine_grid
