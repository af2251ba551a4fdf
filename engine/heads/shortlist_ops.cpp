#include "engine/heads/shortlist_ops.h"

#include <algorithm>

#include "base/numel.h"

namespace draftscope {
namespace {

constexpr int line = 16;  ///< logits in a cache line

/// An odd number of lines, because rows a power of two apart would share the sets of a cache.
int round_up_to_lines(int columns) {
    return ((columns + line - 1) / line | 1) * line;
}

}  // namespace

void ShortlistTokens::set(const Lists& lists) {
    tokens_.assign(lists.tokens.begin(), lists.tokens.end());
    rows_.assign(lists.rows.begin(), lists.rows.end());
    vocab_ = lists.vocab;
    is_uploaded_ = false;
}

bool ShortlistTokens::upload(kernels::Backend& backend) {
    if (!is_uploaded_)
        is_uploaded_ = d_tokens_.upload_exact(backend, tokens_) && d_rows_.upload_exact(backend, rows_);
    return is_uploaded_;
}

void ShortlistTokens::enqueue_tokens(kernels::Backend& backend, std::int32_t* columns, int count) const {
    if (!tokens_.empty()) backend.remap_ids({columns, count, nullptr, d_tokens_.as<std::int32_t>(), columns});
}

const std::int32_t* ShortlistTokens::enqueue_rows(kernels::Backend& backend, const std::int32_t* tokens,
                                                  int count, const std::int32_t* d_count) const {
    if (rows_.empty()) return tokens;
    backend.remap_ids({tokens, count, d_count, d_rows_.as<std::int32_t>(), listed_rows_.as<std::int32_t>()});
    return listed_rows_.as<std::int32_t>();
}

int ShortlistOps::max_union(int rows, int size) const {
    return static_cast<int>(std::min<std::size_t>(numel(rows, size), static_cast<std::size_t>(vocab_)));
}

bool ShortlistOps::reserve_call(const kernels::Matrix& up, int rows, int size) {
    vocab_ = tokens_.vocab(up);
    const std::size_t block = numel(rows, size) + numel(1, max_union(rows, size)) + 1;
    return tokens_.upload(*backend_) && block_.resize_at_least(*backend_, block) &&
           scratch_.resize_at_least(*backend_,
                                    std::max(kernels::router_scratch_bytes(rows, up.n(), size),
                                             kernels::topk_scratch_bytes(rows, size, kernels::max_topk)));
}

/// Reserves memory for logits of `columns` columns and for `listed` row numbers of the exact head.
bool ShortlistOps::reserve_exact(int rows, int columns, std::size_t listed) {
    const auto vocab = static_cast<std::size_t>(vocab_);
    return bitmap_.reserve(*backend_, (vocab + 31) / 32 * sizeof(std::uint32_t)) &&
           index_.reserve(*backend_, (vocab + 31) / 32 * sizeof(std::uint64_t)) &&
           columns_.reserve(*backend_, vocab * sizeof(std::int32_t)) &&
           d_size_.reserve(*backend_, sizeof(std::int32_t)) &&
           logits_.resize_at_least(*backend_, numel(rows, columns)) &&
           tokens_.reserve_rows(*backend_, listed);
}

bool ShortlistOps::reserve(kernels::Backend& backend, const kernels::Matrix& down, const kernels::Matrix& up,
                           int rows, int size) {
    backend_ = &backend;
    return reserve_call(up, rows, size) && down_.reserve(backend, down, rows) &&
           reserve_exact(rows, std::max(size, round_up_to_lines(max_union(rows, size))), numel(rows, size));
}

void ShortlistOps::enqueue_router(const kernels::Matrix* down, const kernels::Matrix& up,
                                  kernels::Activations x, int rows, int size) {
    rows_ = rows;
    size_ = size;
    x_ = x;
    broken_ =
        !reserve_call(up, rows, size) || (down != nullptr && !down_.reserve(*backend_, *down, rows)) || !x;
    max_union_ = max_union(rows, size);
    stride_ = round_up_to_lines(max_union_);
    if (broken_) return backend_->set_out_of_memory("a head's shortlists");
    kernels::MatmulTopKSetOp op;
    op.weights = up.device_matrix();
    op.rows = rows_;
    op.k = size_;
    op.ids = block_.as<std::int32_t>();
    op.scratch = scratch_.as<void>();
    op.x = down == nullptr ? x : down_.enqueue(*backend_, *down, x, rows);
    backend_->matmul_topk_set(op);
    tokens_.enqueue_tokens(*backend_, op.ids, static_cast<int>(numel(rows_, size_)));
}

/// Enqueues one product per row: a shortlist is already a list of columns for it.
void ShortlistOps::enqueue_each(const kernels::RowMajorMatrix& exact) {
    const auto count = numel(rows_, size_);
    if (uploaded_size_ != size_) {
        const std::int32_t size = uploaded_size_ = size_;
        backend_->upload(d_size_.as<void>(), &size, sizeof size);
    }
    const std::int32_t* rows =
        tokens_.enqueue_rows(*backend_, block_.as<std::int32_t>(), static_cast<int>(count), nullptr);
    for (int r = 0; r < rows_; ++r) {
        kernels::MatmulOp op;
        op.weights = exact.device_matrix();
        op.x = backend_->at(x_, std::ptrdiff_t{r} * op.weights.stride);
        op.rows = 1;
        op.y = logits_.as<float>() + numel(r, size_);
        op.y_stride = size_;
        op.chosen = rows + numel(r, size_);
        op.chosen_count = d_size_.as<std::int32_t>();
        op.max_chosen = size_;
        backend_->matmul(op);
    }
}

void ShortlistOps::enqueue_union(int first, int rows, std::int32_t* tokens, std::int32_t* size) {
    broken_ = broken_ || !reserve_exact(rows_, stride_, numel(rows_, size_));
    if (broken_) return backend_->set_out_of_memory("a head's shortlists");
    kernels::UniqueTokensOp unite;
    unite.ids = block_.as<std::int32_t>() + numel(first, size_);
    unite.count = static_cast<std::int64_t>(numel(rows, size_));
    unite.vocab = vocab_;
    unite.bitmap = bitmap_.as<std::uint32_t>();
    unite.tokens = tokens;
    unite.columns = columns_.as<std::int32_t>();
    unite.size = size;
    unite.index = index_.as<std::uint64_t>();
    backend_->list_unique_tokens(unite);
}

void ShortlistOps::enqueue_exact(const kernels::RowMajorMatrix& exact, bool per_row, std::int32_t* size,
                                 std::int32_t* tokens) {
    const bool only_row = rows_ == 1 && backend_->is_host();  // whose shortlist is the union
    per_row_ = per_row || only_row;
    broken_ = broken_ || !reserve_exact(rows_, per_row_ ? size_ : stride_, numel(rows_, size_));
    if (broken_) return backend_->set_out_of_memory("a head's shortlists");
    auto* together = block_.as<std::int32_t>() + numel(rows_, size_);
    if (tokens == nullptr) tokens = together;
    if (size == nullptr) size = together + max_union_;
    if (only_row) {
        *size = size_;
        backend_->copy(tokens, block_.as<std::int32_t>(), numel(size_, sizeof(std::int32_t)));
    }
    if (per_row_) return enqueue_each(exact);
    enqueue_union(0, rows_, tokens, size);
    kernels::MatmulOp op;
    op.weights = exact.device_matrix();
    op.x = x_;
    op.rows = rows_;
    op.y = logits_.as<float>();
    op.y_stride = stride_;
    op.chosen = tokens_.enqueue_rows(*backend_, tokens, max_union_, size);
    op.chosen_count = size;
    op.max_chosen = max_union_;
    backend_->matmul(op);
}

void ShortlistOps::enqueue_best(int k, std::int32_t* ids, float* values, float* sums) {
    if (broken_) return;
    kernels::TopKOp op;
    op.logits = logits_.as<float>();
    op.stride = per_row_ ? size_ : stride_;
    op.rows = rows_;
    op.support = size_;
    op.k = k;
    op.ids = ids;
    op.values = values;
    op.logsumexp = sums;
    op.scratch = scratch_.as<void>();
    op.candidates = block_.as<std::int32_t>();
    op.candidate_stride = size_;
    if (!per_row_) {
        op.columns = columns_.as<std::int32_t>();
        op.index = index_.as<std::uint64_t>();
    }
    backend_->topk(op);
}

void ShortlistOps::enqueue_own(float* logits, std::int32_t* tokens, std::int64_t stride) {
    if (broken_) return;
    const auto* ids = block_.as<std::int32_t>();
    // copy_rows() preserves the bits of 4-byte values, so it can copy ids.
    backend_->copy_rows({reinterpret_cast<const float*>(ids), size_, nullptr, rows_, size_,
                         reinterpret_cast<float*>(tokens), stride});
    if (per_row_)
        return backend_->copy_rows({logits_.as<float>(), size_, nullptr, rows_, size_, logits, stride});
    kernels::GatherColumnsOp op;
    op.logits = logits_.as<float>();
    op.stride = stride_;
    op.rows = rows_;
    op.max_count = size_;
    op.tokens = ids;
    op.token_stride = size_;
    op.columns = columns_.as<std::int32_t>();
    op.index = index_.as<std::uint64_t>();
    op.out = logits;
    op.out_stride = stride;
    backend_->gather_columns(op);
}

}  // namespace draftscope
