#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/matrix.h"
#include "kernels/row_store.h"

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
    static bool fits(const Matrix& up, const RowStore& exact, int size, int k);

    /// The `size` best tokens by up (down x), or by up x, for each row, rising.
    void ask_router(const Matrix* down, const Matrix& up, Rows<const float> x, int size);
    /// Logits over the union of the rows' shortlists, or `per_row` over each row's own alone, the same bits;
    /// `exact` reads the same x.
    void ask_exact(const RowStore& exact, bool per_row);
    /// The k best of each row's own, and the log of the sum over all of these.
    void ask_best(int k);
    /// Waits. `ids` are tokens; `chosen` becomes [rows, size], `together` the union, both rising; per row
    /// there is no union.
    void bring(Rows<std::int32_t> ids, Rows<float> values, std::span<float> sums,
               std::vector<std::int32_t>& chosen, std::vector<std::int32_t>& together);

  private:
    bool bring_names();
    void ask_each(const RowStore& exact);
    const std::int32_t* ask_rows_of(const std::int32_t* tokens, int count, const std::int32_t* count_there);

    Device* device_ = nullptr;
    int rows_ = 0, size_ = 0, k_ = 0, vocab_ = 0, most_ = 0;
    const Bf16* x_ = nullptr;
    bool per_row_ = false;
    bool broken_ = false;  ///< memory was out; nothing more is asked for
    bool fresh_names_ = false;
    std::vector<std::int32_t> tokens_of_, rows_of_;
    int named_vocab_ = 0;
    DeviceBuffer tokens_there_, rows_there_, size_there_, exact_rows_;
    int size_said_ = 0;   ///< what lies in size_there_
    DeviceBuffer block_;  ///< what bring() downloads, and the shortlists among it
    DeviceBuffer scratch_, bitmap_, columns_, logits_;
};

}  // namespace draftscope::kernels
