// SPDX-License-Identifier: Apache-2.0
// The most frequent elements of rows on CUDA.
//
//   path         calls                                    what happens
//   short rows   at most 32 elements                      some lanes a row
//   rows         rows whose table fits shared memory      a warp or a block a row
//   long rows    all                                      parts of rows in shared memory, rows in the workspace
#include <type_traits>

#include "core/cuda_launch.cuh"
#include "core/cuda_paths.cuh"
#include "core/cuda_zeros.cuh"
#include "core/workspace.h"
#include "ops/order/cuda/mode.cuh"
#include "ops/order/cuda/mode_long_rows.cuh"
#include "ops/order/launch.h"

namespace baracuda::order {
namespace {

// A warp sees to rows of so many elements, a block of 256 threads to more.
constexpr int64_t kWarpRow = 256;
constexpr int64_t kBlockRow = 2048;
// Of a table that lets others stand beside it.
constexpr int64_t kAmpleBytes = 72 * 1024;
// Elements of rows whose table every device has the shared memory for.
template <class W>
constexpr int64_t kSureElements = sizeof(W) == 8 ? 3400 : 5000;
// Elements of the rows that have their tables at a time.
constexpr int64_t kAtOnce = int64_t{1} << 25;

// Four slots of five are taken at the most.
inline int64_t least_slots(int64_t length) { return length + length / 4 + 1; }

template <typename T>
using ModeRequest = DeviceRequest<Problem, ModeBuffers<T>>;

template <typename T>
struct ShortRowsPath {
  static const char* name() { return "short rows"; }
  const ModeRequest<T>& call;
  bool can() const { return call.p.length <= kShortRow; }
  Status enqueue() const {
    const int width = width_of_short(call.p.length);
    const int64_t in_warp = 32 / width, padded = ceil_div(call.p.rows, in_warp) * in_warp;
    return launch_kernel("mode kernel", mode_of_short_rows<T>, blocks_for(padded, 256 / width), 256, 0, call.stream,
                         call.p, call.b, width, padded);
  }
};

template <typename T>
struct RowsPath {
  using W = Word<T>;
  static const char* name() { return "rows"; }
  const ModeRequest<T>& call;
  bool can() const { return table_bytes<W>(least_slots(call.p.length)) <= call.device.shared_bytes; }
  Status enqueue() const {
    if (call.p.length <= kWarpRow) return enqueue_groups<32, 128>();
    if (call.p.length <= kBlockRow) return enqueue_groups<256, 256>();
    return enqueue_groups<512, 512>();
  }

 private:
  template <int kGroup, int kThreads>
  Status enqueue_groups() const {
    constexpr int64_t kGroups = kThreads / kGroup;
    constexpr auto kKernel = mode_of_rows<T, kGroup, kThreads>;
    BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<kKernel>("mode kernel"));
    const int64_t ample = at_most(2 * call.p.length, at_most(kAmpleBytes, call.device.shared_bytes - 64) /
                                                         static_cast<int64_t>(sizeof(W) + 4));
    const int64_t slots = at_least(ample, least_slots(call.p.length)), bytes = table_bytes<W>(slots);
    return launch_kernel("mode kernel", kKernel, blocks_for(call.p.rows, kGroups), kThreads,
                         static_cast<size_t>(bytes * kGroups), call.stream, call.p, call.b,
                         static_cast<uint32_t>(slots), static_cast<uint32_t>(bytes));
  }
};

// How many rows have their tables at a time, and these.
template <typename T>
struct ModeScratch {
  using W = Word<T>;
  WorkspaceLayout layout;
  ModeTables<W> tables{};

  ModeScratch(const Problem& p, void* workspace) {
    tables.rows = at_least(1, at_most(p.rows, kAtOnce / p.length));
    // Keys of 8 and of 16 bits are no more than that.
    constexpr int64_t kKeys = int64_t{1} << (kKeyBits<T> < 32 ? kKeyBits<T> : 32);
    tables.slots = static_cast<uint32_t>(at_most(at_most(p.length, kKeys) * 3 / 2, UINT32_MAX));
    const int64_t slots = tables.rows * tables.slots;
    tables.keys = workspace_array<W>(workspace, layout.reserve<W>(slots));
    tables.counts = workspace_array<uint32_t>(workspace, layout.reserve<uint32_t>(slots));
    tables.states = workspace_array<ModeState>(workspace, layout.reserve<ModeState>(tables.rows));
  }
};

template <typename T>
struct LongRowsPath {
  using W = Word<T>;
  static const char* name() { return "long rows"; }
  const ModeRequest<T>& call;
  Status enqueue() const {
    const ModeScratch<T> scratch(call.p, call.workspace);
    BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<fill_tables<T>>("mode kernel"));
    for (int64_t first = 0; first < call.p.rows; first += scratch.tables.rows) {
      ModeTables<W> tables = scratch.tables;
      tables.first_row = first;
      BARACUDA_RETURN_IF_FAILED(enqueue_zeros(call.workspace, scratch.layout.bytes(), call.stream));
      tables.rows = at_most(tables.rows, call.p.rows - first);
      BARACUDA_RETURN_IF_FAILED(enqueue_pass(tables));
    }
    return Status::kOk;
  }

 private:
  Status enqueue_pass(const ModeTables<W>& tables) const {
    const Problem& p = call.p;
    const int64_t parts = ceil_div(p.length, kModePart), slot_parts = ceil_div(tables.slots, kPart);
    BARACUDA_RETURN_IF_FAILED(launch_kernel("table kernel", fill_tables<T>, blocks_for(tables.rows * parts, 1),
                                            kModeThreads, static_cast<size_t>(table_bytes<W>(kPartSlots)), call.stream,
                                            p, call.b, tables, parts));
    const uint32_t blocks = blocks_for(tables.rows * slot_parts, 1);
    BARACUDA_RETURN_IF_FAILED(launch_kernel("count kernel", read_tables<T, false>, blocks, kModeThreads, 0, call.stream,
                                            tables, slot_parts));
    BARACUDA_RETURN_IF_FAILED(launch_kernel("key kernel", read_tables<T, true>, blocks, kModeThreads, 0, call.stream,
                                            tables, slot_parts));
    const Parts places(p, tables.rows);
    BARACUDA_RETURN_IF_FAILED(launch_kernel("place kernel", find_modes<T>, blocks_for(places.tasks, 1), kModeThreads, 0,
                                            call.stream, p, call.b, tables, places));
    return launch_kernel("mode kernel", store_modes<T>, blocks_for(tables.rows, 128), 128, 0, call.stream, p, call.b,
                         tables);
  }
};

template <typename T>
Status run(const Problem& p, const ModeBuffers<T>& b, void* workspace, Stream stream) {
  return with_device(Request<Problem, ModeBuffers<T>>{p, b, workspace, stream}, [](const ModeRequest<T>& request) {
    return Paths<ShortRowsPath<T>, RowsPath<T>, LongRowsPath<T>>::enqueue(request);
  });
}

// For devices without the shared memory, whichever one runs the call.
template <typename T>
size_t bytes_of(const Problem& p, const ModeBuffers<T>*) {
  if (p.length <= kSureElements<Word<T>>) return 0;
  return ModeScratch<T>(p, nullptr).layout.bytes();
}

}  // namespace

#define BARACUDA_PROVIDE(T)                        \
  BARACUDA_PROVIDE_LAUNCH(Problem, ModeBuffers<T>) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, ModeBuffers<T>)
BARACUDA_ORDER_TYPES(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::order
