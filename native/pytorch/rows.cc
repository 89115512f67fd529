// SPDX-License-Identifier: Apache-2.0
// Rows that are added by an index, as the routes of pybaracuda/torch/_rows.py do it. Of what those take, this is the
// common part: floats, rows along the first axis, an index of 64 bits.
#include "pytorch/rows.h"

#include <cstring>

#include "pytorch/call.h"
#include "pytorch/steps.h"

namespace baracuda::pytorch {
namespace {

// Up to so many elements the steps take the host less time on one thread than Python takes for a call; PyTorch does
// larger ones on several threads.
constexpr int64_t kMostOnHost = int64_t{1} << 16;

bool is_16_bit(const View& view) { return view.dtype == kF16 || view.dtype == kBf16; }

bool are_entries(const View& view) {
  return view.is_known && view.torch_dtype == shim.aoti_torch_dtype_int64() && view.device != kOther &&
         has_extents(view);
}

// A reduction of rows: `count` of them, of `columns` elements, by an index that names one of `extent` rows for each.
struct Problem {
  int64_t count;
  int64_t columns;
  int64_t extent;
};

enum Reduction : int32_t { kSum, kProd, kMax, kMin };

// One call's reduction. Memory comes before the first launch, so that a call that fails for want of it counts nothing.
class RowReduction {
 public:
  // `dtype`: of the rows and of the result.
  RowReduction(const FunctionTable& table, Reduction reduction, int32_t dtype, const Problem& problem, const View& like,
               const Place& place)
      : functions_(table[reduction][like.device][dtype]),
        problem_(problem),
        place_(place),
        scratch_(scratch_bytes(), like) {}
  bool is_ready() const {
    return functions_.run != nullptr && functions_.workspace_size != nullptr && scratch_.is_there();
  }
  bool run(const void* rows, const int64_t* entries, void* output) const {
    using Run = int32_t (*)(int32_t, int32_t, int32_t, const void*, const void*, void*, void*, size_t, void*);
    return reinterpret_cast<Run>(functions_.run)(narrow(problem_.count), narrow(problem_.columns),
                                                 narrow(problem_.extent), rows, entries, output, scratch_.data(),
                                                 bytes_, place_.stream()) == 0;
  }

 private:
  // On the host the C function takes its own.
  size_t scratch_bytes() {
    using Size = size_t (*)(int32_t, int32_t, int32_t);
    if (!place_.is_cuda() || functions_.workspace_size == nullptr) return 0;
    bytes_ = reinterpret_cast<Size>(functions_.workspace_size)(narrow(problem_.count), narrow(problem_.columns),
                                                               narrow(problem_.extent));
    return bytes_;
  }

  const Functions& functions_;
  const Problem problem_;
  const Place& place_;
  size_t bytes_ = 0;
  const Scratch scratch_;
};

bool is_there(const View& like, const Place& place) {
  return place.is_ready() && (!place.is_cuda() || cuda::is_ready(like.device_index, place.stream()));
}

bool screen(const Index& index, const Place& place) {
  return place.is_cuda() ? cuda::screen(index, place.stream()) : host::screen(index);
}

// What becomes of a tensor by a reduction of rows.
struct Update {
  Reduction reduction = kSum;
  bool is_mean = false;
  // Whether what was there takes part, once and last; otherwise it stays where no entry names its row.
  bool includes_given = true;

  Join join() const {
    constexpr Join kJoins[] = {Join::kAdd, Join::kMultiply, Join::kMaximum, Join::kMinimum};
    return includes_given ? kJoins[reduction] : Join::kNone;
  }
  bool needs_counts() const { return is_mean || !includes_given; }
};

bool widen(int32_t dtype, const void* from, float* to, int64_t count, const Place& place) {
  if (place.is_cuda()) return cuda::widen(dtype, from, to, count, place.stream());
  host::widen(dtype, from, to, count);
  return true;
}

bool finish(int32_t dtype, const Finish& finish, const Place& place) {
  if (place.is_cuda()) return cuda::finish(dtype, finish, place.stream());
  host::finish(dtype, finish);
  return true;
}

bool count(const Index& index, int32_t* counts, const Place& place) {
  if (place.is_cuda()) return cuda::count(index, counts, place.stream());
  host::count(index, counts);
  return true;
}

// On the host the larger or smaller of what was there and of what the rows gave is PyTorch's own.
Owned extreme_on_host(const View& self, const Owned& found, int32_t wide_dtype, Join join) {
  Owned given = is_16_bit(self) ? Owned::empty(self.rank, self.sizes, wide_dtype, self) : Owned::same(self);
  Owned other = found.again();
  if (!given || !other) return Owned();
  if (is_16_bit(self)) host::widen(self.dtype, self.data(), static_cast<float*>(given.data()), self.numel());
  Argument stack[2] = {given.release_argument(), other.release_argument()};
  const char* const name = join == Join::kMaximum ? "aten::maximum" : "aten::minimum";
  if (shim.torch_call_dispatcher(name, "", stack, kPyTorchVersion) != 0) return Owned();
  return Owned(pointer_of(stack[0]));
}

// Writes to `output`, which may be `self`, what becomes of it by `rows`; 16 bits are rounded once.
bool apply(const FunctionTable& table, const Problem& problem, const Index& index, const View& self,
           const Place& place, const Update& update, const Owned& rows, const Owned& output) {
  const int64_t elements = problem.extent * problem.columns, added = problem.count * problem.columns;
  const bool is_narrow = is_16_bit(self);
  if (!place.is_cuda() && (elements > kMostOnHost || (is_narrow && added > kMostOnHost))) return false;
  const int32_t dtype = is_narrow ? kF32 : self.dtype;
  const int32_t torch_dtype = is_narrow ? shim.aoti_torch_dtype_float32() : self.torch_dtype;
  Join join = update.join();
  const bool is_by_pytorch = !place.is_cuda() && (join == Join::kMaximum || join == Join::kMinimum);
  // What the rows give stands in the output before the last step, if it may and fits there.
  const bool is_apart = !is_by_pytorch && (is_narrow || output.data() == self.data());
  const size_t bytes = dtype == kF64 ? sizeof(double) : sizeof(float);
  const Scratch wide_rows(is_narrow ? static_cast<size_t>(added) * sizeof(float) : 0, self);
  const Scratch apart(is_apart ? static_cast<size_t>(elements) * bytes : 0, self);
  const Scratch named(update.needs_counts() ? static_cast<size_t>(problem.extent) * sizeof(int32_t) : 0, self);
  Owned tensor = is_by_pytorch ? Owned::empty(self.rank, self.sizes, torch_dtype, self) : Owned();
  const RowReduction reduction(table, update.reduction, dtype, problem, self, place);
  if (!wide_rows.is_there() || !apart.is_there() || !named.is_there() || (is_by_pytorch && !tensor) ||
      !reduction.is_ready() || !screen(index, place)) {
    return false;
  }
  auto* const wide = static_cast<float*>(wide_rows.data());
  auto* const counts = static_cast<int32_t*>(named.data());
  void* found = is_by_pytorch ? tensor.data() : is_apart ? apart.data() : output.data();
  if ((is_narrow && !widen(self.dtype, rows.data(), wide, added, place)) ||
      !reduction.run(is_narrow ? wide : rows.data(), index.as_taken(), found) ||
      (counts != nullptr && !count(index, counts, place))) {
    return false;
  }
  if (is_by_pytorch) {
    tensor = extreme_on_host(self, tensor, torch_dtype, join);
    if (!tensor) return false;
    found = tensor.data();
    join = Join::kNone;
  }
  const Finish last{join,   update.is_mean, !update.includes_given, problem.extent, problem.columns,
                    counts, self.data(),    found,                  output.data()};
  return finish(self.dtype, last, place);
}

// self, dim, index, src.
bool scatter(const FunctionTable& table, const Argument* arguments, Argument* results, const Update& how,
             bool is_in_place) {
  const View self = View::of(arguments[0]), index = View::of(arguments[2]), src = View::of(arguments[3]);
  const int64_t dim = integer_of(arguments[1]);
  if (!is_float(self, self.rank) || self.rank < 1 || !self.is_contiguous() || (dim != 0 && dim != -self.rank) ||
      !is_float(src, self.rank) || !is_like(self, src) || !are_entries(index) || index.rank != self.rank ||
      !is_beside(self, index) || index.size(0) > src.size(0) || (index.size(0) > 1 && index.strides[0] != 1)) {
    return false;
  }
  for (int64_t axis = 1; axis < self.rank; ++axis) {
    if (index.size(axis) != self.size(axis) || src.size(axis) != self.size(axis) ||
        (index.size(axis) != 1 && index.strides[axis] != 0)) {
      return false;
    }
  }
  const Problem problem{index.size(0), self.numel() / self.size(0), self.size(0)};
  const Place place(self);
  if (!fits(problem.columns) || !is_there(self, place)) return false;
  const Owned rows = Owned::row_major(src);
  Owned output = is_in_place ? Owned::same(self) : Owned::empty(self.rank, self.sizes, self.torch_dtype, self);
  const auto* const entries = static_cast<const int64_t*>(index.data());
  if (!rows || !output || entries == nullptr) return false;
  const Index rows_index{entries, problem.count, problem.extent, -1, nullptr};
  if (!apply(table, problem, rows_index, self, place, how, rows, output)) return false;
  results[0] = output.release_argument();
  return true;
}

// Of scatter_reduce's arguments reduce and include_self; false where PyTorch says what is wrong.
bool read_reduction(const Argument* arguments, Update* how) {
  constexpr struct {
    const char* name;
    Reduction reduction;
    bool is_mean;
  } kNames[] = {{"sum", kSum, false}, {"mean", kSum, true}, {"prod", kProd, false}, {"amax", kMax, false},
                {"amin", kMin, false}};
  const char* name = nullptr;
  if (shim.torch_string_c_str(pointer_of(arguments[0]), &name) != 0) return false;
  for (const auto& each : kNames) {
    if (std::strcmp(each.name, name) == 0) {
      *how = {each.reduction, each.is_mean, bool_of(arguments[1])};
      return true;
    }
  }
  return false;
}

}  // namespace

bool scatter_add(const FunctionTable& functions, const Argument* arguments, Argument* results) {
  return scatter(functions, arguments, results, Update(), false);
}

bool scatter_add_in_place(const FunctionTable& functions, const Argument* arguments, Argument* results) {
  return scatter(functions, arguments, results, Update(), true);
}

// self, dim, index, src, reduce, include_self.
bool scatter_reduce(const FunctionTable& functions, const Argument* arguments, Argument* results) {
  Update how;
  return read_reduction(arguments + 4, &how) && scatter(functions, arguments, results, how, false);
}

bool scatter_reduce_in_place(const FunctionTable& functions, const Argument* arguments, Argument* results) {
  Update how;
  return read_reduction(arguments + 4, &how) && scatter(functions, arguments, results, how, true);
}

// grad_output, indices, num_weights, padding_idx, scale_grad_by_freq.
bool embedding_dense_backward(const FunctionTable& functions, const Argument* arguments, Argument* results) {
  const View grad = View::of(arguments[0]), indices = View::of(arguments[1]);
  const int64_t extent = integer_of(arguments[2]), padding = integer_of(arguments[3]);
  if (bool_of(arguments[4]) || !is_float(grad, grad.rank) || !are_entries(indices) || !is_beside(grad, indices) ||
      extent <= 0 || !fits(extent)) {
    return false;
  }
  const int64_t count = indices.numel();
  const Problem problem{count, grad.numel() / count, extent};
  const Place place(grad);
  if (grad.numel() % count != 0 || !fits(count) || !fits(problem.columns) || !is_there(grad, place)) return false;
  const int64_t sizes[2] = {extent, problem.columns};
  const Owned rows = Owned::row_major(grad), entries = Owned::row_major(indices);
  Owned output = Owned::empty(2, sizes, grad.torch_dtype, grad);
  if (!rows || !entries || entries.data() == nullptr || !output) return false;
  const Scratch kept(padding >= 0 ? static_cast<size_t>(count) * sizeof(int64_t) : 0, grad);
  const RowReduction sum(functions, kSum, grad.dtype, problem, grad, place);
  const Index index{static_cast<const int64_t*>(entries.data()), count, extent, padding >= 0 ? padding : -1,
                    static_cast<int64_t*>(kept.data())};
  if (!kept.is_there() || !sum.is_ready() || !screen(index, place) ||
      !sum.run(rows.data(), index.as_taken(), output.data())) {
    return false;
  }
  results[0] = output.release_argument();
  return true;
}

}  // namespace baracuda::pytorch
