// SPDX-License-Identifier: Apache-2.0
// Small padded tensors, many in a row: a block stages the sources of a few of them in shared memory, and finds every
// element's places in a table that it makes once for all of them.
#pragma once

#include "ops/pad/cuda_slice.cuh"

namespace baracuda::pad {
namespace {

// Blocks that wait for their stage are small, so that many wait at once.
constexpr int kTileThreads = 128;
// A thread loads this many vectors of the stage at once.
constexpr int kTileRounds = 4;
constexpr int kStageVectors = kTileThreads * kTileRounds;
// Rows of at least this are moved fast enough without.
constexpr int64_t kTileRowBytes = 256;
// Table entries, and so places of one element; the table costs more than it saves when few tiles share it.
constexpr int64_t kTablePlaces = 4096;
constexpr int64_t kMostPlaces = 16;
constexpr int64_t kFewestTiles = 4;
constexpr uint16_t kNowhere = 0xffff;

// How a slice is cut into tiles: its axes but the outermost, which counts them.
struct Tiles {
  Divider elements;  // of one tile's destination
  uint32_t count, per_block;
  int64_t stride;      // from tile to tile in the source, in bytes
  int64_t begin, end;  // the bytes of the source that a tile needs, counted from its begin
  int32_t axes;
  uint32_t places;  // table entries per element
  size_t shared_bytes;
};

// The bytes of the source from `begin` (aligned) to `end` as a thread's share of the stage.
template <typename Word>
class StageLoad {
 public:
  __device__ __forceinline__ StageLoad(const Slice<Word>& s, int64_t begin, int64_t end) : begin_(begin), end_(end) {
    vectors_ = static_cast<int>((end - begin + kVectorBytes - 1) / kVectorBytes);
    whole_ = begin >= s.readable_begin && begin + vectors_ * kVectorBytes <= s.readable_end;
    if (!whole_) return;
    const uint4* from = reinterpret_cast<const uint4*>(s.source + begin);
#pragma unroll
    for (int round = 0; round < kTileRounds; ++round) {
      const int i = round * kTileThreads + static_cast<int>(threadIdx.x);
      if (i < vectors_) loaded_[round] = from[i];
    }
  }

  __device__ __forceinline__ void finish(const Slice<Word>& s, uint4* stage) const {
    if (whole_) {
#pragma unroll
      for (int round = 0; round < kTileRounds; ++round) {
        const int i = round * kTileThreads + static_cast<int>(threadIdx.x);
        if (i < vectors_) stage[i] = loaded_[round];
      }
      return;
    }
    // Near the source's ends only the words that may be touched.
    const Word* from = reinterpret_cast<const Word*>(s.source + begin_);
    Word* to = reinterpret_cast<Word*>(stage);
    const int64_t first = (s.readable_begin - begin_) / static_cast<int64_t>(sizeof(Word));
    const int last = static_cast<int>((end_ - begin_) / static_cast<int64_t>(sizeof(Word)));
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < last; i += kTileThreads) {
      if (i >= first) to[i] = from[i];
    }
  }

 private:
  int64_t begin_, end_;
  int vectors_;
  bool whole_;
  uint4 loaded_[kTileRounds];
};

// The places of element `element` of a tile, in words from the first that the tile needs. Answers how many there are.
template <typename T, bool kSums>
__device__ __forceinline__ uint32_t find_places(const Slice<T>& s, const Tiles& tiles, uint32_t element,
                                                uint16_t* places) {
  Steps steps[kMaxRank];
  int64_t source = -tiles.begin;
  bool inside = true;
  uint32_t rest = element;
#pragma unroll 1
  for (int a = 0; a < tiles.axes; ++a) {
    const DeviceAxis& axis = s.axes[a];
    const uint32_t above = axis.extent.divide(rest);
    const uint32_t index = rest - above * axis.extent.divisor;
    rest = above;
    if (kSums && axis.repeats) {
      const uint32_t kept = index - axis.origin;
      inside = inside && kept < axis.padded.kept;
      if (!inside) break;
      steps[axis.place] = {preimages_of(axis.padded, kept), axis.source_stride};
      source -= static_cast<int64_t>(axis.first) * axis.source_stride;
      continue;
    }
    uint32_t offset = index - axis.begin;
    if (offset >= axis.count) {
      inside = inside && s.folds;
      if (!inside) break;
      offset = static_cast<uint32_t>(folded(axis, index));
    }
    source += static_cast<int32_t>(offset) * axis.source_stride;
  }
  if (!inside) {
    places[0] = kNowhere;
    return 0;
  }
  uint32_t count = 0;
  const auto put = [&](int64_t place) {
    places[count++] = static_cast<uint16_t>(place / static_cast<int64_t>(sizeof(T)));
  };
  if (kSums) {
    for_each_row(steps, s.repeating, source, put);
  } else {
    put(source);
  }
  return count;
}

template <typename T, bool kSums>
__global__ void __launch_bounds__(kTileThreads)
    write_tiles(const __grid_constant__ Slice<T> s, const __grid_constant__ Tiles tiles) {
  constexpr int32_t kWords = kVectorBytes / sizeof(T);
  constexpr int64_t kBytes = sizeof(T);
  extern __shared__ uint4 stage[];
  uint16_t* const table = reinterpret_cast<uint16_t*>(stage + kStageVectors);
  uint8_t* const counts = reinterpret_cast<uint8_t*>(table + tiles.elements.divisor * tiles.places);
  const uint32_t first = blockIdx.x * tiles.per_block;
  const uint32_t count = tiles.count - first < tiles.per_block ? tiles.count - first : tiles.per_block;
  const int64_t begin = first * tiles.stride + tiles.begin;
  const int64_t end = (first + count - 1) * tiles.stride + tiles.end;
  const uint32_t shift = static_cast<uint32_t>(reinterpret_cast<uint64_t>(s.source) + begin) % kVectorBytes;
  const StageLoad<T> load(s, begin - shift, end);
  for (uint32_t e = threadIdx.x; e < tiles.elements.divisor; e += kTileThreads) {
    const uint32_t found = find_places<T, kSums>(s, tiles, e, table + e * tiles.places);
    if (kSums) counts[e] = static_cast<uint8_t>(found);
  }
  load.finish(s, stage);
  __syncthreads();
  const T* const staged = reinterpret_cast<const T*>(stage) + shift / kBytes;
  const uint32_t tile_words = static_cast<uint32_t>(tiles.stride / kBytes);
  char* const destination = s.destination + static_cast<int64_t>(first) * tiles.elements.divisor * kBytes;
  const uint32_t extent = count * tiles.elements.divisor;
  for (uint32_t slot = threadIdx.x;; slot += kTileThreads) {
    const Span span = span_of<T>(slot, destination, extent);
    if (span.begin >= span.end) break;
    const uint32_t element = static_cast<uint32_t>(span.first + span.begin);
    uint32_t tile = tiles.elements.divide(element);
    uint32_t within = element - tile * tiles.elements.divisor;
    T words[kWords];
#pragma unroll
    for (int32_t k = 0; k < kWords; ++k) {
      if (k < span.begin || k >= span.end) continue;
      const T* const source = staged + tile * tile_words;
      const uint16_t* const places = table + within * tiles.places;
      if constexpr (kSums) {
        const uint32_t terms = counts[within];
        Compute<T> sum = 0;
        T term{};
        for (uint32_t j = 0; j < terms; ++j) {
          term = source[places[j]];
          sum += widen(term);
        }
        words[k] = terms <= 1 ? term : narrow<T>(sum);
      } else {
        words[k] = places[0] == kNowhere ? s.value : source[places[0]];
      }
      if (++within == tiles.elements.divisor) {
        within = 0;
        ++tile;
      }
    }
    store(span, words);
  }
}

// Whether a slice is worth cutting into tiles, and how.
template <typename T>
bool cut_into_tiles(const Problem& p, const Slice<T>& s, bool sums, Tiles* tiles) {
  constexpr int64_t kBytes = sizeof(T);
  const int32_t outer = s.rank - 1;
  if (s.runs > 1 || s.axes_in_run != s.rank || outer < 1 || s.axes[0].extent.divisor * kBytes >= kTileRowBytes) return false;
  const DeviceAxis& counted = s.axes[outer];
  if (counted.repeats || counted.count != counted.extent.divisor || counted.source_stride <= 0) return false;
  int64_t elements = 1, places = 1, first = 0, last = 0;
  for (int32_t a = 0; a < outer; ++a) {
    const DeviceAxis& axis = s.axes[a];
    if (!axis.repeats && axis.count == 0) return false;
    elements *= axis.extent.divisor;
    const Reach reach = reach_of(p, p.axes[p.rank - 1 - a], axis);
    const int64_t one = reach.first * axis.source_stride, other = reach.last * axis.source_stride;
    first += one < other ? one : other;
    last += one < other ? other : one;
    if (elements > kTablePlaces || last - first > kStageVectors * kVectorBytes) return false;
    uint32_t most = 1;
    for (uint32_t i = 0; sums && axis.repeats && i < axis.padded.kept; ++i) {
      const uint32_t count = preimages_of(axis.padded, i).count;
      if (count > most) most = count;
    }
    if (most > kMostPlaces) return false;
    places *= most;
    if (places > kMostPlaces) return false;
  }
  const int64_t stretch = last - first + kBytes, room = (kStageVectors - 2) * kVectorBytes;
  // What lies between the tiles' sources is loaded too.
  if (elements * places > kTablePlaces || counted.source_stride > 2 * stretch || stretch > room) return false;
  int64_t per_block = 1 + (room - stretch) / counted.source_stride;
  // Blocks that begin where vectors do.
  const int64_t step = kVectorBytes / kBytes;
  if (per_block > step) per_block -= per_block % step;
  if (per_block < kFewestTiles || counted.extent.divisor < per_block) return false;
  tiles->elements = Divider(elements);
  tiles->count = counted.extent.divisor;
  tiles->per_block = static_cast<uint32_t>(per_block);
  tiles->stride = counted.source_stride;
  tiles->begin = first;
  tiles->end = last + kBytes;
  tiles->axes = outer;
  tiles->places = static_cast<uint32_t>(places);
  tiles->shared_bytes = static_cast<size_t>(kStageVectors * kVectorBytes + elements * (2 * places + (sums ? 1 : 0)));
  return true;
}

}  // namespace
}  // namespace baracuda::pad
