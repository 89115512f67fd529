// SPDX-License-Identifier: Apache-2.0
// pixel_shuffle and pixel_unshuffle on the CPU. Compiled once per instruction set.
//
//   path    calls   a task is
//   rows    all     a row of the image with more pixels
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/paths.h"
#include "ops/pixel_shuffle/launch.h"
#include "ops/pixel_shuffle/math.h"

namespace baracuda::pixel_shuffle {
namespace {

template <typename W>
void move(const ShuffleBuffers<W>& b, int64_t wide, int64_t deep) {
  b.wide[wide] = b.deep[deep];
}
template <typename W>
void move(const UnshuffleBuffers<W>& b, int64_t wide, int64_t deep) {
  b.deep[deep] = b.wide[wide];
}

// A factor that the compiler knows becomes a permutation of vectors.
template <int kFactor, typename Buffers>
void move_row(const Problem& p, const Buffers& b, int64_t wide, int64_t deep) {
  const int64_t plane = deep_plane_numel(p);
  for (int64_t w = 0; w < p.w; ++w) {
    for (int64_t j = 0; j < kFactor; ++j) move(b, wide + w * kFactor + j, deep + j * plane + w);
  }
}

template <typename Buffers>
void move_row(const Problem& p, const Buffers& b, int64_t wide, int64_t deep) {
  const int64_t plane = deep_plane_numel(p);
  for (int64_t j = 0; j < p.factor; ++j) {
    for (int64_t w = 0; w < p.w; ++w) move(b, wide + w * p.factor + j, deep + j * plane + w);
  }
}

template <typename Buffers>
Status move_rows(const Problem& p, const Buffers& b) {
  parallel_for(p.wide_rows, grain_for(p.wide_w), [&](int64_t row) {
    const int64_t i = row % p.factor, group = row / p.factor;
    const int64_t deep =
        first_deep_row(p, group / p.h, static_cast<int32_t>(group % p.h), static_cast<int32_t>(i));
    const int64_t wide = row * p.wide_w;
    switch (p.factor) {
      case 2: move_row<2>(p, b, wide, deep); break;
      case 3: move_row<3>(p, b, wide, deep); break;
      case 4: move_row<4>(p, b, wide, deep); break;
      default: move_row(p, b, wide, deep);
    }
  });
  return Status::kOk;
}

template <typename Buffers>
struct RowsPath {
  static const char* name() { return "rows"; }
  const Request<Problem, Buffers>& call;
  Status enqueue() const { return move_rows(call.p, call.b); }
};

template <typename Buffers>
Status run(const Problem& p, const Buffers& b, void* workspace) {
  return Paths<RowsPath<Buffers>>::enqueue(Request<Problem, Buffers>{p, b, workspace});
}

}  // namespace

#define BARACUDA_PROVIDE(...) BARACUDA_PROVIDE_LAUNCH(Problem, __VA_ARGS__)
BARACUDA_PIXEL_SHUFFLE_BUFFERS(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::pixel_shuffle
