// SPDX-License-Identifier: Apache-2.0
// Bicubic samples on CUDA: which path a call takes.
//
//   forward path       calls                                      code
//   cubic samples      all                                        here
//
//   backward path      calls                                      code
//   zeros              no pixels or no samples                    memsets
//   cubic tiles        32 bits count an image's samples           backward/cubic_lists.cuh, cubic_tiles.cuh,
//   long cubic tiles   all                                        cubic_slopes.cuh
#include "ops/grid_sample/cuda/cubic.h"

#include "core/cuda_paths.cuh"
#include "core/cuda_zeros.cuh"
#include "ops/grid_sample/cuda/backward/cubic_slopes.cuh"
#include "ops/grid_sample/cuda/backward/cubic_tiles.cuh"

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
    const T* plane = b.input + input_offset(p, at.quotient) + first * p.pixels;
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

// Launches of a problem whose samples have so many vectors in a step.
template <typename T, typename Index, int kVectors>
struct CubicTilesOf {
  using C = Compute<T>;
  const CubicBackward<T>& call;
  const CubicTiles& tiles;
  const CubicStorage<Index>& s;

  // The gradients from the channels at hand, which begin at `channel`.
  Status enqueue(int32_t channel) const {
    const RuledProblem& p = call.p;
    const Stream stream = call.stream;
    BARACUDA_RETURN_IF_FAILED(launch_early(
        "grid_sample_backward gradient kernel", lay_gradients<T, Index, kVectors>,
        blocks_for(ceil_div(p.n * p.samples, kLaidSamples) * s.steps, 1), kCubicThreads, 0, stream, p,
        call.b.grad_output, channel, s));
    if (p.has_grad_grid()) {
      BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward slope kernel", sum_cubic_slopes<T, Index, kVectors>,
                                             blocks_for(s.segment_limit, 1), kCubicThreads, 0, stream, p, tiles, call.b,
                                             channel, s));
    }
    if (!p.has_grad_input()) return Status::kOk;
    constexpr auto kSum = sum_cubic<T, Index, kVectors>;
    BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<kSum>("grid_sample_backward kernel"));
    return launch_early("grid_sample_backward kernel", kSum,
                        blocks_for(tiles.total * ceil_div(s.channels, kChannelChunk), 1), kCubicThreads,
                        sizeof(CubicTileShared<C, Index, kVectors>), stream, p, tiles, call.b, channel, s);
  }
};

template <typename T, typename Index>
struct AnyCubicPath {
  using C = Compute<T>;
  const CubicBackward<T>& call;

  Status enqueue() const {
    const RuledProblem& p = call.p;
    const Stream stream = call.stream;
    const CubicTiles tiles(p);
    const CubicStorage<Index> s(p, sizeof(C), call.workspace);
    const uint32_t by_sample = blocks_for(p.n * p.samples, kCubicThreads);
    BARACUDA_RETURN_IF_FAILED(enqueue_zeros_early(s.totals, s.cleared_bytes, stream));
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward count kernel", list_cubic<C, Index, false>, by_sample,
                                           kCubicThreads, 0, stream, p, tiles, call.b.grid, call.b.grad_grid, s));
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward reserve kernel", reserve_cubic<Index>,
                                           blocks_for(tiles.total, kCubicThreads), kCubicThreads, 0, stream, tiles, s));
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward list kernel", list_cubic<C, Index, true>, by_sample,
                                           kCubicThreads, 0, stream, p, tiles, call.b.grid, call.b.grad_grid, s));
    if (p.has_grad_input()) {
      BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward sort kernel", sort_cubic<Index>,
                                             blocks_for(tiles.total, kCubicWarps), kCubicThreads, 0, stream, tiles, s));
      BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward long sort kernel", sort_long_cubic<Index>,
                                             static_cast<uint32_t>(call.device.multiprocessors), kSortThreads<Index>, 0,
                                             stream, p.samples, s));
    }
    if (p.has_grad_grid() && may_reach_far(p)) {
      BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward far kernel", sum_far_slopes<T>, by_sample,
                                             kCubicThreads, 0, stream, p, call.b));
    }
    for (int64_t channel = 0; channel < p.c; channel += s.channels) {
      BARACUDA_RETURN_IF_FAILED(enqueue_channels(tiles, s, static_cast<int32_t>(channel)));
    }
    return Status::kOk;
  }

 private:
  Status enqueue_channels(const CubicTiles& tiles, const CubicStorage<Index>& s, int32_t channel) const {
    if constexpr (sizeof(Index) == 4) {
      if (s.vectors == 1) return CubicTilesOf<T, Index, 1>{call, tiles, s}.enqueue(channel);
      if (s.vectors == 2) return CubicTilesOf<T, Index, 2>{call, tiles, s}.enqueue(channel);
    }
    return CubicTilesOf<T, Index, kMostVectors>{call, tiles, s}.enqueue(channel);
  }
};

// Whether 32 bits count an image's samples.
inline bool fits_narrow_samples(const Problem& p) { return p.samples <= UINT32_MAX; }

template <typename T>
struct CubicTilesPath : AnyCubicPath<T, uint32_t> {
  static const char* name() { return "cubic tiles"; }
  bool can() const { return fits_narrow_samples(this->call.p); }
};

template <typename T>
struct LongCubicTilesPath : AnyCubicPath<T, unsigned long long> {
  static const char* name() { return "long cubic tiles"; }
};

template <typename T>
Status run_cubic(const RuledProblem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  using Cubic = Paths<CubicZerosPath<T>, CubicTilesPath<T>, LongCubicTilesPath<T>>;
  return with_device(Request<RuledProblem, BackwardBuffers<T>>{p, b, workspace, stream},
                     [](const auto& request) { return Cubic::enqueue(request); });
}

}  // namespace

size_t cubic_bytes(const RuledProblem& p, size_t compute_bytes) {
  if (p.input_numel == 0 || p.samples == 0) return 0;
  return fits_narrow_samples(p) ? CubicStorage<uint32_t>(p, compute_bytes, nullptr).bytes
                                : CubicStorage<unsigned long long>(p, compute_bytes, nullptr).bytes;
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
