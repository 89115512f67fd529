// SPDX-License-Identifier: Apache-2.0
// The C functions of pixel_shuffle and pixel_unshuffle, compiled into both libraries.
#include "abi/pixel_shuffle.h"
#include "ops/pixel_shuffle/launch.h"

namespace baracuda::pixel_shuffle {
namespace {

template <size_t kBytes>
struct WordOf;
template <>
struct WordOf<2> {
  using type = uint16_t;
};
template <>
struct WordOf<4> {
  using type = uint32_t;
};
template <>
struct WordOf<8> {
  using type = uint64_t;
};
template <typename T>
using Word = typename WordOf<sizeof(T)>::type;

template <typename T>
struct Shuffle {
  using Arguments = PixelShuffleArguments;
  using Problem = pixel_shuffle::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return pixel_shuffle::make_problem(a.n, a.c, a.h, a.w, a.upscale_factor, "upscale_factor", "output", sizeof(T),
                                       problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"input", a.input, p.numel, sizeof(T), false}, {"output", a.output, p.numel, sizeof(T), true}}, 2};
  }
  static size_t workspace_size(const Problem&) { return 0; }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return pixel_shuffle::launch(p, buffers_of<ShuffleBuffers<Word<T>>>(a.input, a.output), workspace, stream);
  }
};

template <typename T>
struct Unshuffle {
  using Arguments = PixelUnshuffleArguments;
  using Problem = pixel_shuffle::Problem;

  static Status make_problem(const Arguments& a, Problem* problem) {
    return pixel_shuffle::make_problem(a.n, a.c, a.h, a.w, a.downscale_factor, "downscale_factor", "input", sizeof(T),
                                       problem);
  }
  static Operands operands(const Problem& p, const Arguments& a) {
    return {{{"input", a.input, p.numel, sizeof(T), false}, {"output", a.output, p.numel, sizeof(T), true}}, 2};
  }
  static size_t workspace_size(const Problem&) { return 0; }
  static Status launch(const Problem& p, const Arguments& a, void* workspace, Stream stream) {
    return pixel_shuffle::launch(p, buffers_of<UnshuffleBuffers<Word<T>>>(a.input, a.output), workspace, stream);
  }
};

}  // namespace
}  // namespace baracuda::pixel_shuffle

extern "C" {
using namespace baracuda;

BARACUDA_STAMP_EVERY_PIXEL_SHUFFLE(pixel_shuffle::Shuffle)
BARACUDA_STAMP_EVERY_PIXEL_UNSHUFFLE(pixel_shuffle::Unshuffle)
}
