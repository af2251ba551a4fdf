#include "tests/support/lm_head_fixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/numel.h"
#include "base/rng.h"
#include "kernels/host_rows.h"
#include "tests/support/results.h"

namespace draftscope::testing {
namespace {

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
}

}  // namespace

LmHeadFixture::LmHeadFixture(kernels::Precision precision) : inputs_(random(rows * hidden, 3)) {
    matrix_ = kernels::Matrix::pack(*exec_, precision, padded, hidden, [](int row, float* out) {
        // Rows 40 and 41 are equal: a tie in every logit. Padding rows would win if they were read.
        Rng rng(11, static_cast<std::uint64_t>(row == 41 ? 40 : row));
        for (int k = 0; k < hidden; ++k) out[k] = row >= vocab ? 100.0f : static_cast<float>(rng.normal());
    });
    weights_.lm_head = &matrix_;
    weights_.always_active = {0, 2};
    weights_.vocab = vocab;
    weights_.hidden = hidden;
    weights_.target = "tiny";
    weights_.tokenizer = 77;
    weights_.drafter = "eagle2";
    weights_.drafter_hash = "0123456789abcdef";
}

std::vector<float> LmHeadFixture::random(std::size_t count, std::uint64_t seed, float scale) {
    Rng rng(seed);
    std::vector<float> values(count);
    for (float& value : values) value = scale * static_cast<float>(rng.normal());
    return values;
}

std::vector<std::int32_t> LmHeadFixture::descending_ids() {
    std::vector<std::int32_t> ids(vocab);
    std::iota(ids.rbegin(), ids.rend(), 0);
    return ids;
}

ArtefactInfo LmHeadFixture::info(const std::string& head) {
    ArtefactInfo info;
    info.head = head;
    info.target = "tiny";
    info.tokenizer = 77;
    info.drafter = "eagle2";
    info.drafter_hash = "0123456789abcdef";
    info.vocab = vocab;
    info.hidden = hidden;
    return info;
}

void LmHeadFixture::Tensors::floats(const std::string& name, std::vector<std::int64_t> shape,
                                    const std::vector<float>& values) {
    remove(name);
    all_.push_back({name, "F32", std::move(shape), bytes_of(values)});
}
void LmHeadFixture::Tensors::integers(const std::string& name, const std::vector<std::int32_t>& values) {
    integers(name, {static_cast<std::int64_t>(values.size())}, values);
}
void LmHeadFixture::Tensors::integers(const std::string& name, std::vector<std::int64_t> shape,
                                      const std::vector<std::int32_t>& values) {
    remove(name);
    all_.push_back({name, "I32", std::move(shape), bytes_of(values)});
}
void LmHeadFixture::Tensors::remove(const std::string& name) {
    std::erase_if(all_, [&](const One& one) { return one.name == name; });
}
std::vector<TensorToSave> LmHeadFixture::Tensors::list() const {
    std::vector<TensorToSave> list;
    for (const One& one : all_) list.push_back({one.name, one.type, one.shape, one.data});
    return list;
}

void LmHeadFixture::save(const ArtefactInfo& info, const Tensors& tensors) {
    artefacts_.artefact_path = folder_.file(info.head + ".safetensors");
    ASSERT_TRUE(is_ok(save_artefact(artefacts_.artefact_path, info, tensors.list())));
}
void LmHeadFixture::save_affinity(const ArtefactInfo& info, const Tensors& tensors) {
    artefacts_.affinity_path = folder_.file("affinity.safetensors");
    ASSERT_TRUE(is_ok(save_artefact(artefacts_.affinity_path, info, tensors.list())));
}

std::unique_ptr<LmHead> LmHeadFixture::make(const std::string& spec) {
    auto head = make_head(parse_head_spec(spec).value(), artefacts_);
    EXPECT_TRUE(is_ok(head));
    EXPECT_TRUE(is_ok((*head)->prepare(*exec_, weights_)));
    return std::move(head).value();
}

std::string LmHeadFixture::error_message(const std::string& spec) {
    auto head = make_head(parse_head_spec(spec).value(), artefacts_);
    if (!head.ok()) return head.error().message;
    const Status ready = (*head)->prepare(*exec_, weights_);
    return ready.ok() ? std::string() : ready.error().message;
}

Proposal LmHeadFixture::propose(LmHead& head, int level, int k, std::vector<HeadState*> states) {
    return propose(head, input(), level, k, std::move(states));
}

Proposal LmHeadFixture::propose(LmHead& head, Rows<const float> input, int level, int k,
                                std::vector<HeadState*> states) {
    states.resize(input.rows, nullptr);
    PhaseRecorder phases;
    Proposal out = HostCall(*exec_, phases).propose(head, level, input, states, k);
    events_.clear();
    phases.drain(events_);
    return out;
}

Proposal LmHeadFixture::propose_begun(LmHead& head, Rows<const float> embeddings, Rows<const float> parents,
                                      Rows<const float> input, int level, int k,
                                      const std::vector<HeadState*>& states) {
    PhaseRecorder phases;
    HostCall call(*exec_, phases);
    call.begin(head, level, embeddings, parents, states);
    Proposal out = call.propose(head, level, input, states, k);
    events_.clear();
    phases.drain(events_);
    return out;
}

void LmHeadFixture::begin_round(LmHead& head, std::vector<HeadState*> states) {
    PhaseRecorder phases;
    const auto inputs = input().slice(0, static_cast<int>(states.size()));
    HostCall(*exec_, phases).begin(head, 0, inputs, inputs, states);
}

std::vector<TokenId> LmHeadFixture::covered(const LmHead& head, int level, const HeadState* state) const {
    std::vector<TokenId> ids, memory;
    const ActiveSet active = head.active_set(state, level, memory);
    for (TokenId id = -1; id <= vocab; ++id)
        if (active.has(id)) ids.push_back(id);
    return ids;
}

std::vector<float> LmHeadFixture::scores(LmHead& head, int level, HeadState* state) {
    PhaseRecorder phases;
    const auto support =
        HostCall(*exec_, phases).support(head, level, input(), std::vector<HeadState*>(rows, state));
    std::vector<float> found(numel(rows, vocab), -std::numeric_limits<float>::infinity());
    for (int r = 0; r < rows; ++r)
        for (std::size_t i = 0; i < support[r].logits.size(); ++i) {
            const std::size_t token = support[r].ids.empty() ? i : support[r].ids[i];
            found[numel(r, vocab) + token] = support[r].logits[i];
        }
    return found;
}

std::vector<std::vector<float>> LmHeadFixture::dense() {
    std::vector<float> logits(numel(rows, padded));
    kernels::matmul(exec_->pool(), matrix_, input(), Rows<float>(logits.data(), rows, padded));
    std::vector<std::vector<float>> found;
    for (int r = 0; r < rows; ++r)
        found.emplace_back(logits.begin() + r * padded, logits.begin() + r * padded + vocab);
    return found;
}

bool LmHeadFixture::saw(Phase phase, Lane lane) const {
    return std::any_of(events_.begin(), events_.end(),
                       [&](const SpanEvent& e) { return e.phase == phase && e.lane == lane; });
}

void expect_row(const Proposal& found, int row, const std::vector<float>& logits,
                const std::vector<TokenId>& support) {
    const auto logit = [&](TokenId id) { return logits[id]; };
    std::vector<TokenId> order = support;
    std::sort(order.begin(), order.end(),
              [&](TokenId a, TokenId b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
    const auto r = static_cast<std::size_t>(row);
    const int kept = std::min<int>(found.k, static_cast<int>(support.size()));
    ASSERT_EQ(found.counts[r], kept);
    double sum = 0;
    for (const TokenId id : support) sum += std::exp(static_cast<double>(logit(id)));
    if (kept > 0) {
        EXPECT_NEAR(found.logsumexp[r], std::log(sum), 1e-4) << "row " << row;
    }
    for (int i = 0; i < kept; ++i) {
        const auto cell = static_cast<std::size_t>(row * found.k + i);
        EXPECT_EQ(found.ids[cell], order[i]) << "row " << row << " rank " << i;
        EXPECT_EQ(found.logits[cell], logit(order[i])) << "row " << row;
    }
}

void expect_same_row(const Proposal& found, int row, const Proposal& other, int other_row) {
    const auto a = static_cast<std::size_t>(row), b = static_cast<std::size_t>(other_row);
    ASSERT_EQ(found.k, other.k);
    EXPECT_EQ(found.counts[a], other.counts[b]) << "row " << row;
    EXPECT_EQ(found.logsumexp[a], other.logsumexp[b]) << "row " << row;
    const auto k = static_cast<std::size_t>(found.k);
    for (std::size_t i = 0; i < k; ++i) {
        EXPECT_EQ(found.ids[a * k + i], other.ids[b * k + i]) << "row " << row << " rank " << i;
        EXPECT_EQ(found.logits[a * k + i], other.logits[b * k + i]) << "row " << row << " rank " << i;
    }
}

}  // namespace draftscope::testing
