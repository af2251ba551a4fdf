#include "engine/decode/session.h"

#include <mutex>
#include <utility>

#include "engine/decode/decode_step.h"
#include "engine/decode/prefill.h"
#include "engine/shadow/shadow_evaluator.h"
#include "kernels/backend.h"

namespace draftscope {
namespace {

/// A feed of one prompt that keeps its outcome.
class SinglePromptFeed final : public PromptFeed {
  public:
    SinglePromptFeed(const PromptInput& prompt, const std::function<void(std::string_view)>& on_text)
        : prompt_(prompt), on_text_(on_text) {
        outcome_.finish = Finish::cancelled;  // if the prompt does not begin
    }

    std::optional<PromptInput> next() override { return std::exchange(prompt_, std::nullopt); }
    void text(const PromptInput&, std::string_view piece) override {
        if (on_text_) on_text_(piece);
    }
    void done(const PromptInput&, PromptOutcome outcome) override { outcome_ = std::move(outcome); }
    PromptOutcome take() { return std::move(outcome_); }

  private:
    std::optional<PromptInput> prompt_;
    const std::function<void(std::string_view)>& on_text_;
    PromptOutcome outcome_;
};

}  // namespace

struct DecodeSession::Impl {
    Impl(Target& target, Drafter& drafter, LmHead* head, LmHead* full_head, kernels::Backend& backend,
         DecodeOptions options, CaptureOutput capture_output, PhaseRecorder& phases, DebugGate& gate)
        : core(target, drafter, head, full_head, backend, options, std::move(capture_output), phases, gate),
          decode_step(core),
          shadows(core) {
        phases.set_observer(&gate);
        const std::lock_guard lock(backend.submit_mutex());
        backend.clear_out_of_memory();  // an earlier session's error
    }
    ~Impl() { core.phases.set_observer(nullptr); }

    /// Begins prompts until the batch is full or no prompt can begin.
    Status fill(PromptFeed& feed);
    Status step(PromptFeed& feed);
    void end(PromptFeed& feed, Sequence& sequence);
    void close(Sequence& sequence, PromptFeed* feed);

    DecodeContext core;
    DecodeStep decode_step;
    ShadowEvaluator shadows;
    std::vector<std::unique_ptr<Sequence>> active;  ///< in the order in which they began
    std::vector<RoundEnd> ends;                     ///< of the current step
    int begun = 0;
};

Status DecodeSession::Impl::fill(PromptFeed& feed) {
    while (static_cast<int>(active.size()) < core.options.batch && !core.gate.cancelled()) {
        std::optional<PromptInput> prompt = feed.next();
        if (!prompt) break;
        DS_TRY(check_prompt(core, *prompt));
        const int ordinal = prompt->ordinal.value_or(begun);
        ++begun;
        active.push_back(open_sequence(core, std::move(*prompt), static_cast<std::uint64_t>(ordinal)));
        Sequence& sequence = *active.back();
        DS_ASSIGN(const std::string piece, prefill_sequence(core, sequence));
        if (!piece.empty()) feed.text(sequence.prompt, piece);
        DS_TRY(shadows.begin(sequence));
        if (!sequence.done()) continue;
        end(feed, sequence);
        active.pop_back();
    }
    return {};
}

Status DecodeSession::Impl::step(PromptFeed& feed) {
    core.gate.at_round_start();
    if (core.gate.cancelled()) {
        for (const auto& sequence : active) {
            sequence->outcome.finish = Finish::cancelled;
            end(feed, *sequence);
        }
        active.clear();
        return {};
    }
    DS_TRY(decode_step.step(active));
    DS_TRY(shadows.after_step(decode_step.rounds()));
    ends.clear();
    for (const Round& round : decode_step.rounds()) {
        ends.push_back({round.accepted(), round.tree.max_depth(), round.uncovered,
                        round.finish == Finish::eos, round.sequence->outcome.text, round.new_text,
                        round.sequence->row.id});
        if (round.new_text > 0) feed.text(round.sequence->prompt, round.piece());
    }
    core.gate.at_round_end(ends);
    std::erase_if(active, [&](const std::unique_ptr<Sequence>& sequence) {
        if (!sequence->done()) return false;
        end(feed, *sequence);
        return true;
    });
    return {};
}

void DecodeSession::Impl::end(PromptFeed& feed, Sequence& sequence) {
    close(sequence, &feed);
    feed.done(sequence.prompt, std::move(sequence.outcome));
}

/// Closes a prompt's records in their current state. If `feed` is null, the remaining text is not reported.
void DecodeSession::Impl::close(Sequence& sequence, PromptFeed* feed) {
    if (sequence.text) {
        const std::string rest = sequence.text->finish();
        sequence.outcome.text += rest;
        if (feed != nullptr && !rest.empty()) feed->text(sequence.prompt, rest);
    }
    sequence.outcome.tokens.assign(sequence.tokens.begin() + sequence.outcome.prompt_tokens,
                                   sequence.tokens.end());
    shadows.end(sequence);
    sequence.row.output = sequence.outcome.text;
    sequence.row.generated_tokens = sequence.generated();
    sequence.row.finish = sequence.outcome.finish;
    core.records.end_prompt(sequence.row);
}

DecodeSession::DecodeSession(Target& target, Drafter& drafter, LmHead* head, LmHead* full_head,
                             kernels::Backend& backend, DecodeOptions options, CaptureOutput capture_output,
                             PhaseRecorder& phases, DebugGate& gate)
    : impl_(std::make_unique<Impl>(target, drafter, head, full_head, backend, options,
                                   std::move(capture_output), phases, gate)) {}

DecodeSession::~DecodeSession() = default;

Status DecodeSession::run(PromptFeed& feed) {
    Impl& impl = *impl_;
    Status status = impl.fill(feed);
    while (status.ok() && !impl.active.empty()) {
        status = impl.step(feed);
        if (status.ok()) status = impl.fill(feed);
    }
    for (const auto& sequence : impl.active) impl.close(*sequence, nullptr);
    impl.active.clear();
    return status;
}

Result<PromptOutcome> DecodeSession::decode(const PromptInput& prompt,
                                            const std::function<void(std::string_view piece)>& on_text) {
    SinglePromptFeed feed(prompt, on_text);
    DS_TRY(run(feed));
    return feed.take();
}

DecodeTotals DecodeSession::totals() const {
    return impl_->decode_step.totals();
}

}  // namespace draftscope
