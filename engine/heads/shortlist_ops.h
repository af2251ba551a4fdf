#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/heads/low_rank.h"
#include "kernels/matrix.h"
#include "kernels/row_major_matrix.h"

namespace draftscope {

/// The tokens of a router's columns and their rows of an exact head, in the backend's memory. The default is
/// that all three have the same numbers.
class ShortlistTokens {
  public:
    struct Lists {
        std::span<const std::int32_t> tokens;  ///< token of each router column, ascending; empty = its number
        std::span<const std::int32_t> rows;    ///< exact-head row of each token, [vocab]; empty = its number
        int vocab = 0;                         ///< number of tokens; 0 = the router's columns
    };
    /// Copies the lists.
    void set(const Lists& lists);
    /// Uploads lists that are not uploaded yet. Returns false if out of memory.
    bool upload(kernels::Backend& backend);
    /// Returns the number of tokens.
    int vocab(const kernels::Matrix& router) const { return vocab_ > 0 ? vocab_ : router.n(); }
    /// Reserves memory for `count` rows of enqueue_rows(). Returns false if out of memory.
    bool reserve_rows(kernels::Backend& backend, std::size_t count) {
        return rows_.empty() || listed_rows_.resize_at_least(backend, count);
    }
    /// Enqueues the replacement of `count` router columns by their tokens.
    void enqueue_tokens(kernels::Backend& backend, std::int32_t* columns, int count) const;
    /// Enqueues and returns the exact head's rows of `count` tokens, or of `d_count` if that is not null.
    const std::int32_t* enqueue_rows(kernels::Backend& backend, const std::int32_t* tokens, int count,
                                     const std::int32_t* d_count) const;

  private:
    std::vector<std::int32_t> tokens_, rows_;
    int vocab_ = 0;
    bool is_uploaded_ = true;
    kernels::DeviceArray<std::int32_t> d_tokens_, d_rows_, listed_rows_;
};

/// The ops of SpecVocab's head: a router selects each row's shortlist, and the exact head scores their union.
/// The best tokens of a row are selected from its own shortlist. Each step is a separate call, so that the
/// caller can record phases. The caller holds Backend::submit_mutex() from the first step to the last. If
/// memory runs out, Backend::synchronize() returns the error.
class ShortlistOps {
  public:
    /// Sets the tokens of the router's columns. Call it before the first step, and again when they change.
    void set_tokens(const ShortlistTokens::Lists& lists) { tokens_.set(lists); }

    /// Reserves memory for calls of up to these sizes, so that none of them moves a buffer. Returns false if
    /// memory runs out.
    bool reserve(kernels::Backend& backend, const kernels::Matrix& down, const kernels::Matrix& up, int rows,
                 int size);
    /// Enqueues the selection of each row's `size` best tokens, ascending, by the scores up (down x). Null
    /// `down` = up x. `x`, [rows, stride of the first matrix], must not change before enqueue_exact().
    void enqueue_router(const kernels::Matrix* down, const kernels::Matrix& up, kernels::Activations x,
                        int rows, int size);
    /// Enqueues the list of tokens of rows [first, first + rows), ascending, and its size. `tokens` has
    /// capacity for all. Call it before enqueue_exact(), which keeps its columns in the same memory.
    void enqueue_union(int first, int rows, std::int32_t* tokens, std::int32_t* size);
    /// Enqueues the logits over the union of the rows' shortlists, or, if `per_row`, over each row's own.
    /// Both give the same bits. The union and its size are stored in `tokens` and `size`; null = not
    /// requested. With `per_row` neither is stored.
    void enqueue_exact(const kernels::RowMajorMatrix& exact, bool per_row, std::int32_t* size = nullptr,
                       std::int32_t* tokens = nullptr);
    /// Enqueues the k best of each row's shortlist: `ids` and `values` [rows, k]. `sums` [rows] receives
    /// log(sum(exp)) over the shortlist. Ids are tokens; missing candidates have id -1.
    void enqueue_best(int k, std::int32_t* ids, float* values, float* sums);
    /// Replaces enqueue_best(): all logits of each row's shortlist, [rows, stride], and their tokens,
    /// ascending.
    void enqueue_own(float* logits, std::int32_t* tokens, std::int64_t stride);
    /// Shortlists of the latest enqueue_router(), [rows, size], in device memory.
    const std::int32_t* shortlists() const { return block_.data(); }

  private:
    int max_union(int rows, int size) const;
    bool reserve_call(const kernels::Matrix& up, int rows, int size);
    bool reserve_exact(int rows, int columns, std::size_t listed);
    void enqueue_each(const kernels::RowMajorMatrix& exact);

    kernels::Backend* backend_ = nullptr;
    int rows_ = 0, size_ = 0, vocab_ = 0, max_union_ = 0;
    int stride_ = 0;  ///< of the logits over the union; whole cache lines
    kernels::Activations x_;
    DownProjection down_;
    bool per_row_ = false;
    bool broken_ = false;  ///< memory ran out; later steps enqueue nothing
    ShortlistTokens tokens_;
    kernels::DeviceBuffer d_size_, bitmap_, columns_, index_;
    int uploaded_size_ = 0;                     ///< value in d_size_
    kernels::DeviceArray<std::int32_t> block_;  ///< shortlists, their union and its size
    kernels::DeviceArray<std::byte> scratch_;
    kernels::DeviceArray<float> logits_;
};

}  // namespace draftscope
