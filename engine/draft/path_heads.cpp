#include "engine/draft/path_heads.h"

#include <algorithm>
#include <iterator>
#include <mutex>

#include "base/numel.h"

namespace draftscope {

Status PathHeads::prepare(kernels::Backend& backend, const DecodingHeadWeights& weights, int hidden) {
    backend_ = &backend;
    weights_ = &weights;
    hidden_ = hidden;
    std::vector<float> biases;
    for (const std::vector<ResidualBlock>& head : weights.heads) {
        first_bias_.push_back(biases.size());
        for (const ResidualBlock& block : head) {
            widest_ = std::max(widest_, block.weight.device_matrix().stride);
            biases.insert(biases.end(), block.bias.begin(), block.bias.end());
            biases.insert(biases.end(), block.shortcut_bias.begin(), block.shortcut_bias.end());
            if (block.shortcut.empty()) biases.resize(biases.size() + hidden);
        }
    }
    const std::lock_guard lock(backend.submit_mutex());
    if (!biases_.reserve(backend, biases.size() * sizeof(float)))
        return backend.out_of_memory("the drafter's heads");
    backend.upload(biases_.as<void>(), biases.data(), biases.size() * sizeof(float));
    return {};
}

bool PathHeads::make_room(int rows) {
    const void* before[] = {inputs_.as<void>(), half_.as<void>(), gate_.as<void>(), out_.as<void>()};
    const std::size_t cells = numel(rows, hidden_);
    const bool enough = inputs_.reserve(*backend_, numel(rows, widest_)) &&
                        half_.reserve(*backend_, numel(rows, kernels::padded_columns(hidden_))) &&
                        gate_.reserve(*backend_, cells * sizeof(float)) &&
                        out_.reserve(*backend_, cells * sizeof(float));
    const void* after[] = {inputs_.as<void>(), half_.as<void>(), gate_.as<void>(), out_.as<void>()};
    if (!std::equal(std::begin(before), std::end(before), std::begin(after))) keys_.clear();
    return enough;
}

void PathHeads::enqueue(int level, int rows) {
    std::uint64_t& key = keys_[{level, rows}];
    if (key == 0) key = backend_->new_graph_key();
    backend_->graph(key, [&] { enqueue_blocks(level, rows); });
}

void PathHeads::enqueue_blocks(int level, int rows) {
    const int d = hidden_, narrow = kernels::padded_columns(d);
    const float* bias = biases_.as<float>() + first_bias_[level];
    kernels::Activations x = inputs();
    const std::vector<ResidualBlock>& blocks = weights_->heads[level];
    for (std::size_t b = 0; b < blocks.size(); ++b, bias += 2 * d) {
        const ResidualBlock& block = blocks[b];
        kernels::MatmulOp product;
        product.weights = block.weight.device_matrix();
        product.x = x;
        product.rows = rows;
        product.y = gate_.as<float>();
        product.y_stride = d;
        product.bias = bias;
        backend_->matmul(product);
        kernels::AddOp add;
        add.x = gate_.as<float>();
        add.x_stride = add.y_stride = d;
        add.rows = rows;
        add.cols = d;
        add.activation = kernels::Activation::silu;
        add.y = out_.as<float>();
        if (!block.shortcut.empty()) {
            product.weights = block.shortcut.device_matrix();
            product.y = out_.as<float>();
            product.bias = bias + d;
            backend_->matmul(product);
        } else if (b == 0) {
            add.base = x;
            add.base_stride = product.weights.stride;
        }
        backend_->add(add);
        backend_->cast({.x = out_.as<float>(),
                        .x_stride = d,
                        .rows = rows,
                        .cols = d,
                        .y = half_,
                        .y_stride = narrow,
                        .y_columns = narrow});
        x = half_;
    }
}

bool PathRows::make_room(int trees, int nodes) {
    PathHeads& heads = heads_.pass();
    const bool sees = heads_.uses_path();
    const int d = hidden(), rows = sees ? nodes : trees;
    bool enough = target_.embeddings().load(device()) && heads.make_room(rows) &&
                  rows_.reserve(device(), numel(rows, 2 * d) * sizeof(float));
    for (kernels::DeviceBuffer& path : paths_)
        enough = enough && (!sees || path.reserve(device(), numel(rows, heads.levels() * d) * sizeof(float)));
    return enough;
}

Status PathRows::enqueue(const Level& level, FunctionRef<void(const float*)> inputs_known) {
    PathHeads& heads = heads_.pass();
    const int d = hidden(), rows = level.rows, stride = heads.stride(level.level);
    const DeviceSpans::Scope enqueued(level.spans, level.context.phases, Phase::backbone, level.level, rows,
                                      heads_.weight_bytes(level.level));
    gather_inputs(level);
    const bool sees = heads_.uses_path();
    device().cast({.x = rows_.as<float>() + d,
                   .x_stride = 2 * d,
                   .rows = rows,
                   .cols = d,
                   .y = heads.inputs(),
                   .y_stride = stride,
                   .y_columns = sees ? d : stride});
    if (sees) {
        const int width = (level.level + 1) * d;
        device().cast({.x = gather_path(level),
                       .x_stride = width,
                       .rows = rows,
                       .cols = width,
                       .y = device().at(heads.inputs(), d),
                       .y_stride = stride,
                       .y_columns = stride - d});
    }
    if (level.level > 0) inputs_known(rows_.as<float>());
    heads.enqueue(level.level, rows);
    return {};
}

/// Gathers each row's token embedding and hidden. A row shared by all nodes of its tree has the root's token.
void PathRows::gather_inputs(const Level& level) {
    const int d = hidden(), stride = 2 * d;
    const bool by_node = level.level > 0 && heads_.uses_path();
    copies_.clear();
    for (const GrowingTree* tree : level.trees) {
        const float* from = tree->input;
        float* to = rows_.as<float>() + numel(tree->first_row, stride);
        // Stride 0: every node gets the same hidden.
        if (by_node)
            copies_.push_back({.from = from + d,
                               .from_stride = 0,
                               .count = tree->nodes,
                               .cols = d,
                               .to = to + d,
                               .to_stride = stride});
        else
            copies_.push_back({.from = from,
                               .from_stride = stride,
                               .count = 1,
                               .cols = stride,
                               .to = to,
                               .to_stride = stride});
    }
    device().copy_rows(copies_);
    if (by_node && level.inputs_wanted)
        target_.embeddings().enqueue(device(), level.tokens, level.rows, rows_.as<float>(), stride);
}

/// Returns the embeddings of each row's path, root first: its parent's path and its own token.
const float* PathRows::gather_path(const Level& level) {
    const int d = hidden(), before = level.level * d, width = before + d;
    float* to = paths_[level.level % 2].as<float>();
    if (level.level == 0) {
        device().copy_rows({.from = rows_.as<float>(),
                            .from_stride = 2 * d,
                            .count = level.rows,
                            .cols = d,
                            .to = to,
                            .to_stride = width});
        return to;
    }
    const float* from = paths_[(level.level - 1) % 2].as<float>();
    device().copy_rows({.from = from,
                        .from_stride = before,
                        .rows = level.parents,
                        .count = level.rows,
                        .cols = before,
                        .to = to,
                        .to_stride = width});
    target_.embeddings().enqueue(device(), level.tokens, level.rows, to + before, width);
    return to;
}

}  // namespace draftscope
