#include "engine/draft/path_heads.h"

#include <algorithm>
#include <iterator>
#include <mutex>

#include "base/numel.h"

namespace draftscope {

Status PathHeads::prepare(kernels::Backend& backend) {
    backend_ = &backend;
    std::vector<float> biases;
    for (const std::vector<ResidualBlock>& head : weights_.heads) {
        first_bias_.push_back(biases.size());
        for (const ResidualBlock& block : head) {
            widest_ = std::max(widest_, block.weight.device_matrix().stride);
            biases.insert(biases.end(), block.bias.begin(), block.bias.end());
            biases.insert(biases.end(), block.shortcut_bias.begin(), block.shortcut_bias.end());
            if (block.shortcut.empty()) biases.resize(biases.size() + hidden_);
        }
    }
    const std::lock_guard lock(backend.submit_mutex());
    if (!biases_.reserve(backend, biases.size() * sizeof(float)))
        return backend.out_of_memory("the drafter's heads");
    backend.upload(biases_.as<void>(), biases.data(), biases.size() * sizeof(float));
    return {};
}

bool PathHeads::reserve(RoundMemory& memory, int rows) {
    inputs_ = memory.activations(*backend_, numel(rows, widest_));
    half_ = memory.activations(*backend_, numel(rows, kernels::padded_columns(hidden_)));
    gate_ = memory.backend.alloc<float>(numel(rows, hidden_));
    out_ = memory.backend.alloc<float>(numel(rows, hidden_));
    return memory.enough();
}

void PathHeads::enqueue(int level, int rows) {
    const std::int64_t shape[] = {level,
                                  rows,
                                  kernels::as_key(inputs_.halves),
                                  kernels::as_key(half_.halves),
                                  kernels::as_key(gate_),
                                  kernels::as_key(out_)};
    graphs_.run(*backend_, shape, [&] { enqueue_blocks(level, rows); });
}

void PathHeads::enqueue_blocks(int level, int rows) {
    const int d = hidden_, narrow = kernels::padded_columns(d);
    const float* bias = biases_.as<float>() + first_bias_[level];
    kernels::Activations x = inputs();
    const std::vector<ResidualBlock>& blocks = weights_.heads[level];
    for (std::size_t b = 0; b < blocks.size(); ++b, bias += 2 * d) {
        const ResidualBlock& block = blocks[b];
        kernels::MatmulOp product;
        product.weights = block.weight.device_matrix();
        product.x = x;
        product.rows = rows;
        product.y = gate_;
        product.y_stride = d;
        product.bias = bias;
        backend_->matmul(product);
        kernels::AddOp add;
        add.x = gate_;
        add.x_stride = add.y_stride = d;
        add.rows = rows;
        add.cols = d;
        add.activation = kernels::Activation::silu;
        add.y = out_;
        if (!block.shortcut.empty()) {
            product.weights = block.shortcut.device_matrix();
            product.y = out_;
            product.bias = bias + d;
            backend_->matmul(product);
        } else if (b == 0) {
            add.base = x;
            add.base_stride = product.weights.stride;
        }
        backend_->add(add);
        backend_->to_activations({out_, d}, rows, d, half_, narrow);
        x = half_;
    }
}

bool PathRows::reserve(RoundStep& step, int trees, int nodes) {
    const int d = hidden(), rows = heads_.uses_path() ? nodes : trees;
    RoundArena& arena = step.memory.backend;
    rows_ = arena.alloc<float>(numel(rows, 2 * d));
    for (float*& path : paths_)
        path = heads_.uses_path() ? arena.alloc<float>(numel(rows, heads_.levels() * d)) : nullptr;
    return heads_.reserve(step.memory, rows) && target_.embeddings().load(*step.backend);
}

Status PathRows::enqueue(const Level& level, FunctionRef<void(const float*)> inputs_known) {
    kernels::Backend& backend = *level.step.backend;
    const int d = hidden(), rows = level.rows, stride = heads_.stride(level.level);
    const DeviceSpans::Scope scope(level.step.spans, level.context.phases, Phase::backbone, level.level, rows,
                                   heads_.weights().bytes(level.level));
    gather_inputs(level);
    const bool reads_path = heads_.uses_path();
    backend.cast({.x = rows_ + d,
                  .x_stride = 2 * d,
                  .rows = rows,
                  .cols = d,
                  .y = heads_.inputs(),
                  .y_stride = stride,
                  .y_columns = reads_path ? d : stride});
    if (reads_path) {
        const int width = (level.level + 1) * d;
        backend.cast({.x = gather_path(level),
                      .x_stride = width,
                      .rows = rows,
                      .cols = width,
                      .y = backend.at(heads_.inputs(), d),
                      .y_stride = stride,
                      .y_columns = stride - d});
    }
    if (level.level > 0) inputs_known(rows_);
    heads_.enqueue(level.level, rows);
    return {};
}

/// Gathers each row's token embedding and hidden. A row shared by all nodes of its tree has the root's token.
void PathRows::gather_inputs(const Level& level) {
    kernels::Backend& backend = *level.step.backend;
    const int d = hidden(), stride = 2 * d;
    const bool by_node = level.level > 0 && heads_.uses_path();
    const auto copies = level.step.memory.host.list<kernels::CopyRowsOp>(level.trees.size());
    for (std::size_t i = 0; i < copies.size(); ++i) {
        const GrowingTree& tree = *level.trees[i];
        float* to = rows_ + numel(tree.first_row, stride);
        if (by_node)  // every node gets the same hidden
            copies[i] = {.from = tree.input + d,
                         .from_stride = 0,
                         .count = tree.nodes,
                         .cols = d,
                         .to = to + d,
                         .to_stride = stride};
        else
            copies[i] = {.from = tree.input, .count = 1, .cols = stride, .to = to};
    }
    backend.copy_rows(copies);
    if (by_node && level.needs_inputs)
        target_.embeddings().enqueue(backend, level.tokens, level.rows, rows_, stride);
}

/// Returns the embeddings of each row's path, root first: its parent's path and its own token.
const float* PathRows::gather_path(const Level& level) {
    kernels::Backend& backend = *level.step.backend;
    const int d = hidden(), before = level.level * d, width = before + d;
    float* to = paths_[level.level % 2];
    if (level.level == 0) {
        backend.copy_rows({.from = rows_,
                           .from_stride = 2 * d,
                           .count = level.rows,
                           .cols = d,
                           .to = to,
                           .to_stride = width});
        return to;
    }
    backend.copy_rows({.from = paths_[(level.level - 1) % 2],
                       .from_stride = before,
                       .rows = level.parents,
                       .count = level.rows,
                       .cols = before,
                       .to = to,
                       .to_stride = width});
    target_.embeddings().enqueue(backend, level.tokens, level.rows, to + before, width);
    return to;
}

}  // namespace draftscope
