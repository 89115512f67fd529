// SPDX-License-Identifier: Apache-2.0
// The lists of crowded tiles on CUDA, whatever the number of their samples: in the workspace, ordered by stable
// counting sorts in linear time.
#pragma once

#include "ops/grid_sample/cuda_bins.cuh"

namespace baracuda::grid_sample {
namespace {

// Makes a tile crowded: reserves its list. Called by one thread per tile.
template <typename C, typename Index>
__device__ void reserve_list(const Storage<C, Index>& s, int64_t tile) {
  TileRecord<Index>& record = s.records[tile];
  record.list = 1 + atomicAdd(&s.totals->listed, static_cast<Counter>(record.count));
  s.crowded[atomicAdd(&s.totals->crowded, Counter{1})] = tile;
}

constexpr int kReserveThreads = 256;

// For problems in which nothing is staged: every tile is crowded.
template <typename C, typename Index>
__global__ void __launch_bounds__(kReserveThreads) reserve_lists(TileGrid tiles, Storage<C, Index> s) {
  wait_for_kernel_before();
  for (int64_t tile = grid_thread(); tile < tiles.total; tile += grid_threads()) reserve_list(s, tile);
}

// Lists the samples of crowded tiles.
template <typename C, typename Index>
__global__ void __launch_bounds__(kBinThreads)
    fill_lists(Problem p, TileGrid tiles, const C* grid, Storage<C, Index> s) {
  wait_for_kernel_before();
  if (s.totals->crowded == 0) return;
  const int64_t total = p.n * p.samples;
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kBinThreads; base < total; base += grid_threads()) {
    const int64_t i = base + threadIdx.x;
    TouchedTiles<int64_t> touched;
    Index sample = 0;
    if (i < total) {
      const Division at(i, p.samples);
      sample = static_cast<Index>(at.remainder);
      touched = TouchedTiles<int64_t>(locate_sample(grid[2 * i], grid[2 * i + 1], p), p, tiles, at.quotient);
    }
    for (int k = 0; k < 4; ++k) {
      int64_t tile = touched.tile(k, tiles);
      if (tile >= 0 && s.records[tile].list == 0) tile = -1;
      if (!__any_sync(kFullWarp, tile >= 0)) continue;
      const Index slot = append(tile, s.records, &TileRecord<Index>::taken);
      if (tile >= 0) s.listed[s.records[tile].list - 1 + slot] = sample;
    }
  }
}

constexpr int kSortThreads = 512;
constexpr int kSortWarps = kSortThreads / 32;
// Records of a thread in a round: enough to make the block's two barriers cheap.
constexpr int kSortItems = 4;
constexpr int kDigits = 256;
static_assert(kTilePixels == kDigits);

template <typename Index>
struct SortShared {
  Index starts[kDigits];              // where a digit's next record goes
  Index places[kSortWarps][kDigits];  // the same for each warp of a round; first its counts
  Index total;
  Counter entries;
};

// Adds the calling lane to its digit's count, kDigits for none. Lanes with one digit make one atomic: a crowded tile's
// samples often share a pixel. Every lane of the warp calls.
template <typename Index>
__device__ void count_digit(int digit, Index* counts) {
  const unsigned same = __match_any_sync(kFullWarp, digit);
  const bool first = (same & ((1u << threadIdx.x % 32) - 1)) == 0;
  if (digit < kDigits && first) atomicAdd(&counts[digit], static_cast<Index>(__popc(same)));
}

// Replaces counts by the sums before them; `total` is the sum of all. The block's first warp works.
template <typename Index>
__device__ void sum_digits(Index* counts, Index* total) {
  __syncthreads();
  if (threadIdx.x < 32) {
    constexpr int kEach = kDigits / 32;
    Index sum = 0;
    for (int k = 0; k < kEach; ++k) sum += counts[threadIdx.x * kEach + k];
    Index before = sum;
    for (int distance = 1; distance < 32; distance *= 2) {
      const Index other = __shfl_up_sync(kFullWarp, before, distance);
      if (threadIdx.x >= distance) before += other;
    }
    if (threadIdx.x == 31) *total = before;
    before -= sum;
    for (int k = 0; k < kEach; ++k) {
      const Index count = counts[threadIdx.x * kEach + k];
      counts[threadIdx.x * kEach + k] = before;
      before += count;
    }
  }
  __syncthreads();
}

// Calls emit(place, record) for each of `count` records in the order of their digits, equal digits in the order of the
// records. load(i) answers record i, whose digit is kDigits for one to leave out. shared.starts holds the digits' first
// places.
template <typename Index, class Load, class Emit>
__device__ void scatter_in_order(int64_t count, SortShared<Index>& shared, Load load, Emit emit) {
  using Record = decltype(load(0));
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Index* places = shared.places[warp];
  for (int64_t base = 0; base < count; base += kSortThreads * kSortItems) {
    __syncwarp();  // the round before has read its places
    for (int digit = lane; digit < kDigits; digit += 32) places[digit] = 0;
    __syncwarp();
    // A warp's records follow each other.
    Record records[kSortItems];
    unsigned ranks[kSortItems];
#pragma unroll
    for (int item = 0; item < kSortItems; ++item) {
      const int64_t i = base + (warp * kSortItems + item) * 32 + lane;
      records[item] = i < count ? load(i) : Record{kDigits};
      const int digit = records[item].digit;
      const unsigned same = __match_any_sync(kFullWarp, digit);
      const unsigned rank = __popc(same & ((1u << lane) - 1));
      const Index before = digit < kDigits ? places[digit] : 0;
      ranks[item] = static_cast<unsigned>(before) + rank;
      __syncwarp();
      if (digit < kDigits && rank == 0) places[digit] = before + __popc(same);
      __syncwarp();
    }
    __syncthreads();
    for (int d = threadIdx.x; d < kDigits; d += kSortThreads) {
      Index next = shared.starts[d];
      for (int w = 0; w < kSortWarps; ++w) {
        const Index in_warp = shared.places[w][d];
        shared.places[w][d] = next;
        next += in_warp;
      }
      shared.starts[d] = next;
    }
    __syncthreads();
#pragma unroll
    for (int item = 0; item < kSortItems; ++item) {
      const int digit = records[item].digit;
      if (digit < kDigits) emit(places[digit] + ranks[item], records[item]);
    }
  }
  __syncthreads();
}

// Sorts `count` samples ascending through a bit for each sample of the image. They fit in shared.places.
template <typename Index>
__device__ void sort_by_bits(Index* list, int64_t count, int64_t samples, SortShared<Index>& shared) {
  uint32_t* const words = reinterpret_cast<uint32_t*>(shared.places);
  const int word_count = static_cast<int>((samples + 31) / 32);
  for (int i = threadIdx.x; i < word_count; i += kSortThreads) words[i] = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < count; i += kSortThreads) {
    const uint32_t sample = static_cast<uint32_t>(list[i]);
    atomicOr(&words[sample / 32], 1u << sample % 32);
  }
  // The words of a digit are the first threads'.
  const int each = (word_count + kDigits - 1) / kDigits;
  const int first = static_cast<int>(threadIdx.x) * each;
  const int end = threadIdx.x >= kDigits ? first : first + each < word_count ? first + each : word_count;
  __syncthreads();
  Index found = 0;
  for (int i = first; i < end; ++i) found += __popc(words[i]);
  if (threadIdx.x < kDigits) shared.starts[threadIdx.x] = found;
  sum_digits(shared.starts, &shared.total);
  Index place = threadIdx.x < kDigits ? shared.starts[threadIdx.x] : 0;
  for (int i = first; i < end; ++i) {
    for (uint32_t left = words[i]; left != 0; left &= left - 1) {
      list[place++] = static_cast<Index>(i) * 32 + static_cast<Index>(__ffs(left) - 1);
    }
  }
  __syncthreads();
}

// Sorts `count` samples ascending, an even number of radix passes that end where they began.
template <typename Index>
__device__ void sort_by_digits(Index* list, Index* other, int64_t count, int64_t samples, SortShared<Index>& shared) {
  struct Record {
    int digit;
    Index sample;
  };
  int bits = 1;
  while (samples > int64_t{1} << bits) ++bits;
  const int passes = 2 * ((bits + 15) / 16);
  const int width = (bits + passes - 1) / passes;
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = pass * width;
    const auto digit_of = [&](Index sample) { return static_cast<int>(sample >> shift) & ((1 << width) - 1); };
    for (int d = threadIdx.x; d < kDigits; d += kSortThreads) shared.starts[d] = 0;
    __syncthreads();
    for (int64_t base = 0; base < count; base += kSortThreads) {
      const int64_t i = base + threadIdx.x;
      count_digit(i < count ? digit_of(list[i]) : kDigits, shared.starts);
    }
    sum_digits(shared.starts, &shared.total);
    scatter_in_order(
        count, shared, [&](int64_t i) { return Record{digit_of(list[i]), list[i]}; },
        [&](Index place, const Record& record) { other[place] = record.sample; });
    Index* const swapped = list;
    list = other;
    other = swapped;
  }
}

// Sorts `count` samples ascending; `other` is room for as many.
template <typename Index>
__device__ void sort_samples(Index* list, Index* other, int64_t count, int64_t samples, SortShared<Index>& shared) {
  if (samples <= static_cast<int64_t>(8 * sizeof(shared.places))) {
    sort_by_bits(list, count, samples, shared);
  } else {
    sort_by_digits(list, other, count, samples, shared);
  }
}

// One crowded tile's samples and where each of them lies.
template <typename C, typename Index>
struct CrowdedTile {
  const Problem& p;
  TilePlace place;
  const C* grid;  // the image's
  Index* list;
  int64_t count;

  __device__ Position<C> position(Index sample) const {
    const C* coordinates = grid + 2 * static_cast<int64_t>(sample);
    return locate_sample(coordinates[0], coordinates[1], p);
  }
  // Whether a tap of a sample lies in the image and in this tile, whatever its weight.
  __device__ bool holds(const Position<C>& at, int tap) const {
    const int32_t x = at.x.low + tap % 2, y = at.y.low + tap / 2;
    return is_pixel(x, p.input_w) && is_pixel(y, p.input_h) && x >= place.column && x - place.column < kTileWidth &&
           y >= place.row && y - place.row < kTileHeight;
  }
};

// Counts a tile's contributions by pixel into shared.starts and its taps into shared.entries.
template <typename C, typename Index>
__device__ void count_entries(const CrowdedTile<C, Index>& tile, SortShared<Index>& shared) {
  if (threadIdx.x == 0) shared.entries = 0;
  for (int d = threadIdx.x; d < kDigits; d += kSortThreads) shared.starts[d] = 0;
  __syncthreads();
  Counter taps_here = 0;
  for (int64_t base = 0; base < tile.count; base += kSortThreads) {
    const int64_t i = base + threadIdx.x;
    const bool exists = i < tile.count;
    const Position<C> at =
        exists ? tile.position(tile.list[i]) : Position<C>{{kOutside, C(0)}, {kOutside, C(0)}};
    const Taps<C> taps = value_taps(at, tile.p);
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) {
      taps_here += tile.holds(at, tap);
      count_digit(pixel_of_tap(at, tap, taps.weight[tap], tile.place), shared.starts);
    }
  }
  atomicAdd(&shared.entries, taps_here);
  __syncthreads();
}

// Orders crowded tiles' contributions by pixel, then sample. A sample meets a pixel once, so that taps need no order.
template <typename C, typename Index>
__global__ void __launch_bounds__(kSortThreads)
    sort_lists(Problem p, TileGrid tiles, const C* grid, Storage<C, Index> s) {
  __shared__ SortShared<Index> shared;
  struct Record {
    int digit;
    Index sample;
    C weight;
  };
  wait_for_kernel_before();
  const int64_t crowded = static_cast<int64_t>(s.totals->crowded);
  for (int64_t job = blockIdx.x; job < crowded; job += gridDim.x) {
    const int64_t number = s.crowded[job];
    TileRecord<Index>& record = s.records[number];
    const TilePlace place(tiles, number);
    const CrowdedTile<C, Index> tile{p, place, grid + static_cast<int64_t>(place.image) * p.samples * 2,
                                     s.listed + (record.list - 1), static_cast<int64_t>(record.count)};
    count_entries(tile, shared);
    // Each sample is here for at least one tap: with room for those there is also room for the sort's second list.
    if (threadIdx.x == 0) {
      shared.entries = atomicAdd(&s.totals->entries, shared.entries);
      record.entries = shared.entries;
    }
    Index* begins = s.begins + number * (kTilePixels + 1);
    sum_digits(shared.starts, begins + kTilePixels);
    for (int d = threadIdx.x; d < kDigits; d += kSortThreads) begins[d] = shared.starts[d];
    Index* entry_samples = s.entry_samples + shared.entries;
    C* entry_weights = s.entry_weights + shared.entries;
    sort_samples(tile.list, entry_samples, tile.count, p.samples, shared);
    for (int d = threadIdx.x; d < kDigits; d += kSortThreads) shared.starts[d] = begins[d];
    __syncthreads();
    scatter_in_order(
        4 * tile.count, shared,
        [&](int64_t i) {
          const Index sample = tile.list[i / 4];
          const Position<C> at = tile.position(sample);
          const Taps<C> taps = value_taps(at, p);
          const int tap = static_cast<int>(i % 4);
          const C weight = tap / 2 == 0 ? (tap == 0 ? taps.weight[0] : taps.weight[1])
                                        : (tap == 2 ? taps.weight[2] : taps.weight[3]);
          return Record{pixel_of_tap(at, tap, weight, place), sample, weight};
        },
        [&](Index at, const Record& entry) {
          entry_samples[at] = entry.sample;
          entry_weights[at] = entry.weight;
        });
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
