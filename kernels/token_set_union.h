#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/spans.h"
#include "kernels/exec.h"

namespace draftscope::kernels {

/// The union of per-row sets of numbers in [0, n). Rows with different shortlists then share one product over
/// the union (SpecVocab, arXiv 2602.13836, section 3). Memory is reused between calls. Cost: the total size
/// of the sets, plus one scan of n bytes per eight rows.
class TokenSetUnion {
  public:
    explicit TokenSetUnion(int n = 0) : n_(n) {}

    /// Sets `out` to the union of the rows of `lists`. Both are ascending.
    void unite(const Exec& exec, Rows<const std::int32_t> lists, std::vector<std::int32_t>& out);

    // Properties of the last union:
    int rows() const { return rows_; }
    int members() const { return members_; }     ///< size of the union
    int row_set_size() const { return width_; }  ///< size of each row's set, equal for all rows
    /// Bytes [members]; bit(row) is set in those of the row's members. Empty if the union has only one row.
    std::span<const std::uint8_t> owners(int row) const;
    static std::uint8_t bit(int row) { return static_cast<std::uint8_t>(1u << (row % rows_per_byte)); }
    /// Numbers marked at a time; their marks fit in the L1 cache.
    static constexpr int mark_chunk = 4096;

  private:
    static constexpr int rows_per_byte = 8;  ///< rows that share one byte
    int n_;
    int rows_ = 0, members_ = 0, width_ = 0;
    std::vector<std::uint8_t> marks_;   ///< [groups of rows, mark_chunk], 0 between calls
    std::vector<std::uint8_t> owners_;  ///< [groups of rows, owner_stride_]
    std::size_t owner_stride_ = 0;
    std::vector<int> next_;  ///< for each row
};

/// topk() and logsumexp() of each row of x[M, members] over the columns in the row's set. The results have
/// the same bits as with those columns alone, contiguous. Ids are positions in the row's set. Rows with fewer
/// than k fill only as many entries.
void topk_per_set(Exec& exec, Rows<const float> x, const TokenSetUnion& sets, int k, Rows<std::int32_t> ids,
                  Rows<float> values, std::span<float> logsumexp);

}  // namespace draftscope::kernels
