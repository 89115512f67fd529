// SPDX-License-Identifier: Apache-2.0
// What a rule is: the functions that every rule has, whatever it computes. The rules stand in the other files.
#pragma once

#include <cstdint>


namespace baracuda::segment {
namespace {

// A component that a rule does not need.
struct Nothing {};

// What becomes of the rows of a segment.
enum class Kind {
  kReduce,      // begin, add, join, then output(): one result a segment
  kDistribute,  // begin, add, join, then value(): one result a row
  kMap,         // value() alone
};

// A Rule has: kKind. What it reads: kRows, tensors with a row for each row (`x`, `y`); kSegments, tensors with a row
// for each segment (`s`, `t`). A rule that keeps something of the rows before: First and Second, its two components,
// and
//   begin(first, second, x, y, row)   the first row of a piece
//   add(first, second, x, y, row)     a later one
//   join(first, second, later first, later second)
//   none(first, second, row)          kReduce: what add() of a piece's first row, `row`, makes the same as begin()
//   kAnyGrouping                      whether parts may be joined in any grouping without a change of bits
//   kReadsRowsAgain                   kDistribute: whether value() uses x and y
// `count` is the number of the segment's rows, `row` the row's index. A part's first component begins at 0 for sums, so
// that a sum of -0 alone is +0.
template <class Name>
struct Rule;

}  // namespace
}  // namespace baracuda::segment
