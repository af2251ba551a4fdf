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
    /// Can this run for `k` candidates of shortlists of `size`? Column i of `up` and row i of `exact` are
    /// token i.
    static bool fits(const Matrix& up, const RowStore& exact, int size, int k);

    /// The `size` best columns of up (down x), or of up x, for each row, in their order.
    void ask_router(const Matrix* down, const Matrix& up, Rows<const float> x, int size);
    /// Logits over the union; `exact` reads the same x.
    void ask_exact(const RowStore& exact);
    /// The k best of each row's own, and the log of the sum over all of these.
    void ask_best(int k);
    /// Waits. `ids` are tokens; `chosen` becomes [rows, size], `together` the union, both rising.
    void bring(Rows<std::int32_t> ids, Rows<float> values, std::span<float> sums,
               std::vector<std::int32_t>& chosen, std::vector<std::int32_t>& together);

  private:
    Device* device_ = nullptr;
    int rows_ = 0, size_ = 0, k_ = 0, vocab_ = 0, most_ = 0;
    const Bf16* x_ = nullptr;
    bool broken_ = false;  ///< memory was out; nothing more is asked for
    DeviceBuffer block_;   ///< what bring() downloads, and the shortlists among it
    DeviceBuffer scratch_, bitmap_, columns_, logits_;
};

}  // namespace draftscope::kernels
