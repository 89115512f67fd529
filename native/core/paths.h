// SPDX-License-Identifier: Apache-2.0
// How an operator chooses among its ways of doing a call, its paths: they stand in an ordered list, the first that can
// do the call does it, and the last can do every call.
//
// A path is a class that is made from a request, whose type is its family's, and has
//   static const char* name()   what the path is called where somebody asks which one a call takes
//   bool can() const            whether it can do the call; the last path of a list needs none
//   Status enqueue() const      does the call
#pragma once

#include "core/status.h"

namespace baracuda {
namespace {

template <class First, class... Others>
struct Paths {
  // Answers use(path) for the first path that can.
  template <class Request, class Use>
  static auto choose(const Request& request, const Use& use) {
    const First path{request};
    if constexpr (sizeof...(Others) > 0) {
      if (!path.can()) return Paths<Others...>::choose(request, use);
    }
    return use(path);
  }

  template <class Request>
  static Status enqueue(const Request& request) {
    return choose(request, [](const auto& path) { return path.enqueue(); });
  }

  // What the path that a call takes is called.
  template <class Request>
  static const char* name(const Request& request) {
    return choose(request, [](const auto& path) { return path.name(); });
  }
};

}  // namespace
}  // namespace baracuda
