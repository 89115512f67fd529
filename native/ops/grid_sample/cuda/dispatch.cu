// SPDX-License-Identifier: Apache-2.0
// grid_sample on CUDA: which path a call takes. The words of this family stand in native/ops/grid_sample/README.md.
//
//   forward path    calls                                               code
//   planes          small images, enough channels, 32 bits or fewer     forward/planes.cuh
//   samples         all                                                 forward/samples.cuh, packets.cuh
//
//   backward path   calls                                               code
//   zeros           no pixels or no samples                             memsets
//   narrow tiles    at most four channels                               backward/narrow.cuh
//   sparse tiles    few samples a tile                                  backward/sparse.cuh
//   tiles           all whose samples and blocks 32 bits can count      backward/tiles.cuh
//   crowded tiles   all                                                 backward/lists.cuh, crowded.cuh
//
// The backward by tiles begins with backward/bins.cuh, which lists each tile's samples, and ends as crowded tiles does,
// for the tiles that turn out to be crowded.
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

template <typename T>
using ForwardRequest = DeviceRequest<Problem, ForwardBuffers<T>>;
template <typename T>
using BackwardRequest = DeviceRequest<Problem, BackwardBuffers<T>>;

// --- forward ---------------------------------------------------------------------------------------------------------

template <typename T>
struct PlanesPath {
  static const char* name() { return "planes"; }
  const ForwardRequest<T>& call;
  PlaneGroups groups;

  explicit PlanesPath(const ForwardRequest<T>& request)
      : call(request), groups(plane_groups<T>(request.p, request.device)) {}
  bool can() const { return groups.per_image > 0; }
  Status enqueue() const { return enqueue_planes(call.p, call.b, groups, call.device, call.stream); }
};

template <typename T>
struct SamplesPath {
  static const char* name() { return "samples"; }
  const ForwardRequest<T>& call;
  Status enqueue() const { return enqueue_samples(call.p, call.b, call.stream); }
};

template <typename T>
constexpr auto forward_paths() {
  if constexpr (sizeof(T) <= 4) {
    return Paths<PlanesPath<T>, SamplesPath<T>>();
  } else {
    return Paths<SamplesPath<T>>();
  }
}

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  return with_device(Request<Problem, ForwardBuffers<T>>{p, b, workspace, stream}, [](const auto& request) {
    return decltype(forward_paths<T>())::enqueue(request);
  });
}

// --- backward --------------------------------------------------------------------------------------------------------

// Blocks per multiprocessor of the crowded tiles' kernels, which stride over work that only the device knows, mostly
// none.
constexpr int kCrowdedBlocks = 4;

// Counts and lists each tile's samples.
template <typename T, typename Index, class Kernel>
Status enqueue_bins(const BackwardRequest<T>& call, const TileGrid& tiles, const Storage<Compute<T>, Index>& s,
                    Kernel* bin) {
  BARACUDA_RETURN_IF_FAILED(enqueue_zeros_early(s.totals, s.cleared_bytes, call.stream));
  return launch_early("grid_sample_backward bin kernel", bin, blocks_for(call.p.n * call.p.samples, kBinThreads),
                      kBinThreads, 0, call.stream, call.p, tiles, call.b, s);
}

// The crowded tiles. Where there is none these launches end at once.
template <typename T, typename Index>
Status enqueue_crowded(const BackwardRequest<T>& call, const TileGrid& tiles,
                       const Storage<Compute<T>, Index>& s) {
  using C = Compute<T>;
  const uint32_t multiprocessors = static_cast<uint32_t>(call.device.multiprocessors);
  const uint32_t blocks = multiprocessors * kCrowdedBlocks;
  BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward list kernel", fill_lists<C, Index>, 2 * blocks,
                                         kBinThreads, 0, call.stream, call.p, tiles, call.b.grid, s));
  BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward sort kernel", sort_lists<C, Index>, multiprocessors,
                                         kSortThreads<Index>, 0, call.stream, call.p, tiles, call.b.grid, s));
  return launch_early("grid_sample_backward crowded kernel", sum_crowded<T, Index>, 2 * blocks, kSumThreads, 0,
                      call.stream, call.p, tiles, call.b, s);
}

template <typename T>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const BackwardRequest<T>& call;
  bool can() const { return call.p.input_numel == 0 || call.p.samples == 0; }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    BARACUDA_RETURN_IF_FAILED(enqueue_zeros(call.b.grad_input, call.p.input_numel * sizeof(T), call.stream));
    return enqueue_zeros(call.b.grad_grid, call.p.grid_numel * sizeof(Compute<T>), call.stream);
  }
};

// What the paths share that stage tiles in shared memory. `Sums` has the launch that sums the tiles which are not
// crowded, and learns which ones are.
template <typename T, class Sums>
struct StagedPath {
  using Scratch = Storage<Compute<T>, uint32_t>;
  const BackwardRequest<T>& call;

  size_t bytes() const { return Scratch(call.p, nullptr).bytes; }
  Status enqueue() const {
    const Scratch s(call.p, call.workspace);
    const TileGrid tiles(call.p);
    BARACUDA_RETURN_IF_FAILED(enqueue_bins(call, tiles, s, bin_samples<T, uint32_t, true, Sums::kSlopesAreBinned>));
    BARACUDA_RETURN_IF_FAILED(s.capacity == kUsualCapacity
                                  ? Sums::template enqueue_sums<kUsualCapacity>(call, tiles, s)
                                  : Sums::template enqueue_sums<kLargeCapacity<Compute<T>>>(call, tiles, s));
    return enqueue_crowded(call, tiles, s);
  }
};

template <typename T>
struct NarrowPath : StagedPath<T, NarrowPath<T>> {
  static const char* name() { return "narrow tiles"; }
  static constexpr bool kSlopesAreBinned = true;
  bool can() const { return fits_staging(this->call.p) && is_narrow(this->call.p); }

  template <int kCapacity>
  static Status enqueue_sums(const BackwardRequest<T>& call, const TileGrid& tiles,
                             const Storage<Compute<T>, uint32_t>& s) {
    return launch_early("grid_sample_backward narrow kernel", sum_narrow<T, kCapacity>,
                        static_cast<uint32_t>(tiles.total), kNarrowThreads, 0, call.stream, call.p, tiles, call.b, s);
  }
};

template <typename T>
struct TilesPath : StagedPath<T, TilesPath<T>> {
  static const char* name() { return "tiles"; }
  static constexpr bool kSlopesAreBinned = false;
  bool can() const { return fits_staging(this->call.p); }

  template <int kCapacity>
  static Status enqueue_sums(const BackwardRequest<T>& call, const TileGrid& tiles,
                             const Storage<Compute<T>, uint32_t>& s) {
    return launch_early("grid_sample_backward kernel", sum_tiles<T, kCapacity>,
                        static_cast<uint32_t>(staged_blocks(call.p, tiles)), kTileThreads, 0, call.stream, call.p,
                        tiles, call.b, s);
  }
};

template <typename T>
struct SparsePath : StagedPath<T, SparsePath<T>> {
  static const char* name() { return "sparse tiles"; }
  static constexpr bool kSlopesAreBinned = false;
  bool can() const {
    return fits_staging(this->call.p) && is_sparse(this->call.p) &&
           capacity_of<Compute<T>>(this->call.p) == kUsualCapacity;
  }

  template <int kCapacity>
  static Status enqueue_sums(const BackwardRequest<T>& call, const TileGrid& tiles,
                             const Storage<Compute<T>, uint32_t>& s) {
    return launch_early("grid_sample_backward kernel", sum_sparse<T, kUsualCapacity>,
                        static_cast<uint32_t>(staged_blocks(call.p, tiles)), kTileThreads, 0, call.stream, call.p,
                        tiles, call.b, s);
  }
};

// Every tile is crowded.
template <typename T>
struct CrowdedPath {
  using Scratch = Storage<Compute<T>, unsigned long long>;
  static const char* name() { return "crowded tiles"; }
  const BackwardRequest<T>& call;

  size_t bytes() const { return Scratch(call.p, nullptr).bytes; }
  Status enqueue() const {
    const Scratch s(call.p, call.workspace);
    const TileGrid tiles(call.p);
    BARACUDA_RETURN_IF_FAILED(
        is_narrow(call.p) ? enqueue_bins(call, tiles, s, bin_samples<T, unsigned long long, false, true>)
                          : enqueue_bins(call, tiles, s, bin_samples<T, unsigned long long, false, false>));
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_backward reserve kernel",
                                           reserve_lists<Compute<T>, unsigned long long>,
                                           blocks_for(tiles.total, kReserveThreads), kReserveThreads, 0, call.stream,
                                           tiles, s));
    return enqueue_crowded(call, tiles, s);
  }
};

template <typename T>
using BackwardPaths = Paths<ZerosPath<T>, NarrowPath<T>, SparsePath<T>, TilesPath<T>, CrowdedPath<T>>;

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  return with_device(Request<Problem, BackwardBuffers<T>>{p, b, workspace, stream}, [](const auto& request) {
    return BackwardPaths<T>::enqueue(request);
  });
}

// --- workspace -------------------------------------------------------------------------------------------------------

template <typename T>
size_t bytes_of(const Problem&, const ForwardBuffers<T>*) {
  return 0;
}

template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  const BackwardBuffers<T> none{};
  const Request<Problem, BackwardBuffers<T>> request{p, none, nullptr};
  const DeviceTraits any{};  // the size is the same on every device
  return BackwardPaths<T>::choose(BackwardRequest<T>{request, any}, [](const auto& path) { return path.bytes(); });
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::grid_sample
