#include "storage/import/round_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/json_file.h"
#include "base/phase.h"
#include "capture/run_setting.h"
#include "storage/tables.h"

namespace draftscope::storage {

namespace {

constexpr int rounds_version = 1;
constexpr std::string_view chain_tree = "chain";
constexpr std::string_view refused_kind = "import_refused", replayed_kind = "import_replayed";
constexpr TimeNs max_since = std::int64_t{1} << 53;  ///< 104 days
constexpr std::size_t max_notes = 40;                ///< of refused lines; the loss has their number

Finish finish_of(const std::string& end) {
    if (end == "stop" || end == "eos") return Finish::eos;
    return end == "length" || end == "limit" ? Finish::length : Finish::none;
}

std::string losslessness_of(const std::string& verification, double temperature) {
    if (verification == "match") return "exact";
    if (verification == "pq") return temperature == 0 ? "exact" : "distribution";
    return verification == "typical" ? "lossy" : "unknown";
}

NodeRow make_node(int number, int parent, int depth, TokenId token, float logprob) {
    NodeRow row;
    row.node = number;
    row.parent = parent;
    row.depth = depth;
    row.token_id = token;
    row.draft_logprob = row.cum_logprob = logprob;
    row.target_covered.reset();
    return row;
}

}  // namespace

void RoundLines::next_file() {
    ++file_;
    file_zero_.reset();
    base_ = last_end_;
}

int RoundLines::vocab_size() const {
    if (header_vocab_ > 0) return header_vocab_;
    return options_.vocab ? static_cast<int>(options_.vocab->rows.size()) : max_token_id;
}

Status RoundLines::begin_run(const Json& header) {
    Json known = header;
    for (const auto& [key, value] : options_.header)
        known[key] = Json::accept(value) ? Json::parse(value) : Json(value);
    RoundFields fields(known);
    const auto found = fields.integer("dsrounds");
    if (!found || *found != rounds_version)
        return bad_input("field dsrounds: {}, this program reads version {}; update the program",
                         found ? std::to_string(*found) : "no number", rounds_version);
    const std::string engine = fields.text("engine");
    RunRow run;
    const std::string engine_version = fields.text("engine_version");
    run.name = engine + (engine_version.empty() ? "" : " ") + engine_version;
    run.target = fields.text("target");
    run.drafter = fields.text("drafter");
    const std::string tree = fields.text("tree");
    const auto length = fields.integer("k");
    run.tree = tree.empty() || tree == chain_tree ? (length ? fmt::format("chain={}", *length) : "") : tree;
    run.verify = fields.text("verification");
    if (run.verify.empty()) run.verify = "unknown";
    run.temperature = fields.real("temperature").value_or(std::numeric_limits<double>::quiet_NaN());
    run.batch = static_cast<int>(fields.integer("batch", 1).value_or(-1));
    header_vocab_ = static_cast<int>(fields.integer("vocab", 1, max_token_id).value_or(0));
    prefill_first_ = fields.text("first_token") == "prefill";
    if (!fields.problem().empty()) return bad_input("{}", fields.problem());
    const std::string text = known.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text == header_) return {};
    end_run();
    header_ = text;
    run.id = ++ids_.run;
    run.frontend = "import";
    run.acceptance = imported_acceptance;
    run.threads = -1;
    run.backend = run.numerics = run.tier = "";
    run.vocab_id = options_.vocab ? options_.vocab->id : 0;
    Json config = {{import_key, known}, {losslessness_key, losslessness_of(run.verify, run.temperature)}};
    if (!options_.ranking.empty()) config[std::string(ranking_key)] = options_.ranking;
    run.config_json = config.dump(-1, ' ', false, Json::error_handler_t::replace);
    run_ = run;
    ++report_.runs;
    steps_ = 0;
    base_ = last_end_ = 0;
    file_zero_.reset();
    out_.push(RunStarted{run, options_.vocab, {run.id, 0, 0, std::nullopt}});
    for (const std::string& waiting : std::exchange(waiting_, {})) out_.push(NoteRow{run.id, 0, 0, waiting});
    const int known_tokens = options_.vocab ? static_cast<int>(options_.vocab->rows.size()) : 0;
    if (known_tokens > 0 && header_vocab_ > 0 && known_tokens != header_vocab_)
        note(fmt::format("field vocab: the file has {} tokens, the model's tokenizer {}; texts and ranks may "
                         "be those of other tokens",
                         header_vocab_, known_tokens),
             false);
    return {};
}

void RoundLines::note(const std::string& text, bool refused) {
    report_.refused += refused ? 1 : 0;
    refused_ += refused ? 1 : 0;
    if (report_.notes.size() >= max_notes) return;
    report_.notes.push_back(text);
    if (report_.notes.size() == max_notes) report_.notes.emplace_back("further notes are left out");
    if (header_.empty())
        waiting_.push_back(text);
    else
        out_.push(NoteRow{run_.id, 0, last_end_, text});
}

std::string RoundLines::add(const Json& line) {
    if (header_.empty()) return "a line before the header (dsrounds)";
    RoundFields fields(line);
    const Json* name = fields.find("req");
    if (name == nullptr || !(name->is_string() || name->is_number_integer()))
        return "field req: missing or no text; it names the request";
    Request& of = request(name->is_string() ? name->get<std::string>() : name->dump());
    const bool is_round =
        fields.find("a") != nullptr || fields.find("a_sum") != nullptr || fields.find("d_sum") != nullptr;
    if (!is_round && (fields.find("i") != nullptr || fields.find("n") != nullptr)) {
        of.next_round = of.context = -1;
        return "field a: missing; a round needs its accepted drafts";
    }
    const std::string problem = is_round ? add_round(fields, of) : add_request(fields, of);
    // What follows is compared with what follows it, not with a line that was left out.
    if (is_round && !problem.empty()) of.next_round = of.context = -1;
    return problem;
}

RoundLines::Request& RoundLines::request(const std::string& name) {
    const auto [place, is_new] = requests_.try_emplace({file_, name});
    Request& out = place->second;
    if (!is_new) return out;
    out.row.id = ++ids_.prompt;
    out.row.run_id = run_.id;
    out.row.ordinal = static_cast<int>(requests_.size()) - 1;
    ++report_.requests;
    out.row.external_id = name;
    out.row.prompt_tokens = -1;
    out_.push(PromptStarted{out.row});
    return out;
}

std::string RoundLines::token_text(TokenId token) const {
    if (!options_.vocab || token >= static_cast<int>(options_.vocab->rows.size())) return {};
    const VocabRow& row = options_.vocab->rows[token];
    return row.bytes.empty() ? row.text : row.bytes;
}

void RoundLines::append_text(Request& request, TokenId token) {
    request.last = token;
    request.row.output += token_text(token);
}

std::string RoundLines::add_request(RoundFields& fields, Request& request) {
    const auto ids = fields.integers("prompt_ids", 0, vocab_size() - 1);
    const auto tokens = fields.integer("prompt_tokens");
    const auto first = fields.integer("first_id", 0, vocab_size() - 1);
    const std::string prompt = fields.text("prompt"), category = fields.text("category");
    const std::string suite = fields.text("suite"), first_text = fields.text("first_text");
    const auto prefill = fields.integer("prefill_ns", 0, std::int64_t{1} << 61);
    const auto completion = fields.integer("completion_tokens");
    if (!fields.problem().empty()) return fields.problem();
    PromptRow& row = request.row;
    if (ids || tokens) row.prompt_tokens = ids ? static_cast<int>(ids->size()) : static_cast<int>(*tokens);
    if (ids) report_.prompt_ids[row.id] = *ids;
    if (!prompt.empty()) row.text = prompt;
    if (row.text.empty() && ids)
        for (const TokenId token : *ids) row.text += token_text(token);
    if (!category.empty()) row.category = category;
    if (!suite.empty()) row.suite = suite;
    if (prefill) row.prefill_ns = *prefill;
    if (completion) request.completion_tokens = completion;
    const bool begins = request.rounds == 0;
    if (begins && row.prompt_tokens >= 0 && request.next_round == 0)
        request.context = row.prompt_tokens + (prefill_first_ ? 1 : 0);
    if (begins && first) append_text(request, static_cast<TokenId>(*first));
    if (begins && first && !options_.vocab) row.output += first_text;
    std::vector<TokenRow> rows;
    if (begins && first) {
        TokenRow& token = rows.emplace_back();
        token.prompt_id = row.id;
        token.token_id = static_cast<TokenId>(*first);
        token.source = TokenSource::prefill;
        token.covered.reset();
    }
    if (begins && prefill_first_) row.generated_tokens = 1;
    out_.push(PromptEnded{row});  // replaces the row; the request may go on
    if (!rows.empty())
        out_.push(PromptProgress{row.id, row.output, row.generated_tokens, row.prefill_ns, std::move(rows)});
    return {};
}

std::string RoundLines::check_order(const RoundLine& round, const Request& request) const {
    if (request.ended) return "field req: the request has ended (end) in a line before";
    if (round.ordinal >= 0 && request.next_round >= 0 && round.ordinal < request.next_round)
        return fmt::format("field i: {} again, or out of order; {} was expected", round.ordinal,
                           request.next_round);
    if (round.context >= 0 && request.context >= 0 && round.ordinal == request.next_round &&
        round.context != request.context)
        return fmt::format("field ctx: {}, but the lines before make {}", round.context, request.context);
    return {};
}

std::string RoundLines::add_round(RoundFields& fields, Request& request) {
    RoundLine round = read_round(fields, vocab_size());
    const auto accepted = fields.integer("a_sum"), drafted = fields.integer("d_sum");
    const std::int64_t made =
        (accepted ? *accepted : std::int64_t{round.committed} * round.count) + round.count;
    if (request.row.generated_tokens + made > max_count)
        fields.refuse("n", "the request has too many tokens");
    const std::string end = fields.text("end"), text = fields.text("text");
    const bool replay = fields.flag("replay");
    const auto batch = fields.integer("bs", 1);
    if (!fields.problem().empty()) return fields.problem();
    if (accepted && drafted && *accepted > *drafted)
        return fmt::format("field a_sum: {} accepted of {} drafted (d_sum)", *accepted, *drafted);
    const auto sum = [&](std::string_view name, std::int64_t value) {
        out_.push(CounterRow{run_.id, last_end_, std::string(name), static_cast<double>(value)});
    };
    if (accepted && fields.find("n") == nullptr) return "field n: missing; a_sum is over n rounds";
    if (request.row.generated_tokens == 0 && prefill_first_) request.row.generated_tokens = 1;
    if (drafted) sum(drafted_sum, *drafted);
    if (accepted) {
        sum(accepted_sum, *accepted);
        sum(rounds_sum, round.count);
        report_.rounds += round.count;
        request.row.generated_tokens += static_cast<int>(*accepted) + round.count;
    }
    if (accepted || fields.find("a") == nullptr) return {};
    if (replay) {
        ++replayed_;
        return {};
    }
    if (std::string why = check_order(round, request); !why.empty()) return why;
    if (round.ordinal > request.next_round && request.next_round >= 0) {
        note(fmt::format("request {}: rounds {} to {} are missing", request.row.external_id,
                         request.next_round, round.ordinal - 1),
             false);
        request.context = -1;
    }
    if (batch.value_or(1) > 1 && round.duration && !std::exchange(says_batch_, true))
        note("field bs: steps of several sequences; speeds are those of one sequence", false);
    if (round.depth < 0 && (run_.tree.empty() || run_.tree.starts_with(chain_tree)))
        round.depth = round.drafted;
    push_round(round, request);
    if (round.out.empty() || !options_.vocab) request.row.output += text;
    if (end.empty()) return {};
    request.row.finish = finish_of(end);
    end_request(request);
    return {};
}

void RoundLines::push_round(const RoundLine& round, Request& request) {
    if (round.ordinal < 0) request.context = -1;  // without an order, nothing lies before
    for (int i = 0; i < round.count; ++i) {
        StepRecord step = timed_step(round);
        RoundRecord& record = step.rounds.emplace_back();
        RoundRow& row = record.round;
        row.id = ++ids_.round;
        row.run_id = run_.id;
        row.step_id = step.step.id;
        row.prompt_id = request.row.id;
        row.ordinal = round.ordinal;
        row.start_ns = step.step.start_ns;
        row.end_ns = step.step.end_ns;
        row.context_length = round.context >= 0 ? round.context : request.context;
        row.draft_tokens = round.drafted;
        row.tree_nodes = round.drafted >= 0 ? round.drafted + 1 : -1;
        row.tree_depth = round.depth;
        row.drafter = round.drafter;
        row.accepted = round.accepted;
        row.committed = round.committed;
        row.clipped = round.committed <= round.accepted;
        if (row.context_length >= 0) request.context = row.context_length + round.committed;
        add_nodes(round, request, record);
        add_tokens(round, request, record);
        out_.push(std::move(step));
        request.row.generated_tokens += round.committed;
        ++request.rounds;
        ++report_.rounds;
    }
    if (round.ordinal < 0) return;
    request.next_round = round.ordinal + 1;
    // A window that follows sees the text's length now and then.
    if (request.rounds % 16 == 0)
        out_.push(PromptProgress{
            request.row.id, request.row.output, request.row.generated_tokens, request.row.prefill_ns, {}});
}

/// Makes the round's step. Without a duration its time does not count.
StepRecord RoundLines::timed_step(const RoundLine& round) {
    StepRecord out;
    StepRow& step = out.step;
    step.id = ++ids_.step;
    step.run_id = run_.id;
    step.ordinal = steps_++;
    step.sampled = !round.phases.empty();
    if (round.start && !file_zero_) file_zero_ = round.start;
    // Files have clocks of their own, so each begins where the one before ended.
    const TimeNs since = round.start ? std::clamp<TimeNs>(*round.start - *file_zero_, 0, max_since) : 0;
    step.start_ns = round.start ? saturating_sum(base_, since) : last_end_;
    step.excluded = round.duration ? Excluded::no : Excluded::untimed;
    if (!round.duration) return out;
    if (!round.start && !std::exchange(says_no_start_, true))
        note("field t0: missing; rounds are laid out one after another", false);
    step.end_ns = saturating_sum(step.start_ns, *round.duration);
    last_end_ = std::max(last_end_, step.end_ns);
    TimeNs at = step.start_ns;
    for (const auto& [phase, ns] : round.phases) {
        SpanRow& span = out.spans.emplace_back();
        span.id = ++ids_.span;
        span.run_id = run_.id;
        span.step_id = step.id;
        span.phase_id = phase;
        span.start_ns = at;
        span.end_ns = at += ns;
    }
    return out;
}

/// Records the draft as far as it is known: all of it, or the accepted part that the text shows.
void RoundLines::add_nodes(const RoundLine& round, const Request& request, RoundRecord& record) const {
    const bool has_draft = !round.draft.empty();
    if (!has_draft && round.out.empty()) return;
    record.nodes.push_back(make_node(0, -1, 0, request.last, 0));
    record.nodes[0].accepted = true;
    const int shown = has_draft ? static_cast<int>(round.draft.size())
                                : std::min(round.accepted, static_cast<int>(round.out.size()));
    const float unknown = std::numeric_limits<float>::quiet_NaN();
    for (int i = 0; i < shown; ++i) {
        const int parent = has_draft ? round.parents[i] + 1 : i;
        NodeRow row = make_node(i + 1, parent, has_draft ? round.depths[i] : i + 1,
                                has_draft ? round.draft[i] : round.out[i],
                                round.logprobs.empty() ? unknown : round.logprobs[i]);
        row.cum_logprob += record.nodes[parent].cum_logprob;
        if (!round.target_logprobs.empty() && !std::isnan(round.target_logprobs[i]))
            row.target_prob = std::exp(round.target_logprobs[i]);
        if (!round.target_ranks.empty() && round.target_ranks[i] >= 0)
            row.target_rank = round.target_ranks[i];
        row.accepted = !has_draft;
        record.nodes.push_back(row);
    }
    for (const int node : round.path) record.nodes[node + 1].accepted = true;
    for (NodeRow& row : record.nodes)
        if (row.accepted && row.depth < static_cast<int>(round.out.size()))
            row.target_token_id = round.out[row.depth];
    // The drafter's other candidates follow the nodes that it drafted.
    const int nodes = has_draft ? static_cast<int>(record.nodes.size()) : 0;
    for (int i = 0; i < static_cast<int>(round.alternatives.size()) && i < nodes; ++i) {
        // The drafter may have looked one position further than it drafted.
        const int parent = i + 1 == nodes ? i : record.nodes[i + 1].parent;
        for (const auto& [token, logprob] : round.alternatives[i]) {
            if (std::ranges::any_of(record.nodes, [&](const NodeRow& row) {
                    return row.parent == parent && row.token_id == token;
                }))
                continue;
            NodeRow row = make_node(static_cast<int>(record.nodes.size()), parent,
                                    record.nodes[parent].depth + 1, token, logprob);
            row.cum_logprob += record.nodes[parent].cum_logprob;
            record.nodes.push_back(row);
        }
    }
    for (NodeRow& row : record.nodes) row.round_id = record.round.id;
}

void RoundLines::add_tokens(const RoundLine& round, Request& request, RoundRecord& record) {
    for (int i = 0; i < static_cast<int>(round.out.size()); ++i) {
        TokenRow& token = record.tokens.emplace_back();
        token.prompt_id = request.row.id;
        token.position = request.row.generated_tokens + i;
        token.round_id = record.round.id;
        token.token_id = round.out[i];
        token.source = i < round.accepted ? TokenSource::draft : TokenSource::bonus;
        token.depth = i + 1;
        token.covered.reset();
        if (options_.vocab && token.token_id < static_cast<int>(options_.vocab->rows.size()))
            token.rank = options_.vocab->rows[token.token_id].rank;
        append_text(request, token.token_id);
    }
}

void RoundLines::end_request(Request& request) {
    if (request.ended) return;
    request.ended = true;
    out_.push(PromptEnded{request.row});
}

void RoundLines::end_run() {
    if (header_.empty()) return;
    for (auto& [name, request] : requests_) {
        const PromptRow& row = request.row;
        if (request.completion_tokens && *request.completion_tokens != row.generated_tokens)
            note(fmt::format("request {}: field completion_tokens: {}, but its rounds make {}",
                             row.external_id, *request.completion_tokens, row.generated_tokens),
                 false);
        end_request(request);
    }
    requests_.clear();
    const auto lose = [&](std::string_view kind, std::int64_t& count) {
        if (count > 0) out_.push(LossRow{run_.id, last_end_, std::string(kind), std::exchange(count, 0)});
    };
    lose(refused_kind, refused_);
    lose(replayed_kind, replayed_);
    out_.push(RunEnded{run_.id, RunEnd::ok, last_end_, {run_.id, last_end_, 0, std::nullopt}});
    header_.clear();
}

}  // namespace draftscope::storage
