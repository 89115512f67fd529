// SPDX-License-Identifier: Apache-2.0
// RoIAlign on CUDA: which path a call takes. All begin with a launch that tabulates every box's weights. The words of
// this family stand in native/ops/roi_align/README.md.
//
//   forward path   calls                                                      code
//   windows        at most 32 x 32 bins, aligned rows, enough shared memory   forward/windows.cuh, window_tables.cuh
//   columns        all                                                        forward/columns.cuh
//
//   backward path  calls                                                      code
//   tiles          sm_90, at most 16 x 16 bins, whole 16-byte units a box,    backward/tiles.cuh and what it includes
//                  tables of bounded size
//   pixels         all                                                        backward/pixels.cuh
#include "core/cuda_paths.cuh"
#include "ops/roi_align/cuda/backward/pixels.cuh"
#include "ops/roi_align/cuda/backward/tiles.cuh"
#include "ops/roi_align/cuda/forward/columns.cuh"
#include "ops/roi_align/cuda/forward/windows.cuh"
#include "ops/roi_align/cuda/tables.cuh"
#include "ops/roi_align/launch.h"

namespace baracuda::roi_align {
namespace {

template <typename T>
using ForwardRequest = DeviceRequest<Problem, ForwardBuffers<T>>;
template <typename T>
using BackwardRequest = DeviceRequest<Problem, BackwardBuffers<T>>;

template <typename T>
struct WindowsPath {
  static const char* name() { return "windows"; }
  const ForwardRequest<T>& call;
  WindowPlan plan;

  explicit WindowsPath(const ForwardRequest<T>& request)
      : call(request), plan(plan_windows(request.p, request.b.input, request.device)) {}
  bool can() const { return plan.piece != 0; }
  Status enqueue() const {
    return run_windows(call.p, call.b, plan, BoxTables<Compute<T>>(call.p, call.workspace), call.workspace,
                       call.stream);
  }
};

template <typename T>
struct ColumnsPath {
  static const char* name() { return "columns"; }
  const ForwardRequest<T>& call;
  Status enqueue() const { return enqueue_columns(call.p, call.b, call.workspace, call.stream); }
};

// In the shape of tiles that P is.
template <class P>
struct TilesPath {
  static const char* name() { return "tiles"; }
  const BackwardRequest<typename P::T>& call;
  TilePlan<P> plan;
  int stages = 0;
  size_t shared_bytes = 0;

  explicit TilesPath(const BackwardRequest<typename P::T>& request)
      : call(request), plan(request.p, request.workspace) {
    const Problem& p = request.p;
    // A bulk copy moves whole 16-byte units.
    const int64_t box_bytes =
        static_cast<int64_t>(p.c) * p.pooled_h * p.pooled_w * static_cast<int64_t>(sizeof(typename P::T));
    const bool copyable = box_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(request.b.grad_output) % 16 == 0;
    if (!plan.applies || !copyable || request.device.compute_capability < 90) return;
    stages = stages_that_fit<P>(p, request.device.shared_bytes, &shared_bytes);
  }
  bool can() const { return stages != 0; }
  Status enqueue() const {
    return run_tiles(call.p, call.b, plan, stages, shared_bytes, call.device.multiprocessors, call.stream);
  }
};

template <typename T>
struct PixelsPath {
  static const char* name() { return "pixels"; }
  const BackwardRequest<T>& call;
  Status enqueue() const { return enqueue_pixels(call.p, call.b, call.workspace, call.stream); }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  return with_device(Request<Problem, ForwardBuffers<T>>{p, b, workspace, stream}, [](const auto& request) {
    return Paths<WindowsPath<T>, ColumnsPath<T>>::enqueue(request);
  });
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  return with_device(Request<Problem, BackwardBuffers<T>>{p, b, workspace, stream}, [](const auto& request) {
    return with_tile_shape<T>(request.p, [&](auto shape) {
      return Paths<TilesPath<decltype(shape)>, PixelsPath<T>>::enqueue(request);
    });
  });
}

template <typename T>
size_t bytes_of(const Problem& p, const ForwardBuffers<T>*) {
  return BoxTables<Compute<T>>(p, nullptr).bytes + WindowTables<Compute<T>>(p, nullptr).bytes;
}

template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  // Which way a call goes depends on the machine and on alignment too; the size does not.
  const size_t general = BoxTables<Compute<T>>(p, nullptr).bytes;
  const size_t tiled = with_tile_shape<T>(p, [&](auto shape) { return TilePlan<decltype(shape)>(p, nullptr).bytes; });
  return general > tiled ? general : tiled;
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::roi_align
