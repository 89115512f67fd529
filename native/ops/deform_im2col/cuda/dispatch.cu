// SPDX-License-Identifier: Apache-2.0
// The sampling of deformable convolution on CUDA: which path a call takes.
//
//   path          calls                                             code
//   samples       the forward                                       columns.cuh
//   laid slopes   by offset and mask, channels and samples enough   laid_input.cuh, slopes.cuh
//   slopes        by offset and mask                                slopes.cuh
//   zeros         by input, without samples                         memset
//   lists         by input, 31 bits count a group's corners         lists.cuh, sums.cuh
//   long lists    by input                                          lists.cuh, sums.cuh
#include "core/cuda_paths.cuh"
#include "core/cuda_zeros.cuh"
#include "ops/deform_im2col/cuda/columns.cuh"
#include "ops/deform_im2col/cuda/lists.cuh"
#include "ops/deform_im2col/cuda/slopes.cuh"
#include "ops/deform_im2col/cuda/sums.cuh"

namespace baracuda::deform_im2col {
namespace {

template <typename T>
struct SamplesPath {
  static const char* name() { return "samples"; }
  const DeviceRequest<Problem, ForwardBuffers<T>>& call;
  size_t bytes() const { return 0; }
  Status enqueue() const {
    const Problem& p = call.p;
    const int64_t jobs = ceil_div(p.groups * p.samples, kSampleThreads) * ceil_div(p.c, kForwardChannels);
    return launch_kernel("deform_im2col kernel", sample_columns<T>, blocks_for(jobs, 1), kSampleThreads, 0,
                         call.stream, p, call.b);
  }
};

template <typename T>
struct LaidSlopesPath {
  static const char* name() { return "laid slopes"; }
  const DeviceRequest<Problem, OffsetBuffers<T>>& call;
  bool can() const { return lays_input<T>(call.p); }
  size_t bytes() const { return laid_input_bytes<T>(call.p); }
  Status enqueue() const {
    const Problem& p = call.p;
    uint4* const laid = static_cast<uint4*>(call.workspace);
    const SampleWarps warps(p);
    const int parts = slope_parts(p);
    BARACUDA_RETURN_IF_FAILED(
        lay_input("deform_im2col_offset_backward layout kernel", p, call.b.input, laid, call.stream));
    return launch_early("deform_im2col_offset_backward kernel", sum_slopes<T, true>,
                        blocks_for(warps.count, kSlopeWarps / parts), kSlopeThreads, 0, call.stream, p, call.b, laid,
                        LaidStrides(input_blocks<T>(p), p), warps, parts);
  }
};

template <typename T>
struct SlopesPath {
  static const char* name() { return "slopes"; }
  const DeviceRequest<Problem, OffsetBuffers<T>>& call;
  size_t bytes() const { return 0; }
  Status enqueue() const {
    const Problem& p = call.p;
    const SampleWarps warps(p);
    const int parts = slope_parts(p);
    return launch_kernel("deform_im2col_offset_backward kernel", sum_slopes<T, false>,
                         blocks_for(warps.count, kSlopeWarps / parts), kSlopeThreads, 0, call.stream, p, call.b,
                         nullptr, LaidStrides(ChannelBlocks{}, p), warps, parts);
  }
};

template <typename T>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const DeviceRequest<Problem, InputBuffers<T>>& call;
  bool can() const { return call.p.columns_numel == 0 || call.p.input_numel == 0; }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    return enqueue_zeros(call.b.grad_input, static_cast<size_t>(call.p.input_numel) * sizeof(T), call.stream);
  }
};

template <typename T, typename Index>
struct AnyListsPath {
  using C = Compute<T>;
  const DeviceRequest<Problem, InputBuffers<T>>& call;

  Storage<C, Index> storage(const LaidGradients& laid, void* workspace) const {
    return Storage<C, Index>(call.p, laid.vectors(), workspace);
  }
  size_t bytes() const { return storage(LaidGradients::of<T>(call.p), nullptr).bytes; }

  Status enqueue() const {
    const Problem& p = call.p;
    const LaidGradients laid = LaidGradients::of<T>(p);
    const Storage<C, Index> s = storage(laid, call.workspace);
    const int64_t pixels = p.groups * p.pixels;
    const uint32_t of_samples = blocks_for(p.groups * p.samples, kListThreads);
    BARACUDA_RETURN_IF_FAILED(enqueue_zeros(s.totals, s.cleared_bytes, call.stream));
    BARACUDA_RETURN_IF_FAILED(launch_kernel("deform_im2col_backward count kernel", list_corners<T, Index, false>,
                                            of_samples, kListThreads, 0, call.stream, p, call.b, s));
    BARACUDA_RETURN_IF_FAILED(launch_kernel("deform_im2col_backward reserve kernel", reserve_lists<C, Index>,
                                            blocks_for(pixels, kListThreads), kListThreads, 0, call.stream, pixels, s));
    BARACUDA_RETURN_IF_FAILED(launch_kernel("deform_im2col_backward list kernel", list_corners<T, Index, true>,
                                            of_samples, kListThreads, 0, call.stream, p, call.b, s));
    BARACUDA_RETURN_IF_FAILED(launch_kernel("deform_im2col_backward sort kernel", sort_short_lists<C, Index>,
                                            blocks_for(pixels, kListThreads / 32), kListThreads, 0, call.stream, pixels,
                                            s));
    const SumTiles tiles(p, laid.blocks);
    for (int64_t first = 0; first < laid.all; first += laid.together) {
      const int64_t count = at_most(laid.all - first, laid.together);
      BARACUDA_RETURN_IF_FAILED(launch_early("deform_im2col_backward layout kernel", lay_channels<T>,
                                             blocks_to_lay(laid.blocks, count), kLayThreads, 0, call.stream,
                                             call.b.grad_columns, laid.blocks, first, count, s.laid));
      BARACUDA_RETURN_IF_FAILED(launch_early("deform_im2col_backward kernel", sum_short_lists<T, Index>,
                                             blocks_for(count * tiles.per_block, 1), kSumThreads, 0, call.stream, p,
                                             call.b.grad_input, laid, first, count, s, tiles));
    }
    // A sample gives a pixel one corner at most.
    if (p.samples <= kShortList) return Status::kOk;
    const uint32_t multiprocessors = static_cast<uint32_t>(call.device.multiprocessors);
    BARACUDA_RETURN_IF_FAILED(launch_kernel("deform_im2col_backward long sort kernel", sort_long_lists<T, Index>,
                                            multiprocessors, grid_sample::kSortThreads<Index>, 0, call.stream, p,
                                            call.b, s));
    return launch_kernel("deform_im2col_backward long kernel", sum_long_lists<T, Index>, 8 * multiprocessors,
                         kLongThreads, 0, call.stream, p, call.b, s);
  }
};

template <typename T>
struct ListsPath : AnyListsPath<T, uint32_t> {
  static const char* name() { return "lists"; }
  bool can() const { return this->call.p.samples <= INT32_MAX / kCorners; }
};

template <typename T>
struct LongListsPath : AnyListsPath<T, unsigned long long> {
  static const char* name() { return "long lists"; }
};

template <class Buffers>
struct PathsOf;
template <typename T>
struct PathsOf<ForwardBuffers<T>> : Paths<SamplesPath<T>> {};
template <typename T>
struct PathsOf<InputBuffers<T>> : Paths<ZerosPath<T>, ListsPath<T>, LongListsPath<T>> {};
template <typename T>
struct PathsOf<OffsetBuffers<T>> : Paths<LaidSlopesPath<T>, SlopesPath<T>> {};

template <class Buffers>
Status run(const Problem& p, const Buffers& b, void* workspace, Stream stream) {
  return with_device(Request<Problem, Buffers>{p, b, workspace, stream},
                     [](const auto& request) { return PathsOf<Buffers>::enqueue(request); });
}

template <class Buffers>
size_t bytes_of(const Problem& p, const Buffers*) {
  const Buffers none{};
  const Request<Problem, Buffers> request{p, none, nullptr};
  const DeviceTraits any{};  // the size is the same on every device
  return PathsOf<Buffers>::choose(DeviceRequest<Problem, Buffers>{request, any},
                                  [](const auto& path) { return path.bytes(); });
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_SAMPLING)

}  // namespace baracuda::deform_im2col
