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
template <typename T, typename Index>
__global__ void __launch_bounds__(kForwardThreads) write_grid(Problem p, ForwardBuffers<T> b) {
  const Index width = static_cast<Index>(p.output_w), height = static_cast<Index>(p.output_h);
  for (int64_t element = grid_thread(); element < p.grid_numel; element += grid_threads()) {
    const Index sample = static_cast<Index>(element) / 2;
    const Index row = sample / width;
    const T x = base_coordinate<T>(sample % width, p.output_w);
    const T y = base_coordinate<T>(row % height, p.output_h);
    const T* theta = b.theta + static_cast<int64_t>(row / height) * kThetaSize + element % 2 * 3;
    b.grid[element] = narrow<T>(map_coordinate(theta, x, y));
  }
}

template <typename T, typename Index>
Status enqueue_grid(const Request<Problem, ForwardBuffers<T>>& call) {
  return launch_kernel("affine_grid kernel", write_grid<T, Index>, blocks_for(call.p.grid_numel, kForwardThreads),
                       kForwardThreads, 0, call.stream, call.p, call.b);
}

template <typename T>
struct NarrowIndexPath {
  static const char* name() { return "narrow index"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  bool can() const { return call.p.grid_numel <= UINT32_MAX; }
  Status enqueue() const { return enqueue_grid<T, uint32_t>(call); }
};

template <typename T>
struct WideIndexPath {
  static const char* name() { return "wide index"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  Status enqueue() const { return enqueue_grid<T, int64_t>(call); }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  return Paths<NarrowIndexPath<T>, WideIndexPath<T>>::enqueue(
      Request<Problem, ForwardBuffers<T>>{p, b, workspace, stream});
}

// A block takes this many chunks, one a lane, and its six warps one element of theta each.
constexpr int kLanes = 32;
constexpr int kSumThreads = kLanes * kThetaSize;
// Samples of each chunk that are in shared memory at a time.
constexpr int kStaged = 32;

template <typename T>
__global__ void __launch_bounds__(kSumThreads) sum_chunks(Problem p, const T* grad_grid, Partials<T> partials) {
  // [chunk][sample], rows padded so that lanes, which hold chunks, read different banks.
  __shared__ T gradients[2][kLanes][kStaged + 1];
  __shared__ T coordinates[2][kLanes][kStaged + 1];
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
        const T* gradient = grad_grid + (image * p.samples + sample) * 2;
        gradients[0][chunk][k] = gradient[0];
        gradients[1][chunk][k] = gradient[1];
        coordinates[0][chunk][k] = base_coordinate<T>(sample % p.output_w, p.output_w);
        coordinates[1][chunk][k] = base_coordinate<T>(sample / p.output_w, p.output_h);
      }
      __syncthreads();
      const int64_t left = p.samples - ((base + lane) % p.chunks * kChunk + first);
      const int count = base + lane >= all_chunks || left < 0 ? 0 : left < kStaged ? static_cast<int>(left) : kStaged;
      const T* gradient = gradients[element / 3][lane];
      if (element % 3 == 2) {
        for (int k = 0; k < count; ++k) sum = sum + gradient[k];
      } else {
        const T* coordinate = coordinates[element % 3][lane];
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
template <typename T>
__global__ void __launch_bounds__(kTotalThreads) add_chunks(Problem p, Partials<T> partials, T* grad_theta) {
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

template <typename T>
struct ChunksPath {
  static const char* name() { return "chunks"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  Status enqueue() const {
    const Problem& p = call.p;
    const Partials<T> partials(p, call.workspace);
    BARACUDA_RETURN_IF_FAILED(launch_kernel("affine_grid_backward chunk kernel", sum_chunks<T>,
                                            blocks_for(p.n * p.chunks, kLanes), kSumThreads, 0, call.stream, p,
                                            call.b.grad_grid, partials));
    return launch_kernel("affine_grid_backward kernel", add_chunks<T>, blocks_for(p.theta_numel, kTotalThreads / 32),
                         kTotalThreads, 0, call.stream, p, partials, call.b.grad_theta);
  }
};

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  return Paths<ChunksPath<T>>::enqueue(Request<Problem, BackwardBuffers<T>>{p, b, workspace, stream});
}

}  // namespace

BARACUDA_PROVIDE_BOTH_DIRECTIONS(float)
BARACUDA_PROVIDE_BOTH_DIRECTIONS(double)

}  // namespace baracuda::affine_grid
