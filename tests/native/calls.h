// SPDX-License-Identifier: Apache-2.0
// Every symbol's `_run` as a call on plain buffers, with a few problems each, for the native tests that walk them all.
// What the buffers hold and what is checked belongs to those tests.
#pragma once

#include <baracuda_kernels.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace calls {

enum class Type { kF16, kBf16, kF32, kF64, kS8, kU8, kI32, kI64, kB128 };

inline size_t bytes_of(Type type) {
  switch (type) {
    case Type::kS8:
    case Type::kU8:
      return 1;
    case Type::kF16:
    case Type::kBf16:
      return 2;
    case Type::kF32:
    case Type::kI32:
      return 4;
    case Type::kB128:
      return 16;
    case Type::kF64:
    case Type::kI64:
      break;
  }
  return 8;
}

struct Tensor {
  Type type;
  int64_t elements;
  bool is_output;
  size_t bytes() const { return static_cast<size_t>(elements) * bytes_of(type); }
};

// One problem of one symbol. `run` takes the tensors' addresses in call order.
struct Call {
  std::string symbol;
  std::vector<Tensor> tensors;
  size_t workspace_bytes;
  std::function<int32_t(void* const*, void*, size_t)> run;
};

class Table {
 public:
  Table() {
    roi_align();
    grid_sample();
    affine_grid();
    pad();
    segment();
    dequantize();
  }
  const std::vector<Call>& calls() const { return calls_; }
  size_t symbols() const {
    std::set<std::string> names;
    for (const Call& call : calls_) names.insert(call.symbol);
    return names.size();
  }

 private:
  using Shape = std::vector<int32_t>;

  void add(const char* symbol, std::vector<Tensor> tensors, size_t workspace_bytes,
           std::function<int32_t(void* const*, void*, size_t)> run) {
    calls_.push_back({symbol, std::move(tensors), workspace_bytes, std::move(run)});
  }

  static int64_t product(const Shape& shape) {
    int64_t count = 1;
    for (int32_t extent : shape) count *= extent;
    return count;
  }

  static std::vector<int64_t> dense_strides(const Shape& shape) {
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * (shape[axis] > 0 ? shape[axis] : 1);
    return strides;
  }

  // Tiles and blocks on either side of their sizes, many boxes on a small map, and every kind of zero extent.
  struct RoiProblem {
    int32_t n, c, h, w, rois, pooled_h, pooled_w;
    float scale;
    int32_t ratio, aligned;
  };
  static std::vector<RoiProblem> roi_problems() {
    return {{2, 3, 7, 9, 5, 2, 3, 0.5f, 2, 0},   {1, 17, 9, 65, 9, 3, 2, 1.0f, 0, 1}, {1, 2, 16, 16, 130, 2, 2, 1.0f, 1, 1},
            {3, 1, 1, 1, 7, 1, 1, 2.0f, 3, 0},   {2, 2, 0, 5, 3, 2, 2, 1.0f, 2, 0},   {2, 2, 5, 5, 0, 2, 2, 1.0f, 2, 0},
            {0, 2, 5, 5, 3, 2, 2, 1.0f, 2, 0},   {2, 2, 5, 5, 3, 0, 2, 1.0f, 2, 0},   {1, 1, 5, 5, 40, 7, 7, -3.0f, -1, 0}};
  }
  template <class Run, class Size>
  void roi_align(const char* symbol, Type t, Type c, bool backward, Run* run, Size* size) {
    for (const RoiProblem& p : roi_problems()) {
      const Tensor image{t, static_cast<int64_t>(p.n) * p.c * p.h * p.w, backward};
      const Tensor bins{t, static_cast<int64_t>(p.rois) * p.c * p.pooled_h * p.pooled_w, !backward};
      const Tensor boxes{c, static_cast<int64_t>(p.rois) * 5, false};
      add(symbol, backward ? std::vector<Tensor>{bins, boxes, image} : std::vector<Tensor>{image, boxes, bins},
          size(p.n, p.c, p.h, p.w, p.rois, p.pooled_h, p.pooled_w, p.scale, p.ratio, p.aligned),
          [=](void* const* x, void* workspace, size_t bytes) {
            return run(p.n, p.c, p.h, p.w, p.rois, p.pooled_h, p.pooled_w, p.scale, p.ratio, p.aligned, x[0], x[1], x[2],
                       workspace, bytes, nullptr);
          });
    }
  }
  void roi_align();

  struct GridProblem {
    int32_t n, c, input_h, input_w, output_h, output_w;
  };
  static std::vector<GridProblem> grid_problems() {
    return {{2, 3, 4, 5, 3, 2},  {1, 65, 3, 3, 20, 17}, {1, 2, 33, 17, 16, 40}, {1, 1, 1, 1, 30, 30}, {2, 2, 0, 3, 3, 3},
            {2, 2, 3, 0, 3, 3},  {2, 0, 3, 3, 3, 3},    {0, 2, 3, 3, 3, 3},     {2, 2, 3, 3, 0, 3}};
  }
  template <class Run, class Size>
  void grid_sample(const char* symbol, Type t, Type c, Run* run, Size* size) {
    for (const GridProblem& p : grid_problems()) {
      const int64_t image = static_cast<int64_t>(p.n) * p.c * p.input_h * p.input_w;
      const int64_t samples = static_cast<int64_t>(p.n) * p.output_h * p.output_w;
      add(symbol, {{t, image, false}, {c, 2 * samples, false}, {t, samples * p.c, true}},
          size(p.n, p.c, p.input_h, p.input_w, p.output_h, p.output_w), [=](void* const* x, void* workspace, size_t bytes) {
            return run(p.n, p.c, p.input_h, p.input_w, p.output_h, p.output_w, x[0], x[1], x[2], workspace, bytes, nullptr);
          });
    }
  }
  template <class Run, class Size>
  void grid_sample_backward(const char* symbol, Type t, Type c, Run* run, Size* size) {
    for (const GridProblem& p : grid_problems()) {
      const int64_t image = static_cast<int64_t>(p.n) * p.c * p.input_h * p.input_w;
      const int64_t samples = static_cast<int64_t>(p.n) * p.output_h * p.output_w;
      add(symbol,
          {{t, samples * p.c, false}, {t, image, false}, {c, 2 * samples, false}, {t, image, true}, {c, 2 * samples, true}},
          size(p.n, p.c, p.input_h, p.input_w, p.output_h, p.output_w), [=](void* const* x, void* workspace, size_t bytes) {
            return run(p.n, p.c, p.input_h, p.input_w, p.output_h, p.output_w, x[0], x[1], x[2], x[3], x[4], workspace, bytes,
                       nullptr);
          });
    }
  }
  void grid_sample();

  template <class Run, class Size>
  void affine_grid(const char* symbol, Type c, bool backward, Run* run, Size* size) {
    const Shape problems[] = {{2, 3, 4}, {1, 33, 17}, {3, 1, 1}, {1, 128, 512}, {0, 3, 3}, {2, 0, 3}, {2, 3, 0}};
    for (const Shape& p : problems) {
      const int32_t n = p[0], h = p[1], w = p[2];
      const Tensor theta{c, 6 * static_cast<int64_t>(n), backward};
      const Tensor grid{c, 2 * product(p), !backward};
      add(symbol, backward ? std::vector<Tensor>{grid, theta} : std::vector<Tensor>{theta, grid}, size(n, h, w),
          [=](void* const* x, void* workspace, size_t bytes) {
            return run(n, h, w, x[0], x[1], workspace, bytes, nullptr);
          });
    }
  }
  void affine_grid();

  struct PadProblem {
    Shape input, low, high;
  };
  static std::vector<PadProblem> pad_problems() {
    return {{{2, 3, 5}, {1, 0, 2}, {0, 2, 1}},
            {{}, {}, {}},
            {{7}, {3}, {0}},
            {{2, 1, 2, 1, 2, 1, 2, 3}, {0, 1, 0, 1, 0, 1, 0, 1}, {1, 0, 1, 0, 1, 0, 1, 0}},
            {{0, 3}, {1, 1}, {1, 1}},
            {{200, 300}, {1, 1}, {3, 2}},
            {{50, 7, 7}, {0, 1, 1}, {0, 1, 1}},
            {{1, 1}, {0, 0}, {0, 0}}};
  }
  static Shape padded(const PadProblem& p) {
    Shape shape = p.input;
    for (size_t axis = 0; axis < shape.size(); ++axis) shape[axis] += p.low[axis] + p.high[axis];
    return shape;
  }
  // A problem's arrays, which outlive the calls that hold it.
  struct PadArrays {
    Shape input, output, low;
    std::vector<int64_t> input_strides, output_strides;
    int32_t rank() const { return static_cast<int32_t>(input.size()); }
    // A host array of rank 0 still has an address.
    template <class Array>
    static const typename Array::value_type* host(const Array& array) {
      static const typename Array::value_type nothing{};
      return array.empty() ? &nothing : array.data();
    }
  };
  // Constant padding of nothing is a problem, repeating nothing is none.
  static std::vector<PadArrays> pad_arrays(bool repeats) {
    std::vector<PadArrays> found;
    for (const PadProblem& p : pad_problems()) {
      if (repeats && product(p.input) == 0) continue;
      const Shape output = padded(p);
      found.push_back({p.input, output, p.low, dense_strides(p.input), dense_strides(output)});
    }
    return found;
  }
  // `call` completes a call of `function`, run or workspace_size: it adds what its operator takes beside the axes.
  template <class Call>
  void pad_forward(const char* symbol, Type t, bool repeats, Call call) {
    for (const PadArrays& p : pad_arrays(repeats)) {
      add(symbol, {{t, product(p.input), false}, {t, product(p.output), true}}, call(p, nullptr, nullptr, 0).workspace_bytes,
          [=](void* const* x, void* workspace, size_t bytes) { return call(p, x, workspace, bytes).status; });
    }
  }
  template <class Call>
  void pad_gradient(const char* symbol, Type t, bool repeats, Call call) {
    for (const PadArrays& p : pad_arrays(repeats)) {
      add(symbol, {{t, product(p.output), false}, {t, product(p.input), true}}, call(p, nullptr, nullptr, 0).workspace_bytes,
          [=](void* const* x, void* workspace, size_t bytes) { return call(p, x, workspace, bytes).status; });
    }
  }
  // What a call answers: the status, or without tensors the workspace it wants.
  struct PadAnswer {
    int32_t status;
    size_t workspace_bytes;
  };
  template <class Value, class Run, class Size>
  void pad_constant(const char* symbol, Type t, Value value, Run* run, Size* size) {
    pad_forward(symbol, t, false, [=](const PadArrays& p, void* const* x, void* workspace, size_t bytes) {
      const auto with = [&](auto* function, auto... rest) {
        return function(product(p.output), p.rank(), p.host(p.input), p.host(p.output), p.host(p.low),
                        p.host(p.input_strides), p.host(p.output_strides), rest...);
      };
      if (x == nullptr) return PadAnswer{0, with(size)};
      return PadAnswer{with(run, x[0], x[1], value, workspace, bytes, nullptr), 0};
    });
  }
  template <class Run, class Size>
  void pad_mode(const char* symbol, Type t, Run* run, Size* size) {
    pad_forward(symbol, t, true, [=](const PadArrays& p, void* const* x, void* workspace, size_t bytes) {
      const auto with = [&](auto* function, auto... rest) {
        return function(product(p.output), p.rank(), p.host(p.input), p.host(p.output), p.host(p.low),
                        p.host(p.input_strides), p.host(p.output_strides), rest...);
      };
      if (x == nullptr) return PadAnswer{0, with(size)};
      return PadAnswer{with(run, x[0], x[1], workspace, bytes, nullptr), 0};
    });
  }
  template <class Run, class Size>
  void pad_ex(const char* symbol, Type t, Run* run, Size* size) {
    for (int32_t mode = 0; mode < 5; ++mode) {
      pad_forward(symbol, t, mode > 0, [=](const PadArrays& p, void* const* x, void* workspace, size_t bytes) {
        const baracuda_kernels_pad_options options{sizeof options, mode, nullptr};
        const auto with = [&](auto* function, auto... rest) {
          return function(product(p.output), p.rank(), p.host(p.input), p.host(p.output), p.host(p.low),
                          p.host(p.input_strides), p.host(p.output_strides), &options, rest...);
        };
        if (x == nullptr) return PadAnswer{0, with(size)};
        return PadAnswer{with(run, x[0], x[1], workspace, bytes, nullptr), 0};
      });
    }
  }
  template <class Run, class Size>
  void pad_constant_backward(const char* symbol, Type t, Run* run, Size* size) {
    pad_gradient(symbol, t, false, [=](const PadArrays& p, void* const* x, void* workspace, size_t bytes) {
      const auto with = [&](auto* function, auto... rest) {
        return function(product(p.input), p.rank(), p.host(p.input), p.host(p.low), p.host(p.output_strides),
                        p.host(p.input_strides), rest...);
      };
      if (x == nullptr) return PadAnswer{0, with(size)};
      return PadAnswer{with(run, x[0], x[1], workspace, bytes, nullptr), 0};
    });
  }
  template <class Run, class Size>
  void pad_mode_backward(const char* symbol, Type t, Run* run, Size* size) {
    pad_gradient(symbol, t, true, [=](const PadArrays& p, void* const* x, void* workspace, size_t bytes) {
      const auto with = [&](auto* function, auto... rest) {
        return function(product(p.input), p.rank(), p.host(p.input), p.host(p.output), p.host(p.low),
                        p.host(p.output_strides), p.host(p.input_strides), rest...);
      };
      if (x == nullptr) return PadAnswer{0, with(size)};
      return PadAnswer{with(run, x[0], x[1], workspace, bytes, nullptr), 0};
    });
  }
  template <class Run, class Size>
  void pad_ex_backward(const char* symbol, Type t, Run* run, Size* size) {
    for (int32_t mode = 0; mode < 5; ++mode) {
      pad_gradient(symbol, t, mode > 0, [=](const PadArrays& p, void* const* x, void* workspace, size_t bytes) {
        const baracuda_kernels_pad_options options{sizeof options, mode, nullptr};
        const auto with = [&](auto* function, auto... rest) {
          return function(product(p.input), p.rank(), p.host(p.input), p.host(p.output), p.host(p.low),
                          p.host(p.output_strides), p.host(p.input_strides), &options, rest...);
        };
        if (x == nullptr) return PadAnswer{0, with(size)};
        return PadAnswer{with(run, x[0], x[1], workspace, bytes, nullptr), 0};
      });
    }
  }
  void pad();

  static std::vector<Shape> segment_problems() {  // rows, columns, segments
    return {{7, 3, 4}, {700, 9, 5}, {1, 1, 1}, {600, 17, 600}, {0, 3, 4}, {7, 0, 4}, {7, 3, 0}, {300, 1, 3}};
  }
  // `layout` names the tensors in call order, inputs in capitals: (R)ows, (S)egments, (I)ds, (O)ffsets, (A)rgs.
  template <class Run, size_t... K>
  static int32_t run_segment(Run* run, const Shape& p, void* const* x, std::index_sequence<K...>, void* workspace,
                             size_t bytes) {
    return run(p[0], p[1], p[2], x[K]..., workspace, bytes, nullptr);
  }
  template <size_t kTensors, class Run, class Size>
  void segment(const char* symbol, Type t, Type i, const char* layout, Run* run, Size* size) {
    for (const Shape& p : segment_problems()) {
      const int64_t rows = static_cast<int64_t>(p[0]) * p[1], segments = static_cast<int64_t>(p[2]) * p[1];
      std::vector<Tensor> tensors;
      for (size_t k = 0; k < kTensors; ++k) {
        const bool output = layout[k] >= 'a';
        switch (output ? layout[k] - 'a' + 'A' : layout[k]) {
          case 'R':
            tensors.push_back({t, rows, output});
            break;
          case 'S':
            tensors.push_back({t, segments, output});
            break;
          case 'A':
            tensors.push_back({i, segments, output});
            break;
          default:
            tensors.push_back({i, layout[k] == 'O' ? int64_t{p[2]} + 1 : int64_t{p[0]}, output});
        }
      }
      add(symbol, std::move(tensors), size(p[0], p[1], p[2]), [=](void* const* x, void* workspace, size_t bytes) {
        return run_segment(run, p, x, std::make_index_sequence<kTensors>(), workspace, bytes);
      });
    }
  }
  template <class Run, class Size>
  void segment_ex(const char* symbol, Type t, Type i, Run* run, Size* size) {
    // The bytes of a value of any type.
    static constexpr uint64_t kValue[] = {0x7fc12345ffc12345u};
    const bool floats = t != Type::kI32 && t != Type::kI64;
    for (int32_t reduce = 0; reduce < 8; ++reduce) {
      if (!floats && (reduce == 1 || reduce == 5)) continue;
      for (const Shape& p : segment_problems()) {
        const int32_t form = (reduce + p[0]) % 3;
        const baracuda_kernels_segment_options options{sizeof options, reduce, form, p[0] % 2 == 0 ? nullptr : kValue};
        const int64_t segments = static_cast<int64_t>(p[2]) * p[1];
        add(symbol,
            {{t, static_cast<int64_t>(p[0]) * p[1], false}, {i, form == 2 ? int64_t{p[2]} + 1 : int64_t{p[0]}, false},
             {t, segments, true}, {i, reduce >= 6 ? segments : 0, true}},
            size(p[0], p[1], p[2], &options), [=](void* const* x, void* workspace, size_t bytes) {
              return run(p[0], p[1], p[2], &options, x[0], x[1], x[2], x[3], workspace, bytes, nullptr);
            });
      }
    }
  }
  void segment();

  struct ChannelProblem {
    Shape shape;
    int32_t axis;
  };
  static std::vector<ChannelProblem> channel_problems() {
    return {{{2, 3, 5, 7}, 0}, {{2, 3, 5, 7}, 1},  {{2, 3, 5, 7}, 2},   {{2, 3, 5, 7}, 3},
            {{1, 1, 1, 1}, 3}, {{0, 3, 1, 1}, 1},  {{3, 0, 1, 1}, 1},   {{1, 33, 1, 17}, 1},
            {{300, 1, 1, 129}, 3}, {{1, 5, 64, 200}, 1}};
  }
  template <class Run, class Size>
  void dequantize(const char* symbol, Type t, Type q, Run* run, Size* size) {
    for (const ChannelProblem& p : channel_problems()) {
      const int64_t numel = product(p.shape);
      const int64_t channels = p.shape[static_cast<size_t>(p.axis)];
      add(symbol, {{q, numel, false}, {t, channels, false}, {Type::kI32, channels, false}, {t, numel, true}},
          size(numel, p.shape.data(), p.axis), [=](void* const* x, void* workspace, size_t bytes) {
            return run(numel, p.shape.data(), p.axis, x[0], x[1], x[2], x[3], workspace, bytes, nullptr);
          });
    }
  }
  template <class Run, class Size>
  void dequantize_backward(const char* symbol, Type t, Run* run, Size* size) {
    for (const ChannelProblem& p : channel_problems()) {
      const int64_t numel = product(p.shape);
      const int64_t channels = p.shape[static_cast<size_t>(p.axis)];
      add(symbol, {{t, channels, false}, {t, numel, false}, {t, numel, true}}, size(numel, p.shape.data(), p.axis),
          [=](void* const* x, void* workspace, size_t bytes) {
            return run(numel, p.shape.data(), p.axis, x[0], x[1], x[2], workspace, bytes, nullptr);
          });
    }
  }
  void dequantize();

  std::vector<Call> calls_;
};

// METHOD(name, types, run, workspace_size) of one symbol.
#define BARACUDA_ADD(METHOD, SYMBOL, ...) \
  METHOD(#SYMBOL, __VA_ARGS__, baracuda_kernels_##SYMBOL##_run, baracuda_kernels_##SYMBOL##_workspace_size)

inline void Table::roi_align() {
  BARACUDA_ADD(roi_align, roi_align_f32, Type::kF32, Type::kF32, false);
  BARACUDA_ADD(roi_align, roi_align_f64, Type::kF64, Type::kF64, false);
  BARACUDA_ADD(roi_align, roi_align_f16, Type::kF16, Type::kF32, false);
  BARACUDA_ADD(roi_align, roi_align_bf16, Type::kBf16, Type::kF32, false);
  BARACUDA_ADD(roi_align, roi_align_backward_f32, Type::kF32, Type::kF32, true);
  BARACUDA_ADD(roi_align, roi_align_backward_f64, Type::kF64, Type::kF64, true);
  BARACUDA_ADD(roi_align, roi_align_backward_f16, Type::kF16, Type::kF32, true);
  BARACUDA_ADD(roi_align, roi_align_backward_bf16, Type::kBf16, Type::kF32, true);
}

inline void Table::grid_sample() {
  BARACUDA_ADD(grid_sample, grid_sample_2d_f32, Type::kF32, Type::kF32);
  BARACUDA_ADD(grid_sample, grid_sample_2d_f64, Type::kF64, Type::kF64);
  BARACUDA_ADD(grid_sample, grid_sample_2d_f16, Type::kF16, Type::kF32);
  BARACUDA_ADD(grid_sample, grid_sample_2d_bf16, Type::kBf16, Type::kF32);
  BARACUDA_ADD(grid_sample_backward, grid_sample_2d_backward_f32, Type::kF32, Type::kF32);
  BARACUDA_ADD(grid_sample_backward, grid_sample_2d_backward_f64, Type::kF64, Type::kF64);
  BARACUDA_ADD(grid_sample_backward, grid_sample_2d_backward_f16, Type::kF16, Type::kF32);
  BARACUDA_ADD(grid_sample_backward, grid_sample_2d_backward_bf16, Type::kBf16, Type::kF32);
}

inline void Table::affine_grid() {
  BARACUDA_ADD(affine_grid, affine_grid_2d_f32, Type::kF32, false);
  BARACUDA_ADD(affine_grid, affine_grid_2d_f64, Type::kF64, false);
  BARACUDA_ADD(affine_grid, affine_grid_2d_backward_f32, Type::kF32, true);
  BARACUDA_ADD(affine_grid, affine_grid_2d_backward_f64, Type::kF64, true);
}

// Every variant of a pad operator that passes no value.
#define BARACUDA_ADD_FLOATS(METHOD, SYMBOL)         \
  BARACUDA_ADD(METHOD, SYMBOL##_f32, Type::kF32);   \
  BARACUDA_ADD(METHOD, SYMBOL##_f64, Type::kF64);   \
  BARACUDA_ADD(METHOD, SYMBOL##_f16, Type::kF16);   \
  BARACUDA_ADD(METHOD, SYMBOL##_bf16, Type::kBf16)
#define BARACUDA_ADD_MOVES(METHOD, SYMBOL)          \
  BARACUDA_ADD_FLOATS(METHOD, SYMBOL);              \
  BARACUDA_ADD(METHOD, SYMBOL##_b8, Type::kU8);     \
  BARACUDA_ADD(METHOD, SYMBOL##_b16, Type::kF16);   \
  BARACUDA_ADD(METHOD, SYMBOL##_b32, Type::kI32);   \
  BARACUDA_ADD(METHOD, SYMBOL##_b64, Type::kI64);   \
  BARACUDA_ADD(METHOD, SYMBOL##_b128, Type::kB128)

inline void Table::pad() {
  BARACUDA_ADD(pad_constant, pad_constant_f32, Type::kF32, 1.5f);
  BARACUDA_ADD(pad_constant, pad_constant_f64, Type::kF64, 1.5);
  BARACUDA_ADD(pad_constant, pad_constant_f16, Type::kF16, uint16_t{0x7e01});
  BARACUDA_ADD(pad_constant, pad_constant_bf16, Type::kBf16, uint16_t{0x7fc1});
  BARACUDA_ADD(pad_constant, pad_constant_b8, Type::kU8, uint8_t{0x9c});
  BARACUDA_ADD(pad_constant, pad_constant_b16, Type::kF16, uint16_t{0x7e01});
  BARACUDA_ADD(pad_constant, pad_constant_b32, Type::kI32, uint32_t{0xffa00001});
  BARACUDA_ADD(pad_constant, pad_constant_b64, Type::kI64, uint64_t{1} << 63);
  BARACUDA_ADD(pad_constant, pad_constant_b128, Type::kB128, (baracuda_kernels_bits128{1, 2}));
  BARACUDA_ADD_FLOATS(pad_constant_backward, pad_constant_backward);
  BARACUDA_ADD_MOVES(pad_mode, pad_reflect);
  BARACUDA_ADD_FLOATS(pad_mode_backward, pad_reflect_backward);
  BARACUDA_ADD_MOVES(pad_mode, pad_replicate);
  BARACUDA_ADD_FLOATS(pad_mode_backward, pad_replicate_backward);
  BARACUDA_ADD_MOVES(pad_mode, pad_circular);
  BARACUDA_ADD_FLOATS(pad_mode_backward, pad_circular_backward);
  BARACUDA_ADD_MOVES(pad_mode, pad_symmetric);
  BARACUDA_ADD_FLOATS(pad_mode_backward, pad_symmetric_backward);
  BARACUDA_ADD_MOVES(pad_ex, pad_ex);
  BARACUDA_ADD_FLOATS(pad_ex_backward, pad_ex_backward);
}

#define BARACUDA_ADD_SEGMENT(SYMBOL, LAYOUT, T, I) \
  segment<sizeof(LAYOUT) - 1>(#SYMBOL, T, I, LAYOUT, baracuda_kernels_##SYMBOL##_run, \
                              baracuda_kernels_##SYMBOL##_workspace_size)
#define BARACUDA_ADD_SEGMENT_FLOATS(NAME, LAYOUT)                                       \
  BARACUDA_ADD_SEGMENT(NAME##_f32, LAYOUT, Type::kF32, Type::kI32);             \
  BARACUDA_ADD_SEGMENT(NAME##_f64, LAYOUT, Type::kF64, Type::kI32);             \
  BARACUDA_ADD_SEGMENT(NAME##_f16, LAYOUT, Type::kF16, Type::kI32);             \
  BARACUDA_ADD_SEGMENT(NAME##_bf16, LAYOUT, Type::kBf16, Type::kI32);           \
  BARACUDA_ADD_SEGMENT(NAME##_i64idx_f32, LAYOUT, Type::kF32, Type::kI64);      \
  BARACUDA_ADD_SEGMENT(NAME##_i64idx_f64, LAYOUT, Type::kF64, Type::kI64);      \
  BARACUDA_ADD_SEGMENT(NAME##_i64idx_f16, LAYOUT, Type::kF16, Type::kI64);      \
  BARACUDA_ADD_SEGMENT(NAME##_i64idx_bf16, LAYOUT, Type::kBf16, Type::kI64)
#define BARACUDA_ADD_SEGMENT_NUMBERS(NAME, LAYOUT)                                      \
  BARACUDA_ADD_SEGMENT_FLOATS(NAME, LAYOUT);                                            \
  BARACUDA_ADD_SEGMENT(NAME##_i32, LAYOUT, Type::kI32, Type::kI32);             \
  BARACUDA_ADD_SEGMENT(NAME##_i64, LAYOUT, Type::kI64, Type::kI32);             \
  BARACUDA_ADD_SEGMENT(NAME##_i64idx_i32, LAYOUT, Type::kI32, Type::kI64);      \
  BARACUDA_ADD_SEGMENT(NAME##_i64idx_i64, LAYOUT, Type::kI64, Type::kI64)

inline void Table::segment() {
  BARACUDA_ADD_SEGMENT_NUMBERS(unsorted_segment_sum, "RIs");
  BARACUDA_ADD_SEGMENT_NUMBERS(unsorted_segment_max, "RIs");
  BARACUDA_ADD_SEGMENT_NUMBERS(unsorted_segment_min, "RIs");
  BARACUDA_ADD_SEGMENT_NUMBERS(unsorted_segment_prod, "RIs");
  BARACUDA_ADD_SEGMENT_FLOATS(unsorted_segment_mean, "RIs");
  BARACUDA_ADD_SEGMENT_FLOATS(unsorted_segment_logsumexp, "RIs");
  BARACUDA_ADD_SEGMENT_FLOATS(unsorted_segment_softmax, "RIr");
  BARACUDA_ADD_SEGMENT_NUMBERS(unsorted_segment_max_with_arg, "RIsa");
  BARACUDA_ADD_SEGMENT_NUMBERS(unsorted_segment_min_with_arg, "RIsa");
  BARACUDA_ADD_SEGMENT_FLOATS(unsorted_segment_sum_backward, "SIr");
  BARACUDA_ADD_SEGMENT_FLOATS(unsorted_segment_mean_backward, "SIr");
  BARACUDA_ADD_SEGMENT_FLOATS(unsorted_segment_max_backward, "SRIr");
  BARACUDA_ADD_SEGMENT_FLOATS(unsorted_segment_min_backward, "SRIr");
  BARACUDA_ADD_SEGMENT_FLOATS(unsorted_segment_max_even_backward, "SRIr");
  BARACUDA_ADD_SEGMENT_FLOATS(unsorted_segment_min_even_backward, "SRIr");
  BARACUDA_ADD_SEGMENT_FLOATS(unsorted_segment_max_with_arg_backward, "SAIr");
  BARACUDA_ADD_SEGMENT_FLOATS(unsorted_segment_min_with_arg_backward, "SAIr");
  BARACUDA_ADD_SEGMENT_FLOATS(unsorted_segment_prod_backward, "SRSIr");
  BARACUDA_ADD_SEGMENT_FLOATS(unsorted_segment_logsumexp_backward, "SRSIr");
  BARACUDA_ADD_SEGMENT_FLOATS(unsorted_segment_softmax_backward, "RRIr");
  BARACUDA_ADD_SEGMENT_NUMBERS(segment_sum, "RIs");
  BARACUDA_ADD_SEGMENT_NUMBERS(segment_max, "RIs");
  BARACUDA_ADD_SEGMENT_NUMBERS(segment_min, "RIs");
  BARACUDA_ADD_SEGMENT_NUMBERS(segment_prod, "RIs");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_mean, "RIs");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_logsumexp, "RIs");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_softmax, "RIr");
  BARACUDA_ADD_SEGMENT_NUMBERS(segment_max_with_arg, "RIsa");
  BARACUDA_ADD_SEGMENT_NUMBERS(segment_min_with_arg, "RIsa");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_sum_backward, "SIr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_mean_backward, "SIr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_max_backward, "SRIr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_min_backward, "SRIr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_max_even_backward, "SRIr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_min_even_backward, "SRIr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_max_with_arg_backward, "SAIr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_min_with_arg_backward, "SAIr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_prod_backward, "SRSIr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_logsumexp_backward, "SRSIr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_softmax_backward, "RRIr");
  BARACUDA_ADD_SEGMENT_NUMBERS(segment_csr_sum, "ROs");
  BARACUDA_ADD_SEGMENT_NUMBERS(segment_csr_max, "ROs");
  BARACUDA_ADD_SEGMENT_NUMBERS(segment_csr_min, "ROs");
  BARACUDA_ADD_SEGMENT_NUMBERS(segment_csr_prod, "ROs");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_csr_mean, "ROs");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_csr_logsumexp, "ROs");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_csr_softmax, "ROr");
  BARACUDA_ADD_SEGMENT_NUMBERS(segment_csr_max_with_arg, "ROsa");
  BARACUDA_ADD_SEGMENT_NUMBERS(segment_csr_min_with_arg, "ROsa");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_csr_sum_backward, "SOr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_csr_mean_backward, "SOr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_csr_max_backward, "SROr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_csr_min_backward, "SROr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_csr_max_even_backward, "SROr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_csr_min_even_backward, "SROr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_csr_max_with_arg_backward, "SAOr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_csr_min_with_arg_backward, "SAOr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_csr_prod_backward, "SRSOr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_csr_logsumexp_backward, "SRSOr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_csr_softmax_backward, "RROr");
  BARACUDA_ADD_SEGMENT_FLOATS(segment_gather, "SIr");
  BARACUDA_ADD(segment_ex, segment_ex_f32, Type::kF32, Type::kI32);
  BARACUDA_ADD(segment_ex, segment_ex_f64, Type::kF64, Type::kI32);
  BARACUDA_ADD(segment_ex, segment_ex_f16, Type::kF16, Type::kI32);
  BARACUDA_ADD(segment_ex, segment_ex_bf16, Type::kBf16, Type::kI32);
  BARACUDA_ADD(segment_ex, segment_ex_i32, Type::kI32, Type::kI32);
  BARACUDA_ADD(segment_ex, segment_ex_i64, Type::kI64, Type::kI32);
  BARACUDA_ADD(segment_ex, segment_ex_i64idx_f32, Type::kF32, Type::kI64);
  BARACUDA_ADD(segment_ex, segment_ex_i64idx_f64, Type::kF64, Type::kI64);
  BARACUDA_ADD(segment_ex, segment_ex_i64idx_f16, Type::kF16, Type::kI64);
  BARACUDA_ADD(segment_ex, segment_ex_i64idx_bf16, Type::kBf16, Type::kI64);
  BARACUDA_ADD(segment_ex, segment_ex_i64idx_i32, Type::kI32, Type::kI64);
  BARACUDA_ADD(segment_ex, segment_ex_i64idx_i64, Type::kI64, Type::kI64);
}

#undef BARACUDA_ADD_SEGMENT_NUMBERS
#undef BARACUDA_ADD_SEGMENT_FLOATS
#undef BARACUDA_ADD_SEGMENT

inline void Table::dequantize() {
  BARACUDA_ADD(dequantize, dequantize_per_channel_f32_s8, Type::kF32, Type::kS8);
  BARACUDA_ADD(dequantize, dequantize_per_channel_f32_u8, Type::kF32, Type::kU8);
  BARACUDA_ADD(dequantize, dequantize_per_channel_f64_s8, Type::kF64, Type::kS8);
  BARACUDA_ADD(dequantize, dequantize_per_channel_f64_u8, Type::kF64, Type::kU8);
  BARACUDA_ADD(dequantize, dequantize_per_channel_f16_s8, Type::kF16, Type::kS8);
  BARACUDA_ADD(dequantize, dequantize_per_channel_f16_u8, Type::kF16, Type::kU8);
  BARACUDA_ADD(dequantize, dequantize_per_channel_bf16_s8, Type::kBf16, Type::kS8);
  BARACUDA_ADD(dequantize, dequantize_per_channel_bf16_u8, Type::kBf16, Type::kU8);
  BARACUDA_ADD(dequantize_backward, dequantize_per_channel_backward_f32, Type::kF32);
  BARACUDA_ADD(dequantize_backward, dequantize_per_channel_backward_f64, Type::kF64);
  BARACUDA_ADD(dequantize_backward, dequantize_per_channel_backward_f16, Type::kF16);
  BARACUDA_ADD(dequantize_backward, dequantize_per_channel_backward_bf16, Type::kBf16);
}

#undef BARACUDA_ADD_MOVES
#undef BARACUDA_ADD_SEGMENT_FLOATS
#undef BARACUDA_ADD

}  // namespace calls
