// SPDX-License-Identifier: Apache-2.0
// Rows that are added by an index, as the routes of pybaracuda/torch/_rows.py do it. Of what those take, this is the
// common part: floats, rows along the first axis, an index of 64 bits.
#include "pytorch/rows.h"

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

// A sum of rows: `count` of them, of `columns` elements, by an index that names one of `extent` rows for each.
struct Problem {
  int64_t count;
  int64_t columns;
  int64_t extent;
};

// One call's sum. Memory comes before the first launch, so that a call that fails for the want of it counts nothing.
class RowSum {
 public:
  // `sums`: dtype of what is added, that of the sums.
  RowSum(const FunctionTable& table, int32_t sums, const Problem& problem, const View& like, const Place& place)
      : functions_(table[like.device][sums]), problem_(problem), place_(place),
        scratch_(scratch_bytes(), like) {}
  bool is_ready() const {
    return functions_.run != nullptr && functions_.workspace_size != nullptr && scratch_.is_there();
  }
  bool run(const void* rows, const int64_t* entries, void* sums) const {
    using Run = int32_t (*)(int32_t, int32_t, int32_t, const void*, const void*, void*, void*, size_t, void*);
    return reinterpret_cast<Run>(functions_.run)(narrow(problem_.count), narrow(problem_.columns),
                                                 narrow(problem_.extent), rows, entries, sums, scratch_.data(),
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

// output = given + the sums of `rows`, 16 bits rounded once. The output may be what is given.
bool add_rows(const FunctionTable& table, const Problem& problem, const Index& index, const View& like,
              const Place& place, const void* given, const void* rows, void* output) {
  const int64_t elements = problem.extent * problem.columns, added = problem.count * problem.columns;
  const bool is_narrow = is_16_bit(like), sums_apart = is_narrow || output == given;
  if (!place.is_cuda() && (elements > kMostOnHost || (is_narrow && added > kMostOnHost))) return false;
  const size_t wide_bytes = like.dtype == kF64 ? sizeof(double) : sizeof(float);
  const Scratch wide_rows(is_narrow ? static_cast<size_t>(added) * sizeof(float) : 0, like);
  const Scratch apart(sums_apart ? static_cast<size_t>(elements) * wide_bytes : 0, like);
  const RowSum sum(table, is_narrow ? kF32 : like.dtype, problem, like, place);
  if (!wide_rows.is_there() || !apart.is_there() || !sum.is_ready() || !screen(index, place)) return false;
  void* const sums = sums_apart ? apart.data() : output;
  const void* added_rows = rows;
  if (is_narrow) {
    auto* const wide = static_cast<float*>(wide_rows.data());
    if (!place.is_cuda()) host::widen(like.dtype, rows, wide, added);
    if (place.is_cuda() && !cuda::widen(like.dtype, rows, wide, added, place.stream())) return false;
    added_rows = wide;
  }
  if (!sum.run(added_rows, index.kept != nullptr ? index.kept : index.entries, sums)) return false;
  if (place.is_cuda()) return cuda::add(like.dtype, given, sums, output, elements, place.stream());
  host::add(like.dtype, given, sums, output, elements);
  return true;
}

// self, dim, index, src.
template <bool kInPlace>
bool scatter_add_rows(const FunctionTable& table, const Argument* arguments, Argument* results) {
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
  Owned output = kInPlace ? Owned::same(self) : Owned::empty(self.rank, self.sizes, self.torch_dtype, self);
  const auto* const entries = static_cast<const int64_t*>(index.data());
  if (!rows || !output || entries == nullptr) return false;
  const Index rows_index{entries, problem.count, problem.extent, false, -1, nullptr};
  if (!add_rows(table, problem, rows_index, self, place, self.data(), rows.data(), output.data())) return false;
  results[0] = output.release_argument();
  return true;
}

}  // namespace

bool scatter_add(const FunctionTable& functions, const Argument* arguments, Argument* results) {
  return scatter_add_rows<false>(functions, arguments, results);
}

bool scatter_add_in_place(const FunctionTable& functions, const Argument* arguments, Argument* results) {
  return scatter_add_rows<true>(functions, arguments, results);
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
  const RowSum sum(functions, grad.dtype, problem, grad, place);
  const Index index{static_cast<const int64_t*>(entries.data()), count, extent, false, padding >= 0 ? padding : -1,
                    static_cast<int64_t*>(kept.data())};
  if (!kept.is_there() || !sum.is_ready() || !screen(index, place) ||
      !sum.run(rows.data(), index.kept != nullptr ? index.kept : index.entries, output.data())) {
    return false;
  }
  results[0] = output.release_argument();
  return true;
}

}  // namespace baracuda::pytorch
