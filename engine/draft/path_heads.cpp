#include "engine/draft/path_heads.h"

#include <algorithm>
#include <iterator>
#include <mutex>

#include "base/numel.h"

namespace draftscope {

Status PathHeads::prepare(kernels::Backend& backend, const DecodingHeadWeights& weights, int hidden) {
    backend_ = &backend;
    on_host_ = backend.is_host();
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
    const bool enough =
        inputs_.reserve(*backend_, numel(rows, widest_) * backend_->activation_bytes()) &&
        half_.reserve(*backend_,
                      numel(rows, kernels::padded_columns(hidden_)) * backend_->activation_bytes()) &&
        gate_.reserve(*backend_, cells * sizeof(float)) && out_.reserve(*backend_, cells * sizeof(float));
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
    const kernels::half_t* x = inputs();
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
        backend_->cast({out_.as<float>(), d, rows, d, half_.as<kernels::half_t>(), narrow, narrow});
        x = half_.as<kernels::half_t>();
    }
}

bool PathRows::make_room(int trees, int nodes) {
    PathHeads& heads = heads_.pass();
    const bool sees = heads_.uses_path();
    const int d = hidden(), rows = sees ? nodes : trees;
    bool enough = (device().is_host() || target_.device_embeddings() != nullptr) && heads.make_room(rows) &&
                  rows_.reserve(device(), numel(rows, 2 * d) * sizeof(float));
    for (kernels::DeviceBuffer& path : paths_)
        enough = enough && (!sees || path.reserve(device(), numel(rows, heads.levels() * d) * sizeof(float)));
    return enough;
}

void PathRows::enqueue_embeddings(const std::int32_t* tokens, int rows, float* to, int stride) {
    const int d = hidden();
    if (device().is_host())
        return target_.embed({tokens, static_cast<std::size_t>(rows)}, Rows<float>(to, rows, d, stride));
    device().copy_rows({target_.device_embeddings(), d, tokens, rows, d, to, stride});
}

Status PathRows::enqueue(const Level& level, FunctionRef<void(const float*)> inputs_known) {
    PathHeads& heads = heads_.pass();
    const int d = hidden(), rows = level.rows, stride = heads.stride(level.level);
    const DeviceSpans::Scope enqueued(level.spans, level.context.phases, Phase::backbone, level.level, rows,
                                      heads_.weight_bytes(level.level));
    gather_inputs(level);
    const bool sees = heads_.uses_path();
    device().cast({rows_.as<float>() + d, 2 * d, rows, d, heads.inputs(), stride, sees ? d : stride});
    if (sees) {
        const int width = (level.level + 1) * d;
        kernels::half_t* to = device().advance(heads.inputs(), d);
        device().cast({gather_path(level), width, rows, width, to, stride, stride - d});
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
            copies_.push_back({from + d, 0, nullptr, tree->nodes, d, to + d, stride});
        else
            copies_.push_back({from, stride, nullptr, 1, stride, to, stride});
    }
    device().copy_rows(copies_);
    if (by_node && level.inputs_wanted)
        enqueue_embeddings(level.tokens, level.rows, rows_.as<float>(), stride);
}

/// Returns the embeddings of each row's path, root first: its parent's path and its own token.
const float* PathRows::gather_path(const Level& level) {
    const int d = hidden(), before = level.level * d, width = before + d;
    float* to = paths_[level.level % 2].as<float>();
    if (level.level == 0) {
        device().copy_rows({rows_.as<float>(), 2 * d, nullptr, level.rows, d, to, width});
        return to;
    }
    const float* from = paths_[(level.level - 1) % 2].as<float>();
    device().copy_rows({from, before, level.parents, level.rows, before, to, width});
    enqueue_embeddings(level.tokens, level.rows, to + before, width);
    return to;
}

}  // namespace draftscope
