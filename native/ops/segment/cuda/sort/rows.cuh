// SPDX-License-Identifier: Apache-2.0
// Brings rows in the order of their segments on CUDA. Ids in any order take a stable radix sort, least significant
// digit first: all digits are counted in one pass over the ids; then each digit takes one launch, in which a tile
// learns what the tiles before it hold by looking back at what they have published. Few rows take one launch a digit,
// in which every block counts all ids itself.
#pragma once

#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "ops/segment/cuda/sort/begins.cuh"
#include "ops/segment/cuda/columns.cuh"
#include "ops/segment/pieces.h"

namespace baracuda::segment {
namespace {

constexpr int kSortThreads = 512;
constexpr int kSortWarps = kSortThreads / 32;
// 512 digits, one a thread: two launches up to 262,000 segments, four up to 2^31.
constexpr int kDigitBits = 9;
constexpr int kMostDigits = 1 << kDigitBits;
constexpr int kMaxPasses = 4;
static_assert(kMostDigits == kSortThreads);
// Records a thread keeps in registers. What tiles read of each other grows with the square of their number, so they are
// as large as registers allow, but no larger than leaves so many tiles: all multiprocessors have work.
constexpr int kMostItems = 16;
constexpr int kLeastItems = 2;
constexpr int64_t kTilesWanted = 100;
// Of 16 records a thread a tile takes 82 KiB of shared memory, of 8 it takes 50, which all devices have.
constexpr int kItemsAnywhere = 8;
// Blocks that count on a multiprocessor at the same time.
constexpr int kCountBlocks = 3;
// States that a thread reads at once as it looks back: several steps are in flight, few are read in vain.
constexpr int kLookBack = 8;

// Up to so many rows a block counts all ids in less time than a launch takes; 11 bits then spare a launch up to 2047
// segments, and take 48 KiB of shared memory.
constexpr int32_t kFewRows = 32768;
constexpr int kFewDigitBits = 11;

struct Digit {
  int32_t shift, bits;
  BARACUDA_HD uint32_t count() const { return 1u << bits; }
  BARACUDA_HD uint32_t of(int32_t key) const { return (static_cast<uint32_t>(key) >> shift) & (count() - 1); }
};

// Where a pass takes its records from: the ids, or the list of the pass before. read() takes records 32 apart, which
// must exist: by one address, without comparisons.
struct FromIds {
  static constexpr bool kIsList = false;
  Index ids;
  __device__ int32_t key(int64_t i) const { return ids.key(i); }
  __device__ Record operator()(int64_t i) const { return {ids.key(i), static_cast<int32_t>(i)}; }

  template <int kStride, int kItems>
  __device__ __forceinline__ void read_keys(int64_t first, int32_t (&keys)[kItems]) const {
    const uint32_t none = static_cast<uint32_t>(ids.num_segments);
    if (ids.wide != 0) {
      const uint2* from = reinterpret_cast<const uint2*>(ids.words) + first;
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        const uint2 id = from[j * kStride];
        keys[j] = static_cast<int32_t>(id.y == 0 && id.x < none ? id.x : none);
      }
    } else {
      const uint32_t* from = ids.words + first;
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        const uint32_t id = from[j * kStride];
        keys[j] = static_cast<int32_t>(id < none ? id : none);
      }
    }
  }
  template <int kItems>
  __device__ __forceinline__ void read(int64_t first, Record (&records)[kItems]) const {
    int32_t keys[kItems];
    read_keys<32>(first, keys);
#pragma unroll
    for (int j = 0; j < kItems; ++j) records[j] = {keys[j], static_cast<int32_t>(first) + j * 32};
  }
};
struct FromList {
  static constexpr bool kIsList = true;
  const Record* list;
  __device__ int32_t key(int64_t i) const { return list[i].key; }
  __device__ Record operator()(int64_t i) const { return list[i]; }

  template <int kItems>
  __device__ __forceinline__ void read(int64_t first, Record (&records)[kItems]) const {
    const Record* from = list + first;
#pragma unroll
    for (int j = 0; j < kItems; ++j) records[j] = from[j * 32];
  }
};

// The key of records beyond the end of the list: of the last digit, and behind all that have it too, because they come
// after them. So they need no conditions until records are written.
constexpr int32_t kBeyond = -1;
template <int kItems, class Source>
__device__ __forceinline__ void read_to_end(const Source& source, int64_t first, int32_t n, Record (&records)[kItems]) {
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    // Loads without a condition are issued together.
    const int64_t i = first + j * 32;
    records[j] = source(i < n ? i : n - 1);
    if (i >= n) records[j].key = kBeyond;
  }
}

// The sum of `value` over the threads before this one. The caller's next use of `shared` (one word a warp) needs a
// barrier in between.
__device__ uint64_t sum_before(uint64_t value, uint64_t* shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint64_t sum = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint64_t other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) shared[warp] = sum;
  __syncthreads();
  uint64_t before = lane < warp ? shared[lane] : 0;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) before += __shfl_xor_sync(0xffffffffu, before, distance);
  return before + sum - value;
}

// The lanes whose `digit` agrees with this lane's in `bit`. The compiler would turn the tests of bits into shifts and
// comparisons; here they become predicates, seven by one instruction.
__device__ __forceinline__ uint32_t lanes_with_equal_bit(uint32_t digit, uint32_t bit) {
  uint32_t lanes;
  asm volatile(
      "{\n.reg .pred p;\n.reg .b32 t;\nand.b32 t, %1, %2;\nsetp.ne.u32 p, t, 0;\n"
      "vote.sync.ballot.b32 %0, p, 0xffffffff;\n@!p not.b32 %0, %0;\n}"
      : "=r"(lanes)
      : "r"(digit), "r"(bit));
  return lanes;
}

// One instruction, for which the compiler takes two behind the votes.
__device__ __forceinline__ uint32_t and_of_three(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t all;
  asm("lop3.b32 %0, %1, %2, %3, 0x80;" : "=r"(all) : "r"(a), "r"(b), "r"(c));
  return all;
}

// The lanes of the warp whose digit, of at most kBits, equals this lane's. The instruction for it takes a turn for each
// distinct value.
template <int kBits>
__device__ __forceinline__ uint32_t lanes_with_equal(uint32_t digit) {
  static_assert(kBits % 2 == 1);
  uint32_t equals = lanes_with_equal_bit(digit, 1);
#pragma unroll
  for (int bit = 1; bit < kBits; bit += 2) {
    equals = and_of_three(equals, lanes_with_equal_bit(digit, 1u << bit), lanes_with_equal_bit(digit, 2u << bit));
  }
  return equals;
}

// Ranks a thread's records among the records of the same digit in its warp's part of a tile; records before in the list
// have lower ranks. `counts` holds zeros, and in the end the warp's records of each digit.
template <int kBits, int kItems, typename Count>
__device__ __forceinline__ void rank_records(const uint32_t (&digits)[kItems], Count* counts,
                                             int32_t (&ranks)[kItems]) {
  const uint32_t up_to_mine = 0xffffffffu >> (31 - threadIdx.x % 32);
  uint32_t equals[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) equals[j] = lanes_with_equal<kBits>(digits[j]);
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int32_t through = counts[digits[j]] + __popc(equals[j] & up_to_mine);
    __syncwarp();
    // The last of the equals knows how many there are.
    if ((equals[j] & ~up_to_mine) == 0) counts[digits[j]] = static_cast<Count>(through);
    __syncwarp();
    ranks[j] = through - 1;
  }
}

// What the tiles publish about a digit: first one more than the records that it has in the tile, then the records up to
// the tile's end, with the top bit. 0 is nothing yet. The first tile publishes the second kind at once.
constexpr uint32_t kUpToEnd = 0x80000000u;

struct LookBack {
  uint32_t* ticket;   // [1]: the next tile, so that the tiles before have been begun and will publish
  uint32_t* states;   // [tiles][digits]: less than 2^29, for tiles are short in short lists alone
};

// totals[pass][digit], which holds zeros; also clears what the passes publish in, `state_quads` times 16 bytes.
template <int kItems>
__global__ void __launch_bounds__(kSortThreads)
    count_digits(FromIds source, int32_t n, int32_t digit_bits, int32_t passes, uint32_t* totals, uint4* states,
                 int64_t state_quads) {
  let_kernel_after_start();
  constexpr int64_t kTile = kSortThreads * kItems;
  __shared__ uint32_t counts[kMaxPasses * kMostDigits];
  const int32_t digits = passes << digit_bits;
#pragma unroll 1
  for (int64_t i = grid_thread(); i < state_quads; i += grid_threads()) states[i] = make_uint4(0, 0, 0, 0);
  for (int32_t i = threadIdx.x; i < digits; i += kSortThreads) counts[i] = 0;
  __syncthreads();
  for (int64_t begin = blockIdx.x * kTile; begin < n; begin += gridDim.x * kTile) {
    if (n - begin >= kTile) {
      int32_t keys[kItems];
      source.read_keys<kSortThreads>(begin + threadIdx.x, keys);
#pragma unroll 1
      for (int32_t pass = 0; pass < passes; ++pass) {
        const Digit digit{pass * digit_bits, digit_bits};
#pragma unroll
        for (int j = 0; j < kItems; ++j) atomicAdd(counts + (pass << digit_bits | digit.of(keys[j])), 1u);
      }
    } else {
#pragma unroll 1
      for (int64_t i = begin + threadIdx.x; i < n; i += kSortThreads) {
        const int32_t key = source.key(i);
        for (int32_t pass = 0; pass < passes; ++pass) {
          const Digit digit{pass * digit_bits, digit_bits};
          atomicAdd(counts + (pass << digit_bits | digit.of(key)), 1u);
        }
      }
    }
  }
  __syncthreads();
  for (int32_t i = threadIdx.x; i < digits; i += kSortThreads) {
    if (counts[i] != 0) atomicAdd(&totals[i], counts[i]);
  }
}

// How many records of this thread's digit the tiles before hold; there must be one.
__device__ __forceinline__ uint32_t look_back(const uint32_t* states, uint32_t tile, uint32_t digits) {
  uint32_t before = 0;
  const int32_t mine = threadIdx.x, step = digits;
  int32_t next = static_cast<int32_t>(tile) - 1;
  while ((before & kUpToEnd) == 0) {
    uint32_t seen[kLookBack];
#pragma unroll
    for (int k = 0; k < kLookBack; ++k) {
      const int32_t at = next * step + mine - k * step;
      seen[k] = *static_cast<const volatile uint32_t*>(states + (at > mine ? at : mine));
    }
    // Without branches. The last to count is the first that is not a tile's alone: nothing yet, or up to its end. The
    // first tile's is always one of these, so it does not matter that it is read again in place of those before it.
    const int32_t last = next;
    bool goes_on = true;
#pragma unroll
    for (int k = 0; k < kLookBack; ++k) {
      if (goes_on) before += seen[k];
      goes_on = goes_on && static_cast<int32_t>(seen[k]) > 0;
      if (goes_on) --next;
    }
    before -= last - next;
  }
  return before & ~kUpToEnd;
}

// What a block of move_records keeps in shared memory.
template <int kItems>
struct SortTables {
  static constexpr int kTile = kSortThreads * kItems;
  static constexpr size_t kBytes = kTile * sizeof(Record) + kMostDigits * (4 + 2 * kSortWarps);
  Record* staged;    // [kTile]: the tile in the order of its digits
  int32_t* place;    // [digits]: what to add to an index of `staged` for the index of the list
  uint16_t* counts;  // [kSortWarps][kMostDigits]: a warp's records of a digit; then where they begin in `staged`

  explicit __device__ SortTables(unsigned char* bytes) {
    staged = reinterpret_cast<Record*>(bytes);
    place = reinterpret_cast<int32_t*>(staged + kTile);
    counts = reinterpret_cast<uint16_t*>(place + kMostDigits);
  }
};

// Moves every record to its place among all records of its digit, in the order in which they come.
template <int kItems, class Source>
__global__ void __launch_bounds__(kSortThreads, kItems > kItemsAnywhere ? 1 : 2)
    move_records(Source source, int32_t n, Digit digit, const uint32_t* totals, LookBack published, Record* list) {
  let_kernel_after_start();
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  __shared__ uint64_t shared_sums[kSortWarps];
  __shared__ uint32_t shared_tile;
  constexpr int kTile = SortTables<kItems>::kTile;
  const SortTables<kItems> tables(shared_bytes);
  const uint32_t warp = threadIdx.x / 32;
  uint16_t* mine = tables.counts + warp * kMostDigits;
  // The tickets and the ids are older than the launch that counts, which waited for all before it. So tiles are handed
  // out, and those of ids are ranked, while the launch before ends.
  if (threadIdx.x == 0) shared_tile = atomicAdd(published.ticket, 1u);
#pragma unroll
  for (int i = 0; i < kSortWarps * kMostDigits / 8; i += kSortThreads) {
    reinterpret_cast<uint4*>(tables.counts)[i + threadIdx.x] = make_uint4(0, 0, 0, 0);
  }
  if constexpr (Source::kIsList) wait_for_kernel_before();
  __syncthreads();
  const uint32_t tile = shared_tile;
  const int64_t begin = static_cast<int64_t>(tile) * kTile;
  const int32_t filled = n - begin < kTile ? static_cast<int32_t>(n - begin) : kTile;
  // A warp takes 32 records after 32 records, so that its counts give each record its rank among its equals.
  const int64_t first = begin + warp * (32 * kItems) + threadIdx.x % 32;
  Record records[kItems];
  if (filled == kTile) {
    source.read(first, records);
  } else {
    read_to_end(source, first, n, records);
  }
  uint32_t values[kItems];
  int32_t ranks[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) values[j] = digit.of(records[j].key);
  rank_records<kDigitBits>(values, mine, ranks);
  __syncthreads();

  // A thread has a digit from here on.
  const uint32_t digits = digit.count();
  const bool has_digit = threadIdx.x < digits;
  uint16_t* of_digit = tables.counts + threadIdx.x;
  volatile uint32_t* state = published.states + (tile * digits + threadIdx.x);
  uint32_t in_warps[kSortWarps], in_tile = 0, all = 0;
  if constexpr (!Source::kIsList) wait_for_kernel_before();
  if (has_digit) {
#pragma unroll
    for (int i = 0; i < kSortWarps; ++i) {
      in_warps[i] = of_digit[i * kMostDigits];
      in_tile += in_warps[i];
    }
    *state = tile == 0 ? in_tile | kUpToEnd : in_tile + 1;
    all = totals[threadIdx.x];
  }
  const uint64_t sums = sum_before(static_cast<uint64_t>(all) << 32 | in_tile, shared_sums);
  const int32_t start = static_cast<int32_t>(sums);
  if (has_digit) {
    uint32_t next = start;
#pragma unroll
    for (int i = 0; i < kSortWarps; ++i) {
      of_digit[i * kMostDigits] = static_cast<uint16_t>(next);
      next += in_warps[i];
    }
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kItems; ++j) ranks[j] += mine[values[j]];
#pragma unroll
  for (int j = 0; j < kItems; ++j) tables.staged[ranks[j]] = records[j];
  // By now the tiles before have published.
  if (has_digit) {
    uint32_t before = 0;
    if (tile > 0) {
      before = look_back(published.states, tile, digits);
      *state = (before + in_tile) | kUpToEnd;
    }
    tables.place[threadIdx.x] = static_cast<int32_t>(static_cast<uint32_t>(sums >> 32) + before) - start;
  }
  __syncthreads();
  // Neighbours in the tile's order are neighbours in the list, so whole runs are written.
  if (filled == kTile) {
#pragma unroll
    for (int j = 0; j < kItems; ++j) records[j] = tables.staged[threadIdx.x + j * kSortThreads];
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      list[tables.place[digit.of(records[j].key)] + static_cast<int32_t>(threadIdx.x) + j * kSortThreads] = records[j];
    }
  } else {
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < filled; i += kSortThreads) {
      const Record record = tables.staged[i];
      list[tables.place[digit.of(record.key)] + i] = record;
    }
  }
}

// The same for few rows, without help from other launches or blocks: a thread has one record. If the digit is the whole
// key, the first block also writes where each key begins (`begins` is NULL otherwise).
template <class Source>
__global__ void __launch_bounds__(kSortThreads)
    move_few_records(Source source, int32_t n, Digit digit, int32_t num_segments, Record* list, int32_t* begins,
                     uint32_t* zeros, int64_t zero_count) {
  wait_for_kernel_before();
  let_kernel_after_start();
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  __shared__ uint64_t shared_sums[kSortWarps];
  const uint32_t digits = digit.count();
  uint32_t* before = reinterpret_cast<uint32_t*>(shared_bytes);  // [digits]: records in tiles before; then its place
  uint32_t* all = before + digits;                               // [digits]: records in this tile and later ones
  uint8_t* in_warp = reinterpret_cast<uint8_t*>(all + digits);   // [kSortWarps][digits]: at most 32
  const int warp = threadIdx.x / 32;
  const int32_t tile_begin = static_cast<int32_t>(blockIdx.x) * kSortThreads;
  const int64_t mine = tile_begin + static_cast<int32_t>(threadIdx.x);
  for (int64_t i = grid_thread(); i < zero_count; i += grid_threads()) zeros[i] = 0;
  const Record record = mine < n ? source(mine) : Record{kBeyond, 0};
  uint32_t* words = reinterpret_cast<uint32_t*>(shared_bytes);
  for (uint32_t i = threadIdx.x; i < digits * (2 + kSortWarps / 4); i += kSortThreads) words[i] = 0;
  __syncthreads();
  for (int32_t batch = threadIdx.x; batch < n; batch += kSortThreads * kMostItems) {
    int32_t keys[kMostItems];
#pragma unroll
    for (int j = 0; j < kMostItems; ++j) {
      const int32_t i = batch + j * kSortThreads;
      keys[j] = source.key(i < n ? i : n - 1);
    }
#pragma unroll
    for (int j = 0; j < kMostItems; ++j) {
      const int32_t i = batch + j * kSortThreads;
      if (i < n) atomicAdd((i < tile_begin ? before : all) + digit.of(keys[j]), 1u);
    }
  }
  const uint32_t values[1] = {digit.of(record.key)};
  int32_t ranks[1];
  rank_records<kFewDigitBits>(values, in_warp + warp * digits, ranks);
  __syncthreads();
  // A thread takes consecutive digits.
  const uint32_t each = (digits + kSortThreads - 1) / kSortThreads;
  const uint32_t from = threadIdx.x * each, to = from + each < digits ? from + each : digits;
  uint64_t sum = 0;
  for (uint32_t i = from; i < to; ++i) sum += before[i] + all[i];
  sum = sum_before(sum, shared_sums);
  for (uint32_t i = from; i < to; ++i) {
    const uint32_t begin = static_cast<uint32_t>(sum);
    sum += before[i] + all[i];
    before[i] += begin;
    if (begins != nullptr && blockIdx.x == 0 && i <= static_cast<uint32_t>(num_segments)) {
      begins[i] = static_cast<int32_t>(begin);
      if (i == static_cast<uint32_t>(num_segments)) begins[i + 1] = n;
    }
  }
  __syncthreads();
  if (mine >= n) return;
  uint32_t place = before[values[0]] + ranks[0];
  for (int i = 0; i < warp; ++i) place += in_warp[i * digits + values[0]];
  list[place] = record;
}

class Orderer {
 public:
  // So many words are 0 when rows are in order, for those who use them.
  Orderer(const Problem& p, int64_t zero_count, WorkspaceLayout& layout, void* workspace)
      : n_(p.n), num_segments_(p.num_segments), zero_count_(zero_count) {
    while (key_bits_ < 31 && num_segments_ >> key_bits_ != 0) ++key_bits_;
    if (key_bits_ == 0) key_bits_ = 1;
    passes_ = (key_bits_ + kDigitBits - 1) / kDigitBits;
    digit_bits_ = (key_bits_ + passes_ - 1) / passes_;
    // What a tile publishes takes at most two bytes a record: the header's bound of the workspace has no more.
    const int64_t published = sizeof(uint32_t) * (int64_t{passes_} << digit_bits_);
    while (items_ > kLeastItems && n_ < kTilesWanted * kSortThreads * items_ &&
           published <= 2 * kSortThreads * (items_ / 2)) {
      items_ /= 2;
    }
    const int64_t smallest = kSortThreads * (items_ < kItemsAnywhere ? items_ : kItemsAnywhere);
    const int64_t tiles = few() ? 0 : (static_cast<int64_t>(n_) + smallest - 1) / smallest;
    lists_[0] = workspace_array<Record>(workspace, layout.reserve<Record>(n_));
    lists_[1] = workspace_array<Record>(workspace, layout.reserve<Record>(passes_ > 1 ? n_ : 0));
    begins_ = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(int64_t{num_segments_} + 2));
    const int64_t counters = few() ? 0 : passes_ + (int64_t{passes_} << digit_bits_);
    zeros_ = workspace_array<uint32_t>(workspace, layout.reserve<uint32_t>(zero_count + counters));
    counters_ = zeros_ + zero_count;
    states_ = workspace_array<uint32_t>(workspace, layout.reserve<uint32_t>(passes_ * (tiles << digit_bits_)));
  }

  // Rows without a segment come last.
  Status enqueue(const Index& index, int32_t piece_bits, Stream stream, List* list) const {
    *list = {{n_, num_segments_, piece_bits}, lists_[0], begins_};
    // By a kernel, not by a memset: the next launch may be a dependent one.
    if (n_ == 0) {
      return launch_kernel("segment begin kernel", find_begins_of_keys<ListKeys>,
                           blocks_for(int64_t{num_segments_} + 2, kKeyThreads), kKeyThreads, 0, stream,
                           ListKeys{lists_[0]}, n_, num_segments_, begins_);
    }
    return few() ? enqueue_few(index, stream, &list->records) : enqueue_many(index, stream, &list->records);
  }

  uint32_t* zeros() const { return zeros_; }

 private:
  bool few() const { return n_ <= kFewRows; }

  Status enqueue_many(const Index& ids, Stream stream, const Record** records) const {
    DeviceTraits device{};
    BARACUDA_RETURN_IF_FAILED(device_traits(&device));
    const bool fits = SortTables<kMostItems>::kBytes <= static_cast<size_t>(device.shared_bytes);
    switch (fits || items_ <= kItemsAnywhere ? items_ : kItemsAnywhere) {
      case 2: return enqueue_tiles<2>(ids, device, stream, records);
      case 4: return enqueue_tiles<4>(ids, device, stream, records);
      case 8: return enqueue_tiles<8>(ids, device, stream, records);
      default: return enqueue_tiles<16>(ids, device, stream, records);
    }
  }

  template <int kItems>
  Status enqueue_tiles(const Index& ids, const DeviceTraits& device, Stream stream, const Record** records) const {
    uint32_t* totals = counters_ + passes_;
    BARACUDA_RETURN_IF_FAILED(
        enqueue_zeros(zeros_, (zero_count_ + passes_ + (int64_t{passes_} << digit_bits_)) * sizeof(uint32_t), stream));
    // Each block adds to the totals, so there are no more than work at the same time; all have as many rounds.
    const uint32_t tiles = blocks_for(n_, SortTables<kItems>::kTile);
    const uint32_t rounds = tiles / (static_cast<uint32_t>(device.multiprocessors) * kCountBlocks) + 1;
    const int64_t state_count = int64_t{tiles} << digit_bits_;  // of one pass
    // Reserved arrays are whole quads.
    BARACUDA_RETURN_IF_FAILED(launch_kernel("segment sort count kernel", count_digits<kItems>,
                                            blocks_for(tiles, rounds), kSortThreads, 0, stream, FromIds{ids}, n_,
                                            digit_bits_, passes_, totals, reinterpret_cast<uint4*>(states_),
                                            (passes_ * state_count + 3) / 4));
    for (int32_t pass = 0; pass < passes_; ++pass) {
      const uint32_t* mine = totals + (static_cast<size_t>(pass) << digit_bits_);
      const LookBack published{counters_ + pass, states_ + pass * state_count};
      BARACUDA_RETURN_IF_FAILED(
          pass == 0 ? enqueue_pass<kItems>(pass, FromIds{ids}, mine, published, stream)
                    : enqueue_pass<kItems>(pass, FromList{lists_[(pass - 1) % 2]}, mine, published, stream));
    }
    *records = lists_[(passes_ - 1) % 2];
    return enqueue_begins(*records, stream);
  }

  template <int kItems, class Source>
  Status enqueue_pass(int32_t pass, Source source, const uint32_t* totals, const LookBack& published,
                      Stream stream) const {
    constexpr size_t kBytes = SortTables<kItems>::kBytes;
    const auto kernel = move_records<kItems, Source>;
    BARACUDA_RETURN_IF_FAILED(allow_shared_bytes("segment sort move kernel", kernel, kBytes));
    return launch_early("segment sort move kernel", kernel, blocks_for(n_, SortTables<kItems>::kTile), kSortThreads,
                        kBytes, stream, source, n_, Digit{pass * digit_bits_, digit_bits_}, totals, published,
                        lists_[pass % 2]);
  }

  Status enqueue_few(const Index& ids, Stream stream, const Record** records) const {
    const int32_t passes = (key_bits_ + kFewDigitBits - 1) / kFewDigitBits, bits = (key_bits_ + passes - 1) / passes;
    int32_t* begins = passes == 1 ? begins_ : nullptr;
    for (int32_t pass = 0; pass < passes; ++pass) {
      const Digit digit{pass * bits, bits};
      BARACUDA_RETURN_IF_FAILED(pass == 0 ? enqueue_few_pass(pass, digit, FromIds{ids}, begins, stream)
                                          : enqueue_few_pass(pass, digit, FromList{lists_[(pass - 1) % 2]}, begins,
                                                             stream));
    }
    *records = lists_[(passes - 1) % 2];
    return passes == 1 ? Status::kOk : enqueue_begins(*records, stream);
  }

  template <class Source>
  Status enqueue_few_pass(int32_t pass, Digit digit, Source source, int32_t* begins, Stream stream) const {
    const size_t bytes = few_bytes(digit.bits);
    BARACUDA_RETURN_IF_FAILED(allow_shared_bytes("segment sort kernel", move_few_records<Source>, bytes));
    const uint32_t blocks = blocks_for(n_, kSortThreads);
    // The first launch of a call must not overlap what the caller enqueued before.
    if (pass == 0) {
      return launch_kernel("segment sort kernel", move_few_records<Source>, blocks, kSortThreads, bytes, stream, source,
                           n_, digit, num_segments_, lists_[0], begins, zeros_, zero_count_);
    }
    return launch_early("segment sort kernel", move_few_records<Source>, blocks, kSortThreads, bytes, stream, source,
                        n_, digit, num_segments_, lists_[pass % 2], begins, zeros_, zero_count_);
  }

  Status enqueue_begins(const Record* records, Stream stream) const {
    if (many_keys(n_, num_segments_)) {
      return enqueue_begins_of_keys(ListKeys{records}, n_, num_segments_, begins_, stream);
    }
    return launch_early("segment begin kernel", find_begins_of_rows, blocks_for(n_, kBeginTile), kBeginThreads, 0,
                        stream, records, n_, num_segments_, begins_);
  }

  static size_t few_bytes(int32_t bits) { return (size_t{8} + kSortWarps) << bits; }

  int32_t n_;
  int32_t num_segments_;
  int32_t key_bits_ = 0;
  int32_t passes_, digit_bits_;
  int32_t items_ = kMostItems;  // a thread's records in tiles
  Record* lists_[2];
  int32_t* begins_;
  int64_t zero_count_;
  uint32_t* zeros_;     // [zero_count], before the counters
  uint32_t* counters_;  // [passes] tickets, then [passes][digits] totals
  uint32_t* states_;    // [passes][tiles][digits], of the smallest tiles that a device makes necessary
};

}  // namespace
}  // namespace baracuda::segment
