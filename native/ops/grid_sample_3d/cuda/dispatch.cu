// SPDX-License-Identifier: Apache-2.0
// grid_sample_3d on CUDA: which path a call takes.
//
//   forward path    calls                                                code
//   samples         all                                                  samples.cuh
//
//   backward path   calls                                                code
//   zeros           no voxels or no samples, or slopes that are all 0    memsets
//   slopes          the gradient to the grid alone                       samples.cuh
//   tiles           32 bits count a volume's samples                     lists.cuh, tiles.cuh
//   long tiles      all                                                  lists.cuh, tiles.cuh
#include "core/cuda_paths.cuh"
#include "core/cuda_zeros.cuh"
#include "ops/grid_sample_3d/cuda/samples.cuh"
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

// The gradient to the grid alone.
template <typename T>
struct SlopesPath {
  static const char* name() { return "slopes"; }
  const BackwardRequest<T>& call;
  bool can() const { return !call.p.has_grad_input(); }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    return launch_kernel("grid_sample_3d_backward slope kernel", sum_slopes_alone<T>,
                         blocks_for(call.p.n * call.p.samples, kSampleThreads), kSampleThreads, 0, call.stream, call.p,
                         call.b);
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
    BARACUDA_RETURN_IF_FAILED(enqueue_lists(tiles, s));
    if (!has_slopes) return enqueue_sums<false>(tiles, s);
    BARACUDA_RETURN_IF_FAILED(enqueue_sums<true>(tiles, s));
    if (slope_chunks(p) == 0) return Status::kOk;
    return launch_early("grid_sample_3d_backward chunk kernel", add_slope_chunks<C, Index>,
                        blocks_for(p.n * p.samples, kListThreads), kListThreads, 0, call.stream, p, call.b.grid, s,
                        call.b.grad_grid);
  }

 private:
  // Each tile's samples, ascending.
  Status enqueue_lists(const TileGrid& tiles, const Scratch& s) const {
    const Problem& p = call.p;
    const uint32_t sample_blocks = blocks_for(p.n * p.samples, kListThreads);
    // Clears the records to their end, from where they begin.
    BARACUDA_RETURN_IF_FAILED(enqueue_zeros_early(s.totals, s.cleared_bytes, call.stream));
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_3d_backward count kernel", list_samples<C, Index, false>,
                                           sample_blocks, kListThreads, 0, call.stream, p, tiles, call.b.grid,
                                           call.b.grad_grid, s));
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_3d_backward reserve kernel", reserve_lists<C, Index>,
                                           blocks_for(tiles.total, kListThreads), kListThreads, 0, call.stream, tiles,
                                           s));
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_3d_backward list kernel", list_samples<C, Index, true>,
                                           sample_blocks, kListThreads, 0, call.stream, p, tiles, call.b.grid,
                                           call.b.grad_grid, s));
    // So many samples fit in a segment, and in a short list.
    if (p.samples <= kSegment) return Status::kOk;
    // Most tiles have nothing to sort: blocks take several, with few to start.
    const int64_t sort_blocks = int64_t{kSortBlocks} * call.device.multiprocessors;
    BARACUDA_RETURN_IF_FAILED(launch_early("grid_sample_3d_backward sort kernel", sort_short_lists<C, Index>,
                                           blocks_for(tiles.total < sort_blocks ? tiles.total : sort_blocks, 1),
                                           kListThreads, 0, call.stream, tiles, s));
    if (p.samples <= kShortList) return Status::kOk;
    return launch_early("grid_sample_3d_backward long sort kernel", sort_long_lists<C, Index>,
                        static_cast<uint32_t>(call.device.multiprocessors), grid_sample::kSortThreads<Index>, 0,
                        call.stream, p.samples, s);
  }

  template <bool kSlopes>
  Status enqueue_sums(const TileGrid& tiles, const Scratch& s) const {
    if constexpr (sizeof(Index) == sizeof(uint32_t)) {
      if (call.p.c == 1) return enqueue_steps<kSlopes, 1>(tiles, s);
    }
    return enqueue_steps<kSlopes, kManyChannels<C>>(tiles, s);
  }

  template <bool kSlopes, int kStep>
  Status enqueue_steps(const TileGrid& tiles, const Scratch& s) const {
    constexpr auto kKernel = sum_tiles<T, Index, kSlopes, kStep>;
    const char* const name = "grid_sample_3d_backward kernel";
    BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<kKernel>(name));
    return launch_early(name, kKernel, blocks_for(tiles.total * ceil_div(call.p.c, kChannelChunk), 1), kTileThreads,
                        sizeof(TileShared<C, Index, kStep>), call.stream, call.p, tiles, call.b, s);
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
using BackwardPaths = Paths<ZerosPath<T>, SlopesPath<T>, TilesPath<T>, LongTilesPath<T>>;

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
