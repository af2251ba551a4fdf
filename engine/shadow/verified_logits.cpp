#include "engine/shadow/verified_logits.h"

#include <utility>

namespace draftscope {

void VerifiedLogits::add(int row, Rows<const float> logits, const TargetSample& choice) {
    if (rows_.empty()) first_ = row;
    Row kept;
    if (!spare_.empty()) {
        kept.logits = std::move(spare_.back());
        spare_.pop_back();
    }
    kept.logits.assign(logits.row_data(0), logits.row_data(0) + logits.cols);
    kept.choice = choice;
    rows_.push_back(std::move(kept));
}

void VerifiedLogits::drop_before(int row) {
    for (; !rows_.empty() && first_ < row; ++first_) {
        spare_.push_back(std::move(rows_.front().logits));
        rows_.pop_front();
    }
}

double VerifiedLogits::covered_prob(const kernels::Backend& backend, int row, DraftVocab& active,
                                    const Sampling& sampling, int level) const {
    const Row& kept = rows_[row - first_];
    return active.covered_prob(backend, kept.logits.data(), kept.choice, sampling, level);
}

}  // namespace draftscope
