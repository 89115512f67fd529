// SPDX-License-Identifier: Apache-2.0
// Selection from rows on CUDA, and the gradient; the most frequent element has a file of its own.
//
//   path         calls                                    what happens
//   short rows   at most 32 elements                      some lanes a row, each compared with all
//   rows         rows whose keys fit shared memory        a warp or a block a row, digit by digit
//   long rows    all                                      a pass over all rows for each digit
//
// The gradient's only path, scatter, writes zeros and an element of each row.
#include "core/cuda_launch.cuh"
#include "core/cuda_paths.cuh"
#include "core/cuda_zeros.cuh"
#include "core/workspace.h"
#include "ops/order/cuda/select_long_rows.cuh"
#include "ops/order/cuda/select_rows.cuh"
#include "ops/order/launch.h"

namespace baracuda::order {
namespace {

// A warp sees to rows of so many elements, and a block of 256 threads to more.
constexpr int64_t kWarpRow = 512;
constexpr int64_t kBlockRow = 8192;
// Keys of rows that every device has the shared memory for.
constexpr int64_t kSureBytes = 48 * 1024;
// Blocks that wait for their turn cost nothing; of long rows each goes through several parts.
constexpr int64_t kLongBlocks = 8;

template <typename T>
int64_t row_bytes(const Problem& p) {
  const int64_t bytes = static_cast<int64_t>(sizeof(RowCounts)) + p.length * static_cast<int64_t>(sizeof(Word<T>));
  return ceil_div(bytes, 16) * 16;
}

template <typename T>
using Selection = DeviceRequest<Problem, SelectionBuffers<T>>;

template <typename T>
struct ShortRowsPath {
  static const char* name() { return "short rows"; }
  const Selection<T>& call;
  bool can() const { return call.p.length <= kShortRow; }
  Status enqueue() const {
    const int width = width_of_short(call.p.length);
    const int64_t in_warp = 32 / width, padded = ceil_div(call.p.rows, in_warp) * in_warp;
    return launch_kernel("selection kernel", select_short_rows<T>, blocks_for(padded, 256 / width), 256, 0, call.stream,
                         call.p, call.b, width, padded);
  }
};

template <typename T>
struct RowsPath {
  static const char* name() { return "rows"; }
  const Selection<T>& call;
  bool can() const { return row_bytes<T>(call.p) <= call.device.shared_bytes; }
  Status enqueue() const {
    if (call.p.length <= kWarpRow) return enqueue_groups<32, 128>();
    if (call.p.length <= kBlockRow) return enqueue_groups<256, 256>();
    return enqueue_groups<1024, 1024>();
  }

 private:
  template <int kGroup, int kThreads>
  Status enqueue_groups() const {
    constexpr int64_t kGroups = kThreads / kGroup;
    constexpr auto kKernel = select_rows<T, kGroup, kThreads>;
    BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<kKernel>("selection kernel"));
    const int64_t bytes = row_bytes<T>(call.p);
    return launch_kernel("selection kernel", kKernel, blocks_for(call.p.rows, kGroups), kThreads,
                         static_cast<size_t>(bytes * kGroups), call.stream, call.p, call.b,
                         static_cast<uint32_t>(bytes));
  }
};

template <typename T>
struct LongRowsPath {
  static const char* name() { return "long rows"; }
  const Selection<T>& call;
  Status enqueue() const {
    const Problem& p = call.p;
    const Parts parts(p, p.rows);
    RowState* const states = static_cast<RowState*>(call.workspace);
    const uint32_t blocks = blocks_for(at_most(parts.tasks, call.device.multiprocessors * kLongBlocks), 1);
    BARACUDA_RETURN_IF_FAILED(enqueue_zeros_early(states, p.rows * sizeof(RowState), call.stream));
    for (int shift = kKeyBits<T> - kDigitBits; shift >= 0; shift -= kDigitBits) {
      BARACUDA_RETURN_IF_FAILED(launch_early("digit kernel", count_digits<T>, blocks, kLongThreads, 0, call.stream, p,
                                             call.b, parts, states, shift));
      BARACUDA_RETURN_IF_FAILED(launch_early("choice kernel", choose_digits, blocks_for(p.rows, 4), 128, 0, call.stream,
                                             p, states, shift, shift + kDigitBits == kKeyBits<T>));
    }
    BARACUDA_RETURN_IF_FAILED(launch_early("place kernel", find_places<T>, blocks, kLongThreads, 0, call.stream, p,
                                           call.b, parts, states));
    return launch_early("selection kernel", store_places<T>, blocks_for(p.rows, 128), 128, 0, call.stream, p, call.b,
                        states);
  }
};

template <typename T>
Status run(const Problem& p, const SelectionBuffers<T>& b, void* workspace, Stream stream) {
  return with_device(Request<Problem, SelectionBuffers<T>>{p, b, workspace, stream}, [](const Selection<T>& request) {
    return Paths<ShortRowsPath<T>, RowsPath<T>, LongRowsPath<T>>::enqueue(request);
  });
}

// For devices without the shared memory, whichever one runs the call.
template <typename T>
size_t bytes_of(const Problem& p, const SelectionBuffers<T>*) {
  const bool is_long = p.length * static_cast<int64_t>(sizeof(Word<T>)) > kSureBytes;
  WorkspaceLayout layout;
  layout.reserve<RowState>(is_long ? p.rows : 0);
  return layout.bytes();
}

template <typename T>
__global__ void __launch_bounds__(256)
    scatter_gradients(const __grid_constant__ Problem p, const __grid_constant__ GradientBuffers<T> b) {
  for (int64_t row = grid_thread(); row < p.rows; row += grid_threads()) {
    const int64_t place = b.indices[row];
    if (place >= 0 && place < p.length) b.grad_input[begin_of(p, row) + place * p.inner] = b.grad_output[row];
  }
}

template <typename T>
Status run(const Problem& p, const GradientBuffers<T>& b, void*, Stream stream) {
  BARACUDA_RETURN_IF_FAILED(enqueue_zeros(b.grad_input, static_cast<size_t>(p.numel) * sizeof(T), stream));
  BARACUDA_RETURN_IF_FAILED(launch_kernel("gradient kernel", scatter_gradients<T>, blocks_for(p.rows, 256), 256, 0,
                                          stream, p, b));
  record_path("scatter");
  return Status::kOk;
}

}  // namespace

#define BARACUDA_PROVIDE(T)                             \
  BARACUDA_PROVIDE_LAUNCH(Problem, SelectionBuffers<T>) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, SelectionBuffers<T>)
BARACUDA_ORDER_TYPES(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE
#define BARACUDA_PROVIDE(T) BARACUDA_PROVIDE_LAUNCH(Problem, GradientBuffers<T>)
BARACUDA_ORDER_FLOATS(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::order
