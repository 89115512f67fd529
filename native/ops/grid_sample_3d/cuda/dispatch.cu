// SPDX-License-Identifier: Apache-2.0
// grid_sample_3d on CUDA: which path a call takes.
//
//   forward path    calls                                                code
//   samples         all                                                  samples.cuh
//
//   backward path   calls                                                code
//   zeros           no voxels or no samples, or slopes that are all 0    memsets
//   slopes          the gradient to the grid alone                       samples.cuh
//   nearest         nearest samples; 31 bits count them, and voxels      nearest_lists.cuh, nearest.cuh
//   tiles           32 bits count a volume's samples                     lists.cuh, tiles.cuh; single.cuh, samples.cuh
//   long tiles      all                                                  lists.cuh, tiles.cuh
#include "core/cuda_paths.cuh"
#include "core/cuda_zeros.cuh"
#include "ops/grid_sample_3d/cuda/nearest.cuh"
#include "ops/grid_sample_3d/cuda/samples.cuh"
#include "ops/grid_sample_3d/cuda/single.cuh"
#include "ops/grid_sample_3d/cuda/tiles.cuh"

namespace baracuda::grid_sample_3d {
namespace {

template <typename T>
struct SamplesPath {
  static const char* name() { return "samples"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  Status enqueue() const {
    const Problem& p = call.p;
    const int64_t blocks = ceil_div(p.n * p.samples, kSampleThreads) * ceil_div(p.c, kForwardChannels);
    return launch_kernel("grid_sample_3d kernel", sample_volumes<T>, blocks_for(blocks, 1), kSampleThreads, 0,
                         call.stream, p, call.b);
  }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  return Paths<SamplesPath<T>>::enqueue(Request<Problem, ForwardBuffers<T>>{p, b, workspace, stream});
}

template <typename T>
size_t bytes_of(const Problem&, const ForwardBuffers<T>*) {
  return 0;
}

template <typename T>
using BackwardRequest = DeviceRequest<Problem, BackwardBuffers<T>>;

template <typename T>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const BackwardRequest<T>& call;
  bool can() const {
    const Problem& p = call.p;
    return p.input_numel == 0 || p.samples == 0 || (!p.has_slopes() && !p.has_grad_input());
  }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    const Problem& p = call.p;
    if (p.has_grad_input()) {
      BARACUDA_RETURN_IF_FAILED(enqueue_zeros(call.b.grad_input, p.input_numel * sizeof(T), call.stream));
    }
    if (!p.has_grad_grid()) return Status::kOk;
    return enqueue_zeros(call.b.grad_grid, p.grid_numel * sizeof(Compute<T>), call.stream);
  }
};

template <typename T>
Status enqueue_slopes(const BackwardRequest<T>& call) {
  return launch_kernel("grid_sample_3d_backward slope kernel", sum_slopes_alone<T>,
                       blocks_for(call.p.n * call.p.samples, kSampleThreads), kSampleThreads, 0, call.stream, call.p,
                       call.b);
}

// The gradient to the grid alone.
template <typename T>
struct SlopesPath {
  static const char* name() { return "slopes"; }
  const BackwardRequest<T>& call;
  bool can() const { return !call.p.has_grad_input(); }
  size_t bytes() const { return 0; }
  Status enqueue() const { return enqueue_slopes(call); }
};

// Nearest samples: the gradient to the grid is 0.
template <typename T>
struct NearestPath {
  using Scratch = NearestStorage<T>;
  static const char* name() { return "nearest"; }
  const BackwardRequest<T>& call;
  bool can() const {
    const Problem& p = call.p;
    if (p.rule.mode != Mode::kNearest || p.n * p.samples > INT32_MAX || p.n * p.voxels > INT32_MAX) return false;
    const Laying<T> laying(p);
    const int64_t laid = p.n * p.samples / kLaidSamples, summed = p.n * p.voxels / voxels_of(laying);
    return (laid + summed + kMostLongBlocks) * laying.channel_blocks <= INT32_MAX;
  }
  size_t bytes() const { return Scratch(call.p, nullptr).layout.bytes(); }

  Status enqueue() const {
    const Scratch s(call.p, call.workspace);
    BARACUDA_RETURN_IF_FAILED(enqueue_zeros_early(s.lists.totals, s.lists.cleared_bytes, call.stream));
    const int64_t step = int64_t{s.laying.channel_blocks} * s.laying.width();
    for (int64_t from = 0; from < call.p.c; from += step) {
      const int32_t channel = static_cast<int32_t>(from);
      BARACUDA_RETURN_IF_FAILED(enqueue_preparation(s, channel));
      if (channel == 0) BARACUDA_RETURN_IF_FAILED(enqueue_lists(s.lists));
      if (call.p.c > 1) {
        const Piece<T, kPiece<T>>* const laid = s.gradients;
        BARACUDA_RETURN_IF_FAILED(enqueue_sums(s, channel, laid));
      } else {
        BARACUDA_RETURN_IF_FAILED(enqueue_sums(s, channel, reinterpret_cast<const Piece<T, 1>*>(call.b.grad_output)));
      }
    }
    return Status::kOk;
  }

 private:
  // Blocks that have the long lists: one a multiprocessor, but few enough to be counted with the others.
  static constexpr int64_t kMostLongBlocks = 1024;

  // Voxels of a block that adds.
  static int32_t voxels_of(const Laying<T>& laying) { return kOwnedVoxels * kNearestThreads >> laying.pieces_shift; }

  // Lays gradients out and, the first time, finds the samples' voxels.
  Status enqueue_preparation(const Scratch& s, int32_t channel) const {
    const uint32_t count_blocks = channel == 0 ? blocks_for(s.lists.samples, kNearestThreads) : 0;
    const int64_t tasks = ceil_div(s.lists.samples, kLaidSamples);
    const uint32_t laid = call.p.c > 1 ? blocks_for(tasks * s.laying.channel_blocks, 1) : 0;
    const uint32_t each = count_blocks > 0 ? laid / count_blocks + 1 : 1;
    return launch_early("grid_sample_3d_backward prepare kernel", prepare_nearest<T>, count_blocks + laid,
                        kNearestThreads, 0, call.stream, call.p, call.b, channel, count_blocks, Divider(each),
                        Divider(tasks), s);
  }

  // Each voxel's samples, ascending.
  Status enqueue_lists(const NearestLists& s) const {
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_3d_backward reserve kernel", reserve_nearest,
                                           blocks_for(s.voxels, kReservedVoxels * kNearestThreads), kNearestThreads, 0,
                                           call.stream, s));
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_3d_backward list kernel", list_nearest,
                                           blocks_for(s.samples, kNearestThreads), kNearestThreads, 0, call.stream,
                                           s));
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_3d_backward sort kernel", sort_nearest,
                                           blocks_for(s.voxels, kNearestThreads), kNearestThreads, 0, call.stream, s));
    if (!has_long_lists()) return Status::kOk;
    return launch_early("grid_sample_3d_backward long sort kernel", sort_long_nearest,
                        static_cast<uint32_t>(call.device.multiprocessors), grid_sample::kSortThreads<Number>, 0,
                        call.stream, s);
  }

  bool has_long_lists() const { return call.p.samples > kWarpList; }

  template <int kEach>
  Status enqueue_sums(const Scratch& s, int32_t channel, const Piece<T, kEach>* gradients) const {
    const int64_t tasks = ceil_div(s.lists.voxels, voxels_of(s.laying));
    const int64_t long_blocks = has_long_lists() ? at_most(call.device.multiprocessors, kMostLongBlocks) : 0;
    return launch_early("grid_sample_3d_backward kernel", sum_nearest<T, kEach>,
                        blocks_for(long_blocks + tasks * s.laying.channel_blocks, 1), kNearestThreads, 0, call.stream,
                        call.p, gradients, call.b.grad_input, channel, s.laying, static_cast<uint32_t>(long_blocks),
                        Divider(tasks), s.lists);
  }
};

// Where a sample's number in its volume is an Index.
template <typename T, typename Index>
struct AnyTilesPath {
  using C = Compute<T>;
  using Scratch = Storage<C, Index>;
  const BackwardRequest<T>& call;

  size_t bytes() const { return Scratch(call.p, nullptr).bytes; }

  Status enqueue() const {
    const Scratch s(call.p, call.workspace);
    const TileGrid tiles(call.p);
    const Problem& p = call.p;
    const bool has_slopes = p.has_grad_grid() && p.has_slopes();
    if (p.has_grad_grid() && !has_slopes) {
      BARACUDA_RETURN_IF_FAILED(enqueue_zeros(call.b.grad_grid, p.grid_numel * sizeof(C), call.stream));
    }
    if constexpr (sizeof(Index) == sizeof(uint32_t)) {
      if (p.c == 1) {
        // A sample's slopes are one channel's: they cost less than a tile that has them beside its sums.
        if (has_slopes) BARACUDA_RETURN_IF_FAILED(enqueue_slopes(call));
        BARACUDA_RETURN_IF_FAILED(enqueue_lists(tiles, s, nullptr, kSingleSegment<C>));
        return enqueue_single(tiles, s);
      }
    }
    BARACUDA_RETURN_IF_FAILED(enqueue_lists(tiles, s, call.b.grad_grid, kSegment));
    if (!has_slopes) return enqueue_sums<false>(tiles, s);
    BARACUDA_RETURN_IF_FAILED(enqueue_sums<true>(tiles, s));
    if (slope_chunks(p) == 0) return Status::kOk;
    return launch_early("grid_sample_3d_backward chunk kernel", add_slope_chunks<C, Index>,
                        blocks_for(p.n * p.samples, kListThreads), kListThreads, 0, call.stream, p, call.b.grid, s,
                        call.b.grad_grid);
  }

 private:
  // Each tile's samples, ascending where they are more than a segment.
  Status enqueue_lists(const TileGrid& tiles, const Scratch& s, C* grad_grid, int segment) const {
    const Problem& p = call.p;
    const uint32_t sample_blocks = blocks_for(p.n * p.samples, kListThreads);
    // Clears the records to their end, from where they begin.
    BARACUDA_RETURN_IF_FAILED(enqueue_zeros_early(s.totals, s.cleared_bytes, call.stream));
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_3d_backward count kernel", list_samples<C, Index, false>,
                                           sample_blocks, kListThreads, 0, call.stream, p, tiles, call.b.grid,
                                           grad_grid, s));
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_3d_backward reserve kernel", reserve_lists<C, Index>,
                                           blocks_for(tiles.total, kListThreads), kListThreads, 0, call.stream, tiles,
                                           s));
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_3d_backward list kernel", list_samples<C, Index, true>,
                                           sample_blocks, kListThreads, 0, call.stream, p, tiles, call.b.grid,
                                           grad_grid, s));
    // So many samples fit in a segment, and in a short list.
    if (p.samples <= segment) return Status::kOk;
    // Most tiles have nothing to sort: blocks take several, with few to start.
    const int64_t sort_blocks = int64_t{kSortBlocks} * call.device.multiprocessors;
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_3d_backward sort kernel", sort_short_lists<C, Index>,
                                           blocks_for(tiles.total < sort_blocks ? tiles.total : sort_blocks, 1),
                                           kListThreads, 0, call.stream, tiles, segment, s));
    if (p.samples <= kShortList) return Status::kOk;
    return launch_early("grid_sample_3d_backward long sort kernel", sort_long_lists<C, Index>,
                        static_cast<uint32_t>(call.device.multiprocessors), grid_sample::kSortThreads<Index>, 0,
                        call.stream, p.samples, s);
  }

  template <bool kSlopes>
  Status enqueue_sums(const TileGrid& tiles, const Scratch& s) const {
    constexpr int kStep = kStepChannels<C>;
    constexpr auto kKernel = sum_tiles<T, Index, kSlopes, kStep>;
    const char* const name = "grid_sample_3d_backward kernel";
    BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<kKernel>(name));
    return launch_early(name, kKernel, blocks_for(tiles.total * ceil_div(call.p.c, kChannelChunk), 1), kTileThreads,
                        sizeof(TileShared<C, Index, kStep>), call.stream, call.p, tiles, call.b, s);
  }

  Status enqueue_single(const TileGrid& tiles, const Scratch& s) const {
    constexpr auto kKernel = sum_single<T>;
    const char* const name = "grid_sample_3d_backward kernel";
    BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<kKernel>(name));
    return launch_early(name, kKernel, blocks_for(tiles.total, 1), kTileThreads, sizeof(SingleShared<C>), call.stream,
                        call.p, tiles, call.b, s);
  }
};

template <typename T>
struct TilesPath : AnyTilesPath<T, uint32_t> {
  static const char* name() { return "tiles"; }
  bool can() const { return this->call.p.samples <= INT32_MAX; }
};

template <typename T>
struct LongTilesPath : AnyTilesPath<T, unsigned long long> {
  static const char* name() { return "long tiles"; }
};

template <typename T>
using BackwardPaths = Paths<ZerosPath<T>, SlopesPath<T>, NearestPath<T>, TilesPath<T>, LongTilesPath<T>>;

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  return with_device(Request<Problem, BackwardBuffers<T>>{p, b, workspace, stream},
                     [](const auto& request) { return BackwardPaths<T>::enqueue(request); });
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

}  // namespace baracuda::grid_sample_3d
