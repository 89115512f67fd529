// SPDX-License-Identifier: Apache-2.0
// Copies of rows by an index on CUDA. Who stays in a row is the largest number of a row of source that names it: an
// integer, whose maximum no order changes.
//
//   path           calls                                what happens
//   few entries    few rows of source                   a copy of input, unless output is it; then a warp puts a piece
//                                                       of a row, if no later entry of the index is its own
//   in place       output is input, at most 2^30        the winners of all rows in the workspace, in 32 bits, and each
//                  elements                             row of source that is one is put; where source has half as many
//                                                       rows as output or more, each row of output takes its winner
//   merged         at most 2^30 elements                the same winners, and each row of output is that or input's
//   large in place output is input                      as those, in 64 bits
//   large merged   all
#include <type_traits>

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_warp.cuh"
#include "core/cuda_zeros.cuh"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/index_copy/launch.h"

namespace baracuda::index_copy {
namespace {

constexpr int kThreads = 256;
// Units that a thread has on their way before it stores one.
constexpr int kBatch = 4;
// Bytes of a row that a warp puts on the path of few entries.
constexpr int64_t kPieceBytes = 4096;
// Steps of 32 entries that all warps of that path look at together: some microseconds of a GPU, which is what the
// launches cost that it saves.
constexpr int64_t kFewSteps = 1 << 18;

// Warps of the path of few entries: no more than its rows and 2^51.
int64_t pieces_of(const Problem& p) { return p.outer * p.n * ceil_div(p.row_bytes, kPieceBytes); }

bool has_few_entries(const Problem& p) {
  // Input is not empty: there are no more rows than elements, whose count fits.
  if (p.outer * p.n > kFewSteps) return false;
  const int64_t pieces = pieces_of(p);
  return pieces <= kFewSteps && pieces * ceil_div(p.n, 32) <= kFewSteps;
}

// Elements of 16 bytes may be two words each.
bool has_few_elements(const Problem& p) { return p.input_numel <= INT32_MAX / 2 && p.source_numel <= INT32_MAX / 2; }

// The widest words that rows consist of and everything is aligned to; the words of a row.
struct Words {
  int64_t bytes, of_row;

  template <typename I>
  Words(const Problem& p, const Buffers<I>& b) : bytes(16) {
    const uintptr_t all = static_cast<uintptr_t>(p.row_bytes) | reinterpret_cast<uintptr_t>(b.input) |
                          reinterpret_cast<uintptr_t>(b.source) | reinterpret_cast<uintptr_t>(b.output);
    while (all % static_cast<uintptr_t>(bytes) != 0) bytes /= 2;
    of_row = p.row_bytes / bytes;
  }

  // use(Word{}) of that width.
  template <class Use>
  Status choose(const Use& use) const {
    switch (bytes) {
      case 16:
        return use(uint4{});
      case 8:
        return use(uint64_t{});
      case 4:
        return use(uint32_t{});
      case 2:
        return use(uint16_t{});
      default:
        return use(uint8_t{});
    }
  }
};

// A word's row and its place there, a row's table and its place there. Number is how words and rows are counted:
// uint32_t where there are few, else unsigned long long.
template <typename Number>
struct Split {
  int64_t of_row, of_table;
  Divider by_row, by_table;

  Split(int64_t words, int64_t rows) : of_row(words), of_table(rows), by_row(1), by_table(1) {
    if constexpr (std::is_same_v<Number, uint32_t>) {
      by_row = Divider(words);
      by_table = Divider(at_least(rows, 1));
    }
  }
  __device__ __forceinline__ Number row(Number word) const {
    if constexpr (std::is_same_v<Number, uint32_t>) return by_row.divide(word);
    return word / static_cast<Number>(of_row);
  }
  __device__ __forceinline__ Number table(Number row) const {
    if constexpr (std::is_same_v<Number, uint32_t>) return by_table.divide(row);
    return row / static_cast<Number>(of_table);
  }
};

template <typename I>
__device__ __forceinline__ bool is_row(I index, int64_t length) {
  return static_cast<uint64_t>(static_cast<int64_t>(index)) < static_cast<uint64_t>(length);
}

// Of each row the largest number, from 1 on, of an entry that names it; 0 without one. Of the lanes of a warp that name
// one row only the last asks for it: where all entries name one row, few meet there.
template <typename I, typename Number>
__global__ void __launch_bounds__(kThreads)
    find_winners(const __grid_constant__ Problem p, const I* const __grid_constant__ index,
                 Number* const __grid_constant__ winners) {
  wait_for_kernel_before();
  let_kernel_after_start();
  const int64_t lane = threadIdx.x % 32;
  for (int64_t first = grid_thread() - lane; first < p.n; first += grid_threads()) {
    const int64_t i = first + lane;
    const I place = i < p.n ? index[i] : I{-1};
    // Where numbers have 32 bits, so have places of rows.
    const bool is_inside = is_row(place, p.length);
    const Number key = is_inside ? static_cast<Number>(place) : ~Number{0};
    const uint32_t equals = __match_any_sync(kFullWarp, key);
    if (is_inside && equals >> lane == 1) atomicMax(winners + key, static_cast<Number>(i + 1));
  }
}

// Puts each row of source that is the winner of its row of output.
template <typename Word, typename I, typename Number>
__global__ void __launch_bounds__(kThreads)
    put_winners(const __grid_constant__ Problem p, const I* const __grid_constant__ index,
                const Number* const __grid_constant__ winners, const Word* const __grid_constant__ source,
                Word* const __grid_constant__ output, const __grid_constant__ Split<Number> split,
                const __grid_constant__ int64_t words) {
  wait_for_kernel_before();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * kBatch;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kBatch + threadIdx.x; first < words;
       first += step) {
    int64_t to[kBatch];
    Number number[kBatch];
    I place[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      to[k] = -1;
      number[k] = 0;
      place[k] = -1;
      const int64_t word = first + k * kThreads;
      if (word >= words) continue;
      const Number row = split.row(static_cast<Number>(word)), table = split.table(row);
      number[k] = row - table * static_cast<Number>(p.n);
      place[k] = index[number[k]];
      // As if it were the first row.
      to[k] = static_cast<int64_t>(table) * p.length * split.of_row + (word - static_cast<int64_t>(row) * split.of_row);
    }
    Number winner[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) winner[k] = is_row(place[k], p.length) ? winners[place[k]] : Number{0};
    Word found[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (winner[k] == 0 || winner[k] != number[k] + 1) {
        to[k] = -1;
        continue;
      }
      found[k] = source[first + k * kThreads];
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (to[k] >= 0) output[to[k] + static_cast<int64_t>(place[k]) * split.of_row] = found[k];
    }
  }
}

// Writes each row of output: its winner, or input's. Without winners a copy of input. In place rows without a winner
// stay as they are.
template <typename Word, typename Number, bool kInPlace>
__global__ void __launch_bounds__(kThreads)
    merge_rows(const __grid_constant__ Problem p, const Number* const __grid_constant__ winners,
               const Word* const __grid_constant__ input, const Word* const __grid_constant__ source,
               Word* const __grid_constant__ output, const __grid_constant__ Split<Number> split,
               const __grid_constant__ int64_t words) {
  wait_for_kernel_before();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * kBatch;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kBatch + threadIdx.x; first < words;
       first += step) {
    const Word* from[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int64_t word = first + k * kThreads;
      from[k] = kInPlace || word >= words ? nullptr : input + word;
      if (winners == nullptr || word >= words) continue;
      const Number row = split.row(static_cast<Number>(word)), table = split.table(row);
      const Number winner = winners[row - table * static_cast<Number>(p.length)];
      if (winner == 0) continue;
      const int64_t taken = static_cast<int64_t>(table) * p.n + static_cast<int64_t>(winner - 1);
      from[k] = source + (taken * split.of_row + (word - static_cast<int64_t>(row) * split.of_row));
    }
    Word found[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (from[k] != nullptr) found[k] = *from[k];
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (from[k] != nullptr) output[first + k * kThreads] = found[k];
    }
  }
}

// A warp puts a piece of a row of source, unless a later entry names the same row.
template <typename Word, typename I>
__global__ void __launch_bounds__(kThreads)
    put_last(const __grid_constant__ Problem p, const I* const __grid_constant__ index,
             const Word* const __grid_constant__ source, Word* const __grid_constant__ output,
             const __grid_constant__ int64_t of_row, const __grid_constant__ int64_t pieces) {
  constexpr int64_t kWords = kPieceBytes / static_cast<int64_t>(sizeof(Word));
  wait_for_kernel_before();
  const int64_t warp = grid_thread() / 32, lane = threadIdx.x % 32;
  if (warp >= pieces) return;
  const int64_t of_warps = groups_of(of_row, kWords);
  const int64_t row = warp / of_warps, table = row / p.n, i = row - table * p.n;
  const I place = index[i];
  if (!is_row(place, p.length)) return;
  bool is_named_later = false;
#pragma unroll 4
  for (int64_t later = i + 1 + lane; later < p.n; later += 32) is_named_later |= index[later] == place;
  if (__any_sync(kFullWarp, is_named_later)) return;
  const int64_t begin = (warp - row * of_warps) * kWords, end = at_most(begin + kWords, of_row);
  const Word* const from = source + row * of_row;
  Word* const to = output + (table * p.length + static_cast<int64_t>(place)) * of_row;
#pragma unroll 4
  for (int64_t word = begin + lane; word < end; word += 32) to[word] = from[word];
}

// Enqueues a kernel that waits for the one before it, unless it is a call's first.
template <typename... Parameters, typename... Arguments>
Status launch_in_turn(bool is_first, void (*kernel)(Parameters...), int64_t items, int64_t per_block, Stream stream,
                      Arguments... arguments) {
  const char* const name = "index_copy kernel";
  const uint32_t blocks = blocks_for(items, per_block);
  return is_first ? launch_kernel(name, kernel, blocks, kThreads, 0, stream, arguments...)
                  : launch_early(name, kernel, blocks, kThreads, 0, stream, arguments...);
}

template <typename I>
using Call = Request<Problem, Buffers<I>>;

template <typename I>
bool is_in_place(const Call<I>& call) {
  return call.b.input == call.b.output;
}

// All rows of output; without winners a copy of input, which is a call's first kernel.
template <typename Number, bool kInPlace = false, typename I>
Status enqueue_merge(const Call<I>& call, const Words& words, const Number* winners) {
  const Problem& p = call.p;
  const int64_t count = p.outer * p.length * words.of_row;
  return words.choose([&](auto word) {
    using Word = decltype(word);
    return launch_in_turn(winners == nullptr, merge_rows<Word, Number, kInPlace>, count, kThreads * kBatch,
                          call.stream, p, winners, static_cast<const Word*>(call.b.input),
                          static_cast<const Word*>(call.b.source), static_cast<Word*>(call.b.output),
                          Split<Number>(words.of_row, p.length), count);
  });
}

template <typename I>
struct FewEntriesPath {
  static const char* name() { return "few entries"; }
  const Call<I>& call;
  bool can() const { return has_few_entries(call.p); }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    const Problem& p = call.p;
    const Words words(p, call.b);
    if (!is_in_place(call)) {
      BARACUDA_RETURN_IF_FAILED(has_few_elements(p) ? enqueue_merge<uint32_t>(call, words, nullptr)
                                                    : enqueue_merge<unsigned long long>(call, words, nullptr));
    }
    return words.choose([&](auto word) {
      using Word = decltype(word);
      // Pieces of words of any width are pieces of bytes.
      const int64_t pieces = pieces_of(p);
      return launch_in_turn(is_in_place(call), put_last<Word, I>, pieces, kThreads / 32, call.stream, p, call.b.index,
                            static_cast<const Word*>(call.b.source), static_cast<Word*>(call.b.output), words.of_row,
                            pieces);
    });
  }
};

// The paths with winners.
template <typename I, typename Number>
struct WinnersPath {
  const Call<I>& call;
  size_t bytes() const {
    WorkspaceLayout layout;
    layout.reserve<Number>(call.p.length);
    return layout.bytes();
  }

 protected:
  Number* winners() const { return static_cast<Number*>(call.workspace); }
  bool can_number() const { return !std::is_same_v<Number, uint32_t> || has_few_elements(call.p); }
  Status enqueue_winners() const {
    BARACUDA_RETURN_IF_FAILED(enqueue_zeros_early(call.workspace, bytes(), call.stream));
    return launch_in_turn(false, find_winners<I, Number>, call.p.n, kThreads, call.stream, call.p, call.b.index,
                          winners());
  }
};

template <typename I, typename Number>
struct InPlacePath : WinnersPath<I, Number> {
  static const char* name() { return std::is_same_v<Number, uint32_t> ? "in place" : "large in place"; }
  bool can() const { return this->can_number() && is_in_place(this->call); }
  Status enqueue() const {
    BARACUDA_RETURN_IF_FAILED(this->enqueue_winners());
    const Call<I>& call = this->call;
    const Problem& p = call.p;
    const Words words(p, call.b);
    // From output's side the index is not read again, and a word is written beside its neighbours.
    if (p.n >= p.length - p.n) return enqueue_merge<Number, true>(call, words, this->winners());
    const int64_t count = p.outer * p.n * words.of_row;
    return words.choose([&](auto word) {
      using Word = decltype(word);
      return launch_in_turn(false, put_winners<Word, I, Number>, count, kThreads * kBatch, call.stream, p, call.b.index,
                            this->winners(), static_cast<const Word*>(call.b.source),
                            static_cast<Word*>(call.b.output), Split<Number>(words.of_row, p.n), count);
    });
  }
};

template <typename I, typename Number>
struct MergedPath : WinnersPath<I, Number> {
  static const char* name() { return std::is_same_v<Number, uint32_t> ? "merged" : "large merged"; }
  bool can() const { return this->can_number(); }
  Status enqueue() const {
    BARACUDA_RETURN_IF_FAILED(this->enqueue_winners());
    const Call<I>& call = this->call;
    return enqueue_merge<Number>(call, Words(call.p, call.b), this->winners());
  }
};

template <typename I>
using CopyPaths =
    Paths<FewEntriesPath<I>, InPlacePath<I, uint32_t>, MergedPath<I, uint32_t>, InPlacePath<I, unsigned long long>,
          MergedPath<I, unsigned long long>>;

template <typename I>
Status run(const Problem& p, const Buffers<I>& b, void* workspace, Stream stream) {
  return CopyPaths<I>::enqueue(Call<I>{p, b, workspace, stream});
}

// Whether output is input changes which of two paths is taken, and not their bytes.
template <typename I>
size_t bytes_of(const Problem& p, const Buffers<I>*) {
  if (p.input_numel == 0) return 0;
  const Buffers<I> none{};
  return CopyPaths<I>::choose(Call<I>{p, none, nullptr, nullptr}, [](const auto& path) { return path.bytes(); });
}

}  // namespace

BARACUDA_INDEX_COPY_BUFFERS(BARACUDA_PROVIDE_LAUNCH)
BARACUDA_INDEX_COPY_BUFFERS(BARACUDA_PROVIDE_WORKSPACE_SIZE)

}  // namespace baracuda::index_copy
