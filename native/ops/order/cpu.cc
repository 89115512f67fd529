// SPDX-License-Identifier: Apache-2.0
// Order statistics on the CPU, a row a task but for long rows that are selected from. Compiled once per instruction
// set.
//
//   selection path  calls                           what happens
//   rows            rows whose keys fit a task's    digit by digit from the highest, of which those keys stay that have
//                   scratch                         the one looked for
//   long rows       all                             row after row, of which parts count the digits side by side
//
//   mode path       calls                           what happens
//   rows            rows whose keys fit a task's    the keys are sorted, digit by digit from the lowest
//                   scratch twice
//   long rows       all                             the same in the workspace
#include <cstring>

#include "core/checked.h"
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/cpu_zeros.h"
#include "core/integer_math.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/order/launch.h"
#include "ops/order/math.h"

namespace baracuda::order {
namespace {

// Of a task's keys. A pool's thread has a little more room.
constexpr int64_t kScratchBytes = 128 * 1024;
template <class W>
constexpr int64_t kScratchKeys = kScratchBytes / static_cast<int64_t>(sizeof(W));
template <class W>
struct alignas(64) KeyArrays {
  W keys[kScratchKeys<W>];
};

// Of so few keys each is compared with all others.
constexpr int64_t kFewKeys = 32;

template <class W>
inline int digit_of(W key, int shift) {
  return static_cast<int>(key >> shift) & (kDigits - 1);
}

template <typename T>
inline void store(const T* input, const Problem& p, int64_t row, int64_t place, T* output, int64_t* indices) {
  output[row] = input[begin_of(p, row) + place * p.inner];
  indices[row] = place;
}

// The first place of a row that has a key, which is there.
template <typename T>
inline int64_t place_of(const T* input, const Problem& p, int64_t row, Word<T> key) {
  const T* const from = input + begin_of(p, row);
  int64_t place = 0;
  while (place + 1 < p.length && key_of(from[place * p.inner]) != key) ++place;
  return place;
}

// Reads a row's keys, and answers how many NaNs it has.
template <typename T>
inline int64_t read_keys(const T* input, const Problem& p, int64_t row, Word<T>* keys) {
  const T* const from = input + begin_of(p, row);
  if (p.inner == 1) {
    for (int64_t i = 0; i < p.length; ++i) keys[i] = key_of(from[i]);
  } else {
    for (int64_t i = 0; i < p.length; ++i) keys[i] = key_of(from[i * p.inner]);
  }
  int64_t nans = 0;
  if (counts_nans<T>(p)) {
    for (int64_t i = 0; i < p.length; ++i) nans += keys[i] == kLastKey<T>;
  }
  return nans;
}

// Of few keys the one with a rank.
template <class W>
inline W key_of_few(const W* keys, int64_t count, int64_t rank) {
  for (int64_t i = 0; i + 1 < count; ++i) {
    int32_t less = 0, equal = 0;
    for (int64_t j = 0; j < count; ++j) {
      less += keys[j] < keys[i];
      equal += keys[j] == keys[i];
    }
    if (less <= rank && rank < less + equal) return keys[i];
  }
  return keys[count - 1];
}

// The digit that the key with a rank has, which becomes its rank among the keys with that digit.
template <typename Count>
inline int digit_with_rank(const Count* counts, int64_t* rank) {
  int digit = 0;
  while (digit + 1 < kDigits && *rank >= static_cast<int64_t>(counts[digit])) {
    *rank -= static_cast<int64_t>(counts[digit]);
    ++digit;
  }
  return digit;
}

// The key with a rank. Of the keys only some stay.
template <class W>
inline W select_key(W* keys, int64_t count, int64_t rank, int bits) {
  for (int shift = bits - kDigitBits; count > kFewKeys && shift >= 0; shift -= kDigitBits) {
    uint32_t counts[kDigits] = {};
    for (int64_t i = 0; i < count; ++i) ++counts[digit_of(keys[i], shift)];
    const int digit = digit_with_rank(counts, &rank);
    int64_t kept = 0;
    for (int64_t i = 0; i < count; ++i) {
      const W key = keys[i];
      keys[kept] = key;
      kept += digit_of(key, shift) == digit;
    }
    count = kept;
  }
  // More are left only if all digits are known.
  return count > kFewKeys ? keys[0] : key_of_few(keys, count, rank);
}

template <typename T>
using Selection = Request<Problem, SelectionBuffers<T>>;

template <typename T>
struct SelectRowsPath {
  static const char* name() { return "rows"; }
  const Selection<T>& call;
  bool can() const { return call.p.length <= kScratchKeys<Word<T>>; }
  static void reserve(WorkspaceLayout& layout) { TaskScratch<KeyArrays<Word<T>>>(layout, nullptr); }
  Status enqueue() const {
    const Problem& p = call.p;
    WorkspaceLayout layout;
    const TaskScratch<KeyArrays<Word<T>>> scratch(layout, call.workspace);
    parallel_for(p.rows, grain_for(p.length), [&](int64_t row) {
      Word<T>* const keys = scratch.mine().keys;
      const int64_t nans = read_keys(call.b.input, p, row, keys);
      const Word<T> key = select_key(keys, p.length, rank_of(p, nans), kKeyBits<T>);
      store(call.b.input, p, row, place_of(call.b.input, p, row, key), call.b.output, call.b.indices);
    });
    return Status::kOk;
  }
};

// Parts of a long row.
constexpr int64_t kMostParts = 64;
constexpr int64_t kLeastPart = 16384;
struct PartCounts {
  int64_t digits[kMostParts][kDigits];
  int64_t nans[kMostParts];
  int64_t places[kMostParts];  // the first one that has the key, or the row's end
};

template <typename T>
class LongRow {
 public:
  using W = Word<T>;
  LongRow(const Selection<T>& call, PartCounts* counts)
      : p_(call.p), b_(call.b), counts_(*counts), parts_(at_most(kMostParts, ceil_div(call.p.length, kLeastPart))),
        size_(ceil_div(call.p.length, parts_)) {}

  void select(int64_t row) const {
    W prefix = 0;
    int64_t rank = 0, candidates = p_.length;
    int shift = kKeyBits<T>;
    while (shift > 0 && candidates > 1) {
      shift -= kDigitBits;
      const bool is_first = shift + kDigitBits == kKeyBits<T>;
      parallel_for(parts_, 1, [&](int64_t part) { count_part(row, part, shift, is_first, prefix); });
      int64_t totals[kDigits] = {}, nans = 0;
      for (int64_t part = 0; part < parts_; ++part) {
        for (int d = 0; d < kDigits; ++d) totals[d] += counts_.digits[part][d];
        nans += is_first ? counts_.nans[part] : 0;
      }
      if (is_first) rank = rank_of(p_, nans);
      const int digit = digit_with_rank(totals, &rank);
      candidates = totals[digit];
      prefix = static_cast<W>(prefix << kDigitBits) | static_cast<W>(digit);
    }
    parallel_for(parts_, 1, [&](int64_t part) { find_in_part(row, part, shift, prefix); });
    int64_t place = p_.length;
    for (int64_t part = 0; part < parts_; ++part) place = at_most(place, counts_.places[part]);
    store(b_.input, p_, row, place, b_.output, b_.indices);
  }

 private:
  int64_t end_of(int64_t part) const { return at_most(p_.length, (part + 1) * size_); }

  void count_part(int64_t row, int64_t part, int shift, bool is_first, W prefix) const {
    const T* const from = b_.input + begin_of(p_, row);
    int64_t digits[kDigits] = {}, nans = 0;
    for (int64_t i = part * size_; i < end_of(part); ++i) {
      const W key = key_of(from[i * p_.inner]);
      if (is_first) {
        ++digits[digit_of(key, shift)];
        nans += kIsFloat<T> && key == kLastKey<T>;
      } else if ((key >> shift) >> kDigitBits == prefix) {
        ++digits[digit_of(key, shift)];
      }
    }
    memcpy(counts_.digits[part], digits, sizeof digits);
    counts_.nans[part] = nans;
  }

  // The first key that begins with some digits.
  void find_in_part(int64_t row, int64_t part, int shift, W prefix) const {
    const T* const from = b_.input + begin_of(p_, row);
    int64_t place = part * size_;
    while (place < end_of(part) && key_of(from[place * p_.inner]) >> shift != prefix) ++place;
    counts_.places[part] = place < end_of(part) ? place : p_.length;
  }

  const Problem& p_;
  const SelectionBuffers<T>& b_;
  PartCounts& counts_;
  const int64_t parts_, size_;
};

template <typename T>
struct SelectLongRowsPath {
  static const char* name() { return "long rows"; }
  const Selection<T>& call;
  static void reserve(WorkspaceLayout& layout) { layout.reserve<PartCounts>(1); }
  Status enqueue() const {
    const LongRow<T> each(call, static_cast<PartCounts*>(call.workspace));
    for (int64_t row = 0; row < call.p.rows; ++row) each.select(row);
    return Status::kOk;
  }
};

template <class W>
inline void insertion_sort(W* keys, int64_t count) {
  for (int64_t i = 1; i < count; ++i) {
    const W key = keys[i];
    int64_t j = i;
    for (; j > 0 && keys[j - 1] > key; --j) keys[j] = keys[j - 1];
    keys[j] = key;
  }
}

// Sorts keys, with room for as many others, and answers where they are then.
template <class W>
inline W* sort_keys(W* keys, W* others, int64_t count, int bits) {
  if (count <= kFewKeys) {
    insertion_sort(keys, count);
    return keys;
  }
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    int64_t places[kDigits] = {};
    for (int64_t i = 0; i < count; ++i) ++places[digit_of(keys[i], shift)];
    if (places[digit_of(keys[0], shift)] == count) continue;
    int64_t sum = 0;
    for (int64_t& place : places) {
      const int64_t own = place;
      place = sum;
      sum += own;
    }
    for (int64_t i = 0; i < count; ++i) others[places[digit_of(keys[i], shift)]++] = keys[i];
    W* const sorted = others;
    others = keys;
    keys = sorted;
  }
  return keys;
}

// The key that most of some sorted keys are; of several the first.
template <typename T>
inline Word<T> most_frequent(const Word<T>* keys, int64_t count) {
  Word<T> best = keys[0];
  int64_t most = 0;
  for (int64_t begin = 0; begin < count;) {
    int64_t end = begin + 1;
    while (end < count && keys[end] == keys[begin]) ++end;
    const bool is_nan = kIsFloat<T> && keys[begin] == kLastKey<T>;
    const int64_t times = is_nan ? 1 : end - begin;
    if (times > most) most = times, best = keys[begin];
    begin = end;
  }
  return best;
}

template <typename T>
using ModeRequest = Request<Problem, ModeBuffers<T>>;

template <typename T>
inline void find_mode(const ModeRequest<T>& call, int64_t row, Word<T>* keys) {
  const Problem& p = call.p;
  read_keys(call.b.input, p, row, keys);
  const Word<T>* const sorted = sort_keys(keys, keys + p.length, p.length, kKeyBits<T>);
  const int64_t place = place_of(call.b.input, p, row, most_frequent<T>(sorted, p.length));
  store(call.b.input, p, row, place, call.b.output, call.b.indices);
}

template <typename T>
struct ModeRowsPath {
  static const char* name() { return "rows"; }
  const ModeRequest<T>& call;
  bool can() const { return 2 * call.p.length <= kScratchKeys<Word<T>>; }
  static void reserve(WorkspaceLayout& layout, const Problem&) { TaskScratch<KeyArrays<Word<T>>>(layout, nullptr); }
  Status enqueue() const {
    WorkspaceLayout layout;
    const TaskScratch<KeyArrays<Word<T>>> scratch(layout, call.workspace);
    parallel_for(call.p.rows, grain_for(4 * call.p.length),
                 [&](int64_t row) { find_mode(call, row, scratch.mine().keys); });
    return Status::kOk;
  }
};

template <typename T>
struct ModeLongRowsPath {
  static const char* name() { return "long rows"; }
  const ModeRequest<T>& call;
  // Every so many rows share their keys' room.
  static int64_t strands(const Problem& p) { return at_most(p.rows, 16); }
  static void reserve(WorkspaceLayout& layout, const Problem& p) {
    layout.reserve<Word<T>>(strands(p) * 2 * p.length);
  }
  Status enqueue() const {
    const int64_t count = strands(call.p);
    parallel_for(count, 1, [&](int64_t strand) {
      Word<T>* const keys = static_cast<Word<T>*>(call.workspace) + strand * 2 * call.p.length;
      for (int64_t row = strand; row < call.p.rows; row += count) find_mode(call, row, keys);
    });
    return Status::kOk;
  }
};

template <typename T>
using SelectionPaths = Paths<SelectRowsPath<T>, SelectLongRowsPath<T>>;
template <typename T>
using ModePaths = Paths<ModeRowsPath<T>, ModeLongRowsPath<T>>;

template <typename T>
Status run(const Problem& p, const SelectionBuffers<T>& b, void* workspace) {
  return SelectionPaths<T>::enqueue(Selection<T>{p, b, workspace});
}

template <typename T>
Status run(const Problem& p, const ModeBuffers<T>& b, void* workspace) {
  return ModePaths<T>::enqueue(ModeRequest<T>{p, b, workspace});
}

template <typename T>
Status run(const Problem& p, const GradientBuffers<T>& b, void*) {
  BARACUDA_RETURN_IF_FAILED(write_zeros(b.grad_input, p.numel));
  parallel_for(p.rows, grain_for(16), [&](int64_t row) {
    const int64_t place = b.indices[row];
    if (place >= 0 && place < p.length) b.grad_input[begin_of(p, row) + place * p.inner] = b.grad_output[row];
  });
  record_path("rows");
  return Status::kOk;
}

template <typename T>
size_t bytes_of(const Problem& p, const SelectionBuffers<T>*) {
  WorkspaceLayout layout;
  const SelectionBuffers<T> none{};
  SelectionPaths<T>::choose(Selection<T>{p, none, nullptr}, [&](const auto& path) { path.reserve(layout); });
  return layout.bytes();
}

template <typename T>
size_t bytes_of(const Problem& p, const ModeBuffers<T>*) {
  WorkspaceLayout layout;
  const ModeBuffers<T> none{};
  ModePaths<T>::choose(ModeRequest<T>{p, none, nullptr}, [&](const auto& path) { path.reserve(layout, p); });
  return layout.bytes();
}

}  // namespace

#define BARACUDA_PROVIDE(T)                                     \
  BARACUDA_PROVIDE_LAUNCH(Problem, SelectionBuffers<T>)         \
  BARACUDA_PROVIDE_LAUNCH(Problem, ModeBuffers<T>)              \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, SelectionBuffers<T>) \
  BARACUDA_PROVIDE_WORKSPACE_SIZE(Problem, ModeBuffers<T>)
BARACUDA_ORDER_TYPES(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE
#define BARACUDA_PROVIDE(T) BARACUDA_PROVIDE_LAUNCH(Problem, GradientBuffers<T>)
BARACUDA_ORDER_FLOATS(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::order
