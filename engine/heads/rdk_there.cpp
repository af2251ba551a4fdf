#include "engine/heads/rdk_there.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/numel.h"

namespace draftscope {
namespace {

std::size_t count(int rows, int cols) {
    return numel(rows, cols);
}

/// Size of the scratch memory of rows that are redistributed together: enough to use the whole device.
constexpr std::size_t most_mass_bytes = std::size_t{64} << 20;

}  // namespace

void RdkThere::set(LmHead& base, Givers sources) {
    direct_.use(base);
    base_ = base.there() != nullptr ? base.there() : &direct_;
    givers_ = std::move(sources);
    fresh_ = true;
}

int RdkThere::set_room(int level, int rows) const {
    const int own = base_->set_room(level, rows);
    return own == 0 ? 0 : vocab() + own;
}

/// The sizes of the base head's sets follow the values that it downloads itself.
int RdkThere::note_room(int level, int rows) const {
    return base_->note_room(level, rows) + (base_->set_room(level, 1) == 0 ? 0 : rows);
}

int RdkThere::rows_at_a_time() const {
    return static_cast<int>(std::max<std::size_t>(most_mass_bytes / (count(1, vocab()) * sizeof(double)), 1));
}

bool RdkThere::bring_givers(kernels::Device& device) {
    if (!fresh_) return true;
    fresh_ = !(first_there_.upload_exact(device, givers_.first) &&
               givers_there_.upload_exact(device, givers_.tokens) &&
               weights_there_.upload_exact(device, givers_.weights));
    return !fresh_;
}

bool RdkThere::reserve_rows(kernels::Device& device, int rows, int columns, int k) {
    const std::size_t cells = count(rows, columns);
    return bring_givers(device) && logits_.resize_at_least(device, cells) &&
           tokens_.resize_at_least(device, cells) && sizes_there_.resize_at_least(device, count(rows, 1)) &&
           mass_.resize_at_least(device, count(std::min(rows, rows_at_a_time()), vocab())) &&
           spread_.resize_at_least(device, count(rows, vocab())) &&
           scratch_.resize_at_least(device, kernels::topk_scratch_bytes(rows, vocab(), k)) &&
           bits_.resize_at_least(device, count(2, (vocab() + 31) / 32));
}

bool RdkThere::reserve(kernels::Device& device, int levels, int rows, int k) {
    columns_ = base_->drawn_columns(levels);
    return base_->reserve(device, levels, rows, 1) && reserve_rows(device, rows, columns_.stride, k);
}

void RdkThere::spread(kernels::Device& device, kernels::RedistributeOp op, float* out,
                      std::int64_t out_stride) {
    op.vocab = vocab();
    op.first = first_there_.as<std::int32_t>();
    op.sources = givers_there_.as<std::int32_t>();
    op.weights = weights_there_.as<float>();
    op.scratch = mass_.as<double>();
    op.out_stride = out_stride;
    const int rows = op.rows;
    const std::int32_t *const tokens = op.tokens, *const sizes = op.sizes;
    for (int first = 0; first < rows; first += op.rows) {
        op.rows = std::min(rows - first, rows_at_a_time());
        op.logits = logits_.as<float>() + first * op.stride;
        if (tokens != nullptr) op.tokens = tokens + first * op.token_stride;
        if (sizes != nullptr) op.sizes = sizes + first;
        op.out = out + first * out_stride;
        device.redistribute(op);
    }
}

void RdkThere::select(kernels::Device& device, int rows, int k, std::int32_t* ids, float* logits,
                      float* sums) {
    kernels::TopKOp op;
    op.logits = spread_.as<float>();
    op.stride = op.support = vocab();
    op.rows = rows;
    op.k = k;
    op.ids = ids;
    op.values = logits;
    op.logsumexp = sums;
    op.scratch = scratch_.as<void>();
    device.topk(op);
}

std::span<const SequenceThere> RdkThere::own_sequences(const LevelThere& call) {
    own_.assign(call.sequences.begin(), call.sequences.end());
    std::int32_t* size = call.notes + base_->note_room(call.level, call.rows);
    for (SequenceThere& own : own_) {
        if (own.set == nullptr) continue;
        own.set += vocab();
        own.set_size = size++;
    }
    return own_;
}

void RdkThere::reach(kernels::Device& device, const SequenceThere& own, int room, const SequenceThere& to) {
    kernels::ReachableTokensOp op;
    op.tokens = own.set;
    op.size = own.set_size;
    op.max_count = room;
    op.vocab = vocab();
    op.first = first_there_.as<std::int32_t>();
    op.sources = givers_there_.as<std::int32_t>();
    op.bits = bits_.as<std::uint32_t>();
    op.out = to.set;
    op.out_size = to.set_size;
    device.list_reachable_tokens(op);
}

void RdkThere::ask(LevelThere& call) {
    LevelThere inner = call;
    inner.sequences = own_sequences(call);
    inner.k = 1;
    inner.drawn_from = logits_.as<float>();
    inner.drawn_stride = columns_.stride;
    if (columns_.own) {
        inner.drawn_tokens = tokens_.as<std::int32_t>();
        inner.drawn_sizes = sizes_there_.as<std::int32_t>();
        sizes_.clear();
        for (const SequenceThere& sequence : call.sequences)
            sizes_.insert(sizes_.end(), sequence.rows, base_->drawn_size(call.level, sequence.state));
        call.device.upload(sizes_there_.data(), sizes_.data(), sizes_.size() * sizeof(std::int32_t));
    }
    base_->ask(inner);
    for (std::size_t i = 0; call.sets_asked && i < own_.size(); ++i)
        reach(call.device, own_[i], base_->set_room(call.level, own_[i].rows), call.sequences[i]);
    const DeviceSpans::Scope scope(
        call.spans, call.phases, Phase::topk, call.level, call.rows,
        static_cast<std::uint64_t>(call.rows) * givers_.tokens.size() * (sizeof(TokenId) + sizeof(float)));
    kernels::RedistributeOp op;
    op.stride = columns_.stride;
    op.rows = call.rows;
    op.support = columns_.support;
    op.temperature = call.temperature > 0 ? static_cast<float>(call.temperature) : 1.0f;
    op.tokens = columns_.own ? inner.drawn_tokens : inner.tokens;
    op.token_stride = columns_.own ? columns_.stride : 0;
    op.sizes = columns_.own ? inner.drawn_sizes : nullptr;
    call.tokens = nullptr;
    if (call.drawn_from != nullptr) return spread(call.device, op, call.drawn_from, call.drawn_stride);
    spread(call.device, op, spread_.as<float>(), vocab());
    select(call.device, call.rows, call.k, call.ids, call.logits, call.sums);
}

void RdkThere::collect(const LevelBack& back) {
    const std::size_t notes = base_->note_room(back.level, back.rows);
    LevelBack own = back;
    own.notes = back.notes.first(notes);
    std::vector<std::span<const TokenId>> sets;
    std::vector<std::int32_t> sizes;
    for (std::size_t i = 0; i < back.sets.size(); ++i) {
        const int room = base_->set_room(back.level, back.sequences[i].rows);
        sizes.push_back(std::clamp(back.notes[notes + i], 0, room));
        sets.push_back(back.sets[i].empty() ? back.sets[i] : back.sets[i].subspan(vocab()));
    }
    own.sets = sets;
    own.set_sizes = sizes;
    base_->collect(own);
}

}  // namespace draftscope
