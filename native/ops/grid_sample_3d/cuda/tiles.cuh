// SPDX-License-Identifier: Apache-2.0
// The backward's sums on CUDA: a block owns a tile, a thread a voxel. It stages the tile's samples in shared memory, a
// segment of the list at a time, lists each voxel's contributions in the order of the samples and adds them for a few
// channels at once. The gradient to the position of a sample is summed in its home from the tile's input.
#pragma once

#include "core/cuda_shared.cuh"
#include "ops/grid_sample_3d/cuda/lists.cuh"

namespace baracuda::grid_sample_3d {
namespace {

constexpr int kTileThreads = kTileVoxels;
static_assert(kTileThreads == kListThreads);  // as sum_counts() has it
// Channels of a step, whose values lie side by side in shared memory. More of f64 would leave room for one block a
// multiprocessor.
template <typename C>
constexpr int kStepChannels = sizeof(C) == 4 ? 8 : 4;
// Those of one 16-byte access or two.
constexpr int kGroup = 4;
// A tile's voxels of the input with the next ones on each axis.
constexpr int kPatchWidth = kTileWidth + 1, kPatchHeight = kTileHeight + 1, kPatchDepth = kTileDepth + 1;
constexpr int kPatchVoxels = kPatchWidth * kPatchHeight * kPatchDepth;

template <typename C, typename Index, int kStep>
struct TileShared {
  alignas(16) C gradients[kSegment][kStep];
  alignas(16) C patch[kPatchVoxels][kStep];
  C fractions[kAxes][kSegment];
  Index samples[kSegment];
  uint16_t places[kSegment];               // where a sample's first tap lies, from (-1, -1, -1) on; and kAtHome
  uint16_t entries[kTaps * kSegment];      // contributions by voxel: the tap above the slot
  int starts[kTileVoxels + 1];                // where a voxel's contributions start
  int next[kTileVoxels];
  int warp_totals[kTileThreads / 32];
};

constexpr int kPlaceBits = 4;
constexpr uint16_t kAtHome = 1u << 15;

// A sample's first tap from the tile's corner.
struct LocalPlace {
  int x, y, z;

  __device__ explicit LocalPlace(uint16_t packed) {
    constexpr int kMask = (1 << kPlaceBits) - 1;
    x = (packed & kMask) - 1;
    y = (packed >> kPlaceBits & kMask) - 1;
    z = (packed >> (2 * kPlaceBits) & kMask) - 1;
  }
};

// What one tap of an axis weighs, whether it is a voxel or not.
template <typename C>
__device__ __forceinline__ C axis_weight(C fraction, int bit) {
  return bit == 0 ? C(1) - fraction : fraction;
}

// What a tap weighs, whether it is a voxel or not.
template <typename C>
__device__ __forceinline__ C tap_weight(const C (&fractions)[kAxes], int tap) {
  const C x = axis_weight(fractions[0], tap % 2);
  const C y = axis_weight(fractions[1], tap / 2 % 2);
  const C z = axis_weight(fractions[2], tap / 4);
  return z * (y * x);
}

template <typename C, typename Index, int kStep>
__device__ __forceinline__ C weight_of(const TileShared<C, Index, kStep>& shared, int slot, int tap) {
  const C fractions[kAxes] = {shared.fractions[0][slot], shared.fractions[1][slot], shared.fractions[2][slot]};
  return tap_weight(fractions, tap);
}

// A tile as its owner sees it.
struct OwnedTile {
  TilePlace place;
  int64_t count;  // of samples
  int32_t width, height, depth;  // in voxels of the volume

  __device__ OwnedTile(const Problem& p, const TileGrid& tiles, int64_t tile, int64_t samples)
      : place(tiles, tile),
        count(samples),
        width(p.input_w - place.column < kTileWidth ? p.input_w - place.column : kTileWidth),
        height(p.input_h - place.row < kTileHeight ? p.input_h - place.row : kTileHeight),
        depth(p.input_d - place.plane < kTileDepth ? p.input_d - place.plane : kTileDepth) {}

  // The tile's voxel on which a tap lies, or -1.
  __device__ __forceinline__ int voxel(const LocalPlace& at, int tap) const {
    const int x = at.x + tap % 2, y = at.y + tap / 2 % 2, z = at.z + tap / 4;
    const bool here = x >= 0 && x < width && y >= 0 && y < height && z >= 0 && z < depth;
    return here ? (z * kTileHeight + y) * kTileWidth + x : -1;
  }
};

// Stages a segment of `count` samples and lists each voxel's contributions in their order. Every thread calls.
template <typename C, typename Index, int kStep>
__device__ void stage_segment(const Problem& p, const OwnedTile& tile, const C* grid, const Index* list, int count,
                              TileShared<C, Index, kStep>& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const bool is_nearest = p.rule.mode == Mode::kNearest;
  shared.starts[thread] = 0;
  __syncthreads();
  for (int slot = thread; slot < count; slot += kTileThreads) {
    const Index sample = list[slot];
    const Position<C> at = locate_sample(grid + kAxes * static_cast<int64_t>(sample), p);
    const int x = at.x.low - tile.place.column, y = at.y.low - tile.place.row, z = at.z.low - tile.place.plane;
    // A sample is at home in the tile of its first tap, clamped to the volume.
    const bool at_home = (x >= 0 || at.x.low < 0) && (y >= 0 || at.y.low < 0) && (z >= 0 || at.z.low < 0);
    const int packed = (x + 1) | (y + 1) << kPlaceBits | (z + 1) << (2 * kPlaceBits);
    shared.samples[slot] = sample;
    shared.places[slot] = static_cast<uint16_t>(packed | (at_home ? kAtHome : 0));
    shared.fractions[0][slot] = at.x.fraction;
    shared.fractions[1][slot] = at.y.fraction;
    shared.fractions[2][slot] = at.z.fraction;
    const LocalPlace place(shared.places[slot]);
    const C fractions[kAxes] = {at.x.fraction, at.y.fraction, at.z.fraction};
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const int voxel = tile.voxel(place, tap);
      if (voxel >= 0 && tap_weight(fractions, tap) != C(0)) atomicAdd(&shared.starts[voxel], 1);
      if (is_nearest) break;  // the others weigh 0
    }
  }
  sum_counts<kTileVoxels>(shared.starts, shared.warp_totals);
  shared.next[thread] = shared.starts[thread];
  __syncthreads();
  for (int slot = thread; slot < count; slot += kTileThreads) {
    const LocalPlace place(shared.places[slot]);
    const C fractions[kAxes] = {shared.fractions[0][slot], shared.fractions[1][slot], shared.fractions[2][slot]};
    // All places are asked for before the first is used.
    int places[kTaps];
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const int voxel = tap > 0 && is_nearest ? -1 : tile.voxel(place, tap);
      const bool gives = voxel >= 0 && tap_weight(fractions, tap) != C(0);
      places[tap] = gives ? atomicAdd(&shared.next[voxel], 1) : -1;
    }
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      if (places[tap] >= 0) shared.entries[places[tap]] = static_cast<uint16_t>(tap << kSegmentShift | slot);
    }
  }
  __syncthreads();
  // Each owner sorts its contributions by sample: they are few. A list of one segment is in no order yet.
  const auto sample_of = [&](uint16_t entry) { return shared.samples[entry & (kSegment - 1)]; };
  const int begin = shared.starts[thread], end = shared.starts[thread + 1];
  for (int i = begin + 1; i < end; ++i) {
    const uint16_t entry = shared.entries[i];
    const Index sample = sample_of(entry);
    int to = i;
    for (; to > begin && sample_of(shared.entries[to - 1]) > sample; --to) shared.entries[to] = shared.entries[to - 1];
    shared.entries[to] = entry;
  }
  __syncthreads();
}

// Stores values side by side.
template <typename C, int kCount>
__device__ __forceinline__ void store_step(const C (&values)[kCount], C* to) {
  static_assert(kCount % kGroup == 0);
#pragma unroll
  for (int k = 0; k < kCount; k += kGroup) {
    if constexpr (sizeof(C) == 4) {
      *reinterpret_cast<float4*>(to + k) = make_float4(values[k], values[k + 1], values[k + 2], values[k + 3]);
    } else {
      reinterpret_cast<double2*>(to + k)[0] = make_double2(values[k], values[k + 1]);
      reinterpret_cast<double2*>(to + k)[1] = make_double2(values[k + 2], values[k + 3]);
    }
  }
}

// Loads values that lie side by side.
template <typename C, int kStep>
__device__ __forceinline__ void load_step(const C* from, C (&values)[kStep]) {
  using Vector = std::conditional_t<sizeof(C) == 4, float4, double2>;
  constexpr int kEach = static_cast<int>(sizeof(Vector) / sizeof(C));
#pragma unroll
  for (int i = 0; i < kStep / kEach; ++i) {
    const Vector vector = reinterpret_cast<const Vector*>(from)[i];
    values[i * kEach] = vector.x;
    values[i * kEach + 1] = vector.y;
    if constexpr (kEach == 4) {
      values[i * kEach + 2] = vector.z;
      values[i * kEach + 3] = vector.w;
    }
  }
}

// Loads the values of one place of as many planes as there are values; 0 for those beyond `channels`.
template <typename T, int kCount>
__device__ __forceinline__ void load_planes(const T* from, int64_t stride, int channels,
                                            Compute<T> (&values)[kCount]) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) values[k] = k < channels ? widen(from[k * stride]) : Compute<T>(0);
}

// Stages the tile's input, `channels` planes from `planes` on; what is outside of the volume stays as it was.
template <typename T, typename Index, int kStep>
__device__ void stage_patch(const Problem& p, const OwnedTile& tile, const T* planes, int channels,
                            TileShared<Compute<T>, Index, kStep>& shared) {
  using C = Compute<T>;
  for (int voxel = static_cast<int>(threadIdx.x); voxel < kPatchVoxels; voxel += kTileThreads) {
    const int32_t x = tile.place.column + voxel % kPatchWidth;
    const int32_t y = tile.place.row + voxel / kPatchWidth % kPatchHeight;
    const int32_t z = tile.place.plane + voxel / (kPatchWidth * kPatchHeight);
    if (x >= p.input_w || y >= p.input_h || z >= p.input_d) continue;
    const T* from = planes + (static_cast<int64_t>(z) * p.input_h + y) * p.input_w + x;
#pragma unroll
    for (int first = 0; first < kStep; first += kGroup) {
      C values[kGroup];
      load_planes(from + first * p.voxels, p.voxels, channels - first, values);
      store_step(values, &shared.patch[voxel][first]);
    }
  }
}

// Stages the gradients of a segment's samples, `channels` planes from `planes` on.
template <typename T, typename Index, int kStep>
__device__ void stage_gradients(const Problem& p, const T* planes, int channels, int count,
                                TileShared<Compute<T>, Index, kStep>& shared) {
  using C = Compute<T>;
  for (int slot = static_cast<int>(threadIdx.x); slot < count; slot += kTileThreads) {
    const T* from = planes + static_cast<int64_t>(shared.samples[slot]);
#pragma unroll
    for (int first = 0; first < kStep; first += kGroup) {
      C values[kGroup];
      load_planes(from + first * p.samples, p.samples, channels - first, values);
      store_step(values, &shared.gradients[slot][first]);
    }
  }
}

// A voxel's sums of a step of channels.
template <typename C, int kStep>
struct VoxelSums {
  C partials[kStep], totals[kStep];
  int count;  // of contributions in the open chunk

  __device__ VoxelSums() : partials{}, totals{}, count(0) {}

  __device__ __forceinline__ void add(C weight, const C (&gradients)[kStep]) {
    if (count == kChunk) close_chunk();
    ++count;
#pragma unroll
    for (int k = 0; k < kStep; ++k) partials[k] = fma(weight, gradients[k], partials[k]);
  }
  __device__ __forceinline__ void close_chunk() {
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
      totals[k] = totals[k] + partials[k];
      partials[k] = C(0);
    }
    count = 0;
  }
};

// Adds a segment's contributions to the calling thread's voxel.
template <typename C, typename Index, int kStep>
__device__ __forceinline__ void add_segment(const TileShared<C, Index, kStep>& shared, VoxelSums<C, kStep>& sums) {
  const int begin = shared.starts[threadIdx.x], end = shared.starts[threadIdx.x + 1];
  int next = begin < end ? shared.entries[begin] : 0;
  for (int i = begin; i < end; ++i) {
    const int entry = next;
    if (i + 1 < end) next = shared.entries[i + 1];  // on its way while this one is added
    const int slot = entry & (kSegment - 1), tap = entry >> kSegmentShift;
    C gradients[kStep];
    load_step(shared.gradients[slot], gradients);
    sums.add(weight_of(shared, slot, tap), gradients);
  }
}

// Adds a step of channels to the sums of the segment's samples that are at home, which stand in `sums`; `begins` and
// `ends` say whether it is the first of its chunk and the last of all. Then the sum is what `grid` asks for.
template <typename C, typename Index, int kStep>
__device__ void add_slopes(const Problem& p, const OwnedTile& tile, int channels, int count, bool begins, bool ends,
                           const C* grid, C* sums, const TileShared<C, Index, kStep>& shared) {
  for (int slot = static_cast<int>(threadIdx.x); slot < count; slot += kTileThreads) {
    if ((shared.places[slot] & kAtHome) == 0) continue;
    const LocalPlace local(shared.places[slot]);
    const Position<C> at{{tile.place.column + local.x, shared.fractions[0][slot]},
                         {tile.place.row + local.y, shared.fractions[1][slot]},
                         {tile.place.plane + local.z, shared.fractions[2][slot]}};
    const SlopeWeights<C> weights(at, p);
    C slopes[kAxes][kStep] = {};
    bool has_tap[kAxes] = {};
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const C by[kAxes] = {weights.by_x(tap), weights.by_y(tap), weights.by_z(tap)};
      if (by[0] == C(0) && by[1] == C(0) && by[2] == C(0)) continue;
      const int x = local.x + tap % 2, y = local.y + tap / 2 % 2, z = local.z + tap / 4;
      C values[kStep];
      load_step(shared.patch[(z * kPatchHeight + y) * kPatchWidth + x], values);
#pragma unroll
      for (int axis = 0; axis < kAxes; ++axis) {
        if (by[axis] == C(0)) continue;
        has_tap[axis] = true;
#pragma unroll
        for (int k = 0; k < kStep; ++k) slopes[axis][k] = fma(by[axis], values[k], slopes[axis][k]);
      }
    }
    C gradients[kStep];
    load_step(shared.gradients[slot], gradients);
    const int64_t first = kAxes * static_cast<int64_t>(shared.samples[slot]);
#pragma unroll
    for (int axis = 0; axis < kAxes; ++axis) {
      C sum = begins ? C(0) : sums[first + axis];
#pragma unroll
      for (int k = 0; k < kStep; ++k) {
        if (k < channels) sum = fma(gradients[k], slopes[axis][k], sum);
      }
      if (ends) sum = by_coordinate(C(0) + sum, has_tap[axis], grid[first + axis], axis, p);
      sums[first + axis] = sum;
    }
  }
}

// Blocks that share a multiprocessor, for which registers suffice.
template <typename C, bool kSlopes>
constexpr int kBlocksAtOnce = sizeof(C) == 8 || kSlopes ? 2 : 3;

// Both gradients, without kSlopes that to the input alone. A block takes a tile and a chunk of channels at a time.
template <typename T, typename Index, bool kSlopes, int kStep>
__global__ void __launch_bounds__(kTileThreads, kBlocksAtOnce<Compute<T>, kSlopes>)
    sum_tiles(Problem p, TileGrid tiles, BackwardBuffers<T> b, Storage<Compute<T>, Index> s) {
  using C = Compute<T>;
  wait_for_kernel_before();
  let_kernel_after_start();
  uint4* const memory = dynamic_shared<uint4>();
  TileShared<C, Index, kStep>& shared = *reinterpret_cast<TileShared<C, Index, kStep>*>(memory);
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t chunks = groups_of(p.c, kChannelChunk);
  for (int64_t job = blockIdx.x; job < tiles.total * chunks; job += gridDim.x) {
    const Division at(job, chunks);
    const TileRecord<Index>& record = s.records[at.quotient];
    const OwnedTile tile(p, tiles, at.quotient, static_cast<int64_t>(record.count));
    const Index* const list = s.listed + record.list;
    const int64_t volume = tile.place.volume;
    const C* const grid = b.grid + volume * p.samples * kAxes;
    // The sums of a chunk that is not alone are added up later.
    const int64_t to_sums = volume * p.samples * kAxes;
    C* const slopes = !kSlopes ? nullptr
                      : chunks == 1 ? b.grad_grid + to_sums
                                    : s.slopes + at.remainder * p.grid_numel + to_sums;
    const int32_t begin = static_cast<int32_t>(at.remainder) * kChannelChunk;
    const int32_t end = p.c - begin < kChannelChunk ? p.c : begin + kChannelChunk;
    const bool is_one_segment = tile.count <= kSegment;
    if (is_one_segment) stage_segment(p, tile, grid, list, static_cast<int>(tile.count), shared);
    for (int32_t channel = begin; channel < end; channel += kStep) {
      const int channels = end - channel < kStep ? end - channel : kStep;
      const int64_t plane = volume * p.c + channel;
      if constexpr (kSlopes) {
        stage_patch(p, tile, b.input + input_offset(p, volume) + channel * p.voxels, channels, shared);
      }
      VoxelSums<C, kStep> sums;
      for (int64_t first = 0; first < tile.count; first += kSegment) {
        const int64_t left = tile.count - first;
        const int count = left < kSegment ? static_cast<int>(left) : kSegment;
        if (!is_one_segment) stage_segment(p, tile, grid, list + first, count, shared);
        stage_gradients(p, b.grad_output + plane * p.samples, channels, count, shared);
        __syncthreads();
        add_segment(shared, sums);
        if constexpr (kSlopes) {
          add_slopes(p, tile, channels, count, channel == begin, chunks == 1 && channel + kStep >= end, grid, slopes,
                     shared);
        }
        __syncthreads();  // what comes next overwrites the gradients
      }
      sums.close_chunk();
      const int x = thread % kTileWidth, y = thread / kTileWidth % kTileHeight, z = thread / (kTileWidth * kTileHeight);
      if (x < tile.width && y < tile.height && z < tile.depth) {
        T* to = b.grad_input + plane * p.voxels +
                (static_cast<int64_t>(tile.place.plane + z) * p.input_h + tile.place.row + y) * p.input_w +
                tile.place.column + x;
#pragma unroll
        for (int k = 0; k < kStep; ++k) {
          if (k < channels) to[k * p.voxels] = narrow<T>(sums.totals[k]);
        }
      }
    }
    __syncthreads();  // the next tile's samples overwrite these
  }
}

// Adds up the chunks of the gradients to positions, in order.
template <typename C, typename Index>
__global__ void __launch_bounds__(kListThreads, 2)
    add_slope_chunks(Problem p, const C* grid, Storage<C, Index> s, C* grad_grid) {
  wait_for_kernel_before();
  const int64_t samples = p.n * p.samples, chunks = groups_of(p.c, kChannelChunk);
  for (int64_t i = grid_thread(); i < samples; i += grid_threads()) {
    const Position<C> at = locate_sample(grid + kAxes * i, p);
    if (at.is_outside()) continue;  // it is 0 already
    const SlopeTaps<C> taps = slope_taps(at, p);
    for (int axis = 0; axis < kAxes; ++axis) {
      C total = C(0);
      const C* const sums = s.slopes + kAxes * i + axis;
      for (int64_t chunk = 0; chunk < chunks; ++chunk) total = total + sums[chunk * p.grid_numel];
      grad_grid[kAxes * i + axis] = by_coordinate(total, any_tap(taps.by[axis]), grid[kAxes * i + axis], axis, p);
    }
  }
}

}  // namespace
}  // namespace baracuda::grid_sample_3d
