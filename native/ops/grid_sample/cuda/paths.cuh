// SPDX-License-Identifier: Apache-2.0
// The paths of grid_sample on CUDA, for a type of problem P: Problem for bilinear samples with zeros outside and both
// gradients, which are compiled in dispatch.cu, RuledProblem for all others, in ruled.cu.
#pragma once

#include "core/cuda_paths.cuh"
#include "core/cuda_zeros.cuh"
#include "core/integer_math.h"
#include "ops/grid_sample/cuda/backward/bins.cuh"
#include "ops/grid_sample/cuda/backward/crowded.cuh"
#include "ops/grid_sample/cuda/backward/lists.cuh"
#include "ops/grid_sample/cuda/backward/narrow.cuh"
#include "ops/grid_sample/cuda/backward/sparse.cuh"
#include "ops/grid_sample/cuda/backward/tiles.cuh"
#include "ops/grid_sample/cuda/forward/planes.cuh"
#include "ops/grid_sample/cuda/forward/samples.cuh"
#include "ops/grid_sample/launch.h"

namespace baracuda::grid_sample {
namespace {

template <typename T, class P>
using ForwardRequest = DeviceRequest<P, ForwardBuffers<T>>;
template <typename T, class P>
using BackwardRequest = DeviceRequest<P, BackwardBuffers<T>>;

// --- forward ---------------------------------------------------------------------------------------------------------

template <typename T, class P>
struct PlanesPath {
  static const char* name() { return "planes"; }
  const ForwardRequest<T, P>& call;
  PlaneGroups groups;

  explicit PlanesPath(const ForwardRequest<T, P>& request)
      : call(request), groups(plane_groups<T>(request.p, request.device)) {}
  bool can() const { return groups.per_image > 0; }
  Status enqueue() const { return enqueue_planes<T>(call.p, call.b, groups, call.device, call.stream); }
};

template <typename T, class P>
struct SamplesPath {
  static const char* name() { return "samples"; }
  const ForwardRequest<T, P>& call;
  Status enqueue() const { return enqueue_samples<T>(call.p, call.b, call.stream); }
};

template <typename T, class P>
constexpr auto forward_paths() {
  if constexpr (sizeof(T) <= 4) {
    return Paths<PlanesPath<T, P>, SamplesPath<T, P>>();
  } else {
    return Paths<SamplesPath<T, P>>();
  }
}

template <typename T, class P>
Status run_paths(const P& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  return with_device(Request<P, ForwardBuffers<T>>{p, b, workspace, stream}, [](const auto& request) {
    return decltype(forward_paths<T, P>())::enqueue(request);
  });
}

// --- backward --------------------------------------------------------------------------------------------------------

// What is asked for: of a plain problem both gradients.
constexpr bool has_grad_input(const Problem&) { return true; }
inline bool has_grad_input(const RuledProblem& p) { return p.has_grad_input(); }
constexpr bool has_grad_grid(const Problem&) { return true; }
inline bool has_grad_grid(const RuledProblem& p) { return p.has_grad_grid(); }
constexpr bool has_zeros_alone(const Problem&) { return false; }
inline bool has_zeros_alone(const RuledProblem& p) { return !p.has_grad_input() && !p.has_slopes(); }

// Whether a kernel is to sum the gradients to the samples' positions.
template <typename T, class P>
bool asks_for_slopes(const BackwardRequest<T, P>& call) {
  return kHasBoth<P> || call.b.grad_grid != nullptr;
}

// The kernels for the gradient to the input alone exist where a plain problem's, which has both, would not do.
template <typename T, class P>
auto tiles_kernel(const BackwardRequest<T, P>& call) {
  auto* kernel = sum_tiles<T, Wanted::kBoth, P>;
  if constexpr (!kHasBoth<P>) {
    if (!call.p.has_slopes()) {
      kernel = sum_tiles<T, Wanted::kOfNearest, P>;
    } else if (!asks_for_slopes(call)) {
      kernel = sum_tiles<T, Wanted::kOfInput, P>;
    }
  }
  return kernel;
}
template <typename T, class P>
constexpr auto sum_sparse_without = sum_sparse<T, kHasBoth<P>, P>;

// Blocks per multiprocessor of the crowded tiles' kernels, which stride over work that only the device knows, mostly
// none.
constexpr int kCrowdedBlocks = 4;

// Blocks per multiprocessor that lay gradients beside those that list samples: half of those that fit, with eight loads
// a thread on their way.
constexpr int kLayingBlocks = 4;

// Counts and lists each tile's samples; the first `laying` blocks lay the gradients.
template <typename T, typename Index, class P, class Kernel>
Status enqueue_bins(const BackwardRequest<T, P>& call, const TileGrid& tiles, const Storage<Compute<T>, Index>& s,
                    Kernel* bin, uint32_t laying) {
  BARACUDA_RETURN_IF_FAILED(enqueue_zeros_early(s.totals, s.cleared_bytes, call.stream));
  const uint32_t blocks = blocks_for(call.p.n * call.p.samples, kBinThreads);
  return launch_early("grid_sample_backward bin kernel", bin,
                      laying + static_cast<uint32_t>(at_most(blocks, INT32_MAX - int64_t{laying})), kBinThreads, 0,
                      call.stream, call.p, tiles, call.b, s, laying);
}

// The crowded tiles. Where there is none these launches end at once.
template <typename T, typename Index, class P>
Status enqueue_crowded(const BackwardRequest<T, P>& call, const TileGrid& tiles,
                       const Storage<Compute<T>, Index>& s) {
  using C = Compute<T>;
  const uint32_t multiprocessors = static_cast<uint32_t>(call.device.multiprocessors);
  const uint32_t blocks = multiprocessors * kCrowdedBlocks;
  BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward list kernel", fill_lists<C, Index, P>, 2 * blocks,
                                         kBinThreads, 0, call.stream, call.p, tiles, call.b.grid, s));
  BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward sort kernel", sort_lists<C, Index, P>, multiprocessors,
                                         kSortThreads<Index>, 0, call.stream, call.p, tiles, call.b.grid, s));
  return launch_early("grid_sample_backward crowded kernel", sum_crowded<T, Index, P>, 2 * blocks, kSumThreads, 0,
                      call.stream, call.p, tiles, call.b, s);
}

template <typename T, class P>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const BackwardRequest<T, P>& call;
  bool can() const { return call.p.input_numel == 0 || call.p.samples == 0 || has_zeros_alone(call.p); }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    if (has_grad_input(call.p)) {
      BARACUDA_RETURN_IF_FAILED(enqueue_zeros(call.b.grad_input, call.p.input_numel * sizeof(T), call.stream));
    }
    if (!has_grad_grid(call.p)) return Status::kOk;
    return enqueue_zeros(call.b.grad_grid, call.p.grid_numel * sizeof(Compute<T>), call.stream);
  }
};

// The gradient to the grid alone.
template <typename T, class P>
struct SlopesPath {
  static const char* name() { return "slopes"; }
  const BackwardRequest<T, P>& call;
  bool can() const { return !has_grad_input(call.p); }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    return launch_kernel("grid_sample_backward slope kernel", sum_slopes_alone<T, P>,
                         blocks_for(call.p.n * call.p.samples, kSlopeThreads), kSlopeThreads, 0, call.stream, call.p,
                         call.b);
  }
};

// What the paths share that stage tiles in shared memory. `Sums` has the launch that sums the tiles which are not
// crowded, and learns which ones are.
template <typename T, class P, class Sums>
struct StagedPath {
  using Scratch = Storage<Compute<T>, uint32_t>;
  const BackwardRequest<T, P>& call;

  Scratch scratch() const {
    return Scratch(call.p, Sums::kMayLay ? laid_bytes(call.p, sizeof(T)) : 0, call.workspace);
  }
  size_t bytes() const { return scratch().bytes; }
  Status enqueue() const {
    const Scratch s = scratch();
    const TileGrid tiles(call.p);
    const bool binned = Sums::kSlopesAreBinned && asks_for_slopes(call);
    // Where all blocks run at once, each waits for its own steps, and laid gradients would only come later.
    const bool lays = s.laid != nullptr && tiles.total * ceil_div(call.p.c, kChannelChunk) >
                                               int64_t{kResident<T>} * call.device.multiprocessors;
    const uint32_t laying = lays ? kLayingBlocks * static_cast<uint32_t>(call.device.multiprocessors) : 0;
    constexpr auto bin = bin_samples<T, uint32_t, true, false, Sums::kMayLay, P>;
    constexpr auto bin_with_slopes = bin_samples<T, uint32_t, true, Sums::kSlopesAreBinned, Sums::kMayLay, P>;
    BARACUDA_RETURN_IF_FAILED(enqueue_bins<T>(call, tiles, s, binned ? bin_with_slopes : bin, laying));
    BARACUDA_RETURN_IF_FAILED(Sums::enqueue_sums(call, tiles, s));
    return enqueue_crowded<T>(call, tiles, s);
  }
};

template <typename T, class P>
struct NarrowPath : StagedPath<T, P, NarrowPath<T, P>> {
  static const char* name() { return "narrow tiles"; }
  static constexpr bool kSlopesAreBinned = true, kMayLay = false;
  bool can() const { return fits_staging(this->call.p) && is_narrow(this->call.p); }

  static Status enqueue_sums(const BackwardRequest<T, P>& call, const TileGrid& tiles,
                             const Storage<Compute<T>, uint32_t>& s) {
    const auto kernel = s.most_whole == kUsualCapacity ? sum_narrow<T, kUsualCapacity, P>
                                                     : sum_narrow<T, kLargeCapacity<Compute<T>>, P>;
    return launch_early("grid_sample_backward narrow kernel", kernel,
                        static_cast<uint32_t>(staged_blocks(call.p, tiles)), kNarrowThreads, 0, call.stream, call.p,
                        tiles, call.b, s);
  }
};

template <typename T, class P>
struct TilesPath : StagedPath<T, P, TilesPath<T, P>> {
  static const char* name() { return "tiles"; }
  static constexpr bool kSlopesAreBinned = false, kMayLay = true;
  bool can() const { return fits_staging(this->call.p); }

  static Status enqueue_sums(const BackwardRequest<T, P>& call, const TileGrid& tiles,
                             const Storage<Compute<T>, uint32_t>& s) {
    return launch_early("grid_sample_backward kernel", tiles_kernel<T>(call),
                        static_cast<uint32_t>(staged_blocks(call.p, tiles)), kTileThreads, 0, call.stream, call.p,
                        tiles, call.b, s);
  }
};

template <typename T, class P>
struct SparsePath : StagedPath<T, P, SparsePath<T, P>> {
  static const char* name() { return "sparse tiles"; }
  static constexpr bool kSlopesAreBinned = false, kMayLay = false;
  bool can() const { return fits_staging(this->call.p) && is_sparse(this->call.p); }

  static Status enqueue_sums(const BackwardRequest<T, P>& call, const TileGrid& tiles,
                             const Storage<Compute<T>, uint32_t>& s) {
    const auto kernel = asks_for_slopes(call) ? sum_sparse<T, true, P> : sum_sparse_without<T, P>;
    return launch_early("grid_sample_backward kernel", kernel,
                        static_cast<uint32_t>(staged_blocks(call.p, tiles)), kTileThreads, 0, call.stream, call.p,
                        tiles, call.b, s);
  }
};

// Every tile is crowded.
template <typename T, class P>
struct CrowdedPath {
  using Scratch = Storage<Compute<T>, unsigned long long>;
  static const char* name() { return "crowded tiles"; }
  const BackwardRequest<T, P>& call;

  size_t bytes() const { return Scratch(call.p, 0, nullptr).bytes; }
  Status enqueue() const {
    const Scratch s(call.p, 0, call.workspace);
    const TileGrid tiles(call.p);
    const auto bin = is_narrow(call.p) && asks_for_slopes(call)
                         ? bin_samples<T, unsigned long long, false, true, false, P>
                         : bin_samples<T, unsigned long long, false, false, false, P>;
    BARACUDA_RETURN_IF_FAILED(enqueue_bins<T>(call, tiles, s, bin, 0));
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward reserve kernel",
                                           reserve_lists<Compute<T>, unsigned long long>,
                                           blocks_for(tiles.total, kReserveThreads), kReserveThreads, 0, call.stream,
                                           tiles, s));
    return enqueue_crowded<T>(call, tiles, s);
  }
};

template <typename T, class P>
constexpr auto backward_paths() {
  using Zeros = ZerosPath<T, P>;
  using Narrow = NarrowPath<T, P>;
  using Sparse = SparsePath<T, P>;
  using Tiles = TilesPath<T, P>;
  using Crowded = CrowdedPath<T, P>;
  if constexpr (kHasBoth<P>) {
    return Paths<Zeros, Narrow, Sparse, Tiles, Crowded>();
  } else {
    return Paths<Zeros, SlopesPath<T, P>, Narrow, Sparse, Tiles, Crowded>();
  }
}

template <typename T, class P>
Status run_paths(const P& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  return with_device(Request<P, BackwardBuffers<T>>{p, b, workspace, stream}, [](const auto& request) {
    return decltype(backward_paths<T, P>())::enqueue(request);
  });
}

}  // namespace
}  // namespace baracuda::grid_sample
