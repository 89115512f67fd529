// SPDX-License-Identifier: Apache-2.0
// The segment operators on the CPU: which path a call takes. Compiled once per instruction set.
//
//   path        rules                         problems                     code
//   map         whose row needs no other      all                          map.h
//   presorted   all others                    ids in order, or offsets     sort.h, folds.h
//   list        all others                    ids in any order             sort.h, folds.h
//
// Like the workspace, the path follows from the problem's scalars alone.
#include "core/cpu_launch.h"
#include "core/paths.h"
#include "ops/segment/cpu/folds.h"
#include "ops/segment/cpu/map.h"

namespace baracuda::segment {
namespace {

template <class Tag>
struct MapPath : Request<Problem, Buffers<Tag>> {
  static const char* name() { return "map"; }
  size_t bytes() const { return Mapping<Tag>(this->p, nullptr).layout.bytes(); }
  Status enqueue() const {
    const Mapping<Tag> mapping(this->p, this->workspace);
    return this->b.wide_index ? mapping.run(this->b, static_cast<const int64_t*>(this->b.index))
                              : mapping.run(this->b, static_cast<const int32_t*>(this->b.index));
  }
};

// What the paths share that fold rows in the order of their segments.
template <class Tag>
struct FoldingPath : Request<Problem, Buffers<Tag>> {
  size_t bytes() const { return Folding<Tag>(this->p, nullptr).layout.bytes(); }
  Status enqueue() const { return Folding<Tag>(this->p, this->workspace).run(this->b); }
};

template <class Tag>
struct PresortedPath : FoldingPath<Tag> {
  static const char* name() { return "presorted"; }
  bool can() const { return this->p.form != Form::kUnsorted; }
};

template <class Tag>
struct ListPath : FoldingPath<Tag> {
  static const char* name() { return "list"; }
};

template <class Tag>
constexpr auto paths_of() {
  if constexpr (Rule<Tag>::kKind == Kind::kMap) {
    return Paths<MapPath<Tag>>();
  } else {
    return Paths<PresortedPath<Tag>, ListPath<Tag>>();
  }
}
template <class Tag>
using PathsOf = decltype(paths_of<Tag>());

template <class Tag>
Status run(const Problem& p, const Buffers<Tag>& b, void* workspace) {
  return PathsOf<Tag>::enqueue(Request<Problem, Buffers<Tag>>{p, b, workspace});
}

}  // namespace

#define BARACUDA_PROVIDE(RULE, T) BARACUDA_PROVIDE_LAUNCH(Problem, Buffers<rule::RULE<T>>)
BARACUDA_SEGMENT_RULES(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

#if defined(BARACUDA_CPU_ISA_IS_PORTABLE)
namespace {
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

#define BARACUDA_PROVIDE(RULE, T) template size_t workspace_size<Buffers<rule::RULE<T>>>(const Problem&);
BARACUDA_SEGMENT_RULES(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE
#endif

}  // namespace baracuda::segment
