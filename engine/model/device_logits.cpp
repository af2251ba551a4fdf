#include "engine/model/device_logits.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <utility>

namespace draftscope {
namespace {

std::size_t cells(int rows, int cols) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

template <typename T>
void take(std::vector<T>& to, const std::vector<std::int32_t>& from, std::size_t first, std::size_t count) {
    static_assert(sizeof(T) == sizeof(std::int32_t));
    to.resize(count);
    if (count > 0) std::memcpy(to.data(), from.data() + first, count * sizeof(T));
}

}  // namespace

bool can_answer(const RowQuestion& question) {
    return question.vocab <= kernels::most_draw_columns &&
           kernels::can_select(question.vocab, std::min(question.best, question.vocab));
}

bool DeviceLogits::reserve(kernels::Device& device, int rows, int columns) {
    device_ = &device;
    rows_ = rows;
    columns_ = columns;
    here_.assign(static_cast<std::size_t>(rows), 0);
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
    const auto room = [&](kernels::DeviceBuffer& buffer, std::size_t bytes) {
        return buffer.reserve(*device_, std::bit_ceil(std::max<std::size_t>(bytes, 4)));
    };
    const bool kept = ids == ids_ && !ids.empty();  // a head without state has the same sets in every round
    if (!kept) {
        ids_ = std::move(ids);
        if (!room(ids_there_, ids_.size() * sizeof(std::int32_t))) return false;
        device_->upload(ids_there_.as<void>(), ids_.data(), ids_.size() * sizeof(std::int32_t));
    }
    if (!room(asked_there_, asked_.size() * sizeof(std::int32_t)) ||
        !room(uniforms_there_, question.uniforms.size_bytes()))
        return false;
    device_->upload(asked_there_.as<void>(), asked_.data(), asked_.size() * sizeof(std::int32_t));
    device_->upload(uniforms_there_.as<void>(), question.uniforms.data(), question.uniforms.size_bytes());
    return true;
}

/// Places of the answers, and memory for them.
bool DeviceLogits::lay_out(const RowQuestion& question, std::size_t tokens) {
    assert(can_answer(question));
    best_ = std::clamp(question.best, 1, question.vocab);
    tokens_ = static_cast<int>(tokens);
    const auto rows = static_cast<std::size_t>(rows_);
    at_.best_ids = 0;
    at_.best_logits = cells(rows_, best_);
    at_.choices = 2 * at_.best_logits;
    at_.choice_logits = at_.choices + rows;
    at_.log_norm = at_.choice_logits + rows;
    at_.logits = at_.log_norm + rows;
    at_.ranks = at_.logits + tokens;
    at_.masses = at_.ranks + tokens;
    at_.end = at_.masses + rows;
    const std::size_t scratch = kernels::select_scratch(rows_, question.vocab, best_);
    return answers_there_.reserve(*device_, std::bit_ceil(at_.end * sizeof(std::int32_t))) &&
           scratch_.reserve(*device_, std::bit_ceil(scratch));
}

/// Best tokens and choices; `uniforms` null = the best tokens are the choices.
void DeviceLogits::ask_choices(const RowQuestion& question, const double* uniforms) {
    auto* ints = answers_there_.as<std::int32_t>();
    auto* floats = answers_there_.as<float>();
    drawn_ = uniforms != nullptr;
    kernels::SelectOp select;
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
    device_->select(select);
    if (!drawn_) return;
    kernels::DrawOp draw;
    draw.logits = data();
    draw.stride = columns_;
    draw.rows = rows_;
    draw.vocab = question.vocab;
    draw.scale = question.scale;
    draw.uniforms = uniforms;
    draw.tokens = ints + at_.choices;
    draw.values = floats + at_.choice_logits;
    draw.log_norm = floats + at_.log_norm;
    device_->draw(draw);
}

void DeviceLogits::ask_download() {
    answers_.resize(at_.end);
    device_->download(answers_.data(), answers_there_.as<void>(), at_.end * sizeof(std::int32_t));
}

bool DeviceLogits::ask(const RowQuestion& question) {
    assert(question.rows.size() == question.tokens.size());
    assert(question.uniforms.empty() || static_cast<int>(question.uniforms.size()) == rows_);
    if (!lay_out(question, question.tokens.size()) || !upload_question(question)) return false;
    ask_choices(question, question.uniforms.empty() ? nullptr : uniforms_there_.as<double>());
    if (tokens_ > 0) {
        const auto* asked = asked_there_.as<std::int32_t>();
        device_->rank({data(), columns_, question.vocab, tokens_, asked, asked + tokens_,
                       answers_there_.as<float>() + at_.logits,
                       answers_there_.as<std::int32_t>() + at_.ranks});
    }
    if (!mass_rows_.empty()) {
        const auto* rows = asked_there_.as<std::int32_t>() + 2 * tokens_;
        const std::size_t count = mass_rows_.size();
        ask_masses(question, rows, rows + count, rows + 2 * count, ids_there_.as<std::int32_t>());
    }
    ask_download();
    return true;
}

bool DeviceLogits::ask_trees(const RowQuestion& question, TreeStep& step, bool accept) {
    assert(step.rows() == rows_);
    if (!lay_out(question, question.drafts ? static_cast<std::size_t>(rows_) : 0)) return false;
    auto* ints = answers_there_.as<std::int32_t>();
    auto* floats = answers_there_.as<float>();
    const kernels::TreeRows& there = step.there();
    ask_choices(question, there.uniforms);
    if (accept) step.ask_acceptance(ints + (drawn_ ? at_.choices : at_.best_ids), drawn_ ? 1 : best_);
    if (question.drafts)
        device_->rank({data(), columns_, question.vocab, rows_, there.parents, there.tokens,
                       floats + at_.logits, ints + at_.ranks});
    mass_rows_.clear();
    if (step.has_sets()) {
        for (int r = 0; r < rows_; ++r) mass_rows_.push_back(r);
        ask_masses(question, nullptr, there.set_first, there.set_size, step.set_ids());
    }
    ask_download();
    return true;
}

/// Of mass_rows_, which `rows` has there (null: all rows). Row i's set is size[i] of `ids` from first[i] on.
void DeviceLogits::ask_masses(const RowQuestion& question, const std::int32_t* rows,
                              const std::int32_t* first, const std::int32_t* size, const TokenId* ids) {
    auto* floats = answers_there_.as<float>();
    kernels::MassOp mass;
    mass.logits = data();
    mass.stride = columns_;
    mass.count = static_cast<int>(mass_rows_.size());
    mass.scale = drawn_ ? question.scale : 1.0f;
    mass.log_norm = floats + at_.log_norm;
    mass.rows = rows;
    mass.first = first;
    mass.size = size;
    mass.ids = ids;
    mass.out = floats + at_.masses;
    device_->mass(mass);
}

void DeviceLogits::collect(RowAnswers& out) {
    const auto rows = static_cast<std::size_t>(rows_), tokens = static_cast<std::size_t>(tokens_);
    const auto width = static_cast<std::size_t>(best_);
    out.best = best_;
    take(out.best_ids, answers_, at_.best_ids, rows * width);
    take(out.best_logits, answers_, at_.best_logits, rows * width);
    take(out.log_norm, answers_, at_.log_norm, rows);
    take(out.logits, answers_, at_.logits, tokens);
    take(out.ranks, answers_, at_.ranks, tokens);
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
        std::memcpy(&out.masses[static_cast<std::size_t>(mass_rows_[i])], &answers_[at_.masses + i],
                    sizeof(float));
}

Rows<const float> DeviceLogits::rows(int first, int count) {
    if (host_.size() < cells(rows_, columns_)) host_.resize(cells(rows_, columns_));
    bool waiting = false;
    const std::lock_guard lock(device_->busy());
    for (int r = first; r < first + count; ++r) {
        if (here_[static_cast<std::size_t>(r)] != 0) continue;
        const std::size_t at = cells(r, columns_);
        device_->download(host_.data() + at, data() + at, static_cast<std::size_t>(columns_) * sizeof(float));
        here_[static_cast<std::size_t>(r)] = 1;
        waiting = true;
    }
    if (waiting) (void)device_->finish();  // an error stays, and fails the next forward
    return {host_.data() + cells(first, columns_), count, columns_};
}

}  // namespace draftscope
