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
    "air "
    "molecules scatter the short blue waves far more strongly than the long red ones. That scattered blue "
    "light "
    "reaches our eyes from every direction, so the whole sky looks blue.\n\nHere is a small Python function "
    "that "
    "adds two numbers:\n\n```python\ndef add(a, b):\n    \"\"\"Return the sum of a and b.\"\"\"\n    return "
    "a + b\n```\n\nYou "
    "can call it with any two numbers, for example `add(2, 3)`, and it returns `5`. It also works with "
    "floating point "
    "numbers, and because Python is dynamically typed it will even join two strings or two lists. If you "
    "want to be "
    "strict about the types, add annotations and let a type checker look at the calls.\n\nÀ bientôt, σκέψη, "
    "空は青い 🌍!";
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

int id(Phase phase) {
    return static_cast<int>(phase);
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
    next_round_ = (options_.run_id - 1) * 1000 + 1;
    next_step_ = next_round_;
    next_span_ = (options_.run_id - 1) * 100000 + 1;
    prompt_id_ = options_.run_id;
}

void SyntheticRun::begin(Capture& capture) {
    RunStarted started;
    RunRow& run = started.run;
    run.id = options_.run_id;
    run.name = "synthetic";
    run.started_utc = "2026-01-01T00:00:00Z";
    run.frontend = "gui";
    run.target = "SmolLM2-135M-Instruct.Q4_1.gguf";
    run.drafter = options_.drafter;
    run.head = options_.head;
    run.tree = "depth=3,topk=4,nodes=12";
    run.threads = 2;
    run.precision = "int8";
    run.vocab_id = 1;
    started.vocab = vocab_;
    capture.apply(started);
    PromptStarted prompt;
    prompt.prompt.id = prompt_id_;
    prompt.prompt.run_id = run.id;
    prompt.prompt.category = options_.category;
    prompt.prompt.text = prompt_text;
    prompt.prompt.prompt_tokens = 31;
    capture.apply(prompt);
    PromptProgress progress;
    progress.prompt_id = prompt_id_;
    progress.generated_tokens = 1;
    progress.prefill_ns = us(61'000);
    TokenRow first;
    first.prompt_id = prompt_id_;
    first.token_id = output_[0];
    first.source = TokenSource::prefill;
    progress.tokens = {first};
    capture.apply(progress);
    now_ = progress.prefill_ns;
}

TokenId SyntheticRun::random_token() {
    return static_cast<TokenId>(rng_.below(static_cast<std::uint32_t>(std::size(fillers))));
}

void SyntheticRun::add_nodes(RoundRecord& round, int accepted) {
    const RowId id = round.round.id;
    const auto target_at = [&](std::size_t offset) {
        return output_[std::min(position_ + offset, output_.size() - 1)];
    };
    const auto add = [&](int parent, int depth, TokenId token, double p, bool taken) {
        NodeRow node;
        node.round_id = id;
        node.node = static_cast<int>(round.nodes.size());
        node.parent = parent;
        node.depth = depth;
        node.token_id = token;
        node.draft_logprob = static_cast<float>(std::log(p));
        node.cum_logprob = node.draft_logprob + (parent < 0 ? 0 : round.nodes[parent].cum_logprob);
        node.accepted = taken;
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
            NodeTopRow top{id, node.node, rank, rank == 0 ? node.target_token_id : random_token(), 0};
            top.target_prob = rank == 0 ? *node.target_token_prob : left * 0.5f;
            if (rank > 0) left *= 0.5f;
            round.tops.push_back(top);
        }
    }
}

void SyntheticRun::span(StepRecord& step, RowId round_id, int phase, int level, double length_us, int rows,
                        std::int64_t bytes, int nesting) {
    SpanRow row;
    row.id = next_span_++;
    row.run_id = options_.run_id;
    row.step_id = step.step.id;
    row.round_id = round_id;
    row.phase_id = phase;
    row.level = level;
    row.start_ns = now_;
    now_ += us(length_us * (0.9 + 0.25 * rng_.uniform()));
    row.end_ns = now_;
    row.rows = rows;
    row.bytes = bytes;
    row.nesting = nesting;
    step.spans.push_back(row);
    now_ += us(4 + 9 * rng_.uniform());
}

void SyntheticRun::add_level_spans(StepRecord& step, RowId round_id, int level) {
    const double head_us = options_.head == "full" ? 1900 : 340;
    const int rows = level == 0 ? 3 : options_.topk;
    span(step, round_id, id(Phase::backbone), level, level == 0 ? 1250 : 780, rows, 9'400'000);
    span(step, round_id, id(Phase::head), level, head_us, rows, 9'437'184);
    span(step, round_id, id(Phase::topk), level, 95, rows, 131'072);
    if (options_.head != "full") span(step, round_id, id(Phase::gather), level, 22, rows, 4096);
}

void SyntheticRun::add_spans(StepRecord& step, RowId round_id) {
    for (int level = 0; level < options_.levels; ++level) add_level_spans(step, round_id, level);
    span(step, round_id, id(Phase::rerank), 0, 30, options_.nodes, 2048);
    span(step, round_id, id(Phase::verify), 0, rng_.uniform() > 0.93 ? 21'000 : 12'400, options_.nodes,
         138'000'000);
    span(step, round_id, id(Phase::accept), 0, 130, options_.nodes, 2'359'296);
    span(step, round_id, id(Phase::commit), 0, 75, 1, 65'536);
}

void SyntheticRun::add_head_evals(RoundRecord& round) {
    const auto add = [&](const char* head, HeadMode mode, double rows, double head_us, int lost) {
        HeadEvalRow row;
        row.run_id = options_.run_id;
        row.round_id = round.round.id;
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
    if (options_.full_reference && !full && rounds_ < 8)
        add("full", HeadMode::calibration, 49152, 8000, -static_cast<int>(rounds_ % 4 == 0));
    if (rounds_ % 2 == 0)
        add("slimspec:rank=72", HeadMode::aligned, 49152, 1500, static_cast<int>(rng_.uniform() > 0.9));
}

StepRecord SyntheticRun::make_step() {
    StepRecord step;
    step.step.id = next_step_++;
    step.step.run_id = options_.run_id;
    step.step.ordinal = rounds_;
    step.step.start_ns = now_;
    if (rounds_ < 2) step.step.excluded = Excluded::warmup;
    RoundRecord& record = step.rounds.emplace_back();
    RoundRow& round = record.round;
    round.id = next_round_++;
    round.run_id = options_.run_id;
    round.step_id = step.step.id;
    round.prompt_id = prompt_id_;
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
    round.drafted = round.tree_nodes - 1;
    add_spans(step, round.id);
    for (int i = 0; i <= accepted; ++i) {
        TokenRow token;
        token.prompt_id = prompt_id_;
        token.position = static_cast<int>(position_) + i;
        token.round_id = round.id;
        token.token_id = output_[position_ + static_cast<std::size_t>(i)];
        token.source = i < accepted ? TokenSource::draft : TokenSource::bonus;
        token.depth = i + 1;
        token.rank = vocab_->rows[token.token_id].rank;
        token.covered = i < accepted || *token.rank < 8192;
        record.tokens.push_back(token);
    }
    add_head_evals(record);
    position_ += static_cast<std::size_t>(accepted) + 1;
    round.end_ns = step.step.end_ns = now_;
    now_ += us(3);
    ++rounds_;
    return step;
}

bool SyntheticRun::advance(Capture& capture) {
    if (ended_) return false;
    capture.apply(make_step());
    PromptProgress progress;
    progress.prompt_id = prompt_id_;
    progress.generated_tokens = static_cast<int>(position_);
    progress.prefill_ns = us(61'000);
    capture.apply(progress);
    if (position_ >= output_.size()) end(capture, RunEnd::ok);
    return !ended_;
}

LiveRound SyntheticRun::live_round(int level) {
    LiveRound live;
    live.active = true;
    live.levels = options_.levels;
    RoundRow& round = live.partial.round;
    round.id = next_round_;
    round.run_id = options_.run_id;
    round.prompt_id = prompt_id_;
    live.at = {HoldPoint::Kind::after_level,      rounds_ + 1, static_cast<int>(Phase::topk), level, us(95),
               static_cast<int>(Phase::backbone), level + 1};
    const SyntheticRun saved = *this;
    live.step.id = next_step_;
    live.step.run_id = options_.run_id;
    live.step.ordinal = rounds_;
    live.step.start_ns = now_;
    live.step.excluded = Excluded::paused;
    StepRecord step;
    step.step = live.step;
    for (int done = 0; done <= level && done < options_.levels; ++done) add_level_spans(step, round.id, done);
    live.spans = std::move(step.spans);
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
    live.partial.tops.clear();
    round.tree_nodes = static_cast<int>(live.partial.nodes.size());
    round.tree_depth = level + 1;
    round.drafted = round.tree_nodes - 1;
    return live;
}

void SyntheticRun::end(Capture& capture, RunEnd how) {
    if (ended_) return;
    ended_ = true;
    PromptEnded ended;
    ended.prompt.id = prompt_id_;
    ended.prompt.run_id = options_.run_id;
    ended.prompt.category = options_.category;
    ended.prompt.text = prompt_text;
    ended.prompt.prompt_tokens = 31;
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
