#include "engine/recording/record_decode.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/numel.h"
#include "kernels/host_rows.h"
#include "kernels/ops/float16.h"

namespace draftscope {
namespace {

/// A turn being decoded.
struct Lane {
    PromptInput input;
    std::uint64_t number = 0;  ///< index in the run: key of the random numbers, order of the recording
    std::optional<KvCache> cache;
    std::vector<TokenId> tokens;  ///< prompt and text; the last one has no row yet
    RecordedRows rows;
    Finish finish = Finish::none;
    const GivenText* given = nullptr;  ///< null = the target chooses
    int prompt_tokens() const { return static_cast<int>(input.tokens.size()); }
    int generated() const { return static_cast<int>(tokens.size()) - prompt_tokens(); }
};

class DecodeRecorder {
  public:
    DecodeRecorder(Target& target, kernels::Backend& backend, PromptFeed& feed, const RecordOptions& options,
                   RecordingWriter& writer)
        : target_(target),
          backend_(backend),
          feed_(feed),
          options_(options),
          writer_(writer),
          info_(writer.info()) {}

    Status record() {
        while (!stopped()) {
            DS_TRY(fill());
            if (lanes_.empty()) break;
            DS_TRY(step());
        }
        if (lanes_.empty() && !stopped()) return {};
        info_.complete = false;
        for (const auto& lane : lanes_)
            if (lane->finish == Finish::none) lane->finish = Finish::cancelled;
        return step();
    }

  private:
    bool stopped() const { return options_.cancelled && options_.cancelled(); }

    /// Begins prompts until every lane is in use or no prompt is left.
    Status fill() {
        while (static_cast<int>(lanes_.size()) < std::max(options_.batch, 1) && !stopped()) {
            std::optional<PromptInput> input = feed_.next();
            if (!input) return {};
            auto lane = std::make_unique<Lane>();
            lane->number = input->ordinal ? static_cast<std::uint64_t>(*input->ordinal) : begun_;
            lane->input = std::move(*input);
            if (options_.given) lane->given = options_.given(lane->input);
            ++begun_;
            DS_ASSIGN(const bool read, read_prompt(*lane));
            if (read) lanes_.push_back(std::move(lane));
        }
        return {};
    }

    Status check(const PromptInput& input) const {
        const int context = target_.config().context, length = static_cast<int>(input.tokens.size());
        if (length == 0 || length >= context)
            return bad_input("prompt {}: has {} tokens; the model's context of {} allows 1 to {}", input.id,
                             length, context, context - 1);
        for (const TokenId token : input.tokens)
            if (token < 0 || token >= target_.config().vocab)
                return bad_input("prompt {}: token {} is outside the vocabulary of {}", input.id, token,
                                 target_.config().vocab);
        return {};
    }

    /// Returns false if cancelled before the text began.
    Result<bool> read_prompt(Lane& lane) {
        DS_TRY(check(lane.input));
        const int length = lane.prompt_tokens();
        lane.tokens = lane.input.tokens;
        lane.cache = target_.make_cache(std::min(target_.config().context, length + info_.max_new));
        const Status read =
            target_.prefill(*lane.cache, lane.tokens, info_.aux_layers, forward_, options_.cancelled);
        if (!read.ok() && read.error().kind == ErrorKind::cancelled) return false;
        DS_TRY(read);
        constexpr int chunk = 32;  // rows of logits computed together
        const Rows<const float> hidden(forward_.hidden.data(), length, target_.config().hidden);
        const int columns = target_.lm_head().n();
        std::vector<float> logits(numel(std::min(chunk, length), columns));
        for (int first = 0; first < length; first += chunk) {
            const int rows = std::min(chunk, length - first);
            const Rows<float> out(logits.data(), rows, columns);
            kernels::matmul(backend_.pool(), target_.lm_head(), hidden.slice(first, rows), out);
            rank_rows(out);
            for (int r = 0; r < rows; ++r) DS_TRY(append_row(lane, first + r, r));
        }
        if (has_nan(std::span(forward_.logits).first(info_.target.tokens)))
            return not_numbers(lane.input.id, length - 1);
        choose(Rows<const float>(forward_.logits.data(), 1, target_.config().vocab), lane);
        return true;
    }

    /// Runs one forward pass over the last token of every lane. Ended lanes need only its row.
    Status step() {
        if (lanes_.empty()) return {};
        std::vector<SequenceTokens> sequences;
        for (const auto& lane : lanes_)
            sequences.push_back({&*lane->cache, std::span(lane->tokens).last(1), {}, nullptr});
        ForwardRequest request;
        request.sequences = sequences;
        request.aux_layers = info_.aux_layers;
        request.all_logits = true;
        DS_TRY(target_.forward(request, forward_));
        const Rows<const float> logits(forward_.logits.data(), forward_.rows, target_.config().vocab);
        rank_rows(logits);
        std::vector<std::unique_ptr<Lane>> ended;
        int row = 0;
        for (auto& lane : lanes_) {
            lane->cache->commit(1);
            DS_TRY(append_row(*lane, row, row));
            if (lane->finish == Finish::none)
                choose(logits.slice(row, 1), *lane);
            else
                ended.push_back(std::move(lane));
            ++row;
        }
        std::erase(lanes_, nullptr);
        for (auto& lane : ended) DS_TRY(end(*lane));
        return {};
    }

    /// Computes the best tokens of each row of logits for append_row().
    void rank_rows(Rows<const float> logits) {
        const Rows<const float> real(logits.data, logits.rows, info_.target.tokens, logits.stride);
        const std::size_t rows = logits.rows;
        const int k = std::min(recording_topk, info_.target.tokens);
        ids_.resize(rows * k);
        values_.resize(ids_.size());
        norms_.resize(rows);
        kernels::topk(backend_.pool(), real, k, Rows<std::int32_t>(ids_.data(), logits.rows, k),
                      Rows<float>(values_.data(), logits.rows, k));
        kernels::logsumexp(backend_.pool(), real, norms_);
    }

    /// Appends row `row` of the latest forward pass with the ranking of row `ranked`.
    Status append_row(Lane& lane, int row, int ranked) {
        const int k = std::min(recording_topk, info_.target.tokens);
        if (!std::isfinite(values_[numel(ranked, k)]) || !std::isfinite(norms_[ranked]))
            return not_numbers(lane.input.id,
                               static_cast<std::int64_t>(lane.rows.hidden.size()) / target_.config().hidden);
        const auto append = [&](std::vector<std::uint16_t>& to, const std::vector<float>& from, int width) {
            const float* values = from.data() + numel(row, width);
            for (int j = 0; j < width; ++j) to.push_back(kernels::to_bf16(values[j]));
        };
        append(lane.rows.hidden, forward_.hidden, target_.config().hidden);
        append(lane.rows.aux, forward_.aux, info_.aux_width());
        // If the vocabulary is smaller than the list, its last token is repeated with probability 0.
        for (int i = 0; i < recording_topk; ++i) {
            const std::size_t at = ranked * k + std::min(i, k - 1);
            lane.rows.topk_ids.push_back(ids_[at]);
            lane.rows.topk_logprobs.push_back(i < k ? kernels::float_to_f16(values_[at] - norms_[ranked])
                                                    : 0xfc00u);
        }
        return {};
    }

    void choose(Rows<const float> logits, Lane& lane) {
        const TokenPosition position{lane.number, static_cast<std::int64_t>(lane.tokens.size())};
        sample_tokens(backend_, logits, info_.target.tokens,
                      lane.given != nullptr ? Sampling() : info_.sampling, {&position, 1}, choices_);
        if (lane.given != nullptr) return follow(logits, lane);
        const TokenId token = choices_.front().token;
        lane.tokens.push_back(token);
        const auto& eos = info_.target.eos;
        if (!info_.ignore_eos && std::find(eos.begin(), eos.end(), token) != eos.end())
            lane.finish = Finish::eos;
        else if (lane.generated() >= info_.max_new)
            lane.finish = Finish::length;
        else if (static_cast<int>(lane.tokens.size()) >= target_.config().context)
            lane.finish = Finish::context;
    }

    /// Appends the next token of the given text and compares it with the target's best one.
    void follow(Rows<const float> logits, Lane& lane) {
        const TargetSample& best = choices_.front();
        const TokenId token = lane.given->tokens[lane.generated()];
        ++info_.given->tokens;
        info_.given->agreed += token == best.token ? 1 : 0;
        const double gap = static_cast<double>(best.logit) - static_cast<double>(logits.row_data(0)[token]);
        info_.given->largest_gap = std::max(info_.given->largest_gap, gap);
        lane.tokens.push_back(token);
        if (lane.generated() == static_cast<int>(lane.given->tokens.size()))
            lane.finish = lane.given->finish;
        else if (static_cast<int>(lane.tokens.size()) >= target_.config().context)
            lane.finish = Finish::context;
    }

    Status end(Lane& lane) {
        RecordedPrompt prompt;
        const PromptInput& input = lane.input;
        prompt.id = input.id;
        prompt.suite = input.suite;
        prompt.category = input.category;
        prompt.turn = input.turn;
        if (options_.hash) prompt.hash = options_.hash(input);
        prompt.prompt_tokens = lane.prompt_tokens();
        prompt.generated_tokens = lane.generated();
        prompt.finish = lane.finish;
        lane.rows.tokens = lane.tokens;
        DS_TRY(writer_.append(std::move(prompt), static_cast<std::int64_t>(lane.number), lane.rows));
        PromptOutcome outcome;
        outcome.tokens.assign(lane.tokens.begin() + lane.prompt_tokens(), lane.tokens.end());
        outcome.prompt_tokens = lane.prompt_tokens();
        outcome.finish = lane.finish;
        if (const Tokenizer* tokenizer = target_.tokenizer()) {
            TextStream text(*tokenizer);
            for (const TokenId token : outcome.tokens) text.push(token, outcome.text);
            outcome.text += text.finish();
        }
        feed_.done(lane.input, std::move(outcome));
        return {};
    }

    Target& target_;
    kernels::Backend& backend_;
    PromptFeed& feed_;
    const RecordOptions& options_;
    RecordingWriter& writer_;
    RecordingInfo& info_;
    std::uint64_t begun_ = 0;
    std::vector<std::unique_ptr<Lane>> lanes_;
    ForwardOutput forward_;
    std::vector<std::int32_t> ids_;
    std::vector<float> values_, norms_;
    std::vector<TargetSample> choices_;
};

}  // namespace

Status record_decode(Target& target, kernels::Backend& backend, PromptFeed& feed,
                     const RecordOptions& options, RecordingWriter& writer) {
    return DecodeRecorder(target, backend, feed, options, writer).record();
}

RecordedTarget describe_target(const Target& target) {
    return describe_target(target.config(), target.tokenizer());
}

RecordedTarget describe_target(const ModelConfig& config, const Tokenizer* tokenizer) {
    RecordedTarget out;
    out.name = config.name;
    out.layers = config.layers;
    out.hidden = config.hidden;
    out.vocab = config.vocab;
    out.tokens = config.vocab;
    out.context = config.context;
    if (tokenizer == nullptr) return out;
    out.tokens = std::min(config.vocab, tokenizer->size());
    out.tokenizer_hash = fmt::format("{:016x}", tokenizer->fingerprint());
    out.eos = tokenizer->eos();
    return out;
}

Result<std::map<int, TimeNs>> measure_verify(Target& target, int prefix) {
    constexpr int repeats = 5;
    constexpr TimeNs budget = 2 * ns_per_s;
    constexpr int row_counts[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64};
    const int context = target.config().context;
    prefix = std::min(prefix, context / 2);
    KvCache cache = target.make_cache(context);
    ForwardOutput out;
    const std::vector<TokenId> text(prefix, 0);
    if (prefix > 0) DS_TRY(target.prefill(cache, text, {}, out));
    std::map<int, TimeNs> times;
    const TimeNs begin = monotonic_ns();
    for (const int rows : row_counts) {
        if (prefix + rows > context || monotonic_ns() - begin > budget) break;
        const std::vector<TokenId> tokens(rows, 0);
        const SequenceTokens sequence{&cache, tokens, {}, nullptr};
        ForwardRequest request;
        request.sequences = {&sequence, 1};
        request.all_logits = true;
        std::vector<TimeNs> samples;
        for (int i = 0; i < repeats; ++i) {
            const TimeNs start = monotonic_ns();
            DS_TRY(target.forward(request, out));
            samples.push_back(monotonic_ns() - start);
        }
        std::nth_element(samples.begin(), samples.begin() + repeats / 2, samples.end());
        times[rows] = samples[repeats / 2];
    }
    return times;
}

}  // namespace draftscope
