// SPDX-License-Identifier: Apache-2.0
// The kernels: which calls they take, as the routes of pybaracuda/torch/_images.py say it, and what they do with them.
// A call that is not row-major 32- or 64-bit coordinates and the like is left to those routes, which convert.
#include "pytorch/operators.h"

#include <utility>

#include "baracuda_kernels.h"
#include "pytorch/call.h"
#include "pytorch/rows.h"

namespace baracuda::pytorch {
namespace {

// input, grid, interpolation, padding, align_corners; the numbers of both are those of the C options.
template <int kAxes>
bool takes_grid(const View& input, const View& grid, const Argument* modes) {
  constexpr int64_t kLastMode = kAxes == 2 ? 2 : 1, kReflection = 2;  // volumes have no bicubic samples
  const int64_t mode = integer_of(modes[0]), padding = integer_of(modes[1]);
  return mode >= 0 && mode <= kLastMode && padding >= 0 && padding <= kReflection && is_float(input, kAxes + 2) &&
         is_float(grid, kAxes + 2) && grid.size(kAxes + 1) == kAxes && grid.size(0) == input.size(0) &&
         is_like(input, grid) && are_coordinates(grid);
}

using GridOptions = baracuda_kernels_grid_sample_options;

GridOptions grid_options(const Argument* modes, int32_t gradients, bool shares_input) {
  return {sizeof(GridOptions), narrow(integer_of(modes[0])), narrow(integer_of(modes[1])), bool_of(modes[2]),
          gradients, shares_input};
}

// Whether a batch of images repeats one that is row-major.
bool repeats_one(const View& images) {
  if (images.size(0) < 2 || images.strides[0] != 0) return false;
  int64_t dense = 1;
  for (int64_t axis = images.rank - 1; axis > 0; dense *= images.size(axis), --axis) {
    if (images.size(axis) > 1 && images.strides[axis] != dense) return false;
  }
  return true;
}

// What the kernels read of an input: the tensor itself if it is row-major, or one image that it repeats, else a copy.
struct GridInput {
  bool is_shared;
  Owned images;

  explicit GridInput(const View& input)
      : is_shared(repeats_one(input)), images(is_shared ? Owned::same(input) : Owned::row_major(input)) {}
};

// The extents of images or volumes, then of samples.
template <int kAxes>
struct GridSizes {
  int64_t output[kAxes + 2];

  GridSizes(const View& input, const View& grid) : output{input.size(0), input.size(1)} {
    for (int axis = 0; axis < kAxes; ++axis) output[2 + axis] = grid.size(1 + axis);
  }

  template <typename... Pointers>
  bool run(const Functions& functions, const View& input, const Place& place, const GridOptions& options,
           Pointers... pointers) const {
    const int32_t n = narrow(output[0]), c = narrow(output[1]);
    const int32_t first = narrow(input.size(2)), second = narrow(input.size(3));
    const int32_t made = narrow(output[2]), also = narrow(output[3]);
    if constexpr (kAxes == 2) {
      using Images = Numbers<int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, const GridOptions*>;
      return Images::run(functions, input, place, n, c, first, second, made, also, &options, pointers...);
    } else {
      using Volumes =
          Numbers<int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, const GridOptions*>;
      return Volumes::run(functions, input, place, n, c, first, second, narrow(input.size(4)), made, also,
                          narrow(output[4]), &options, pointers...);
    }
  }
};

template <int kAxes>
bool grid_sampler(const FunctionTable& table, const Argument* arguments, Argument* results) {
  const View input = View::of(arguments[0]), grid = View::of(arguments[1]);
  if (!takes_grid<kAxes>(input, grid, arguments + 2)) return false;
  const Functions* const functions = functions_for(table, input);
  const Place place(input);
  if (functions == nullptr || !place.is_ready()) return false;
  const GridSizes<kAxes> sizes(input, grid);
  const GridInput x(input);
  const Owned g = Owned::row_major(grid);
  Owned output = Owned::empty(kAxes + 2, sizes.output, input.torch_dtype, input);
  if (!x.images || !g || !output) return false;
  const GridOptions options = grid_options(arguments + 2, 0, x.is_shared);
  if (!sizes.run(*functions, input, place, options, x.images.data(), g.data(), output.data())) return false;
  results[0] = output.release_argument();
  return true;
}

// grad_output, input, grid, interpolation, padding, align_corners, which gradients are wanted.
template <int kAxes>
bool grid_sampler_backward(const FunctionTable& table, const Argument* arguments, Argument* results) {
  const View grad = View::of(arguments[0]), input = View::of(arguments[1]), grid = View::of(arguments[2]);
  int64_t wanted[2] = {};
  if (!takes_grid<kAxes>(input, grid, arguments + 3) || !is_float(grad, kAxes + 2) || !is_like(input, grad) ||
      integers_of(arguments[6], 2, wanted) != 2) {
    return false;
  }
  const GridSizes<kAxes> sizes(input, grid);
  const Functions* const functions = functions_for(table, input);
  const Place place(input);
  if (functions == nullptr || !has_sizes(grad, sizes.output) || !place.is_ready()) return false;
  const GridInput x(input);
  const Owned dy = Owned::row_major(grad), g = Owned::row_major(grid);
  // PyTorch's kernel answers the second whether it is wanted or not, and its batching rule relies on that.
  const bool wants_input = bool_of(static_cast<Argument>(wanted[0]));
  Owned of_input =
      wants_input ? Owned::empty(kAxes + 2, input.sizes, input.torch_dtype, input) : Owned::undefined();
  Owned of_grid = Owned::empty(kAxes + 2, grid.sizes, grid.torch_dtype, grid);
  if (!dy || !x.images || !g || !of_input || !of_grid) return false;
  const GridOptions options = grid_options(arguments + 3, wants_input ? 0 : 2, x.is_shared);
  if (!sizes.run(*functions, input, place, options, dy.data(), x.images.data(), g.data(),
                 wants_input ? of_input.data() : nullptr, of_grid.data())) {
    return false;
  }
  results[0] = of_input.release_argument();
  results[1] = of_grid.release_argument();
  return true;
}

// Tensors by boxes: elements of a map or of bins, and the boxes.
bool takes_boxes(const View& elements, const View& boxes) {
  return is_float(elements, 4) && is_float(boxes, 2) && boxes.size(1) == 5 && is_like(elements, boxes) &&
         are_coordinates(boxes);
}

using AlignNumbers =
    Numbers<int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, float, int32_t, int32_t>;

// input, boxes, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned.
bool roi_align(const FunctionTable& table, const Argument* arguments, Argument* results) {
  const View input = View::of(arguments[0]), boxes = View::of(arguments[1]);
  const int64_t ph = integer_of(arguments[3]), pw = integer_of(arguments[4]), ratio = integer_of(arguments[5]);
  if (!takes_boxes(input, boxes) || ph <= 0 || pw <= 0 || !fits(ph) || !fits(pw) || !fits(ratio)) return false;
  const Functions* const functions = functions_for(table, input);
  const Place place(input);
  if (functions == nullptr || !place.is_ready()) return false;
  const int64_t sizes[4] = {boxes.size(0), input.size(1), ph, pw};
  const Owned x = Owned::row_major(input), rois = Owned::row_major(boxes);
  Owned output = Owned::empty(4, sizes, input.torch_dtype, input);
  if (!x || !rois || !output) return false;
  if (!AlignNumbers::run(*functions, input, place, narrow(input.size(0)), narrow(input.size(1)),
           narrow(input.size(2)), narrow(input.size(3)), narrow(boxes.size(0)), narrow(ph), narrow(pw),
           static_cast<float>(double_of(arguments[2])), narrow(ratio), int32_t{bool_of(arguments[6])}, x.data(),
           rois.data(), output.data())) {
    return false;
  }
  results[0] = output.release_argument();
  return true;
}

// Where the sizes of a map stand among the arguments of a gradient by boxes; false where they are no sizes of one.
bool map_sizes(const Argument* arguments, int64_t* sizes) {
  for (int axis = 0; axis < 4; ++axis) {
    sizes[axis] = integer_of(arguments[axis]);
    if (sizes[axis] <= 0 || !fits(sizes[axis])) return false;
  }
  return true;
}

// grad, boxes, spatial_scale, pooled_height, pooled_width, n, c, h, w, sampling_ratio, aligned.
bool roi_align_backward(const FunctionTable& table, const Argument* arguments, Argument* results) {
  const View grad = View::of(arguments[0]), boxes = View::of(arguments[1]);
  int64_t map[4];
  const int64_t ratio = integer_of(arguments[9]);
  if (!takes_boxes(grad, boxes) || !map_sizes(arguments + 5, map) || !fits(ratio)) return false;
  const int64_t bins[4] = {boxes.size(0), map[1], integer_of(arguments[3]), integer_of(arguments[4])};
  const Functions* const functions = functions_for(table, grad);
  const Place place(grad);
  if (functions == nullptr || !has_sizes(grad, bins) || !place.is_ready()) return false;
  const Owned dy = Owned::row_major(grad), rois = Owned::row_major(boxes);
  Owned of_input = Owned::empty(4, map, grad.torch_dtype, grad);
  if (!dy || !rois || !of_input) return false;
  if (!AlignNumbers::run(*functions, grad, place, narrow(map[0]), narrow(map[1]), narrow(map[2]), narrow(map[3]),
           narrow(bins[0]), narrow(bins[2]), narrow(bins[3]), static_cast<float>(double_of(arguments[2])),
           narrow(ratio), int32_t{bool_of(arguments[10])}, dy.data(), rois.data(), of_input.data())) {
    return false;
  }
  results[0] = of_input.release_argument();
  return true;
}

using PoolNumbers = Numbers<int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, float>;

// input, boxes, spatial_scale, pooled_height, pooled_width.
bool roi_pool(const FunctionTable& table, const Argument* arguments, Argument* results) {
  const View input = View::of(arguments[0]), boxes = View::of(arguments[1]);
  const int64_t ph = integer_of(arguments[3]), pw = integer_of(arguments[4]);
  if (!takes_boxes(input, boxes) || ph <= 0 || pw <= 0 || !fits(ph) || !fits(pw)) return false;
  const Functions* const functions = functions_for(table, input);
  const Place place(input);
  if (functions == nullptr || !place.is_ready()) return false;
  const int64_t sizes[4] = {boxes.size(0), input.size(1), ph, pw};
  const Owned x = Owned::row_major(input), rois = Owned::row_major(boxes);
  Owned output = Owned::empty(4, sizes, input.torch_dtype, input);
  Owned argmax = Owned::empty(4, sizes, shim.aoti_torch_dtype_int32(), input);
  if (!x || !rois || !output || !argmax) return false;
  if (!PoolNumbers::run(*functions, input, place, narrow(input.size(0)), narrow(input.size(1)),
           narrow(input.size(2)), narrow(input.size(3)), narrow(boxes.size(0)), narrow(ph), narrow(pw),
           static_cast<float>(double_of(arguments[2])), x.data(), rois.data(), output.data(), argmax.data())) {
    return false;
  }
  results[0] = output.release_argument();
  results[1] = argmax.release_argument();
  return true;
}

// grad, boxes, argmax, spatial_scale, pooled_height, pooled_width, n, c, h, w.
bool roi_pool_backward(const FunctionTable& table, const Argument* arguments, Argument* results) {
  const View grad = View::of(arguments[0]), boxes = View::of(arguments[1]), argmax = View::of(arguments[2]);
  int64_t map[4];
  if (!takes_boxes(grad, boxes) || !argmax.is_known || argmax.rank != 4 || !has_sizes(argmax, grad.sizes) ||
      argmax.torch_dtype != shim.aoti_torch_dtype_int32() || !is_beside(grad, argmax) ||
      !map_sizes(arguments + 6, map)) {
    return false;
  }
  const int64_t bins[4] = {boxes.size(0), map[1], grad.size(2), grad.size(3)};
  const Functions* const functions = functions_for(table, grad);
  const Place place(grad);
  if (functions == nullptr || !has_sizes(grad, bins) || !place.is_ready()) return false;
  const Owned dy = Owned::row_major(grad), rois = Owned::row_major(boxes), pixels = Owned::row_major(argmax);
  Owned of_input = Owned::empty(4, map, grad.torch_dtype, grad);
  if (!dy || !rois || !pixels || !of_input) return false;
  if (!Numbers<int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t>::run(*functions, grad, place,
           narrow(map[0]), narrow(map[1]), narrow(map[2]), narrow(map[3]), narrow(bins[0]), narrow(bins[2]),
           narrow(bins[3]), dy.data(), rois.data(), pixels.data(), of_input.data())) {
    return false;
  }
  results[0] = of_input.release_argument();
  return true;
}

// A pad of the last axes by elements that are there already.
struct Pad {
  static constexpr int64_t kMostRank = 5;
  int32_t shape[kMostRank], padded[kMostRank], low[kMostRank];
  int64_t padded_sizes[kMostRank];
};

// PyTorch's list of pads begins with the last axis. `is_reflecting`: no pad reaches as far as the input.
bool read_pad(const View& input, Argument list, int64_t axes, bool is_reflecting, Pad* pad) {
  int64_t pads[6];
  if (!input.is_known || (input.rank != axes + 1 && input.rank != axes + 2) || !is_float(input, input.rank) ||
      !input.is_contiguous() || integers_of(list, 6, pads) != 2 * axes) {
    return false;
  }
  for (int64_t axis = 0; axis < input.rank; ++axis) {
    const int64_t from_last = input.rank - 1 - axis, size = input.size(axis);
    const int64_t before = from_last < axes ? pads[2 * from_last] : 0;
    const int64_t after = from_last < axes ? pads[2 * from_last + 1] : 0;
    if (before < 0 || after < 0 || !fits(before) || !fits(after) || !fits(size + before + after)) return false;
    if (is_reflecting && (before >= size || after >= size)) return false;
    pad->shape[axis] = narrow(size);
    pad->padded_sizes[axis] = size + before + after;
    pad->padded[axis] = narrow(pad->padded_sizes[axis]);
    pad->low[axis] = narrow(before);
  }
  return true;
}

void row_major_strides(int64_t rank, const int64_t* sizes, int64_t* strides) {
  int64_t stride = 1;
  for (int64_t axis = rank - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    stride *= sizes[axis];
  }
}

using PadNumbers = Numbers<int64_t, int32_t, const int32_t*, const int32_t*, const int32_t*, const int64_t*,
                           const int64_t*>;

// input, pads.
template <int64_t kAxes, bool kIsReflecting>
bool pad_forward(const FunctionTable& table, const Argument* arguments, Argument* results) {
  const View input = View::of(arguments[0]);
  Pad pad;
  if (!read_pad(input, arguments[1], kAxes, kIsReflecting, &pad)) return false;
  const Functions* const functions = functions_for(table, input);
  const Place place(input);
  if (functions == nullptr || !place.is_ready()) return false;
  Owned output = Owned::empty(input.rank, pad.padded_sizes, input.torch_dtype, input);
  if (!output) return false;
  int64_t from[Pad::kMostRank], to[Pad::kMostRank], numel = 1;
  row_major_strides(input.rank, input.sizes, from);
  row_major_strides(input.rank, pad.padded_sizes, to);
  for (int64_t axis = 0; axis < input.rank; ++axis) numel *= pad.padded_sizes[axis];
  if (!PadNumbers::run(*functions, input, place, numel, narrow(input.rank), pad.shape, pad.padded, pad.low, from, to,
           input.data(), output.data())) {
    return false;
  }
  results[0] = output.release_argument();
  return true;
}

// grad_output, input, pads.
template <int64_t kAxes, bool kIsReflecting>
bool pad_backward(const FunctionTable& table, const Argument* arguments, Argument* results) {
  const View grad = View::of(arguments[0]), input = View::of(arguments[1]);
  Pad pad;
  if (!read_pad(input, arguments[2], kAxes, kIsReflecting, &pad) || !is_float(grad, input.rank) ||
      !is_like(grad, input) || !has_sizes(grad, pad.padded_sizes)) {
    return false;
  }
  const Functions* const functions = functions_for(table, input);
  const Place place(input);
  if (functions == nullptr || !place.is_ready()) return false;
  Owned of_input = Owned::empty(input.rank, input.sizes, input.torch_dtype, input);
  if (!of_input) return false;
  int64_t to[Pad::kMostRank];
  row_major_strides(input.rank, input.sizes, to);
  if (!PadNumbers::run(*functions, input, place, input.numel(), narrow(input.rank), pad.shape, pad.padded, pad.low,
           grad.strides, to, grad.data(), of_input.data())) {
    return false;
  }
  results[0] = of_input.release_argument();
  return true;
}

// grad_grid, sizes of the output, align_corners.
bool affine_grid_generator_backward(const FunctionTable& table, const Argument* arguments, Argument* results) {
  const View grad = View::of(arguments[0]);
  const int axes = static_cast<int>(grad.rank) - 2;
  int64_t sizes[5];
  if ((axes != 2 && axes != 3) || !is_float(grad, axes + 2) || !are_coordinates(grad) ||
      integers_of(arguments[1], 5, sizes) != axes + 2) {
    return false;
  }
  int64_t grid[5] = {sizes[0]};
  for (int axis = 0; axis < axes; ++axis) grid[1 + axis] = sizes[2 + axis];
  grid[1 + axes] = axes;
  // Images and volumes, in the order of the operator's symbols.
  const Functions& functions = table[axes - 2][grad.device][grad.dtype];
  const Place place(grad);
  if (functions.run == nullptr || functions.workspace_size == nullptr || !has_sizes(grad, grid) || !place.is_ready()) {
    return false;
  }
  const int64_t theta[3] = {sizes[0], axes, axes + 1};
  const Owned dy = Owned::row_major(grad);
  Owned of_theta = Owned::empty(3, theta, grad.torch_dtype, grad);
  if (!dy || !of_theta) return false;
  using Options = baracuda_kernels_affine_grid_options;
  const Options options{sizeof(Options), bool_of(arguments[2])};
  using Image = Numbers<int32_t, int32_t, int32_t, const Options*>;
  using Volume = Numbers<int32_t, int32_t, int32_t, int32_t, const Options*>;
  const bool is_done =
      axes == 2 ? Image::run(functions, grad, place, narrow(grid[0]), narrow(grid[1]), narrow(grid[2]), &options,
                             dy.data(), of_theta.data())
                : Volume::run(functions, grad, place, narrow(grid[0]), narrow(grid[1]), narrow(grid[2]),
                              narrow(grid[3]), &options, dy.data(), of_theta.data());
  if (!is_done) return false;
  results[0] = of_theta.release_argument();
  return true;
}

}  // namespace

#define BARACUDA_PADS(NAME, SYMBOL, AXES, IS_REFLECTING)                                            \
  {"aten::" NAME, {"baracuda_kernels_pad_" SYMBOL "_%s"}, "TL", 1, pad_forward<AXES, IS_REFLECTING>}, \
  {"aten::" NAME "_backward", {"baracuda_kernels_pad_" SYMBOL "_backward_%s"}, "TTL", 1,              \
   pad_backward<AXES, IS_REFLECTING>}

#define BARACUDA_ROWS(OPERATION) "baracuda_kernels_unsorted_segment_" OPERATION "_i64idx_%s"
// In the order of enum Reduction of native/pytorch/rows.cc.
#define BARACUDA_REDUCTIONS {BARACUDA_ROWS("sum"), BARACUDA_ROWS("prod"), BARACUDA_ROWS("max"), BARACUDA_ROWS("min")}

const Operator kOperators[] = {
    {"aten::grid_sampler_2d", {"baracuda_kernels_grid_sample_2d_ex_%s"}, "TTnnn", 1, grid_sampler<2>},
    {"aten::grid_sampler_2d_backward", {"baracuda_kernels_grid_sample_2d_ex_backward_%s"}, "TTTnnnL", 2,
     grid_sampler_backward<2>},
    {"aten::grid_sampler_3d", {"baracuda_kernels_grid_sample_3d_%s"}, "TTnnn", 1, grid_sampler<3>},
    {"aten::grid_sampler_3d_backward", {"baracuda_kernels_grid_sample_3d_backward_%s"}, "TTTnnnL", 2,
     grid_sampler_backward<3>},
    {"aten::affine_grid_generator_backward",
     {"baracuda_kernels_affine_grid_2d_ex_backward_%s", "baracuda_kernels_affine_grid_3d_backward_%s"}, "TLn", 1,
     affine_grid_generator_backward},
    {"torchvision::roi_align", {"baracuda_kernels_roi_align_%s"}, "TTnnnnn", 1, roi_align},
    {"torchvision::_roi_align_backward", {"baracuda_kernels_roi_align_backward_%s"}, "TTnnnnnnnnn", 1,
     roi_align_backward},
    {"torchvision::roi_pool", {"baracuda_kernels_roi_pool_%s"}, "TTnnn", 2, roi_pool},
    {"torchvision::_roi_pool_backward", {"baracuda_kernels_roi_pool_backward_%s"}, "TTTnnnnnnn", 1, roi_pool_backward},
    {"aten::embedding_dense_backward", {BARACUDA_ROWS("sum")}, "TTnnn", 1, embedding_dense_backward},
    {"aten::scatter_add", {BARACUDA_ROWS("sum")}, "TnTT", 1, scatter_add},
    {"aten::scatter_add_", {BARACUDA_ROWS("sum")}, "TnTT", 1, scatter_add_in_place},
    {"aten::scatter_reduce.two", BARACUDA_REDUCTIONS, "TnTTSn", 1, scatter_reduce},
    {"aten::scatter_reduce_.two", BARACUDA_REDUCTIONS, "TnTTSn", 1, scatter_reduce_in_place},
    BARACUDA_PADS("reflection_pad1d", "reflect", 1, true),
    BARACUDA_PADS("reflection_pad2d", "reflect", 2, true),
    BARACUDA_PADS("reflection_pad3d", "reflect", 3, true),
    BARACUDA_PADS("replication_pad1d", "replicate", 1, false),
    BARACUDA_PADS("replication_pad2d", "replicate", 2, false),
    BARACUDA_PADS("replication_pad3d", "replicate", 3, false),
};

#undef BARACUDA_REDUCTIONS
#undef BARACUDA_ROWS
#undef BARACUDA_PADS

const int32_t kOperatorCount = static_cast<int32_t>(sizeof kOperators / sizeof kOperators[0]);

}  // namespace baracuda::pytorch
