// SPDX-License-Identifier: Apache-2.0
// dequantize on the CPU: threads own ranges of elements and take them in chunks. Compiled once per instruction set.
//
//   path       calls                            parameters are
//   runs       long runs of one channel         the same for a whole run
//   channels   a channel has one element        read as they lie
//   blocks     all                              laid out for each element of a block
#include "core/cpu_convert.h"
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/paths.h"
#include "ops/dequantize/launch.h"
#include "ops/dequantize/math.h"

namespace baracuda::dequantize {
namespace {

// Elements between reading and writing: few, so that the processor overlaps one chunk's stores with the next one's
// loads (512 ran at half the speed), and whole cache lines of every type.
constexpr int64_t kChunk = 64;
// An inner extent from which on the elements of a channel that fill no whole vector are few beside the rest: 8-bit
// inputs are taken up to 64 at a time, floats at most 16. Below it parameters are laid out per element, so that vectors
// need not end where channels do.
template <typename Input>
constexpr int64_t kRun = sizeof(Input) == 1 ? 256 : 32;
// Elements whose parameters are laid out at a time: some 6 KiB.
constexpr int64_t kBlock = 512;

// The parameters of a stretch of elements: one for each, or the first for all. The backward has no zero points.
template <typename C>
struct Parameters {
  const C* scale;
  const int32_t* zero_point;
  bool near;  // whether every zero point is
};

// Space for them.
template <typename C>
struct Room {
  alignas(64) C scale[kBlock];
  alignas(64) int32_t zero_point[kBlock];
};

bool are_near(const int32_t* zero_points, int64_t count) {
  int32_t far = 0;
  for (int64_t i = 0; i < count; ++i) {
    far |= is_near(zero_points[i]) ? 0 : 1;
  }
  return far == 0;
}

template <typename T, typename Q>
const int32_t* zero_points_of(const ForwardBuffers<T, Q>& b) {
  return b.zero_point;
}
template <typename T>
const int32_t* zero_points_of(const BackwardBuffers<T>&) {
  return nullptr;
}

// The products of at most one chunk; kStep 1: each element has its parameters, 0: all have the first.
template <int kStep, typename Difference, typename T, typename Q>
void multiply_differences(const Q* input, const Parameters<Compute<T>>& parameters, T* output, int64_t count) {
  alignas(64) Compute<T> products[kChunk];
  for (int64_t i = 0; i < count; ++i) {
    products[i] = dequantized<Difference>(input[i], parameters.zero_point[i * kStep], parameters.scale[i * kStep]);
  }
  narrow_row(products, output, count);
}

template <int kStep, typename T, typename Q>
void multiply(const ForwardBuffers<T, Q>&, const Q* input, const Parameters<Compute<T>>& parameters, T* output,
              int64_t count) {
  if (parameters.near) {
    multiply_differences<kStep, int32_t>(input, parameters, output, count);
  } else {
    multiply_differences<kStep, int64_t>(input, parameters, output, count);
  }
}
template <int kStep, typename T>
void multiply(const BackwardBuffers<T>&, const T* input, const Parameters<Compute<T>>& parameters, T* output,
              int64_t count) {
  alignas(64) Compute<T> products[kChunk];
  widen_row(input, products, count);
  for (int64_t i = 0; i < count; ++i) products[i] = scaled(products[i], parameters.scale[i * kStep]);
  narrow_row(products, output, count);
}

// Elements of one stretch. The constant count of a full chunk gives loops without a scalar rest.
template <int kStep, typename Buffers>
void write(const Buffers& b, Parameters<Compute<typename Buffers::Output>> parameters, int64_t element, int64_t count) {
  const typename Buffers::Input* input = b.input + element;
  typename Buffers::Output* output = b.output + element;
  for (; count >= kChunk; count -= kChunk) {
    multiply<kStep>(b, input, parameters, output, kChunk);
    input += kChunk;
    output += kChunk;
    parameters.scale += kStep * kChunk;
    if (parameters.zero_point != nullptr) parameters.zero_point += kStep * kChunk;
  }
  if (count > 0) multiply<kStep>(b, input, parameters, output, count);
}

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Walks a range of elements and hands out stretches with their parameters.
template <typename Buffers>
class Range {
  using C = Compute<typename Buffers::Output>;

 public:
  Range(const Problem& p, const Buffers& b, int64_t begin, int64_t end)
      : p_(p), b_(b), at_(begin), end_(end), channel_(begin / p.inner % p.channels), inner_(begin % p.inner) {}

  bool is_done() const { return at_ == end_; }

  // The rest of one channel's run.
  void write_run() {
    const int64_t begin = at_;
    const C scale = channel_scale();
    const int32_t zero_point = channel_zero_point();
    const int64_t count = advance(end_ - at_);
    write<0>(b_, Parameters<C>{&scale, &zero_point, is_near(zero_point)}, begin, count);
  }

  // Many runs, of which the last may go on in the next block.
  void write_block() {
    const int64_t begin = at_, count = smaller(end_ - at_, kBlock);
    for (int64_t done = 0; done < count;) {
      const C scale = channel_scale();
      const int32_t zero_point = channel_zero_point();
      const int64_t end = done + advance(count - done);
      for (; done < end; ++done) {
        room_.scale[done] = scale;
        room_.zero_point[done] = zero_point;
      }
    }
    write<1>(b_, Parameters<C>{room_.scale, room_.zero_point, are_near(room_.zero_point, count)}, begin, count);
  }

  // Runs of one element: the parameters stand side by side already.
  void write_channels() {
    const int64_t count = smaller(smaller(end_ - at_, p_.channels - channel_), kBlock);
    widen_row(b_.scale + channel_, room_.scale, count);
    const int32_t* zero_points = zero_points_of(b_);
    if (zero_points != nullptr) zero_points += channel_;
    const bool near = zero_points == nullptr || are_near(zero_points, count);
    write<1>(b_, Parameters<C>{room_.scale, zero_points, near}, at_, count);
    at_ += count;
    channel_ = channel_ + count < p_.channels ? channel_ + count : 0;
  }

 private:
  // The current run's parameters.
  C channel_scale() const { return widen(b_.scale[channel_]); }
  int32_t channel_zero_point() const {
    const int32_t* zero_points = zero_points_of(b_);
    return zero_points != nullptr ? zero_points[channel_] : 0;
  }

  // Moves past at most `most` elements of the current run and answers how many.
  int64_t advance(int64_t most) {
    const int64_t count = smaller(most, p_.inner - inner_);
    at_ += count;
    inner_ += count;
    if (inner_ < p_.inner) return count;
    inner_ = 0;
    channel_ = channel_ + 1 < p_.channels ? channel_ + 1 : 0;
    return count;
  }

  const Problem& p_;
  const Buffers& b_;
  int64_t at_, end_, channel_, inner_;
  Room<C> room_;
};

// All elements, one stretch after the other by a member of Range.
template <typename Buffers, void (Range<Buffers>::*write_stretch)()>
Status write_all(const Request<Problem, Buffers>& call) {
  Request<Problem, Buffers> context = call;
  parallel_ranges(
      call.p.numel, kPartElements,
      [](void* request, int64_t begin, int64_t end) {
        const Request<Problem, Buffers>& c = *static_cast<const Request<Problem, Buffers>*>(request);
        Range<Buffers> range(c.p, c.b, begin, end);
        while (!range.is_done()) (range.*write_stretch)();
      },
      &context);
  return Status::kOk;
}

template <typename Buffers>
struct RunsPath {
  static const char* name() { return "runs"; }
  const Request<Problem, Buffers>& call;
  bool can() const { return call.p.inner >= kRun<typename Buffers::Input>; }
  Status enqueue() const { return write_all<Buffers, &Range<Buffers>::write_run>(call); }
};

template <typename Buffers>
struct ChannelsPath {
  static const char* name() { return "channels"; }
  const Request<Problem, Buffers>& call;
  bool can() const { return call.p.inner == 1; }
  Status enqueue() const { return write_all<Buffers, &Range<Buffers>::write_channels>(call); }
};

template <typename Buffers>
struct BlocksPath {
  static const char* name() { return "blocks"; }
  const Request<Problem, Buffers>& call;
  Status enqueue() const { return write_all<Buffers, &Range<Buffers>::write_block>(call); }
};

template <typename Buffers>
Status run(const Problem& p, const Buffers& b, void* workspace) {
  return Paths<RunsPath<Buffers>, ChannelsPath<Buffers>, BlocksPath<Buffers>>::enqueue(
      Request<Problem, Buffers>{p, b, workspace});
}

}  // namespace

#define BARACUDA_PROVIDE(...) BARACUDA_PROVIDE_LAUNCH(Problem, __VA_ARGS__)
BARACUDA_DEQUANTIZE_BUFFERS(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::dequantize
