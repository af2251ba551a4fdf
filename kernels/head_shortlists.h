#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/matrix.h"
#include "kernels/row_major_matrix.h"

namespace draftscope::kernels {

/// SpecVocab's call on a device, with one wait: a router chooses a shortlist for each row, the exact head
/// scores the union of them, and each row's best are found among its own. Asked for step by step, so that a
/// caller can mark what belongs to which phase; it holds Device::busy() from the first step to bring(). Where
/// memory is out, the device says so in its next finish().
class DeviceShortlists {
  public:
    /// What tokens are, where they are not column i of the router and row i of the exact head.
    struct Names {
        std::span<const std::int32_t> tokens;  ///< of the router's columns, rising; empty = their numbers
        std::span<const std::int32_t> rows;    ///< of the tokens in the exact head [vocab]; empty = the same
        int vocab = 0;                         ///< tokens; 0 = the router's columns
    };
    /// Before the first call, and when they change.
    void set_names(const Names& names);

    /// Can this run for `k` candidates of shortlists of `size`?
    static bool fits(const Matrix& up, const RowMajorMatrix& exact, int size, int k);

    /// Memory for calls of up to these sizes, so that no later one moves anything; false when it is out.
    bool reserve(const Matrix& down, const Matrix& up, int rows, int size);
    /// The `size` best tokens by up (down x), or by up x, for each row, rising.
    void ask_router(const Matrix* down, const Matrix& up, Rows<const float> x, int size);
    /// The same of rows that lie there as `down`, or `up`, reads them.
    void ask_router(const Matrix* down, const Matrix& up, const half_t* x, int rows, int size);
    /// The tokens of rows [first, first + rows), rising, to `tokens` with room for all, and how many. Before
    /// ask_exact().
    void ask_union(int first, int rows, std::int32_t* tokens, std::int32_t* size);
    /// Logits over the union of the rows' shortlists, or `per_row` over each row's own alone, the same bits;
    /// `exact` reads the same x. The union's size goes to `size`, and where there are `tokens`, these there,
    /// like that of ask_union(). Nulls = to bring().
    void ask_exact(const RowMajorMatrix& exact, bool per_row, std::int32_t* size = nullptr,
                   std::int32_t* tokens = nullptr);
    /// The k best of each row's own, and the log of the sum over all of these.
    void ask_best(int k);
    /// The same, left there: ids are tokens.
    void ask_best(int k, std::int32_t* ids, float* values, float* sums);
    /// In place of ask_best(): all of each row's own, [rows, stride], and their tokens, rising.
    void ask_own(float* logits, std::int32_t* tokens, std::int64_t stride);
    /// Waits. `ids` are tokens; `chosen` becomes [rows, size], `together` the union, both rising; per row
    /// there is no union.
    void bring(Rows<std::int32_t> ids, Rows<float> values, std::span<float> sums,
               std::vector<std::int32_t>& chosen, std::vector<std::int32_t>& together);

  private:
    bool bring_names();
    static std::size_t block_words(int rows, int size, int most);
    int most_together(int rows, int size) const;
    bool reserve_call(const Matrix& up, int rows, int size);
    bool reserve_narrow(const Matrix& down, int rows);
    bool reserve_exact(int rows, int columns, std::size_t listed);
    void ask_each(const RowMajorMatrix& exact);
    const std::int32_t* ask_rows_of(const std::int32_t* tokens, int count, const std::int32_t* d_count);

    Device* device_ = nullptr;
    int rows_ = 0, size_ = 0, k_ = 0, vocab_ = 0, most_ = 0;
    const half_t* x_ = nullptr;
    DeviceArray<float> narrow_;  ///< between the router's factors
    DeviceArray<half_t> narrow_half_;
    bool per_row_ = false;
    bool broken_ = false;  ///< memory was out; nothing more is asked for
    bool fresh_names_ = false;
    std::vector<std::int32_t> tokens_of_, rows_of_;
    int named_vocab_ = 0;
    DeviceArray<std::int32_t> tokens_there_, rows_there_, exact_rows_;
    DeviceBuffer size_there_, bitmap_, columns_;
    int size_said_ = 0;                ///< what lies in size_there_
    DeviceArray<std::int32_t> block_;  ///< what bring() downloads, and the shortlists among it
    DeviceArray<std::byte> scratch_;
    DeviceArray<float> logits_;
};

}  // namespace draftscope::kernels
