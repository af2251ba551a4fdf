#include "tests/gui/synthetic.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/phase.h"

namespace draftscope::test {
namespace {

constexpr const char* prompt_text =
    "Explain in three short sentences why the sky is blue, then write a Python function that adds two "
    "numbers.";
constexpr const char* output_text =
    "Sunlight looks white, but it is a mixture of all colours of the rainbow. When it enters the atmosphere, "
    "air molecules scatter the short blue waves far more strongly than the long red ones. That scattered "
    "blue light reaches our eyes from every direction, so the whole sky looks blue.\n\nHere is a small "
    "Python function that adds two numbers:\n\n```python\ndef add(a, b):\n    \"\"\"Return the sum of a and "
    "b.\"\"\"\n    return a + b\n```\n\nYou can call it with any two numbers, for example `add(2, 3)`, and "
    "it returns `5`. It also works with floating point numbers, and because Python is dynamically typed it "
    "will even join two strings or two lists. If you want to be strict about the types, add annotations and "
    "let a type checker look at the calls.\n\nÀ bientôt, σκέψη, 空は青い 🌍!";
constexpr const char* fillers[] = {
    " the",     " a",       " of",  " and", " to",     " in",    " is",     " that",
    " light",   " blue",    " sky", " sun", " air",    " waves", " colour", " it",
    " with",    " from",    " for", " as",  " are",    " this",  " which",  " wavelengths",
    " shorter", " appears", ",",    ".",    " return", " x",     " sum",    " function"};

/// Splits text into words with their leading space and single other characters. Non-ASCII text is split into
/// bytes, as by byte-level tokenizers.
std::vector<std::string> cut(const std::string& text) {
    std::vector<std::string> tokens;
    for (std::size_t i = 0; i < text.size();) {
        std::size_t end = i + 1;
        const auto is_word = [&](std::size_t at) {
            return at < text.size() && std::isalpha(static_cast<unsigned char>(text[at]));
        };
        if (text[i] == ' ' || is_word(i)) {
            while (is_word(end) && end - i < 11) ++end;
        }
        tokens.push_back(text.substr(i, end - i));
        i = end;
    }
    return tokens;
}

std::string printable(const std::string& bytes) {
    if (static_cast<unsigned char>(bytes[0]) >= 0x80)
        return "\\x" + std::string(1, "0123456789ABCDEF"[(bytes[0] >> 4) & 15]) +
               std::string(1, "0123456789ABCDEF"[bytes[0] & 15]);
    return bytes;
}

TimeNs us(double value) {
    return static_cast<TimeNs>(value * 1e3);
}

}  // namespace

SyntheticRun::SyntheticRun(SyntheticOptions options) : options_(std::move(options)), rng_(options_.seed) {
    vocab_ = std::make_shared<Vocab>();
    vocab_->id = 1;
    std::map<std::string, TokenId> ids;
    const auto id_of = [&](const std::string& bytes) {
        const auto [entry, added] = ids.emplace(bytes, static_cast<TokenId>(vocab_->rows.size()));
        if (added) {
            VocabRow row;
            row.vocab_id = 1;
            row.token_id = entry->second;
            row.bytes = bytes;
            row.text = printable(bytes);
            vocab_->rows.push_back(row);
        }
        return entry->second;
    };
    for (const char* filler : fillers) id_of(filler);
    for (const std::string& token : cut(output_text)) output_.push_back(id_of(token));
    for (VocabRow& row : vocab_->rows) {
        row.rank = static_cast<int>(row.token_id) * 37 % 12000;
        row.count = 1'000'000 / (*row.rank + 1);
    }
    RowIds last;
    last.run = last.prompt = options_.run_id - 1;
    last.round = last.step = (options_.run_id - 1) * 1000;
    last.span = (options_.run_id - 1) * 100000;
    rows_ = testing::RecordBuilder(last);
    prompt_id_ = options_.run_id;
}

void SyntheticRun::begin(Capture& capture) {
    RunRow run{.name = "synthetic",
               .started_utc = "2026-01-01T00:00:00Z",
               .frontend = "gui",
               .target = "SmolLM2-135M-Instruct.Q4_1.gguf",
               .drafter = options_.drafter,
               .head = options_.head,
               .tree = "depth=3,topk=4,nodes=12",
               .threads = 2,
               .precision = "int8"};
    if (options_.drafter == "baseline") {  // as of a run with --baseline
        run.drafter = "none";
        run.config_json = R"({"role": "baseline"})";
    }
    capture.apply(rows_.run(std::move(run), vocab_));
    capture.apply(rows_.prompt(prompt_row()));
    PromptProgress first = progress();
    first.tokens = {testing::token(output_[0], 0, true, TokenSource::prefill)};
    first.tokens[0].prompt_id = prompt_id_;
    capture.apply(first);
    now_ = first.prefill_ns;
}

PromptRow SyntheticRun::prompt_row() const {
    PromptRow row;
    row.category = options_.category;
    row.text = prompt_text;
    row.prompt_tokens = 31;
    return row;
}

PromptProgress SyntheticRun::progress() const {
    return {prompt_id_, {}, static_cast<int>(position_), us(61'000), {}};
}

TokenId SyntheticRun::random_token() {
    return static_cast<TokenId>(rng_.below(static_cast<std::uint32_t>(std::size(fillers))));
}

void SyntheticRun::add_nodes(RoundRecord& round, int accepted) {
    const auto target_at = [&](std::size_t offset) {
        return output_[std::min(position_ + offset, output_.size() - 1)];
    };
    const auto add = [&](int parent, int depth, TokenId token, double p, bool taken) {
        NodeRow node = testing::node(static_cast<int>(round.nodes.size()), parent, depth, token, p, taken);
        node.cum_logprob = node.draft_logprob + (parent < 0 ? 0 : round.nodes[parent].cum_logprob);
        if (parent >= 0) {
            node.target_prob =
                static_cast<float>(taken ? 0.4 + 0.55 * rng_.uniform() : 0.12 * rng_.uniform());
            node.target_rank = taken ? 0 : 1 + static_cast<int>(rng_.below(40));
        }
        round.nodes.push_back(node);
        return node.node;
    };
    int on_path = add(-1, 0, output_[position_ - 1], 1.0, true);
    std::vector<int> path = {on_path};
    for (int depth = 1; depth <= options_.levels; ++depth) {
        const int parent = path.back();
        const bool goes_on = depth <= accepted;
        const double best = 0.35 + 0.6 * rng_.uniform();
        const int first =
            add(parent, depth, goes_on ? target_at(static_cast<std::size_t>(depth) - 1) : random_token(),
                best, goes_on);
        const int siblings = static_cast<int>(rng_.below(3)) + (depth == 1 ? 1 : 0);
        for (int i = 0; i < siblings && static_cast<int>(round.nodes.size()) < options_.nodes; ++i)
            add(parent, depth, random_token(), (1 - best) * (0.5 / (i + 1)) * (0.4 + 0.6 * rng_.uniform()),
                false);
        path.push_back(first);
        if (static_cast<int>(round.nodes.size()) >= options_.nodes) break;
    }
    // The target's token after each accepted node, with its most likely tokens.
    for (int depth = 0; depth <= accepted; ++depth) {
        NodeRow& node = round.nodes[path[depth]];
        node.target_token_id = target_at(static_cast<std::size_t>(depth));
        node.target_token_prob = static_cast<float>(0.3 + 0.6 * rng_.uniform());
        node.target_covered = depth < accepted || rng_.uniform() > 0.3;
        float left = 1 - *node.target_token_prob;
        for (int rank = 0; rank < 5; ++rank) {
            NodeTopRow top{0, node.node, rank, rank == 0 ? node.target_token_id : random_token(), 0};
            top.target_prob = rank == 0 ? *node.target_token_prob : left * 0.5f;
            if (rank > 0) left *= 0.5f;
            round.tops.push_back(top);
        }
    }
}

void SyntheticRun::span(StepRecord& step, Phase phase, int level, double length_us, int rows,
                        std::int64_t bytes) {
    const TimeNs start = now_;
    now_ += us(length_us * (0.9 + 0.25 * rng_.uniform()));
    step.spans.push_back(testing::span(static_cast<int>(phase), start, now_, 0, bytes));
    step.spans.back().level = level;
    step.spans.back().rows = rows;
    now_ += us(4 + 9 * rng_.uniform());
}

void SyntheticRun::add_level_spans(StepRecord& step, int level) {
    const double head_us = options_.head == "full" ? 1900 : 340;
    const int rows = level == 0 ? 3 : options_.topk;
    span(step, Phase::backbone, level, level == 0 ? 1250 : 780, rows, 9'400'000);
    span(step, Phase::head, level, head_us, rows, 9'437'184);
    span(step, Phase::topk, level, 95, rows, 131'072);
    if (options_.head != "full") span(step, Phase::gather, level, 22, rows, 4096);
}

void SyntheticRun::add_spans(StepRecord& step) {
    for (int level = 0; level < options_.levels; ++level) add_level_spans(step, level);
    span(step, Phase::rerank, 0, 30, options_.nodes, 2048);
    span(step, Phase::verify, 0, rng_.uniform() > 0.93 ? 21'000 : 12'400, options_.nodes, 138'000'000);
    span(step, Phase::accept, 0, 130, options_.nodes, 2'359'296);
    span(step, Phase::commit, 0, 75, 1, 65'536);
}

void SyntheticRun::add_head_evals(RoundRecord& round) {
    const auto add = [&](const char* head, HeadMode mode, double rows, double head_us, int lost) {
        HeadEvalRow row;
        row.head = head;
        row.mode = mode;
        row.active_rows = rows;
        row.bytes = static_cast<std::int64_t>(rows * 576 * 2 * options_.levels);
        row.head_ns = us(head_us * (0.95 + 0.1 * rng_.uniform()));
        row.accepted = std::max(0, round.round.accepted - lost);
        row.committed = row.accepted + 1;
        row.covered = std::max(row.committed - static_cast<int>(rng_.uniform() > 0.85), 0);
        row.covered_mass = 0.9 + 0.09 * rng_.uniform();
        round.head_evals.push_back(row);
    };
    const bool full = options_.head == "full";
    add(options_.head.c_str(), HeadMode::drive, full ? 49152 : 8192, full ? 8000 : 1830, 0);
    if (options_.full_reference && !full)
        add("full", HeadMode::selfpaced, 49152, 8000, -static_cast<int>(rounds_ % 4 == 0));
    if (rounds_ % 2 == 0)
        add("slimspec:rank=72", HeadMode::aligned, 49152, 1500, static_cast<int>(rng_.uniform() > 0.9));
}

StepRecord SyntheticRun::make_step() {
    StepRecord step;
    step.step.ordinal = rounds_;
    step.step.start_ns = now_;
    if (rounds_ < 2) step.step.excluded = Excluded::warmup;
    RoundRecord& record = step.rounds.emplace_back();
    RoundRow& round = record.round;
    round.ordinal = rounds_;
    round.start_ns = now_;
    round.context_length = 31 + static_cast<int>(position_);
    round.tree_depth = options_.levels;
    int accepted = 0;
    while (accepted < options_.levels && rng_.uniform() < (accepted == 0 ? 0.72 : 0.63)) ++accepted;
    const auto left = static_cast<int>(output_.size() - position_);
    round.clipped = accepted + 1 > left;
    accepted = std::min(accepted, left - 1);
    round.accepted = accepted;
    round.committed = accepted + 1;
    add_nodes(record, accepted);
    round.tree_nodes = static_cast<int>(record.nodes.size());
    round.draft_tokens = round.tree_nodes - 1;
    add_spans(step);
    for (int i = 0; i <= accepted; ++i) {
        TokenRow token = testing::token(output_[position_ + static_cast<std::size_t>(i)], i + 1, true,
                                        i < accepted ? TokenSource::draft : TokenSource::bonus);
        token.position = static_cast<int>(position_) + i;
        token.rank = vocab_->rows[token.token_id].rank;
        token.covered = i < accepted || *token.rank < 8192;
        record.tokens.push_back(token);
    }
    add_head_evals(record);
    position_ += static_cast<std::size_t>(accepted) + 1;
    round.end_ns = step.step.end_ns = now_;
    now_ += us(3);
    ++rounds_;
    step = rows_.step(std::move(step));
    for (SpanRow& row : step.spans) row.round_id = step.rounds[0].round.id;
    return step;
}

bool SyntheticRun::advance(Capture& capture) {
    if (ended_) return false;
    capture.apply(make_step());
    capture.apply(progress());
    if (position_ >= output_.size()) end(capture, RunEnd::ok);
    return !ended_;
}

LiveRound SyntheticRun::live_round(int level) {
    LiveRound live;
    live.active = true;
    live.levels = options_.levels;
    RoundRow& round = live.partial.round;
    round.id = rows_.ids().round + 1;
    round.run_id = options_.run_id;
    round.prompt_id = prompt_id_;
    live.at = {HoldPoint::Kind::after_level,      rounds_ + 1, static_cast<int>(Phase::topk), level, us(95),
               static_cast<int>(Phase::backbone), level + 1};
    const SyntheticRun saved = *this;
    live.step.id = rows_.ids().step + 1;
    live.step.run_id = options_.run_id;
    live.step.ordinal = rounds_;
    live.step.start_ns = now_;
    live.step.excluded = Excluded::paused;
    StepRecord step;
    step.step = live.step;
    for (int done = 0; done <= level && done < options_.levels; ++done) add_level_spans(step, done);
    live.spans = rows_.spans(std::move(step.spans), live.step.id);
    for (SpanRow& row : live.spans) row.round_id = round.id;
    live.step.end_ns = now_;
    *this = saved;
    const Rng rng = rng_;
    add_nodes(live.partial, 0);
    rng_ = rng;
    std::erase_if(live.partial.nodes, [&](const NodeRow& node) { return node.depth > level + 1; });
    for (NodeRow& node : live.partial.nodes) {
        node.target_token_id = no_token;
        node.target_prob.reset();
        node.target_rank.reset();
    }
    for (const NodeRow& node : live.partial.nodes)
        if (node.depth == level + 1 && level + 1 < options_.levels && live.beam.size() < 3)
            live.beam.push_back(node.node);
    live.partial.tops.clear();
    round.tree_nodes = static_cast<int>(live.partial.nodes.size());
    round.tree_depth = level + 1;
    round.draft_tokens = round.tree_nodes - 1;
    return live;
}

void SyntheticRun::end(Capture& capture, RunEnd how) {
    if (ended_) return;
    ended_ = true;
    PromptEnded ended{prompt_row()};
    ended.prompt.id = prompt_id_;
    ended.prompt.run_id = options_.run_id;
    ended.prompt.generated_tokens = static_cast<int>(position_);
    ended.prompt.prefill_ns = us(61'000);
    ended.prompt.finish = how == RunEnd::ok ? Finish::length : Finish::cancelled;
    capture.apply(ended);
    RunEnded run;
    run.run_id = options_.run_id;
    run.how = how;
    run.end_ns = now_;
    capture.apply(run);
}

std::shared_ptr<const Snapshot> synthetic_snapshot(int rounds, SyntheticOptions options) {
    Capture capture;
    SyntheticRun run(std::move(options));
    run.begin(capture);
    while (run.rounds() < rounds && run.advance(capture)) continue;
    run.end(capture, RunEnd::ok);
    return std::make_shared<const Snapshot>(capture.snapshot(1));
}

}  // namespace draftscope::test
