// SPDX-License-Identifier: Apache-2.0
// The segment operators on CUDA: which path a call takes. by_segment.cu and by_row.cu have half of the instances each,
// because these take minutes to compile. The words of this family stand in native/ops/segment/README.md.
//
//   path         rules                              problems                            code
//   no segments  with one result a row              without segments: all rows are 0    a memset
//   map          whose row needs no other row       all                                 map.cuh, offsets.cuh
//   table        max, min and their gradients, of   ids in any order; few segments      table.cuh
//                floats of at most 32 bits          and columns
//   presorted    all others                         ids in order, or offsets            presorted.cuh, join/
//   elements     sums                               ids in any order; many rows of      elements/; list where the
//                                                   one column, many segments           device finds a bucket too full
//   list         all others                         ids in any order                    sort/, list/, join/
//
// Like the workspace, the path follows from the problem's scalars alone.
#pragma once

#include "core/cuda_zeros.cuh"
#include "core/paths.h"
#include "ops/segment/cuda/elements/elements.cuh"
#include "ops/segment/cuda/list/list.cuh"
#include "ops/segment/cuda/map.cuh"
#include "ops/segment/cuda/presorted.cuh"
#include "ops/segment/cuda/table.cuh"
#include "ops/segment/launch.h"

namespace baracuda::segment {
namespace {

template <class Tag>
struct NoSegmentsPath : Request<Problem, Buffers<Tag>> {
  static const char* name() { return "no segments"; }
  bool can() const { return this->p.num_segments == 0; }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    return enqueue_zeros(this->b.result, static_cast<size_t>(this->p.row_numel) * sizeof(typename Tag::Element),
                         this->stream);
  }
};

template <class Tag>
struct MapPath : Request<Problem, Buffers<Tag>> {
  static const char* name() { return "map"; }
  size_t bytes() const { return MapScratch<Tag>(this->p, nullptr).layout.bytes(); }
  Status enqueue() const { return enqueue_map(this->p, this->b, this->workspace, this->stream); }
};

template <class Tag>
struct TablePath : Request<Problem, Buffers<Tag>> {
  static const char* name() { return "table"; }
  bool can() const { return takes_table<Tag>(this->p); }
  size_t bytes() const {
    return TableScratch(this->p, Rule<Tag>::kKind == Kind::kDistribute, nullptr).layout.bytes();
  }
  Status enqueue() const { return enqueue_table(this->p, this->b, this->workspace, this->stream); }
};

template <class Tag>
struct PresortedPath : Request<Problem, Buffers<Tag>> {
  static const char* name() { return "presorted"; }
  bool can() const { return this->p.form != Form::kUnsorted; }
  size_t bytes() const { return PresortedScratch<Tag>(this->p, nullptr).layout.bytes(); }
  Status enqueue() const { return enqueue_presorted(this->p, this->b, this->workspace, this->stream); }
};

template <class Tag>
struct ListPath : Request<Problem, Buffers<Tag>> {
  static const char* name() { return "list"; }
  size_t bytes() const { return ListScratch<Tag>(this->p, nullptr).layout.bytes(); }
  Status enqueue() const { return enqueue_list(this->p, this->b, this->workspace, this->stream); }
};

template <class Tag>
struct ElementsPath : Request<Problem, Buffers<Tag>> {
  static const char* name() { return "elements"; }
  bool can() const { return takes_elements(this->p); }
  size_t bytes() const { return ElementScratch<Tag>(this->p, nullptr).bytes; }
  Status enqueue() const { return enqueue_elements(this->p, this->b, this->workspace, this->stream); }
};

// The paths of a rule, in the order in which they are asked.
template <class Tag>
constexpr auto paths_of() {
  constexpr Kind kKind = Rule<Tag>::kKind;
  if constexpr (kKind == Kind::kMap) {
    return Paths<NoSegmentsPath<Tag>, MapPath<Tag>>();
  } else if constexpr (kKind == Kind::kDistribute && may_take_table<Tag>()) {
    return Paths<NoSegmentsPath<Tag>, TablePath<Tag>, PresortedPath<Tag>, ListPath<Tag>>();
  } else if constexpr (kKind == Kind::kDistribute) {
    return Paths<NoSegmentsPath<Tag>, PresortedPath<Tag>, ListPath<Tag>>();
  } else if constexpr (IsSum<Tag>::value) {
    return Paths<ElementsPath<Tag>, PresortedPath<Tag>, ListPath<Tag>>();
  } else if constexpr (may_take_table<Tag>()) {
    return Paths<TablePath<Tag>, PresortedPath<Tag>, ListPath<Tag>>();
  } else {
    return Paths<PresortedPath<Tag>, ListPath<Tag>>();
  }
}
template <class Tag>
using PathsOf = decltype(paths_of<Tag>());

template <class Tag>
Status run(const Problem& p, const Buffers<Tag>& b, void* workspace, Stream stream) {
  return PathsOf<Tag>::enqueue(Request<Problem, Buffers<Tag>>{p, b, workspace, stream});
}

template <class Tag>
size_t bytes_of(const Problem& p) {
  const Buffers<Tag> none{};
  return PathsOf<Tag>::choose(Request<Problem, Buffers<Tag>>{p, none, nullptr},
                              [](const auto& path) { return path.bytes(); });
}

}  // namespace

template <class Buffers>
size_t workspace_size(const Problem& problem) {
  return bytes_of<typename Buffers::Tag>(problem);
}

// Provides launch and workspace_size of one rule.
#define BARACUDA_PROVIDE(RULE, T)                          \
  BARACUDA_PROVIDE_LAUNCH(Problem, Buffers<rule::RULE<T>>) \
  template size_t workspace_size<Buffers<rule::RULE<T>>>(const Problem&);

}  // namespace baracuda::segment
