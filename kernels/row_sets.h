#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/spans.h"
#include "kernels/exec.h"

namespace draftscope::kernels {

/// Sets of numbers in [0, n), one a row, and their union: rows that choose their own shortlists share one
/// product over all of them (SpecVocab, arXiv 2602.13836, section 3). Memory is kept between calls; a union
/// costs what its rows hold and one look at n marks for every eight rows.
class RowSets {
  public:
    explicit RowSets(int n = 0) : n_(n) {}

    /// `out` becomes the union of the rows of `lists` (each rising), rising.
    void unite(const Exec& exec, Rows<const std::int32_t> lists, std::vector<std::int32_t>& out);

    // Of the last union:
    int rows() const { return rows_; }
    int members() const { return members_; }       ///< of the union
    int members_of_row() const { return width_; }  ///< alike for all rows
    /// [members]: those with bit(row) are the row's. Empty where there was one row, which has them all.
    std::span<const std::uint8_t> owners(int row) const;
    static std::uint8_t bit(int row) { return static_cast<std::uint8_t>(1u << (row % together)); }
    /// Numbers that are marked at a time: what stands for them stays in the first cache.
    static constexpr int stretch = 4096;

  private:
    static constexpr int together = 8;  ///< rows that share one byte
    int n_;
    int rows_ = 0, members_ = 0, width_ = 0;
    std::vector<std::uint8_t> marks_;   ///< [groups of rows, stretch], 0 between calls
    std::vector<std::uint8_t> owners_;  ///< [groups of rows, apart_]
    std::size_t apart_ = 0;
    std::vector<int> next_;  ///< of each row
};

/// topk() and logsumexp() of each row of x[M, members] over the columns that are its own: the bits that these
/// columns alone, side by side, would give. Ids are places among a row's own. Rows with fewer than k fill as
/// many cells as they have.
void topk_of_sets(Exec& exec, Rows<const float> x, const RowSets& sets, int k, Rows<std::int32_t> ids,
                  Rows<float> values, std::span<float> logsumexp);

}  // namespace draftscope::kernels
