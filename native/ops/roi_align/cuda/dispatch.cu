// SPDX-License-Identifier: Apache-2.0
// RoIAlign on CUDA: which path a call takes. All begin with a launch that tabulates every box's weights. The words of
// this family stand in native/ops/roi_align/README.md.
//
//   forward path   calls                                                      code
//   windows        at most 32 x 32 bins, aligned rows, enough shared memory   forward/windows.cuh, window_tables.cuh
//   columns        all                                                        forward/columns.cuh
//
// Several maps go the same ways in the same number of launches: a box's block looks up its map.
//
//   backward path  calls                                                      code
//   tiles          sm_90, at most 16 x 16 bins, whole 16-byte units a box,    backward/tiles.cuh and what it includes
//                  tables of bounded size
//   pixels         all                                                        backward/pixels.cuh
//
// The gradient of boxes has one way, for all calls: backward/boxes.cuh.
//
// Of several maps each goes its own way, one behind the other, with rows in which the boxes of others name no image.
#include "core/cuda_paths.cuh"
#include "ops/roi_align/cuda/backward/boxes.cuh"
#include "ops/roi_align/cuda/backward/pixels.cuh"
#include "ops/roi_align/cuda/backward/tiles.cuh"
#include "ops/roi_align/cuda/forward/columns.cuh"
#include "ops/roi_align/cuda/forward/windows.cuh"
#include "ops/roi_align/cuda/tables.cuh"
#include "ops/roi_align/launch.h"

namespace baracuda::roi_align {
namespace {

template <typename T>
using BackwardRequest = DeviceRequest<Problem, BackwardBuffers<T>>;

// `Maps` is a Problem with ForwardBuffers or a LevelsProblem with LevelsForwardBuffers.
template <typename T, class Maps, class Buffers>
struct WindowsPath {
  static const char* name() { return "windows"; }
  const DeviceRequest<Maps, Buffers>& call;
  WindowPlan plan;

  explicit WindowsPath(const DeviceRequest<Maps, Buffers>& request)
      : call(request), plan(plan_windows<T>(request.p, request.b, request.device)) {}
  bool can() const { return plan.applies; }
  Status enqueue() const { return run_windows<T>(call.p, call.b, plan, call.workspace, call.stream); }
};

template <typename T, class Maps, class Buffers>
struct ColumnsPath {
  static const char* name() { return "columns"; }
  const DeviceRequest<Maps, Buffers>& call;
  Status enqueue() const { return enqueue_columns<T>(call.p, call.b, call.workspace, call.stream); }
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

template <typename T, class Maps, class Buffers>
Status run_forward(const Maps& maps, const Buffers& b, void* workspace, Stream stream) {
  return with_device(Request<Maps, Buffers>{maps, b, workspace, stream}, [](const auto& request) {
    return Paths<WindowsPath<T, Maps, Buffers>, ColumnsPath<T, Maps, Buffers>>::enqueue(request);
  });
}

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  return run_forward<T>(p, b, workspace, stream);
}

template <typename T>
Status run(const LevelsProblem& maps, const LevelsForwardBuffers<T>& b, void* workspace, Stream stream) {
  return run_forward<T>(maps, b, workspace, stream);
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

template <typename T>
size_t bytes_of(const LevelsProblem& maps, const LevelsForwardBuffers<T>*) {
  return bytes_of(maps.all, static_cast<const ForwardBuffers<T>*>(nullptr));
}

template <typename T>
struct BoxesPath {
  static const char* name() { return "boxes"; }
  const Request<Problem, BoxesBackwardBuffers<T>>& call;
  Status enqueue() const { return enqueue_boxes(call.p, call.b, call.stream); }
};

template <typename T>
Status run(const Problem& p, const BoxesBackwardBuffers<T>& b, void* workspace, Stream stream) {
  return Paths<BoxesPath<T>>::enqueue(Request<Problem, BoxesBackwardBuffers<T>>{p, b, workspace, stream});
}

template <typename T>
size_t bytes_of(const Problem&, const BoxesBackwardBuffers<T>*) {
  return 0;
}

constexpr int kPartThreads = 256;

// The boxes of each map, [num_levels][num_rois][5]: those of other maps, and those without an area, name no image.
template <typename C>
__global__ void __launch_bounds__(kPartThreads)
    part_boxes(const __grid_constant__ LevelsProblem maps, const C* rois, C* parted) {
  const int64_t num_rois = maps.all.num_rois;
  for (int64_t r = grid_thread(); r < num_rois; r += grid_threads()) {
    C row[5];
    for (int k = 0; k < 5; ++k) row[k] = rois[5 * r + k];
    const int32_t owner = has_area(row) ? level_of(row, maps) : -1;
    for (int32_t level = 0; level < maps.num_levels; ++level) {
      C* const to = parted + (level * num_rois + r) * 5;
      to[0] = level == owner ? row[0] : C(-1);
      for (int k = 1; k < 5; ++k) to[k] = row[k];
    }
  }
}

// The boxes of each map, then the maps' work areas side by side, so that no map's launch waits to write into one.
template <typename T>
struct LevelsScratch {
  Compute<T>* rois;
  void* areas[kMostLevels];
  size_t bytes;

  LevelsScratch(const LevelsProblem& maps, void* workspace) {
    WorkspaceLayout layout;
    const int64_t numel = maps.all.output_numel > 0 ? maps.num_levels * maps.all.rois_numel : 0;
    rois = workspace_array<Compute<T>>(workspace, layout.reserve<Compute<T>>(numel));
    for (int32_t level = 0; level < maps.num_levels; ++level) {
      const Problem& p = maps.levels[level];
      const size_t own = p.input_numel > 0 ? bytes_of(p, static_cast<const BackwardBuffers<T>*>(nullptr)) : 0;
      areas[level] = workspace_array<char>(workspace, layout.reserve<char>(static_cast<int64_t>(own)));
    }
    bytes = layout.bytes();
  }
};

template <typename T>
Status run(const LevelsProblem& maps, const LevelsBackwardBuffers<T>& b, void* workspace, Stream stream) {
  const LevelsScratch<T> scratch(maps, workspace);
  if (maps.all.output_numel > 0) {
    BARACUDA_RETURN_IF_FAILED(launch_kernel("roi_align_levels_backward box kernel", part_boxes<Compute<T>>,
                                            blocks_for(maps.all.num_rois, kPartThreads), kPartThreads, 0, stream, maps,
                                            b.rois, scratch.rois));
  }
  for (int32_t level = 0; level < maps.num_levels; ++level) {
    const Problem& p = maps.levels[level];
    if (p.input_numel == 0) continue;
    const BackwardBuffers<T> own{b.grad_output, scratch.rois + level * p.rois_numel, b.grad_inputs[level]};
    BARACUDA_RETURN_IF_FAILED(run(p, own, scratch.areas[level], stream));
  }
  return Status::kOk;
}

template <typename T>
size_t bytes_of(const LevelsProblem& maps, const LevelsBackwardBuffers<T>*) {
  return LevelsScratch<T>(maps, nullptr).bytes;
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)
BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOXES_BACKWARD)
BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_LEVELS)

}  // namespace baracuda::roi_align
