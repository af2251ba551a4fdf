#include "engine/transformer/device_logits.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <utility>

#include "base/numel.h"

namespace draftscope {
namespace {

std::size_t cells(int rows, int cols) {
    return numel(rows, cols);
}

/// Of one piece of rejection sampling: a multiple of what the processors need to be busy.
constexpr std::size_t most_weight_bytes = std::size_t{256} << 20;

template <typename T>
void take(std::vector<T>& to, const std::vector<std::int32_t>& from, std::size_t first, std::size_t count) {
    static_assert(sizeof(T) == sizeof(std::int32_t));
    to.resize(count);
    if (count > 0) std::memcpy(to.data(), from.data() + first, count * sizeof(T));
}

}  // namespace

bool can_answer(const RowQuestion& question) {
    return question.vocab <= kernels::max_sample_columns &&
           kernels::can_topk(question.vocab, std::min(question.best, question.vocab));
}

bool DeviceLogits::reserve(kernels::Device& device, int rows, int columns) {
    device_ = &device;
    rows_ = rows;
    columns_ = columns;
    here_.assign(rows, 0);
    return logits_.reserve(device, cells(rows, columns) * sizeof(float));
}

bool DeviceLogits::upload_question(const RowQuestion& question) {
    asked_.assign(question.rows.begin(), question.rows.end());
    asked_.insert(asked_.end(), question.tokens.begin(), question.tokens.end());
    mass_rows_.clear();
    std::vector<std::int32_t> ids, first, size;
    const std::vector<TokenId>* latest = nullptr;
    for (std::size_t r = 0; r < question.sets.size(); ++r) {
        const std::vector<TokenId>* set = question.sets[r];
        if (set == nullptr) continue;
        // Siblings share a set, and usually follow each other.
        const bool again = set == latest;
        first.push_back(again ? first.back() : static_cast<std::int32_t>(ids.size()));
        size.push_back(static_cast<std::int32_t>(set->size()));
        mass_rows_.push_back(static_cast<int>(r));
        if (!again) ids.insert(ids.end(), set->begin(), set->end());
        latest = set;
    }
    asked_.insert(asked_.end(), mass_rows_.begin(), mass_rows_.end());
    asked_.insert(asked_.end(), first.begin(), first.end());
    asked_.insert(asked_.end(), size.begin(), size.end());
    // A head without state has the same sets in every round. Nothing lies there where memory was out.
    if (ids != ids_ || ids_there_.empty()) {
        ids_ = std::move(ids);
        if (!ids_there_.upload(*device_, ids_)) return false;
    }
    return asked_there_.upload(*device_, asked_) && uniforms_there_.upload(*device_, question.uniforms);
}

/// Places of the answers, and memory for them.
bool DeviceLogits::lay_out(const RowQuestion& question, std::size_t tokens) {
    assert(can_answer(question));
    best_ = std::clamp(question.best, 1, question.vocab);
    tokens_ = static_cast<int>(tokens);
    const std::size_t rows = rows_;
    at_.best_ids = 0;
    at_.best_logits = cells(rows_, best_);
    at_.choices = 2 * at_.best_logits;
    at_.choice_logits = at_.choices + rows;
    at_.log_norm = at_.choice_logits + rows;
    at_.lowest = at_.log_norm + rows;
    at_.last = at_.lowest + rows;
    at_.entropies = at_.last + rows;
    at_.logits = at_.entropies + rows;
    at_.ranks = at_.logits + tokens;
    at_.masses = at_.ranks + tokens;
    at_.accepted = at_.masses + rows;
    residual_nodes_ = question.residuals             ? rows_
                      : question.residual == nullptr ? 0
                                                     : static_cast<int>(question.residual->nodes.size());
    at_.end = at_.accepted + cells(3, residual_nodes_);
    const std::size_t scratch = kernels::topk_scratch_bytes(rows_, question.vocab, best_);
    return answers_there_.resize_at_least(*device_, at_.end) && scratch_.resize_at_least(*device_, scratch);
}

/// Best tokens and choices; `uniforms` null = the best tokens are the choices.
void DeviceLogits::ask_choices(const RowQuestion& question, const double* uniforms) {
    auto* ints = answers_there_.as<std::int32_t>();
    auto* floats = answers_there_.as<float>();
    drawn_ = uniforms != nullptr;
    cut_ = drawn_ && (question.top_p < 1 || (question.top_k > 0 && question.top_k < question.vocab));
    entropies_ = question.entropies;
    kernels::TopKOp select;
    select.logits = data();
    select.stride = columns_;
    select.rows = rows_;
    select.support = question.vocab;
    select.k = best_;
    select.ids = ints + at_.best_ids;
    select.values = floats + at_.best_logits;
    // The sum at temperature 1 is the norm of greedy rows; drawn ones have their own.
    select.logsumexp = floats + (drawn_ ? at_.choice_logits : at_.log_norm);
    select.scratch = scratch_.as<void>();
    device_->topk(select);
    if (drawn_) ask_draws(question, uniforms);
    if (!entropies_) return;
    kernels::EntropyOp entropy;
    entropy.logits = data();
    entropy.stride = columns_;
    entropy.rows = rows_;
    entropy.vocab = question.vocab;
    entropy.inv_temperature = drawn_ ? question.scale : 1.0f;
    entropy.log_norm = floats + at_.log_norm;
    entropy.min_logit = cut_ ? floats + at_.lowest : nullptr;
    entropy.out = floats + at_.entropies;
    device_->entropy(entropy);
}

void DeviceLogits::ask_draws(const RowQuestion& question, const double* uniforms) {
    auto* ints = answers_there_.as<std::int32_t>();
    auto* floats = answers_there_.as<float>();
    kernels::SampleOp draw;
    if (cut_) {
        device_->mask_top_k_top_p({data(), columns_, rows_, question.vocab, question.scale, question.top_k,
                                   question.top_p, floats + at_.lowest, ints + at_.last});
        draw.mask = {floats + at_.lowest, ints + at_.last};
    }
    draw.logits = data();
    draw.stride = columns_;
    draw.rows = rows_;
    draw.vocab = question.vocab;
    draw.inv_temperature = question.scale;
    draw.uniforms = uniforms;
    draw.tokens = ints + at_.choices;
    draw.values = floats + at_.choice_logits;
    draw.log_norm = floats + at_.log_norm;
    device_->sample(draw);
}

/// After the draws, whose norms it needs. Uploads the drafts and what they were drawn from.
bool DeviceLogits::ask_residual(const RowQuestion& question) {
    const ResidualQuestion& asked = *question.residual;
    const std::size_t drafts = asked.drafts.size();
    // Nodes, the drafts' numbers, the drafts: each begins where values of its size may.
    const std::size_t uniforms_at = asked.nodes.size() * sizeof(kernels::RejectionNode);
    const std::size_t drafts_at = uniforms_at + drafts * sizeof(double);
    if (!residual_there_.resize_at_least(*device_, drafts_at + drafts * sizeof(std::int32_t)) ||
        !ids_of_q_.upload(*device_, asked.ids) ||
        !probs_of_q_.resize_at_least(*device_, 2 * asked.probs.size()))
        return false;
    auto* there = residual_there_.as<std::byte>();
    device_->upload(there, asked.nodes.data(), uniforms_at);
    device_->upload(there + uniforms_at, asked.uniforms.data(), drafts * sizeof(double));
    device_->upload(there + drafts_at, asked.drafts.data(), drafts * sizeof(std::int32_t));
    device_->upload(probs_of_q_.data(), asked.probs.data(), asked.probs.size() * sizeof(float));
    kernels::RejectionSampleOp op;
    op.nodes = reinterpret_cast<const kernels::RejectionNode*>(there);
    op.uniforms = reinterpret_cast<const double*>(there + uniforms_at);
    op.drafts = reinterpret_cast<const std::int32_t*>(there + drafts_at);
    op.ids = ids_of_q_.as<std::int32_t>();
    op.probs = probs_of_q_.as<float>();
    op.saved = op.probs + asked.probs.size();
    return ask_in_pieces(question, op);
}

bool DeviceLogits::ask_residual_of(const RowQuestion& question, TreeStep& step) {
    kernels::RejectionSampleOp op;
    step.ask_drafts(op);
    return ask_in_pieces(question, op);
}

/// `op` says which nodes there are and what their drafts were drawn from. As many nodes at a time as there is
/// room for the weights of; they do not look at each other.
bool DeviceLogits::ask_in_pieces(const RowQuestion& question, kernels::RejectionSampleOp op) {
    const std::size_t node_bytes = cells(1, question.vocab) * sizeof(float);
    const int most = std::clamp(static_cast<int>(most_weight_bytes / node_bytes), 1, residual_nodes_);
    if (!weights_.resize_at_least(*device_, cells(most, question.vocab))) return false;
    auto* floats = answers_there_.as<float>();
    auto* ints = answers_there_.as<std::int32_t>();
    const kernels::RejectionNode* nodes = op.nodes;
    op.logits = data();
    op.stride = columns_;
    op.vocab = question.vocab;
    op.inv_temperature = question.scale;
    op.log_norm = floats + at_.log_norm;
    op.min_logit = cut_ ? floats + at_.lowest : nullptr;
    op.weights = weights_.as<float>();
    for (int first = 0; first < residual_nodes_; first += most) {
        op.count = std::min(most, residual_nodes_ - first);
        op.nodes = nodes + first;
        op.accepted = ints + at_.accepted + first;
        op.bonus = op.accepted + residual_nodes_;
        op.bonus_logits = floats + at_.accepted + first + 2 * residual_nodes_;
        device_->rejection_sample(op);
    }
    return true;
}

void DeviceLogits::ask_download() {
    answers_.resize(at_.end);
    answers_there_.download(*device_, answers_);
}

bool DeviceLogits::ask(const RowQuestion& question) {
    assert(question.rows.size() == question.tokens.size());
    assert(question.residual == nullptr || !question.uniforms.empty());
    assert(question.uniforms.empty() || static_cast<int>(question.uniforms.size()) == rows_);
    if (!lay_out(question, question.tokens.size()) || !upload_question(question)) return false;
    ask_choices(question, question.uniforms.empty() ? nullptr : uniforms_there_.as<double>());
    const auto* asked = asked_there_.as<std::int32_t>();
    if (tokens_ > 0) ask_tokens(question, asked, asked + tokens_);
    if (!mass_rows_.empty()) {
        const auto* rows = asked + 2 * tokens_;
        const std::size_t count = mass_rows_.size();
        ask_masses(question, rows, rows + count, rows + 2 * count, ids_there_.as<std::int32_t>());
    }
    if (residual_nodes_ > 0 && !ask_residual(question)) return false;
    ask_download();
    return true;
}

bool DeviceLogits::ask_trees(const RowQuestion& question, TreeStep& step, bool accept) {
    assert(step.rows() == rows_);
    if (!lay_out(question, question.drafts ? static_cast<std::size_t>(rows_) : 0)) return false;
    const auto* ints = answers_there_.as<std::int32_t>();
    const kernels::TreeRows& there = step.there();
    ask_choices(question, there.uniforms);
    if (question.drafts) ask_tokens(question, there.parents, there.tokens);
    if (question.residuals && !ask_residual_of(question, step)) return false;
    if (accept && question.residuals) {
        step.ask_kept(ints + at_.accepted);
    } else if (accept && question.entropies) {
        assert(question.drafts && drawn_);
        const auto* floats = answers_there_.as<float>();
        kernels::AcceptTypicalOp op;
        op.inv_temperature = question.scale;
        op.epsilon = question.epsilon;
        op.delta = question.delta;
        op.draft_logits = floats + at_.logits;
        op.log_norm = floats + at_.log_norm;
        op.min_logit = cut_ ? floats + at_.lowest : nullptr;
        op.entropies = floats + at_.entropies;
        step.ask_typical(op);
    } else if (accept) {
        step.ask_acceptance(ints + (drawn_ ? at_.choices : at_.best_ids), drawn_ ? 1 : best_);
    }
    mass_rows_.clear();
    if (step.has_sets()) {
        for (int r = 0; r < rows_; ++r) mass_rows_.push_back(r);
        ask_masses(question, nullptr, there.set_first, there.set_size, step.set_ids());
    }
    ask_download();
    return true;
}

/// Of tokens_ tokens the logits in their rows, and where they stand there.
void DeviceLogits::ask_tokens(const RowQuestion& question, const std::int32_t* rows,
                              const std::int32_t* tokens) {
    ranks_ = question.ranks;
    device_->rank({data(), columns_, question.vocab, tokens_, rows, tokens,
                   answers_there_.as<float>() + at_.logits,
                   ranks_ ? answers_there_.as<std::int32_t>() + at_.ranks : nullptr});
}

/// Of mass_rows_, which `rows` has there (null: all rows). Row i's set is size[i] of `ids` from first[i] on.
void DeviceLogits::ask_masses(const RowQuestion& question, const std::int32_t* rows,
                              const std::int32_t* first, const std::int32_t* size, const TokenId* ids) {
    auto* floats = answers_there_.as<float>();
    kernels::SetProbabilityOp mass;
    mass.logits = data();
    mass.stride = columns_;
    mass.count = static_cast<int>(mass_rows_.size());
    mass.inv_temperature = drawn_ ? question.scale : 1.0f;
    mass.log_norm = floats + at_.log_norm;
    mass.rows = rows;
    mass.first = first;
    mass.size = size;
    mass.ids = ids;
    mass.out = floats + at_.masses;
    mass.min_logit = cut_ ? floats + at_.lowest : nullptr;
    device_->sum_set_probability(mass);
}

void DeviceLogits::collect(RowAnswers& out) {
    const std::size_t rows = rows_, tokens = tokens_;
    const std::size_t width = best_;
    out.best = best_;
    take(out.best_ids, answers_, at_.best_ids, rows * width);
    take(out.best_logits, answers_, at_.best_logits, rows * width);
    take(out.log_norm, answers_, at_.log_norm, rows);
    if (cut_)
        take(out.lowest, answers_, at_.lowest, rows);
    else
        out.lowest.assign(rows, -std::numeric_limits<float>::infinity());
    take(out.entropies, answers_, at_.entropies, entropies_ ? rows : 0);
    take(out.logits, answers_, at_.logits, tokens);
    take(out.ranks, answers_, at_.ranks, tokens > 0 && ranks_ ? tokens : 0);
    const std::size_t nodes = residual_nodes_;
    take(out.accepted, answers_, at_.accepted, nodes);
    take(out.bonus, answers_, at_.accepted + nodes, nodes);
    take(out.bonus_logits, answers_, at_.accepted + 2 * nodes, nodes);
    if (drawn_) {
        take(out.choices, answers_, at_.choices, rows);
        take(out.choice_logits, answers_, at_.choice_logits, rows);
    } else {
        out.choices.resize(rows);
        out.choice_logits.resize(rows);
        for (std::size_t r = 0; r < rows; ++r) {
            out.choices[r] = out.best_ids[r * width];
            out.choice_logits[r] = out.best_logits[r * width];
        }
    }
    out.masses.assign(rows, 0.0f);
    for (std::size_t i = 0; i < mass_rows_.size(); ++i)
        std::memcpy(&out.masses[mass_rows_[i]], &answers_[at_.masses + i], sizeof(float));
}

Rows<const float> DeviceLogits::rows(int first, int count) {
    if (host_.size() < cells(rows_, columns_)) host_.resize(cells(rows_, columns_));
    bool waiting = false;
    const std::lock_guard lock(device_->submit_mutex());
    for (int r = first; r < first + count; ++r) {
        if (here_[r] != 0) continue;
        const std::size_t at = cells(r, columns_);
        device_->download(host_.data() + at, data() + at, columns_ * sizeof(float));
        here_[r] = 1;
        waiting = true;
    }
    if (waiting) (void)device_->synchronize();  // an error stays, and fails the next forward
    return {host_.data() + cells(first, columns_), count, columns_};
}

}  // namespace draftscope
