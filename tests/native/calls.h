// SPDX-License-Identifier: Apache-2.0
// Every symbol's `_run` as a call on plain buffers, with a few problems each, for the native tests that walk them all.
// What the buffers hold and what is checked belongs to those tests.
#pragma once

#include <baracuda_kernels.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "symbols.h"

namespace calls {

#define BARACUDA_NAME(DTYPE, BYTES) DTYPE,
enum class Type { BARACUDA_DTYPES(BARACUDA_NAME) };
#undef BARACUDA_NAME

inline Type type_of(const std::string& token) {
#define BARACUDA_ENTRY(DTYPE, BYTES) {#DTYPE, Type::DTYPE},
  static const std::map<std::string, Type> types = {BARACUDA_DTYPES(BARACUDA_ENTRY)};
#undef BARACUDA_ENTRY
  return types.at(token);
}

inline size_t bytes_of(Type type) {
#define BARACUDA_BYTES(DTYPE, BYTES) BYTES,
  static constexpr size_t bytes[] = {BARACUDA_DTYPES(BARACUDA_BYTES)};
#undef BARACUDA_BYTES
  return bytes[static_cast<size_t>(type)];
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

// What symbols.h says of a symbol.
struct Symbol {
  const char* name;
  const char* tensors;
  std::vector<const char*> types;
};

// What the words for extents in symbols.h are in one problem: names; others are numbers, sums, products or choices.
using Extents = std::map<std::string, int64_t>;

inline int64_t value_of(const std::string& word, const Extents& extents);

// Of "a if b == 1 else c", written without blanks, which of both words counts, or nothing if it is another word.
inline std::string chosen_of(const std::string& word, const Extents& extents) {
  const size_t sign = word.find_first_of("=!"), otherwise = word.rfind("else");
  if (sign == std::string::npos || otherwise == std::string::npos) return {};
  for (size_t at = word.find("if"); at < sign; at = word.find("if", at + 1)) {
    const auto number = extents.find(word.substr(at + 2, sign - at - 2));
    if (number == extents.end()) continue;
    const bool is_equal = number->second == std::stoll(word.substr(sign + 2, otherwise - sign - 2));
    return is_equal == (word[sign] == '=') ? word.substr(0, at) : word.substr(otherwise + 4);
  }
  return {};
}

inline int64_t value_of(const std::string& word, const Extents& extents) {
  const auto found = extents.find(word);
  if (found != extents.end()) return found->second;
  const std::string chosen = chosen_of(word, extents);
  if (!chosen.empty()) return value_of(chosen, extents);
  const size_t at = word.find_first_of("+*");
  if (at == std::string::npos) return std::stoll(word);
  const int64_t left = value_of(word.substr(0, at), extents), right = value_of(word.substr(at + 1), extents);
  return word[at] == '+' ? left + right : left * right;
}

inline std::vector<Tensor> tensors_of(const Symbol& symbol, const Extents& extents) {
  std::map<std::string, std::string> dtypes;  // by letter
  for (const char* type : symbol.types) dtypes[std::string(type, 1)] = type + 2;
  std::vector<Tensor> tensors;
  std::istringstream text(symbol.tensors);
  std::string tensor;
  while (std::getline(text, tensor, ',')) {
    std::istringstream words(tensor);
    std::string role, dtype, extent;
    words >> role >> dtype;
    int64_t elements = 1;
    while (words >> extent) elements *= value_of(extent, extents);
    const auto letter = dtypes.find(dtype);
    tensors.push_back({type_of(letter == dtypes.end() ? dtype : letter->second), elements, role == "out"});
  }
  return tensors;
}

// A call of a run function: the tensors stand between the scalars and the workspace, its bytes and the stream.
template <class Run, size_t... K, typename... Scalars>
int32_t invoke(Run* run, std::index_sequence<K...>, void* const* x, void* workspace, size_t bytes, Scalars... scalars) {
  return run(scalars..., x[K]..., workspace, bytes, nullptr);
}

template <typename... Parameters>
constexpr size_t count_parameters(int32_t (*)(Parameters...)) {
  return sizeof...(Parameters);
}

// Which problems: those that a test can afford many times, or also those that are large enough for the paths that are
// taken from some size on.
enum class Sizes { kSmall, kLargeToo };

class Table {
 public:
  explicit Table(Sizes sizes = Sizes::kSmall);
  const std::vector<Call>& calls() const { return calls_; }
  size_t symbols() const {
    std::set<std::string> names;
    for (const Call& call : calls_) names.insert(call.symbol);
    return names.size();
  }

 private:
  using Shape = std::vector<int32_t>;

  // One problem: what its extents are called, and the scalars in call order. Pointers among them must stay valid.
  template <class Run, class Size, typename... Scalars>
  void add(const Symbol& symbol, const Extents& extents, Run* run, Size* size, Scalars... scalars) {
    constexpr size_t kTensors = count_parameters(static_cast<Run*>(nullptr)) - sizeof...(Scalars) - 3;
    calls_.push_back({symbol.name, tensors_of(symbol, extents), size(scalars...),
                      [=](void* const* x, void* workspace, size_t bytes) {
                        return invoke(run, std::make_index_sequence<kTensors>(), x, workspace, bytes, scalars...);
                      }});
  }

  static int64_t product(const Shape& shape) {
    int64_t count = 1;
    for (int32_t extent : shape) count *= extent;
    return count;
  }

  static std::vector<int64_t> dense_strides(const Shape& shape) {
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t axis = shape.size(); axis-- > 1;) {
      strides[axis - 1] = strides[axis] * (shape[axis] > 0 ? shape[axis] : 1);
    }
    return strides;
  }

  // The small problems, and the large ones where they are wanted.
  template <class Problem>
  std::vector<Problem> with_large(std::vector<Problem> problems, const Problem& large) const {
    if (sizes_ == Sizes::kLargeToo) problems.push_back(large);
    return problems;
  }

  // Tiles and blocks on either side of their sizes, many boxes on a small map, and every kind of zero extent.
  struct RoiProblem {
    int32_t n, c, h, w, rois, pooled_h, pooled_w;
    float scale;
    int32_t ratio, aligned;
  };
  template <class Run, class Size>
  void roi_align(const Symbol& symbol, Run* run, Size* size) {
    const std::vector<RoiProblem> problems = {
        {2, 3, 7, 9, 5, 2, 3, 0.5f, 2, 0}, {1, 17, 9, 65, 9, 3, 2, 1.0f, 0, 1}, {1, 2, 16, 16, 130, 2, 2, 1.0f, 1, 1},
        {3, 1, 1, 1, 7, 1, 1, 2.0f, 3, 0}, {2, 2, 0, 5, 3, 2, 2, 1.0f, 2, 0},   {2, 2, 5, 5, 0, 2, 2, 1.0f, 2, 0},
        {0, 2, 5, 5, 3, 2, 2, 1.0f, 2, 0}, {2, 2, 5, 5, 3, 0, 2, 1.0f, 2, 0},   {1, 1, 5, 5, 40, 7, 7, -3.0f, -1, 0},
    };
    for (const RoiProblem& p : with_large(problems, {2, 33, 70, 130, 300, 7, 7, 1.0f, 2, 0})) {
      const Extents extents = {{"n", p.n},
                               {"c", p.c},
                               {"h", p.h},
                               {"w", p.w},
                               {"num_rois", p.rois},
                               {"pooled_h", p.pooled_h},
                               {"pooled_w", p.pooled_w}};
      add(symbol, extents, run, size, p.n, p.c, p.h, p.w, p.rois, p.pooled_h, p.pooled_w, p.scale, p.ratio, p.aligned);
    }
  }

  // One map and as many as there may be, maps of one pixel and of none.
  struct LevelsProblem {
    int32_t n, c, rois, pooled_h, pooled_w, ratio, aligned, k_min;
    std::vector<int32_t> heights, widths;
  };
  template <class Run, class Size>
  void roi_align_levels(const Symbol& symbol, Run* run, Size* size) {
    static const std::vector<LevelsProblem> problems = {
        {2, 3, 9, 2, 3, 2, 0, 2, {7, 4, 2}, {9, 5, 3}},
        {1, 17, 30, 3, 2, 0, 1, -2, {9, 5, 3, 2, 1, 1, 1, 1}, {65, 33, 17, 9, 5, 3, 2, 1}},
        {1, 2, 130, 2, 2, 1, 1, 0, {16}, {16}},
        {2, 2, 5, 2, 2, 2, 0, 2, {0, 3}, {5, 3}},
        {2, 2, 0, 2, 2, 2, 0, 2, {5, 3}, {5, 3}},
        {0, 2, 3, 2, 2, 2, 0, 2, {5, 3}, {5, 3}},
    };
    static const LevelsProblem large = {2, 33, 300, 7, 7, 2, 0, 2, {70, 35, 18, 9}, {130, 65, 33, 17}};
    static const std::vector<float> scales = {0.25f, 0.125f, 0.0625f, -0.5f, 1.0f, 2.0f, 0.0f, 1.0f};
    const auto add_one = [&](const LevelsProblem& p) {
      Extents extents = {{"n", p.n}, {"c", p.c}, {"num_rois", p.rois}, {"pooled_h", p.pooled_h},
                         {"pooled_w", p.pooled_w}};
      for (size_t level = 0; level < 8; ++level) {
        const std::string number = std::to_string(level), of_level = "[" + number + "]ifnum_levels>" + number + "else0";
        extents["heights" + of_level] = level < p.heights.size() ? p.heights[level] : 0;
        extents["widths" + of_level] = level < p.widths.size() ? p.widths[level] : 0;
      }
      add(symbol, extents, run, size, static_cast<int32_t>(p.heights.size()), p.n, p.c, p.heights.data(),
          p.widths.data(), scales.data(), p.rois, p.pooled_h, p.pooled_w, p.ratio, p.aligned, p.k_min, 4, 16.0f);
    };
    for (const LevelsProblem& p : problems) add_one(p);
    if (sizes_ == Sizes::kLargeToo) add_one(large);
  }

  struct GridProblem {
    int32_t n, c, input_h, input_w, output_h, output_w;
  };
  template <class Run, class Size>
  void grid_sample(const Symbol& symbol, Run* run, Size* size) {
    const std::vector<GridProblem> problems = {
        {2, 3, 4, 5, 3, 2}, {1, 65, 3, 3, 20, 17}, {1, 2, 33, 17, 16, 40}, {1, 1, 1, 1, 30, 30}, {2, 2, 0, 3, 3, 3},
        {2, 2, 3, 0, 3, 3}, {2, 0, 3, 3, 3, 3},    {0, 2, 3, 3, 3, 3},     {2, 2, 3, 3, 0, 3},
    };
    for (const GridProblem& p : with_large(problems, {2, 70, 70, 130, 90, 100})) {
      const Extents extents = {{"n", p.n},
                               {"c", p.c},
                               {"input_h", p.input_h},
                               {"input_w", p.input_w},
                               {"output_h", p.output_h},
                               {"output_w", p.output_w}};
      if constexpr (std::is_invocable_v<Size, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t>) {
        add(symbol, extents, run, size, p.n, p.c, p.input_h, p.input_w, p.output_h, p.output_w);
      } else {
        for (const baracuda_kernels_grid_sample_options& options : grid_sample_options()) {
          if (options.padding_mode != 0 && (p.input_h == 0 || p.input_w == 0)) continue;
          Extents given = extents;
          given["shares_input"] = options.shares_input;
          given["gradients"] = options.gradients;
          add(symbol, given, run, size, p.n, p.c, p.input_h, p.input_w, p.output_h, p.output_w, &options);
        }
      }
    }
  }
  template <class Run, class Size>
  void grid_sample_3d(const Symbol& symbol, Run* run, Size* size) {
    // n, c, then depth, height and width of the input and of the output.
    using VolumeProblem = std::array<int32_t, 8>;
    const std::vector<VolumeProblem> problems = {
        {2, 3, 2, 4, 5, 2, 3, 2}, {1, 65, 3, 3, 2, 2, 20, 7}, {1, 2, 5, 9, 17, 6, 7, 8}, {1, 1, 1, 1, 1, 3, 10, 30},
        {2, 2, 0, 3, 3, 3, 3, 3}, {2, 0, 3, 3, 3, 3, 3, 3},   {0, 2, 3, 3, 3, 3, 3, 3}, {2, 2, 3, 3, 3, 0, 3, 3},
    };
    for (const VolumeProblem& p : with_large(problems, VolumeProblem{1, 20, 12, 20, 30, 14, 22, 26})) {
      for (const baracuda_kernels_grid_sample_options& options : grid_sample_options()) {
        if (options.padding_mode != 0 && (p[2] == 0 || p[3] == 0 || p[4] == 0)) continue;
        const Extents extents = {{"n", p[0]},
                                 {"c", p[1]},
                                 {"input_d", p[2]},
                                 {"input_h", p[3]},
                                 {"input_w", p[4]},
                                 {"output_d", p[5]},
                                 {"output_h", p[6]},
                                 {"output_w", p[7]},
                                 {"shares_input", options.shares_input},
                                 {"gradients", options.gradients}};
        add(symbol, extents, run, size, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], &options);
      }
    }
  }

  // Every mode, every padding, both ways to align, each gradient, and an input that is shared, in the fields' order.
  static const std::vector<baracuda_kernels_grid_sample_options>& grid_sample_options() {
    constexpr size_t kSize = sizeof(baracuda_kernels_grid_sample_options);
    static const std::vector<baracuda_kernels_grid_sample_options> found = {
        {kSize, 0, 0, 0, 0, 0}, {kSize, 0, 1, 0, 0, 1}, {kSize, 0, 2, 1, 0, 0}, {kSize, 0, 2, 0, 2, 0},
        {kSize, 0, 0, 1, 1, 0}, {kSize, 1, 0, 0, 0, 0}, {kSize, 1, 1, 1, 1, 0}, {kSize, 1, 2, 0, 2, 0}};
    return found;
  }

  template <class Run, class Size>
  void affine_grid(const Symbol& symbol, Run* run, Size* size) {
    const std::vector<Shape> problems = {{2, 3, 4},     {1, 33, 17}, {3, 1, 1}, {1, 128, 512},
                                         {0, 3, 3},     {2, 0, 3},   {2, 3, 0}};
    for (const Shape& p : with_large(problems, {3, 300, 400})) {
      const Extents extents = {{"n", p[0]}, {"output_h", p[1]}, {"output_w", p[2]}};
      if constexpr (std::is_invocable_v<Size, int32_t, int32_t, int32_t>) {
        add(symbol, extents, run, size, p[0], p[1], p[2]);
      } else {
        using Options = baracuda_kernels_affine_grid_options;
        static const Options options[] = {{sizeof(Options), 0}, {sizeof(Options), 1}};
        for (const Options& each : options) add(symbol, extents, run, size, p[0], p[1], p[2], &each);
      }
    }
  }

  template <class Run, class Size>
  void affine_grid_3d(const Symbol& symbol, Run* run, Size* size) {
    using Options = baracuda_kernels_affine_grid_options;
    static const Options options[] = {{sizeof(Options), 0}, {sizeof(Options), 1}};
    const std::vector<Shape> problems = {{2, 2, 3, 4},  {1, 3, 11, 17}, {3, 1, 1, 1}, {1, 16, 64, 64},
                                         {0, 3, 3, 3},  {2, 0, 3, 3},   {2, 3, 0, 3}, {2, 3, 3, 0}};
    for (const Shape& p : with_large(problems, {3, 20, 30, 200})) {
      const Extents extents = {{"n", p[0]}, {"output_d", p[1]}, {"output_h", p[2]}, {"output_w", p[3]}};
      for (const Options& each : options) add(symbol, extents, run, size, p[0], p[1], p[2], p[3], &each);
    }
  }

  struct PadProblem {
    Shape input, low, high;
    bool repeats;  // whether there is something to repeat: constant padding of nothing is a problem too
  };
  // A problem's arrays.
  struct PadArrays {
    Shape input, output, low;
    std::vector<int64_t> input_strides, output_strides;
    bool repeats;

    int32_t rank() const { return static_cast<int32_t>(input.size()); }
    Extents extents() const {
      const int64_t padded = product(output);
      return {{"input_shape", product(input)}, {"output_shape", padded}, {"input_shape+pad_low", padded}};
    }
  };
  static PadArrays pad_arrays_of(const PadProblem& p) {
    Shape output = p.input;
    for (size_t axis = 0; axis < output.size(); ++axis) output[axis] += p.low[axis] + p.high[axis];
    return {p.input, output, p.low, dense_strides(p.input), dense_strides(output), p.repeats};
  }
  static const std::vector<PadArrays>& small_pads() {
    static const std::vector<PadArrays> found = [] {
      const PadProblem problems[] = {
          {{2, 3, 5}, {1, 0, 2}, {0, 2, 1}, true},
          {{}, {}, {}, true},
          {{7}, {3}, {0}, true},
          {{2, 1, 2, 1, 2, 1, 2, 3}, {0, 1, 0, 1, 0, 1, 0, 1}, {1, 0, 1, 0, 1, 0, 1, 0}, true},
          {{0, 3}, {1, 1}, {1, 1}, false},
          {{200, 300}, {1, 1}, {3, 2}, true},
          {{50, 7, 7}, {0, 1, 1}, {0, 1, 1}, true},
          {{1, 1}, {0, 0}, {0, 0}, true}};
      std::vector<PadArrays> arrays;
      for (const PadProblem& p : problems) arrays.push_back(pad_arrays_of(p));
      return arrays;
    }();
    return found;
  }
  // One for each width of an element: 24 MiB and a little, from where on results are written past the caches.
  static const PadArrays& large_pad(size_t element_bytes) {
    static std::map<size_t, PadArrays> found;
    const int32_t columns = static_cast<int32_t>(26000 / element_bytes);
    const auto made = found.emplace(element_bytes, pad_arrays_of({{1000, columns}, {2, 3}, {3, 2}, true}));
    return made.first->second;
  }
  std::vector<const PadArrays*> pad_arrays(const Symbol& symbol) const {
    std::vector<const PadArrays*> found;
    for (const PadArrays& p : small_pads()) found.push_back(&p);
    if (sizes_ == Sizes::kLargeToo) found.push_back(&large_pad(bytes_of(type_of(symbol.types[0] + 2))));
    return found;
  }
  // A host array of rank 0 still has an address.
  template <class Array>
  static const typename Array::value_type* host(const Array& array) {
    static const typename Array::value_type nothing{};
    return array.empty() ? &nothing : array.data();
  }
  // `rest` is what the operator takes between the axes and the tensors.
  template <class Run, class Size, typename... Rest>
  void add_pad(const Symbol& symbol, const PadArrays& p, Run* run, Size* size, Rest... rest) {
    add(symbol, p.extents(), run, size, product(p.output), p.rank(), host(p.input), host(p.output), host(p.low),
        host(p.input_strides), host(p.output_strides), rest...);
  }
  template <class Run, class Size, typename... Rest>
  void add_pad_backward(const Symbol& symbol, const PadArrays& p, Run* run, Size* size, Rest... rest) {
    add(symbol, p.extents(), run, size, product(p.input), p.rank(), host(p.input), host(p.output), host(p.low),
        host(p.output_strides), host(p.input_strides), rest...);
  }
  template <typename Value, typename... Before>
  void pad_constant(const Symbol& symbol,
                    int32_t (*run)(int64_t, int32_t, const int32_t*, const int32_t*, const int32_t*, const int64_t*,
                                   const int64_t*, const void*, void*, Value, void*, size_t, void*),
                    size_t (*size)(Before...)) {
    Value value;
    std::memset(&value, 0x7f, sizeof value);  // a quiet NaN of the 16-bit types
    for (const PadArrays* const arrays : pad_arrays(symbol)) {
      const PadArrays& p = *arrays;
      const int64_t numel = product(p.output);
      const auto axes = std::make_tuple(numel, p.rank(), host(p.input), host(p.output), host(p.low),
                                        host(p.input_strides), host(p.output_strides));
      calls_.push_back({symbol.name, tensors_of(symbol, p.extents()), std::apply(size, axes),
                        [=](void* const* x, void* workspace, size_t bytes) {
                          const auto rest = std::make_tuple(x[0], x[1], value, workspace, bytes, nullptr);
                          return std::apply(run, std::tuple_cat(axes, rest));
                        }});
    }
  }
  template <class Run, class Size>
  void pad_constant_backward(const Symbol& symbol, Run* run, Size* size) {
    for (const PadArrays* const arrays : pad_arrays(symbol)) {
      const PadArrays& p = *arrays;
      add(symbol, p.extents(), run, size, product(p.input), p.rank(), host(p.input), host(p.low),
          host(p.output_strides), host(p.input_strides));
    }
  }
  template <class Run, class Size>
  void pad_repeated(const Symbol& symbol, Run* run, Size* size) {
    for (const PadArrays* const arrays : pad_arrays(symbol)) {
      const PadArrays& p = *arrays;
      if (p.repeats) add_pad(symbol, p, run, size);
    }
  }
  template <class Run, class Size>
  void pad_repeated_backward(const Symbol& symbol, Run* run, Size* size) {
    for (const PadArrays* const arrays : pad_arrays(symbol)) {
      const PadArrays& p = *arrays;
      if (p.repeats) add_pad_backward(symbol, p, run, size);
    }
  }
  // Every mode, by its number; 0 is constant.
  static const std::vector<baracuda_kernels_pad_options>& pad_options() {
    static const std::vector<baracuda_kernels_pad_options> found = [] {
      std::vector<baracuda_kernels_pad_options> options;
      for (int32_t mode = 0; mode < 5; ++mode) options.push_back({sizeof options[0], mode, nullptr});
      return options;
    }();
    return found;
  }
  template <class Run, class Size>
  void pad_ex(const Symbol& symbol, Run* run, Size* size) {
    for (const baracuda_kernels_pad_options& options : pad_options()) {
      for (const PadArrays* const arrays : pad_arrays(symbol)) {
        const PadArrays& p = *arrays;
        if (options.mode == 0 || p.repeats) add_pad(symbol, p, run, size, &options);
      }
    }
  }
  template <class Run, class Size>
  void pad_ex_backward(const Symbol& symbol, Run* run, Size* size) {
    for (const baracuda_kernels_pad_options& options : pad_options()) {
      for (const PadArrays* const arrays : pad_arrays(symbol)) {
        const PadArrays& p = *arrays;
        if (options.mode == 0 || p.repeats) add_pad_backward(symbol, p, run, size, &options);
      }
    }
  }

  // Extents of the input and of the output, depth first: up, down, by whole factors and others, and nothing at all.
  struct Resize {
    int32_t n, c, input[3], output[3];
  };
  std::vector<Resize> resizes(bool is_volume) const {
    std::vector<Resize> found = {{2, 3, {1, 4, 5}, {1, 8, 10}},    {1, 17, {1, 9, 65}, {1, 3, 20}},
                                 {3, 1, {1, 1, 1}, {1, 30, 300}},  {1, 2, {1, 33, 17}, {1, 33, 40}},
                                 {2, 2, {1, 5, 3}, {1, 0, 3}},     {0, 2, {1, 3, 3}, {1, 6, 6}},
                                 {1, 1, {1, 1, 3}, {1, 1, 2300}},  {2, 2, {1, 0, 3}, {1, 3, 0}}};
    if (is_volume) found.push_back({1, 2, {3, 4, 5}, {6, 4, 11}});
    return with_large(found, {2, 33, {1, 70, 130}, {1, 140, 250}});
  }
  static Extents extents_of(const Resize& p) {
    return {{"n", p.n},
            {"c", p.c},
            {"input_d", p.input[0]},
            {"input_h", p.input[1]},
            {"input_w", p.input[2]},
            {"output_d", p.output[0]},
            {"output_h", p.output[1]},
            {"output_w", p.output[2]}};
  }
  // The scalars behind the workspace are the frozen signature's.
  template <class Run, class Size>
  void interpolate_bilinear(const Symbol& symbol, Run* run, Size* size) {
    for (const Resize& p : resizes(false)) {
      for (int32_t align_corners = 0; align_corners < 2; ++align_corners) {
        const double scale = p.n == 2 ? 2.0 : 0.0;
        const auto images = std::make_tuple(p.n, p.c, p.input[1], p.input[2], p.output[1], p.output[2]);
        const auto options = std::make_tuple(align_corners, scale, scale);
        calls_.push_back({symbol.name, tensors_of(symbol, extents_of(p)),
                          std::apply(size, std::tuple_cat(images, options)),
                          [=](void* const* x, void* workspace, size_t bytes) {
                            const auto rest = std::make_tuple(x[0], x[1], workspace, bytes);
                            const auto stream = std::make_tuple(nullptr);
                            return std::apply(run, std::tuple_cat(images, rest, options, stream));
                          }});
      }
    }
  }
  template <class Run, class Size>
  void upsample_nearest(const Symbol& symbol, Run* run, Size* size) {
    for (const Resize& p : resizes(false)) {
      add(symbol, extents_of(p), run, size, p.n, p.c, p.input[1], p.input[2], p.output[1], p.output[2]);
    }
  }
  // Every mode, by its number, and the linear one with corners.
  static const std::vector<baracuda_kernels_interpolate_options>& interpolate_options() {
    static const std::vector<baracuda_kernels_interpolate_options> found = [] {
      std::vector<baracuda_kernels_interpolate_options> options;
      for (int32_t mode = 0; mode < 3; ++mode) options.push_back({sizeof options[0], mode, 0, 0.0, 1.5, 0.0});
      options.push_back({sizeof options[0], 2, 1, 0.0, 0.0, 0.0});
      return options;
    }();
    return found;
  }
  template <class Run, class Size>
  void interpolate_ex(const Symbol& symbol, Run* run, Size* size) {
    for (const baracuda_kernels_interpolate_options& options : interpolate_options()) {
      for (const Resize& p : resizes(true)) {
        add(symbol, extents_of(p), run, size, p.n, p.c, p.input[0], p.input[1], p.input[2], p.output[0], p.output[1],
            p.output[2], &options);
      }
    }
  }

  static std::vector<Shape> segment_problems() {  // rows, columns, segments
    return {{7, 3, 4}, {700, 9, 5}, {1, 1, 1}, {600, 17, 600}, {0, 3, 4}, {7, 0, 4}, {7, 3, 0}, {300, 1, 3}};
  }
  template <class Run, class Size>
  void segment(const Symbol& symbol, Run* run, Size* size) {
    for (const Shape& p : segment_problems()) {
      const Extents extents = {
          {"num_inputs", p[0]}, {"num_rows", p[0]}, {"embedding_dim", p[1]}, {"num_segments", p[2]}};
      add(symbol, extents, run, size, p[0], p[1], p[2]);
    }
  }

  // Every reduction that a type has, in each of the forms, with a value for segments without rows or without.
  static const std::vector<baracuda_kernels_segment_options>& segment_options() {
    static constexpr uint64_t value = 0x7fc12345ffc12345u;  // the bytes of a value of any type
    static const std::vector<baracuda_kernels_segment_options> found = [] {
      std::vector<baracuda_kernels_segment_options> options;
      for (int32_t reduce = 0; reduce < 8; ++reduce) {
        for (int32_t form = 0; form < 3; ++form) {
          options.push_back({sizeof options[0], reduce, form, (reduce + form) % 2 == 0 ? nullptr : &value});
        }
      }
      return options;
    }();
    return found;
  }
  template <class Run, class Size>
  void segment_ex(const Symbol& symbol, Run* run, Size* size) {
    const bool is_integer = std::string(symbol.types[0])[2] == 'i';
    for (const baracuda_kernels_segment_options& options : segment_options()) {
      if (is_integer && (options.reduce == 1 || options.reduce == 5)) continue;
      for (const Shape& p : segment_problems()) {
        const int64_t index = options.form == 2 ? p[2] + 1 : p[0];
        const Extents extents = {{"num_rows", p[0]},
                                 {"embedding_dim", p[1]},
                                 {"num_segments", p[2]},
                                 {"num_segments+1ifform==2elsenum_rows", index},
                                 {"num_segmentsifreduce>=6else0", options.reduce >= 6 ? p[2] : 0}};
        add(symbol, extents, run, size, p[0], p[1], p[2], &options);
      }
    }
  }

  // Extents and windows by axis, as the C functions take them.
  struct PoolProblem {
    Shape extents, output, kernel, stride, padding;
    int32_t count_include_pad;
    int64_t divisor;
  };
  static const std::vector<PoolProblem>& pool_problems() {
    static const std::vector<PoolProblem> problems = {
        {{2, 3, 4, 9, 11}, {2, 5, 5}, {2, 3, 3}, {2, 2, 2}, {0, 1, 0}, 1, 0},
        {{2, 3, 4, 9, 11}, {3, 4, 6}, {3, 3, 2}, {1, 3, 2}, {1, 1, 1}, 0, 0},
        {{1, 2, 1, 1, 700}, {1, 1, 401}, {1, 1, 300}, {1, 1, 1}, {0, 0, 0}, 1, -3},
        {{1, 1, 1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, 1, 0},
        {{0, 3, 4, 9, 11}, {2, 5, 5}, {2, 3, 3}, {2, 2, 2}, {0, 1, 0}, 1, 0},
        {{2, 3, 4, 0, 11}, {2, 5, 5}, {2, 3, 3}, {2, 2, 2}, {0, 1, 0}, 0, 0},
        {{2, 3, 4, 9, 11}, {2, 0, 5}, {2, 3, 3}, {2, 2, 2}, {0, 1, 0}, 1, 0},
        {{2, 33, 1, 65, 130}, {1, 33, 65}, {1, 2, 2}, {1, 2, 2}, {0, 1, 0}, 1, 0},
    };
    return problems;
  }
  static Extents pool_extents(const PoolProblem& p) {
    return {{"n", p.extents[0]},       {"c", p.extents[1]},       {"d", p.extents[2]},       {"h", p.extents[3]},
            {"w", p.extents[4]},       {"output_d", p.output[0]}, {"output_h", p.output[1]}, {"output_w", p.output[2]}};
  }
  template <class Run, class Size>
  void avg_pool(const Symbol& symbol, Run* run, Size* size) {
    for (const PoolProblem& p : pool_problems()) {
      add(symbol, pool_extents(p), run, size, p.extents[0], p.extents[1], p.extents[2], p.extents[3], p.extents[4],
          p.output[0], p.output[1], p.output[2], p.kernel[0], p.kernel[1], p.kernel[2], p.stride[0], p.stride[1],
          p.stride[2], p.padding[0], p.padding[1], p.padding[2], p.count_include_pad, p.divisor);
    }
  }
  template <class Run, class Size>
  void max_pool(const Symbol& symbol, Run* run, Size* size) {
    for (const PoolProblem& p : pool_problems()) {
      const int32_t dilation = p.count_include_pad == 0 ? 2 : 1;
      add(symbol, pool_extents(p), run, size, p.extents[0], p.extents[1], p.extents[2], p.extents[3], p.extents[4],
          p.output[0], p.output[1], p.output[2], p.kernel[0], p.kernel[1], p.kernel[2], p.stride[0], p.stride[1],
          p.stride[2], p.padding[0], p.padding[1], p.padding[2], dilation, dilation, dilation);
    }
  }

  // No axis has more windows than places for one.
  static const std::vector<PoolProblem>& fractional_problems() {
    static const std::vector<PoolProblem> problems = {
        {{2, 3, 4, 9, 11}, {2, 5, 5}, {2, 3, 3}, {}, {}, 0, 0},
        {{2, 3, 4, 9, 11}, {4, 9, 11}, {1, 1, 1}, {}, {}, 0, 0},
        {{1, 2, 1, 1, 700}, {1, 1, 401}, {1, 1, 300}, {}, {}, 0, 0},
        {{1, 1, 1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {}, {}, 0, 0},
        {{0, 3, 4, 9, 11}, {2, 5, 5}, {2, 3, 3}, {}, {}, 0, 0},
        {{2, 0, 4, 9, 11}, {2, 5, 5}, {2, 3, 3}, {}, {}, 0, 0},
        {{2, 3, 4, 0, 11}, {2, 0, 5}, {2, 3, 3}, {}, {}, 0, 0},
        {{2, 3, 4, 9, 11}, {2, 0, 5}, {2, 3, 3}, {}, {}, 0, 0},
        {{2, 33, 1, 65, 130}, {1, 33, 65}, {1, 2, 2}, {}, {}, 0, 0},
    };
    return problems;
  }
  template <class Run, class Size>
  void fractional_max_pool(const Symbol& symbol, Run* run, Size* size) {
    for (const PoolProblem& p : fractional_problems()) {
      for (const int32_t samples : {2, 3}) {
        Extents extents = pool_extents(p);
        extents["num_samples"] = samples;
        add(symbol, extents, run, size, p.extents[0], p.extents[1], p.extents[2], p.extents[3], p.extents[4],
            p.output[0], p.output[1], p.output[2], p.kernel[0], p.kernel[1], p.kernel[2], samples);
      }
    }
  }
  template <class Run, class Size>
  void fractional_max_pool_backward(const Symbol& symbol, Run* run, Size* size) {
    for (const PoolProblem& p : fractional_problems()) {
      add(symbol, pool_extents(p), run, size, p.extents[0], p.extents[1], p.extents[2], p.extents[3], p.extents[4],
          p.output[0], p.output[1], p.output[2], p.kernel[0], p.kernel[1], p.kernel[2]);
    }
  }

  // Sequences, either with a row of targets each or with targets one behind another.
  struct AlignedProblem {
    int32_t t, n, c, target_columns, num_states, blank;
  };
  std::vector<AlignedProblem> aligned_problems() const {
    return with_large<AlignedProblem>({{9, 3, 7, 4, 9, 0},
                                       {1, 1, 1, 1, 3, 0},
                                       {17, 5, 33, 20, 41, 32},
                                       {0, 3, 7, 4, 9, 0},
                                       {9, 0, 7, 4, 9, 0},
                                       {9, 3, 0, 4, 9, 0},
                                       {9, 3, 7, 0, 1, 0},
                                       {9, 3, 7, 4, 0, 0}},
                                      {60, 12, 70, 600, 1201, 3});
  }
  static Extents aligned_extents(const AlignedProblem& p, int32_t target_rows) {
    return {{"t", p.t}, {"n", p.n}, {"c", p.c}, {"target_rows", target_rows}, {"target_columns", p.target_columns},
            {"num_states", p.num_states}};
  }
  template <class Run, class Size>
  void ctc_loss(const Symbol& symbol, Run* run, Size* size) {
    for (const AlignedProblem& p : aligned_problems()) {
      for (const int32_t rows : {p.n, 1}) {
        add(symbol, aligned_extents(p, rows), run, size, p.t, p.n, p.c, rows, p.target_columns, p.num_states, p.blank);
      }
    }
  }
  template <class Run, class Size>
  void ctc_loss_backward(const Symbol& symbol, Run* run, Size* size) {
    for (const AlignedProblem& p : aligned_problems()) {
      for (const int32_t rows : {p.n, 1}) {
        add(symbol, aligned_extents(p, rows), run, size, p.t, p.n, p.c, rows, p.target_columns, p.num_states, p.blank,
            rows == p.n ? 1 : 0);
      }
    }
  }

  // Boxes of one class and of several, on either side of words, tiles and blocks.
  template <class Run, class Size>
  void nms_with_scores(const Symbol& symbol, Run* run, Size* size) {
    for (const int32_t boxes : with_large<int32_t>({2, 1, 0, 65, 300, 1100}, 9000)) {
      for (const int32_t class_ids : {0, boxes}) {
        add(symbol, {{"num_boxes", boxes}, {"num_class_ids", class_ids}}, run, size, boxes, class_ids, 0.5);
      }
    }
  }

  struct ChannelProblem {
    Shape shape;
    int32_t axis;
  };
  template <class Run, class Size>
  void dequantize(const Symbol& symbol, Run* run, Size* size) {
    static const std::vector<ChannelProblem> problems = {
        {{2, 3, 5, 7}, 0}, {{2, 3, 5, 7}, 1}, {{2, 3, 5, 7}, 2},   {{2, 3, 5, 7}, 3},     {{1, 1, 1, 1}, 3},
        {{0, 3, 1, 1}, 1}, {{3, 0, 1, 1}, 1}, {{1, 33, 1, 17}, 1}, {{300, 1, 1, 129}, 3}, {{1, 5, 64, 200}, 1},
    };
    for (const ChannelProblem& p : problems) {
      const int64_t numel = product(p.shape);
      const Extents extents = {{"shape", numel}, {"shape[axis]", p.shape[static_cast<size_t>(p.axis)]}};
      add(symbol, extents, run, size, numel, p.shape.data(), p.axis);
    }
  }

  // Problems of scalars alone, for the operators that no function above knows: different sizes, ones, sizes past tiles
  // and vectors, and 0 for each extent in turn.
  static const std::string& scalars_of(const std::string& symbol) {
#define BARACUDA_ENTRY(OPERATOR, SCALARS) {#OPERATOR, SCALARS},
    static const std::map<std::string, std::string> scalars = {BARACUDA_SCALARS(BARACUDA_ENTRY)};
#undef BARACUDA_ENTRY
    // A dtype is the last word of a symbol, an index dtype may stand before it.
    std::string name = symbol;
    while (scalars.find(name) == scalars.end()) name.resize(name.rfind('_'));
    return scalars.at(name);
  }
  static double scalar_of(const std::string& word, size_t place, size_t variant, size_t extents) {
    static const std::vector<std::vector<int>> sizes = {
        {2, 3, 7, 9, 5, 2, 3, 4}, {1, 1, 1, 1, 1, 1, 1, 1}, {1, 17, 9, 65, 9, 3, 2, 5}, {2, 33, 70, 130, 60, 7, 7, 3}};
    static const std::vector<double> reals = {0.5, 1.0, -3.0};
    std::istringstream parts(word);
    std::string name, low, high;
    std::getline(parts, name, ':');
    std::getline(parts, low, ':');
    std::getline(parts, high, ':');
    if (low == "real") return reals[variant % reals.size()];
    if (!high.empty()) return std::stod(low) + static_cast<double>(variant % (std::stoul(high) - std::stoul(low) + 1));
    // A number without an upper end.
    if (!low.empty()) return std::stod(low) + static_cast<double>(variant % 4);
    // The last variant has the largest sizes; before it come those with one extent of 0.
    if (variant >= 3 && variant < 3 + extents) return variant - 3 == place ? 0 : sizes[0][place % sizes[0].size()];
    const std::vector<int>& row = sizes[variant < 3 ? variant : 3];
    return row[place % row.size()];
  }
  template <typename P>
  static P argument(size_t place, size_t count, size_t scalars, const std::vector<double>& values, void* const* x,
                    void* workspace, size_t bytes) {
    if constexpr (std::is_pointer_v<P>) {
      if (place + 1 == count) return nullptr;  // the stream
      return place + 3 == count ? workspace : x[place - scalars];
    } else {
      return place + 2 == count ? static_cast<P>(bytes) : static_cast<P>(values[place]);
    }
  }
  template <typename... P, size_t... K>
  static int32_t call_with(int32_t (*run)(P...), std::index_sequence<K...>, const std::vector<double>& values,
                           void* const* x, void* workspace, size_t bytes) {
    return run(argument<P>(K, sizeof...(P), values.size(), values, x, workspace, bytes)...);
  }
  template <typename... P, size_t... K>
  static size_t size_with(size_t (*size)(P...), std::index_sequence<K...>, const std::vector<double>& values) {
    return size(static_cast<P>(values[K])...);
  }
  template <typename... P, typename... Q>
  void scalars_alone(const Symbol& symbol, int32_t (*run)(P...), size_t (*size)(Q...)) {
    if (listed_.count(symbol.name) != 0) return;
    std::istringstream text(scalars_of(symbol.name));
    const std::vector<std::string> words(std::istream_iterator<std::string>(text), {});
    size_t extents = 0;
    for (const std::string& word : words) extents += word.find(':') == std::string::npos;
    const size_t variants = 3 + extents + (sizes_ == Sizes::kLargeToo ? 1 : 0);
    for (size_t variant = 0; variant < variants; ++variant) {
      Extents values_of_words;
      std::vector<double> values;
      for (size_t place = 0; place < words.size(); ++place) {
        values.push_back(scalar_of(words[place], place, variant, extents));
        values_of_words[words[place].substr(0, words[place].find(':'))] = static_cast<int64_t>(values.back());
      }
      calls_.push_back({symbol.name, tensors_of(symbol, values_of_words),
                        size_with(size, std::index_sequence_for<Q...>(), values),
                        [=](void* const* x, void* workspace, size_t bytes) {
                          return call_with(run, std::index_sequence_for<P...>(), values, x, workspace, bytes);
                        }});
    }
  }

  Sizes sizes_;
  std::vector<Call> calls_;
  std::set<std::string> listed_;  // the symbols that have calls of their own
};

inline Table::Table(Sizes sizes) : sizes_(sizes) {
#define BARACUDA_CALL(SYMBOL, TENSORS, ...)                                  \
  (Symbol{#SYMBOL, TENSORS, {__VA_ARGS__}}, baracuda_kernels_##SYMBOL##_run, \
   baracuda_kernels_##SYMBOL##_workspace_size);
#define BARACUDA_ROI_ALIGN(...) roi_align BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_ROI_ALIGN_LEVELS(...) roi_align_levels BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_GRID_SAMPLE(...) grid_sample BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_GRID_SAMPLE_3D(...) grid_sample_3d BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_AFFINE_GRID(...) affine_grid BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_AFFINE_GRID_3D(...) affine_grid_3d BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_PAD_CONSTANT(...) pad_constant BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_PAD_CONSTANT_BACKWARD(...) pad_constant_backward BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_PAD_REPEATED(...) pad_repeated BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_PAD_REPEATED_BACKWARD(...) pad_repeated_backward BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_PAD_EX(...) pad_ex BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_PAD_EX_BACKWARD(...) pad_ex_backward BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_BILINEAR(...) interpolate_bilinear BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_NEAREST(...) upsample_nearest BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_INTERPOLATE_EX(...) interpolate_ex BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_SEGMENT(...) segment BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_SEGMENT_EX(...) segment_ex BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_DEQUANTIZE(...) dequantize BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_AVG_POOL(...) avg_pool BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_NMS_WITH_SCORES(...) nms_with_scores BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_CTC_LOSS(...) ctc_loss BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_CTC_LOSS_BACKWARD(...) ctc_loss_backward BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_MAX_POOL(...) max_pool BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_FRACTIONAL(...) fractional_max_pool BARACUDA_CALL(__VA_ARGS__)
#define BARACUDA_FRACTIONAL_BACKWARD(...) fractional_max_pool_backward BARACUDA_CALL(__VA_ARGS__)
  BARACUDA_SYMBOLS_LIKE_ROI_ALIGN(BARACUDA_ROI_ALIGN)
  BARACUDA_SYMBOLS_LIKE_ROI_ALIGN_BACKWARD(BARACUDA_ROI_ALIGN)
  BARACUDA_SYMBOLS_LIKE_ROI_ALIGN_LEVELS(BARACUDA_ROI_ALIGN_LEVELS)
  BARACUDA_SYMBOLS_LIKE_ROI_ALIGN_LEVELS_BACKWARD(BARACUDA_ROI_ALIGN_LEVELS)
  BARACUDA_SYMBOLS_OF_GRID_SAMPLE(BARACUDA_GRID_SAMPLE)
  BARACUDA_SYMBOLS_OF_GRID_SAMPLE_3D(BARACUDA_GRID_SAMPLE_3D)
  BARACUDA_SYMBOLS_LIKE_AFFINE_GRID_2D(BARACUDA_AFFINE_GRID)
  BARACUDA_SYMBOLS_LIKE_AFFINE_GRID_2D_BACKWARD(BARACUDA_AFFINE_GRID)
  BARACUDA_SYMBOLS_LIKE_AFFINE_GRID_2D_EX(BARACUDA_AFFINE_GRID)
  BARACUDA_SYMBOLS_LIKE_AFFINE_GRID_2D_EX_BACKWARD(BARACUDA_AFFINE_GRID)
  BARACUDA_SYMBOLS_LIKE_AFFINE_GRID_3D(BARACUDA_AFFINE_GRID_3D)
  BARACUDA_SYMBOLS_LIKE_AFFINE_GRID_3D_BACKWARD(BARACUDA_AFFINE_GRID_3D)
  BARACUDA_SYMBOLS_LIKE_PAD_CONSTANT(BARACUDA_PAD_CONSTANT)
  BARACUDA_SYMBOLS_LIKE_PAD_CONSTANT_BACKWARD(BARACUDA_PAD_CONSTANT_BACKWARD)
  BARACUDA_SYMBOLS_LIKE_PAD_REFLECT(BARACUDA_PAD_REPEATED)
  BARACUDA_SYMBOLS_LIKE_PAD_REFLECT_BACKWARD(BARACUDA_PAD_REPEATED_BACKWARD)
  BARACUDA_SYMBOLS_LIKE_PAD_EX(BARACUDA_PAD_EX)
  BARACUDA_SYMBOLS_LIKE_PAD_EX_BACKWARD(BARACUDA_PAD_EX_BACKWARD)
  BARACUDA_SYMBOLS_LIKE_INTERPOLATE_BILINEAR_2D(BARACUDA_BILINEAR)
  BARACUDA_SYMBOLS_LIKE_INTERPOLATE_BILINEAR_2D_BACKWARD(BARACUDA_BILINEAR)
  BARACUDA_SYMBOLS_LIKE_UPSAMPLE_NEAREST_2D_FW(BARACUDA_NEAREST)
  BARACUDA_SYMBOLS_LIKE_UPSAMPLE_NEAREST_2D_BW(BARACUDA_NEAREST)
  BARACUDA_SYMBOLS_LIKE_INTERPOLATE_EX(BARACUDA_INTERPOLATE_EX)
  BARACUDA_SYMBOLS_LIKE_INTERPOLATE_EX_BACKWARD(BARACUDA_INTERPOLATE_EX)
  BARACUDA_SYMBOLS_LIKE_UNSORTED_SEGMENT_SUM(BARACUDA_SEGMENT)
  BARACUDA_SYMBOLS_LIKE_UNSORTED_SEGMENT_MAX_WITH_ARG(BARACUDA_SEGMENT)
  BARACUDA_SYMBOLS_LIKE_UNSORTED_SEGMENT_SUM_BACKWARD(BARACUDA_SEGMENT)
  BARACUDA_SYMBOLS_LIKE_UNSORTED_SEGMENT_MAX_BACKWARD(BARACUDA_SEGMENT)
  BARACUDA_SYMBOLS_LIKE_UNSORTED_SEGMENT_MAX_WITH_ARG_BACKWARD(BARACUDA_SEGMENT)
  BARACUDA_SYMBOLS_LIKE_UNSORTED_SEGMENT_PROD_BACKWARD(BARACUDA_SEGMENT)
  BARACUDA_SYMBOLS_LIKE_UNSORTED_SEGMENT_SOFTMAX_BACKWARD(BARACUDA_SEGMENT)
  BARACUDA_SYMBOLS_LIKE_SEGMENT_CSR_SUM(BARACUDA_SEGMENT)
  BARACUDA_SYMBOLS_LIKE_SEGMENT_CSR_MAX_WITH_ARG(BARACUDA_SEGMENT)
  BARACUDA_SYMBOLS_LIKE_SEGMENT_CSR_SUM_BACKWARD(BARACUDA_SEGMENT)
  BARACUDA_SYMBOLS_LIKE_SEGMENT_CSR_MAX_BACKWARD(BARACUDA_SEGMENT)
  BARACUDA_SYMBOLS_LIKE_SEGMENT_CSR_MAX_WITH_ARG_BACKWARD(BARACUDA_SEGMENT)
  BARACUDA_SYMBOLS_LIKE_SEGMENT_CSR_PROD_BACKWARD(BARACUDA_SEGMENT)
  BARACUDA_SYMBOLS_LIKE_SEGMENT_CSR_SOFTMAX_BACKWARD(BARACUDA_SEGMENT)
  BARACUDA_SYMBOLS_LIKE_SEGMENT_EX(BARACUDA_SEGMENT_EX)
  BARACUDA_SYMBOLS_OF_DEQUANTIZE(BARACUDA_DEQUANTIZE)
  BARACUDA_SYMBOLS_LIKE_AVG_POOL(BARACUDA_AVG_POOL)
  BARACUDA_SYMBOLS_LIKE_AVG_POOL_BACKWARD(BARACUDA_AVG_POOL)
  BARACUDA_SYMBOLS_LIKE_NMS_WITH_SCORES(BARACUDA_NMS_WITH_SCORES)
  BARACUDA_SYMBOLS_LIKE_CTC_LOSS(BARACUDA_CTC_LOSS)
  BARACUDA_SYMBOLS_LIKE_CTC_LOSS_BACKWARD(BARACUDA_CTC_LOSS_BACKWARD)
  BARACUDA_SYMBOLS_LIKE_MAX_POOL(BARACUDA_MAX_POOL)
  BARACUDA_SYMBOLS_LIKE_MAX_POOL_BACKWARD(BARACUDA_MAX_POOL)
  BARACUDA_SYMBOLS_LIKE_FRACTIONAL_MAX_POOL(BARACUDA_FRACTIONAL)
  BARACUDA_SYMBOLS_LIKE_FRACTIONAL_MAX_POOL_BACKWARD(BARACUDA_FRACTIONAL_BACKWARD)
  for (const Call& call : calls_) listed_.insert(call.symbol);
#define BARACUDA_OTHER(...) scalars_alone BARACUDA_CALL(__VA_ARGS__)
  BARACUDA_SYMBOLS_OF_SCALARS(BARACUDA_OTHER)
#undef BARACUDA_OTHER
#undef BARACUDA_CTC_LOSS_BACKWARD
#undef BARACUDA_CTC_LOSS
#undef BARACUDA_NMS_WITH_SCORES
#undef BARACUDA_FRACTIONAL_BACKWARD
#undef BARACUDA_FRACTIONAL
#undef BARACUDA_MAX_POOL
#undef BARACUDA_AVG_POOL
#undef BARACUDA_DEQUANTIZE
#undef BARACUDA_SEGMENT_EX
#undef BARACUDA_SEGMENT
#undef BARACUDA_PAD_EX_BACKWARD
#undef BARACUDA_PAD_EX
#undef BARACUDA_PAD_REPEATED_BACKWARD
#undef BARACUDA_PAD_REPEATED
#undef BARACUDA_PAD_CONSTANT_BACKWARD
#undef BARACUDA_PAD_CONSTANT
#undef BARACUDA_AFFINE_GRID_3D
#undef BARACUDA_AFFINE_GRID
#undef BARACUDA_GRID_SAMPLE
#undef BARACUDA_ROI_ALIGN_LEVELS
#undef BARACUDA_GRID_SAMPLE_3D
#undef BARACUDA_ROI_ALIGN
#undef BARACUDA_CALL
}

}  // namespace calls
