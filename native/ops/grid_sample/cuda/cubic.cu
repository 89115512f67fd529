// SPDX-License-Identifier: Apache-2.0
// Bicubic samples on CUDA: which path a call takes.
//
//   forward path       calls                                      code
//   cubic samples      all                                        here
//
//   backward path      calls                                      code
//   zeros              no pixels or no samples                    memsets
//   cubic slopes       the gradient to the grid alone             backward/cubic.cuh
//   cubic lists        32 bits count an image's taps              backward/cubic.cuh
//   long cubic lists   all                                        backward/cubic.cuh
#include "ops/grid_sample/cuda/cubic.h"

#include "core/cuda_paths.cuh"
#include "core/cuda_zeros.cuh"
#include "ops/grid_sample/cuda/backward/cubic.cuh"

namespace baracuda::grid_sample {
namespace {

// Channels of a thread: enough to pay for the weights.
constexpr int32_t kThreadChannels = 16;

template <typename T>
__global__ void __launch_bounds__(kCubicThreads) sample_cubic(RuledProblem p, ForwardBuffers<T> b) {
  using C = Compute<T>;
  const int64_t samples = p.n * p.samples;
  const int64_t jobs = samples * groups_of<uint32_t>(p.c, kThreadChannels);
  for (int64_t job = grid_thread(); job < jobs; job += grid_threads()) {
    const Division cut(job, samples), at(cut.remainder, p.samples);
    const C* const coordinates = b.grid + 2 * cut.remainder;
    const CubicSample<C> sample(coordinates[0], coordinates[1], p);
    const C start = is_missing(coordinates[0], coordinates[1], p) ? canonical_nan<C>() : C(0);
    const int32_t first = static_cast<int32_t>(cut.quotient) * kThreadChannels;
    const int32_t channels = p.c - first < kThreadChannels ? p.c - first : kThreadChannels;
    const T* plane = b.input + (at.quotient * p.c + first) * p.pixels;
    T* output = b.output + (at.quotient * p.c + first) * p.samples + at.remainder;
#pragma unroll 1
    for (int32_t k = 0; k < channels; ++k, plane += p.pixels, output += p.samples) {
      C sum = start;
#pragma unroll
      for (int tap = 0; tap < kCubicTaps; ++tap) {
        if (!sample.exists(tap) || sample.weight(tap) == C(0)) continue;
        sum = fma(sample.weight(tap), widen(plane[sample.pixel(tap, p)]), sum);
      }
      *output = narrow<T>(sum);
    }
  }
}

template <typename T>
using CubicForward = Request<RuledProblem, ForwardBuffers<T>>;
template <typename T>
using CubicBackward = DeviceRequest<RuledProblem, BackwardBuffers<T>>;

template <typename T>
struct CubicSamplesPath {
  static const char* name() { return "cubic samples"; }
  const CubicForward<T>& call;
  Status enqueue() const {
    const int64_t jobs = call.p.n * call.p.samples * ceil_div(call.p.c, kThreadChannels);
    return launch_kernel("grid_sample kernel", sample_cubic<T>, blocks_for(jobs, kCubicThreads), kCubicThreads, 0,
                         call.stream, call.p, call.b);
  }
};

template <typename T>
Status run_cubic(const RuledProblem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  return Paths<CubicSamplesPath<T>>::enqueue(CubicForward<T>{p, b, workspace, stream});
}

template <typename T>
Status enqueue_slopes(const RuledProblem& p, const BackwardBuffers<T>& b, Stream stream) {
  return launch_kernel("grid_sample_backward slope kernel", sum_cubic_slopes<T>,
                       blocks_for(p.n * p.samples, kCubicThreads), kCubicThreads, 0, stream, p, b);
}

template <typename T>
struct CubicZerosPath {
  static const char* name() { return "zeros"; }
  const CubicBackward<T>& call;
  bool can() const { return call.p.input_numel == 0 || call.p.samples == 0; }
  Status enqueue() const {
    const RuledProblem& p = call.p;
    if (p.has_grad_input()) {
      BARACUDA_RETURN_IF_FAILED(enqueue_zeros(call.b.grad_input, p.input_numel * sizeof(T), call.stream));
    }
    if (!p.has_grad_grid()) return Status::kOk;
    return enqueue_zeros(call.b.grad_grid, p.grid_numel * sizeof(Compute<T>), call.stream);
  }
};

template <typename T>
struct CubicSlopesPath {
  static const char* name() { return "cubic slopes"; }
  const CubicBackward<T>& call;
  bool can() const { return !call.p.has_grad_input(); }
  Status enqueue() const { return enqueue_slopes(call.p, call.b, call.stream); }
};

template <typename T, typename Index>
struct AnyCubicPath {
  using C = Compute<T>;
  const CubicBackward<T>& call;

  Status enqueue() const {
    const RuledProblem& p = call.p;
    const Stream stream = call.stream;
    const CubicStorage<C, Index> s(p, call.workspace);
    const C* const grid = call.b.grid;
    const uint32_t by_sample = blocks_for(p.n * p.samples, kCubicThreads);
    if (p.has_grad_grid()) BARACUDA_RETURN_IF_FAILED(enqueue_slopes(p, call.b, stream));
    BARACUDA_RETURN_IF_FAILED(enqueue_zeros(s.totals, s.cleared_bytes, stream));
    BARACUDA_RETURN_IF_FAILED(launch_kernel("grid_sample_backward count kernel", list_cubic<C, Index, false>,
                                            by_sample, kCubicThreads, 0, stream, p, grid, s));
    BARACUDA_RETURN_IF_FAILED(launch_kernel("grid_sample_backward reserve kernel", reserve_cubic<C, Index>,
                                            blocks_for(s.pixels, kCubicThreads), kCubicThreads, 0, stream, s));
    BARACUDA_RETURN_IF_FAILED(launch_kernel("grid_sample_backward list kernel", list_cubic<C, Index, true>, by_sample,
                                            kCubicThreads, 0, stream, p, grid, s));
    BARACUDA_RETURN_IF_FAILED(launch_kernel("grid_sample_backward sort kernel", sort_cubic<C, Index>,
                                            blocks_for(s.pixels, kCubicWarps), kCubicThreads, 0, stream, p, grid, s));
    const uint32_t multiprocessors = static_cast<uint32_t>(call.device.multiprocessors);
    BARACUDA_RETURN_IF_FAILED(launch_kernel("grid_sample_backward long sort kernel", sort_long_cubic<C, Index>,
                                            multiprocessors, kSortThreads<Index>, 0, stream, p, grid, s));
    const int64_t all = ceil_div(p.c, kCubicLanes);
    for (int64_t block = 0; block < all; block += s.channel_blocks) {
      const int64_t blocks = all - block < s.channel_blocks ? all - block : s.channel_blocks;
      const int32_t channel = static_cast<int32_t>(block * kCubicLanes);
      BARACUDA_RETURN_IF_FAILED(launch_kernel(
          "grid_sample_backward gradient kernel", lay_gradients<T, Index>,
          blocks_for(ceil_div(p.n * p.samples, kCubicLanes) * blocks, 1), kCubicThreads, 0, stream, p,
          call.b.grad_output, channel, blocks, s));
      BARACUDA_RETURN_IF_FAILED(launch_kernel("grid_sample_backward kernel", sum_cubic<T, Index>,
                                              blocks_for(ceil_div(p.pixels, kCubicLanes) * p.n * blocks, 1),
                                              kCubicThreads, 0, stream, p, call.b.grad_input, channel, blocks, s));
    }
    return Status::kOk;
  }
};

// Whether 32 bits count an image's taps.
inline bool fits_narrow_taps(const Problem& p) { return p.samples <= UINT32_MAX / kCubicTaps; }

template <typename T>
struct CubicListsPath : AnyCubicPath<T, uint32_t> {
  static const char* name() { return "cubic lists"; }
  bool can() const { return fits_narrow_taps(this->call.p); }
};

template <typename T>
struct LongCubicListsPath : AnyCubicPath<T, unsigned long long> {
  static const char* name() { return "long cubic lists"; }
};

template <typename T>
Status run_cubic(const RuledProblem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  using Cubic = Paths<CubicZerosPath<T>, CubicSlopesPath<T>, CubicListsPath<T>, LongCubicListsPath<T>>;
  return with_device(Request<RuledProblem, BackwardBuffers<T>>{p, b, workspace, stream},
                     [](const auto& request) { return Cubic::enqueue(request); });
}

template <typename C>
size_t bytes_of(const RuledProblem& p) {
  return fits_narrow_taps(p) ? CubicStorage<C, uint32_t>(p, nullptr).bytes
                             : CubicStorage<C, unsigned long long>(p, nullptr).bytes;
}

}  // namespace

size_t cubic_bytes(const RuledProblem& p, size_t compute_bytes) {
  if (!p.has_grad_input() || p.input_numel == 0 || p.samples == 0) return 0;
  return compute_bytes == sizeof(double) ? bytes_of<double>(p) : bytes_of<float>(p);
}

#define BARACUDA_PROVIDE_CUBIC(T)                                                                             \
  template <>                                                                                                 \
  Status launch_cubic<ForwardBuffers<T>>(const RuledProblem& p, const ForwardBuffers<T>& b, void* workspace,  \
                                         Stream stream) {                                                     \
    return run_cubic(p, b, workspace, stream);                                                                \
  }                                                                                                           \
  template <>                                                                                                 \
  Status launch_cubic<BackwardBuffers<T>>(const RuledProblem& p, const BackwardBuffers<T>& b, void* workspace, \
                                          Stream stream) {                                                    \
    return run_cubic(p, b, workspace, stream);                                                                \
  }
BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_CUBIC)
#undef BARACUDA_PROVIDE_CUBIC

}  // namespace baracuda::grid_sample
