#include "random_capture.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/phase.h"

namespace draftscope::testing {

namespace {

std::shared_ptr<const Vocab> small_vocab() {
    auto vocab = std::make_shared<Vocab>();
    vocab->id = 1;
    for (int i = 0; i < 50; ++i) {
        VocabRow row;
        row.vocab_id = 1;
        row.token_id = i;
        row.bytes = i == 7 ? std::string("\xff\x00\xfe", 3) : fmt::format("t{}", i);
        row.text = fmt::format("t{}", i);
        if (i % 3 != 0) row.rank = i;
        if (i % 4 != 0) row.count = 1000 - i;
        vocab->rows.push_back(row);
    }
    return vocab;
}

}  // namespace

std::vector<Record> RandomCapture::records() {
    vocab_ = small_vocab();
    for (int r = 0; r < shape_.runs; ++r) run(r % 2 == 0 ? "full" : "fr-spec:v=8192");
    return std::move(out_);
}

void RandomCapture::run(const std::string& head) {
    run_ = RunRow();
    run_.id = rows_.ids().run + 1;
    run_.name = fmt::format("run {}", run_.id);
    run_.started_monotonic = 1'000'000 + below(1000);
    run_.started_utc = "2026-11-21T09:30:00Z";
    run_.frontend = "cli";
    run_.target = "tiny, \"quoted\"\nname";
    run_.drafter = "eagle2";
    run_.head = head;
    run_.tree = "depth=3,topk=4,nodes=12";
    run_.seed = 0xFFFF'FFFF'FFFF'FFFEull;
    run_.temperature = 0.25;
    run_.batch = shape_.batch;
    ClockAnchorRow anchor{run_.id, run_.started_monotonic + 17, 1'700'000'000'000'000'000 + 17, std::nullopt};
    out_.push_back(rows_.run(run_, vocab_, anchor));
    now_ = 0;
    prompts_.clear();
    rounds_of_prompt_.assign(shape_.prompts, 0);
    for (int p = 0; p < shape_.prompts; ++p) {
        PromptRow prompt;
        prompt.ordinal = p;
        prompt.external_id = fmt::format("q{}", p);
        prompt.suite = "spec";
        prompt.category = p % 2 == 0 ? "code" : "chat";
        prompt.text = fmt::format("Tell me, \"please\",\nabout rivers {}", p);
        prompt.prompt_tokens = 5 + below(20);
        out_.push_back(rows_.prompt(prompt));
        prompt = std::get<PromptStarted>(out_.back()).prompt;
        prompt.prefill_ns = 100 + below(900);
        out_.push_back(SpansRecorded{
            rows_.spans({span(static_cast<int>(Phase::prefill), now_, now_ + prompt.prefill_ns)})});
        now_ += prompt.prefill_ns;
        prompt.output = std::string("Rivers");
        prompt.generated_tokens = 1;
        TokenRow first = token(below(50), 0, true, TokenSource::prefill);
        first.prompt_id = prompt.id;
        out_.push_back(PromptProgress{prompt.id, prompt.output, 1, prompt.prefill_ns, {first}});
        prompts_.push_back(prompt);
    }
    previous_step_ = 0;
    for (int s = 0; s < shape_.steps_per_run; ++s) step(s);
    if (!shape_.ended) return;
    for (PromptRow& prompt : prompts_) {
        prompt.finish = Finish::length;
        out_.push_back(PromptEnded{prompt});
    }
    anchor = {run_.id, run_.started_monotonic + now_ + 5, 1'700'000'000'000'000'000 + now_ + 5, std::nullopt};
    out_.push_back(RunEnded{run_.id, RunEnd::ok, now_ + 3, anchor});
}

void RandomCapture::step(int ordinal) {
    StepRecord record;
    record.step.ordinal = ordinal;
    record.step.start_ns = now_;
    record.step.end_ns = now_ + 2000 + below(1000);
    record.step.sampled = ordinal % shape_.span_interval == 0;
    record.step.excluded = ordinal == 0 ? Excluded::shadow : ordinal == 1 ? Excluded::warmup : Excluded::no;
    if (ordinal == 2) {
        record.step.excluded = Excluded::paused;
        record.step.paused_ns = 400;
    }
    for (int b = 0; b < shape_.batch; ++b) {
        const int p = (ordinal + b) % shape_.prompts;
        PromptRow& prompt = prompts_[p];
        RoundRecord round_record = round(prompt.id, prompt.generated_tokens);
        round_record.round.ordinal = rounds_of_prompt_[p]++;
        round_record.round.start_ns = record.step.start_ns;
        round_record.round.end_ns = record.step.end_ns;
        round_record.round.context_length = prompt.prompt_tokens + prompt.generated_tokens;
        if (!record.step.sampled) round_record.head_evals.back().head_ns = 0;
        prompt.generated_tokens += round_record.round.committed;
        prompt.output += " word";
        if (ordinal == 0) {  // a calibration row in addition to the driving head's
            HeadEvalRow full = round_record.head_evals.back();
            full.head = "full";
            full.mode = HeadMode::calibration;
            full.head_ns += 100;
            round_record.head_evals.push_back(full);
        }
        record.rounds.push_back(std::move(round_record));
        PromptProgress progress{prompt.id, prompt.output, prompt.generated_tokens, prompt.prefill_ns, {}};
        if (b + 1 == shape_.batch) {
            record.spans = spans(record.step.start_ns, record.step.end_ns);
            if (!record.step.sampled) record.spans.clear();
            if (shape_.batch == 1)
                for (SpanRow& row : record.spans) row.round_id = rows_.ids().round + 1;
            now_ = record.step.end_ns + below(50);
            out_.push_back(rows_.step(std::move(record)));
            out_.push_back(progress);
            if (previous_step_ != 0 && below(3) == 0) {  // a span that arrives after its step, as from a GPU
                SpanRow late = span(static_cast<int>(Phase::verify), 10, 20, 1);
                late.thread_id = 9;
                out_.push_back(SpansRecorded{rows_.spans({late}, previous_step_)});
            }
            previous_step_ = rows_.ids().step;
        } else {
            out_.push_back(progress);
        }
    }
    GpuOpRow op{++rows_.ids().gpu_op,
                run_.id,
                previous_step_,
                static_cast<int>(Phase::head),
                7,
                "gemm<a, \"b\">",
                now_ - 90,
                now_ - 50,
                -1,
                5,
                "(1,1,1)",
                "(128,1,1)",
                4096,
                1,
                40 + below(100)};
    out_.push_back(std::vector<GpuOpRow>{op});
    out_.push_back(std::vector<NvtxRangeRow>{{run_.id, "cuBLAS", "gemm", 3, now_ - 95, now_ - 40, -7}});
    out_.push_back(CounterRow{run_.id, now_, "tokens_per_second", 10.0 * rng_.uniform()});
    if (ordinal % 5 == 0) out_.push_back(LossRow{run_.id, now_, "span_ring_full", 1 + below(9)});
    if (ordinal % 6 == 0) out_.push_back(NoteRow{run_.id, rows_.ids().round, now_, "look, here"});
    if (ordinal % 4 == 3) {
        HeadEvalRow shadow{run_.id, 0,  "slimspec:rank=72", HeadMode::selfpaced, 49152.0, 123, 456, 1, 2,
                           1,       0.5};
        out_.push_back(HeadEvaluated{{shadow}});
    }
}

RoundRecord RandomCapture::round(RowId prompt_id, int tokens_before) {
    RoundRecord record;
    RoundRow& r = record.round;
    r.prompt_id = prompt_id;
    tree(record);
    r.clipped = below(8) == 0;
    HeadEvalRow eval;
    eval.head = run_.head;
    eval.active_rows = 100 + below(1000);
    if (r.committed % 3 > 0) eval.row_tokens = 0.5 * eval.active_rows;
    if (r.committed % 5 == 0) eval.row_tokens.reset();  // as in captures of earlier versions
    eval.bytes = 1000 + below(1000);
    eval.head_ns = 300 + below(300);
    eval.accepted = r.accepted;
    eval.committed = r.committed;
    if (below(2) == 0) eval.covered_mass = rng_.uniform();
    for (int i = 0; i < r.committed; ++i) {
        TokenRow row = token(below(50), i + 1);
        row.position = tokens_before + i;
        if (i + 1 == r.committed) row.source = TokenSource::bonus;
        if (below(2) == 0) row.rank = below(50);
        row.covered = below(4) != 0;
        eval.covered += row.covered ? 1 : 0;
        record.tokens.push_back(row);
    }
    record.head_evals.push_back(eval);
    return record;
}

void RandomCapture::tree(RoundRecord& record) {
    RoundRow& r = record.round;
    const int nodes = 1 + below(12);
    int last = 0;
    for (int n = 0; n < nodes; ++n) {
        NodeRow node;
        node.node = n;
        node.parent = n == 0 ? -1 : below(n);
        node.depth = n == 0 ? 0 : record.nodes[node.parent].depth + 1;
        node.token_id = below(50);
        node.draft_logprob = n == 0 ? 0.0f : -real();
        node.cum_logprob = -2 * real();
        if (below(3) != 0) node.target_prob = real();
        if (below(3) != 0) node.target_rank = below(50);
        if (below(3) != 0) node.target_token_prob = real();
        node.target_token_id = below(4) == 0 ? no_token : below(50);
        node.target_covered = below(4) != 0;
        if (below(3) != 0) node.target_draft_rank = below(50);
        if (below(3) != 0) node.target_draft_logprob = -real();
        node.accepted = n == 0 || (node.parent == last && below(2) == 0);
        if (node.accepted) {
            last = n;
            for (int k = 0; k < 5; ++k) record.tops.push_back({0, n, k, below(50), real()});
        }
        r.tree_depth = std::max(r.tree_depth, node.depth);
        record.nodes.push_back(node);
        if (n > 0 && node.accepted) ++r.accepted;
    }
    r.tree_nodes = nodes;
    r.draft_tokens = nodes - 1;
    r.committed = r.accepted + 1;
    if (r.committed % 2 == 0) r.drafter = "suffix";
}

std::vector<SpanRow> RandomCapture::spans(TimeNs start, TimeNs end) {
    std::vector<SpanRow> out;
    const auto add = [&](Phase phase, TimeNs from, TimeNs to, int nesting, int level) {
        out.push_back(span(static_cast<int>(phase), from, to));
        SpanRow& row = out.back();
        row.level = level;
        row.rows = below(5);
        row.bytes = below(10000);
        row.nesting = nesting;
    };
    TimeNs t = start;
    for (int level = 0; level < 3; ++level) {
        add(Phase::backbone, t, t + 100 + below(50), 0, level);
        t = out.back().end_ns + below(10);
        add(Phase::head, t, t + 80 + below(50), 0, level);
        t = out.back().end_ns;
        const TimeNs top = t;
        add(Phase::softmax, t + 1, t + 20 + below(5), 1, level);
        t = out.back().end_ns + below(20);
        add(Phase::topk, top, t, 0, level);
        t += 3;
        if (below(2) == 0) {
            add(Phase::gather, t, t + 30, 0, level);
            t += 31;
        }
    }
    add(Phase::verify, t, std::min(end, t + 900), 0, 0);
    if (below(2) == 0) {
        add(Phase::router, start + 50, start + 50 + below(400), 0, 1);
        out.back().lane = 1;
        out.back().thread_id = 4;
    }
    return out;
}

Snapshot apply_all(const std::vector<Record>& records) {
    Capture capture;
    for (const Record& record : records) capture.apply(record);
    return capture.snapshot(1);
}

}  // namespace draftscope::testing
