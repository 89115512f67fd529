// SPDX-License-Identifier: Apache-2.0
// Scans on CUDA.
//
//   path           calls                         what happens
//   rows           dense rows (inner = 1)        a tile, or some short rows, in registers; tiles of one row wait for
//                                                each other
//   columns        many rows side by side        some warps go along 32 rows
//   column blocks  all                           what each block of 128 elements adds by itself, then what stands in
//                                                front of each, then the results
#include "core/cuda_launch.cuh"
#include "core/cuda_zeros.cuh"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/scan/cuda/column_blocks.cuh"
#include "ops/scan/cuda/columns.cuh"
#include "ops/scan/cuda/rows.cuh"
#include "ops/scan/launch.h"
#include "ops/scan/math.h"

namespace baracuda::scan {
namespace {

// Groups of 32 rows that keep a device busy by themselves; blocks read their rows twice, if a row has several.
constexpr int64_t kManyGroups = 96;

template <class Op>
struct RowScratch {
  WorkspaceLayout layout;
  RowBoards<Op> boards{};

  RowScratch(const Problem& p, void* workspace) {
    if (p.tiles < 2) return;
    const int64_t tiles = p.rows * p.tiles;
    boards.next = workspace_array<unsigned long long>(workspace, layout.reserve<unsigned long long>(1));
    boards.carries = board<typename Op::Carry>(tiles, workspace);
    if constexpr (Op::kHasMaxima) boards.maxima = board<typename Op::C>(tiles, workspace);
  }

 private:
  template <typename V>
  Board<V> board(int64_t tiles, void* workspace) {
    const int64_t words = Board<V>::words(tiles);
    Board<V> made{};
    made.totals = workspace_array<uint64_t>(workspace, layout.reserve<uint64_t>(words));
    made.carries = workspace_array<uint64_t>(workspace, layout.reserve<uint64_t>(words));
    return made;
  }
};

template <class Op>
struct ColumnScratch {
  WorkspaceLayout layout;
  Fronts<Op> fronts{};

  ColumnScratch(const Problem& p, void* workspace) {
    using State = typename Op::State;
    using Carry = typename Op::Carry;
    using C = typename Op::C;
    const int64_t blocks = BlockPlan(p).blocks;
    if (blocks < 2) return;
    const int64_t of_blocks = blocks * p.rows, of_tiles = (p.tiles - 1) * p.rows;
    fronts.befores = workspace_array<State>(workspace, layout.reserve<State>(of_blocks));
    fronts.carries = workspace_array<Carry>(workspace, layout.reserve<Carry>(of_tiles));
    if constexpr (Op::kHasMaxima) {
      fronts.maxima = workspace_array<C>(workspace, layout.reserve<C>(of_blocks));
      fronts.maxima_of_tiles = workspace_array<C>(workspace, layout.reserve<C>(of_tiles));
    }
  }
};

bool is_aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

template <class Op>
struct RowsPath {
  using T = typename Op::Element;
  static const char* name() { return "rows"; }
  const Request<Problem, typename Op::Buffers>& call;
  bool can() const { return call.p.inner == 1; }
  size_t bytes() const { return RowScratch<Op>(call.p, nullptr).layout.bytes(); }
  // Whether every lane's elements begin where vectors do.
  bool has_vectors() const {
    const bool whole = call.p.length % kQuad == 0;
    bool aligned = is_aligned(call.b.input, alignof(Quad<T>)) && is_aligned(call.b.output, alignof(Quad<T>));
    if constexpr (Op::kHasIndices) aligned = aligned && is_aligned(call.b.indices, alignof(Quad<int64_t>));
    return aligned && (whole || (call.p.rows == 1 && !call.p.reverse));
  }
  Status enqueue() const {
    const Problem& p = call.p;
    const RowScratch<Op> scratch(p, call.workspace);
    const RowPlan plan(p, has_vectors());
    if (p.tiles < 2) {
      return launch_kernel("scan kernel", scan_rows<Op>, blocks_for(plan.blocks, 1), kRowThreads, 0, call.stream, p,
                           call.b, plan, scratch.boards);
    }
    DeviceTraits device;
    BARACUDA_RETURN_IF_FAILED(device_traits(&device));
    // As many as run at a time, of which one follows the others.
    const int64_t blocks = 1 + at_most(plan.blocks, device.multiprocessors * kRowBlocks<Op> - 1);
    BARACUDA_RETURN_IF_FAILED(enqueue_zeros_early(call.workspace, scratch.layout.bytes(), call.stream));
    return launch_early("scan kernel", scan_rows<Op>, static_cast<uint32_t>(blocks), kRowThreads, 0, call.stream, p,
                        call.b, plan, scratch.boards);
  }
};

template <class Op>
struct ColumnsPath {
  static const char* name() { return "columns"; }
  const Request<Problem, typename Op::Buffers>& call;
  bool can() const { return call.p.length > kBlock && ceil_div(call.p.rows, 32) >= kManyGroups; }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    const ColumnPlan<Op> plan(call.p);
    return launch_kernel("scan kernel", scan_columns<Op>, blocks_for(plan.blocks, 1), kColumnThreads, 0, call.stream,
                         call.p, call.b, plan);
  }
};

template <class Op>
struct ColumnBlocksPath {
  static const char* name() { return "column blocks"; }
  const Request<Problem, typename Op::Buffers>& call;
  size_t bytes() const { return ColumnScratch<Op>(call.p, nullptr).layout.bytes(); }
  Status enqueue() const {
    const BlockPlan plan(call.p);
    const Fronts<Op> fronts = ColumnScratch<Op>(call.p, call.workspace).fronts;
    if (plan.blocks > 1) {
      if constexpr (Op::kHasMaxima) BARACUDA_RETURN_IF_FAILED((enqueue_fronts<Pass::kMaxima>(plan, fronts)));
      BARACUDA_RETURN_IF_FAILED((enqueue_fronts<Pass::kTotals>(plan, fronts)));
    }
    return enqueue_pass<Pass::kResults>(plan, plan.blocks, fronts);
  }

 private:
  template <Pass kPass>
  Status enqueue_pass(const BlockPlan& plan, int64_t blocks, const Fronts<Op>& fronts) const {
    const int64_t warps = plan.warps(blocks);
    return launch_kernel("scan kernel", scan_blocks<Op, kPass>, blocks_for(warps, kBlockThreads / 32), kBlockThreads, 0,
                         call.stream, call.p, call.b, plan, fronts, warps);
  }
  // What blocks and tiles add, and from that what stands in front of each.
  template <Pass kPass>
  Status enqueue_fronts(const BlockPlan& plan, const Fronts<Op>& fronts) const {
    constexpr bool kMaxima = kPass == Pass::kMaxima;
    const Problem& p = call.p;
    BARACUDA_RETURN_IF_FAILED(enqueue_pass<kPass>(plan, plan.blocks - 1, fronts));
    BARACUDA_RETURN_IF_FAILED(launch_kernel("scan kernel of blocks", join_blocks<Op, kMaxima>,
                                            blocks_for(p.tiles * p.rows, kBlockThreads), kBlockThreads, 0, call.stream,
                                            p, plan, fronts));
    if (p.tiles < 3) return Status::kOk;
    return launch_kernel("scan kernel of tiles", join_tiles<Op, kMaxima>, blocks_for(p.rows, kBlockThreads),
                         kBlockThreads, 0, call.stream, p, fronts);
  }
};

template <class Op>
using ScanPaths = Paths<RowsPath<Op>, ColumnsPath<Op>, ColumnBlocksPath<Op>>;

template <class Buffers>
Status run(const Problem& p, const Buffers& b, void* workspace, Stream stream) {
  using Op = typename OperatorOf<Buffers>::type;
  return ScanPaths<Op>::enqueue(Request<Problem, Buffers>{p, b, workspace, stream});
}

template <class Buffers>
size_t bytes_of(const Problem& p, const Buffers*) {
  using Op = typename OperatorOf<Buffers>::type;
  if (p.numel == 0) return 0;
  const Buffers none{};
  return ScanPaths<Op>::choose(Request<Problem, Buffers>{p, none, nullptr, nullptr},
                               [](const auto& path) { return path.bytes(); });
}

}  // namespace

#define BARACUDA_PROVIDE(...)                   \
  BARACUDA_PROVIDE_LAUNCH(Problem, __VA_ARGS__) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, __VA_ARGS__)
BARACUDA_SCAN_BUFFERS(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::scan
