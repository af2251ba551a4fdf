#include "engine/round/results.h"

namespace draftscope {

void RoundResults::begin(const RoundLayout& layout) {
    layout_ = &layout;
    requests_.clear();
    size_ = 0;
    request(layout.block(), layout.block_size());
}

std::size_t RoundResults::request(const void* from, std::size_t count) {
    requests_.push_back({from, size_, count});
    size_ += count;
    return requests_.back().index;
}

void RoundResults::enqueue(kernels::Backend& backend) {
    if (values_.size() < size_) values_.resize(size_);
    for (const Request& one : requests_)
        backend.download(values_.data() + one.index, one.from, one.count * sizeof(values_[0]));
    requests_.clear();
}

Status RoundResults::read_tree(int tree_index, DraftTree& out) const {
    const RoundLayout::Tree& rows = layout_->trees()[tree_index];
    const auto array = [&](int index) { return layout_->array_at(index) + rows.first_row; };
    const auto tokens = values<TokenId>(array(0), rows.nodes);
    const auto parents = values(array(1), rows.nodes);
    const auto logprobs = values<float>(array(2), rows.nodes);
    out.reset(tokens[0], rows.nodes);
    for (int n = 1; n < rows.nodes; ++n) {
        // Missing candidates are the last nodes, each its own parent.
        if (parents[n] == rows.first_row + n) break;
        if (parents[n] < rows.first_row || parents[n] > rows.first_row + n)
            return failed("the device's draft tree: node {} has no parent before it", n);
        out.add(tokens[n], parents[n] - rows.first_row, logprobs[n]);
    }
    return out.finish();
}

std::span<const int> RoundResults::path(int tree_index) const {
    const std::size_t count = values(layout_->path_at(tree_index) + layout_->plan().width, 1)[0];
    return values<int>(layout_->path_at(tree_index), count);
}

}  // namespace draftscope
